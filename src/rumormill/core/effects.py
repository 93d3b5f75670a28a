"""Everything that a machine can ask of its runtime.

A machine appends effects to a list in the order in which they must happen. What others may hear of
only when it is durable it says behind a barrier: it appends the event with one (`Append`), and says
the rest when the log answers that the event is stored. Trace payloads (`core.trace`) are effects
too: the runtime stamps them with the peer and the time.
"""

from collections.abc import Hashable
from typing import TypeAlias

import msgspec

from rumormill.core.event import Event, Kept
from rumormill.core.history import HistoryQuery, Key
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.messages import WireMessage
from rumormill.core.trace import TracePayload


class Effect(msgspec.Struct, frozen=True):
    """One of the values below."""


class Send(Effect, frozen=True, gc=False):
    """Send a message to a connected peer."""

    peer: PeerId
    message: WireMessage


class SendAll(Effect, frozen=True, gc=False):
    """Send one message to several connected peers, in this order.

    It means as many `Send`s, and costs a runtime less: what depends on the message alone, such as
    encoding it, is done once.
    """

    peers: tuple[PeerId, ...]
    message: WireMessage


class Mail(Effect, frozen=True, gc=False):
    """Send a message to a peer whether or not it is connected.

    The runtime dials the peer where need be and keeps the letter meanwhile; letters to one peer
    arrive in the order of sending. When it cannot be sent, `SendDropped` says why.
    """

    peer: PeerId
    message: WireMessage


class Ask(Effect, frozen=True, gc=False):
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


class Answer(Effect, frozen=True, gc=False):
    """Answer the question of an `Asked` with the same number."""

    number: int
    message: WireMessage


class Decline(Effect, frozen=True, gc=False):
    """Refuse the question of an `Asked` with the same number: its asker is told at once."""

    number: int


class Learn(Effect, frozen=True):
    """Remember where a peer may be reached: binary multiaddrs, as others or settings say.

    `informant` is the peer that said so; where it is not named, the sender of the message that is
    being handled, if one is.
    """

    peer: PeerId
    addresses: tuple[bytes, ...]
    informant: PeerId = b""


class Outcome(Effect, frozen=True):
    """What became of a `Command`: a protocol's own result, or the reason why there is none."""

    number: int
    result: object = None
    error: str = ""


class Append(Effect, frozen=True, gc=False):
    """Store an event, and with `deliver` hand it to the application's subscribers once it is safe.

    With a `barrier`, a hashable value of the machine's choice, `Stored` or `NotStored` brings that
    value back: the event, with those it is linked to, is safe, or it is not to be had. Whatever
    must not be known of an event that a crash could take back (that it exists, that it was
    granted) is said in answer to that input, and not before.

    Who has said it already, because others have the event, gives `if_lost` instead: `NotStored`
    brings it back when the event could not be stored and might be another time.

    `seqno` is the number that an event of our own uses up, a date in nanoseconds: when the event is
    safe, so is the word that `Start.latest` of every later life is behind it. One that is `new` was
    made for this: it is stored, though retention may have deleted what is dated later.
    """

    event: Event
    deliver: bool = False
    barrier: Hashable = None
    if_lost: Hashable = None
    seqno: int = 0
    new: bool = False


class KeepNote(Effect, frozen=True):
    """Keep a note or a record of the protocol's own; it is safe when the next append is."""

    note: Kept


class ById(msgspec.Struct, frozen=True):
    """The stored events with these ids, in this order, without those that are not there."""

    ids: tuple[MessageId, ...]


class FromOffset(msgspec.Struct, frozen=True):
    """The stored events from an offset on, in the order of their offsets."""

    offset: int = 0


class Notes(msgspec.Struct, frozen=True):
    """The notes whose keys begin with a text, in the order of the keys, behind the key `after`."""

    prefix: str
    after: str = ""


class Computation(msgspec.Struct, frozen=True):
    """Work that takes a while and needs nothing but itself: done beside all else, where possible.

    It may come before what was appended earlier.
    """

    def work_out(self) -> object:
        """Do it; each kind of work says how, and raises nothing."""
        return None


class Records(msgspec.Struct, frozen=True):
    """The records behind a key, in the order of the keys."""

    after: bytes = b""


class Load(Effect, frozen=True):
    """Read stored events of a topic, notes or records, whatever was appended before this effect
    included.

    `Loaded` follows with the same `number`, which the machine chooses and does not use again while
    the answer is awaited. It holds a bounded piece; where more is there, the machine asks for it
    with another query.
    """

    number: int
    topic: Topic
    query: ById | FromOffset | Notes | Records | HistoryQuery | Computation


class Disregard(Effect, frozen=True):
    """Remember that an event was refused by our own rules, so that it is not asked for again.

    It is not stored, and counts among what is known when histories are compared.
    """

    topic: Topic
    key: Key


class Published(Effect, frozen=True, gc=False):
    """The outcome of the `Publish` with this number: the event, and to how many peers it was sent.

    `note` says why when nobody was reached. An `error` says why there is no event. An event that
    this peer has not appended itself was published by another peer that it asked to. The number 0
    stands for a publication of an earlier life.
    """

    number: int
    event: Event | None
    peers: int = 0
    note: str = ""
    error: str = ""


class Validate(Effect, frozen=True, gc=False):
    """Ask the application for its verdict; `Validated` brings it back."""

    event: Event
    received_from: PeerId


class SetTimer(Effect, frozen=True):
    """Fire `timer` at time `at`. Setting a timer that is set moves it."""

    timer: Hashable
    at: float
    patient: bool = False
    """Whether it may fire a second late when there is a lot to do: nobody waits for it."""


class CancelTimer(Effect, frozen=True):
    """Forget a timer; one that is not set is ignored."""

    timer: Hashable


class Connect(Effect, frozen=True):
    """Try to connect to a peer; `record` is its signed peer record where one is known.

    `PeerConnected` or `ConnectFailed` follows; nothing does when the peer is connected already.
    """

    peer: PeerId
    record: bytes = b""


class Disconnect(Effect, frozen=True):
    """Close the connection to a peer."""

    peer: PeerId
    reason: str
    keep_out: bool = False
    """Whether the peer broke the rules, and is not to come back for a while."""


Effects: TypeAlias = list[Effect | TracePayload]
