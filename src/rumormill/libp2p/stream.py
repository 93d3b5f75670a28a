"""A stream of a connection: negotiates its protocol, then belongs to a handler.

A handler gets bytes by calls and sends by calls. It must take what it is given; a handler that
wants its peer to slow down holds the stream, and the window stays closed until it lets go.
"""

from asyncio import TimerHandle
from typing import Protocol

from rumormill.core.errors import LocalError
from rumormill.libp2p.multistream import Initiator, Listener, Outcome
from rumormill.libp2p.turns import Turn
from rumormill.libp2p.yamux import YamuxSession


class Carrier(Protocol):
    """The connection that carries a stream, as far as the stream and its handler know it."""

    remote_peer: bytes
    remote_address: str
    session: YamuxSession
    closed_because: str | None
    retired: bool
    """Whether the peer has made another connection in this one's place."""
    active: bool
    """To be set when a message passes, so that a transient connection stays open."""
    awake: bool
    """Whether what waits in the session is about to be sent."""
    spoken: frozenset[str] | None
    """The protocols that the peer serves, when it has said so."""
    turn: Turn

    def wake(self) -> None:
        """Send what waits in the session."""

    def give(self, stream: "Stream", data: bytes) -> None:
        """Have its handler take bytes, or go on with those that it has."""

    def on_negotiated(self, stream: "Stream") -> None:
        """The stream agreed on its protocol and needs its handler."""

    def forget_stream(self, stream: "Stream") -> None:
        """Let go of a stream that both sides have ended."""

    def drop_stream(self, stream: "Stream", reason: str = "reset") -> None:
        """Reset a stream and tell its handler."""


class StreamHandler:
    """What a protocol does with one of its streams: nothing, where it has no use for something."""

    __slots__ = ()

    @property
    def unread(self) -> bool:
        """Whether there is more to be done with the bytes that came than one call of `on_data`
        does; then it is called again, without new bytes, when the connection has time for it."""
        return False

    def on_open(self, stream: "Stream") -> None:
        """The protocol is agreed (`stream.protocol`); the stream can be used."""

    def on_data(self, stream: "Stream", data: bytes) -> None:
        """Bytes arrived. A `PeerError` raised here resets the stream."""

    def on_writable(self, stream: "Stream") -> None:
        """There is room again after `send` had taken less than all."""

    def on_close(self, stream: "Stream", reason: str) -> None:
        """The peer will send no more (`ended`), or the stream is gone for another reason."""


ENDED = "ended"
REFUSED = "refused"


class Stream:
    """One stream, from negotiation to its end."""

    __slots__ = (
        "_held",
        "_unreported",
        "connection",
        "deadline",
        "handler",
        "id",
        "negotiation",
        "protocol",
    )

    def __init__(
        self,
        connection: Carrier,
        stream_id: int,
        negotiation: Initiator | Listener,
        handler: StreamHandler | None,
    ) -> None:
        self.connection = connection
        self.id = stream_id
        self.negotiation: Initiator | Listener | None = negotiation
        self.handler = handler
        self.protocol = ""
        self.deadline: TimerHandle | None = None
        """Ends the negotiation if the peer does not; behind it, whatever else may take so long."""
        self._held = False
        self._unreported = 0

    def send(self, data: bytes) -> int:
        """Queue bytes; return how many were taken. `on_writable` follows when not all were.

        A stream that the peer has just reset takes everything, as it would have a moment ago;
        `on_close` is on its way.
        """
        connection = self.connection
        try:
            taken = connection.session.send(self.id, data)
        except LocalError:
            return len(data)
        if not connection.awake:
            connection.wake()
        return taken

    def end(self) -> None:
        """Send no more; what is queued still goes."""
        self.connection.session.end(self.id)
        self.connection.wake()

    def reset(self) -> None:
        """Give the stream up."""
        self.connection.drop_stream(self)

    def hold(self) -> None:
        """Leave the peer's window closed from now on."""
        self._held = True

    def release(self) -> None:
        """Open the window again."""
        self._held = False
        if self._unreported:
            self.connection.session.consumed(self.id, self._unreported)
            self._unreported = 0
            self.connection.wake()

    def stop_deadline(self) -> None:
        """What was limited in time is over."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection."""
        size = len(data)
        if self.negotiation is not None:
            data = self._negotiate(data)
        if data and self.handler is not None and self.negotiation is None:
            self.handler.on_data(self, data)
        if self._held:
            self._unreported += size
        else:
            self.connection.session.consumed(self.id, size)

    def _negotiate(self, data: bytes) -> bytes:
        negotiation = self.negotiation
        assert negotiation is not None
        rest = negotiation.receive(data)
        answer = negotiation.data_to_send()
        if answer:
            self.send(answer)
        if negotiation.outcome is Outcome.REFUSED:
            self.connection.drop_stream(self, REFUSED)
            return b""
        if negotiation.outcome is Outcome.AGREED:
            self.negotiation = None
            self.stop_deadline()
            self.protocol = negotiation.protocol or ""
            self.connection.on_negotiated(self)
        return rest
