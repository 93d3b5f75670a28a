"""Stored events checked again, each by the rules of its own protocol.

The id is computed anew from what an event says, and its signature is checked against its author.
The rule: a third party needs nothing but the event.

FloodSub and GossipSub name a message by author and sequence number, or by its content where it is
unsigned; radius gossip by author and time; the skip ring by the hash of what was signed; Pulsarcast
by the CID of the event, which its proof rebuilds.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError, PeerError
from rumormill.core.event import Event
from rumormill.node.identity import SignatureVerifier
from rumormill.protocols.pubsub.codec import from_event as from_pubsub
from rumormill.protocols.pubsub.codec import signing_payload
from rumormill.protocols.pubsub.message_ids import NAMINGS, content_hash
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.history.graph import HistoryVerifier
from rumormill.protocols.radius.messages import from_event as from_radius
from rumormill.protocols.radius.messages import is_signed
from rumormill.protocols.skipring import envelope

VALID: Final = "valid"
ABSENT: Final = "absent"
INVALID: Final = "invalid"

WRONG_ID: Final = "wrong-id"
BAD_SIGNATURE: Final = "bad-signature"
BAD_PROOF: Final = "bad-proof"
UNKNOWN_PROTOCOL: Final = "unknown-protocol"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Whether an event's id is its own, what its signature is worth, and what is wrong."""

    id_valid: bool
    signature: str
    fault: str | None = None


def _verdict(id_valid: bool, signature: str) -> Verdict:
    if not id_valid:
        return Verdict(id_valid, signature, WRONG_ID)
    return Verdict(id_valid, signature, BAD_SIGNATURE if signature == INVALID else None)


def _check_pubsub(event: Event, verifier: SignatureVerifier) -> Verdict:
    if not event.proof:
        named = event.id == content_hash(event.topic, event.data)
        return _verdict(named, INVALID if event.author else ABSENT)
    message = from_pubsub(event)
    named = event.id == content_hash(event.topic, event.data)
    named = named or any(event.id == name(message) for name in NAMINGS.values())
    holds = verifier.verify(event.author, message.key, signing_payload(message), message.signature)
    return _verdict(named, VALID if holds else INVALID)


def _check_radius(event: Event, verifier: SignatureVerifier) -> Verdict:
    publication = from_radius(event)
    holds = is_signed(publication, verifier)
    return _verdict(event.id == publication.id, VALID if holds else INVALID)


def _check_skipring(event: Event, verifier: SignatureVerifier) -> Verdict:
    publication = envelope.from_event(event)
    unsigned = envelope.unsigned_fields(publication)
    named = bool(event.id) and envelope.name_of(unsigned, 8 * len(event.id)) == event.id
    holds = verifier.verify(
        event.author, publication.key, envelope.SIGN_PREFIX + unsigned, publication.signature
    )
    return _verdict(named, VALID if holds else INVALID)


def _check_pulsarcast(event: Event, verifier: SignatureVerifier) -> Verdict:
    history = HistoryVerifier(cids.parse(event.topic), verifier)
    fault = history.check(event)
    if fault is None:
        return Verdict(True, ABSENT if history.report().unsigned else VALID)
    return Verdict(fault != "wrong-cid", INVALID, fault)


_CHECKS: Final[dict[str, Callable[[Event, SignatureVerifier], Verdict]]] = {
    "floodsub": _check_pubsub,
    "gossipsub": _check_pubsub,
    "radius": _check_radius,
    "skipring": _check_skipring,
    "pulsarcast": _check_pulsarcast,
}


def verify_event(protocol: str, event: Event, verifier: SignatureVerifier) -> Verdict:
    """Check one event by its protocol's rules; whatever it holds, there is a verdict."""
    check = _CHECKS.get(protocol)
    if check is None:
        return Verdict(False, INVALID, UNKNOWN_PROTOCOL)
    try:
        return check(event, verifier)
    except DecodeError as error:
        return Verdict(False, INVALID, error.reason)
    except PeerError:
        return Verdict(False, INVALID, BAD_PROOF)


def fault_of() -> Callable[[str, Event], str | None]:
    """What says of each event, with its protocol, what is wrong with it: for an import."""
    verifier = SignatureVerifier()
    return lambda protocol, event: verify_event(protocol, event, verifier).fault
