"""What the logs hold when all is over, against what was promised.

A receipt promises that the event is in its publisher's log, whatever happens to the process. That
is checked event by event: the event of the receipt's offset has the receipt's id. What subscribers
have is counted as well: who was killed has missed what was published meanwhile, and some protocols
bring that back and some do not. The rule: everything that is missing is counted, none of it under
another name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rumormill.demo.script import Script
from rumormill.log.event_log import EventLog

_BATCH = 1000


class Acknowledged(msgspec.Struct, frozen=True):
    """A receipt: who published what, where it was kept, and when that was asked for."""

    publisher: int
    topic: str
    offset: int
    id: bytes
    asked_at: float


class Absence(msgspec.Struct):
    """When a node was killed, and when it had joined again."""

    node: int
    killed_at: float
    back_at: float | None = None


class Audit(msgspec.Struct, frozen=True):
    """What was found."""

    acknowledged: int
    lost: int
    """Acknowledged events that are not in their publisher's log."""
    owed: int
    """Pairs of an acknowledged event and a subscriber, whether or not it was up."""
    kept: int
    """Of those, the ones in the subscriber's log."""
    missed_while_down: int
    """Not there, and published between the subscriber's death and its return."""
    missing: int
    """Not there, without that excuse."""


def audit(
    script: Script,
    names: Mapping[str, str],
    homes: Sequence[Path],
    acknowledged: Sequence[Acknowledged],
    absences: Sequence[Absence],
) -> Audit:
    """Read every log and compare."""
    logs = [_ids(home, list(names.values())) for home in homes]
    lost = kept = owed = missed = 0
    for each in acknowledged:
        found = logs[each.publisher][names[each.topic]]
        lost += each.offset >= len(found) or found[each.offset] != each.id
    held = [{topic: dict.fromkeys(ids) for topic, ids in log.items()} for log in logs]
    for each in acknowledged:
        for node, topics in enumerate(script.subscriptions):
            if each.topic in topics:
                owed += 1
                has = each.id in held[node][names[each.topic]]
                kept += has
                missed += not has and _was_away(node, each.asked_at, absences)
    return Audit(len(acknowledged), lost, owed, kept, missed, owed - kept - missed)


def _ids(home: Path, topics: Sequence[str]) -> dict[str, list[bytes]]:
    """The ids of a log's events by topic, in the order of their offsets."""
    found: dict[str, list[bytes]] = {}
    with EventLog(home, read_only=True) as log:
        for topic in topics:
            ids = found[topic] = []
            while batch := log.read(topic, len(ids), _BATCH):
                ids += [event.id for event in batch]
    return found


def _was_away(node: int, moment: float, absences: Sequence[Absence]) -> bool:
    return any(
        each.node == node
        and each.killed_at <= moment
        and (each.back_at is None or moment < each.back_at)
        for each in absences
    )
