"""`/ipfs/ping/1.0.0`: 32 random bytes go out, the same 32 bytes come back.

`PingListener` echoes whole payloads and keeps at most one unfinished one. We answer such pings and
send none: a connection is kept alive by the pings of its multiplexer.
"""

from typing import Final

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
