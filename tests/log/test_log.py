"""What an append promises and what a read gives back."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_nodes import run
from rumormill.core.errors import ConfigError, LimitError
from rumormill.core.event import Event
from rumormill.log import (
    Durability,
    EventLog,
    EventRefusedError,
    NotAStoreError,
    OffsetAheadError,
    OffsetGoneError,
    QueueFullError,
    Retention,
    StoreClosedError,
    StoreConfig,
    StoreFailedError,
    StoreReadOnlyError,
)
from rumormill.log import writer as writer_module
from rumormill.log.heads import HeadsFile
from store_samples import fill, make_event, read_all

MEMORY = StoreConfig(durability=Durability.MEMORY)


def with_offset(event: Event, offset: int) -> Event:
    return msgspec.structs.replace(event, offset=offset)


def test_events_come_back_exactly_with_dense_offsets_from_zero(log):
    """What was appended is what is read, numbered 0, 1, 2 … in each topic by itself."""
    events = [make_event(number, topic) for number in range(40) for topic in ("a", "b")]
    results = log.append(events).result()
    assert [result.offset for result in results] == [n for n in range(40) for _ in "ab"]
    for topic in ("a", "b"):
        expected = [with_offset(make_event(number, topic), number) for number in range(40)]
        assert read_all(log, topic) == expected


def test_a_reopened_log_goes_on_where_it_ended(home):
    """Offsets and content survive closing; the next event takes the next offset."""
    with EventLog(home) as log:
        fill(log, 120)
    with EventLog(home) as log:
        assert log.topic("news").next_offset == 120
        fill(log, 1, start=120)
        assert read_all(log) == [with_offset(make_event(n), n) for n in range(121)]


def test_an_event_is_found_by_topic_and_id(log):
    """As it was appended, with its offset; an id belongs to one topic, and retention ends it."""
    log.append([make_event(number, topic) for number in range(3) for topic in ("a", "b")]).result()
    assert log.find("b", make_event(2).id) == with_offset(make_event(2, "b"), 2)
    assert log.find("b", b"another id") is None
    assert log.find("nobody's", make_event(2).id) is None
    log.retain({"a": Retention(max_events=1)}, now=0.0)
    assert log.find("a", make_event(0).id) is None
    assert log.find("b", make_event(0).id) is not None


def test_a_known_id_is_answered_with_its_offset(log):
    """(topic, id) is unique: a second append says duplicate and takes no offset."""
    fill(log, 10)
    (again,) = log.append([make_event(3, data=b"other")]).result()
    assert (again.offset, again.duplicate) == (3, True)
    mixed = log.append([make_event(10), make_event(4), make_event(10), make_event(11)]).result()
    assert [(r.offset, r.duplicate) for r in mixed] == [
        (10, False),
        (4, True),
        (10, True),
        (11, False),
    ]
    (elsewhere,) = log.append([make_event(3, "other topic")]).result()
    assert (elsewhere.offset, elsewhere.duplicate) == (0, False)
    assert log.read("news", 3, 1)[0].data == make_event(3).data
    assert log.counters.duplicates == 3


def test_only_the_fsync_mode_says_when_an_event_was_durable(tmp_path):
    """`durable_at` is a time in the default mode and None in the weaker ones."""
    for mode in Durability:
        home = None if mode is Durability.MEMORY else tmp_path / mode
        with EventLog(home, StoreConfig(durability=mode)) as log:
            (result,) = log.append([make_event(0)]).result()
            assert (result.durable_at is not None) == (mode is Durability.FSYNC)
            assert read_all(log) == [with_offset(make_event(0), 0)]
            assert log.verify().ok


@pytest.mark.parametrize(("mode", "level"), [(Durability.FSYNC, 2), (Durability.OS, 1)])
def test_sqlite_is_told_to_flush_before_a_commit_returns_only_in_fsync_mode(home, mode, level):
    """synchronous = FULL (2) flushes at every commit, NORMAL (1) does not."""
    with EventLog(home, StoreConfig(durability=mode)) as log:
        db = log.writer().db
        assert db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_ticket_resolves_only_after_commit_and_heads(home, monkeypatch, caplog):
    """Commit, heads, ticket, in this order: without the heads there is no receipt."""
    order = []

    def note(self, generation, rows):
        with EventLog(home, read_only=True) as reader:
            order.append(("heads", {info.name: info.next_offset for info in reader.topics()}))

    with EventLog(home) as log:
        monkeypatch.setattr(HeadsFile, "note", note)
        log.append([make_event(0)]).add_done_callback(lambda _: order.append(("ticket", None)))
        log.append([make_event(1)]).result()
        assert order[:2] == [("heads", {"news": order[0][1]["news"]}), ("ticket", None)]

        def broken(self, generation, rows):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(HeadsFile, "note", broken)
        assert isinstance(log.append([make_event(2)]).exception(), StoreFailedError)
        with pytest.raises(StoreFailedError):
            log.append([make_event(3)])
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert "nothing more is stored: the store" in told


def test_asyncio_awaits_tickets_without_threads_of_its_own(log):
    """`asyncio.wrap_future` is all that a runtime needs."""

    async def publish() -> list[int]:
        tickets = [log.append([make_event(n)], wait=False) for n in range(20)]
        results = await asyncio.gather(*map(asyncio.wrap_future, tickets))
        return [result[0].offset for result in results]

    before = threading.active_count()
    assert run(publish) == list(range(20))
    assert threading.active_count() == before


def test_appends_of_many_threads_share_commits_and_keep_each_threads_order(log):
    """Eight threads, one dense sequence: every thread's events are in its own order."""

    def append_all(worker: int) -> None:
        for number in range(60):
            log.append([make_event(worker * 1000 + number)]).result()

    threads = [threading.Thread(target=append_all, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = read_all(log)
    assert [event.offset for event in events] == list(range(480))
    for worker in range(8):
        numbers = [int(event.id[3:]) for event in events if int(event.id[3:]) // 1000 == worker]
        assert numbers == [worker * 1000 + number for number in range(60)]
    assert log.counters.commits < 480


def test_queued_appends_become_one_commit(log):
    """Appends that wait while the writer is busy are committed together."""
    busy, go = threading.Event(), threading.Event()

    def block() -> None:
        busy.set()
        go.wait()

    log.writer().run(block)
    busy.wait()
    tickets = [log.append([make_event(number)]) for number in range(100)]
    before = log.counters.commits
    go.set()
    assert [ticket.result()[0].offset for ticket in tickets] == list(range(100))
    assert log.counters.commits - before == 1


def test_groups_are_bounded_by_count_and_by_bytes(home):
    """A group takes no more than its limits, but always at least one append."""
    config = StoreConfig(group_events=10, group_bytes=4000)
    with EventLog(home, config) as log:
        busy, go = threading.Event(), threading.Event()
        log.writer().run(lambda: (busy.set(), go.wait()))
        busy.wait()
        small = [log.append([make_event(0, id=b"s%d" % n, data=b"")]) for n in range(30)]
        large = [log.append([make_event(0, id=b"l%d" % n, data=bytes(3500))]) for n in range(3)]
        go.set()
        for ticket in (*small, *large):
            ticket.result()
        assert log.counters.commits == 3 + 3


def test_a_full_queue_refuses_or_waits_as_the_caller_chose(home):
    """Back-pressure: `wait=False` raises, `wait=True` goes on when there is room."""
    with EventLog(home, StoreConfig(queue_events=4)) as log:
        busy, go = threading.Event(), threading.Event()
        log.writer().run(lambda: (busy.set(), go.wait()))
        busy.wait()
        tickets = [log.append([make_event(n)], wait=False) for n in range(4)]
        with pytest.raises(QueueFullError, match="full with 4 events"):
            log.append([make_event(4)], wait=False)
        assert log.counters.refused == 1
        late = threading.Thread(target=lambda: log.append([make_event(5)]).result())
        late.start()
        go.set()
        late.join()
        for ticket in tickets:
            ticket.result()
        assert log.topic("news").next_offset == 5
        with pytest.raises(LimitError):
            log.append([make_event(n) for n in range(5)])


def test_a_cancelled_ticket_is_not_appended(log):
    """An append that was cancelled before the writer took it leaves no trace."""
    busy, go = threading.Event(), threading.Event()
    log.writer().run(lambda: (busy.set(), go.wait()))
    busy.wait()
    tickets = [log.append([make_event(n)]) for n in range(3)]
    assert tickets[1].cancel()
    go.set()
    assert tickets[2].result()[0].offset == 1
    assert [event.id for event in read_all(log)] == [b"id-0", b"id-2"]


def test_closing_commits_what_is_queued_and_refuses_the_rest(home):
    """No ticket is left hanging."""
    log = EventLog(home)
    tickets = [log.append([make_event(n)]) for n in range(50)]
    log.close()
    log.close()
    assert [ticket.result()[0].offset for ticket in tickets] == list(range(50))
    with pytest.raises(StoreClosedError):
        log.append([make_event(51)])
    with pytest.raises(StoreClosedError):
        log.read("news", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": b""},
        {"id": "text"},
        {"data": bytearray(b"x")},
        {"data": bytes(5 * 2**20)},
        {"received": float("nan")},
        {"created": float("inf")},
        {"received": None},
        {"topic": ""},
        {"topic": "a\0b"},
        {"topic": "\ud800"},
        {"topic": "x" * 1025},
        {"parents": [b"list"]},
        {"parents": (b"p",) * 1025},
        {"parents": ("text",)},
        {"protocol": "x" * 256},
    ],
)
def test_an_event_that_cannot_be_kept_exactly_is_refused_before_it_is_queued(log, changes):
    """One caller's bad event raises to that caller and to nobody else."""
    with pytest.raises(EventRefusedError):
        log.append([make_event(0, **changes)])
    assert log.append([make_event(1)]).result()[0].offset == 0


def test_the_number_of_topics_is_bounded(home):
    """A new topic beyond the limit is refused, known ones go on."""
    with EventLog(home, StoreConfig(max_topics=2)) as log:
        log.append([make_event(0, "a"), make_event(0, "b")]).result()
        with pytest.raises(EventRefusedError, match="2 topics"):
            log.append([make_event(0, "c")])
        log.append([make_event(1, "a")]).result()


@given(
    st.lists(
        st.builds(
            Event,
            topic=st.sampled_from(["a", "ünïcode", "\U0001f980"]),
            id=st.binary(min_size=1, max_size=8),
            author=st.binary(max_size=8),
            data=st.binary(max_size=50),
            received=st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 2**40),
            created=st.none() | st.floats(allow_nan=False, allow_infinity=False),
            parents=st.lists(st.binary(max_size=5), max_size=4).map(tuple),
            protocol=st.text(st.characters(codec="utf-8"), max_size=8),
            proof=st.binary(max_size=8),
        ),
        max_size=20,
    )
)
def test_any_acceptable_event_is_read_back_equal(events):
    """Whatever bytes, times and texts: the first event of each id comes back as it was."""
    with EventLog(None, MEMORY) as log:
        results = log.append(events).result()
        kept: dict[str, list[Event]] = {}
        for event, result in zip(events, results, strict=True):
            mine = kept.setdefault(event.topic, [])
            if not result.duplicate:
                assert result.offset == len(mine)
                mine.append(with_offset(event, result.offset))
            assert mine[result.offset].id == event.id
        assert {topic: read_all(log, topic) for topic in kept} == kept
        assert log.verify().ok


def test_reads_are_bounded_by_count_and_bytes_but_give_at_least_one(log):
    """A reader always gets on."""
    fill(log, 20)
    assert len(log.read("news", 5, limit=3)) == 3
    assert len(log.read("news", 5, max_bytes=1)) == 1
    assert log.read("news", 20) == []
    assert log.read("nobody wrote here", 0) == []


def test_an_offset_ahead_of_the_log_is_an_error(log):
    """A reader that has seen more than the log has must hear of it."""
    fill(log, 3)
    with pytest.raises(OffsetAheadError, match="next offset is 3"):
        log.read("news", 4)


def test_read_since_finds_the_first_event_at_or_after_a_time(log):
    """By receive time, also with a clock that went back in between."""
    fill(log, 1000)
    log.append([make_event(2000, received=500.0)]).result()
    log.append([make_event(2001, received=1900.0)]).result()
    assert [event.offset for event in log.read_since("news", 1700.0, limit=2)] == [700, 701]
    assert [event.offset for event in log.read_since("news", 1998.5)] == [999]
    assert [event.offset for event in log.read_since("news", 1899.0)][-1] == 1001
    assert log.read_since("news", 5000.0) == []
    assert len(log.read_since("news", 0.0, limit=5000)) == 1002
    assert log.read_since("nobody wrote here", 0.0) == []


def test_chunks_end_where_the_topic_ended_when_they_began(log):
    """A snapshot: events appended while reading are for the next reader."""
    fill(log, 100)
    seen = 0
    for chunk in log.chunks("news", limit=30):
        seen += len(chunk)
        fill(log, 1, start=100 + seen)
    assert seen == 100


def test_a_second_process_like_reader_sees_commits_of_the_writer(home, log):
    """A log opened for reading beside the writer follows it and cannot write."""
    fill(log, 10)
    with EventLog(home, read_only=True) as reader:
        assert reader.findings == ()
        fill(log, 10, start=10)
        assert read_all(reader) == read_all(log)
        with pytest.raises(StoreReadOnlyError):
            reader.append([make_event(0)])
    with pytest.raises(NotAStoreError):
        EventLog(home / "nothing here", read_only=True)


def test_the_write_ahead_log_is_folded_without_losing_anything(home):
    """Many checkpoints, with the file's own stamp noted each time."""
    with EventLog(home, StoreConfig(checkpoint_pages=20)) as log:
        fill(log, 600)
        assert log.verify().ok
    with EventLog(home) as log:
        assert len(read_all(log)) == 600


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        (Retention(max_events=30), 970),
        (Retention(max_age_seconds=100.0), 900),
        (Retention(max_bytes=100_000), None),
        (Retention(max_events=5000), 0),
    ],
)
def test_retention_deletes_the_oldest_and_never_moves_an_offset(home, policy, first):
    """`first_offset` moves up, everything behind it stays as it was, also after reopening."""
    with EventLog(home) as log:
        fill(log, 1000)
        before = read_all(log)
        deleted = log.retain({"news": policy}, now=2000.0)["news"]
        info = log.topic("news")
        assert info.first_offset == deleted == (deleted if first is None else first)
        assert policy.max_bytes is None or 95_000 < info.size <= 100_000
        assert info.next_offset == 1000
        assert read_all(log) == before[deleted:]
        if deleted:
            with pytest.raises(OffsetGoneError) as caught:
                log.read("news", 0)
            assert caught.value.first_offset == deleted
        assert log.verify().ok
    with EventLog(home) as log:
        fill(log, 1, start=1000)
        assert read_all(log)[:-1] == before[deleted:]
        assert log.read_since("news", 1990.0)[0].offset == 990


