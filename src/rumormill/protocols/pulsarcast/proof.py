"""What is kept beside an event so that a third party can check it.

A stored event has its payload, and beside it a proof: the protobuf form of the descriptor without
the payload, with its signatures. The two together give the descriptor back, hence its CID, its
links and everything that was signed. The payload is not kept twice.
"""

from collections.abc import Iterable
from contextlib import suppress

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.codec import encode_without_payload, read_event
from rumormill.protocols.pulsarcast.limits import DEFAULT_LIMITS, RpcLimits
from rumormill.protocols.pulsarcast.signing import SignedEvent


def pack_proof(signed: SignedEvent) -> bytes:
    """What is kept beside the payload."""
    return encode_without_payload(signed)


def event_from_proof(
    proof: bytes, payload: bytes, limits: RpcLimits = DEFAULT_LIMITS
) -> SignedEvent:
    """Put payload and proof together again; a `DecodeError` says why they are no event."""
    signed = read_event(proof, limits, payload)
    if isinstance(signed, str):
        raise DecodeError("bad-proof", signed)
    return signed


def stored(signed: SignedEvent) -> Event:
    """An event as applications and the log see it."""
    event = signed.event
    return Event(
        cids.text(event.topic),
        event.payload,
        event.author,
        signed.cid,
        () if event.parent is None else (event.parent,),
        dates.seconds(event.created),
        pack_proof(signed),
    )


def from_stored(event: Event, limits: RpcLimits = DEFAULT_LIMITS) -> SignedEvent:
    """Read a kept event back, and check that it is what its id says; else a `DecodeError`."""
    signed = event_from_proof(event.proof, event.data, limits)
    if signed.cid != event.id:
        raise DecodeError("wrong-cid", "the event is not what its id names")
    return signed


def read_back(events: Iterable[Event]) -> list[SignedEvent]:
    """Those of some kept events that are what their ids say."""
    found: list[SignedEvent] = []
    for event in events:
        with suppress(DecodeError):
            found.append(from_stored(event))
    return found
