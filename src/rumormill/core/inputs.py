"""Everything that can happen to a machine.

A runtime turns sockets, clocks and API calls into these values and calls `Machine.handle` with
them, one at a time. There is no other way in.
"""

from collections.abc import Hashable
from enum import Enum
from typing import TypeAlias

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.messages import WireMessage


class Verdict(Enum):
    """What a validator says of a message."""

    ACCEPT = "accept"
    """Deliver and forward it."""
    IGNORE = "ignore"
    """Neither deliver nor forward it; nobody is to blame."""
    REJECT = "reject"
    """It is invalid: neither deliver nor forward it, and whoever forwarded it pays."""
    DEFER = "defer"
    """Not known yet: a `Validated` input will say."""


class Start(msgspec.Struct, frozen=True):
    """The runtime is ready; the first input of every machine."""


class Subscribe(msgspec.Struct, frozen=True):
    """The application wants a topic.

    With `publish_only` it wants to publish in the topic and to see what it publishes itself, and
    no peer is told of a subscription.
    """

    topic: Topic
    publish_only: bool = False


class Unsubscribe(msgspec.Struct, frozen=True):
    """The application no longer wants a topic."""

    topic: Topic


class Publish(msgspec.Struct, frozen=True):
    """The application publishes data in a topic."""

    topic: Topic
    data: bytes


class PublishBatch(msgspec.Struct, frozen=True):
    """The application publishes several messages that shall spread at the same time."""

    messages: tuple[Publish, ...]


class PeerConnected(msgspec.Struct, frozen=True):
    """A peer can be talked to, over the named protocol.

    `outbound` says that this side dialled. `address` is the peer's network address as far as
    the runtime knows it: machines compare addresses, they do not parse them.
    """

    peer: PeerId
    protocol: str
    outbound: bool = False
    address: str = ""


class PeerDisconnected(msgspec.Struct, frozen=True):
    """A peer is gone; what was sent to it may or may not have arrived."""

    peer: PeerId


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message of the machine's own format arrived from a connected peer."""

    peer: PeerId
    message: WireMessage


class SendDropped(msgspec.Struct, frozen=True):
    """The runtime could not send a message that an earlier `Send` asked for."""

    peer: PeerId
    message: WireMessage
    reason: str


class TimerFired(msgspec.Struct, frozen=True):
    """The time of a `SetTimer` has come; the runtime hands the timer value back."""

    timer: Hashable


class Validated(msgspec.Struct, frozen=True):
    """The answer to a validation that was deferred."""

    message_id: MessageId
    verdict: Verdict


class Found(msgspec.Struct, frozen=True):
    """The answer to a `LookUp`: a value is known."""

    key: bytes
    value: bytes


class NotFound(msgspec.Struct, frozen=True):
    """The answer to a `LookUp`: nobody who was asked knows a value."""

    key: bytes


Input: TypeAlias = (
    Start
    | Subscribe
    | Unsubscribe
    | Publish
    | PublishBatch
    | PeerConnected
    | PeerDisconnected
    | Received
    | SendDropped
    | TimerFired
    | Validated
    | Found
    | NotFound
)
