"""Letters: what subscribers and supervisors write to each other, as values and as bytes.

Every letter names its topic, which is one ring, and travels as `Mail`. A reference is a peer with
the label that it is believed to have, and where it can be reached; the peer that sends a letter is
known to the receiver anyway and is not repeated in it. `Check` and `Introduce` carry the sender's
own label and addresses all the same, because a label is the sender's to tell.

The encoding is a protobuf message with the topic in field 1 and one body, a message of its own, in
the field of its kind (see skipring.proto). A label is encoded as the number x of l(x), plus one,
and left out when there is none.

What decoding lets through is well formed: labels are labels, prefixes and keys have the right
number of bits, hashes have their length, publications have their names. Whether any of it is true
is for the machine to judge.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar, get_type_hints

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId, Topic
from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.overlay.patricia import HASH_BYTES, Prefix, Summary
from rumormill.protocols.skipring import config
from rumormill.protocols.skipring.envelope import PUBLICATION, Publication, named
from rumormill.protocols.skipring.labels import LABEL_BITS, Label, label_of, number_of
from rumormill.wire.fields import Nested, Number, Octets, Text, enumeration
from rumormill.wire.protobuf import bytes_field, field_size, string_field
from rumormill.wire.schema import Layout, Schema


class Flag(IntEnum):
    """What an introduction is for (Algorithm 2)."""

    LIN = 0
    """The sorted list."""
    CYC = 1
    """The edge that closes the ring."""


class Reference(msgspec.Struct, frozen=True, gc=False):
    """A subscriber as another one knows it: (label, v) in the paper."""

    label: Label
    peer: PeerId
    addresses: tuple[bytes, ...] = ()
    """Where it can be reached: binary multiaddrs, in letters only."""


class Want(msgspec.Struct, frozen=True, gc=False):
    """All publications whose keys start with `prefix`, from the first one behind `after`."""

    prefix: Prefix
    after: bytes = b""


@lru_cache(maxsize=4096)
def _label_number(label: Label) -> int:
    """What stands for a label. Each is written many times, hence the memory."""
    return number_of(label) + 1


def _label(number: int, missing: str = "no-label") -> Number:
    return Number(
        number,
        1 << LABEL_BITS,
        too_large="bad-label",
        read=lambda number: label_of(number - 1) if number else None,
        write=_label_number,
        missing=missing,
        optional=not missing,
    )


def _addresses(number: int) -> Octets:
    return Octets(number, config.MAX_ADDRESS, max_count=config.MAX_ADDRESSES)


def _flag(number: int) -> Number:
    return Number(number, read=enumeration(Flag, "bad-flag"))


_REFERENCE: Final = Schema(
    Reference,
    {
        "label": _label(1),
        "peer": Octets(2, config.MAX_PEER, missing="no-peer"),
        "addresses": _addresses(3),
    },
    max_bytes=256 + config.MAX_PEER + config.MAX_ADDRESSES * (config.MAX_ADDRESS + 4),
)


def _subject(number: int) -> Nested:
    return Nested(number, _REFERENCE, missing="no-subject")


_NODE_BYTES: Final = 256
"""A node or want: a prefix of at most 32 bytes, a hash or key of 32, framing, unknown fields."""


def _hash(data: bytes) -> bytes:
    if len(data) != HASH_BYTES:
        raise DecodeError("bad-hash", f"a hash of {len(data)} bytes")
    return data


_NODE: Final = Schema(
    lambda length, bits, value: Summary(Prefix(bits, length), value),
    {
        "label.length": Number(1),
        "label.bits": Octets(2, 32),
        "hash": Octets(3, HASH_BYTES, read=_hash, missing="bad-hash"),
    },
    max_bytes=_NODE_BYTES,
)
_WANT: Final = Schema(
    lambda length, bits, after: Want(Prefix(bits, length), after),
    {"prefix.length": Number(1), "prefix.bits": Octets(2, 32), "after": Octets(3, 32)},
    max_bytes=_NODE_BYTES,
)
_NODES: Final = Nested(1, _NODE, max_count=config.MAX_NODES)
_WANTS: Final = Nested(2, _WANT, max_count=config.MAX_NODES)


MAX_EPOCH: Final = 1 << 32
MAX_SEEN: Final = 1 << 32
"""Rounds, until they are numbered anew, and subscribers that a token counts."""


_SHORT_TAGS: Final = 15
"""Fields with higher numbers have a tag of two bytes."""


class _Traced(msgspec.Struct, kw_only=True, gc=False):
    cached_meta: RpcMeta | None = None


class Letter(_Traced, gc=False):
    """What all letters have in common. The fields of a body are declared where its values are."""

    field: ClassVar[int]
    """The field of the body in the encoded letter."""
    operation: ClassVar[str]
    """What the trace calls it."""
    body: ClassVar[Layout[Any]]
    """What the body consists of."""
    urgent: ClassVar[bool] = True
    """Upkeep of the ring overtakes publications."""

    topic: Topic

    @property
    def carried(self) -> tuple[Publication, ...]:
        """The publications in it."""
        return ()

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this letter."""
        meta = self.cached_meta
        if meta is None:
            carried = self.carried
            meta = self.cached_meta = RpcMeta(
                tuple([MessageMeta(each.id, self.topic) for each in carried]),
                size=field_size(len(self.topic.encode()))
                + field_size(self.body.size(self))
                + (self.field > _SHORT_TAGS),
                data_size=sum([field_size(each.size) for each in carried]),
                operations=(OperationMeta(self.operation, self.topic),),
            )
        return meta


