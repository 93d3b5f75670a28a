"""What subscribers and supervisors write to each other, as values.

Every message names its topic, which is one ring, and is carried as a letter (`Mail`). A reference
is a peer with the label that it is believed to have, and where it can be reached; the peer that
sends a message is known to the receiver anyway and is not repeated in it. `Check` and `Introduce`
carry the sender's own label and addresses all the same, because a label is the sender's to tell.

The encoding is a protobuf message with the topic in field 1 and the body, a message of its own, in
the field that `field` names (see skipring.proto). A label is encoded as the number x of l(x), plus
one, and left out when there is none.
"""

from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.core.trace import OperationMeta, RpcMeta
from rumormill.protocols.skipring.config import MAX_ADDRESS, MAX_ADDRESSES, MAX_PEER
from rumormill.protocols.skipring.labels import LABEL_BITS, Label, label_of, number_of
from rumormill.wire.fields import Nested, Number, Octets, enumeration
from rumormill.wire.protobuf import field_size
from rumormill.wire.schema import Layout, Schema

_REFERENCE_BYTES: Final = 256 + MAX_PEER + MAX_ADDRESSES * (MAX_ADDRESS + 4)


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
    """Where it can be reached: binary multiaddrs, in messages only."""


def _read_label(number: int) -> Label | None:
    return label_of(number - 1) if number else None


@lru_cache(maxsize=4096)
def _label_number(label: Label) -> int:
    """What stands for a label. Each is written many times, hence the memory."""
    return number_of(label) + 1


def _label(number: int, missing: str = "no-label") -> Number:
    return Number(
        number,
        1 << LABEL_BITS,
        too_large="bad-label",
        read=_read_label,
        write=_label_number,
        missing=missing,
        optional=not missing,
    )


def _addresses(number: int) -> Octets:
    return Octets(number, MAX_ADDRESS, max_count=MAX_ADDRESSES)


def _flag(number: int) -> Number:
    return Number(number, read=enumeration(Flag, "bad-flag"))


_REFERENCE: Final = Schema(
    Reference,
    {
        "label": _label(1),
        "peer": Octets(2, MAX_PEER, missing="no-peer"),
        "addresses": _addresses(3),
    },
    max_bytes=_REFERENCE_BYTES,
)


def _subject(number: int) -> Nested:
    return Nested(number, _REFERENCE, missing="no-subject")


Body: TypeAlias = Layout[Any]


class Letter:
    """What all messages have in common."""

    __slots__ = ()

    field: ClassVar[int]
    """The field of the body in the encoded message."""
    operation: ClassVar[str]
    """What the trace calls it."""
    body: ClassVar[Body] = Layout({})
    """What the body consists of."""

    topic: Topic
    cached_meta: RpcMeta | None

    def framed(self, body_size: int) -> int:
        """Bytes of the encoded message with a body of so many."""
        return field_size(len(self.topic.encode())) + field_size(body_size)

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            operations = (OperationMeta(self.operation, self.topic),)
            meta = RpcMeta(size=self.framed(self.body.size(self)), operations=operations)
            self.cached_meta = meta  # type: ignore[misc]  # a subclass has the slot
        return meta

    @property
    def urgent(self) -> bool:
        """Upkeep of the ring overtakes publications."""
        return True


# To the supervisor.


class Subscribe(Letter, msgspec.Struct, gc=False):
    """The sender asks to be recorded (Algorithm 3, SUBSCRIBE)."""

    field: ClassVar[int] = 2
    operation: ClassVar[str] = "subscribe"
    body: ClassVar[Body] = Layout({"addresses": _addresses(1)})
    topic: Topic
    addresses: tuple[bytes, ...] = ()
    cached_meta: RpcMeta | None = None


class Unsubscribe(Letter, msgspec.Struct, gc=False):
    """The sender asks to be forgotten (Algorithm 3, UNSUBSCRIBE)."""

    field: ClassVar[int] = 3
    operation: ClassVar[str] = "unsubscribe"
    topic: Topic
    cached_meta: RpcMeta | None = None


