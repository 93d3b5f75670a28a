"""The message cache: windows, gossip, requests, bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.protocols.gossipsub import message_cache
from rumormill.protocols.gossipsub.message_cache import TOO_OFTEN, MessageCache
from rumormill.protocols.pubsub.messages import Message


def message(number, topic="test", data=b"data"):
    return Message(topic, data, id=b"id-%d" % number)


def ids(*numbers):
    return [b"id-%d" % number for number in numbers]


def test_message_cache():
    """Messages are found for five windows and gossiped about for three, newest window first."""
    cache = MessageCache(5, 3)
    messages = [message(number) for number in range(60)]
    for each in messages[:10]:
        assert cache.put(each)
    assert all(cache.messages.get(each.id) is each for each in messages[:10])
    assert cache.gossip_ids("test") == ids(*range(10))

    cache.shift()
    for each in messages[10:20]:
        cache.put(each)
    assert all(cache.messages.get(each.id) is each for each in messages[:20])
    assert cache.gossip_ids("test") == ids(*range(10, 20), *range(10))

    for start in (20, 30, 40, 50):
        cache.shift()
        for each in messages[start : start + 10]:
            cache.put(each)
    assert len(cache.messages) == 50
    assert all(cache.messages.get(each.id) is None for each in messages[:10])
    assert all(cache.messages.get(each.id) is each for each in messages[10:])
    assert cache.gossip_ids("test") == ids(*range(50, 60), *range(40, 50), *range(30, 40))


def test_gossip_is_by_topic():
    """A topic's gossip names its own messages only, in a list that the caller may change."""
    cache = MessageCache(2, 1)
    cache.put(message(1, "a"))
    cache.put(message(2, "b"))
    cache.gossip_ids("a").clear()
    assert cache.gossip_ids("a") == ids(1)
    assert cache.gossip_ids("nothing") == []


def test_transmissions_are_counted_per_peer_and_message():
    """The count is of this peer's requests, this one included, and goes with the message."""
    cache = MessageCache(1, 1)
    cache.put(message(1))
    assert [cache.get_for_peer(b"id-1", b"A")[1] for _ in range(3)] == [1, 2, 3]
    found, count = cache.get_for_peer(b"id-1", b"B")
    assert found is not None
    assert (found.id, count) == (b"id-1", 1)
    assert cache.get_for_peer(b"id-2", b"B") == (None, 0)
    cache.shift()
    assert cache.get_for_peer(b"id-1", b"A") == (None, 0)
    assert cache._transmissions_counted == 0


def test_a_peer_that_is_gone_leaves_no_counts():
    """State of a peer ends with the peer."""
    cache = MessageCache(1, 1)
    cache.put(message(1))
    cache.get_for_peer(b"id-1", b"A")
    cache.forget_peer(b"A")
    assert cache._transmissions_counted == 0
    assert cache.get_for_peer(b"id-1", b"A")[1] == 1


def test_transmission_counts_are_bounded(monkeypatch):
    """Who can no longer be counted is treated as having asked too often."""
    monkeypatch.setattr(message_cache, "TRANSMISSIONS_MAX", 2)
    cache = MessageCache(1, 1)
    cache.put(message(1))
    counts = [cache.get_for_peer(b"id-1", peer)[1] for peer in (b"A", b"B", b"C", b"A")]
    assert counts == [1, 1, TOO_OFTEN, 2]


def test_a_message_is_kept_once():
    """Putting a message again neither doubles its gossip nor prolongs its life."""
    cache = MessageCache(2, 2)
    assert cache.put(message(1))
    cache.shift()
    assert not cache.put(message(1))
    assert cache.gossip_ids("test") == ids(1)
    cache.shift()
    assert len(cache.messages) == 0


@pytest.mark.parametrize(("length", "gossip"), [(0, 0), (1, 0), (1, 1)])
def test_degenerate_windows_work(length, gossip):
    """No history, or none to gossip about, is a legal choice."""
    cache = MessageCache(length, gossip)
    assert cache.put(message(1)) is (length > 0)
    assert cache.gossip_ids("test") == ids(1)[:gossip]
    cache.shift()
    assert len(cache.messages) == 0
    assert cache.messages.get(b"id-1") is None


def test_more_gossip_than_history_is_refused():
    """What is gossiped about must be there to be asked for."""
    with pytest.raises(ConfigError):
        MessageCache(2, 3)


def test_a_full_cache_gives_up_its_oldest_windows():
    """Old messages make way for new ones; a burst that fills the cache alone is cut. Counted."""
    cache = MessageCache(3, 3, messages_max=4)
    for number in (1, 2):
        cache.put(message(number))
    cache.shift()
    for number in (3, 4, 5, 6, 7, 8):
        cache.put(message(number))
    assert cache.gossip_ids("test") == ids(3, 4, 5, 6)
    assert (cache.evicted, cache.refused) == (2, 2)


def test_bytes_are_bounded():
    """Few large messages fill the cache as well as many small ones.

    What counts is the whole message as it arrived, fields that we do not know included.
    """
    padded = message(4)
    padded.encoded = bytes(200)
    assert not MessageCache(2, 2, bytes_max=100).put(padded)
    cache = MessageCache(2, 2, bytes_max=100)
    cache.put(message(1, data=bytes(60)))
    cache.shift()
    assert cache.put(message(2, data=bytes(60)))
    assert not cache.put(message(3, data=bytes(101)))
    assert cache.gossip_ids("test") == ids(2)
    assert (cache.evicted, cache.refused) == (1, 1)


@given(
    st.integers(0, 4),
    st.integers(1, 6),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 12), st.integers(0, 40)),
            st.tuples(st.just("get"), st.integers(0, 12), st.integers(0, 3)),
            st.tuples(st.just("forget"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("shift"), st.just(0), st.just(0)),
        ),
        max_size=80,
    ),
)
def test_the_cache_never_exceeds_its_bounds(length, limit, steps):
    """Messages, bytes and counts add up after every step, and all ids gossiped about are there."""
    cache = MessageCache(length, length, messages_max=limit, bytes_max=100)
    for name, number, size in steps:
        if name == "put":
            cache.put(message(number, data=bytes(size)))
        elif name == "get":
            cache.get_for_peer(b"id-%d" % number, b"%d" % size)
        elif name == "forget":
            cache.forget_peer(b"%d" % number)
        else:
            cache.shift()
        assert len(cache.messages) <= limit
        assert sum(each.meta.size for each in cache.messages.values()) == cache._bytes <= 100
        assert sorted(cache.gossip_ids("test")) == sorted(cache.messages)
        counted = sum(len(counts) for counts in cache._transmissions.values())
        assert counted == cache._transmissions_counted
        assert set(cache._transmissions) <= set(cache.messages)
