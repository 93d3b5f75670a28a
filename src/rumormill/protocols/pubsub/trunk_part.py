"""What trunk, our extension of GossipSub 1.3, adds to an RPC: values and bytes (docs/trunk.md).

Everything about a source (an author in a topic) is said by its tag, and everything about a message
by its mark, so that an announcement takes eight bytes where an id takes 46: tag and mark together
are the message's name. Tags come from a hash, marks from the sequence number. Where the source does
not matter, a message goes by its key, which is both in four bytes. Two sources with one tag, or two
messages with one key, cost a tree or an announcement and never a message: what is told apart
wrongly here still comes along the mesh, or by sync.

The rule is the codec's (`protocols.pubsub.codec`): no object is built that a limit has not allowed.
"""

import hashlib
from functools import lru_cache
from itertools import compress
from typing import Final

import msgspec
from msgspec.structs import astuple

from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId, Topic
from rumormill.core.trace import OperationMeta
from rumormill.wire.protobuf import (
    LENGTH_DELIMITED,
    bytes_field,
    field_size,
    item_fields,
    next_field,
    read_varint,
    string_field,
    varint,
    varint_field,
    varint_size,
)

EXTENSION: Final = 0x726D74
"""The number of our field, in an RPC and among the extensions that a peer names ("rmt" in ASCII).
1.3 leaves numbers from 0x200000 on to experiments."""

TAG_BYTES: Final = 4
KEY_BYTES: Final = 4
NAME_BYTES: Final = 8

FIELD: Final = varint(EXTENSION << 3 | LENGTH_DELIMITED)
FIELD_TAG: Final = EXTENSION << 3 | LENGTH_DELIMITED
OFFER_TAG: Final = EXTENSION << 3
_HAVE, _WANT, _CHOKE, _UNCHOKE = (number << 3 | 2 for number in range(1, 5))
_PROBE: Final = 6 << 3 | 2  # 5 was another field once
_NUMBER: Final = 3 << 3
_ECHO: Final = 7 << 3
_GOSSIP: Final = 8 << 3 | 2
_PAST: Final = 9 << 3 | 2
CALL: Final = 1
ANSWER: Final = 2
"""What an echo says."""

NAMES_MAX: Final = 5000
"""Names of each kind in an RPC, as many as ids in an IHAVE of go's."""
TAGS_MAX: Final = 4096
"""Tags in one list of an RPC: our choice, the sources of a whole topic."""
PAST_MAX: Final = 512
"""Sources of a topic of whose past a peer is told at once: our choice, six kilobytes."""
FIELDS_MAX: Final = 1000
"""Probes, topics whose past is told, and what is unknown, in one RPC; our choice, as for GRAFT."""
TICK: Final = 1e-4
"""Seconds in which the past is counted: our choice, exact beside what networks take."""
_AGE_BYTES: Final = 3
AGE_MAX: Final = TICK * ((1 << 8 * _AGE_BYTES) - 1)
"""Seconds, half an hour: what is as old or older is told as being that old."""
_PAST_BYTES: Final = NAME_BYTES + _AGE_BYTES
_LIST_MOST: Final = {_WANT: NAMES_MAX, _CHOKE: TAGS_MAX, _UNCHOKE: TAGS_MAX, _GOSSIP: NAMES_MAX}
"""Items of the lists that are there once; all of them take four bytes."""
SOURCE_BYTES: Final = 128
"""A peer id at most; our choice: an identity multihash of a key takes 38, a hash of one 34."""


class Probe(msgspec.Struct, frozen=True, gc=False):
    """A message without content: it only shows the way from a source."""

    topic: Topic
    source: PeerId
    number: int


class Past(msgspec.Struct, frozen=True, gc=False):
    """What a peer has heard last of a topic's sources, and how long ago."""

    topic: Topic
    names: tuple[bytes, ...]
    """Of each source the last message, or in place of its mark the number of its last probe."""
    ages: tuple[float, ...]
    """Seconds for which it has had each."""


