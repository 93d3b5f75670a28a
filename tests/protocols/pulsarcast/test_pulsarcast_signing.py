"""Who vouches for an event, and what is kept so that others can check it."""

import msgspec
import pytest
from pulsarcast_vectors import block_cid

from rumormill.core.errors import DecodeError
from rumormill.node.identity import NodeIdentity
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import from_stored, stored
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor
from rumormill.protocols.pulsarcast.format.rpc import Rpc, decode_rpc, publish
from rumormill.protocols.pulsarcast.format.signing import (
    BAD_SIGNATURE,
    UNSIGNED,
    SignedEvent,
    fault_of,
    publish_request,
    sign_event,
    sign_request,
)
from rumormill.wire.keys import PrivateKey

ALICE, BOB, CAROL = (NodeIdentity(PrivateKey(bytes([number]) * 32)) for number in (1, 2, 3))
TOPIC, PARENT = block_cid("topic"), block_cid("parent")
CREATED = "2021-06-30T23:59:59.007Z"


def own_event(payload: bytes = b"hello") -> SignedEvent:
    """An event that Alice wrote and published."""
    event = EventDescriptor(TOPIC, ALICE.peer, payload, CREATED, ALICE.peer, PARENT)
    return sign_event(event, ALICE)


def asked_event(*, chosen: bytes | None = None, parent: bytes | None = PARENT) -> SignedEvent:
    """An event that Bob asked for, naming a parent or not, and Alice published."""
    request = EventDescriptor(TOPIC, BOB.peer, b"please", CREATED, None, chosen)
    return publish_request(sign_request(request, BOB), ALICE, parent)


def changed(signed: SignedEvent, **values: object) -> SignedEvent:
    """A signed event with some of its signatures replaced."""
    return msgspec.structs.replace(signed, **values)


def test_a_publisher_signs_its_own_event() -> None:
    """One signature is enough where author and publisher are one, and anybody can check it."""
    signed = own_event()
    assert fault_of(signed, CAROL) is None
    assert signed.author_signature == b""


def test_an_author_and_a_publisher_sign_a_published_request() -> None:
    """The author's signature is for the request, which anybody can recompute."""
    signed = asked_event()
    assert fault_of(signed, CAROL) is None
    assert signed.event.publisher == ALICE.peer
    assert fault_of(changed(signed, author_signature=b""), CAROL) == UNSIGNED
    assert fault_of(changed(signed, publisher_signature=b""), CAROL) == UNSIGNED


def test_a_request_bears_its_authors_signature() -> None:
    """Before it is published, the author alone vouches for it."""
    request = sign_request(EventDescriptor(TOPIC, BOB.peer, b"please", CREATED), BOB)
    assert fault_of(request, CAROL) is None
    assert fault_of(SignedEvent(request.event), CAROL) == UNSIGNED


def test_an_author_who_chose_the_parent_cannot_be_given_another() -> None:
    """With custom linking the request names its parent; the publisher must keep it."""
    assert fault_of(asked_event(chosen=PARENT), CAROL) is None
    assert fault_of(asked_event(chosen=PARENT, parent=TOPIC), CAROL) == BAD_SIGNATURE
    assert fault_of(asked_event(chosen=PARENT, parent=None), CAROL) == BAD_SIGNATURE


def test_foreign_signatures_do_not_hold() -> None:
    """Somebody else's key, somebody else's event, or a changed payload: each is seen."""
    signed = own_event()
    forged = SignedEvent(signed.event, sign_event(signed.event, BOB).publisher_signature)
    other = SignedEvent(signed.event, own_event(b"other").publisher_signature)
    swapped = changed(asked_event(), author_signature=asked_event().publisher_signature)
    for wrong in (forged, other, swapped, changed(signed, publisher_signature=b"x")):
        assert fault_of(wrong, CAROL) == BAD_SIGNATURE
    assert fault_of(changed(signed, publisher_key=b"junk"), CAROL) == BAD_SIGNATURE


def test_events_of_the_original_pass_only_where_that_is_wanted() -> None:
    """They bear no signature; one that is there must hold in any case."""
    bare = SignedEvent(own_event().event)
    assert fault_of(bare, CAROL) == UNSIGNED
    assert fault_of(bare, CAROL, required=False) is None
    assert fault_of(changed(bare, publisher_signature=b"x"), CAROL, required=False) == BAD_SIGNATURE


def test_signatures_travel_beside_what_is_hashed() -> None:
    """A signed event has the same CID as an unsigned one, and arrives with its signatures."""
    for signed in (own_event(), asked_event()):
        assert signed.cid == SignedEvent(signed.event).cid
        [message] = decode_rpc(Rpc.encode(publish(signed, 0.0))).messages
        assert message.event == signed
        assert message.event is not None
        assert fault_of(message.event, CAROL) is None


def test_a_stored_event_proves_itself() -> None:
    """Payload and proof give back the event, its CID and its signatures."""
    for signed in (own_event(), own_event(b""), asked_event()):
        event = stored(signed)
        assert event.topic == cids.text(TOPIC)
        assert (event.id, event.parents) == (signed.cid, (PARENT,))
        assert event.created == 1625097599.007
        back = from_stored(event)
        assert back == signed
        assert fault_of(back, CAROL) is None
        assert back.cid == signed.cid


def test_the_payload_is_not_kept_twice() -> None:
    """A proof costs the same whatever the size of the payload."""
    large, empty = stored(own_event(bytes(100_000))), stored(own_event(b""))
    assert len(large.proof) == len(empty.proof)


def test_a_changed_stored_event_is_seen() -> None:
    """Another payload, another id or a spoilt proof: a `DecodeError` says so."""
    event = stored(own_event())
    for wrong in (
        msgspec.structs.replace(event, data=b"other"),
        msgspec.structs.replace(event, id=block_cid("x")),
        msgspec.structs.replace(event, proof=b""),
        msgspec.structs.replace(event, proof=event.proof[:-1]),
        msgspec.structs.replace(event, proof=b"\xff"),
    ):
        with pytest.raises(DecodeError):
            from_stored(wrong)
