"""Everything that a machine can ask of its runtime.

A machine appends effects to a list in the order in which they must happen: an effect that makes
something durable stands before the one that tells others of it. Trace payloads (`core.trace`) are
effects too: the runtime stamps them with the peer and the time.
"""

from collections.abc import Hashable
from typing import TypeAlias

import msgspec

from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.messages import WireMessage
from rumormill.core.trace import TracePayload


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a connected peer."""

    peer: PeerId
    message: WireMessage


class SendAll(msgspec.Struct, frozen=True, gc=False):
    """Send one message to several connected peers, in this order.

    It means as many `Send`s, and costs a runtime less: what depends on the message alone, such as
    encoding it, is done once.
    """

    peers: tuple[PeerId, ...]
    message: WireMessage


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand an event to the application's subscribers."""

    event: Event
    received_from: PeerId


class Published(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a `Publish`: what the event became and how many peers it was sent to.

    `note` says why when nobody was reached.
    """

    event: Event
    peers: int
    note: str = ""


class Keep(msgspec.Struct, frozen=True, gc=False):
    """Store an event that this peer relays or archives without delivering it."""

    event: Event


class Validate(msgspec.Struct, frozen=True, gc=False):
    """Ask the application for its verdict; `Validated` brings it back."""

    event: Event
    received_from: PeerId


class SetTimer(msgspec.Struct, frozen=True):
    """Fire `timer` at time `at`. Setting a timer that is set moves it."""

    timer: Hashable
    at: float


class CancelTimer(msgspec.Struct, frozen=True):
    """Forget a timer; one that is not set is ignored."""

    timer: Hashable


class Connect(msgspec.Struct, frozen=True):
    """Try to connect to a peer; `record` is its signed peer record where one is known."""

    peer: PeerId
    record: bytes = b""


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connection to a peer."""

    peer: PeerId
    reason: str


class LookUp(msgspec.Struct, frozen=True):
    """Find the value of a key; `Found` or `NotFound` answers."""

    key: bytes


Effect: TypeAlias = (
    Send
    | SendAll
    | Deliver
    | Published
    | Keep
    | Validate
    | SetTimer
    | CancelTimer
    | Connect
    | Disconnect
    | LookUp
    | TracePayload
)
Effects: TypeAlias = list[Effect]
