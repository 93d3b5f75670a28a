"""What `SyncNode` and `SyncClient` share: an event loop in a thread of its own, and calls into it.

The node or the client lives in that thread; every call here is a call there, and waits for its
result. The rules: Ctrl-C ends the waiting, not the thread; what nobody closed is closed when the
program ends; a fork has none of it, and is told so.
"""

import asyncio
import contextlib
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.node.arguments import check_calls
from rumormill.node.client_subscription import ClientSubscription
from rumormill.node.life import FORKED
from rumormill.node.subscription import Subscription

_BATCH: Final = 256
"""Events that a subscription carries from one thread to the other at a time: our choice, because
the change of threads costs more than all else."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Made = TypeVar("_Made")
_Inner = TypeVar("_Inner")
_Outer = TypeVar("_Outer", bound="InThread")


def turned(
    method: Callable[Concatenate[_Inner, _Arguments], Awaitable[_Result]],
    turn: Callable[[_Outer, _Result], _Made],
) -> Callable[Concatenate[_Outer, _Arguments], _Made]:
    """Make a call of what is inside one of what is outside; `turn` gets its result."""

    @functools.wraps(method)
    def call(outer: _Outer, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Made:
        return turn(outer, outer._call(lambda: method(outer._inner, *args, **kwargs)))

    return call


def waited_for(
    method: Callable[Concatenate[_Inner, _Arguments], Awaitable[_Result]],
) -> Callable[Concatenate["InThread", _Arguments], _Result]:
    """Make a coroutine function of what is inside a function of what is outside."""

    @functools.wraps(method)
    def call(outer: "InThread", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return outer._call(lambda: method(outer._inner, *args, **kwargs))

    return call


def read_from(
    method: Callable[Concatenate[_Inner, _Arguments], _Result],
) -> Callable[Concatenate["InThread", _Arguments], _Result]:
    """The same for what waits for nothing."""

    @functools.wraps(method)
    def call(outer: "InThread", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return outer._read(lambda: method(outer._inner, *args, **kwargs))

    return call


class InThread:
    """Something that lives in a thread. Leaving the `with` block closes it."""

    _inner: Any
    _thread: "_LoopThread | None" = None

    def _live(self, life: contextlib.AbstractAsyncContextManager[object]) -> Self:
        """Start the thread, and a life in it."""
        if self._thread is not None:
            raise LocalError("the node is running already")
        thread = _LoopThread(life)
        thread.start()
        self._thread = thread
        self._finalizer = weakref.finalize(self, thread.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it and end its thread; what was queued is sent and stored first."""
        if self._thread is not None:
            self._finalizer()
            self._thread = None

    @property
    def is_running(self) -> bool:
        """Whether its thread is there."""
        return self._thread is not None

    def _call(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        if self._thread is None:
            raise LocalError("the node is not running; use `with`, or `start`")
        return self._thread.call(work)

    def _read(self, read: Callable[[], _Result]) -> _Result:
        async def reading() -> _Result:
            return read()

        return self._call(reading)


@check_calls()
class SyncSubscription:
    """An iterator of events. Close it, or use it as a context."""

    def __init__(
        self,
        node: InThread,
        subscription: Subscription | ClientSubscription,
        timeout: float | None,
    ) -> None:
        self._node = node
        self._subscription = subscription
        self._timeout = timeout
        self._ready: deque[Event] = deque()
        """Filled by the node's thread, so that an interrupted wait loses nothing."""

    @property
    def topic(self) -> str:
        """What it follows."""
        return self._subscription.topic

    @property
    def name(self) -> str:
        """The name under which its position is remembered, if it has one."""
        return self._subscription.name

    @property
    def pending(self) -> int:
        """Of a named one: events that were handed out and are not acknowledged."""
        return self._node._read(lambda: self._subscription.pending)

    @property
    def lag(self) -> int:
        """Of a named one: events of the log that no consumer of its name was given yet."""
        return self._node._read(lambda: self._subscription.lag)

    def ack(self, *events: Event | int) -> None:
        """Acknowledge events of a named one (`Subscription.ack`)."""
        self._node._call(lambda: self._subscription.ack(*events))

    def nack(self, *events: Event | int) -> None:
        """Give events of a named one back (`Subscription.nack`)."""
        self._node._call(lambda: self._subscription.nack(*events))

    @property
    def dropped(self) -> int:
        """Events lost to a full buffer, or to retention before they were read."""
        return self._subscription.dropped

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._subscription.closed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self.next(self._timeout)
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: float | None = None) -> Event | None:
        """Wait for an event; None when none came in time, or none will come."""
        if not self._ready:
            most = 1 if self.name else _BATCH  # of a name, others may have what is not asked for
            self._node._call(lambda: self._fill(most, timeout))
        return self._ready.popleft() if self._ready else None

    def batch(self, limit: int = _BATCH, *, timeout: float | None = None) -> list[Event]:
        """Wait for an event; return it with those that follow at once, at most `limit`; none when
        none came in time, or none will come."""
        most = max(1, limit)
        if not self._ready:
            self._node._call(lambda: self._fill(most, timeout))
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    async def _fill(self, most: int, patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience):
                self._ready.extend(await self._subscription.batch(most))
        except TimeoutError:
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription; what has arrived can still be read."""
        if self._node.is_running:
            self._node._read(self._subscription.close)


class _LoopThread:
    """The thread that a node or a client lives in, and the way into it."""

    def __init__(self, life: contextlib.AbstractAsyncContextManager[object]) -> None:
        self._life = life
        self._process = os.getpid()
        self._started: Future[None] = Future()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="rumormill-node", daemon=True)

    def start(self) -> None:
        """Start; raise what the node's start raises."""
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close the node and wait for the thread's end."""
        if self._process != os.getpid():
            return  # the thread is the other process's
        with self._lock:
            self._stopping = True
            loop, self._loop = self._loop, None
            if loop is not None and self._stop is not None:
                loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do something in the thread and wait for its result."""
        if self._process != os.getpid():
            raise LocalError(FORKED)
        if threading.current_thread() is self._thread:
            raise LocalError("the node's own thread cannot wait for itself")

        async def working() -> _Result:
            return await work()

        with self._lock:
            if self._loop is None:
                raise LocalError("the node is closed")
            future = asyncio.run_coroutine_threadsafe(working(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise LocalError("the node was closed") from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except RuntimeError:
            # When the program ends, CPython 3.12 does not let asyncio start the thread in which it
            # waits for those that the node has ended already.
            if not self._ended:
                raise

    async def _live(self) -> None:
        stop = asyncio.Event()
        with self._lock:
            self._stop, self._loop = stop, asyncio.get_running_loop()
            if self._stopping:
                stop.set()
        try:
            async with self._life:
                self._started.set_result(None)
                await stop.wait()
            self._ended = True
        except BaseException as error:
            with self._lock:
                self._loop = None  # it closes now; nobody may call into it
            if self._started.done():
                raise
            self._started.set_exception(error)
