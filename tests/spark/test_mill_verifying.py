"""Stored events are checked by the rules of their protocol, and every forgery is found."""

import msgspec
import pytest
from verify_samples import IDENTITY, MAKERS

from rumormill.core.event import Event
from rumormill.node.identity import SignatureVerifier
from rumormill.node.verdicts import Verdict, verify_event
from rumormill.protocols.pubsub.message_ids import content_hash

VERIFIER = SignatureVerifier()


def made(protocol: str) -> Event:
    return MAKERS[protocol](3)[2]


@pytest.mark.parametrize("protocol", list(MAKERS))
def test_an_event_as_it_was_kept_is_valid(protocol: str) -> None:
    assert verify_event(protocol, made(protocol), VERIFIER) == Verdict(True, "valid")


@pytest.mark.parametrize("protocol", list(MAKERS))
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", b"other words"),
        ("topic", "other"),
        ("author", bytes(38)),
        ("proof", b""),
        ("proof", b"\xff" * 40),
        ("id", bytes(40)),
        ("id", b""),
    ],
)
def test_whatever_is_changed_is_found(protocol: str, field: str, value: object) -> None:
    """No field can be replaced: each is under the id or the signature, or is one of them."""
    forged = msgspec.structs.replace(made(protocol), **{field: value})
    verdict = verify_event(protocol, forged, VERIFIER)
    assert verdict.fault is not None


@pytest.mark.parametrize("protocol", list(MAKERS))
def test_another_authors_name_does_not_hold(protocol: str) -> None:
    """An event of one's own under another's name has no signature of the other."""
    other = IDENTITY.peer[:-1] + bytes([IDENTITY.peer[-1] ^ 1])
    event = made(protocol)
    forged = msgspec.structs.replace(event, author=other, id=event.id.replace(IDENTITY.peer, other))
    assert verify_event(protocol, forged, VERIFIER).fault is not None


def test_an_unsigned_message_is_named_by_its_content() -> None:
    """Under the policy without signatures the id proves the content, and nobody the author."""
    event = Event("news", b"hello", b"", content_hash("news", b"hello"))
    assert verify_event("floodsub", event, VERIFIER) == Verdict(True, "absent")
    forged = msgspec.structs.replace(event, data=b"bye")
    assert verify_event("floodsub", forged, VERIFIER).fault == "wrong-id"
    claimed = msgspec.structs.replace(event, author=IDENTITY.peer)
    assert verify_event("floodsub", claimed, VERIFIER).fault == "bad-signature"


def test_a_protocol_that_nobody_knows_proves_nothing() -> None:
    assert verify_event("carrier-pigeon", made("radius"), VERIFIER).fault == "unknown-protocol"