class GetConfiguration(Letter, msgspec.Struct, gc=False):
    """Let the subject, the sender or somebody it knows, be sent its configuration."""

    field: ClassVar[int] = 4
    operation: ClassVar[str] = "get-configuration"
    body: ClassVar[Body] = Layout(
        {"subject": Octets(1, MAX_PEER, missing="no-subject"), "addresses": _addresses(2)}
    )
    topic: Topic
    subject: PeerId
    addresses: tuple[bytes, ...] = ()
    cached_meta: RpcMeta | None = None


class Acknowledge(Letter, msgspec.Struct, gc=False):
    """The sender has received a configuration: it is alive (section 3.3)."""

    field: ClassVar[int] = 5
    operation: ClassVar[str] = "acknowledge"
    topic: Topic
    cached_meta: RpcMeta | None = None


# From the supervisor.


class SetData(Letter, msgspec.Struct, gc=False):
    """A subscriber's configuration: its label and ring neighbours; without a label, none."""

    field: ClassVar[int] = 6
    operation: ClassVar[str] = "set-data"
    body: ClassVar[Body] = Layout(
        {
            "pred": Nested(1, _REFERENCE, optional=True),
            "label": _label(2, missing=""),
            "succ": Nested(3, _REFERENCE, optional=True),
        }
    )
    topic: Topic
    pred: Reference | None
    label: Label | None
    succ: Reference | None
    cached_meta: RpcMeta | None = None


# Between subscribers: the ring (Algorithms 1 and 2).


class Check(Letter, msgspec.Struct, gc=False):
    """The sender introduces itself and says which label it believes the receiver to have."""

    field: ClassVar[int] = 7
    operation: ClassVar[str] = "check"
    body: ClassVar[Body] = Layout({"sender": _subject(1), "label": _label(2), "flag": _flag(3)})
    topic: Topic
    sender: Reference
    label: Label
    flag: Flag
    cached_meta: RpcMeta | None = None


class Introduce(Letter, msgspec.Struct, gc=False):
    """The receiver may want to know the subject (Algorithm 2, INTRODUCE)."""

    field: ClassVar[int] = 8
    operation: ClassVar[str] = "introduce"
    body: ClassVar[Body] = Layout({"subject": _subject(1), "flag": _flag(2)})
    topic: Topic
    subject: Reference
    flag: Flag
    cached_meta: RpcMeta | None = None


class Linearize(Letter, msgspec.Struct, gc=False):
    """Put the subject where it belongs in the sorted list (Algorithm 1, LINEARIZE)."""

    field: ClassVar[int] = 9
    operation: ClassVar[str] = "linearize"
    body: ClassVar[Body] = Layout({"subject": _subject(1)})
    topic: Topic
    subject: Reference
    cached_meta: RpcMeta | None = None


class RemoveConnections(Letter, msgspec.Struct, gc=False):
    """The sender is no subscriber: forget it (REMOVECONNECTIONS)."""

    field: ClassVar[int] = 10
    operation: ClassVar[str] = "remove-connections"
    topic: Topic
    cached_meta: RpcMeta | None = None


# Between subscribers: shortcuts (Algorithm 4).


class IntroduceShortcut(Letter, msgspec.Struct, gc=False):
    """The subject is the receiver's neighbour in a ring of short labels (INTRODUCESHORTCUT).

    As with `Check`, the sender says which label it believes the receiver to have.
    """

    field: ClassVar[int] = 11
    operation: ClassVar[str] = "introduce-shortcut"
    body: ClassVar[Body] = Layout({"subject": _subject(1), "label": _label(2)})
    topic: Topic
    subject: Reference
    label: Label
    cached_meta: RpcMeta | None = None


RingMessage: TypeAlias = (
    Subscribe
    | Unsubscribe
    | GetConfiguration
    | Acknowledge
    | SetData
    | Check
    | Introduce
    | Linearize
    | RemoveConnections
    | IntroduceShortcut
)

RING_MESSAGES: tuple[type[RingMessage], ...] = (
    Subscribe,
    Unsubscribe,
    GetConfiguration,
    Acknowledge,
    SetData,
    Check,
    Introduce,
    Linearize,
    RemoveConnections,
    IntroduceShortcut,
)
