"""Stories of nodes behind NATs, run by `test_node_nats.py` in namespaces of their own.

    unshare -rn python tests/node/nat_stories.py pair "port restricted" "full cone"

prints what became of a connection between two nodes behind such gateways, as one line of JSON;

    unshare -rn python tests/node/nat_stories.py matrix

all kinds against each other, three times each, as the table of `docs/reach.md`.
"""

import asyncio
import contextlib
import json
import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live_nodes import take, until
from nat_lab import KINDS, Host, Internet
from rumormill.node.node import Node
from rumormill.sync.config import SyncConfig

SOON = SyncConfig(interval=2.0, settle=1.0)
LISTEN = "/ip4/0.0.0.0/tcp/4001"
TOPIC = "news"
JITTER, LOSS = 0.010, 0.01
"""Seconds by which a packet is late at most, and the share of packets that are lost."""


class World:
    """An internet, and nodes on its hosts."""

    def __init__(self, internet: Internet, running: AsyncExitStack) -> None:
        self.internet = internet
        self._running = running
        self._hosts: dict[bytes, Host] = {}

    async def node(self, host: Host, **options: Any) -> Node:
        """Start a node on a host, until the story is over."""
        with host.here():
            node = Node(**{"home": None, "listen": LISTEN, "members": False, **options})
            await node.start()
        self._running.push_async_callback(node.close)
        self._hosts[node.id] = host
        return node

    def at(self, node: Node) -> AbstractContextManager[None]:
        """On the host of a node."""
        return self._hosts[node.id].here()

    def tickets(self, node: Node) -> list[str]:
        """The tickets of a node, as its host knows them."""
        with self.at(node):
            return node.tickets

    async def has_place(self, node: Node) -> str:
        """Wait until a node is reached through a relay; return the ticket."""
        await until(lambda: "/p2p-circuit" in "".join(self.tickets(node)), "there is a place")
        return next(each for each in self.tickets(node) if "/p2p-circuit" in each)


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    """One without hosts yet."""
    internet = Internet(**options)
    try:
        async with AsyncExitStack() as running:
            yield World(internet, running)
    finally:
        internet.close()


@asynccontextmanager
async def met(one: str, other: str, **options: Any) -> AsyncIterator[tuple[World, Node, Node]]:
    """Two nodes behind gateways, each with a public peer beside the relay; the first has a place
    there, and the second is about to reach it."""
    async with world(**options) as here:
        net = here.internet
        relay = await here.node(net.host("none"), be_relay=True)
        public = here.tickets(await here.node(net.host("none")))
        hidden = await here.node(net.host(one), relays=here.tickets(relay))
        visitor = await here.node(net.host(other))
        for node in (hidden, visitor):
            with here.at(node):
                await node.connect(public[0])
        yield here, hidden, visitor


async def pair(one: str, other: str, seed: str = "1", *rough: str) -> dict[str, Any]:
    """Two nodes behind gateways: one has a place at a relay, the other reaches it there."""
    loop = asyncio.get_running_loop()
    links: dict[str, Any] = {"jitter": JITTER, "loss": LOSS} if rough else {}
    async with met(one, other, seed=int(seed), **links) as (here, hidden, visitor):
        ticket = await here.has_place(hidden)
        events = await hidden.subscribe(TOPIC)
        began = loop.time()
        with here.at(visitor):
            await visitor.connect(ticket)
        relayed = loop.time() - began
        outcome = lambda: hidden._reach.punching.last.get(visitor.id)  # noqa: E731
        await until(outcome, "there is an outcome")
        took = loop.time() - began
        await visitor.wait_until_ready(TOPIC)
        await visitor.publish(TOPIC, b"hello")
        assert await take(events, 1) == [b"hello"]
        way = hidden._swarm.connections[visitor.id]
        return {
            "outcome": outcome(),
            "direct": not way.relay,
            "relayed_ms": round(relayed * 1000),
            "ms": round(took * 1000),
            "symmetric": [node._reach.punching.symmetric for node in (hidden, visitor)],
            "why": hidden._reach.punching.reasons.get(visitor.id, ""),
            "told": [line for line in hidden.reachability if "direct connection" in line],
        }


async def expiry(one: str, other: str, lifetime: str = "60") -> dict[str, Any]:
    """Two nodes that have got to each other say nothing for longer than their gateways remember
    what nobody uses; then both publish. Return what arrived, and over which kind of connection."""
    async with met(one, other, lifetime=float(lifetime)) as (here, hidden, visitor):
        ticket = await here.has_place(hidden)
        subscribed = [await node.subscribe(TOPIC) for node in (hidden, visitor)]
        with here.at(visitor):
            await visitor.connect(ticket)
        await until(lambda: hidden._reach.punching.last.get(visitor.id), "there is an outcome")
        await visitor.wait_until_ready(TOPIC)
        before = not hidden._swarm.connections[visitor.id].relay
        routers = [each for node in (hidden, visitor) for each in here._hosts[node.id].gateways]
        for router in routers:  # whatever the nodes still say to keep their connections alive
            router.expire(asyncio.get_running_loop().time() + 2 * router.lifetime)
        for number, node in enumerate((hidden, visitor)):
            await node.publish(TOPIC, b"%d" % number)
        taken = [await take(events, 2) for events in subscribed]
        return {
            "direct_before": before,
            "expired": sum(each.expired for each in routers) > 0,
            "arrived": [sorted(map(bytes.decode, each)) for each in taken],
        }


