"""A start or a close that is interrupted, at any place where it waits, leaves nothing open."""

import asyncio
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.node.node import Node

THREADS = "rumormill-store", "rumormill-reader"


@types.coroutine
def _counted(
    work: Coroutine[Any, Any, object], on_wait: Callable[[], None]
) -> Generator[Any, Any, None]:
    """Run a coroutine, and tell whenever it waits."""
    error: BaseException | None = None
    while True:
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return
        error = None
        on_wait()
        try:
            yield awaited
        except BaseException as raised:  # noqa: BLE001 (it is the work's)
            error = raised


async def interrupted(work: Coroutine[Any, Any, object], at: tuple[int, ...]) -> bool:
    """Run something to its end, and cancel it where it waits for the n-th time; tell whether it
    waited so often."""
    waits = 0

    def on_wait() -> None:
        nonlocal waits
        waits += 1
        if waits in at:
            asyncio.get_running_loop().call_soon(task.cancel)

    async def counted() -> None:
        await _counted(work, on_wait)

    task = asyncio.ensure_future(counted())
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() or task.exception() is None
    return waits >= at[0]


async def nothing_is_left(home: Path) -> None:
    """The home can be opened, there is no thread of a log, and the loop has nothing to do."""
    assert not [each.name for each in threading.enumerate() if each.name in THREADS]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    async with Node(home) as again:
        assert await again.history("news") is not None


async def at_every_wait(once: Callable[[tuple[int, ...]], Awaitable[bool]]) -> None:
    """Interrupt the first wait, the second, ... once, and then again in the next wait."""
    found, at = True, 0
    while found:
        at += 1
        found = await once((at,))
        await once((at, at + 1))
    assert at > 1


def test_a_start_that_is_interrupted_leaves_the_home_free(tmp_path: Path) -> None:
    """Also while a thread opens the log, which nobody would have closed."""

    async def once(at: tuple[int, ...]) -> bool:
        node = Node(tmp_path)
        waited = await interrupted(node.start(), at)
        await node.close()
        await nothing_is_left(tmp_path)
        return waited

    run(lambda: at_every_wait(once))


def test_a_close_that_is_interrupted_closes_all_the_same(tmp_path: Path) -> None:
    """It waits no longer for peers and queues; sockets, tasks, threads and the lock are gone."""

    async def once(at: tuple[int, ...]) -> bool:
        async with Node(None) as bob:
            node = Node(tmp_path)
            await node.start()
            doors = await node.serve(metrics="127.0.0.1:0", dashboard="127.0.0.1:0")
            await node.connect(bob.tickets[0])
            events = await node.subscribe("news")
            receipt = await node.publish("news", b"said")
            waited = await interrupted(node.close(), at)
            with pytest.raises(LocalError, match="not running"):
                await node.publish("news", b"late")
            assert [event.id async for event in events] == [receipt.id]
            with pytest.raises(LocalError, match="closed"):
                await doors
        await nothing_is_left(tmp_path)
        return waited

    run(lambda: at_every_wait(once))


def test_whoever_closes_second_or_starts_waits_for_the_first(tmp_path: Path) -> None:
    """When a close returns, the node is closed, whoever began it."""

    async def story() -> None:
        node = Node(tmp_path)
        await node.start()
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(0)
        await node.close()
        await nothing_is_left(tmp_path)
        assert closing.done()
        await node.start()
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(0)
        await node.start()
        assert closing.done()
        await node.publish("news", b"again")
        await node.close()

    run(story)
