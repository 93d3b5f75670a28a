"""`/ipfs/ping/1.0.0`: 32 random bytes go out, the same 32 bytes come back.

`PingListener` echoes whole payloads and keeps at most one unfinished one. `PingInitiator` has one
ping in flight at a time, gets its random bytes and the time from the caller, and tells the round
trip when the echo is complete. Bytes nobody asked for, or a changed echo, are the peer's fault.
"""

from typing import Final

from rumormill.core.errors import LocalError, PeerError

PING: Final = "/ipfs/ping/1.0.0"
PAYLOAD_BYTES: Final = 32


class PingListener:
    """Answers pings."""

    __slots__ = ("_unfinished",)

    def __init__(self) -> None:
        self._unfinished = b""

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer; return the echo of every payload that is now complete."""
        data = self._unfinished + data
        whole = len(data) - len(data) % PAYLOAD_BYTES
        self._unfinished = data[whole:]
        return data[:whole]


class PingInitiator:
    """Sends pings, one at a time, and measures the round trip."""

    __slots__ = ("_awaited", "_received", "_sent_at")

    def __init__(self) -> None:
        self._awaited = b""
        self._received = b""
        self._sent_at = 0.0

    @property
    def in_flight(self) -> bool:
        """Whether an echo is still to come."""
        return bool(self._awaited)

    def ping(self, payload: bytes, now: float) -> bytes:
        """Start a ping with 32 fresh random bytes; return the bytes to send."""
        if self._awaited:
            raise LocalError("the last ping is still in flight")
        if len(payload) != PAYLOAD_BYTES:
            raise ValueError(f"a ping carries {PAYLOAD_BYTES} bytes")
        self._awaited = payload
        self._sent_at = now
        return payload

    def receive(self, data: bytes, now: float) -> float | None:
        """Take bytes from the peer; return the round-trip time once the echo is complete."""
        if len(self._received) + len(data) > len(self._awaited):
            raise PeerError("unasked-ping", "more bytes than were sent")
        self._received += data
        if not self._awaited.startswith(self._received):
            raise PeerError("bad-echo", "an echo of other bytes than were sent")
        if not self._awaited or len(self._received) < PAYLOAD_BYTES:
            return None
        self._awaited = self._received = b""
        return now - self._sent_at
