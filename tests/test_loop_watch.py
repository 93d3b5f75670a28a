"""The watch over event loops is no decoration: what it is there for, it sees."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import loop_watch
from live_nodes import run

Story = Callable[[], Coroutine[Any, Any, None]]


def work(seconds: float) -> None:
    """Keep the processor busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def seen(story: Story) -> list[str]:
    """Run a story; return what the watch says of it, which then is no fault of this test."""
    run(story)
    faults = list(loop_watch.faults)
    loop_watch.faults.clear()
    return faults


async def works_in_a_task() -> None:
    work(2 * loop_watch.LONGEST)


async def works_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(work, 2 * loop_watch.LONGEST)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize("story", [works_in_a_task, works_in_a_callback])
def test_a_callback_that_holds_the_loop_is_seen_and_its_place_is_named(story: Story) -> None:
    (fault,) = seen(story)
    assert fault.startswith("one callback held its event loop for ")
    assert "in work" in fault


def test_the_loop_of_another_thread_is_watched_too() -> None:
    thread = threading.Thread(target=run, args=(works_in_a_task,))
    thread.start()
    thread.join()
    assert "in work" in loop_watch.faults.pop()


def test_waiting_and_the_work_of_other_threads_hold_no_loop() -> None:
    """Nor do many short callbacks."""

    async def story() -> None:
        time.sleep(2 * loop_watch.LONGEST)  # noqa: ASYNC251 (as if the machine were busy)
        await asyncio.to_thread(work, 2 * loop_watch.LONGEST)
        for _ in range(4):
            work(loop_watch.LONGEST / 2)
            await asyncio.sleep(0)

    assert seen(story) == []


def test_a_task_that_nobody_ended_is_seen() -> None:
    async def forgotten() -> None:
        await asyncio.Event().wait()

    kept: list[asyncio.Task[None]] = []

    async def story() -> None:
        kept.append(asyncio.ensure_future(forgotten()))
        await asyncio.sleep(0)

    (fault,) = seen(story)
    assert fault.startswith("a task was left when its event loop was closed: ")
    assert "forgotten" in fault


def test_an_exception_that_nobody_caught_is_seen() -> None:
    async def story() -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    (fault,) = seen(story)
    assert fault.startswith("nobody caught this: ")
    assert "no number" in fault
