"""A log's histories: what peers compare is what is stored, whatever happened before."""

import random
import sys
import threading
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rumormill.core.event import Event
from rumormill.core.history import (
    AHEAD_SECONDS,
    BEGIN,
    END,
    UNDATED,
    Deleted,
    Key,
    Summary,
    Window,
    stamp_of,
    summary_of,
    topic_tag,
)
from rumormill.log import (
    Durability,
    EventLog,
    Retention,
    StoreConfig,
    StoreReadOnlyError,
)
from rumormill.log.indexer import MAX_REFUSALS
from store_samples import fill, make_event, read_all

MEMORY = StoreConfig(durability=Durability.MEMORY)
AUTHOR = b"author"
NOW = 1_700_000_000


def dated(stamp: int, *, topic: str = "news", name: bytes = b"", received: float | None = None):
    """An event whose author signed a date in microseconds."""
    came = stamp / 1e6 if received is None else received
    sequence_number = (1000 * stamp).to_bytes(8, "big")
    if name:  # more than one event of a date: authors differ
        return Event(topic, b"data", AUTHOR + name, AUTHOR + name + sequence_number, received=came)
    return Event(topic, b"data", AUTHOR, AUTHOR + sequence_number, received=came)


def key_of(event: Event) -> Key:
    return Key(stamp_of(event), event.id)


def all_keys(log: EventLog, topic: str = "news") -> list[Key]:
    with log.histories() as histories:
        return histories.history(topic).keys(BEGIN, END, sys.maxsize)


def whole(log: EventLog, topic: str = "news") -> Summary:
    with log.histories() as histories:
        return histories.history(topic).summary(BEGIN, END)


def check_history(log: EventLog, keys: list[Key], topic: str = "news", seed: int = 0) -> None:
    """Summaries, keys and cuts of many ranges are those of a sorted list."""
    rng = random.Random(seed)
    bounds = [BEGIN, END, *(rng.choice(keys or [BEGIN]) for _ in range(12))]
    bounds += [Key(key.stamp, b"") for key in bounds] + [Key(k.stamp, k.id + b"\0") for k in bounds]
    with log.histories() as histories:
        history = histories.history(topic)
        assert history.keys(BEGIN, END, len(keys) + 1) == keys
        for _ in range(12):
            low, high = rng.choice(bounds), rng.choice(bounds)
            inside = keys[bisect_left(keys, low) : max(bisect_left(keys, high), 0)]
            assert history.summary(low, high) == summary_of(topic, inside)
            limit = rng.randrange(1, 100)
            assert history.keys(low, high, limit) == inside[:limit]
            check_cut(history, inside, low, high, rng.choice([2, 3, 16]))


def check_cut(history, inside: list[Key], low: Key, high: Key, parts: int) -> None:
    """The cuts lie inside, one behind the other, and no part has much more than its share."""
    cuts = history.cut(low, high, parts)
    assert len(cuts) < parts
    assert cuts == sorted(set(cuts))
    assert all(low < cut < high for cut in cuts)
    places = [0, *(bisect_left(inside, cut) for cut in cuts), len(inside)]
    largest = max(end - start for start, end in pairwise(places))
    assert largest * parts <= 2 * len(inside) or largest == 1


def test_a_history_is_what_was_appended(log):
    """Every event has its key, in the order of the authors' dates, whenever it came."""
    events = [dated(1_000_000 + 7919 * number % 1000) for number in range(1000)]
    log.append(events).result()
    check_history(log, sorted(map(key_of, events)))
    with log.histories() as histories:
        history = histories.history("news")
        keys = [key_of(event) for event in events[:5]]
        assert [key_of(event) for event in history.events(keys, 10**6)] == keys
        assert history.events([Key(5, b"nobody's")], 10**6) == []
        assert len(history.events(keys, 2 * len(b"data"))) == 2
        assert history.window == Window()
        assert histories.history("weather") is None


def test_a_history_in_memory_is_the_same():
    """A log without files has histories too."""
    events = [dated(1_000_000 + number % 97, name=b"%d" % number) for number in range(300)]
    with EventLog(None, MEMORY) as log:
        log.append(events).result()
        check_history(log, sorted(map(key_of, events)))
        log.retain({"news": Retention(max_events=100)}, now=0.0)
        check_history(log, sorted(map(key_of, events[200:])))
        assert log.verify().ok


def test_histories_see_everything_that_was_acknowledged_before(log):
    """However the index lags, who asks finds what was committed before."""
    for number in range(20):
        log.append([dated(1_000_000 + number)]).result()
        assert whole(log).count == number + 1


def test_a_snapshot_stays_as_it_was(log):
    """What is appended while somebody reads does not change what is read."""
    fill(log, 200)
    with log.histories() as histories:
        history = histories.history("news")
        before = history.summary(BEGIN, END)
        fill(log, 100, start=200)
        assert whole(log).count == 300
        assert history.summary(BEGIN, END) == before


