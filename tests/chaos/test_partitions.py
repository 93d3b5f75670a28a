"""Six real nodes, cut in two halves and joined again: one network, in every protocol.

All that they say to each other passes through proxies (`chaos_links`). A cut is what a dead router
is: nothing is said, nothing is answered, and who dials waits.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from chaos_links import Network
from chaos_node import CONFIG, PARAMETERS

from live_nodes import run, take, until
from rumormill import Node
from rumormill.libp2p.connection import Connection
from rumormill.protocols.registry import PROTOCOL_NAMES

HERE, THERE = [0, 1, 2], [3, 4, 5]


class Loop(asyncio.SelectorEventLoop):
    """A loop on which every node dials through proxies of its own."""

    routes: dict[Any, dict[str, int]]
    """By the swarm that dials: at which port an address is found."""

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> Any:
        """Dial where the dialler's proxy for this address listens; a proxy dials as it is told."""
        made = factory()
        if isinstance(made, Connection):
            host, port = "127.0.0.1", self.routes[made._owner][f"{host}:{port}"]
        return await super().create_connection(lambda: made, host, port, **options)


@contextlib.asynccontextmanager
async def network(protocol: str) -> AsyncIterator[tuple[list[Node], Network]]:
    """Six nodes that were given the first one's ticket, and what lies between them.

    The skip ring's are told the ticket of a seventh, which supervises."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    preset = {"pulsarcast": "open", "radius": "few"}.get(protocol, "default")
    parameters = PARAMETERS[protocol]

    def node(number: int, **options: Any) -> Node:
        at = f"/ip4/127.0.0.{number + 1}/tcp/0"
        speaks: dict[str, Any] = {"protocol": protocol, "preset": preset, "parameters": parameters}
        return Node(None, listen=at, config=CONFIG, **speaks, **options)

    async with contextlib.AsyncExitStack() as running:
        above = [node(6, supervises=True)] if protocol == "skipring" else []
        for each in above:
            await running.enter_async_context(each)
        tickets = [each.tickets[0] for each in above]
        nodes = [
            await running.enter_async_context(node(number, supervisors=tickets))
            for number in (*HERE, *THERE)
        ]
        everybody = [*nodes, *above]
        links = Network([_endpoint(each) for each in everybody])
        await running.enter_async_context(links)
        loop.routes = {each._swarm: links.routes(at) for at, each in enumerate(everybody)}
        for each in () if above else nodes[1:]:
            await each.connect(nodes[0].tickets[0])
        yield nodes, links


def _endpoint(node: Node) -> tuple[str, int]:
    _, _, host, _, port, *_ = node.tickets[0].split("/")
    return host, int(port)


def across(nodes: list[Node]) -> int:
    """How many connections lead from one half to the other."""
    far = {node.tickets[0].rpartition("/")[2] for node in nodes[3:]}
    return sum(str(peer.id) in far for node in nodes[:3] for peer in node.peers)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_partition_that_heals_is_one_network_within_thirty_seconds(protocol: str) -> None:
    """All that was published meanwhile and afterwards is everywhere by then."""

    async def story() -> None:
        async with network(protocol) as (nodes, links):
            topic = (await nodes[0].create_topic("news")).name
            events = [await node.subscribe(topic) for node in nodes]
            for node in nodes:
                await node.wait_until_ready(topic)
            await until(lambda: across(nodes), "the halves are linked")
            cut = links.between(THERE)
            for link in cut:
                link.hold(True)
            await until(lambda: not across(nodes), "the halves have given up each other")
            sent = [f"{part} alone".encode() for part in ("here", "there")]
            for number, said in zip((0, 3), sent, strict=True):
                await nodes[number].publish(topic, said)
            for link in cut:
                link.hold(False)
            for number, node in enumerate(nodes):
                sent.append(f"{number} again".encode())
                await node.publish(topic, sent[-1])
            async with asyncio.timeout(30.0):
                for each in events:
                    assert sorted(await take(each, len(sent))) == sorted(sent)

    run(story, loop=Loop)
