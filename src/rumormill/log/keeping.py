"""How much of topics is kept: the rules, what is beyond them, and the space that is left.

A rule belongs to a topic, or to all that have none of their own. What was deleted does not come
back: the log knows how far it has deleted.
"""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.core.ids import Topic
from rumormill.log import files, reader
from rumormill.log.check import valid_epoch
from rumormill.log.errors import OffsetGoneError, translated
from rumormill.log.event_log import EventLog
from rumormill.log.model import Retention, TopicExtent
from rumormill.log.retention import give_back

ALL_TOPICS: Final = ""
"""Stands for the topics that have no rule of their own."""
_SOME_ROOM: Final = 1 << 20
_BUSY_MILLISECONDS: Final = 200
"""How long appends may wait for readers so that the write-ahead log can be cut; our choice."""


class RetentionLine(msgspec.Struct, frozen=True):
    """A topic, and what a rule says of it; `oldest` is when its oldest event was received."""

    topic: str
    rule: Retention | None
    events: int
    bytes: int
    oldest: float | None
    beyond: int
    """Events that the rule would delete, as far as number and age say."""
    deleted: int | None = None


def rules_of(retain: Retention | Mapping[Topic, Retention] | None) -> dict[Topic, Retention]:
    """The rules by topic, that of all others under `ALL_TOPICS`; checked."""
    if retain is None:
        return {}
    if not isinstance(retain, Retention | Mapping):
        raise ConfigError(f"retain: give a Retention, or a dict of them by topic, not {retain!r}")
    rules = {ALL_TOPICS: retain} if isinstance(retain, Retention) else dict(retain)
    for topic, rule in rules.items():
        if not isinstance(rule, Retention):
            raise ConfigError(
                f"retain: {rule!r} is not a Retention, such as Retention(max_events=1000)"
            )
        try:
            rule.validate()
        except ConfigError as error:
            raise ConfigError(f"retain {topic!r}: {error}" if topic else str(error)) from None
    return rules


def rule_for(rules: Mapping[Topic, Retention], topic: Topic) -> Retention | None:
    """The rule of a topic, if it has one."""
    return rules.get(topic) or rules.get(ALL_TOPICS)


def delete_what_is_beyond(
    log: EventLog, rules: Mapping[Topic, Retention], topic: Topic | None = None
) -> dict[Topic, int]:
    """Apply the rules once, to one topic if it is named; return how many events went, by topic."""
    names = [each.name for each in log.topics() if topic in (None, each.name)]
    policies = {name: rule for name in names if (rule := rule_for(rules, name)) is not None}
    deleted = log.retain(policies, time.time())
    return {name: count for name, count in deleted.items() if count}


def retention_lines(
    log: EventLog, rules: Mapping[Topic, Retention], topic: Topic | None, *, apply: bool
) -> list[RetentionLine]:
    """What the log has of its topics, or of one, and what is beyond; or was, and is deleted."""
    deleted = delete_what_is_beyond(log, rules, topic) if apply else None
    lines = [
        _line(log, each, rule_for(rules, each.name))
        for each in log.topics()
        if topic in (None, each.name)
    ]
    if deleted is None:
        return lines
    return [msgspec.structs.replace(each, deleted=deleted.get(each.topic, 0)) for each in lines]


def _line(log: EventLog, extent: TopicExtent, rule: Retention | None) -> RetentionLine:
    first, behind = extent.first_offset, extent.next_offset
    oldest = read_on(log, extent.name, first, 1)[1] if first < behind else []
    beyond = 0
    if rule is not None and rule.max_events is not None:
        beyond = max(0, behind - first - rule.max_events)
    if rule is not None and rule.max_age_seconds is not None and oldest:
        young = log.read_since(extent.name, time.time() - rule.max_age_seconds, 1)
        beyond = max(beyond, (young[0].offset if young else behind) - first)
    received = oldest[0].received if oldest else None
    return RetentionLine(extent.name, rule, behind - first, extent.size, received, beyond)


def behind_loss(log: EventLog, topic: Topic, offset: int) -> int:
    """The offset, or where reading goes on behind the recorded loss that it lies in."""
    return reader.behind_loss(log.losses(topic), offset)


def read_on(
    log: EventLog, topic: Topic, start: int, limit: int, max_bytes: int = 8 * 2**20
) -> tuple[int, list[Event]]:
    """Events from an offset on, and where they begin: behind what is recorded as lost, and behind
    what retention has deleted, as it may do at any moment."""
    while True:
        start = behind_loss(log, topic, start)
        try:
            return start, log.read(topic, start, limit, max_bytes)
        except OffsetGoneError as gone:
            start = gone.first_offset


def compact(log: EventLog, *, old: bool = False) -> int:
    """Give space that the log does not use back to the file system; return how many bytes.

    Free pages of the database and its write-ahead log go; with `old` also the databases that a
    repair or a restore has put aside. Others read and append meanwhile.
    """
    home = log.home
    if home is None:
        return 0
    with translated(str(home)):
        return _compact(log, home, old=old)


def _compact(log: EventLog, home: Path, *, old: bool) -> int:
    before = _used(home)
    writer = log.writer()
    give_back(writer)
    writer.run(writer.checkpoint).result()

    def cut() -> None:
        writer.db.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        try:
            writer.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            writer.db.execute("PRAGMA busy_timeout = 5000")

    def clear() -> None:  # by the writer: no repair is building the next one meanwhile
        for path in set_aside(home):
            path.unlink(missing_ok=True)

    writer.run(writer.exclusively(cut)).result()
    if old:
        writer.run(clear).result()
    return max(0, before - _used(home))


def has_room(log: EventLog) -> bool:
    """Whether a log that was full can be thought to have room again; the next append shows."""
    if log.home is None or log.config.max_database_bytes is not None:
        return False
    return files.spare_bytes(log.home, log.config.reserve_bytes) > _SOME_ROOM


def set_aside(home: Path) -> list[Path]:
    """The files of databases that do not count any more, or that a crash kept from counting."""
    valid = valid_epoch(home)
    found = [(path.name.partition(".")[0].removeprefix("events-"), path) for path in _files(home)]
    return [path for epoch, path in found if epoch.isdigit() and int(epoch) != valid and valid]


def _files(home: Path) -> list[Path]:
    return sorted(home.glob("events-*.db*"))


def _used(home: Path) -> int:
    used = 0
    for path in _files(home):
        with contextlib.suppress(FileNotFoundError):
            used += path.stat().st_blocks * 512
    return used