_PART: Final = 256
"""Publications that a runtime has judged in one go: as many as we send."""

LETTERS: Final[list[type[Letter]]] = []
"""All kinds of letters, in the order of their fields."""
LetterT = TypeVar("LetterT", bound=Letter)


def _letter(field: int, operation: str) -> Callable[[type[LetterT]], type[LetterT]]:
    def declare(kind: type[LetterT]) -> type[LetterT]:
        hints = get_type_hints(kind, include_extras=True)
        own = {name: hint for name, hint in hints.items() if hasattr(hint, "__metadata__")}
        kind.field, kind.operation = field, operation
        kind.body = Layout({name: hint.__metadata__[0] for name, hint in own.items()})
        LETTERS.append(kind)
        return kind

    return declare


# To the supervisor.


@_letter(2, "subscribe")
class Subscribe(Letter):
    """The sender asks to be recorded (Algorithm 3, SUBSCRIBE)."""

    addresses: Annotated[tuple[bytes, ...], _addresses(1)] = ()


@_letter(3, "unsubscribe")
class Unsubscribe(Letter):
    """The sender asks to be forgotten (Algorithm 3, UNSUBSCRIBE)."""


@_letter(4, "get-configuration")
class GetConfiguration(Letter):
    """Let the subject, the sender or somebody it knows, be sent its configuration."""

    subject: Annotated[PeerId, Octets(1, config.MAX_PEER, missing="no-subject")]
    addresses: Annotated[tuple[bytes, ...], _addresses(2)] = ()


@_letter(5, "acknowledge")
class Acknowledge(Letter):
    """The sender has received a configuration: it is alive (section 3.3)."""


# From the supervisor.


@_letter(6, "set-data")
class SetData(Letter):
    """A subscriber's configuration: its label and ring neighbours; without a label, none."""

    pred: Annotated[Reference | None, Nested(1, _REFERENCE, optional=True)]
    label: Annotated[Label | None, _label(2, missing="")]
    succ: Annotated[Reference | None, Nested(3, _REFERENCE, optional=True)]


# Between subscribers: the ring (Algorithms 1 and 2).


@_letter(7, "check")
class Check(Letter):
    """The sender introduces itself and says which label it believes the receiver to have."""

    sender: Annotated[Reference, _subject(1)]
    label: Annotated[Label, _label(2)]
    flag: Annotated[Flag, _flag(3)]


@_letter(8, "introduce")
class Introduce(Letter):
    """The receiver may want to know the subject (Algorithm 2, INTRODUCE)."""

    subject: Annotated[Reference, _subject(1)]
    flag: Annotated[Flag, _flag(2)]


@_letter(9, "linearize")
class Linearize(Letter):
    """Put the subject where it belongs in the sorted list (Algorithm 1, LINEARIZE)."""

    subject: Annotated[Reference, _subject(1)]


@_letter(10, "remove-connections")
class RemoveConnections(Letter):
    """The sender is no subscriber: forget it (REMOVECONNECTIONS)."""


# Between subscribers: shortcuts (Algorithm 4).


@_letter(11, "introduce-shortcut")
class IntroduceShortcut(Letter):
    """The subject is the receiver's neighbour in a ring of short labels (INTRODUCESHORTCUT).

    As with `Check`, the sender says which label it believes the receiver to have.
    """

    subject: Annotated[Reference, _subject(1)]
    label: Annotated[Label, _label(2)]


# Between subscribers: publications (Algorithm 5). The paper's messages carry one node or prefix
# each; here all that one letter gives rise to travels in one answer, so that a chain has as many
# letters as the trie has levels, and not as it has nodes.


@_letter(12, "check-trie")
class CheckTrie(Letter):
    """Compare these nodes of the sender's trie with your own (CHECKTRIE)."""

    nodes: Annotated[tuple[Summary, ...], _NODES]


@_letter(13, "check-and-publish")
class CheckAndPublish(Letter):
    """Compare these nodes, and send the publications that the sender lacks (CHECKANDPUBLISH)."""

    nodes: Annotated[tuple[Summary, ...], _NODES]
    wants: Annotated[tuple[Want, ...], _WANTS]


