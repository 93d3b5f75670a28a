"""Everything that can happen to a machine.

A runtime turns sockets, clocks and API calls into these values and calls `Machine.handle` with
them, one at a time. There is no other way in.
"""

from collections.abc import Hashable
from enum import Enum
from typing import Final

import msgspec

from rumormill.core.event import Event, KeptRecord, Note
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.messages import WireMessage

NO_ANSWER: Final = "no answer in time"
"""Why a question failed whose target may have it, or may have been lost with it."""


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


class Input(msgspec.Struct, frozen=True):
    """One of the values below."""


class Start(Input, frozen=True):
    """The runtime is ready; the first input of every machine.

    `latest` is the latest moment that the log knows of: dates and numbers that must grow go on
    behind it, whatever became of the clock meanwhile (`effects.Append.seqno`).
    """

    latest: float = 0.0


class Subscribe(Input, frozen=True):
    """The application wants a topic.

    With `publish_only` it wants to publish in the topic and to see what it publishes itself, and
    no peer is told of a subscription. `since` is the date from which on events that are missing
    are fetched from others, in seconds, as far as they keep them: 0 for all that was ever
    published; without one, that of the first subscription. `meta` says whether the topic's meta
    topic comes along, where a protocol has such; without it, that is as configured.
    """

    topic: Topic
    publish_only: bool = False
    since: float | None = None
    meta: bool | None = None


class Unsubscribe(Input, frozen=True):
    """The application no longer wants a topic, nor its meta topic (`meta` as in `Subscribe`)."""

    topic: Topic
    meta: bool | None = None


class Publish(Input, frozen=True, gc=False):
    """The application publishes data in a topic.

    `Published` with the same `number` answers it, once, as soon as the machine knows; a request
    that can never be (a name that is none, data too long) is raised as a `LocalError` at once.
    With `at_once` the event is appended in answer to this very input, or not at all. `parents` are
    the events that it is to follow, where a protocol links events and lets publishers say so.
    """

    topic: Topic
    data: bytes
    number: int = 0
    at_once: bool = False
    parents: tuple[MessageId, ...] = ()


class Stored(Input, frozen=True):
    """The events of these barriers (`Append`) are safe, in the order of appending."""

    barriers: tuple[Hashable, ...]


class NotStored(Input, frozen=True):
    """The events of these barriers could not be stored: nobody may hear of them; or those of an
    `if_lost`."""

    barriers: tuple[Hashable, ...]
    reason: str


class Loaded(Input, frozen=True):
    """The answer to a `Load`: a bounded piece of what it asks for.

    With `more`, something is left: behind the last offset or key here, or among the ids behind
    the last one here. What cannot be read is absent, as if it had never been stored.
    """

    number: int
    events: tuple[Event, ...] = ()
    more: bool = False
    notes: tuple[Note, ...] = ()
    records: tuple[KeptRecord, ...] = ()
    answer: object = None
    """What a `HistoryQuery` or a `Computation` has worked out; None where that was not possible."""


class LogChanged(Input, frozen=True):
    """The log has other events than we appended: it was repaired, restored or added to.

    What a machine remembers of stored events it loads again, in pieces as at its start; what is
    gone it lacks, and gets from others. Reads that were asked for before may be of the log as it
    was. A protocol that leaves histories to sync (`ProtocolSpec.recovers`) is not told.
    """


class Recovered(Input, frozen=True, gc=False):
    """A peer gave us a stored event that we asked it for.

    It is judged like one that arrives, appended and delivered, and goes no further: whoever lacks
    it asks as well. `checked` is what the protocol's own `check_kept` has made of it.
    """

    peer: PeerId
    event: Event
    checked: object


class Command(Input, frozen=True):
    """The application asks for something that only some protocols offer.

    `body` is a request type of the protocol; `Outcome` with the same `number` answers, once.
    """

    number: int
    body: object


class PeerConnected(Input, frozen=True):
    """A peer can be talked to, over the named protocol.

    `outbound` says that this side dialled. `address` is the peer's network address as far as
    the runtime knows it: machines compare addresses, they do not parse them. `transient` is a
    connection that we opened for a letter or a question alone. `limited` is one through a relay
    that carries only so much of it.
    """

    peer: PeerId
    protocol: str
    outbound: bool = False
    address: str = ""
    transient: bool = False
    limited: bool = False


class PeerDisconnected(Input, frozen=True):
    """A peer is gone; what was sent to it may or may not have arrived.

    `lost` says that nobody ended the connection: the peer has crashed, or the network between us.
    """

    peer: PeerId
    lost: bool = False


class ConnectFailed(Input, frozen=True):
    """A peer that an earlier `Connect` named could not be reached."""

    peer: PeerId
    reason: str


class Received(Input, frozen=True, gc=False):
    """A message of the machine's own format arrived.

    Its sender is connected, or it came as a letter (`Mail`) before the machine heard of that.
    """

    peer: PeerId
    message: WireMessage


class Asked(Input, frozen=True, gc=False):
    """A peer puts a question; `number` is the runtime's, for the `Answer`.

    `address` is where it came from, as in `PeerConnected`: who asks need not be connected.
    """

    peer: PeerId
    number: int
    message: WireMessage
    address: str = ""


class Answered(Input, frozen=True, gc=False):
    """The answer to an `Ask` of ours."""

    peer: PeerId
    number: int
    message: WireMessage


class AskFailed(Input, frozen=True):
    """An `Ask` of ours has no answer: out of reach, out of time, or not understood."""

    peer: PeerId
    number: int
    reason: str


class SendDropped(Input, frozen=True):
    """The runtime could not send a message that an earlier `Send` or `Mail` asked for."""

    peer: PeerId
    message: WireMessage
    reason: str


class TimerFired(Input, frozen=True):
    """The time of a `SetTimer` has come; the runtime hands the timer value back."""

    timer: Hashable


class Validated(Input, frozen=True):
    """The answer to a validation that was deferred."""

    message_id: MessageId
    verdict: Verdict