def test_a_topic_that_retention_emptied_goes_on_at_its_next_offset(home):
    """Offsets are never reused, even if nothing is left."""
    with EventLog(home) as log:
        fill(log, 700)
        assert log.retain({"news": Retention(max_age_seconds=1.0)}, now=1e9) == {"news": 700}
        assert read_all(log) == []
        assert log.verify().ok
    with EventLog(home) as log:
        assert log.append([make_event(700)]).result()[0].offset == 700
        assert log.read("news", 700)[0].id == b"id-700"


def test_retention_gives_space_back(home):
    """The file shrinks to what is left; appends go on meanwhile."""
    path = home / "events-1.db"
    with EventLog(home, StoreConfig(checkpoint_pages=50)) as log:
        fill(log, 2000)
        log.writer().run(log.writer().checkpoint).result()
        full = path.stat().st_size
        log.retain({"news": Retention(max_events=10)}, now=0.0)
        fill(log, 10, start=2000)
    assert path.stat().st_size < full / 5


def test_impossible_settings_are_refused_by_name():
    """A wrong value names its key."""
    for changes in ({"queue_events": 0}, {"linger_seconds": 2}, {"max_event_bytes": 2**40}):
        with pytest.raises(ConfigError, match=r"store\."):
            StoreConfig(**changes).validate()
    with pytest.raises(ConfigError, match="max_events"):
        Retention(max_events=0).validate()


