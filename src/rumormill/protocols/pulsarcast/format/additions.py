"""What an RPC may hold besides the original's messages: answers, questions, and whom to turn to.

The original skips them. Everything in them was chosen by their sender, so whatever is wrong is a
`DecodeError`; except for old events inside `Events`, whose faults are their authors' and are
counted one by one.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast.config import RpcLimits
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import (
    encode_event,
    lenient,
    read_event,
    text_field,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire.fields import Field, Nested, Number, Octets, OneOf, enumeration

_MAX_NUMBER: Final = 2**32 - 1
_LATEST: Final = 253_402_300_800_000
"""The end of the year 9999 in milliseconds: no date is written with more digits."""


class PeerAddress(msgspec.Struct, frozen=True, gc=False):
    """A peer to turn to, and where it may be reached: binary multiaddrs, best first."""

    peer: bytes
    addresses: tuple[bytes, ...] = ()


class JoinStatus(IntEnum):
    """What became of a JOIN."""

    ACCEPTED = 0
    """The joiner is a child of the sender now."""
    REDIRECTED = 1
    """The sender is full; the joiner should try the named peers."""
    REFUSED = 2
    """The sender does not serve the topic; `reason` says why."""


class JoinReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a JOIN; REDIRECTED also comes unasked, when a parent has too many children."""

    topic: bytes
    status: JoinStatus
    peers: tuple[PeerAddress, ...] = ()
    reason: str = ""


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What goes with a JOIN, and with its acceptance: who gets what, and who has what.

    `silent` says that the joiner only publishes and wants no events. The rest describes the events
    dated from `start` to before `end` (milliseconds since 1970) that the sender has: how many there
    are and the exclusive or of the last eight bytes of their CIDs. An empty range compares nothing.
    Terms alone tell a neighbour what it should have got of late. With a JOIN or its acceptance they
    need not name the topic, which is that of the other.
    """

    topic: bytes | None
    silent: bool = False
    start: int = 0
    end: int = 0
    count: int = 0
    checksum: int = 0


class RequestStatus(IntEnum):
    """What became of a request to publish."""

    ACCEPTED = 0
    """It was published."""
    REFUSED = 1
    """Nobody who may publish was willing; `reason` says why."""
    TIMED_OUT = 2
    """Nobody who may publish was found in time."""


class RequestReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request to publish: the request's CID and that of the event it became."""

    topic: bytes
    request: bytes
    status: RequestStatus
    event: bytes | None = None
    reason: str = ""


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Ask for events of a topic, or for the descriptor of the topic itself if `wanted` names it.

    With `ancestors`, so many of the events before each wanted one may come along, back to `known`,
    which the sender has.
    """

    topic: bytes
    wanted: tuple[bytes, ...] = ()
    ancestors: int = 0
    known: bytes | None = None


class Have(msgspec.Struct, frozen=True, gc=False):
    """All events that the sender has of those dated from `start` to before `end`, each by the last
    eight bytes of its CID.

    The receiver answers with `Events` that are not among them; a parent that lacks some says in
    turn what it has.
    """

    topic: bytes
    start: int
    end: int
    tails: tuple[bytes, ...] = ()


class Events(msgspec.Struct, frozen=True, gc=False):
    """Old events, parents before children. `missing` names what was wanted and is not there.

    `start` and `end` are those of the `Have` that this answers; up to `end` the answer is complete.
    """

    topic: bytes
    events: tuple[SignedEvent, ...] = ()
    missing: tuple[bytes, ...] = ()
    start: int = 0
    end: int = 0

    @property
    def range_start(self) -> int | None:
        """The start, where there is a range at all."""
        return self.start if self.end else None


class Block(msgspec.Struct, frozen=True, gc=False):
    """The dag-cbor bytes of a topic's descriptor, whose CID `topic` is."""

    topic: bytes
    data: bytes


Addition: TypeAlias = JoinReply | RequestReply | Fetch | Events | Terms | Have | Block
"""What the original does not know."""


def peers_field(number: int, limits: RpcLimits) -> Nested:
    """Peers that a message recommends."""
    peer = lenient(
        PeerAddress,
        {
            "peer": Octets(1, limits.peer_id_bytes, too_long="bad-peer-id", missing="bad-peer-id"),
            "addresses": Octets(
                2,
                limits.address_bytes,
                too_long="bad-address",
                max_count=limits.addresses,
                too_many="bad-address",
            ),
        },
        limits,
    )
    return Nested(number, peer, max_count=limits.peers, too_many="too-many-peers")


