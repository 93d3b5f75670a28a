"""The seen cache: remembered long enough, not much longer, and never too many."""

from hypothesis import given
from hypothesis import strategies as st

from rumormill.protocols.pubsub.seen_cache import SeenCache


def key(number):
    return b"id-%d" % number


def test_first_seen_cache_found():
    """What was added is there, and is new only once."""
    cache = SeenCache(60.0, 100)
    assert cache.add(b"test", 0.0)
    assert not cache.add(b"test", 1.0)
    assert b"test" in cache.ids


def test_first_seen_cache_expire():
    """Ids expire, each counted from when it was first seen."""
    cache = SeenCache(1.0, 100)
    for number in range(10):
        cache.add(key(number), number / 10)
    cache.sweep(3.0)
    assert len(cache.ids) == 0


def test_first_seen_cache_not_found_after_expire():
    """An expired id is new again, however often it was seen meanwhile."""
    cache = SeenCache(1.0, 100)
    cache.add(b"0", 0.0)
    for tick in range(1, 10):
        cache.add(b"0", tick / 10)
    cache.sweep(2.0)
    assert b"0" not in cache.ids
    assert cache.add(b"0", 2.0)


def test_adding_alone_keeps_the_cache_swept():
    """No timer is needed: in steady use the cache holds little more than one `ttl` of ids."""
    cache = SeenCache(10.0, 10_000)
    for number in range(2000):
        cache.add(key(number), number / 10)
        assert len(cache.ids) <= 100 * (1 + 2 / 8) + 1
    assert cache.evicted == 0


def test_a_full_cache_forgets_the_oldest_and_counts_it():
    """A flood costs memory of old ids, never memory of the machine."""
    cache = SeenCache(1000.0, 100)
    for number in range(1000):
        assert cache.add(key(number), 0.0)
        assert len(cache.ids) <= 100
    assert cache.evicted == 1000 - len(cache.ids)
    assert list(cache.ids) == [key(number) for number in range(1000 - len(cache.ids), 1000)]


@given(
    limit=st.one_of(st.integers(1, 20), st.integers(100, 700)),
    steps=st.lists(st.tuples(st.integers(0, 300), st.floats(0, 5)), max_size=150),
)
def test_an_id_is_remembered_for_its_time_unless_there_are_too_many(limit, steps):
    """Against a slow, obvious model: within bounds, nothing is forgotten early or kept long."""
    ttl = 8.0
    cache = SeenCache(ttl, limit)
    since: dict[bytes, float] = {}
    now = 0.0
    for number, pause in steps:
        now += pause
        evicted = cache.evicted
        new = cache.add(key(number), now)
        assert len(cache.ids) <= limit
        assert sum(count for _, count in cache._ages) + cache._added == len(cache.ids)
        young = key(number) in since and now - since[key(number)] < ttl
        if young and not evicted:
            assert not new
        if new:
            since[key(number)] = now
        cache.sweep(now)
        for old, seen in since.items():
            if now - seen < ttl and not cache.evicted:
                assert old in cache.ids
            if now - seen >= 1.25 * ttl:
                assert old not in cache.ids