class TrunkPart(msgspec.Struct, frozen=True, gc=False):
    """The extension's part of an RPC."""

    have: tuple[bytes, ...] = ()
    """Names of messages that the sender has and does not send unless asked. On the wire, those
    of a source that follow each other name it once."""
    want: tuple[bytes, ...] = ()
    """Keys of messages that the sender asks for."""
    choke: tuple[bytes, ...] = ()
    """Tags of sources of which the sender wants announcements only."""
    unchoke: tuple[bytes, ...] = ()
    """Tags of sources of which it wants the messages."""
    probes: tuple[Probe, ...] = ()
    echo: int = 0
    """`CALL` asks for an `ANSWER`, at once: so the sender learns how long one takes."""
    gossip: tuple[bytes, ...] = ()
    """Keys of messages that the sender has had for a while."""
    past: tuple[Past, ...] = ()
    """What it could have announced to us, had the link been there."""


@lru_cache(TAGS_MAX)
def tag_of(topic: Topic, source: PeerId) -> bytes:
    """What a source is called in a topic: one value for all peers of a process."""
    return hashlib.sha256(topic.encode() + b"\0" + source).digest()[:TAG_BYTES]


def mark_of(seqno: bytes) -> bytes:
    """What a message is called among those of its source: the end of its sequence number."""
    return seqno[-4:].rjust(4, b"\0")


@lru_cache(NAMES_MAX)
def key_of(name: bytes) -> bytes:
    """What a message is called where its source does not matter: its tag and mark in one.

    Several neighbours announce each message.
    """
    mixed = int.from_bytes(name[:TAG_BYTES], "big") ^ int.from_bytes(name[TAG_BYTES:], "big")
    return mixed.to_bytes(KEY_BYTES, "big")


def part_size(part: TrunkPart) -> int:
    """Bytes of the field in an RPC, its tag and length included."""
    inner = _inner_size(part)
    return len(FIELD) + varint_size(inner) + inner


def _inner_size(part: TrunkPart) -> int:
    have = part.have
    if len(have) == 1:
        size = 2 + NAME_BYTES
    else:
        size = sum([field_size(len(group)) for group in _grouped(have)]) if have else 0
    for items in (part.want, part.choke, part.unchoke, part.gossip):
        if items:
            size += field_size(len(items[0]) * len(items))
    for probe in part.probes:
        size += field_size(_probe_size(probe))
    for past in part.past:
        size += field_size(_past_size(past))
    return size + 2 if part.echo else size


def _grouped(names: tuple[bytes, ...]) -> list[bytes]:
    """A tag and the marks of its messages, for each run of names with one tag."""
    groups: list[bytes] = []
    tag = b""
    for name in names:
        if name[:TAG_BYTES] == tag:
            groups[-1] += name[TAG_BYTES:]
        else:
            tag = name[:TAG_BYTES]
            groups.append(name)
    return groups


def _past_size(past: Past) -> int:
    return field_size(len(past.topic.encode())) + field_size(_PAST_BYTES * len(past.names))


def _probe_size(probe: Probe) -> int:
    texts = field_size(len(probe.topic.encode())) + field_size(len(probe.source))
    return texts + 1 + varint_size(probe.number)


def encode_part(part: TrunkPart) -> bytes:
    """The bytes of the field in an RPC."""
    parts = [bytes_field(1, group) for group in _grouped(part.have)]
    for number, items in enumerate((part.want, part.choke, part.unchoke), 2):
        if items:
            parts.append(bytes_field(number, b"".join(items)))
    for probe in part.probes:
        texts = string_field(1, probe.topic) + bytes_field(2, probe.source)
        parts.append(bytes_field(6, texts + varint_field(3, probe.number)))
    if part.echo:
        parts.append(varint_field(7, part.echo))
    if part.gossip:
        parts.append(bytes_field(8, b"".join(part.gossip)))
    for past in part.past:
        told = bytes_field(2, b"".join(map(_encoded_past, past.names, past.ages)))
        parts.append(bytes_field(9, string_field(1, past.topic) + told))
    inner = b"".join(parts)
    return b"".join((FIELD, varint(len(inner)), inner))


