"""A session with an honest partner leaves no difference in what both keep."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sync_rig import NOW, SALT, answer, dated, event, ids_of, reconcile, store_of, undated

from rumormill.core.event import Event
from rumormill.core.history import BEGIN, END, Key, Window, stamp_of, topic_tag
from rumormill.sim.histories import MemoryHistory
from rumormill.sim.journal import Journal
from rumormill.sync.messages import MAX_EVENTS, SHORT_BYTES, Events, Fetch, Wanted
from rumormill.sync.ranges import short_id
from rumormill.sync.session import COMPLETE, EQUAL, IN_VAIN

moments = st.integers(0, 40).map(lambda n: dated(NOW - 1000 + 20 * n))
later = st.integers(1, 40).map(lambda n: dated(NOW + 1e6 + 20 * n))
without = st.integers(0, 40).map(lambda n: undated(b"%d" % n))
histories = st.lists(st.one_of(moments, later, without), unique_by=lambda each: each.id)


def asks(asker: Journal, partner: Journal, **how: float):
    return reconcile(asker, lambda body: answer(partner, body), **how)  # type: ignore[arg-type]


@given(histories, histories)
def test_the_asker_has_everything_that_its_partner_has(ours: list[Event], its: list[Event]) -> None:
    """Whatever they had before: dated events, ones without a date, and ones with a wrong date."""
    one, other = store_of(ours), store_of(its)
    cost = asks(one, other)
    assert ids_of(one) == {each.id for each in [*ours, *its]}
    assert ids_of(other) == {each.id for each in its}, "nobody is given what it did not ask for"
    assert cost.events == len(ids_of(one)) - len(ours), "and nothing is fetched twice"


@given(histories, histories, st.integers(1, 30), st.integers(1, 30))
def test_any_two_windows_have_their_common_part_in_common(
    ours: list[Event], its: list[Event], keeps: int, it_keeps: int
) -> None:
    """What retention has deleted here does not come back; what it has deleted there is not to be
    had. Everything else that the partner keeps is here afterwards."""
    one, other = store_of(ours, limit=keeps), store_of(its, limit=it_keeps)
    deleted = {each.id for each in ours} - ids_of(one)
    kept = (store.history("news") for store in (one, other))
    windows = [history.window for history in kept if history is not None]
    one._limit = 1 << 30
    asks(one, other)
    assert not ids_of(one) & deleted
    for each in its:
        if each.id in ids_of(other) and all(is_kept(each, window) for window in windows):
            assert each.id in ids_of(one)


def is_kept(event: Event, window: Window) -> bool:
    """Whether a window says that nothing like an event was deleted."""
    stamp = stamp_of(event)
    if not stamp:
        return window.undated
    return window.ahead if stamp > NOW * 1e6 else stamp >= window.keep_from


def test_equal_histories_cost_one_question() -> None:
    """Some thirty bytes a topic, however much there is."""
    topics = [f"topic {number}" for number in range(100)]
    events = [dated(NOW - 500 + n, topic) for topic in topics for n in range(3)]
    one, other = store_of(events), store_of(reversed(events))
    cost = asks(one, other, topics=topics)
    assert (cost.outcome, cost.asked, cost.events) == (EQUAL, 1, 0)
    assert cost.control <= 3000


def test_one_lost_event_is_found_among_many() -> None:
    """By cutting in sixteen: a few messages, some hundred bytes."""
    events = [dated(NOW - 50_000 + n) for n in range(20_000)]
    one, other = store_of(events[:7777] + events[7778:]), store_of(events)
    cost = asks(one, other)
    assert (cost.outcome, cost.events) == (COMPLETE, 1)
    assert cost.asked <= 6
    assert cost.control <= 1500


def test_a_gap_is_found_whole() -> None:
    """Who was away lacks one stretch, and names none of it."""
    events = [dated(NOW - 50_000 + n) for n in range(20_000)]
    one, other = store_of(events[:9000] + events[17_000:]), store_of(events)
    cost = asks(one, other)
    assert (cost.outcome, cost.events) == (COMPLETE, 8000)
    assert ids_of(one) == ids_of(other)
    fetches = 8000 // MAX_EVENTS
    assert cost.control - 100 * fetches <= 3000


def test_a_late_joiner_fetches_everything_in_order() -> None:
    """Without comparing anything."""
    events = [dated(NOW - 5000 + n) for n in range(3000)]
    one, other = store_of([]), store_of(events)
    cost = asks(one, other)
    assert cost.events == 3000
    kept = one._topics["news"].events
    stamps = [kept[offset].id for offset in sorted(kept)]
    assert stamps == sorted(stamps)


def test_a_fetch_looks_at_no_more_than_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long stretch as many keys as an answer holds, one more, and those that are known."""
    looked_at: list[int] = []
    keys_of = MemoryHistory.keys

    def keys(self: MemoryHistory, low: Key, high: Key, limit: int) -> list[Key]:
        found = keys_of(self, low, high, limit)
        looked_at.append(len(found))
        return found

    full = store_of(dated(NOW - 5000 + n) for n in range(3000))
    monkeypatch.setattr(MemoryHistory, "keys", keys)
    known = short_id(SALT, dated(NOW - 5000).id)
    for names, most in ((b"", MAX_EVENTS + 1), (known, MAX_EVENTS + 2)):
        looked_at.clear()
        sent = answer(full, Fetch(SALT, topic_tag("news"), (Wanted(BEGIN, END, names),)))
        assert isinstance(sent, Events)
        assert (len(sent.events), looked_at) == (MAX_EVENTS, [most])
        behind = NOW - 5000 + MAX_EVENTS + len(names) // SHORT_BYTES
        assert sent.next == Key(int(behind * 1e6), dated(behind).id)


