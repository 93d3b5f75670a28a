"""Threads for whatever touches the log, which work to the very end of a program.

When a program ends, Python ends every pool of threads first and calls what was registered for the
end afterwards. A node that nobody closed still runs in between, in a thread of its own, and is
closed there: so it may depend on no pool.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")


class Worker:
    """One thread that does what it is given, in order, until it is closed."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """Have something done behind what was given before; what comes too late is never done."""
        done: Future[_Result] = Future()
        self._work.put(partial(_do, work, done))
        return done

    def close(self) -> None:
        """Begin nothing more; what is being done is done to its end."""
        self._closed = True
        self._work.put(None)

    def join(self) -> None:
        """Wait for the end after `close`; not on the event loop."""
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None and not self._closed:
            work()


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Like `asyncio.to_thread`, but nobody leaves before it is done, and it needs no pool."""
    done: Future[_Result] = Future()
    try:
        threading.Thread(target=_do, args=(work, done), name="rumormill-work", daemon=True).start()
    except RuntimeError:  # so late that Python starts no thread: nobody else needs the loop
        _do(work, done)
    waiting = asyncio.wrap_future(done)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.gather(waiting, return_exceptions=True)
        raise


def _do(work: Callable[[], _Result], done: "Future[_Result]") -> None:
    done.set_running_or_notify_cancel()
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 (it belongs to who waits)
        done.set_exception(error)
