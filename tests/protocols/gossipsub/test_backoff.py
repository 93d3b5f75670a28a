"""Backoff: links that must not be grafted yet, and numbers that must not hurt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.protocols.gossipsub.mesh import NEVER, Backoff

A, B = b"A", b"B"


def backoff(limit=100, longest=3600.0, per_peer_max=50):
    return Backoff(limit, longest, per_peer_max)


def test_a_backoff_lasts_its_time_and_we_wait_a_little_longer():
    """The peer may graft at expiry; we do so one slack later."""
    table = backoff()
    table.add("t", A, 60, 100.0)
    assert table.expires("t", A) == 160.0
    assert table.active("t", A, 160.5)
    assert not table.active("t", A, 161.0)
    assert table.expires("t", B) == table.expires("u", A) == NEVER
    assert not table.active("t", B, 100.0)


def test_a_shorter_backoff_does_not_replace_a_longer_one():
    """A peer cannot shorten what we hold against it."""
    table = backoff()
    table.add("t", A, 60, 0.0)
    table.add("t", A, 1, 10.0)
    assert table.expires("t", A) == 60.0
    table.add("t", A, 60, 10.0)
    assert table.expires("t", A) == 70.0


@pytest.mark.parametrize(
    "seconds", [2**64 - 1, 2**63 - 1, 9223372036854674580, 2**63, 1e308, float("inf"), 3601]
)
def test_extreme_times_are_clamped_and_stay_harmless(seconds):
    """CVE-2026-33040 and -34219: accepted, cut to an hour, and gone after it."""
    table = backoff()
    table.add("t", A, seconds, 5.0)
    assert table.expires("t", A) == 3605.0
    for heartbeat in range(100):
        table.clear(5.0 + heartbeat)
        assert table.active("t", A, 5.0 + heartbeat)
    table.clear(3606.0)
    assert len(table) == 0


@pytest.mark.parametrize("seconds", [0, -1, -(2**63), float("nan"), float("-inf")])
def test_times_that_are_none_change_nothing(seconds):
    """Nothing to wait for, nothing to remember."""
    table = backoff()
    table.add("t", A, seconds, 5.0)
    assert len(table) == 0


def test_clearing_forgets_what_is_over():
    """Expired entries and the tables that held them are gone."""
    table = backoff()
    table.add("t", A, 10, 0.0)
    table.add("t", B, 20, 0.0)
    table.add("u", A, 10, 0.0)
    table.clear(11.0)
    assert len(table) == 1
    table.clear(21.0)
    assert len(table) == 0
    assert table._by_topic == {}


def test_a_peer_with_too_many_topics_is_backed_off_in_all():
    """Prunes for ever new topics fill one entry, and free nobody from waiting."""
    table = backoff(per_peer_max=3)
    for number in range(1000):
        table.add(f"t{number}", A, 60, float(number))
    assert len(table) <= 4
    assert table.merged > 0
    assert table.active("t999", A, 999.0)
    assert table.active("anything", A, 999.0)
    assert not table.active("t999", B, 999.0)
    table.clear(1100.0)
    assert len(table) == 0


def test_merging_topics_keeps_the_latest_expiry():
    """What held longest for one topic still holds, now for all."""
    table = backoff(per_peer_max=2)
    table.add("t", A, 1000, 0.0)
    table.add("u", A, 10, 0.0)
    table.add("v", A, 10, 0.0)
    assert table.expires("t", A) == 1000.0
    assert len(table) == 1


def test_a_full_table_forgets_expired_entries_first():
    """Room is made by what is over, before anything else is touched."""
    table = backoff(limit=2)
    table.add("t", A, 10, 0.0)
    table.add("u", A, 100, 0.0)
    table.add("t", B, 10, 50.0)
    assert table.expires("u", A) == 100.0
    assert table.expires("t", B) == 60.0
    assert (table.evicted, table.merged) == (0, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t", "u", "v", "w"]),
            st.sampled_from([A, B, b"C"]),
            st.one_of(st.integers(-5, 2**64), st.floats()),
            st.floats(0, 100),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_the_table_never_exceeds_its_bounds_nor_forgets_the_newest(steps):
    """The last backoff added always holds, whatever was evicted for it."""
    table = backoff(limit=5, per_peer_max=2)
    now = 0.0
    for topic, peer, seconds, pause, clear in steps:
        now += pause
        table.add(topic, peer, seconds, now)
        if seconds > 0:
            assert table.expires(topic, peer) >= now + min(seconds, 3600.0)
        if clear:
            table.clear(now)
        entries = sum(len(peers) for peers in table._by_topic.values())
        assert entries == table._count
        assert len(table) <= 5
        for each in (A, B, b"C"):
            assert sum(each in peers for peers in table._by_topic.values()) <= 2
        assert table.expires(topic, peer) <= now + 3600.0
