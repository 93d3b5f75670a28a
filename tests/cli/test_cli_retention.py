"""Retention from the command line, and by a node itself."""

import json
from pathlib import Path

import pytest

from processes import Terminal, rumormill
from rumormill.cli.numbers import retention_rules
from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.log import EventLog, Retention


def filled(home: Path, events: int = 100) -> None:
    """A log with a topic of so many events."""
    with EventLog(home) as log:
        numbers = range(events)
        log.append(
            [Event("news", b"%d" % n, b"", b"%d" % n, received=1e9 + n) for n in numbers]
        ).result()


def test_rules_as_people_write_them() -> None:
    """Age, size and number, for all topics or one."""
    rules = dict(retention_rules(["7d,1gb", "news=1000events", "a=b=90s"]))
    assert rules == {
        "": Retention(max_age_seconds=7 * 86400, max_bytes=10**9),
        "news": Retention(max_events=1000),
        "a=b": Retention(max_age_seconds=90),
    }


@pytest.mark.parametrize(
    "wrong", ["", "7", "7d,8d", "news=", "7parsecs", "0events", "-1d", "5events,"]
)
def test_rules_that_are_none(wrong: str) -> None:
    """One sentence says what to write."""
    with pytest.raises(ConfigError, match=r"^ret"):
        list(retention_rules([wrong]))


def test_what_is_beyond_is_shown_and_deleted(home: Path) -> None:
    """Offsets stay as they are."""
    filled(home)
    rule = ("--home", str(home), "--retain", "news=30events", "--json")
    shown = json.loads(rumormill("retention", *rule).stdout)
    assert (shown["events"], shown["beyond"], shown["deleted"]) == (100, 70, None)
    applied = json.loads(rumormill("retention", *rule, "--apply").stdout)
    assert (applied["events"], applied["deleted"]) == (30, 70)
    with EventLog(home, read_only=True) as log:
        (topic,) = log.topics()
        assert (topic.first_offset, topic.next_offset) == (70, 100)
    plain = rumormill("retention", "--home", home).stdout
    assert "keeps everything" in plain


def test_a_node_deletes_by_itself(home: Path) -> None:
    """Its rules come from its settings, and a command that names none applies those."""
    filled(home)
    with Terminal("node", "--home", home, "--retain", "30events") as node:
        node.prints()
        node.says("beyond its rule and deleted")
        applied = rumormill("retention", "--home", home, "--apply")
        assert "keeps 30 events\t0 deleted" in applied.stdout
    with EventLog(home, read_only=True) as log:
        assert [topic.first_offset for topic in log.topics()] == [70]


def test_an_unknown_topic_is_named(home: Path) -> None:
    """And nothing is made."""
    filled(home)
    refused = rumormill("retention", "weather", "--home", home)
    assert (refused.returncode, "no topic 'weather'" in refused.stderr) == (1, True)
