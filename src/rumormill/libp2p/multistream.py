"""multistream-select 1.0: agreeing on the protocol of a connection or a stream.

Each side says `/multistream/1.0.0`; then the initiator proposes protocols one by one and the
listener echoes the one it takes or answers `na`. A message is a line of text behind its length.

Both machines take bytes with `receive`, give bytes with `data_to_send`, and are done when `outcome`
is no longer PENDING; `receive` then returns what lies behind the last line, which already belongs
to the agreed protocol. The initiator sends its greeting and its first proposal at once, which saves
a round trip. With a single proposal the caller may send the protocol's own bytes right behind,
because the only other answer is a refusal, after which the channel is closed.

`ls` is answered with `na`, as go does: the list of what we speak is identify's business. Lines and
proposals are bounded, and so is everything kept: one unfinished line.
"""

import enum
from collections.abc import Container, Sequence
from typing import Final

from rumormill.core.errors import DecodeError, PeerError
from rumormill.wire.protobuf import read_varint, varint

MULTISTREAM: Final = "/multistream/1.0.0"

MAX_LINE_BYTES: Final = 1024
"""The limit of js-libp2p; protocol ids in use are under 64 bytes."""

MAX_PROPOSALS: Final = 32
"""Our choice: a pubsub peer proposes up to five versions, nobody needs six times as many."""

_NOT_AVAILABLE = "na"
_MAX_PREFIX_BYTES = 2  # enough for MAX_LINE_BYTES


class Outcome(enum.Enum):
    """How far a negotiation has come."""

    PENDING = "pending"
    AGREED = "agreed"
    REFUSED = "refused"


def encode_line(text: str) -> bytes:
    """Write one multistream message."""
    line = text.encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a protocol id has at most {MAX_LINE_BYTES - 1} bytes")
    return varint(len(line)) + line


class _Negotiation:
    """What both roles share: the line reader, the greeting, and what waits to be sent."""

    def __init__(self) -> None:
        self.outcome = Outcome.PENDING
        self.protocol: str | None = None
        self._greeted = False
        self._received = bytearray()
        self._to_send = bytearray(encode_line(MULTISTREAM))

    def data_to_send(self) -> bytes:
        """Return and forget the bytes that wait to be sent."""
        data = bytes(self._to_send)
        self._to_send.clear()
        return data

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer; return those behind the negotiation, once it is over."""
        received = self._received
        received += data
        while self.outcome is Outcome.PENDING:
            line = self._next_line()
            if line is None:
                return b""
            if self._greeted:
                self._on_line(line)
            elif line == MULTISTREAM:
                self._greeted = True
            else:
                raise DecodeError("not-multistream", "the first line is not multistream's")
        rest = bytes(received)
        received.clear()
        return rest

    def _next_line(self) -> str | None:
        received = self._received
        prefix = bytes(received[:_MAX_PREFIX_BYTES])
        if not prefix or (len(prefix) < _MAX_PREFIX_BYTES and prefix[-1] >= 0x80):
            return None
        length, start = read_varint(prefix, 0, len(prefix))
        if not 0 < length <= MAX_LINE_BYTES:
            raise DecodeError("oversized", f"a line of {length} bytes")
        stop = start + length
        if len(received) < stop:
            return None
        line = bytes(received[start:stop])
        del received[:stop]
        if line[-1] != 0x0A:
            raise DecodeError("not-multistream", "a line that does not end in a newline")
        try:
            return line[:-1].decode()
        except UnicodeDecodeError:
            raise DecodeError("bad-text", "a line that is not UTF-8") from None

    def _on_line(self, line: str) -> None:
        raise AssertionError("each role answers lines in its own way")


class Initiator(_Negotiation):
    """Proposes protocols in order of preference until the listener takes one."""

    def __init__(self, protocols: Sequence[str]) -> None:
        """Propose `protocols`, at least one, the preferred one first."""
        if not 0 < len(protocols) <= MAX_PROPOSALS:
            raise ValueError(f"propose 1 to {MAX_PROPOSALS} protocols")
        super().__init__()
        self._proposals = list(protocols)
        self._proposed = 0
        self._to_send += encode_line(protocols[0])

    def _on_line(self, line: str) -> None:
        proposal = self._proposals[self._proposed]
        if line == proposal:
            self.outcome = Outcome.AGREED
            self.protocol = proposal
        elif line != _NOT_AVAILABLE:
            raise PeerError("bad-answer", "the listener answered with another protocol")
        else:
            self._proposed += 1
            if self._proposed == len(self._proposals):
                self.outcome = Outcome.REFUSED
            else:
                self._to_send += encode_line(self._proposals[self._proposed])


class Listener(_Negotiation):
    """Takes the first proposal that it supports."""

    def __init__(self, supported: Container[str]) -> None:
        """Accept any protocol id that is `in supported`."""
        super().__init__()
        self._supported = supported
        self._refused = 0

    def _on_line(self, line: str) -> None:
        if line in self._supported:
            self.outcome = Outcome.AGREED
            self.protocol = line
            self._to_send += encode_line(line)
            return
        self._to_send += encode_line(_NOT_AVAILABLE)
        self._refused += 1
        if self._refused == MAX_PROPOSALS:
            raise PeerError("too-many-proposals", f"{MAX_PROPOSALS} proposals, none supported")
