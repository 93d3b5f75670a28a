"""`SyncNode`: a node for scripts and notebooks, without asyncio.

    with SyncNode("home") as node:
        node.connect(ticket)
        print(node.publish("news", b"hello"))
        for event in node.subscribe("news", since_offset=0, timeout=5):
            ...

The node runs in a thread of its own with an event loop of its own; every call here is a call there,
and waits for its result. Ctrl-C ends the waiting, not the node: leaving the `with` block closes it,
and a node that nobody closed is closed when the program ends.
"""

import asyncio
import functools
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from rumormill.core.api import PeerView, TopicVersion
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.daemon.doors import Doors
from rumormill.log.event_log import EventLog
from rumormill.node.callbacks import TopicValidator
from rumormill.node.node import Node
from rumormill.node.subscribing import SubscribeOptions
from rumormill.node.subscription import Subscription
from rumormill.node.topic_access import TopicAccess
from rumormill.wire.keys import PeerId

_BATCH: Final = 256
"""Events that a subscription carries from one thread to the other at a time: our choice, because
the change of threads costs more than all else."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Made = TypeVar("_Made")


def _turned(
    method: Callable[Concatenate[Node, _Arguments], Awaitable[_Result]],
    turn: Callable[["SyncNode", _Result], _Made],
) -> Callable[Concatenate["SyncNode", _Arguments], _Made]:
    """Make a call of `Node` one of `SyncNode`, with the same arguments; `turn` gets its result."""

    @functools.wraps(method)
    def call(node: "SyncNode", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Made:
        return turn(node, node._call(lambda: method(node._node, *args, **kwargs)))

    return call


def _waited_for(
    method: Callable[Concatenate[Node, _Arguments], Awaitable[_Result]],
) -> Callable[Concatenate["SyncNode", _Arguments], _Result]:
    return _turned(method, lambda _, result: result)


def _read_from(
    method: Callable[Concatenate[Node, _Arguments], _Result],
) -> Callable[Concatenate["SyncNode", _Arguments], _Result]:
    """Make a call of `Node` that waits for nothing one of `SyncNode`."""

    @functools.wraps(method)
    def call(node: "SyncNode", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return node._read(lambda: method(node._node, *args, **kwargs))

    return call


def _takes_what(
    init: Callable[Concatenate[Node, _Arguments], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate["SyncNode", _Arguments], None]]:
    return functools.wraps(init)


class SyncDoors:
    """Open doors, with the addresses of `Doors`. Close them, or use them as a context."""

    def __init__(self, node: "SyncNode", doors: Doors) -> None:
        self._node = node
        self._doors = doors
        self.control = doors.control
        self.metrics = doors.metrics
        self.flight = doors.flight
        self.token = doors.token

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close them; return when nobody is inside any more."""
        if self._node._thread is not None:
            self._node._call(self._doors.close)