def test_a_topic_is_found_by_its_tag(log):
    """Also one that came after the first question."""
    fill(log, 1, "one")
    with log.histories() as histories:
        assert histories.named(topic_tag("one")) == "one"
        assert histories.named(topic_tag("two")) is None
        fill(log, 1, "two")
        assert histories.named(topic_tag("two")) == "two"


def test_more_than_ten_thousand_events_of_one_date(log):
    """The order goes on in the id: ranges and cuts work inside one moment."""
    events = [dated(NOW * 10**6, name=b"%05d" % number) for number in range(10_500)]
    random.Random(1).shuffle(events)
    for start in range(0, len(events), 2500):
        log.append(events[start : start + 2500]).result()
    check_history(log, sorted(map(key_of, events)))
    with log.histories() as histories:
        cuts = histories.history("news").cut(BEGIN, END, 16)
        assert len(cuts) == 15
        assert {cut.stamp for cut in cuts} == {NOW * 10**6}


def test_an_idle_writer_indexes_by_itself(log):
    """A late question does not pay for an hour: thousands of events are indexed before it comes."""
    for start in range(0, 6000, 1000):
        log.append([dated(number + 1) for number in range(start, start + 1000)]).result()
    quiet = threading.Event()
    while log.writer().backlog >= 4096:
        quiet.wait(0.05)
    with log.snapshot() as db:
        (indexed,) = db.execute("SELECT indexed_to FROM histories").fetchone()
    assert indexed >= 6000 - 4096
    assert whole(log).count == 6000


def test_a_reader_without_the_right_to_write_has_no_histories(home):
    """It could not bring the index up."""
    with EventLog(home) as log:
        fill(log, 1)
    with (
        EventLog(home, read_only=True) as log,
        pytest.raises(StoreReadOnlyError),
        log.histories(),
    ):
        pass


# Retention


def window_of(log: EventLog, topic: str = "news") -> Window:
    with log.histories() as histories:
        return histories.history(topic).window


def test_the_window_follows_what_retention_deletes(home):
    """It begins behind the latest date that went, never goes back, and survives a restart."""
    dates = [NOW * 10**6 + date for date in (5, 9, 2, 7, 3, 11)]
    with EventLog(home) as log:
        log.append([dated(date) for date in dates]).result()
        for left, keep_from in ((5, dates[0] + 1), (4, dates[1] + 1), (2, dates[1] + 1)):
            log.retain({"news": Retention(max_events=left)}, now=0.0)
            assert window_of(log) == Window(keep_from)
        assert all_keys(log) == sorted(key_of(dated(date)) for date in dates[4:])
    with EventLog(home) as log:
        assert window_of(log) == Window(dates[1] + 1)
        log.retain({"news": Retention(max_events=1)}, now=0.0)
        log.append([dated(dates[5] + 1)]).result()
        log.retain({"news": Retention(max_events=1)}, now=0.0)
        assert window_of(log) == Window(dates[5] + 1)
        assert log.verify().ok


def test_events_without_a_right_date_close_windows_of_their_own(log):
    """Undated ones, and those that lay ahead when they came, move no date."""
    undated = make_event(0)
    assert stamp_of(undated) == UNDATED
    ahead = dated((NOW + AHEAD_SECONDS + 1) * 10**6, received=float(NOW))
    right = dated((NOW + AHEAD_SECONDS) * 10**6, received=float(NOW))
    log.append([undated, ahead, right]).result()
    seen = []
    for deleted in range(1, 4):
        log.append([dated(10**6 + deleted)]).result()
        log.retain({"news": Retention(max_events=3)}, now=0.0)
        seen.append(window_of(log))
    assert seen == [
        Window(undated=False),
        Window(undated=False, ahead=False),
        Window(stamp_of(right) + 1, undated=False, ahead=False),
    ]


def test_events_that_were_not_indexed_before_move_the_window_too(log):
    """Nobody has asked for the history when they go."""
    log.append([dated(number + 1) for number in range(100)]).result()
    log.retain({"news": Retention(max_events=10)}, now=0.0)
    assert window_of(log) == Window(91)
    check_history(log, [key_of(dated(number + 1)) for number in range(90, 100)])
    assert log.verify().ok


def test_what_retention_deleted_does_not_come_back(home):
    """A peer may bring it again: it is answered as known, without an offset, and counted."""
    start = NOW * 10**6
    with EventLog(home) as log:
        log.append([dated(start + number) for number in range(10)]).result()
        log.retain({"news": Retention(max_events=4)}, now=0.0)
    late = NOW + 3600.0
    for _ in range(2):
        with EventLog(home) as log:
            again = [dated(start + number, received=late) for number in (3, 7, 30)]
            results = log.append(again).result()
            assert [(result.offset, result.gone) for result in results] == [
                (-1, True),
                (7, False),
                (10, False),
            ]
            assert results[0].duplicate
            assert (log.counters.gone, log.counters.appended + log.counters.duplicates) == (1, 2)
            assert [event.offset for event in read_all(log)] == [6, 7, 8, 9, 10]


