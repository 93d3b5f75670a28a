"""What subscribers and supervisors write to each other, as values.

Every message names its topic, which is one ring, and is carried as a letter (`Mail`). A reference
is a peer with the label that it is believed to have, and where it can be reached; the peer that
sends a message is known to the receiver anyway and is not repeated in it. `Check` and `Introduce`
carry the sender's own label and addresses all the same, because a label is the sender's to tell.

The encoding is a protobuf message with the topic in field 1 and the body, a message of its own, in
the field that `field` names (see skipring.proto). A body's fields are numbered in the order in
which they stand here. A label is encoded as the number x of l(x), plus one, and left out when there
is none. Sizes are computed here, so that a simulated message need not be encoded.
"""

from enum import IntEnum
from typing import ClassVar, TypeAlias

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.core.trace import OperationMeta, RpcMeta
from rumormill.protocols.skipring.labels import Label, number_of
from rumormill.wire.protobuf import field_size, varint_size


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

    @property
    def size(self) -> int:
        """Bytes of the encoded reference: label = 1, peer = 2, addresses = 3."""
        size = label_size(self.label) + field_size(len(self.peer))
        return size + addresses_size(self.addresses) if self.addresses else size


def label_size(label: Label | None) -> int:
    """Bytes of a label in a body or reference."""
    return 0 if label is None else 1 + varint_size(number_of(label) + 1)


def addresses_size(addresses: tuple[bytes, ...]) -> int:
    """Bytes of a list of addresses in a body or reference."""
    return sum([field_size(len(address)) for address in addresses])


class Letter:
    """What all messages have in common."""

    __slots__ = ()

    field: ClassVar[int]
    """The field of the body in the encoded message."""
    operation: ClassVar[str]
    """What the trace calls it."""

    topic: Topic
    cached_meta: RpcMeta | None

    @property
    def body_size(self) -> int:
        """Bytes of the encoded body, without the tag and length that frame it."""
        return 0

    @property
    def size(self) -> int:
        """Bytes of the encoded message."""
        return field_size(len(self.topic.encode())) + field_size(self.body_size)

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            operations = (OperationMeta(self.operation, self.topic),)
            meta = RpcMeta(size=self.size, operations=operations)
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
    topic: Topic
    addresses: tuple[bytes, ...] = ()
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Field 1: addresses."""
        return addresses_size(self.addresses)


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
    topic: Topic
    subject: PeerId
    addresses: tuple[bytes, ...] = ()
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1 and 2: subject, addresses."""
        return field_size(len(self.subject)) + addresses_size(self.addresses)


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
    topic: Topic
    pred: Reference | None
    label: Label | None
    succ: Reference | None
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1, 2 and 3: pred, label, succ."""
        size = label_size(self.label)
        if self.pred is not None:
            size += field_size(self.pred.size)
        if self.succ is not None:
            size += field_size(self.succ.size)
        return size


# Between subscribers: the ring (Algorithms 1 and 2).


class Check(Letter, msgspec.Struct, gc=False):
    """The sender introduces itself and says which label it believes the receiver to have."""

    field: ClassVar[int] = 7
    operation: ClassVar[str] = "check"
    topic: Topic
    sender: Reference
    label: Label
    flag: Flag
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1, 2 and 3: sender, label, flag (left out when LIN)."""
        flag = 2 if self.flag else 0
        return field_size(self.sender.size) + label_size(self.label) + flag


class Introduce(Letter, msgspec.Struct, gc=False):
    """The receiver may want to know the subject (Algorithm 2, INTRODUCE)."""

    field: ClassVar[int] = 8
    operation: ClassVar[str] = "introduce"
    topic: Topic
    subject: Reference
    flag: Flag
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1 and 2: subject, flag (left out when LIN)."""
        return field_size(self.subject.size) + (2 if self.flag else 0)


class Linearize(Letter, msgspec.Struct, gc=False):
    """Put the subject where it belongs in the sorted list (Algorithm 1, LINEARIZE)."""

    field: ClassVar[int] = 9
    operation: ClassVar[str] = "linearize"
    topic: Topic
    subject: Reference
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Field 1: subject."""
        return field_size(self.subject.size)


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
    topic: Topic
    subject: Reference
    label: Label
    cached_meta: RpcMeta | None = None

    @property
    def body_size(self) -> int:
        """Fields 1 and 2: subject, label."""
        return field_size(self.subject.size) + label_size(self.label)


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
