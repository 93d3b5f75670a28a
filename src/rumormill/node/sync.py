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
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, Literal, Self, TypedDict, TypeVar, Unpack

from rumormill.core.api import PeerView, Receipt
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.daemon.doors import Doors
from rumormill.daemon.flight_door import PemFiles
from rumormill.log.model import Durability, StoreConfig
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.subscription import Overflow, Subscription
from rumormill.node.topics import Who
from rumormill.node.validation import TopicValidator
from rumormill.protocols.registry import MessageIdFunction
from rumormill.trace.entries import Observer

_BATCH: Final = 256
"""Events that a subscription carries from one thread to the other at a time: our choice, because
the change of threads costs more than all else."""

_Result = TypeVar("_Result")


class NodeOptions(TypedDict, total=False):
    """What `Node` can be told; see there."""

    message_id: MessageIdFunction | None
    application_score: Callable[[PeerId], float] | None
    subscription_filter: Callable[[Topic], object] | None
    peer_filter: Callable[[PeerId, Topic], object] | None

    listen: str | Sequence[str]
    protocol: str
    protocol_ids: Sequence[str] | None
    supervisors: Sequence[str]
    supervises: bool
    preset: str
    parameters: Mapping[str, Any] | None
    durability: Durability | str | None
    config: NodeConfig | None
    store: StoreConfig | None
    observers: Sequence[Observer]


class TopicWishes(TypedDict, total=False):
    """What `Node.create_topic` can be told; see there."""

    allowed_publishers: Iterable[Who] | Literal["anyone"] | None
    request_to_publish: bool | Iterable[Who] | None
    linking: Literal["last-seen", "custom"] | None
    sub_topics: Mapping[str, str] | None
    parent: str | None


class DoorWishes(TypedDict, total=False):
    """What `Node.serve` can be told; see there."""

    control: bool
    metrics: bool | str
    flight: bool | str
    tls: PemFiles | None
    home: str | Path | None


class SyncNode:
    """A node in a thread. Use it as a context manager, or call `start` and `close`.

    Any thread may call it; validators run in the node's own thread and must not.
    """

    def __init__(self, home: str | Path | None, **options: Unpack[NodeOptions]) -> None:
        self._node = Node(home, **options)
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

    def _call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        if self._thread is None:
            work.close()
            raise LocalError("the node is not running; use `with SyncNode(...)` or `start`")
        return self._thread.call(work)

    # Who we are, and who is there.

    @property
    def id(self) -> PeerId:
        """This node's peer id."""
        return self._call(_get(lambda: self._node.id))

    @property
    def tickets(self) -> list[str]:
        """What another node needs to join us: our addresses with our id."""
        return self._call(_get(lambda: self._node.tickets))

    @property
    def peers(self) -> list[PeerView]:
        """The connected peers."""
        return self._call(_get(lambda: self._node.peers))

    def connect(self, ticket: str, *, keep: bool = True) -> str:
        """Connect to a node by its ticket; return its peer id (`Node.connect`)."""
        return self._call(self._node.connect(ticket, keep=keep))

    def wait_until_ready(self, topic: str, *, peers: int = 1, timeout: float | None = None) -> None:
        """Wait until so many connected peers subscribe to a topic."""
        self._call(self._node.wait_until_ready(topic, peers=peers, timeout=timeout))

    def serve(self, **wishes: Unpack[DoorWishes]) -> "SyncDoors":
        """Let other programs in (`Node.serve`), until what is returned or the node is closed."""
        return SyncDoors(self, self._call(_opened(self._node, wishes)))

    # Topics.

    def create_topic(self, name: str, **options: Unpack[TopicWishes]) -> str:
        """Make or join a topic (`Node.create_topic`); return its name on the network."""
        return self._call(self._node.create_topic(name, **options)).name

    def describe_topic(self, topic: str) -> dict[str, Any]:
        """Find out what is known of a topic that was created (`Node.describe_topic`)."""
        return self._call(self._node.describe_topic(topic))

    def publish(self, topic: str, data: bytes) -> Receipt:
        """Publish an event; return when it is safe in the log.

        Interrupted while it waits, it may have published the event or not.
        """
        return self._call(self._node.publish(topic, data))

    def publish_many(self, topic: str, items: Iterable[bytes]) -> list[Receipt]:
        """Publish events in the order given; return their receipts when all are safe in the log.

        Together they cost less than one by one. Interrupted while it waits, it may have published
        the first of them, some, or all.
        """
        return self._call(self._node.publish_many(topic, items))

    def subscribe(
        self,
        topic: str,
        *,
        since_offset: int | None = None,
        buffer: int = 1024,
        overflow: Overflow | str = Overflow.CATCH_UP,
        follow: bool = True,
        timeout: float | None = None,
    ) -> "SyncSubscription":
        """Subscribe to a topic: an iterator of events (`Node.subscribe`).

        With `timeout`, the iteration ends when no event has come for so many seconds.
        """
        subscription = self._call(
            self._node.subscribe(
                topic, since_offset=since_offset, buffer=buffer, overflow=overflow, follow=follow
            )
        )
        return SyncSubscription(self, subscription, timeout)

    def unsubscribe(self, topic: str) -> None:
        """Leave a topic and end its subscriptions."""
        self._call(self._node.unsubscribe(topic))

    def history(
        self,
        topic: str,
        *,
        since_offset: int = 0,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """Read events of a topic from this node's log (`Node.history`)."""
        return self._call(
            self._node.history(topic, since_offset=since_offset, since=since, limit=limit)
        )

    def command(self, body: object) -> Any:
        """Ask the protocol for something that only it offers (`Node.command`)."""
        return self._call(self._node.command(body))

    def set_supervisors(self, tickets: Sequence[str]) -> None:
        """Name all supervisors anew (`Node.set_supervisors`)."""
        self._call(self._node.set_supervisors(tickets))

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
            self._node._call(self._fill(timeout))
        return self._ready.popleft() if self._ready else None

    async def _fill(self, patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience):
                self._ready.extend(await self._subscription.batch(_BATCH))
        except TimeoutError:
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription; what has arrived can still be read."""
        if self._node._thread is not None:
            self._node._call(self._close())

    async def _close(self) -> None:
        self._subscription.close()


class SyncDoors:
    """Open doors, with the addresses of `Doors`. Close them, or use them as a context."""

    def __init__(self, node: SyncNode, doors: Doors) -> None:
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
            self._node._call(self._doors.close())


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
        with self._lock:
            self._stopping = True
            loop, self._loop = self._loop, None
            if loop is not None and self._stop is not None:
                loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the thread and wait for its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise LocalError("the node's own thread cannot wait for itself")
        with self._lock:
            if self._loop is None:
                work.close()
                raise LocalError("the node is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
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


async def _opened(node: Node, wishes: DoorWishes) -> Doors:
    """Open doors in the node's thread."""
    return await node.serve(**wishes)


async def _get(read: Callable[[], _Result]) -> _Result:
    """Read something in the node's thread."""
    return read()
