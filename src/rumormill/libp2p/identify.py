"""`/ipfs/id/1.0.0` and `/ipfs/id/push/1.0.0`: what a peer says about itself.

The answer to identify, and a push, is a stream with one message behind its length, then its end.
go splits a long answer into several messages that together are one; `IdentifyReader` takes them all
and merges them. In a push, a field that is missing says that nothing changed: `Identify.updated`.

Nothing said here is trusted by itself. `check` binds the message to the peer at the other end of
the encrypted connection; addresses stay opaque bytes (see `multiaddr.known_addresses`).
"""

from typing import Final, Self

import msgspec

from rumormill.core.errors import DecodeError, PeerError
from rumormill.libp2p.envelope import MAX_ENVELOPE_BYTES, PeerRecord, unseal_peer_record
from rumormill.wire import schema
from rumormill.wire.keys import MAX_ENCODED_KEY_BYTES, PeerId, PublicKey
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.protobuf import bytes_field, read_varint, string_field, varint

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

_SCHEMA: schema.Schema = {
    1: schema.Octets(MAX_ENCODED_KEY_BYTES),
    2: schema.Octets(MAX_ADDRESS_BYTES, max_count=MAX_ADDRESSES),
    3: schema.Text(_MAX_TEXT_BYTES, max_count=MAX_PROTOCOLS),
    4: schema.Octets(MAX_ADDRESS_BYTES),
    5: schema.Text(_MAX_TEXT_BYTES),
    6: schema.Text(_MAX_TEXT_BYTES),
    8: schema.Octets(MAX_ENVELOPE_BYTES),
}


class Identify(msgspec.Struct, frozen=True):
    """One identify message; None or empty where the peer said nothing."""

    public_key: bytes | None = None
    listen_addresses: tuple[bytes, ...] = ()
    protocols: tuple[str, ...] = ()
    observed_address: bytes | None = None
    protocol_version: str | None = None
    agent_version: str | None = None
    signed_peer_record: bytes | None = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one message, without its length prefix."""
        message = schema.read(data, _SCHEMA, max_bytes=MAX_MESSAGE_BYTES)
        return cls(
            public_key=message.octets(1),
            listen_addresses=message.all_octets(2),
            protocols=message.all_texts(3),
            observed_address=message.octets(4),
            protocol_version=message.text(5),
            agent_version=message.text(6),
            signed_peer_record=message.octets(8),
        )

    def encode(self) -> bytes:
        """Write the message as it goes on the stream: behind its length."""
        parts = [bytes_field(2, address) for address in self.listen_addresses]
        parts.extend(string_field(3, protocol) for protocol in self.protocols)
        for number, octets in (
            (1, self.public_key),
            (4, self.observed_address),
            (8, self.signed_peer_record),
        ):
            if octets is not None:
                parts.append(bytes_field(number, octets))
        for number, text in ((5, self.protocol_version), (6, self.agent_version)):
            if text is not None:
                parts.append(string_field(number, text))
        body = b"".join(parts)
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"an identify message has at most {MAX_MESSAGE_BYTES} bytes")
        return varint(len(body)) + body

    def updated(self, push: "Identify") -> "Identify":
        """Return this knowledge with a push laid over it; what the push leaves out stays."""
        return Identify(
            public_key=push.public_key or self.public_key,
            listen_addresses=push.listen_addresses or self.listen_addresses,
            protocols=push.protocols or self.protocols,
            observed_address=push.observed_address or self.observed_address,
            protocol_version=push.protocol_version or self.protocol_version,
            agent_version=push.agent_version or self.agent_version,
            signed_peer_record=push.signed_peer_record or self.signed_peer_record,
        )

    def check(self, remote: PeerId) -> PeerRecord | None:
        """Check that the message speaks of `remote`; return its signed record, if there is one."""
        if self.public_key is not None and PublicKey.decode(self.public_key).peer_id() != remote:
            raise PeerError("wrong-peer", "identify with another peer's key")
        if self.signed_peer_record is None:
            return None
        record = unseal_peer_record(self.signed_peer_record)
        if record.peer_id != remote:
            raise PeerError("wrong-peer", "identify with another peer's record")
        return record


class IdentifyReader:
    """Collects the messages of one identify or push stream."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._messages: list[Identify] = []

    def receive(self, data: bytes) -> None:
        """Take bytes from the stream."""
        received = self._received
        received += data
        while received:
            prefix = bytes(received[:2])
            if len(prefix) < 2 and prefix[-1] >= 0x80:
                return
            length, start = read_varint(prefix, 0, len(prefix))
            if length > MAX_MESSAGE_BYTES:
                raise DecodeError("oversized", f"an identify message of {length} bytes")
            if len(received) < start + length:
                return
            if len(self._messages) == MAX_MESSAGES:
                raise DecodeError("too-many-messages", f"over {MAX_MESSAGES} identify messages")
            self._messages.append(Identify.decode(bytes(received[start : start + length])))
            del received[: start + length]

    def finish(self) -> Identify:
        """Return the whole answer; call it when the peer has closed its side of the stream."""
        if self._received or not self._messages:
            raise DecodeError("truncated", "the stream ended inside an identify message")
        merged, *others = self._messages
        for message in others:
            merged = merged.updated(
                msgspec.structs.replace(
                    message,
                    listen_addresses=merged.listen_addresses + message.listen_addresses,
                    protocols=merged.protocols + message.protocols,
                )
            )
        if len(merged.listen_addresses) > MAX_ADDRESSES or len(merged.protocols) > MAX_PROTOCOLS:
            raise DecodeError("oversized", "too many addresses or protocols in all messages")
        return merged
