"""Signatures beside the CID: who vouches for an event, and for what.

The original has none: any peer can put an event into a tree in another's name. Here the publisher
signs the event's CID. Where somebody else wrote the event, its author signed the request to
publish: the same event without a publisher, whose CID anybody can recompute from the event. A
request names no parent (the publisher links it), except in a topic of custom linking, where the
author chose the parent; so the author's signature holds for the request without a parent or with
the event's own. Signatures are never part of what is hashed.
"""

from operator import attrgetter
from typing import Final

import msgspec

from rumormill.core.event import Event
from rumormill.core.identity import Identity, Verifier
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor

SIGN_PREFIX: Final = b"pulsarcast-event:"
"""What a signature covers starts with this, so that it can never be taken for one of another kind
(our choice, as libp2p does for pub/sub messages)."""

UNSIGNED: Final = "unsigned"
BAD_SIGNATURE: Final = "bad-signature"


class SignedEvent(msgspec.Struct, eq=False, gc=False):
    """An event and what vouches for it; an empty value stands for an absent field.

    Keys are there where a peer's id does not contain its key. `encoded` is the protobuf form as it
    arrived or was first sent, so that forwarding repeats it; `cached_event` is what applications
    are given. Immutable otherwise.
    """

    event: EventDescriptor
    publisher_signature: bytes = b""
    publisher_key: bytes = b""
    author_signature: bytes = b""
    author_key: bytes = b""
    encoded: bytes = b""
    cached_event: Event | None = None

    @property
    def cid(self) -> bytes:
        """The event's name."""
        return self.event.cid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SignedEvent) and _signed(self) == _signed(other)

    def __hash__(self) -> int:
        return hash(self.event)


_signed = attrgetter(
    "event", "publisher_signature", "publisher_key", "author_signature", "author_key"
)


def payload_of(cid: bytes) -> bytes:
    """What a signature for a CID covers."""
    return SIGN_PREFIX + cid


def sign_request(event: EventDescriptor, identity: Identity) -> SignedEvent:
    """Sign a request to publish as its author."""
    signature = identity.sign(payload_of(event.cid))
    return SignedEvent(event, author_signature=signature, author_key=identity.public_key)


def sign_event(event: EventDescriptor, identity: Identity) -> SignedEvent:
    """Sign an event of our own as its publisher."""
    return SignedEvent(event, identity.sign(payload_of(event.cid)), identity.public_key)


def publish_request(request: SignedEvent, identity: Identity, parent: bytes | None) -> SignedEvent:
    """Publish another's request: link it, sign it, keep its author's signature."""
    signed = sign_event(request.event.published(identity.peer, parent), identity)
    signed.author_signature, signed.author_key = request.author_signature, request.author_key
    return signed


def fault_of(signed: SignedEvent, verifier: Verifier, *, required: bool = True) -> str | None:
    """Why an event's signatures do not hold, or None.

    Without `required`, an event that bears no signature at all passes: so events of the JavaScript
    original are let through where that is wanted. A signature that is there must hold in any case.
    """
    event = signed.event
    publisher, author = event.publisher, event.author
    if not required and not signed.publisher_signature and not signed.author_signature:
        return None
    if publisher is None:
        return _author_fault(signed, verifier)
    if not signed.publisher_signature:
        return UNSIGNED
    payload = payload_of(event.cid)
    if not verifier.verify(publisher, signed.publisher_key, payload, signed.publisher_signature):
        return BAD_SIGNATURE
    return None if author == publisher else _author_fault(signed, verifier)


def _author_fault(signed: SignedEvent, verifier: Verifier) -> str | None:
    event, signature, key = signed.event, signed.author_signature, signed.author_key
    if not signature:
        return UNSIGNED
    requests = [event]
    if event.publisher is not None:
        requests = [event.request(parent) for parent in dict.fromkeys((None, event.parent))]
    for request in requests:
        if verifier.verify(event.author, key, payload_of(request.cid), signature):
            return None
    return BAD_SIGNATURE
