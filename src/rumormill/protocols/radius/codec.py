"""Frames of radius gossip as bytes: encoding, bounded decoding, and what signatures cover.

The rule: no object is built that a limit has not allowed; nothing that a peer sends makes the walk
allocate more than a small multiple of the bytes that arrived. Whatever is wrong with the bytes, the
answer is a `DecodeError`.

Reading follows protobuf: unknown fields are skipped, and of a repeated single value the last one
counts. One thing is refused that protobuf would merge: a second interest or publication in the
place of one. What is passed on is encoded anew, so fields that nobody knows, and that no signature
covers, do not travel further.
"""

from typing import Final

from rumormill.core.config import Config, require
from rumormill.core.errors import DecodeError
from rumormill.core.identity import Identity
from rumormill.core.ids import Topic
from rumormill.overlay.hyparview.messages import (
    Membership,
    add_address,
    decode_membership,
    encode_membership,
    read_peer_id,
)
from rumormill.protocols.radius.messages import (
    MARK_BYTES,
    Frame,
    Interest,
    Publication,
    Relay,
    Spread,
)
from rumormill.wire.protobuf import (
    bytes_field,
    item_fields,
    next_field,
    read_varint,
    varint_field,
)

INTEREST_PREFIX: Final = b"rumormill-radius-interest:"
"""What an interest's signature covers starts with this, so that it can never be taken for one of
another kind."""
PUBLICATION_PREFIX: Final = b"rumormill-radius-publication:"
"""The same for publications."""

_UINT32 = 0xFFFF_FFFF

# Tags as they appear on the wire: the field number, then the wire type in the lowest three bits.
_FIELD_1, _FIELD_2, _FIELD_3, _FIELD_4 = 0x0A, 0x12, 0x1A, 0x22
_FIELD_5, _FIELD_6, _FIELD_7, _FIELD_8 = 0x2A, 0x32, 0x3A, 0x42
_NUMBER_2, _NUMBER_3, _NUMBER_4, _NUMBER_5 = 0x10, 0x18, 0x20, 0x28


class FrameLimits(Config, frozen=True, kw_only=True):
    """How much one frame may hold."""

    frame_bytes: int = 1 << 20
    """As pub/sub RPCs: 1 MiB."""
    interests: int = 4096
    """Our choice: interests take 150 bytes and more, so that this many nearly fill a frame."""
    publications: int = 256
    """PUB and DIRECTMSG together. Our choice: a peer sends one at a time."""
    membership: int = 16
    """Our choice: a peer sends one at a time."""
    topic_bytes: int = 1024
    """As in pub/sub RPCs: a name, not a payload."""
    key_bytes: int = 2048
    """As in pub/sub RPCs: RSA keys of up to 8192 bits, encoded."""
    signature_bytes: int = 1024
    """The signature of such a key."""
    served: int = 1024
    """Served subscribers named by one relayed publication."""
    other_fields: int = 100
    """Fields that nobody knows."""

    def validate(self) -> None:
        """Refuse limits under which nothing could be received."""
        for name in self.__struct_fields__:
            require(getattr(self, name) >= 0, name, "must not be negative")
        require(self.frame_bytes > 0, "frame_bytes", "must be positive")
        require(self.topic_bytes > 0, "topic_bytes", "must be positive")


DEFAULT_LIMITS: Final = FrameLimits()


def sign_interest(interest: Interest, identity: Identity) -> None:
    """Sign a new interest of ours."""
    interest.signature = interest.key = interest.cached_bytes = b""
    payload = INTEREST_PREFIX + interest.unsigned
    interest.signature, interest.key = identity.sign(payload), identity.public_key
    interest.cached_bytes = b""


def check_interest(interest: Interest, identity: Identity) -> bool:
    """Whether its owner signed an interest."""
    payload = INTEREST_PREFIX + interest.unsigned
    return identity.verify(interest.owner, interest.key, payload, interest.signature)


def sign_publication(publication: Publication, identity: Identity) -> None:
    """Sign a new publication of ours."""
    publication.signature = publication.key = publication.cached_bytes = b""
    payload = PUBLICATION_PREFIX + publication.unsigned
    publication.signature, publication.key = identity.sign(payload), identity.public_key
    publication.cached_bytes = b""


def check_publication(publication: Publication, identity: Identity) -> bool:
    """Whether its author signed a publication."""
    payload = PUBLICATION_PREFIX + publication.unsigned
    return identity.verify(publication.author, publication.key, payload, publication.signature)


def encode_frame(frame: Frame) -> bytes:
    """The bytes of a frame, without the length prefix of the stream."""
    parts: list[bytes] = []
    for spread in frame.interests:
        inner = bytes_field(1, spread.interest.encoded)
        parts.append(bytes_field(1, inner + _encode_hops(spread.hops)))
    for relay in frame.publications:
        inner = bytes_field(1, relay.publication.encoded) + _encode_hops(relay.hops)
        if relay.served:
            inner += bytes_field(3, relay.served)
        parts.append(bytes_field(2, inner))
    parts += [bytes_field(3, publication.encoded) for publication in frame.direct]
    parts += [bytes_field(4, encode_membership(message)) for message in frame.membership]
    return b"".join(parts)


def _encode_hops(hops: int) -> bytes:
    return varint_field(2, hops) if hops else b""


