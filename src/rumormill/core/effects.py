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


class Mail(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a peer whether or not it is connected.

    The runtime dials the peer where need be and keeps the letter meanwhile; letters to one peer
    arrive in the order of sending. When it cannot be sent, `SendDropped` says why.
    """

    peer: PeerId
    message: WireMessage


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Put a question of the protocol's query format to a peer, connected or not.

    `Answered` or `AskFailed` follows with the same `number`, which the machine chooses and does
    not use again while the question is open. With `one_way` no answer is expected, and
    `Answered` never comes; `AskFailed` may.
    """

    peer: PeerId
    number: int
    message: WireMessage
    timeout: float
    one_way: bool = False


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Answer the question of an `Asked` with the same number."""

    number: int
    message: WireMessage


class Decline(msgspec.Struct, frozen=True, gc=False):
    """Refuse the question of an `Asked` with the same number: its asker is told at once."""

    number: int


class Learn(msgspec.Struct, frozen=True):
    """Remember where a peer may be reached: binary multiaddrs, as some other peer names them."""

    peer: PeerId
    addresses: tuple[bytes, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a `Command`: a protocol's own result, or the reason why there is none."""

    number: int
    result: object = None
    error: str = ""


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand an event to the application's subscribers."""

    event: Event
    received_from: PeerId


class Published(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a `Publish`: what the event became and how many peers it was sent to.

    `note` says why when nobody was reached. With a `command` nothing was published, because
    something must happen first, and nothing has been begun: whoever wants the event nevertheless
    gives that command. Its outcome is the `Published` of what another peer published for us, or
    None: then the time has come to publish it again.
    """

    event: Event
    peers: int
    note: str = ""
    command: object = None


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
    """Try to connect to a peer; `record` is its signed peer record where one is known.

    `PeerConnected` or `ConnectFailed` follows; nothing does when the peer is connected already.
    """

    peer: PeerId
    record: bytes = b""


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connection to a peer."""

    peer: PeerId
    reason: str


Effect: TypeAlias = (
    Send
    | SendAll
    | Mail
    | Ask
    | Answer
    | Decline
    | Learn
    | Outcome
    | Deliver
    | Published
    | Keep
    | Validate
    | SetTimer
    | CancelTimer
    | Connect
    | Disconnect
    | TracePayload
)
Effects: TypeAlias = list[Effect]
