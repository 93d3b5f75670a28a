"""The RPC streams between this node and one peer.

libp2p keeps one long-lived stream per direction: we send on the one that we opened, and receive on
the one that the peer opened. What cannot be sent at once waits in a bounded queue, control before
data. When the queue is full a message is dropped, and the protocol is told. How long things have
waited in it, and how fast it empties, is what `readers` judges a peer by.

A peer that gets more in one RPC than it takes ends our stream, and says no more than that. What was
large and recent is then taken to be the cause, and is not sent to it again.
"""

from asyncio import TimerHandle, get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from rumormill.core import trace
from rumormill.core.errors import DecodeError, LimitError, LocalError
from rumormill.core.ids import MessageId, PeerId
from rumormill.core.inputs import Input
from rumormill.core.messages import WireMessage
from rumormill.libp2p.connection import RETIRED, Connection
from rumormill.libp2p.stream import ENDED, REFUSED, Stream, StreamHandler
from rumormill.libp2p.turns import Turn
from rumormill.node.config import NodeConfig
from rumormill.node.incoming import Incoming, Read
from rumormill.node.intake import Intake

NOT_CONNECTED = "not connected"
QUEUE_FULL = "queue full"
TOO_LARGE = "too large for the peer"
REPLACED_STREAM = "replaced-stream"
NOT_SPOKEN = "the peer does not speak the protocol"
_INCOMING_STREAMS = 2
"""Streams of one peer that are read; our choice, because of py-libp2p (see `Channel`)."""
_LONGEST_RETRY = 60.0
"""Seconds up to which the delay doubles before a lost stream is opened again; our choice: the
peer's connection lives, so it is there and refuses."""
SURELY_TAKEN: Final = 56 << 10
"""Bytes of an RPC that every implementation takes: rust-libp2p's 64 KiB by default hold what it has
read of the next one besides."""
_RECENT: Final = 10.0
"""Seconds after which an RPC is not the reason why a stream ends; our choice: a peer that has not
read it for so long does not read."""
_SUSPECTS: Final = 64
"""Large RPCs that are remembered at most; our choice: more than a peer's queue holds."""
_REMEMBERED_IN_VAIN: Final = 256
_OFTEN_ENOUGH: Final = 3
"""Our choice: some 30 kB a peer; and who does not know that we have an event says it once, again
when its stream was opened anew, and where ways cross."""
_HELD_MESSAGES = 1024
"""Messages that may arrive before our own stream is open; a peer says hello, not more."""


_Queued = tuple[bytes, float, trace.RpcMeta]


class MachineSide(Protocol):
    """What the parts of a node need of its driver: a way to the machine and to the trace."""

    @property
    def id(self) -> PeerId:
        """Our own peer id."""

    def now(self) -> float:
        """The time, as the machine has it."""

    def steady(self) -> float:
        """A clock that nobody sets, for how long things take."""

    def feed(self, event: Input) -> None:
        """Give the machine an input."""

    def record(self, entry: trace.TracePayload) -> None:
        """Trace something that happens now."""

    def drop(self, peer: PeerId, meta: trace.RpcMeta, reason: str) -> None:
        """A message is not sent: trace it, and tell who has a receipt for it."""

    @property
    def count(self) -> Callable[[str], None]:
        """Counts a refusal under a reason."""

    queued_bytes: int
    """Of all channels, and of all answers."""

    def make_room(self) -> None:
        """All queues together are full: give up whoever has the most in its own."""


class _Owner(MachineSide, Protocol):
    """What a channel tells the driver, and what it needs of it."""

    config: NodeConfig
    protocol_ids: tuple[str, ...]
    max_frame: int
    limits: dict[PeerId, int]
    decode: Callable[[bytes], WireMessage]
    parts: Callable[[WireMessage], Sequence[WireMessage]]
    on_change: Callable[[], None]
    intake: Intake

    def receive(
        self, peer: PeerId, messages: Iterable[WireMessage], turn: Turn | None = None
    ) -> int: ...

    def on_channel_open(self, channel: "Channel") -> None: ...

    def on_channel_lost(self, channel: "Channel", reason: str, *, was_open: bool) -> None: ...

    def on_channel_replaced(self, channel: "Channel") -> None: ...