def _encoded_past(name: bytes, age: float) -> bytes:
    return name + round(min(max(age, 0.0), AGE_MAX) / TICK).to_bytes(_AGE_BYTES, "big")


def read_part(data: bytes, position: int, end: int, topic_bytes: int) -> TrunkPart:
    """Read the extension's field; it is refused as a whole if anything in it is too long."""
    lists: dict[int, tuple[bytes, ...]] = {}
    have: list[bytes] = []
    probes: list[Probe] = []
    pasts: list[Past] = []
    echo = unknown = told = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _HAVE:
            source = data[start : start + TAG_BYTES]
            marks = _read_items(data, start + TAG_BYTES, position, TAG_BYTES, NAMES_MAX - len(have))
            have += [source + mark for mark in marks]
        elif tag in _LIST_MOST:
            if tag in lists:
                raise DecodeError("trunk-repeated", "a list occurs twice")
            lists[tag] = _read_items(data, start, position, KEY_BYTES, _LIST_MOST[tag])
        elif len(probes) + len(pasts) + unknown >= FIELDS_MAX:
            raise DecodeError("too-many-fields", f"more than {FIELDS_MAX} in the extension")
        elif tag == _PROBE:
            probes.append(_read_probe(data, start, position, topic_bytes))
        elif tag == _PAST:
            told += (position - start) // _PAST_BYTES
            if told > NAMES_MAX:
                raise DecodeError("too-many-fields", f"the past of more than {NAMES_MAX} sources")
            pasts.append(_read_past(data, start, position, topic_bytes))
        elif tag == _ECHO:
            echo = read_varint(data, start, position)[0] & 3
        else:
            unknown += 1
    want, choke, unchoke, gossip = (lists.get(tag, ()) for tag in _LIST_MOST)
    return TrunkPart(tuple(have), want, choke, unchoke, tuple(probes), echo, gossip, tuple(pasts))


def _read_items(data: bytes, start: int, end: int, width: int, most: int) -> tuple[bytes, ...]:
    count, rest = divmod(end - start, width)
    if rest or not 0 < count <= most:
        raise DecodeError("bad-trunk-list", f"{end - start} bytes are not 1 to {most} items")
    return tuple([data[at : at + width] for at in range(start, end, width)])


def _read_topic(raw: bytes, topic_bytes: int) -> Topic:
    if len(raw) > topic_bytes:
        raise DecodeError("topic-too-long", f"{len(raw)} bytes, allowed are {topic_bytes}")
    return raw.decode()


def _read_probe(data: bytes, position: int, end: int, topic_bytes: int) -> Probe:
    topic = source = b""
    number = 0
    for tag, start, stop in item_fields(data, position, end):
        if tag == _HAVE:
            topic = data[start:stop]
        elif tag == _WANT:
            source = data[start:stop]
        elif tag == _NUMBER:
            number = read_varint(data, start, stop)[0] & 0xFFFFFFFF
    if len(source) > SOURCE_BYTES:
        raise DecodeError("source-too-long", f"{len(source)} bytes, allowed are {SOURCE_BYTES}")
    return Probe(_read_topic(topic, topic_bytes), source, number)


def _read_past(data: bytes, position: int, end: int, topic_bytes: int) -> Past:
    topic = b""
    told: tuple[bytes, ...] = ()
    for tag, start, stop in item_fields(data, position, end):
        if tag == _HAVE:
            topic = data[start:stop]
        elif tag == _WANT:
            told = _read_items(data, start, stop, _PAST_BYTES, PAST_MAX)
    names = tuple([each[:NAME_BYTES] for each in told])
    ages = tuple([int.from_bytes(each[NAME_BYTES:], "big") * TICK for each in told])
    return Past(_read_topic(topic, topic_bytes), names, ages)


def operations_of(part: TrunkPart) -> tuple[OperationMeta, ...]:
    """What a trace says of the extension's part."""
    return tuple(compress(_OPERATIONS, astuple(part)))


_OPERATIONS: Final = tuple(
    OperationMeta(name)
    for name in ("have", "want", "choke", "unchoke", "probe", "echo", "gossip", "past")
)
"""In the order of the part's fields."""