def decode_frame(data: bytes, limits: FrameLimits = DEFAULT_LIMITS) -> Frame:
    """Read one frame."""
    if len(data) > limits.frame_bytes:
        detail = f"{len(data)} bytes, allowed are {limits.frame_bytes}"
        raise DecodeError("frame-too-long", detail)
    interests: list[Spread] = []
    relays: list[Relay] = []
    direct: list[Publication] = []
    membership: list[Membership] = []
    others = position = 0
    end = len(data)
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _FIELD_1:
            if len(interests) == limits.interests:
                raise _too_many("interests", limits.interests)
            interests.append(_read_spread(data, start, position, limits))
        elif tag == _FIELD_2 or tag == _FIELD_3:
            if len(relays) + len(direct) == limits.publications:
                raise _too_many("publications", limits.publications)
            if tag == _FIELD_2:
                relays.append(_read_relay(data, start, position, limits))
            else:
                direct.append(_read_publication(data, start, position, limits))
        elif tag == _FIELD_4:
            if len(membership) == limits.membership:
                raise _too_many("membership", limits.membership)
            membership.append(decode_membership(data, start, position))
        else:
            others += 1
            if others > limits.other_fields:
                raise _too_many("fields", limits.other_fields)
    return Frame(tuple(interests), tuple(relays), tuple(direct), tuple(membership))


def _too_many(what: str, limit: int) -> DecodeError:
    return DecodeError(f"too-many-{what}", f"more than {limit} in one frame")


def _read_spread(data: bytes, position: int, end: int, limits: FrameLimits) -> Spread:
    interest: Interest | None = None
    hops = 0
    for tag, start, stop in item_fields(data, position, end):
        if tag == _FIELD_1:
            if interest is not None:
                raise DecodeError("repeated-field", "two interests in the place of one")
            interest = _read_interest(data, start, stop, limits)
        elif tag == _NUMBER_2:
            hops = read_varint(data, start, stop)[0] & _UINT32
    return Spread(interest or Interest(b"", "", 0, 0), hops)


def _read_relay(data: bytes, position: int, end: int, limits: FrameLimits) -> Relay:
    publication: Publication | None = None
    hops, served = 0, b""
    for tag, start, stop in item_fields(data, position, end):
        if tag == _FIELD_1:
            if publication is not None:
                raise DecodeError("repeated-field", "two publications in the place of one")
            publication = _read_publication(data, start, stop, limits)
        elif tag == _NUMBER_2:
            hops = read_varint(data, start, stop)[0] & _UINT32
        elif tag == _FIELD_3:
            if stop - start > limits.served * MARK_BYTES:
                raise DecodeError("too-many-served", f"more than {limits.served} in one copy")
            served = data[start:stop]
    return Relay(publication or Publication(b"", "", 0), hops, served)


def _read_interest(data: bytes, position: int, end: int, limits: FrameLimits) -> Interest:
    owner = signature = key = b""
    topic = ""
    sequence = expires = 0
    withdrawn = False
    addresses: list[bytes] = []
    for tag, start, stop in item_fields(data, position, end):
        if tag == _FIELD_1:
            owner = read_peer_id(data, start, stop)
        elif tag == _FIELD_2:
            topic = _topic(data, start, stop, limits)
        elif tag == _NUMBER_3:
            sequence = read_varint(data, start, stop)[0]
        elif tag == _NUMBER_4:
            expires = read_varint(data, start, stop)[0]
        elif tag == _NUMBER_5:
            withdrawn = read_varint(data, start, stop)[0] != 0
        elif tag == _FIELD_6:
            add_address(addresses, data, start, stop)
        elif tag == _FIELD_7:
            signature = _bounded(data, start, stop, "signature", limits.signature_bytes)
        elif tag == _FIELD_8:
            key = _bounded(data, start, stop, "key", limits.key_bytes)
    return Interest(owner, topic, sequence, expires, withdrawn, tuple(addresses), signature, key)


def _read_publication(data: bytes, position: int, end: int, limits: FrameLimits) -> Publication:
    author = payload = signature = key = b""
    topic = ""
    time = 0
    for tag, start, stop in item_fields(data, position, end):
        if tag == _FIELD_1:
            author = read_peer_id(data, start, stop)
        elif tag == _FIELD_2:
            topic = _topic(data, start, stop, limits)
        elif tag == _NUMBER_3:
            time = read_varint(data, start, stop)[0]
        elif tag == _FIELD_4:
            payload = data[start:stop]
        elif tag == _FIELD_5:
            signature = _bounded(data, start, stop, "signature", limits.signature_bytes)
        elif tag == _FIELD_6:
            key = _bounded(data, start, stop, "key", limits.key_bytes)
    return Publication(author, topic, time, payload, signature, key)


def _bounded(data: bytes, start: int, stop: int, what: str, limit: int) -> bytes:
    if stop - start > limit:
        raise DecodeError(f"{what}-too-long", f"{stop - start} bytes, allowed are {limit}")
    return data[start:stop]


def _topic(data: bytes, start: int, stop: int, limits: FrameLimits) -> Topic:
    raw = _bounded(data, start, stop, "topic", limits.topic_bytes)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DecodeError("bad-topic", "a topic is not UTF-8") from None
