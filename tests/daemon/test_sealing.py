"""Sealing ahead: what is served in bulk has its segments before the first read."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rumormill.daemon.flight_door import _REFUSED_SECONDS, _Sealer, sealing_ahead
from rumormill.log import EventLog, Retention, StoreConfig, segments
from rumormill.log.arrow import read_batches
from store_samples import fill

ROWS = 64
EVENTS = 300
WHOLE = EVENTS // ROWS
SMALL = StoreConfig(segment_rows=ROWS, open_verify_bytes=1)
PATIENCE_SECONDS = 600.0


def sealed(home: Path) -> list[int]:
    """Where segments begin."""
    names = [path.name for path in (home / "segments").glob("*/*")]
    return sorted(int(name) for name in names if name.isdigit())


def wait_until(holds: Callable[[], bool]) -> None:
    """Give the sealer's thread its time."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, "the sealer did not come so far"
        time.sleep(0.005)


class Rests(threading.Event):
    """Notes how long the sealer wants to rest, lets it go on at once, and ends after some looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.asked: list[float] = []
        self._looks = looks

    def wait(self, timeout: float | None = None) -> bool:
        """Rest no time at all."""
        assert timeout is not None
        self.asked.append(timeout)
        return self.asked.count(_REFUSED_SECONDS) >= self._looks or len(self.asked) > 100


def test_the_first_read_of_a_served_store_finds_segments(home) -> None:
    """Whole ranges are sealed; the end of the topic waits until it is one."""
    with EventLog(home, SMALL) as log:
        fill(log, EVENTS)
        with sealing_ahead(log, look_seconds=0.01):
            wait_until(lambda: len(sealed(home)) == WHOLE)
            assert sum(batch.num_rows for batch in read_batches(log, "news", 0, EVENTS)) == EVENTS
            assert log.segments.counters.used == WHOLE
            fill(log, 40, start=EVENTS)
            wait_until(lambda: len(sealed(home)) == WHOLE + 1)
        assert sealed(home) == [ROWS * number for number in range(WHOLE + 1)]
        assert log.segments.counters.sealed == WHOLE + 1


def test_a_reader_beside_the_writer_seals_too(home) -> None:
    """As `serve-store` does for a node in another process."""
    with EventLog(home, SMALL) as writer, EventLog(home, SMALL, read_only=True) as log:
        with sealing_ahead(log, look_seconds=0.01):
            fill(writer, EVENTS)
            wait_until(lambda: len(sealed(home)) == WHOLE)
        assert writer.segments.counters.sealed == 0


def test_every_topic_is_looked_at_and_every_range_once(home) -> None:
    """A segment that somebody deletes is made again by the next who reads the range."""
    with EventLog(home, SMALL) as log:
        fill(log, ROWS, topic="news")
        fill(log, 2 * ROWS, topic="weather")
        with sealing_ahead(log, look_seconds=0.001):
            wait_until(lambda: log.segments.counters.sealed == 3)
            for path in (home / "segments").glob("*/*"):
                path.unlink()
            fill(log, ROWS, topic="late")
            wait_until(lambda: log.segments.counters.sealed == 4)
        assert sealed(home) == [0]


def test_what_is_damaged_is_left_to_readers(home, caplog) -> None:
    """One bad row costs its own range the segment, and nobody else theirs."""
    with EventLog(home, SMALL) as log:
        fill(log, EVENTS)
    db = sqlite3.connect(next(home.glob("events-*.db")))
    db.execute("UPDATE events SET data = x'00' WHERE rowid = (SELECT min(rowid) + 70 FROM events)")
    db.commit()
    db.close()
    caplog.set_level("INFO", "rumormill.log")
    with EventLog(home, SMALL, read_only=True) as log, sealing_ahead(log, look_seconds=0.01):
        wait_until(lambda: len(sealed(home)) == WHOLE - 1)
    assert sealed(home) == [0, 128, 192]
    assert "offsets from 64 of topic 'news' are not sealed" in caplog.text


@pytest.mark.parametrize("why", ["full", "another user"])
def test_where_nothing_can_be_written_it_rests(home, monkeypatch, why: str) -> None:
    """The first refusal is the last for minutes: the rows are not read in vain."""
    with EventLog(home, SMALL) as log:
        fill(log, EVENTS)
        if why == "full":
            monkeypatch.setattr(segments, "FREE_BYTES", 1 << 60)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
        over = Rests(looks=2)
        _Sealer(log, log.segments, over).run(look_seconds=1.0)
        assert over.asked[-1] == _REFUSED_SECONDS
        assert 1.0 not in over.asked
        assert log.segments.counters.refused == 2, "one for each look, and four ranges are whole"
        assert not sealed(home)


def test_what_retention_deletes_is_not_sealed(home) -> None:
    """The first range that is whole begins behind what is gone."""
    with EventLog(home, SMALL) as log:
        fill(log, EVENTS)
        log.retain({"news": Retention(max_events=200)}, 2000.0)
        with sealing_ahead(log, look_seconds=0.01):
            wait_until(lambda: len(sealed(home)) == 2)
        assert sealed(home) == [128, 192]


def test_without_segments_there_is_no_thread(home) -> None:
    """A store may do without."""
    with EventLog(home, StoreConfig(segment_rows=0)) as log:
        fill(log, EVENTS)
        before = threading.active_count()
        with sealing_ahead(log):
            assert threading.active_count() == before
        assert not (home / "segments").exists()
