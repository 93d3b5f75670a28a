"""Threads for whatever touches the log, which work to the very end of a program.

When a program ends, Python ends every pool of threads first and calls what was registered for the
end afterwards. A node that nobody closed still runs in between, in a thread of its own, and is
closed there: so it may depend on no pool.
"""

import asyncio
import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias, TypeVar

_Result = TypeVar("_Result")
_Queue: TypeAlias = "queue.SimpleQueue[Callable[[], None] | None]"


class Worker:
    """One thread that does what it is given, in order, until it is closed or forgotten."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: _Queue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._work.put, None).atexit = False

    def submit(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """Have something done behind what was given before."""
        done: Future[_Result] = Future()
        self._work.put(partial(_do, work, done))
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work_off, args=(self._work,), name=self._name, daemon=True
            )
            self._thread.start()
        return done

    def close(self) -> None:
        """Begin nothing more; what is being done is done to its end."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._work.get_nowait()
        self._work.put(None)

    def join(self) -> None:
        """Wait for the end after `close`; not on the event loop."""
        if self._thread is not None:
            self._thread.join()


def _work_off(queued: _Queue) -> None:
    while (work := queued.get()) is not None:
        work()


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Like `asyncio.to_thread`, but nobody leaves before it is done, and it needs no pool."""
    done: Future[_Result] = Future()
    try:
        threading.Thread(target=_do, args=(work, done), name="rumormill-work", daemon=True).start()
    except RuntimeError:  # so late that Python starts no thread: nobody else needs the loop
        _do(work, done)
    waiting = asyncio.wrap_future(done)
    interrupted: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as error:  # once, or again and again
            interrupted = error
    if interrupted is not None:
        waiting.exception()  # nobody asks for it
        raise interrupted
    return waiting.result()


def _do(work: Callable[[], _Result], done: "Future[_Result]") -> None:
    done.set_running_or_notify_cancel()
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 (it belongs to who waits)
        done.set_exception(error)
