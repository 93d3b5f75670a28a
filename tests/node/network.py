"""Helpers for tests with live nodes: run a coroutine to its end, start a connected pair."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from rumormill import Node
from rumormill.core.event import Event
from rumormill.node.subscription import Subscription

Result = TypeVar("Result")

PATIENCE = 60.0
"""Seconds after which a test that waits for something fails instead of hanging."""


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine in a loop of its own."""

    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


@contextlib.asynccontextmanager
async def pair(topic: str = "news", home: Path | None = None) -> AsyncIterator[tuple[Node, Node]]:
    """A publisher and a node that has joined the topic, connected and known to each other."""
    homes = (None, None) if home is None else (home / "alice", home / "bob")
    async with Node(homes[0]) as alice, Node(homes[1]) as bob:
        await bob.create_topic(topic)
        await alice.connect(bob.tickets[0])
        await alice.wait_until_ready(topic)
        yield alice, bob


async def take(events: Subscription, count: int) -> list[Event]:
    """The next events of a subscription."""
    return [await anext(events) for _ in range(count)]


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop go on until something holds; `run` bounds the wait."""
    while not holds():  # noqa: ASYNC110 (what it asks is not an event)
        await asyncio.sleep(0.005)