async def matrix(runs: str = "3", *kinds: str) -> dict[str, Any]:
    """All kinds against each other, as `pair` has it, so many times, over links that vary and lose
    packets: the rows reach the columns."""
    chosen = kinds or tuple(KINDS)
    found: dict[str, Any] = {}
    for other in chosen:
        for one in chosen:
            cells = [await pair(one, other, str(seed), "rough") for seed in range(1, int(runs) + 1)]
            found[f"{other} > {one}"] = {
                "outcome": Counter(each["outcome"] for each in cells).most_common(1)[0][0],
                "direct": sum(each["direct"] for each in cells),
                "runs": len(cells),
                "ms": round(median([each["ms"] for each in cells])),
            }
            sys.stderr.write(f"{other} > {one}: {found[f'{other} > {one}']}\n")
    return found


def table(cells: dict[str, Any]) -> str:
    """The same for people."""
    kinds = list(dict.fromkeys(key.split(" > ")[0] for key in cells))
    lines = [["reaches →", *kinds], ["---"] * (len(kinds) + 1)]
    for row in kinds:
        found = [cells[f"{row} > {column}"] for column in kinds]
        lines.append([row, *map(_cell, found)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(each: dict[str, Any]) -> str:
    how = each["outcome"] if each["direct"] else f"**relayed** ({each['outcome']})"
    return f"{how} {each['direct']}/{each['runs']}, {each['ms']}"


async def network(count: str = "30", hidden: str = "20") -> dict[str, Any]:
    """So many nodes, of which most are behind NATs, publish while their relay is killed and
    returns; return how much of it everybody has, and over what kinds of connections."""
    total, behind = int(count), int(hidden)
    homes = [kind for kind in KINDS if kind not in ("none", "CGNAT", "firewall")]
    kinds = ["none"] * (total - behind) + [homes[each % len(homes)] for each in range(behind)]
    async with world(delay=0.002) as here:
        relay_home = Path(tempfile.mkdtemp(prefix="relay-"))
        first, *others = [here.internet.host(kind) for kind in kinds]
        options: dict[str, Any] = {"be_relay": True, "home": relay_home}
        relay = await here.node(first, members=True, **options)
        ticket = here.tickets(relay)[0]
        nodes = []
        for kind, host in zip(kinds[1:], others, strict=True):
            relays = [] if kind == "none" else [ticket]
            node = await here.node(host, members=True, relays=relays, sync=SOON)
            nodes.append(node)
            await node.create_topic(TOPIC)
            with here.at(node):
                await node.connect(ticket)
        meshed = lambda: all(node.subscribers(TOPIC) >= 2 for node in nodes)  # noqa: E731
        await until(meshed, "everybody knows somebody")
        said: list[bytes] = []

        async def publish(rounds: int) -> None:
            for _ in range(rounds):
                for number, node in enumerate(nodes):
                    said.append(b"%d of %d" % (len(said), number))
                    await node.publish(TOPIC, said[-1])
                    await asyncio.sleep(0.01)

        await publish(2)
        first.cut_off = True  # nobody hears of its end: so it is when a process is killed
        await relay.close()
        await publish(2)
        first.cut_off = False
        relay = await here.node(first, members=True, **options)
        await publish(2)
        have = lambda: [node.log.topics()[0].next_offset for node in nodes]  # noqa: E731
        with contextlib.suppress(AssertionError):
            await until(lambda: min(have()) == len(said), "everybody has everything")
        kinds_of_links = Counter[str]()
        for node in nodes:
            kinds_of_links.update(node.metrics()["rumormill_connections_by_kind"])
        shutil.rmtree(relay_home)
        return {"published": len(said), "least": min(have()), "links": dict(kinds_of_links)}


async def gateways() -> dict[str, Any]:
    """What each kind of gateway lets in, by datagrams: from a stranger, from another port of
    somebody that was sent to, from that port; and whether its ports change with the far end."""
    found = {}
    internet = Internet()
    try:
        friend, stranger = internet.host("none"), internet.host("none")
        for kind in KINDS:
            inside = internet.host(kind)
            own, known = _datagrams(inside, 4001), _datagrams(friend, 5000)
            beside, other = _datagrams(friend, 5001), _datagrams(stranger, 5000)
            own.sendto(b"hello", (friend.address, 5000))
            seen = await _sender(known)
            let_in = {}
            for name, sender in (("stranger", other), ("address", beside), ("port", known)):
                sender.sendto(name.encode(), seen)
                let_in[name] = await _sender(own) is not None
            own.sendto(b"hello", (friend.address, 5001))
            changes = await _sender(beside) != seen
            found[kind] = {**let_in, "changes": changes}
            for each in (own, known, beside, other):
                each.close()
    finally:
        internet.close()
    return found


def _datagrams(host: Host, port: int) -> socket.socket:
    with host.here():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind(("0.0.0.0", port))
    return made


async def _sender(receiver: socket.socket) -> Any:
    """Whose datagram arrives; None if none does."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            _, sender = await asyncio.get_running_loop().sock_recvfrom(receiver, 100)
            return sender
    return None


STORIES: dict[str, Any] = {
    "gateways": gateways, "pair": pair, "expiry": expiry, "matrix": matrix, "network": network,
}  # fmt: skip


def main() -> None:
    """Run a story, and print what came of it."""
    name, *arguments = sys.argv[1:]
    found = asyncio.run(STORIES[name](*arguments))
    sys.stdout.write(table(found) if name == "matrix" else json.dumps(found))


if __name__ == "__main__":
    main()
