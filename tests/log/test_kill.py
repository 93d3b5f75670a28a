"""kill -9: every acknowledged event is there afterwards.

RUMORMILL_KILL_ROUNDS sets the rounds of the long test (500 by default).
"""

import os
import random
import sys
from pathlib import Path

import pytest

from processes import Program
from rumormill.core.history import BEGIN, END
from rumormill.log import EventLog

APPENDER = Path(__file__).with_name("appender.py")
THREADS = 4


def run_until_killed(home: Path, prefix: str, lines_before_kill: int) -> list[tuple[str, int, str]]:
    """Kill the appender right after it has acknowledged some events; return all receipts."""
    with Program([sys.executable, APPENDER, home, str(THREADS), prefix]) as child:
        assert child.hears() == "ready"
        child.prints(1 + lines_before_kill)
        child.kill()
    receipts = [line.split() for line in child.output[1:]]
    return [(topic, int(offset), id_) for topic, offset, id_ in receipts]


def check_store(home: Path, receipts: list[tuple[str, int, str]]) -> None:
    """Reopen and compare: nothing acknowledged is lost, nothing is twice, nothing is half."""
    with EventLog(home) as log:
        stored: dict[tuple[str, int], str] = {}
        for info in log.topics():
            events = [event for chunk in log.chunks(info.name) for event in chunk]
            assert [event.offset for event in events] == list(range(info.next_offset))
            ids = [event.id for event in events]
            assert len(dict.fromkeys(ids)) == len(ids)
            for event in events:
                assert event.data == event.id * 20
                stored[info.name, event.offset] = event.id.decode()
        for topic, offset, id_ in receipts:
            assert stored.get((topic, offset)) == id_
        report = log.verify()
        assert report.ok
        with log.histories() as histories:
            for info in log.topics():
                assert histories.history(info.name).summary(BEGIN, END).count == info.next_offset
        assert report.events == len(stored)


def kill_rounds(home: Path, rounds: int, seed: int) -> int:
    """Kill and reopen the same store again and again; return how many receipts were checked."""
    rng = random.Random(seed)
    receipts: list[tuple[str, int, str]] = []
    for round_ in range(rounds):
        count = rng.choice([0, 1, rng.randrange(20), rng.randrange(300)])
        receipts += run_until_killed(home, f"r{round_}", count)
        check_store(home, receipts)
    return len(receipts)


def test_every_acknowledged_event_survives_kill_9(tmp_path):
    """Ten kills of one store at random moments, with four threads appending."""
    assert kill_rounds(tmp_path / "store", rounds=10, seed=1) > 0


@pytest.mark.slow
def test_every_acknowledged_event_survives_many_kills(tmp_path):
    """The long mode: a fresh store every twenty kills, so that young stores are killed too."""
    rounds = int(os.environ.get("RUMORMILL_KILL_ROUNDS", "500"))
    for seed in range(max(1, rounds // 20)):
        assert kill_rounds(tmp_path / f"store-{seed}", rounds=20, seed=seed) > 0
