"""Promises: who owes a message pays for not sending it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.protocols.gossipsub.gossip import Promises
from rumormill.protocols.pubsub import reasons

A, B, C = b"A", b"B", b"C"
IDS = [b"id-%d" % number for number in range(100)]


def promises(follow_up=0.1, limit=1000):
    return Promises(follow_up, limit, random.Random(1))


def test_broken_promises():
    """One promise per request breaks when its time is over; a throttled peer is excused."""
    owed = promises()
    for peer in (A, B, C):
        owed.add(peer, IDS, 0.0)
    assert owed.broken(0.0) == {}
    owed.excuse(C)
    assert owed.broken(0.101) == {A: 1, B: 1}
    assert owed.broken(0.2) == {}
    assert owed.count == 0
    assert owed._by_peer == {}


def test_no_broken_promises():
    """Messages that arrive end the promises of all who owed them."""
    owed = promises()
    for peer in (A, B):
        owed.add(peer, IDS, 0.0)
    for message_id in IDS:
        owed.fulfil(message_id)
    assert owed.broken(0.101) == {}
    assert owed._by_peer == {}


@pytest.mark.parametrize(
    ("reason", "broken"),
    [
        (reasons.MISSING_SIGNATURE, {A: 1}),
        (reasons.INVALID_SIGNATURE, {A: 1}),
        (reasons.VALIDATION_FAILED, {}),
        (reasons.VALIDATION_IGNORED, {}),
    ],
)
def test_a_badly_signed_message_keeps_no_promise(reason, broken):
    """A rejected message is charged as such; one that anybody can forge is no delivery at all."""
    owed = promises()
    owed.add(A, IDS[:1], 0.0)
    owed.rejected(IDS[0], A, reason)
    assert owed.broken(1.0) == broken


def test_one_message_per_request_is_watched_at_random():
    """The cost does not grow with the request, and no position in it is safe to lie about."""
    owed = promises()
    for _ in range(300):
        owed.add(A, IDS[:10], 0.0)
    assert owed.count == 10


def test_asking_again_does_not_extend_a_promise():
    """The first request sets the time."""
    owed = promises()
    owed.add(A, IDS[:1], 0.0)
    owed.add(A, IDS[:1], 0.09)
    assert owed.broken(0.15) == {A: 1}


def test_an_empty_request_promises_nothing():
    """Nothing asked, nothing owed."""
    owed = promises()
    owed.add(A, [], 0.0)
    assert owed.count == 0


def test_promises_are_bounded():
    """Beyond the limit requests go unwatched, which is counted."""
    owed = promises(limit=2)
    for number in range(5):
        owed.add(A, IDS[number : number + 1], 0.0)
    assert owed.count == 2
    assert owed.unwatched == 3
    assert owed.broken(1.0) == {A: 2}


def test_a_peer_that_is_gone_owes_nothing():
    """State of a peer ends with the peer."""
    owed = promises()
    owed.add(A, IDS, 0.0)
    owed.forget_peer(A)
    assert owed.count == 0
    assert owed._by_id == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "fulfil", "excuse", "broken", "rejected"]),
            st.sampled_from([A, B, C]),
            st.integers(0, 5),
            st.floats(0, 0.2),
        ),
        max_size=80,
    )
)
def test_the_books_always_balance(steps):
    """Both indexes hold the same promises, no more than the limit, after every step."""
    owed = promises(limit=4)
    now = 0.0
    for name, peer, number, pause in steps:
        now += pause
        if name == "add":
            owed.add(peer, IDS[number : number + 3], now)
        elif name == "fulfil":
            owed.fulfil(IDS[number])
        elif name == "excuse":
            owed.excuse(peer)
        elif name == "broken":
            owed.broken(now)
        else:
            owed.rejected(IDS[number], peer, reasons.VALIDATION_FAILED)
        by_id = {(peer, id_) for id_, owers in owed._by_id.items() for peer in owers}
        by_peer = {(peer, id_) for peer, ids in owed._by_peer.items() for id_ in ids}
        assert by_id == by_peer
        assert len(by_id) == owed.count <= 4
        assert all(owed._by_id.values())
        assert all(owed._by_peer.values())