def test_lingering_is_bounded_and_still_answers(home):
    """With a linger time a lone append is committed after it."""
    with EventLog(home, StoreConfig(linger_seconds=0.001)) as log:
        assert log.append([make_event(0)]).result()[0].offset == 0


def test_without_a_disk_what_is_little_is_committed_at_once():
    """No other thread is woken for it; it is read, numbered and counted like any append."""
    with EventLog(None, MEMORY) as log:
        wait_until_idle(log)
        first = log.append_soon([make_event(0), make_event(1)], (), unheard)
        assert [(place.offset, place.duplicate) for place in first] == [(0, False), (1, False)]
        again = log.append_soon([make_event(1), make_event(2)], (), unheard)
        assert [(place.offset, place.duplicate) for place in again] == [(1, True), (2, False)]
        assert log.append([make_event(3)]).result()[0].offset == 3
        assert read_all(log) == [with_offset(make_event(number), number) for number in range(4)]
        assert (log.counters.appended, log.counters.duplicates, log.counters.commits) == (4, 1, 3)


def test_nothing_is_committed_at_once_before_what_others_have_appended():
    """Nor while somebody reads, nor more than a little: all that waits for the writer's thread."""
    with EventLog(None, MEMORY) as log:
        release, begun = threading.Event(), threading.Event()
        job = log.writer().run(lambda: (begun.set(), release.wait()))
        begun.wait()
        ticket, told = log.append([make_event(0)]), Told()
        assert log.append_soon([make_event(1)], (), told) is None
        release.set()
        job.result()
        assert (ticket.result()[0].offset, told.result()[0].offset) == (0, 1)
        wait_until_idle(log)
        told = Told()
        many = [make_event(number) for number in range(2, 1000)]
        assert log.append_soon(many, (), told) is None
        assert [place.offset for place in told.result()] == [*range(2, 1000)]
        wait_until_idle(log)
        told = Told()
        with ThreadPoolExecutor(1) as other, log.snapshot():
            assert other.submit(log.append_soon, [make_event(1000)], (), told).result() is None
        assert told.result()[0].offset == 1000
        wait_until_idle(log)
        assert log.append_soon([make_event(1001)], (), unheard)[0].offset == 1001