def test_scattered_losses_are_all_found() -> None:
    """However many, in any order."""
    chance = random.Random(5)
    events = [dated(NOW - 50_000 + n) for n in range(20_000)]
    lost = set(chance.sample(range(20_000), 300))
    one = store_of(each for n, each in enumerate(events) if n not in lost)
    other = store_of(events)
    cost = asks(one, other)
    assert cost.events == 300
    assert cost.control < 300 * 700


def test_more_events_of_one_moment_than_any_message_holds() -> None:
    """Where dates do not tell parts apart, ids do."""
    moment = int((NOW - 100) * 1e9)
    events = [event(moment, author=b"author%05d" % n) for n in range(11_000)]
    one, other = store_of(events[:4000] + events[4500:]), store_of(events)
    cost = asks(one, other)
    assert cost.events == 500
    assert ids_of(one) == ids_of(other)
    empty = store_of([])
    asks(empty, other)
    assert len(ids_of(empty)) == 11_000


def test_what_has_not_settled_is_left_to_the_protocol() -> None:
    """The last seconds are not compared; nor is what a clock that is a little ahead has dated."""
    one = store_of([])
    other = store_of([dated(NOW - 60), dated(NOW - 3), dated(NOW + 30)])
    assert asks(one, other, settle=10.0).events == 1
    assert asks(one, other, settle=0.0).events == 1


def test_only_what_is_wanted_is_fetched() -> None:
    """From a date on."""
    one, other = store_of([]), store_of([dated(NOW - 100), dated(NOW - 50)])
    assert asks(one, other, since=int((NOW - 75) * 1e6)).events == 1


@pytest.mark.parametrize(("started", "fetched"), [(NOW - 20, 3), (NOW - 9999, 6)])
def test_who_numbers_from_its_start_is_missed_too(started: float, fetched: int) -> None:
    """Other implementations count on from when they were started, which may be before we followed.
    Once we have one such event, others are wanted too: from it on, or all if its date tells
    nothing; what dates can tell is not."""
    counted = [event(int(started * 1e9) + n, author=b"counts") for n in range(4)]
    ours = [dated(NOW - age, author=b"clock") for age in (500, 400, 300, 5)]
    one, other = store_of([]), store_of([*counted, *ours])
    since = int((NOW - 10) * 1e6)
    assert asks(one, other, since=since).events == 1, "a date tells what is older, while it can"
    one.keep(counted[0], NOW - 7)
    assert asks(one, other, since=since).events == fetched
    assert ids_of(one) >= {each.id for each in counted}


def test_what_was_published_before_it_was_followed_is_no_wrong_date() -> None:
    """Nor does it make anybody want more."""
    one, other = store_of([dated(NOW - 500)]), store_of([dated(NOW - 400), dated(NOW - 5)])
    assert asks(one, other, since=int((NOW - 10) * 1e6)).events == 1


def test_a_partner_that_has_less_gives_nothing() -> None:
    """That is not its fault, and it is not asked for long."""
    events = [dated(NOW - 500 + n) for n in range(300)]
    one, other = store_of(events), store_of(events[:100])
    cost = asks(one, other)
    assert (cost.outcome, cost.events) == (IN_VAIN, 0)
    assert cost.asked <= 4
    assert asks(other, one).events == 200


def test_an_unknown_topic_is_no_difference() -> None:
    """Nor are its names told to who does not know them."""
    one, other = store_of([dated(NOW - 5, "ours")]), store_of([dated(NOW - 5, "its")])
    seen = []
    cost = reconcile(one, lambda body: (seen.append(body), answer(other, body))[1], ["ours"])
    assert cost.outcome == EQUAL
    assert b"ours" not in repr(seen).encode()


@settings(max_examples=30)
@given(
    st.sets(st.integers(0, 2000)),
    st.sets(st.integers(0, 2000)),
    st.binary(min_size=16, max_size=16),
)
def test_large_sets_under_any_salt(ours: set[int], its: set[int], salt: bytes) -> None:
    """Cuts, lists and fetches together."""
    one = store_of(dated(NOW - 5000 + n) for n in [*ours, *range(2100, 2600)])
    other = store_of(dated(NOW - 5000 + n) for n in [*its, *range(2300, 2900)])
    reconcile(one, lambda body: answer(other, body), salt=salt)
    assert ids_of(other) <= ids_of(one)


@pytest.mark.parametrize("size", [10, 70, 100_000])
def test_events_of_any_size_come_in_bounded_answers(size: int) -> None:
    """256 KiB at a time, unless one event is longer."""
    events = [
        Event("news", bytes(size), b"a", b"a" + int((NOW - 500 + n) * 1e9).to_bytes(8, "big"))
        for n in range(300)
    ]
    one, other = store_of([]), store_of(events)
    cost = asks(one, other)
    assert cost.events == 300
    assert cost.asked > 300 * size // ((256 << 10) + size)
