"""A network of three implementations in which peers are killed: ours end complete."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from interop_asserts import TOPIC, join
from interop_peer import PATIENCE, ForeignError, ForeignPeer, Program

from live_nodes import until
from rumormill.node.node import Node

pytestmark = pytest.mark.interop


class Network:
    """3 js, 3 go and 4 of ours, each connected to all others; what was said in it."""

    def __init__(self, stack: AsyncExitStack, folder: Path, trunk: bool) -> None:
        self.stack = stack
        self.settings = {"trunk": trunk}
        self.folder = folder
        self.foreign: list[ForeignPeer] = []
        self.ours: list[Node] = []
        self.said: list[bytes] = []

    async def add_foreign(self, peer: ForeignPeer) -> None:
        await self.stack.enter_async_context(peer)
        await peer.ask("subscribe", topic=TOPIC)
        for other in self.foreign:
            await peer.ask("dial", ticket=other.ticket)
        self.foreign.append(peer)

    async def add_ours(self, name: str) -> Node:
        node = Node(self.folder / name, parameters=self.settings)
        await self.stack.enter_async_context(node)
        await node.subscribe(TOPIC)
        for peer in self.foreign:
            await join(node, peer, we_dial=True)
        for other in self.ours:
            await node.connect(other.tickets[0])
        self.ours.append(node)
        return node

    async def meshed(self) -> None:
        """Wait until relays have somebody to pass messages on to."""
        everybody = len(self.ours) + len(self.foreign)
        for node in self.ours:
            await node.wait_until_ready(TOPIC, peers=everybody - 1, timeout=30)
        for peer in self.foreign:
            await peer.ask("waitForMesh", topic=TOPIC, count=3)

    async def talk(self, about: str) -> list[bytes]:
        """Let everybody publish ten messages."""
        said: list[bytes] = []
        for number in range(10):
            for index, peer in enumerate(self.foreign):
                said.append(f"{about}: foreign {index}, {number}".encode())
                await peer.publish(TOPIC, said[-1:])
            for index, node in enumerate(self.ours):
                said.append(f"{about}: ours {index}, {number}".encode())
                await node.publish(TOPIC, said[-1])
        self.said += said
        return said


@pytest.mark.parametrize("trunk", [False, True], ids=["plain", "with trees among ours"])
async def test_ours_end_complete_and_others_are_not_disturbed(
    javascript: Program, golang: Program, tmp_path: Path, trunk: bool
) -> None:
    """One of each kind goes in the midst of it; one of ours comes back and gets what it missed."""
    async with AsyncExitStack() as stack:
        network = Network(stack, tmp_path, trunk)
        for program in (javascript, golang) * 3:
            await network.add_foreign(ForeignPeer(program))
        for number in range(4):
            await network.add_ours(f"node {number}")
        await network.meshed()
        await network.talk("before")
        for index in (1, 0):  # a go and a js peer
            await network.foreign.pop(index).kill()
        away = network.ours.pop()
        await away.close()
        survivors = network.foreign
        for node in network.ours:
            others = len(survivors) + len(network.ours) - 1
            await until(partial(sees, node, others), "who was killed is gone")
        await network.meshed()
        missed = await network.talk("meanwhile")
        await network.add_ours("node 3")
        await network.meshed()
        last = await network.talk("afterwards")
        for index, peer in enumerate(survivors):
            own = f"foreign {index},".encode()
            heard = {each for each in missed + last if own not in each}
            await until_received(peer, heard)
        await synced(network.ours, network.said)
        for node in network.ours:
            scores = [peer.score for peer in node.peers]
            assert all(score is None or score >= 0 for score in scores), "nobody is blamed"


def sees(node: Node, count: int) -> bool:
    """Whether a node has so many peers."""
    return len(node.peers) == count


async def synced(nodes: list[Node], wanted: list[bytes]) -> None:
    """Together ours get everything, some of it by gossip alone; what one of them has, all have
    after a comparison, once."""
    async with asyncio.timeout(PATIENCE):
        missing = set(wanted)
        while missing:
            for node in nodes:
                missing -= {event.data for event in await node.history(TOPIC)}
            await asyncio.sleep(0.1)
    for node in nodes:
        await node.sync(TOPIC, timeout=30)
    for node in nodes:
        await node.sync(TOPIC, timeout=30)
        stored = [event.data for event in await node.history(TOPIC)]
        assert sorted(set(wanted) - set(stored)) == [], "nothing is missing"
        assert len(stored) == len(wanted), "nothing is there twice"


async def until_received(peer: ForeignPeer, wanted: set[bytes]) -> None:
    """Wait until a peer has all of some messages, and nothing twice."""
    received = await peer.received(TOPIC, len(wanted))
    while missing := wanted - set(received):
        try:
            received = await peer.received(TOPIC, len(received) + 1)
        except ForeignError as error:
            raise AssertionError(f"{peer.ticket} lacks {sorted(missing)}") from error
    assert len(received) == len(set(received))