def test_with_a_disk_another_thread_commits_and_tells(log):
    """A flush may take as long as it likes: it never happens in the thread of who appends."""
    wait_until_idle(log)
    told = Told()
    assert log.append_soon([make_event(0)], (), told) is None
    assert told.result()[0].offset == 0
    assert told.thread is not threading.current_thread()


def test_what_is_committed_at_once_is_indexed_like_the_rest():
    """The thread that sleeps meanwhile wakes when it is far behind."""
    with EventLog(None, MEMORY) as log:
        wait_until_idle(log)
        for start in range(0, 4200, 100):
            told = Told()
            events = [make_event(number) for number in range(start, start + 100)]
            assert log.append_soon(events, (), told) or told.result()
        quiet = threading.Event()
        while log.writer().backlog >= 4096:
            quiet.wait(0.05)
        with log.snapshot() as db:
            (indexed,) = db.execute("SELECT indexed_to FROM histories").fetchone()
        assert indexed >= 4200 - 4096


class Told(Future):
    """Hears of an append, and by which thread."""

    def __call__(self, outcome):
        self.thread = threading.current_thread()
        self.set_result(outcome)


def unheard(*_: object) -> None:
    raise AssertionError("what is done at once is told to nobody")


def wait_until_idle(log: EventLog) -> None:
    """Until the writer's thread has nothing more to do."""
    asleep = threading.Event()
    while not log.writer().is_idle:
        asleep.wait(0.001)


def test_who_reads_waits_for_no_commit(home, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the disk takes to flush one: an event loop asks for a topic's extent."""
    with EventLog(home) as log, ThreadPoolExecutor() as pool:
        fill(log, 3)
        found: list[int] = []
        commit = writer_module.put_topics

        def slow(*arguments: Any) -> None:
            found.append(pool.submit(lambda: len(log.read("news", 0))).result(timeout=20))
            found.append(pool.submit(lambda: log.topic("news").next_offset).result(timeout=20))
            commit(*arguments)

        monkeypatch.setattr(writer_module, "put_topics", slow)
        log.append([make_event(3)]).result()
        assert found == [3, 3]
        assert len(log.read("news", 0)) == 4
