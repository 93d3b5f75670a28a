"""What implementations and networks call a message, by name of the preset.

All of these are functions of the message alone, so everybody computes the same. The first three are
what implementations do unless told otherwise, and can be told apart by their look; the others are
what all peers of a network agree on.
"""

import hashlib
import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Final

from rumormill.core.errors import DecodeError
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.pubsub.messages import Message
from rumormill.wire import base58
from rumormill.wire.protobuf import read_varint


class MessageNaming(Enum):
    """How messages are named."""

    LIBP2P = "libp2p"
    """Author and sequence number, as in the specification, go and py; a hash of topic and content
    where messages have no signature."""
    JS = "js"
    """js-libp2p: the author's public key and the sequence number; a hash of the content."""
    RUST = "rust"
    """rust-libp2p: author and sequence number as text."""
    ETHEREUM = "ethereum"
    """Ethereum's consensus layer, from Altair on: a hash of topic and uncompressed content."""
    FILECOIN = "filecoin"
    """Lotus: BLAKE2b-256 of the content."""


_INVALID_SNAPPY, _VALID_SNAPPY = bytes(4), b"\x01\x00\x00\x00"
_ETHEREUM_ID_BYTES = 20
_ETHEREUM_MAX_BYTES = 10 << 20
"""Ethereum's MAX_PAYLOAD_SIZE: 10 MiB uncompressed."""


def author_and_seqno(message: Message) -> MessageId:
    """Name a message by its author and sequence number, raw bytes, as go does by default."""
    return message.author + message.seqno


def content_hash(topic: Topic, data: bytes, _by: PeerId = b"", _seqno: bytes = b"") -> MessageId:
    """Name a message by what it says, whoever says it: a `MessageIdFunction`."""
    named = topic.encode()
    framed = b"".join((len(named).to_bytes(4, "big"), named, data))
    return hashlib.sha256(framed).digest()[:20]


def _libp2p(message: Message) -> MessageId:
    if message.signature:
        return message.author + message.seqno
    return content_hash(message.topic, message.data)


def _js(message: Message) -> MessageId:
    author = message.author
    if not author:
        return hashlib.sha256(message.data).digest()
    key = message.key or (author[2:] if author[:1] == b"\x00" else b"")
    return key + message.seqno.rjust(8, b"\x00")


_author_text = lru_cache(maxsize=4096)(base58.encode)


def _rust(message: Message) -> MessageId:
    author = _author_text(message.author or b"\x00\x01\x00")
    return f"{author}{int.from_bytes(message.seqno)}".encode()


def _ethereum(message: Message) -> MessageId:
    topic = message.topic.encode()
    try:
        domain, data = _VALID_SNAPPY, unsnapped(message.data, _ETHEREUM_MAX_BYTES)
    except DecodeError:
        domain, data = _INVALID_SNAPPY, message.data
    hashed = b"".join((domain, len(topic).to_bytes(8, "little"), topic, data))
    return hashlib.sha256(hashed).digest()[:_ETHEREUM_ID_BYTES]


def _filecoin(message: Message) -> MessageId:
    return hashlib.blake2b(message.data, digest_size=32).digest()


NAMINGS: Final[dict[MessageNaming, Callable[[Message], MessageId]]] = {
    MessageNaming.LIBP2P: _libp2p,
    MessageNaming.JS: _js,
    MessageNaming.RUST: _rust,
    MessageNaming.ETHEREUM: _ethereum,
    MessageNaming.FILECOIN: _filecoin,
}

_LOOKS: Final = {
    MessageNaming.LIBP2P: re.compile(rb"(\x00[\x24\x25]\x08|\x12\x20.{32}).{8,}", re.DOTALL),
    MessageNaming.JS: re.compile(rb"\x08[\x00-\x03]\x12.{40,}", re.DOTALL),
    MessageNaming.RUST: re.compile(rb"(12D3Koo|16Uiu2|Qm)[1-9A-HJ-NP-Za-km-z]{30,}[0-9]+"),
}


def naming_of(message_id: MessageId) -> MessageNaming | None:
    """Whose default an id looks like; None if it is nobody's."""
    for naming, look in _LOOKS.items():
        if look.fullmatch(message_id):
            return naming
    return None


def unsnapped(data: bytes, limit: int) -> bytes:
    """Uncompress one block of Snappy, of at most `limit` bytes; `DecodeError` if it is none."""
    try:
        size, position = read_varint(data, 0, len(data))
        if size > limit:
            raise DecodeError("oversized", f"{size} bytes, allowed are {limit}")
        out = bytearray()
        while position < len(data) and len(out) <= size:
            position = _literal_or_copy(data, position, out)
    except IndexError:
        raise DecodeError("truncated", "a block of Snappy is cut short") from None
    if len(out) != size:
        raise DecodeError("bad-snappy", "a block of another length than it says")
    return bytes(out)


def _literal_or_copy(data: bytes, position: int, out: bytearray) -> int:
    tag = data[position]
    position += 1
    kind, upper = tag & 3, tag >> 2
    if kind == 0:
        length = upper + 1
        if upper >= 60:
            extra = upper - 59
            length = int.from_bytes(data[position : position + extra], "little") + 1
            position += extra
        if position + length > len(data):
            raise DecodeError("truncated", "a literal is cut short")
        out += data[position : position + length]
        return position + length
    if kind == 1:
        length, offset = (upper & 7) + 4, (upper >> 3) << 8 | data[position]
        position += 1
    else:
        extra = 2 if kind == 2 else 4
        length, offset = upper + 1, int.from_bytes(data[position : position + extra], "little")
        position += extra
    if not 0 < offset <= len(out):
        raise DecodeError("bad-snappy", "a copy from before the beginning")
    start = len(out) - offset
    pattern = out[start : start + length]
    out += (pattern * (length // len(pattern) + 1))[:length]
    return position