@_letter(14, "publish")
class PublishBundle(Letter):
    """Publications that the receiver asked for (PUBLISH), and what did not fit beside them."""

    urgent = False
    publications: Annotated[
        tuple[Publication, ...], Nested(1, PUBLICATION, max_count=config.MAX_PUBLICATIONS)
    ]
    rest: Annotated[tuple[Want, ...], _WANTS] = ()
    """What the receiver may ask for next in order to get the remainder."""

    @property
    def carried(self) -> tuple[Publication, ...]:
        """Those that were asked for."""
        return self.publications


@_letter(15, "publish-new")
class PublishNew(Letter):
    """A new publication, on its way along all edges (PUBLISHNEW)."""

    urgent = False
    publication: Annotated[Publication, Nested(1, PUBLICATION, missing="no-publication")]

    @property
    def carried(self) -> tuple[Publication, ...]:
        """The new one."""
        return (self.publication,)


# Between subscribers, and from and to the supervisor: supervision by a token.


def _some_label(number: int) -> Label:
    if not number:
        raise DecodeError("bad-label", "no label where there must be one")
    return label_of(number - 1)


@_letter(16, "token")
class Token(Letter):
    """Counts the subscribers and hands out labels that are missing (see `token`)."""

    epoch: Annotated[int, Number(1, MAX_EPOCH)]
    """Which round it is."""
    count: Annotated[int, Number(2, MAX_SEEN)]
    """n, as the supervisor believes."""
    seen: Annotated[int, Number(3, MAX_SEEN)] = 0
    """How many it has counted."""
    first: Annotated[Reference | None, Nested(4, _REFERENCE, optional=True)] = None
    last: Annotated[Reference | None, Nested(5, _REFERENCE, optional=True)] = None
    """Who was counted first, and who has the last label, l(n-1)."""
    before: Annotated[Label | None, _label(6, missing="")] = None
    """The highest label so far that may stay."""
    missing: Annotated[
        tuple[Label, ...],
        Number(
            7,
            1 << LABEL_BITS,
            too_large="bad-label",
            read=_some_label,
            write=_label_number,
            max_count=config.MAX_MISSING,
        ),
    ] = ()
    """Labels that nobody has."""
    quick: Annotated[bool, Number(8, 1, read=bool, write=int)] = False
    """Whether it is passed on at once."""
    changed: Annotated[bool, Number(9, 1, read=bool, write=int)] = False
    """Whether it has given somebody a label."""
    back: Annotated[bool, Number(10, 1, read=bool, write=int)] = False
    """Whether it is for the supervisor."""


PublicationLetter: TypeAlias = CheckTrie | CheckAndPublish | PublishBundle | PublishNew


# As bytes.


def encode_letter(letter: Letter) -> bytes:
    """The bytes of a letter, without the length prefix of the stream."""
    return string_field(1, letter.topic) + bytes_field(letter.field, letter.body.encode(letter))


def decode_letter(data: bytes, key_bits: int = 256) -> Letter:
    """Read a letter; publications get names of `key_bits` bits."""
    letter = _LETTER.decode(data)
    for publication in letter.carried:
        if not publication.author:
            raise DecodeError("no-author", "a publication without its author")
        publication.topic = letter.topic
        named(publication, key_bits)
    if isinstance(letter, CheckTrie | CheckAndPublish):
        for node in letter.nodes:
            _check_prefix(node.label, key_bits)
    if isinstance(letter, CheckAndPublish | PublishBundle):
        for want in letter.wants if isinstance(letter, CheckAndPublish) else letter.rest:
            _check_prefix(want.prefix, key_bits)
            if want.after and not Prefix(want.after, key_bits).well_formed:
                raise DecodeError("bad-key", "a key that has not the right number of bits")
    return letter


def _one_body(topic: Topic, *bodies: Letter | None) -> Letter:
    found = [body for body in bodies if body is not None]
    if len(found) != 1:
        raise DecodeError("not-one-body", f"{len(found)} bodies in one letter")
    found[0].topic = topic
    return found[0]


_BODIES: Final[dict[str, Any]] = {
    kind.operation: Nested(kind.field, Schema(partial(kind, ""), kind.body.fields), optional=True)
    for kind in LETTERS
}
_LETTER: Final = Schema(
    _one_body, {"topic": Text(1, config.MAX_TOPIC), **_BODIES}, max_bytes=config.MAX_MESSAGE
)


def _check_prefix(prefix: Prefix, key_bits: int) -> None:
    if prefix.length > key_bits or not prefix.well_formed:
        raise DecodeError("bad-prefix", "a prefix whose bits do not fit its length")


def parts_of(letter: Letter) -> Sequence[Letter]:
    """A bundle of more publications than we send as several, of which the last says what is left:
    in equal parts, because a bundle of few is flooded on."""
    if not isinstance(letter, PublishBundle) or len(letter.publications) <= _PART:
        return (letter,)
    publications = letter.publications
    count = -(-len(publications) // _PART)
    ends = [len(publications) * place // count for place in range(count + 1)]
    parts = [PublishBundle(letter.topic, publications[start:end]) for start, end in pairwise(ends)]
    parts[-1].rest = letter.rest
    return parts
