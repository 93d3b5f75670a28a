"""Trees on real sockets: a parent that is there and says nothing is replaced as in a simulation."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from live_nodes import run, take, until
from processes import Program
from rumormill import Node
from rumormill.core.ids import PeerId
from rumormill.core.trace import RecvRPC, SendRPC
from rumormill.node.subscription import Subscription
from rumormill.protocols.gossipsub.sources import YOUNG, Source
from rumormill.protocols.gossipsub.trunk import Trunk
from rumormill.protocols.gossipsub.trunk_missing import LONGEST_WAIT
from trace_log import TraceLog

TOPIC = "news"
TREES = {"trunk": True}
ROUNDS = 4
RELAY = Path(__file__).with_name("trunk_relay.py")


def has_links(node: Node) -> bool:
    """Whether a node has both relays in its mesh."""
    machine: Any = node._driver.protocol
    return len(machine.mesh.links.get(TOPIC, ())) == 2


class Diamond:
    """A publisher and a child here, and between them two relays in processes of their own."""

    def __init__(self, publisher: Node, child: Node, events: Subscription) -> None:
        self.publisher, self.child, self.events = publisher, child, events
        self.relays: dict[PeerId, Program] = {}
        self._said = 0

    @property
    def trunk(self) -> Trunk:
        """The child's trees."""
        machine: Any = self.child._driver.protocol
        assert isinstance(machine.trunk, Trunk)
        return machine.trunk

    @property
    def source(self) -> Source:
        """What the child knows of the publisher."""
        source = self.trunk.sources.get(TOPIC, self.publisher.id)
        assert source is not None
        return source

    async def say(self) -> None:
        """Publish one message, and see it at the child."""
        self._said += 1
        said = b"%d" % self._said
        await self.publisher.publish(TOPIC, said)
        assert await take(self.events, 1) == [said]

    async def said_and_traced(self, log: TraceLog) -> list[tuple[float, Any]]:
        """Publish one message; return what the child and relays that go have said meanwhile."""
        self.child._recorder.flush()
        before = len(log.entries)
        await self.say()
        self.child._recorder.flush()
        traced = [(at, payload) for at, _, payload in log.entries[before:]]
        return [each for each in traced if isinstance(each[1], RecvRPC | SendRPC)]

    async def grow(self) -> PeerId:
        """Publish until one relay sends and the other was told not to; return the one that does."""
        await self.say()
        await asyncio.sleep(YOUNG)  # of a younger source nobody is late
        while not any(relay in self.source.choked for relay in self.relays):
            await self.say()
            await asyncio.sleep(0.01)  # a copy, if there is one, comes behind the message
        assert self.source.parent in self.relays
        return self.source.parent

    def stop(self, relay: PeerId) -> None:
        """Let a relay do nothing any more, with all its connections open."""
        process = self.relays[relay].process.pid
        os.kill(process, signal.SIGSTOP)
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOWAIT)

    def go_on(self, relay: PeerId) -> None:
        """Let it do what it has missed."""
        os.kill(self.relays[relay].process.pid, signal.SIGCONT)


def says(rpc: RecvRPC | SendRPC, way: type[RecvRPC | SendRPC], word: str) -> bool:
    """Whether an RPC of one way says a word of the extension."""
    return type(rpc) is way and any(each.name == word for each in rpc.meta.operations)


async def replaced(diamond: Diamond, log: TraceLog) -> float:
    """Stop the parent, whoever it is now, and publish until the other relay has taken its place;
    return how long the first message came behind its announcement, by the child's trace."""
    parent = await diamond.grow()
    (other,) = set(diamond.relays) - {parent}
    diamond.stop(parent)
    first = await diamond.said_and_traced(log)
    asked, want = next(each for each in first if says(each[1], SendRPC, "want"))
    heard, have = [each for each in first if says(each[1], RecvRPC, "have") and each[0] < asked][-1]
    answers = [(at, rpc) for at, rpc in first if type(rpc) is RecvRPC and rpc.meta.messages]
    came = next(at for at, rpc in answers if at > asked and rpc.received_from == other)
    assert have.received_from == want.send_to == other
    await until(lambda: other not in diamond.source.choked, "the parent has not answered")
    while any(says(rpc, SendRPC, "want") for _, rpc in await diamond.said_and_traced(log)):
        pass  # that the other may send, and the message, come to it by two ways
    assert diamond.source.parent == other
    diamond.go_on(parent)
    return came - heard


async def story(log: TraceLog) -> tuple[list[float], float]:
    """Replace silent parents, and return how long each time took, and the longest round trip that
    the child has measured."""
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Node(None, members=False, parameters=TREES))
        child = await stack.enter_async_context(
            Node(None, members=False, parameters=TREES, observers=[log])
        )
        await publisher.subscribe(TOPIC)
        diamond = Diamond(publisher, child, await child.subscribe(TOPIC))
        command = [sys.executable, RELAY, TOPIC, publisher.tickets[0], child.tickets[0]]
        for _ in range(2):
            relay = stack.enter_context(Program(command, stdin=subprocess.PIPE))
            diamond.relays[bytes.fromhex(await asyncio.to_thread(relay.hears))] = relay
        for node in (publisher, child):
            await until(partial(has_links, node), "both relays are in the mesh")
        waits = [await replaced(diamond, log) for _ in range(ROUNDS)]
        speakers = diamond.trunk.speakers
        return waits, max(speakers[relay].round_trip for relay in diamond.relays)


def test_a_silent_parent_is_replaced_within_the_longest_wait_and_a_round_trip() -> None:
    """Its process is stopped, its connections are open. The child hears of the message from the
    other relay, asks it, gets it, calls the parent in vain, and then messages come without asking.

    The time counts in the best of the rounds: a busy machine may be late with anything.
    """
    log = TraceLog()
    waits, round_trip = run(lambda: story(log))
    assert min(waits) <= LONGEST_WAIT + round_trip
