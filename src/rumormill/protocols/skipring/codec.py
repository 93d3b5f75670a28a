"""Letters as bytes (see skipring.proto).

What decoding lets through is well formed: labels are labels, prefixes and keys have the right
number of bits, hashes have their length, publications have their names. Whether any of it is true
is for the machine to judge. A letter has one body.
"""

from functools import partial
from typing import Any, Final

from rumormill.core.errors import DecodeError
from rumormill.core.ids import Topic
from rumormill.overlay.patricia import Prefix, Summary
from rumormill.protocols.skipring.config import MAX_MESSAGE, MAX_TOPIC
from rumormill.protocols.skipring.envelope import Publication, named
from rumormill.protocols.skipring.messages import RING_MESSAGES, Letter
from rumormill.protocols.skipring.publication_messages import (
    PUBLICATION_MESSAGES,
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    PublishNew,
    Want,
)
from rumormill.wire.fields import Nested, Text
from rumormill.wire.protobuf import bytes_field, string_field
from rumormill.wire.schema import Schema


def encode_letter(letter: Letter) -> bytes:
    """The bytes of a letter, without the length prefix of the stream."""
    return string_field(1, letter.topic) + bytes_field(letter.field, letter.body.encode(letter))


def decode_letter(data: bytes, key_bits: int = 256) -> Letter:
    """Read a letter; publications get names of `key_bits` bits."""
    letter = _LETTER.decode(data)
    if isinstance(letter, PublishNew):
        _complete(letter.publication, letter.topic, key_bits)
    elif isinstance(letter, PublishBundle):
        for publication in letter.publications:
            _complete(publication, letter.topic, key_bits)
        _check_wants(letter.rest, key_bits)
    elif isinstance(letter, CheckTrie):
        _check_nodes(letter.nodes, key_bits)
    elif isinstance(letter, CheckAndPublish):
        _check_nodes(letter.nodes, key_bits)
        _check_wants(letter.wants, key_bits)
    return letter


def _one_body(topic: Topic, *bodies: Letter | None) -> Letter:
    found = [body for body in bodies if body is not None]
    if len(found) != 1:
        raise DecodeError("not-one-body", f"{len(found)} bodies in one letter")
    found[0].topic = topic  # type: ignore[misc]  # a subclass has the slot
    return found[0]


_BODIES: Final[dict[str, Any]] = {
    kind.operation: Nested(kind.field, Schema(partial(kind, ""), kind.body.fields), optional=True)
    for kind in (*RING_MESSAGES, *PUBLICATION_MESSAGES)
}
_LETTER: Final = Schema(_one_body, {"topic": Text(1, MAX_TOPIC), **_BODIES}, max_bytes=MAX_MESSAGE)


def _complete(publication: Publication, topic: Topic, key_bits: int) -> None:
    if not publication.author:
        raise DecodeError("no-author", "a publication without its author")
    publication.topic = topic
    named(publication, key_bits)


def _check_prefix(prefix: Prefix, key_bits: int) -> None:
    if prefix.length > key_bits or not prefix.well_formed:
        raise DecodeError("bad-prefix", "a prefix whose bits do not fit its length")


def _check_nodes(nodes: tuple[Summary, ...], key_bits: int) -> None:
    for node in nodes:
        _check_prefix(node.label, key_bits)


def _check_wants(wants: tuple[Want, ...], key_bits: int) -> None:
    for want in wants:
        _check_prefix(want.prefix, key_bits)
        if want.after and not Prefix(want.after, key_bits).well_formed:
            raise DecodeError("bad-key", "a key that has not the right number of bits")
