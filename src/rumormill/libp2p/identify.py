"""`/ipfs/id/1.0.0` and `/ipfs/id/push/1.0.0`: what a peer says about itself.

The answer to identify, and a push, is a stream with one message behind its length, then its end.
go splits a long answer into several messages that together are one; `IdentifyReader` takes them all
and merges them. In a push, a field that is missing says that nothing changed: `Identify.updated`.

Nothing said here is trusted by itself. `check` binds the message to the peer at the other end of
the encrypted connection; addresses stay opaque bytes (see `multiaddr.known_addresses`). A signed
record that does not hold is worth nothing, and the rest is worth what it was: rust-libp2p signs its
records under names of its own.
"""

from typing import Final

import msgspec

from rumormill.core.errors import DecodeError, PeerError
from rumormill.libp2p.envelope import MAX_ENVELOPE_BYTES, PeerRecord, unseal_peer_record
from rumormill.wire.fields import Octets, Text
from rumormill.wire.frames import FrameReader, frame
from rumormill.wire.keys import MAX_ENCODED_KEY_BYTES, PeerId, PublicKey
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.schema import Schema

IDENTIFY: Final = "/ipfs/id/1.0.0"
IDENTIFY_PUSH: Final = "/ipfs/id/push/1.0.0"

MAX_MESSAGE_BYTES: Final = 8 * 1024
"""The limit of go (with a signed record) and of js."""

MAX_MESSAGES: Final = 10
"""go reads at most this many parts of one answer."""

MAX_ADDRESSES: Final = 128
"""Our choice: go sends every address of every transport; 128 is several times what was seen."""

MAX_PROTOCOLS: Final = 256
"""Our choice: a peer with the whole of libp2p speaks about thirty."""

_MAX_TEXT_BYTES = 256


class Identify(msgspec.Struct, frozen=True):
    """One identify message; None or empty where the peer said nothing."""

    public_key: bytes | None = None
    listen_addresses: tuple[bytes, ...] = ()
    protocols: tuple[str, ...] = ()
    observed_address: bytes | None = None
    protocol_version: str | None = None
    agent_version: str | None = None
    signed_peer_record: bytes | None = None

    @staticmethod
    def decode(data: bytes) -> "Identify":
        """Read one message, without its length prefix."""
        return _SCHEMA.decode(data)

    def encode(self) -> bytes:
        """Write the message as it goes on the stream: behind its length."""
        body = _SCHEMA.encode(self)
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"an identify message has at most {MAX_MESSAGE_BYTES} bytes")
        return frame(body)

    def updated(self, push: "Identify") -> "Identify":
        """Return this knowledge with a push laid over it; what the push leaves out stays."""
        said = {name: getattr(push, name) or getattr(self, name) for name in self.__struct_fields__}
        return Identify(**said)

    def check(self, remote: PeerId) -> PeerRecord | None:
        """Check that the message speaks of `remote`; return its record, if it has signed one."""
        if self.public_key is not None and PublicKey.decode(self.public_key).peer_id() != remote:
            raise PeerError("wrong-peer", "identify with another peer's key")
        try:
            record = unseal_peer_record(self.signed_peer_record or b"")
        except PeerError:
            return None
        if record.peer_id != remote:
            raise PeerError("wrong-peer", "identify with another peer's record")
        return record


_SCHEMA: Final = Schema(
    Identify,
    {
        "public_key": Octets(1, MAX_ENCODED_KEY_BYTES, optional=True),
        "listen_addresses": Octets(2, MAX_ADDRESS_BYTES, max_count=MAX_ADDRESSES),
        "protocols": Text(3, _MAX_TEXT_BYTES, max_count=MAX_PROTOCOLS),
        "observed_address": Octets(4, MAX_ADDRESS_BYTES, optional=True),
        "protocol_version": Text(5, _MAX_TEXT_BYTES, optional=True),
        "agent_version": Text(6, _MAX_TEXT_BYTES, optional=True),
        "signed_peer_record": Octets(8, MAX_ENVELOPE_BYTES, optional=True),
    },
    max_bytes=MAX_MESSAGE_BYTES,
)


class IdentifyReader:
    """Collects the messages of one identify or push stream, into one as they come."""

    def __init__(self) -> None:
        self._frames = FrameReader(MAX_MESSAGE_BYTES)
        self._merged: Identify | None = None
        self._count = 0

    def receive(self, data: bytes) -> None:
        """Take bytes from the stream."""
        frames = self._frames
        messages = frames.feed(data)
        while messages:
            for message in messages:
                if self._count == MAX_MESSAGES:
                    raise DecodeError("too-many-messages", f"over {MAX_MESSAGES} identify messages")
                self._count += 1
                self._merge(Identify.decode(message))
            messages = frames.feed(b"") if frames.unread else []
        if frames.error is not None:
            raise frames.error

    def _merge(self, message: Identify) -> None:
        merged = self._merged
        if merged is not None:
            addresses = merged.listen_addresses + message.listen_addresses
            protocols = merged.protocols + message.protocols
            if len(addresses) > MAX_ADDRESSES or len(protocols) > MAX_PROTOCOLS:
                raise DecodeError("oversized", "too many addresses or protocols in all messages")
            message = merged.updated(
                msgspec.structs.replace(message, listen_addresses=addresses, protocols=protocols)
            )
        self._merged = message

    def finish(self) -> Identify:
        """Return the whole answer; call it when the peer has closed its side of the stream."""
        if self._frames.unfinished or self._merged is None:
            raise DecodeError("truncated", "the stream ended inside an identify message")
        return self._merged
