"""The audit finds what is missing, and tells what was promised from what was missed."""

from pathlib import Path

import pytest

from rumormill.core.event import Event
from rumormill.demo.run import Absence, Acknowledged, Audit, audit
from rumormill.demo.script import Script, write_script
from rumormill.log import EventLog

NAMES = {"reddit.com": "on the network"}
IDS = [b"one", b"two", b"three"]


def homes(folder: Path, contents: list[list[bytes]]) -> list[Path]:
    """Logs that hold these ids in the topic."""
    paths = []
    for number, ids in enumerate(contents):
        paths.append(folder / str(number))
        with EventLog(paths[-1]) as log:
            topic = NAMES["reddit.com"]
            events = [Event(topic, each, b"author", each, received=1.0) for each in ids]
            log.append(events).result()
    return paths


@pytest.fixture(scope="module")
def script() -> Script:
    """Three nodes and the observer; all follow the one topic."""
    found = write_script(3, 1, 1)
    assert found.topics == ("reddit.com",)
    assert all(topics == found.topics for topics in found.subscriptions)
    return found


def receipts(publisher: int = 0) -> list[Acknowledged]:
    """Node 0 got a receipt for each event, at 10, 20 and 30 seconds."""
    return [
        Acknowledged(publisher, "reddit.com", offset, each, 10.0 * (offset + 1))
        for offset, each in enumerate(IDS)
    ]


def test_nothing_is_missing(tmp_path: Path, script: Script) -> None:
    found = audit(script, NAMES, homes(tmp_path, [IDS, IDS, IDS[::-1], IDS]), receipts(), [])
    assert found == Audit(3, lost=0, owed=12, kept=12, missed_while_down=0, missing=0)


@pytest.mark.parametrize(
    ("log", "lost"),
    [(IDS[:2], 1), ([], 3), ([b"two", b"one", b"three"], 2), ([b"one", b"forged", b"three"], 1)],
)
def test_an_acknowledged_event_must_be_where_its_receipt_says(
    tmp_path: Path, script: Script, log: list[bytes], lost: int
) -> None:
    """At the receipt's offset, under the receipt's id."""
    assert audit(script, NAMES, homes(tmp_path, [log, IDS, IDS, IDS]), receipts(), []).lost == lost


def test_what_was_missed_by_the_dead_is_told_from_what_is_missing(
    tmp_path: Path, script: Script
) -> None:
    """Node 1 was dead from 15 to 25 seconds: that excuses the second event and no other."""
    paths = homes(tmp_path, [IDS, [b"one"], IDS, IDS[1:]])
    found = audit(script, NAMES, paths, receipts(), [Absence(1, 15.0, 25.0)])
    assert found == Audit(3, lost=0, owed=12, kept=9, missed_while_down=1, missing=2)


def test_who_never_came_back_is_excused_from_all_that_followed(
    tmp_path: Path, script: Script
) -> None:
    paths = homes(tmp_path, [IDS, [b"one"], IDS, IDS])
    found = audit(script, NAMES, paths, receipts(), [Absence(1, 15.0)])
    assert (found.missed_while_down, found.missing) == (2, 0)