def additions_field(limits: RpcLimits) -> OneOf:
    """The additions of an RPC, in the order in which they come; counted with its messages."""
    return OneOf(
        kinds={
            kind: Nested(number, lenient(partial(_made, kind), fields(limits), limits))
            for number, (kind, fields) in enumerate(_FIELDS.items(), _FIRST_NUMBER)
        },
        max_count=limits.messages,
        counted_with="messages",
        too_many="too-many-messages",
    )


def _made(kind: Callable[..., Addition], *values: Any) -> Addition:
    made = kind(*values)
    if isinstance(made, Events | Terms | Have) and made.start > made.end:
        raise DecodeError("bad-range", "a range of dates begins before it ends")
    return made


def _cid(number: int) -> Octets:
    return Octets(number, cids.LENGTH, read=cids.check, too_long="bad-cid", missing="bad-cid")


def _optional_cid(number: int) -> Octets:
    return replace(_cid(number), missing="", optional=True)


def _cids(number: int, limits: RpcLimits) -> Octets:
    return replace(_cid(number), missing="", max_count=limits.cids, too_many="too-many-cids")


def _tails(number: int, limits: RpcLimits) -> Octets:
    def read(data: bytes) -> bytes:
        if len(data) != cids.TAIL:
            raise DecodeError("bad-cid", "what is left of a CID has eight bytes")
        return data

    return Octets(
        number,
        cids.TAIL,
        read=read,
        too_long="bad-cid",
        max_count=limits.cids,
        too_many="too-many-cids",
    )


def _status(number: int, kind: type[IntEnum]) -> Number:
    return Number(number, _MAX_NUMBER, read=enumeration(kind, "bad-status"), always=True)


def _date(number: int) -> Number:
    return Number(number, _LATEST, too_large="bad-range", always=True)


def _events_field(number: int, limits: RpcLimits) -> Octets:
    def read(data: bytes) -> SignedEvent:
        event = read_event(data, limits)
        if isinstance(event, str):
            raise DecodeError(event)
        return event

    return Octets(
        number,
        limits.rpc_bytes,
        read=read,
        write=encode_event,
        max_count=limits.events,
        too_many="too-many-events",
        leave_out=True,
    )


_FIRST_NUMBER: Final = 100
"""Fields from here on are ours."""
_FIELDS: Final[dict[type[Addition], Callable[[RpcLimits], dict[str, Field]]]] = {
    JoinReply: lambda limits: {
        "topic": _cid(1),
        "status": _status(2, JoinStatus),
        "peers": peers_field(3, limits),
        "reason": text_field(4, limits.reason_bytes),
    },
    RequestReply: lambda limits: {
        "topic": _cid(1),
        "request": _cid(2),
        "status": _status(3, RequestStatus),
        "event": _optional_cid(4),
        "reason": text_field(5, limits.reason_bytes),
    },
    Fetch: lambda limits: {
        "topic": _cid(1),
        "wanted": _cids(2, limits),
        "ancestors": Number(3, _MAX_NUMBER),
        "known": _optional_cid(4),
    },
    Events: lambda limits: {
        "topic": _cid(1),
        "events": _events_field(2, limits),
        "missing": _cids(3, limits),
        "range_start": _date(4),
        "end": Number(5, _LATEST, too_large="bad-range"),
    },
    Terms: lambda _: {
        "topic": _optional_cid(1),
        "silent": Number(2, read=bool, always=True),
        "start": _date(3),
        "end": _date(4),
        "count": Number(5, always=True),
        "checksum": Number(6, always=True),
    },
    Have: lambda limits: {
        "topic": _cid(1),
        "start": _date(2),
        "end": _date(3),
        "tails": _tails(4, limits),
    },
    Block: lambda limits: {"topic": _cid(1), "data": Octets(2, limits.rpc_bytes, always=True)},
}

ADDITION_NAMES: Final[dict[type[Addition], str]] = {
    kind: re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower() for kind in _FIELDS
}
"""The additions as the trace names them."""
