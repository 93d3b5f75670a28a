"""Watches every asyncio loop that a test runs, in whichever thread, for what no node may do.

`tests/conftest.py` installs it once and holds every test against `faults`:

- one callback that keeps its loop from everything else for more than `LONGEST` seconds,
- a task that is still pending when its loop is closed: nobody ended it, nobody waits for it,
- an exception that nobody caught.

A callback is judged by the processor time of its thread, not by the clock: a busy machine, which
lets all threads wait, blames nobody. Nor does the garbage collector, which walks through whatever
the tests of this process have made. Loops that are not asyncio's own (uvloop) are not timed.
"""

import asyncio
import gc
import sys
import threading
import time
from types import FrameType
from typing import Any

LONGEST = 0.1
"""Seconds of work after which other peers' heartbeats and answers are late."""

faults: list[str] = []
"""What was seen since somebody last looked, in sentences."""

_DEPTH = 12
_Stack = list[str]
_running: dict[int, _Stack] = {}
"""Threads in the midst of a callback, and where `_look` found them."""

_collecting: dict[int, float] = {}
"""By thread: the processor time that the garbage collector took of it."""

_run = asyncio.Handle._run
_close = asyncio.Runner.close
_escape = asyncio.BaseEventLoop.default_exception_handler


def install() -> None:
    """Watch this process from now on."""
    asyncio.Handle._run = _timed_run  # type: ignore[method-assign]
    asyncio.Runner.close = _counted_close  # type: ignore[method-assign]
    asyncio.BaseEventLoop.default_exception_handler = _noted_escape  # type: ignore[method-assign]
    gc.callbacks.append(_note_collection)
    threading.Thread(target=_look, name="loop watch", daemon=True).start()


def _timed_run(handle: asyncio.Handle) -> None:
    thread = threading.get_ident()
    stack: _Stack = []
    _running[thread] = stack
    before = _work(thread)
    _run(handle)
    took = _work(thread) - before
    _running.pop(thread, None)
    if took > LONGEST:
        what = f"one callback held its event loop for {took * 1000:.0f} ms: {handle}"
        faults.append("\n".join((what, *stack)))


def _work(thread: int) -> float:
    return time.thread_time() - _collecting.get(thread, 0.0)


def _note_collection(phase: str, _: object) -> None:
    thread = threading.get_ident()
    sign = -1.0 if phase == "start" else 1.0
    _collecting[thread] = _collecting.get(thread, 0.0) + sign * time.thread_time()


def _look() -> None:
    """Note where long callbacks are, so that a fault names the place and not only the loop."""
    seen: dict[int, _Stack] = {}
    while True:
        time.sleep(LONGEST / 4)
        now = dict(_running)
        for thread, stack in now.items():
            if seen.get(thread) is stack:
                stack[:] = _lines(sys._current_frames().get(thread))
        seen = now


def _lines(frame: FrameType | None) -> list[str]:
    """Where a thread is, innermost first: no traceback, for which Python 3.11 would parse source in
    two threads at once, which it cannot."""
    found = []
    while frame is not None and len(found) < _DEPTH:
        found.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        frame = frame.f_back
    return found


def _counted_close(runner: asyncio.Runner) -> None:
    faults.extend(
        f"a task was left when its event loop was closed: {task!r}"
        for task in asyncio.all_tasks(runner.get_loop())
    )
    _close(runner)


def _noted_escape(loop: asyncio.BaseEventLoop, context: dict[str, Any]) -> None:
    # Streams keep a future for how their connection ended, and mean to look at it themselves when
    # nobody does; in a cycle the garbage collector may come to the future first.
    of_a_task = isinstance(context.get("future"), asyncio.Task)
    if of_a_task or not isinstance(context.get("exception"), ConnectionError):
        faults.append(f"nobody caught this: {context}")
    _escape(loop, context)