class Channel(StreamHandler):
    """The RPC streams to and from one peer, for as long as their connection lives.

    Our stream is opened again, with growing pauses, when it is lost and the connection is not; a
    peer that refuses it is asked again when it opens a stream of its own. A peer whose own stream
    lives on has not left, and what it said on it stays true: it remains a peer meanwhile. Of
    incoming streams there are two at most, of which a newer one replaces the older, so that a peer
    has two unfinished frames and no more. One would do, as in go, but when both sides dial at once
    py-libp2p opens two, uses the one that it happens to register last, and takes the end of the
    other for ours.
    """

    def __init__(self, driver: _Owner, connection: Connection) -> None:
        self.driver = driver
        self.connection = connection
        self.peer = connection.remote_peer
        self.protocol = ""
        self.queued_bytes = 0
        self.refused = ""
        """Why the peer does not take our stream; empty while it may."""
        self.slow = False
        """Whether publishing does not wait for the peer, until its queue is empty again."""
        self.since = driver.steady()
        self.taken = 0
        """Bytes that its stream has taken."""
        self.duplicates = 0
        """Events of the peer that others had brought before."""
        self._in_vain: dict[MessageId, int] = {}
        """How often it has brought which of them, lately."""
        self.most = 0
        """Bytes of an RPC that the peer takes at most, where it has shown that; else 0."""
        self._large: deque[tuple[float, int, trace.RpcMeta]] = deque(maxlen=_SUSPECTS)
        """What was sent lately that the peer may not take: when, of what size, and what it was."""
        self._resuming = False
        """Whether our stream was lost and is being opened again for a peer that has not left."""
        self._stream: Stream | None = None
        self._urgent: deque[_Queued] = deque()
        self._bulk: deque[_Queued] = deque()
        """What waits, since when, and what it carries."""
        self._rest: bytes | memoryview = b""
        self._cut_short: _Queued | None = None
        """The message of which `_rest` is the end."""
        self.replaced = False
        """Whether another channel has taken this one's place."""
        self._incoming: dict[Stream, None] = {}
        self._delay = driver.config.stream_retry_first
        self._retry: TimerHandle | None = None

    @property
    def max_frame(self) -> int:
        """How long an RPC of the peer may be."""
        return self.driver.max_frame

    @property
    def open(self) -> bool:
        """Whether the peer can be sent to."""
        return bool(self.protocol)

    @property
    def queued_messages(self) -> int:
        """RPCs that wait."""
        return len(self._urgent) + len(self._bulk)

    @property
    def waits_since(self) -> float | None:
        """When what has waited longest was queued; None when nothing waits."""
        heads = [queue[0][1] for queue in (self._urgent, self._bulk) if queue]
        if self._cut_short is not None:
            heads.append(self._cut_short[1])
        return min(heads, default=None)

    @property
    def behind(self) -> bool:
        """Whether the queue is half full: time to publish less, or to stop waiting for the peer."""
        config = self.driver.config
        return (
            self.queued_bytes > config.queue_bytes // 2
            or self.queued_messages > config.queue_messages // 2
        )

    @property
    def sent_large(self) -> bool:
        """Whether something was sent that the peer may not take."""
        return bool(self._large)

    def harps(self, event: MessageId) -> bool:
        """Whether the peer brings an event in vain that it has brought so often enough."""
        counts = self._in_vain
        count = counts[event] = counts.get(event, 0) + 1
        if len(counts) > _REMEMBERED_IN_VAIN:
            del counts[next(iter(counts))]
        return count > _OFTEN_ENOUGH

    def start(self) -> None:
        """Open our stream to the peer."""
        self._retry = None
        try:
            self._stream = self.connection.open_stream(self.driver.protocol_ids, self)
        except LimitError:
            self._start_later()
        except LocalError:  # one side has said goodbye: the end of the connection is on its way
            pass

    def stop(self) -> None:
        """The connection is gone."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def succeed(self, old: "Channel") -> None:
        """Take the place of a channel whose connection is being replaced.

        The peer's streams on other connections are read on behalf of this channel. Messages that
        the old one had not sent go out here, the one that it was in the middle of from its
        beginning: a repetition does no harm, a gap does. What it said about itself (subscriptions,
        mesh) is said anew. Unless this one is open already, the peer is gone for a while.
        """
        old.stop()
        old.replaced = True
        for stream in old._incoming:
            self._incoming[stream] = None
            if isinstance(stream.handler, Incoming):
                stream.handler.channel = self
        self.most = old.most
        if old._cut_short is not None:
            self._bulk.append(old._cut_short)
        self._bulk.extend(old._bulk)
        self._queue(sum(len(framed) for framed, _, _ in self._bulk))
        was_open, old.protocol = old.open, ""
        old._incoming = {}
        old._clear_queue()
        if was_open and not self.open:
            self.driver.on_channel_replaced(old)
        self._hand_on_early()

    def _start_later(self) -> None:
        loop = get_running_loop()
        self._retry = loop.call_later(self._delay, self.start)
        self._delay = min(self._delay * 2, _LONGEST_RETRY)

    # Our stream: sending.

    def on_open(self, stream: Stream) -> None:
        """The peer speaks our protocol."""
        self.protocol = stream.protocol
        self._resuming = False
        self.refused = ""
        self.driver.on_channel_open(self)
        self._hand_on_early()
        if self.protocol and self.queued_messages:
            self._pump()

    def _hand_on_early(self) -> None:
        """Hand on what came before our stream was open, one a turn; then read on."""
        for stream in [*self._incoming]:
            if stream.handler is not None and stream.handler.unread:
                stream.connection.give(stream, b"")
                get_running_loop().call_soon(self._hand_on_early)
                return
            if self.protocol:
                stream.release()

    def on_writable(self, stream: Stream) -> None:
        """There is room again."""
        self._pump()

    def on_close(self, stream: Stream, reason: str) -> None:
        """Without this stream the peer cannot be sent to."""
        if reason == ENDED:
            stream.reset()  # the peer never sends here; who ends a stream does not read it either
        elif not self.replaced:
            self._stream = None
            lives = self.connection.closed_because is None and reason != REFUSED
            if lives:
                self._find_too_large()
            if lives and self._incoming and self.open and not self._resuming:
                self._resume()
            else:
                self._lose(reason)

    def _find_too_large(self) -> None:
        """The peer has ended our stream: was it because of what we sent?"""
        since = self.driver.steady() - _RECENT
        suspects = [large for large in self._large if large[0] > since]
        self._large.clear()
        if suspects:
            self.most = min(size for _, size, _ in suspects) - 1
            self.driver.limits[self.peer] = self.most
            for _, _, meta in suspects:
                self.driver.drop(self.peer, meta, TOO_LARGE)

    def _resume(self) -> None:
        """Open our stream again; what waits for it, waits on, unless the peer does not take it."""
        self._resuming = True
        waiting = list(self._bulk)
        if self._cut_short is not None:
            waiting.insert(0, self._cut_short)
        self._rest, self._cut_short = b"", None
        self._bulk = deque(each for each in waiting if not 0 < self.most < len(each[0]))
        left = sum(len(framed) for queue in (self._urgent, self._bulk) for framed, *_ in queue)
        self._queue(left - self.queued_bytes)
        self._start_later()

    def _lose(self, reason: str) -> None:
        was_open = self.open
        self.protocol, self._resuming = "", False
        self._drop_queue(reason)
        if self.connection.closed_because is not None:
            self.stop()
        elif reason != REFUSED:
            if self._retry is None:
                self._start_later()
        else:
            self.refused = NOT_SPOKEN
            for incoming in list(self._incoming):
                incoming.reset()
        why = self.refused or self.connection.closed_because or reason
        self.driver.on_channel_lost(self, why, was_open=was_open)

    def _queue(self, size: int) -> None:
        self.queued_bytes += size
        self.driver.queued_bytes += size

    def _drop_queue(self, reason: str) -> None:
        """What waits will not be sent, and what was begun is of no use to the peer."""
        waiting = [*self._urgent, *self._bulk]
        if self._cut_short is not None:
            waiting.insert(0, self._cut_short)
        self._clear_queue()
        for _, _, meta in waiting:
            self.driver.drop(self.peer, meta, reason)

    def _clear_queue(self) -> None:
        self._urgent.clear()
        self._bulk.clear()
        self._rest, self._cut_short = b"", None
        self._queue(-self.queued_bytes)
        self.slow = False

    def send(self, frame: bytes, message: WireMessage) -> str:
        """Send a framed RPC, or queue it; return why not, when there is a reason."""
        stream, size = self._stream, len(frame)
        if not self.protocol:
            return NOT_CONNECTED
        if size > SURELY_TAKEN:
            if 0 < self.most < size:
                return TOO_LARGE
            self._large.append((self.driver.steady(), size, message.meta))
        self.connection.active = True
        idle = not self._rest and not self._bulk and not self._urgent
        if idle and stream is not None and not self._resuming:
            taken = stream.send(frame)
            self.taken += taken
            if taken < size:
                self._cut_short = (frame, self.driver.steady(), message.meta)
                self._rest = memoryview(frame)[taken:]
                self._queue(len(self._rest))
            return ""
        config = self.driver.config
        if (
            self.queued_messages >= config.queue_messages
            or self.queued_bytes + size > config.queue_bytes
            or self.driver.queued_bytes + size > config.queue_bytes_total
        ):
            return QUEUE_FULL
        queue = self._urgent if message.urgent else self._bulk
        queue.append((frame, self.driver.steady(), message.meta))
        self._queue(size)
        return ""

    def _pump(self) -> None:
        stream = self._stream
        if stream is None or not self.protocol or self._resuming:
            return
        while True:
            if not self._rest:
                queue = self._urgent or self._bulk
                if not queue:
                    self.slow = False
                    break
                self._cut_short = queue.popleft()
                self._rest = self._cut_short[0]
            taken = stream.send(bytes(self._rest))
            self.taken += taken
            self._queue(-taken)
            if taken < len(self._rest):
                self._rest = memoryview(self._rest)[taken:]
                break
            self._rest, self._cut_short = b"", None
        self.driver.on_change()

    # The peer's stream: receiving.

    def accept(self, stream: Stream) -> Incoming:
        """Take a stream that the peer opened, in place of the oldest when there are too many."""
        self._incoming[stream] = None
        if len(self._incoming) > _INCOMING_STREAMS:
            oldest = next(iter(self._incoming))
            del self._incoming[oldest]
            self.driver.count(REPLACED_STREAM)
            self.driver.record(trace.Refuse(self.peer, REPLACED_STREAM))
            oldest.reset()
        if self._stream is None and self._retry is None:
            self._start_later()
        return Incoming(self)

    def receive(self, stream: Stream, arrived: Sequence[Read]) -> int:
        """Hand on what arrived; return how much of it.

        That is all of it, unless the connection's turn is over before; and nothing, as long as our
        own stream is not open: then no more is read.
        """
        if not self.protocol:
            if len(arrived) > _HELD_MESSAGES:
                raise DecodeError("too-early", "a flood before the streams were open")
            stream.hold()
            return 0
        decode = self.driver.decode
        messages = (decode(each) if isinstance(each, bytes) else each for each in arrived)
        return self.driver.receive(self.peer, messages, stream.connection.turn)

    def parts(self, frame: bytes) -> list[Read]:
        """A large RPC in parts, each of which is a turn's work at most."""
        message = self.driver.decode(frame)
        parts = self.driver.parts(message)
        if len(parts) > 1:
            return [*parts]
        # What it has besides what we read of it was sent, too.
        meta = message.meta
        message.cached_meta = replace(meta, size=max(meta.size, len(frame)))
        return [message]

    def pace(self, stream: Stream) -> None:
        """Stop reading from a stream for a while, where there is a reason to."""
        if self.protocol and stream in self._incoming:
            self.driver.intake.hold_if_busy(stream)

    def note_part(self, stream: Stream, size: int, *, anew: bool) -> None:
        """So many bytes of an RPC have come in part."""
        if stream in self._incoming:
            self.driver.intake.note_part(stream, size, anew=anew)

    def on_incoming_closed(self, stream: Stream) -> None:
        """The peer's stream is gone, so it may have forgotten us: begin again on our side too.

        Whoever loses its own stream forgets what the other subscribes to. Only a new stream makes
        the other say it again. go does the same.
        """
        self.driver.intake.forget(stream)
        if stream not in self._incoming:
            return
        del self._incoming[stream]
        connection = stream.connection
        if connection.retired and (self._incoming or connection.closed_because != RETIRED):
            return  # the peer has another stream, or has let go of this one itself
        if self._stream is not None:
            self._large.clear()
            self._stream.reset()
        elif self._resuming and not self._incoming:
            self._lose(ENDED)