def test_what_was_deleted_soon_after_its_date_does_not_come_back_either(home):
    """A rule of count deletes young events. Its author's own dates tell one from new ones that are
    not later; others' clocks may differ."""
    start = NOW * 10**6
    with EventLog(home) as log:
        log.append([dated(start + number) for number in range(10)]).result()
        log.retain({"news": Retention(max_events=4)}, now=NOW + 1.0)
        (again,) = log.append([dated(start + 5, received=NOW + 2.0)]).result()
        assert again.gone
    with EventLog(home) as log:
        log.retain({"news": Retention(max_events=3)}, now=NOW + 3.0)
        events = [dated(start + number, received=NOW + 30.0) for number in (3, 6, 7, 20)]
        others = dated(start + 3, name=b"other", received=NOW + 30.0)
        results = log.append([*events, others]).result()
        assert [result.gone for result in results] == [True, True, False, False, False]
        assert [result.offset for result in results[2:]] == [7, 10, 11]


def test_new_events_with_old_dates_are_kept(home):
    """Authors number from their start, or their clocks are late: others' dates do not tell."""
    now = NOW * 10**6

    def late(author, microseconds):
        return dated(now - 3600 * 10**6 + microseconds, name=author, received=NOW + 1.0)

    with EventLog(home) as log:
        log.append([dated(now + number) for number in range(5)]).result()
        log.append([late(b"go", 0)]).result()
        log.append([dated(now + number) for number in range(5, 15)]).result()
        log.retain({"news": Retention(max_events=3)}, now=0.0)
    with EventLog(home) as log:
        again = [late(b"go", 0), dated(now + 4, received=NOW + 1.0)]
        events = [late(b"go", 1), late(b"slow", 0), *again]
        results = log.append(events).result()
        assert [result.gone for result in results] == [False, False, True, True]
        assert [result.offset for result in results[:2]] == [16, 17]


def test_dates_at_random_tell_nothing(log):
    """js-libp2p draws them: one that lay ahead says that its author's others are no better."""
    now = NOW * 10**6
    dates = (now + 10**9, now - 10**9, now + 10**12, now - 2 * 10**9)
    drawn = [dated(date, name=b"js", received=float(NOW)) for date in dates]
    log.append([*drawn[:3], dated(now)]).result()
    log.retain({"news": Retention(max_events=1)}, now=0.0)
    (new,) = log.append([drawn[3]]).result()
    assert (new.offset, new.gone) == (4, False)


def test_of_too_many_authors_dates_tell_together():
    """Whoever is forgotten may not say again what was deleted of anybody; what is new is young."""
    deleted = Deleted()
    authors = [b"%038d" % number for number in range(1030)]
    events = [dated((NOW + at) * 10**6, name=each) for at, each in enumerate(authors)]
    for each in events:
        deleted.add([(each.author, stamp_of(each), NOW + 2000.0)])
    assert len(deleted.latest) == 1024
    much_later = [msgspec.structs.replace(each, received=NOW + 9000.0) for each in events]
    assert all(deleted.has(each) for each in much_later)
    new = dated((NOW + 3) * 10**6, name=b"new")
    assert deleted.has(msgspec.structs.replace(new, received=NOW + 9000.0))
    assert not deleted.has(msgspec.structs.replace(new, received=NOW + 4.0))


def test_a_new_event_is_kept_whoevers_clock_is_ahead(log):
    """Somebody's date was ahead by less than it may and is deleted: ours are from before that."""
    theirs = dated((NOW + 50) * 10**6, name=b"theirs", received=float(NOW))
    log.append([theirs, dated(NOW * 10**6)]).result()
    log.retain({"news": Retention(max_events=1)}, now=float(NOW))
    assert window_of(log).keep_from > (NOW + 49) * 10**6
    (own,) = log.append([dated((NOW + 1) * 10**6)]).result()
    assert (own.offset, own.gone) == (2, False)


# Ids that are known and not stored