class SyncNode:
    """A node in a thread. Use it as a context manager, or call `start` and `close`.

    What `Node` can be told, and what its calls take and return, is the same here. Interrupted while
    it waits, a call that publishes may have published nothing, some, or all. Any thread may call;
    validators run in the node's own thread and must not.
    """

    @_takes_what(Node.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._node = Node(*args, **kwargs)
        self._thread: _LoopThread | None = None

    # Life.

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start the thread and the node in it; return when it listens."""
        if self._thread is not None:
            raise LocalError("the node is running already")
        thread = _LoopThread(self._node)
        thread.start()
        self._thread = thread
        self._finalizer = weakref.finalize(self, thread.stop)
        return self

    def close(self) -> None:
        """Close the node and end its thread; what was queued is sent and stored first."""
        if self._thread is not None:
            self._finalizer()
            self._thread = None

    def _call(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        self._node.check_process()
        if self._thread is None:
            raise LocalError("the node is not running; use `with SyncNode(...)` or `start`")
        return self._thread.call(work)

    def _read(self, read: Callable[[], _Result]) -> _Result:
        async def reading() -> _Result:
            return read()

        return self._call(reading)

    @property
    def id(self) -> PeerId:
        """This node's peer id (`Node.id`)."""
        return self._read(lambda: self._node.id)

    @property
    def tickets(self) -> list[str]:
        """What another node needs to join us: our addresses with our id."""
        return self._read(lambda: self._node.tickets)

    @property
    def peers(self) -> list[PeerView]:
        """The connected peers."""
        return self._read(lambda: self._node.peers)

    @property
    def links(self) -> list[str]:
        """The networks around this machine in which nodes find each other by mDNS."""
        return self._read(lambda: self._node.links)

    @property
    def refusals(self) -> dict[str, int]:
        """What peers were refused or cut off for, how often, by reason."""
        return self._read(lambda: self._node.refusals)

    @property
    def callback_failures(self) -> int:
        """How often a function of the application failed: a validator, filter, score or id."""
        return self._node.callback_failures

    @property
    def log(self) -> EventLog:
        """This node's log, for reading; any thread may."""
        return self._read(lambda: self._node.log)

    @property
    def access(self) -> TopicAccess:
        """Keys and policies of topics; any thread may change them."""
        return self._node.access

    network_ticket = _read_from(Node.network_ticket)
    subscribers = _read_from(Node.subscribers)
    topics = _read_from(Node.topics)
    groups = _read_from(Node.groups)
    completeness = _read_from(Node.completeness)
    metrics = _read_from(Node.metrics)
    connect = _waited_for(Node.connect)
    wait_until_ready = _waited_for(Node.wait_until_ready)
    describe_topic = _waited_for(Node.describe_topic)
    versions = _waited_for(Node.versions)
    topic_tree = _waited_for(Node.topic_tree)
    publish = _waited_for(Node.publish)
    publish_many = _waited_for(Node.publish_many)
    request = _waited_for(Node.request)
    """Returns the first reply; see `replies`."""
    reply = _waited_for(Node.reply)
    unsubscribe = _waited_for(Node.unsubscribe)
    forget_group = _waited_for(Node.forget_group)
    history = _waited_for(Node.history)
    sync = _waited_for(Node.sync)
    publish_noted = _waited_for(Node.publish_noted)
    fetch = _waited_for(Node.fetch)
    fetch_history = _waited_for(Node.fetch_history)
    command = _waited_for(Node.command)
    set_supervisors = _waited_for(Node.set_supervisors)
    retention = _waited_for(Node.retention)
    compact = _waited_for(Node.compact)
    peer_clocks = _waited_for(Node.peer_clocks)
    set_retention = _read_from(Node.set_retention)
    health = _read_from(Node.health)
    backup = _waited_for(Node.backup)
    serve = _turned(Node.serve, SyncDoors)
    create_topic = _turned(Node.create_topic, lambda _, topic: topic.name)
    """Returns the topic's name on the network."""

    def subscribe(
        self,
        topic: str,
        *,
        timeout: float | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> "SyncSubscription":
        """Subscribe to a topic: an iterator of events (`Node.subscribe`, and what that takes).

        With `timeout`, the iteration ends when no event has come for so many seconds.
        """
        subscription = self._call(lambda: self._node.subscribe(topic, **options))
        return SyncSubscription(self, subscription, timeout)

    def replies(self, topic: str, data: bytes | str = b"", *, timeout: float = 5.0) -> list[Event]:
        """Ask whoever subscribes to a topic; return all replies that come in time."""
        return self._call(lambda: self._node.request(topic, data, timeout=timeout).all())

    def version_of(self, event: Event) -> TopicVersion:
        """Read the version of a topic that an event announces whose `via` is "version"."""
        return self._node.version_of(event)

    def set_validator(self, topic: str, validator: TopicValidator | None) -> None:
        """Let a function judge the events of a topic; it runs in the node's thread."""
        self._node.set_validator(topic, validator)


class SyncSubscription:
    """An iterator of events. Close it, or use it as a context."""

    def __init__(self, node: SyncNode, subscription: Subscription, timeout: float | None) -> None:
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
            self._node._call(lambda: self._fill(timeout))
        return self._ready.popleft() if self._ready else None

    async def _fill(self, patience: float | None) -> None:
        most = 1 if self.name else _BATCH  # of a name, others may have what is not asked for
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
        if self._node._thread is not None:
            self._node._read(self._subscription.close)


class _LoopThread:
    """The thread that runs a node, and the way into it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._started: Future[None] = Future()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live()), name="rumormill-node", daemon=True
        )

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
        if self._node.forked:
            return  # the thread is the other process's
        with self._lock:
            self._stopping = True
            loop, self._loop = self._loop, None
            if loop is not None and self._stop is not None:
                loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do something in the thread and wait for its result."""
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

    async def _live(self) -> None:
        stop = asyncio.Event()
        with self._lock:
            self._stop, self._loop = stop, asyncio.get_running_loop()
            if self._stopping:
                stop.set()
        try:
            await self._node.start()
        except BaseException as error:  # noqa: BLE001 (it belongs to who started us)
            with self._lock:
                self._loop = None  # it closes now; nobody may call into it
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        try:
            await stop.wait()
        finally:
            await self._node.close()
