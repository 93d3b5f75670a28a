"""Letters as bytes: encoding, and decoding within the limits of `limits` (see skipring.proto).

The rule: no object is built that a limit has not allowed; counts are checked before an item is
read and lengths before a value is sliced. Whatever is wrong with the bytes, the answer is a
`DecodeError`. What decoding lets through is well formed: labels are labels, prefixes and keys have
the right number of bits, hashes have their length, publications have their names. Whether any of
it is true is for the machine to judge. A letter has one body; a field that comes more often than
it may is refused even where protobuf would keep the last one, and unknown fields are skipped.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from rumormill.core.errors import DecodeError
from rumormill.core.ids import Topic
from rumormill.overlay.patricia import HASH_BYTES, Prefix, Summary
from rumormill.protocols.skipring import envelope, messages
from rumormill.protocols.skipring.config import (
    MAX_ADDRESS,
    MAX_ADDRESSES,
    MAX_DATA,
    MAX_KEY,
    MAX_MESSAGE,
    MAX_NODES,
    MAX_PEER,
    MAX_PUBLICATIONS,
    MAX_SIGNATURE,
    MAX_TOPIC,
)
from rumormill.protocols.skipring.envelope import Publication, named
from rumormill.protocols.skipring.labels import LABEL_BITS, Label, label_of, number_of
from rumormill.protocols.skipring.messages import Flag, Letter, Reference
from rumormill.protocols.skipring.publication_messages import (
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    PublishNew,
    Want,
)
from rumormill.wire import schema
from rumormill.wire.protobuf import (
    bytes_field,
    next_field,
    read_varint,
    string_field,
    varint_field,
)

Item = TypeVar("Item")

# Encoding.


def encode_letter(letter: Letter) -> bytes:
    """The bytes of a letter, without the length prefix of the stream."""
    body = _ENCODERS[type(letter)](letter)
    return string_field(1, letter.topic) + bytes_field(letter.field, body)


def _label(field: int, label: Label | None) -> bytes:
    return b"" if label is None else varint_field(field, number_of(label) + 1)


def _octets(field: int, values: tuple[bytes, ...]) -> bytes:
    return b"".join([bytes_field(field, value) for value in values])


def _reference(field: int, reference: Reference | None) -> bytes:
    if reference is None:
        return b""
    inner = _label(1, reference.label) + bytes_field(2, reference.peer)
    return bytes_field(field, inner + _octets(3, reference.addresses))


def _flag(field: int, flag: Flag) -> bytes:
    return varint_field(field, flag) if flag else b""


def _prefix(prefix: Prefix) -> bytes:
    if not prefix.length:
        return b""
    return varint_field(1, prefix.length) + bytes_field(2, prefix.bits)


def _nodes(field: int, nodes: tuple[Summary, ...]) -> bytes:
    return b"".join(
        [bytes_field(field, _prefix(node.label) + bytes_field(3, node.hash)) for node in nodes]
    )


def _wants(field: int, wants: tuple[Want, ...]) -> bytes:
    return b"".join(
        [
            bytes_field(
                field, _prefix(want.prefix) + (bytes_field(3, want.after) if want.after else b"")
            )
            for want in wants
        ]
    )


def _publication(publication: Publication) -> bytes:
    parts = []
    for number, value in (
        (envelope.AUTHOR, publication.author),
        (envelope.DATA, publication.data),
    ):
        if value:
            parts.append(bytes_field(number, value))
    if publication.seqno:
        parts.append(varint_field(envelope.SEQNO, publication.seqno))
    for number, value in (
        (envelope.SIGNATURE, publication.signature),
        (envelope.KEY, publication.key),
    ):
        if value:
            parts.append(bytes_field(number, value))
    if publication.created:
        parts.append(varint_field(envelope.CREATED, publication.created))
    return b"".join(parts)


def _bundle(letter: PublishBundle) -> bytes:
    carried = [bytes_field(1, _publication(each)) for each in letter.publications]
    return b"".join(carried) + _wants(2, letter.rest)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    messages.Subscribe: lambda letter: _octets(1, letter.addresses),
    messages.Unsubscribe: lambda _: b"",
    messages.GetConfiguration: lambda letter: (
        bytes_field(1, letter.subject) + _octets(2, letter.addresses)
    ),
    messages.Acknowledge: lambda _: b"",
    messages.SetData: lambda letter: (
        _reference(1, letter.pred) + _label(2, letter.label) + _reference(3, letter.succ)
    ),
    messages.Check: lambda letter: (
        _reference(1, letter.sender) + _label(2, letter.label) + _flag(3, letter.flag)
    ),
    messages.Introduce: lambda letter: _reference(1, letter.subject) + _flag(2, letter.flag),
    messages.Linearize: lambda letter: _reference(1, letter.subject),
    messages.RemoveConnections: lambda _: b"",
    messages.IntroduceShortcut: lambda letter: (
        _reference(1, letter.subject) + _label(2, letter.label)
    ),
    CheckTrie: lambda letter: _nodes(1, letter.nodes),
    CheckAndPublish: lambda letter: _nodes(1, letter.nodes) + _wants(2, letter.wants),
    PublishBundle: _bundle,
    PublishNew: lambda letter: bytes_field(1, _publication(letter.publication)),
}

# Decoding.

_NODE_BYTES: Final = 256
"""A node or want: a prefix of at most 32 bytes, a hash or key of 32, framing, unknown fields."""
_REFERENCE_BYTES: Final = 256 + MAX_PEER + MAX_ADDRESSES * (MAX_ADDRESS + 4)
_PUBLICATION_BYTES: Final = 256 + MAX_DATA + MAX_PEER + MAX_SIGNATURE + MAX_KEY

_LETTER: schema.Schema = {
    1: schema.Text(MAX_TOPIC),
    **{field: schema.Octets(MAX_MESSAGE) for field in range(2, 16)},
}
_REFERENCE: schema.Schema = {
    1: schema.Number(),
    2: schema.Octets(MAX_PEER),
    3: schema.Octets(MAX_ADDRESS, MAX_ADDRESSES),
}
_NODE: schema.Schema = {1: schema.Number(), 2: schema.Octets(32), 3: schema.Octets(HASH_BYTES)}
_WANT: schema.Schema = {1: schema.Number(), 2: schema.Octets(32), 3: schema.Octets(32)}
_PUBLICATION: schema.Schema = {
    envelope.AUTHOR: schema.Octets(MAX_PEER),
    envelope.DATA: schema.Octets(MAX_DATA),
    envelope.SEQNO: schema.Number(),
    envelope.SIGNATURE: schema.Octets(MAX_SIGNATURE),
    envelope.KEY: schema.Octets(MAX_KEY),
    envelope.CREATED: schema.Number(),
}
_NOTHING: schema.Schema = {}
_ADDRESSES: schema.Schema = {1: schema.Octets(MAX_ADDRESS, MAX_ADDRESSES)}
_SUBJECT_AND_ADDRESSES: schema.Schema = {
    1: schema.Octets(MAX_PEER),
    2: schema.Octets(MAX_ADDRESS, MAX_ADDRESSES),
}
_CONFIGURATION: schema.Schema = {
    1: schema.Octets(_REFERENCE_BYTES),
    2: schema.Number(),
    3: schema.Octets(_REFERENCE_BYTES),
}
_CHECK: schema.Schema = {
    1: schema.Octets(_REFERENCE_BYTES),
    2: schema.Number(),
    3: schema.Number(),
}
_INTRODUCTION: schema.Schema = {1: schema.Octets(_REFERENCE_BYTES), 2: schema.Number()}
_SUBJECT: schema.Schema = {1: schema.Octets(_REFERENCE_BYTES)}
_NODES: schema.Schema = {1: schema.Octets(_NODE_BYTES, MAX_NODES)}
_NODES_AND_WANTS: schema.Schema = {
    1: schema.Octets(_NODE_BYTES, MAX_NODES),
    2: schema.Octets(_NODE_BYTES, MAX_NODES),
}
_BUNDLE: schema.Schema = {
    1: schema.Octets(_PUBLICATION_BYTES, MAX_PUBLICATIONS),
    2: schema.Octets(_NODE_BYTES, MAX_NODES),
}
_NEW: schema.Schema = {1: schema.Octets(_PUBLICATION_BYTES)}


_TOPIC_TAG, _NEW_TAG = 0x0A, 0x7A
_AUTHOR_TAG, _DATA_TAG, _SIGNATURE_TAG, _KEY_TAG = 0x0A, 0x12, 0x2A, 0x32
_SEQNO_TAG, _CREATED_TAG = 0x18, 0x38


def decode_letter(data: bytes, key_bits: int = 256) -> Letter:
    """Read a letter; publications get names of `key_bits` bits."""
    return _quick_new(data, key_bits) or _decode_any(data, key_bits)


def _quick_new(data: bytes, key_bits: int) -> PublishNew | None:
    """Read a new publication that is encoded as we do it; None for everything else.

    Floods are most of the traffic, and each copy must be read before it is known to be one.
    """
    end = len(data)
    try:
        tag, start, stop = next_field(data, 0, end)
        if tag != _TOPIC_TAG or stop - start > MAX_TOPIC or end > MAX_MESSAGE:
            return None
        topic = data[start:stop].decode()
        tag, start, stop = next_field(data, stop, end)
        if tag != _NEW_TAG or stop != end:
            return None
        tag, start, stop = next_field(data, start, end)
        if tag != _AUTHOR_TAG or stop != end:
            return None
        publication = _quick_publication(topic, data, start, end)
    except (DecodeError, UnicodeDecodeError):
        return None
    return None if publication is None else PublishNew(topic, named(publication, key_bits))


def _quick_publication(topic: Topic, data: bytes, position: int, end: int) -> Publication | None:
    """Read a publication whose fields come once each, in their order, and none besides."""
    author = content = signature = key = b""
    seqno = created = last = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag <= last:
            return None
        last = tag
        if tag == _AUTHOR_TAG:
            author = data[start:position]
        elif tag == _DATA_TAG:
            if position - start > MAX_DATA:
                return None
            content = data[start:position]
        elif tag == _SEQNO_TAG:
            seqno = read_varint(data, start, position)[0]
        elif tag == _SIGNATURE_TAG:
            signature = data[start:position]
        elif tag == _KEY_TAG:
            key = data[start:position]
        elif tag == _CREATED_TAG:
            created = read_varint(data, start, position)[0]
        else:
            return None
    if not 0 < len(author) <= MAX_PEER or len(signature) > MAX_SIGNATURE or len(key) > MAX_KEY:
        return None
    return Publication(topic, author, seqno, content, created, signature, key)


def _decode_any(data: bytes, key_bits: int) -> Letter:
    outer = schema.read(data, _LETTER, max_bytes=MAX_MESSAGE)
    bodies = [field for field in range(2, 16) if outer.octets(field) is not None]
    if len(bodies) != 1:
        raise DecodeError("not-one-body", f"{len(bodies)} bodies in one letter")
    body_schema, decoder = _DECODERS[bodies[0]]
    body = schema.read(outer.octets(bodies[0]) or b"", body_schema, max_bytes=MAX_MESSAGE)
    return decoder(outer.text(1) or "", body, key_bits)


def _required(value: Item | None, what: str) -> Item:
    if not value:
        raise DecodeError(f"no-{what}", f"a letter without its {what}")
    return value


def _read_label(number: int | None) -> Label | None:
    if not number:
        return None
    if number > 1 << LABEL_BITS:
        raise DecodeError("bad-label", f"no label has the number {number - 1}")
    return label_of(number - 1)


def _required_label(number: int | None) -> Label:
    label = _read_label(number)
    if label is None:
        raise DecodeError("no-label", "a letter without its label")
    return label


def _read_reference(data: bytes | None) -> Reference | None:
    if data is None:
        return None
    fields = schema.read(data, _REFERENCE, max_bytes=_REFERENCE_BYTES)
    peer = _required(fields.octets(2), "peer")
    return Reference(_required_label(fields.number(1)), peer, fields.all_octets(3))


def _subject(body: schema.Message) -> Reference:
    return _required(_read_reference(body.octets(1)), "subject")


def _read_flag(number: int | None) -> Flag:
    if number not in {None, Flag.LIN, Flag.CYC}:
        raise DecodeError("bad-flag", f"no introduction has the flag {number}")
    return Flag(number or 0)


def _read_prefix(fields: schema.Message, key_bits: int) -> Prefix:
    prefix = Prefix(fields.octets(2) or b"", fields.number(1) or 0)
    if prefix.length > key_bits or not prefix.well_formed:
        raise DecodeError("bad-prefix", "a prefix whose bits do not fit its length")
    return prefix


def _read_nodes(body: schema.Message, key_bits: int) -> tuple[Summary, ...]:
    nodes = []
    for data in body.all_octets(1):
        fields = schema.read(data, _NODE, max_bytes=_NODE_BYTES)
        value = fields.octets(3) or b""
        if len(value) != HASH_BYTES:
            raise DecodeError("bad-hash", f"a hash of {len(value)} bytes")
        nodes.append(Summary(_read_prefix(fields, key_bits), value))
    return tuple(nodes)


def _read_wants(body: schema.Message, key_bits: int) -> tuple[Want, ...]:
    wants = []
    for data in body.all_octets(2):
        fields = schema.read(data, _WANT, max_bytes=_NODE_BYTES)
        after = fields.octets(3) or b""
        if after and not Prefix(after, key_bits).well_formed:
            raise DecodeError("bad-key", "a key that has not the right number of bits")
        wants.append(Want(_read_prefix(fields, key_bits), after))
    return tuple(wants)


def _read_publication(topic: Topic, data: bytes, key_bits: int) -> Publication:
    fields = schema.read(data, _PUBLICATION, max_bytes=_PUBLICATION_BYTES)
    publication = Publication(
        topic,
        _required(fields.octets(envelope.AUTHOR), "author"),
        fields.number(envelope.SEQNO) or 0,
        fields.octets(envelope.DATA) or b"",
        fields.number(envelope.CREATED) or 0,
        fields.octets(envelope.SIGNATURE) or b"",
        fields.octets(envelope.KEY) or b"",
    )
    return named(publication, key_bits)


def _read_bundle(topic: Topic, body: schema.Message, key_bits: int) -> Letter:
    carried = [_read_publication(topic, data, key_bits) for data in body.all_octets(1)]
    return PublishBundle(topic, tuple(carried), _read_wants(body, key_bits))


_Decoder = Callable[[Topic, schema.Message, int], Letter]

_DECODERS: dict[int, tuple[schema.Schema, _Decoder]] = {
    2: (_ADDRESSES, lambda topic, body, _: messages.Subscribe(topic, body.all_octets(1))),
    3: (_NOTHING, lambda topic, *_: messages.Unsubscribe(topic)),
    4: (
        _SUBJECT_AND_ADDRESSES,
        lambda topic, body, _: messages.GetConfiguration(
            topic, _required(body.octets(1), "subject"), body.all_octets(2)
        ),
    ),
    5: (_NOTHING, lambda topic, *_: messages.Acknowledge(topic)),
    6: (
        _CONFIGURATION,
        lambda topic, body, _: messages.SetData(
            topic,
            _read_reference(body.octets(1)),
            _read_label(body.number(2)),
            _read_reference(body.octets(3)),
        ),
    ),
    7: (
        _CHECK,
        lambda topic, body, _: messages.Check(
            topic, _subject(body), _required_label(body.number(2)), _read_flag(body.number(3))
        ),
    ),
    8: (
        _INTRODUCTION,
        lambda topic, body, _: messages.Introduce(
            topic, _subject(body), _read_flag(body.number(2))
        ),
    ),
    9: (_SUBJECT, lambda topic, body, _: messages.Linearize(topic, _subject(body))),
    10: (_NOTHING, lambda topic, *_: messages.RemoveConnections(topic)),
    11: (
        _INTRODUCTION,
        lambda topic, body, _: messages.IntroduceShortcut(
            topic, _subject(body), _required_label(body.number(2))
        ),
    ),
    12: (_NODES, lambda topic, body, bits: CheckTrie(topic, _read_nodes(body, bits))),
    13: (
        _NODES_AND_WANTS,
        lambda topic, body, bits: CheckAndPublish(
            topic, _read_nodes(body, bits), _read_wants(body, bits)
        ),
    ),
    14: (_BUNDLE, _read_bundle),
    15: (
        _NEW,
        lambda topic, body, bits: PublishNew(
            topic, _read_publication(topic, _required(body.octets(1), "publication"), bits)
        ),
    ),
}
