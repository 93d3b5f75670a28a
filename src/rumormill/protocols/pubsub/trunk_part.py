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
_HAVE, _WANT, _CHOKE, _UNCHOKE, _OPEN, _PROBE = (number << 3 | 2 for number in range(1, 7))
_NUMBER: Final = 3 << 3
_ECHO: Final = 7 << 3
_GOSSIP: Final = 8 << 3 | 2
CALL: Final = 1
ANSWER: Final = 2
"""What an echo says."""

NAMES_MAX: Final = 5000
"""Names of each kind in an RPC, as many as ids in an IHAVE of go's."""
TAGS_MAX: Final = 4096
"""Tags in one list of an RPC: our choice, the sources of a whole topic."""
TOPICS_MAX: Final = 1000
"""Topics that are opened, and probes, in one RPC; our choice, as for GRAFT."""
_LIST_MOST: Final = {_WANT: NAMES_MAX, _CHOKE: TAGS_MAX, _UNCHOKE: TAGS_MAX, _GOSSIP: NAMES_MAX}
"""Items of the lists that are there once; all of them take four bytes."""
SOURCE_BYTES: Final = 128
"""A peer id at most; our choice: an identity multihash of a key takes 38, a hash of one 34."""


class Probe(msgspec.Struct, frozen=True, gc=False):
    """A message without content: it only shows the way from a source."""

    topic: Topic
    source: PeerId
    number: int


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
    opened: tuple[Topic, ...] = ()
    """Topics of which it wants the messages of every source."""
    probes: tuple[Probe, ...] = ()
    echo: int = 0
    """`CALL` asks for an `ANSWER`, at once: so the sender learns how long one takes."""
    gossip: tuple[bytes, ...] = ()
    """Keys of messages that the sender has had for a while."""


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
    for topic in part.opened:
        size += field_size(len(topic.encode()))
    for probe in part.probes:
        size += field_size(_probe_size(probe))
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


def _probe_size(probe: Probe) -> int:
    texts = field_size(len(probe.topic.encode())) + field_size(len(probe.source))
    return texts + 1 + varint_size(probe.number)


def encode_part(part: TrunkPart) -> bytes:
    """The bytes of the field in an RPC."""
    parts = [bytes_field(1, group) for group in _grouped(part.have)]
    for number, items in enumerate((part.want, part.choke, part.unchoke), 2):
        if items:
            parts.append(bytes_field(number, b"".join(items)))
    parts += [string_field(5, topic) for topic in part.opened]
    for probe in part.probes:
        texts = string_field(1, probe.topic) + bytes_field(2, probe.source)
        parts.append(bytes_field(6, texts + varint_field(3, probe.number)))
    if part.echo:
        parts.append(varint_field(7, part.echo))
    if part.gossip:
        parts.append(bytes_field(8, b"".join(part.gossip)))
    inner = b"".join(parts)
    return b"".join((FIELD, varint(len(inner)), inner))


def read_part(data: bytes, position: int, end: int, topic_bytes: int) -> TrunkPart:
    """Read the extension's field; it is refused as a whole if anything in it is too long."""
    lists: dict[int, tuple[bytes, ...]] = {}
    have: list[bytes] = []
    opened: list[Topic] = []
    probes: list[Probe] = []
    echo = 0
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
        elif len(opened) + len(probes) >= TOPICS_MAX:
            raise DecodeError("too-many-fields", f"more than {TOPICS_MAX} in the extension")
        elif tag == _OPEN:
            opened.append(_read_topic(data[start:position], topic_bytes))
        elif tag == _PROBE:
            probes.append(_read_probe(data, start, position, topic_bytes))
        elif tag == _ECHO:
            echo = read_varint(data, start, position)[0] & 3
        else:
            opened.append("")  # counts what is unknown, and names nothing
    want, choke, unchoke, gossip = (lists.get(tag, ()) for tag in _LIST_MOST)
    named = tuple(topic for topic in opened if topic)
    return TrunkPart(tuple(have), want, choke, unchoke, named, tuple(probes), echo, gossip)


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


def operations_of(part: TrunkPart) -> tuple[OperationMeta, ...]:
    """What a trace says of the extension's part."""
    return tuple(compress(_OPERATIONS, astuple(part)))


_OPERATIONS: Final = tuple(
    OperationMeta(name)
    for name in ("have", "want", "choke", "unchoke", "open", "probe", "echo", "gossip")
)
"""In the order of the part's fields."""