def test_a_refused_id_counts_as_known(home):
    """It is in the sums, has no event, and survives a restart; its event takes its place."""
    refused, stored = dated(5), dated(3)
    keys = [key_of(stored), key_of(refused)]
    with EventLog(home) as log:
        log.append([stored]).result()
        log.know("news", [key_of(refused), key_of(stored)])
        check_history(log, keys)
    with EventLog(home) as log:
        check_history(log, keys)
        with log.histories() as histories:
            assert histories.history("news").events(keys, 10**6) == [
                msgspec.structs.replace(stored, offset=0)
            ]
        assert log.verify().ok
        log.append([refused]).result()
        check_history(log, keys)
        with log.histories() as histories:
            assert len(histories.history("news").events(keys, 10**6)) == 2
        assert log.verify().ok
        log.retain({"news": Retention(max_events=1)}, now=0.0)
        check_history(log, [key_of(refused)])
        assert log.verify().ok


def test_a_topic_of_refused_ids_alone_has_a_history(log):
    """Nothing of it is stored, and nobody is asked for it again."""
    log.know("spam", [Key(5, b"an id")])
    check_history(log, [Key(5, b"an id")], "spam")
    assert log.topic("spam").next_offset == 0
    assert log.verify().ok


def test_refused_ids_are_bounded_and_the_oldest_go_first(log, monkeypatch):
    """The limit is 65,536; here it is a hundred."""
    assert MAX_REFUSALS == 65_536
    monkeypatch.setattr("rumormill.log.indexer.MAX_REFUSALS", 100)
    keys = [Key(1000 + 7 * number % 501, b"%d" % number) for number in range(400)]
    for start in range(0, 400, 40):
        log.know("news", keys[start : start + 40] * 2)
    check_history(log, sorted(keys[300:]))
    assert log.verify().ok


def test_refused_ids_may_be_reconsidered(log):
    """Those of one topic, however many; then they are as if nobody had ever known them."""
    stored = [dated(3), dated(9_000)]
    log.append(stored).result()
    keys = [Key(1000 + 7 * number % 501, b"%d" % number) for number in range(1200)]
    log.know("news", keys)
    log.know("spam", keys[:3])
    assert log.reconsider("news")
    check_history(log, [key_of(each) for each in stored])
    check_history(log, sorted(keys[:3]), "spam")
    assert log.verify().ok
    assert not log.reconsider("news")
    assert not log.reconsider("nothing is known of it")
    log.know("news", keys[:5])
    check_history(log, sorted([*keys[:5], *map(key_of, stored)]))


# Any history of a log


class Life(RuleBasedStateMachine):
    """Appends, refusals, retention and restarts in any order; a list knows what must be there."""

    stamps = st.one_of(st.integers(0, 3), st.integers(1, 10**6), st.just(NOW * 10**6))

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        self.home = Path(self.folder.name) / "store"
        self.log = EventLog(self.home)
        self.stored: list[Key] = []
        self.refused: set[Key] = set()
        self.window = Window()
        self.number = 0

    @rule(stamps=st.lists(stamps, max_size=8), repeat=st.integers(1, 40))
    def append(self, stamps: list[int], repeat: int) -> None:
        events = []
        for stamp in stamps * repeat:
            self.number += 1
            name = b"%d" % self.number
            events.append(Event("news", b"", b"", name, created=stamp / 1e6, received=1.0))
        results = self.log.append(events).result()
        assert not any(result.gone for result in results)
        self.stored += map(key_of, events)

    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        if self.stored:
            stamp, event_id = data.draw(st.sampled_from(self.stored))
            event = Event("news", b"", b"", event_id, created=stamp / 1e6, received=1.0)
            assert self.log.append([event]).result()[0].duplicate

    @rule(stamps=st.lists(stamps, min_size=1, max_size=5))
    def know(self, stamps: list[int]) -> None:
        keys = []
        for stamp in stamps:
            self.number += 1
            keys.append(Key(stamp, b"%d" % self.number))
        self.log.know("news", keys)
        self.refused.update(keys)

    @rule()
    def reconsider(self) -> None:
        assert self.log.reconsider("news") == bool(self.refused)
        self.refused.clear()

    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        if self.refused:
            key = data.draw(st.sampled_from(sorted(self.refused)))
            event = Event("news", b"", b"", key.id, created=key.stamp / 1e6, received=1.0)
            self.log.append([event]).result()
            self.refused.remove(key)
            self.stored.append(key)

    @rule(left=st.integers(1, 700))
    def retain(self, left: int) -> None:
        self.log.retain({"news": Retention(max_events=left)}, now=0.0)
        gone = self.stored[:-left]
        self.stored = self.stored[-left:]
        for key in gone:
            self.window = self.window.without(key.stamp, 1.0)

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = EventLog(self.home)

    @rule(seed=st.integers(0, 2**32))
    def compare(self, seed: int) -> None:
        if self.log.topic("news") is not None:
            check_history(self.log, sorted([*self.stored, *self.refused]), seed=seed)
            assert window_of(self.log) == self.window

    def teardown(self) -> None:
        if hasattr(self, "log"):
            with self.folder, self.log:
                self.compare(0)
                assert self.log.verify().ok


Life.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestAnyLife = Life.TestCase
