"""Live nodes for tests: real sockets on the loopback address, one event loop, no waiting by clock.

`run` runs a story to its end, and is the one way in which a test gets an event loop; `loop_watch`
sees what the story does not. `until` waits for a condition. `pair` are two nodes that know each
other; `HonestPair` exchange messages all the time, and count each one that does not arrive.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from rumormill.core.event import Event
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.subscription import Subscription

Result = TypeVar("Result")

PATIENCE = 600.0
"""Seconds until a test is called stuck. Nothing is expected to take a noticeable part of it."""


def run(
    story: Callable[[], Coroutine[Any, Any, Result]],
    *,
    patience: float = PATIENCE,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Result:
    """Run a story to its end, and return what it returns."""

    async def bounded() -> Result:
        async with asyncio.timeout(patience):
            return await story()

    with asyncio.Runner(loop_factory=loop) as runner:
        result = runner.run(bounded())
    gc.collect()  # a socket or coroutine that was dropped warns now, inside the test
    return result


async def until(condition: Callable[[], object], claim: str) -> None:
    """Wait for a condition; a claim that never comes true is named when the test is stuck."""
    try:
        async with asyncio.timeout(PATIENCE / 2):
            while not condition():  # noqa: ASYNC110 (conditions of a live node announce nothing)
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"it never came true that {claim}") from None


async def take(events: Subscription, count: int) -> list[bytes]:
    """Read so many events; return what they say."""
    return [event.data for event in await take_events(events, count)]


async def take_events(events: Subscription, count: int) -> list[Event]:
    """Read so many events."""
    found: list[Event] = []
    try:
        async with asyncio.timeout(PATIENCE / 2):
            while len(found) < count:
                found.append(await anext(events))
    except TimeoutError:
        raise AssertionError(f"{len(found)} of {count} events came") from None
    return found


@contextlib.asynccontextmanager
async def pair(topic: str = "news", home: Path | None = None) -> AsyncIterator[tuple[Node, Node]]:
    """A publisher and a node that has joined the topic, connected and known to each other."""
    homes = (None, None) if home is None else (home / "alice", home / "bob")
    async with Node(homes[0]) as alice, Node(homes[1]) as bob:
        await bob.create_topic(topic)
        await alice.connect(bob.tickets[0])
        await alice.wait_until_ready(topic)
        yield alice, bob


class HonestPair:
    """Alice, whom others attack, and Bob, who talks with her meanwhile."""

    def __init__(self, alice: Node, bob: Node) -> None:
        self.alice = alice
        self.bob = bob
        self.exchanged = 0
        self._stop = False
        self._talk: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to talk."""
        from_alice = await self.bob.subscribe("from alice")
        from_bob = await self.alice.subscribe("from bob")
        await self.bob.connect(self.alice.tickets[0])
        await self.alice.wait_until_ready("from alice")
        await self.bob.wait_until_ready("from bob")
        self._talk = asyncio.ensure_future(self._exchange(from_alice, from_bob))

    async def _exchange(self, from_alice: Subscription, from_bob: Subscription) -> None:
        """Each publishes, and each gets exactly that, in order."""
        while not self._stop:
            said = f"{self.exchanged}".encode()
            await self.alice.publish("from alice", said)
            await self.bob.publish("from bob", said)
            assert [said, said] == [*await take(from_alice, 1), *await take(from_bob, 1)]
            self.exchanged += 1

    async def more(self, rounds: int = 5) -> None:
        """Wait until so many further messages went each way."""
        goal = self.exchanged + rounds
        await until(lambda: self.exchanged >= goal or self._ended, f"{goal} messages are exchanged")
        assert not self._ended, "the honest exchange broke"

    @property
    def _ended(self) -> bool:
        return self._talk is None or self._talk.done()

    async def stop(self) -> None:
        """Finish the round that is under way; a lost message fails here."""
        self._stop = True
        if self._talk is not None:
            await self._talk


@contextlib.asynccontextmanager
async def honest_pair(
    config: NodeConfig | None = None, **options: Any
) -> AsyncIterator[HonestPair]:
    """Two nodes that talk; at the end both still do."""
    async with Node(None, config=config, **options) as alice, Node(None) as bob:
        pair = HonestPair(alice, bob)
        await pair.start()
        await pair.more()
        yield pair
        await pair.more()
        await pair.stop()


def only_bob_is_left(pair: HonestPair) -> bool:
    """Whether Alice holds nothing but what her connection to Bob needs."""
    alice: Any = pair.alice
    swarm, driver = alice._swarm, alice._driver
    bob = pair.bob.id
    return (
        list(swarm.connections) == [bob]
        and len(swarm._all) == 1
        and not len(swarm._upgrading)
        and len(swarm._places) == 1
        and list(driver.channels) == [bob]
        and list(driver.protocol.peers) == [bob]
        and len(swarm.connections[bob]._streams) <= 2
        and swarm.connections[bob].session.streams <= 2
        and all(task.get_coro().__name__ == "keep_asking" for task in swarm._tasks)
        and not swarm._dialling
    )
