"""Publisher policies as documents: signed by their owner, replaced by nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.envelope import seal_peer_record
from rumormill.node.policy import MAX_PUBLISHERS, Policy, read_policy, sign_policy
from rumormill.wire.keys import PrivateKey

OWNER, OTHER = PrivateKey(b"o" * 32), PrivateKey(b"x" * 32)
ANN = bytes(PrivateKey(b"a" * 32).peer_id)


@given(
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
    count=st.integers(1, MAX_PUBLISHERS),
    version=st.integers(0, 2**53),
    created=st.integers(0, 2**53),
)
def test_a_policy_is_read_as_it_was_signed(
    topic: str, count: int, version: int, created: int
) -> None:
    publishers = tuple(ANN[:-2] + number.to_bytes(2) for number in range(count))
    document = sign_policy(OWNER, topic, publishers, version, created)
    owner = bytes(OWNER.peer_id)
    assert read_policy(document) == Policy(topic, publishers, version, created, owner)


@given(place=st.integers(0), change=st.integers(1, 255))
def test_no_byte_of_it_can_be_changed(place: int, change: int) -> None:
    """Whoever changes one has no policy, or has signed it himself."""
    right = sign_policy(OWNER, "orders", (ANN,), 1, 1_700_000_000)
    document = bytearray(right)
    document[place % len(document)] ^= change
    with pytest.raises(PeerError):
        read_policy(bytes(document))


def test_a_signature_for_something_else_is_none() -> None:
    with pytest.raises(PeerError):
        read_policy(seal_peer_record(OWNER, 1, []))


@pytest.mark.parametrize("count", [0, MAX_PUBLISHERS + 1])
def test_a_policy_names_some_publishers(count: int) -> None:
    """One for nobody would be a mistake, as an allow-list that came out empty is."""
    with pytest.raises(LocalError, match="names 1 to 256 publishers"):
        sign_policy(OWNER, "orders", (ANN,) * count, 1, 0)


def policy(version: int, owner: PrivateKey = OWNER, created: int = 0) -> Policy:
    return read_policy(sign_policy(owner, "orders", (ANN,), version, created))


def test_a_higher_version_of_the_same_owner_replaces() -> None:
    assert policy(2).replaces(policy(1))
    assert not policy(1).replaces(policy(2))
    assert not policy(1).replaces(policy(1))


def test_nothing_else_replaces() -> None:
    with pytest.raises(LocalError, match="two owners"):
        policy(9, OTHER).replaces(policy(1))
    with pytest.raises(LocalError, match="two policies of version 1"):
        policy(1, created=5).replaces(policy(1))
