"""The judge of a round. It knows nothing but what nodes told their applications, and the logs.

What an application knows of a node are its attempts to publish, its receipts, what its
subscriptions were given and what it read. From that alone follows what must be true, whatever
happened to processes, disks, networks and clocks. Only upkeep takes anything away: a restore what
came after the copy, a repair what was damaged, retention the oldest. What it took is told, and its
offsets are used by nothing else.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Place = tuple[int, str, str]
"""An event in a log: offset, id, name. The name stands for the content, which contains nothing
else."""


@dataclass
class Kept:
    """A receipt. The offset is -1 where another node published the event on request."""

    topic: str
    offset: int
    id: str
    name: str


@dataclass
class Backup:
    """A copy of a home that the node said is there."""

    receipts: int
    """How many the node had given when it was asked for the copy."""
    has: dict[str, list[Place]] = field(default_factory=dict)
    """By topic, what is in it, in the end."""


@dataclass
class Seen:
    """What one node told its application in all its lives."""

    tried: dict[str, str] = field(default_factory=dict)
    """Topics by the names of the events that it was asked to publish."""
    kept: list[Kept] = field(default_factory=list)
    given: dict[str, list[Place]] = field(default_factory=dict)
    """By topic, what its subscription was given; a new life goes on behind the last."""
    read: dict[str, list[Place]] = field(default_factory=dict)
    """By topic, whatever else was read of its history, at any time."""
    stored: dict[str, list[Place]] = field(default_factory=dict)
    """By topic, its log in the end, in order."""
    backups: dict[str, Backup] = field(default_factory=dict)
    dates: dict[str, int] = field(default_factory=dict)
    """The dates of events, by id."""

    # What it was told to do away with.

    damaged: dict[tuple[str, int], None] = field(default_factory=dict)
    """Topics and offsets of events that the suite has damaged."""
    lost: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offsets that its log says are empty for ever, since a repair, or a restore of a copy without
    them; and how many events it had been asked to publish when it said so."""
    least: int | None = None
    """How many of the newest events of a topic retention had to leave; None if there was none."""
    first: dict[str, int] = field(default_factory=dict)
    """The first offset that retention has left, by topic."""
    window: dict[str, int] = field(default_factory=dict)
    """From which date on retention has deleted nothing: what is older does not come again."""

    def is_gone(self, topic: str, offset: int) -> bool:
        """Whether the log need not have what it had there."""
        return (topic, offset) in self.lost or offset < self.first.get(topic, 0)

    def ids(self, observed: Mapping[str, list[Place]]) -> set[tuple[str, str]]:
        """What it has, by what was observed of it."""
        return {
            (topic, id_)
            for topic, places in observed.items()
            for offset, id_, _ in places
            if (topic, offset) not in self.lost
        }

    def forgot(self, topic: str, id_: str, date: int) -> bool:
        """Whether retention has deleted an event, or what is as old."""
        first = self.first.get(topic, 0)
        had = any(id_ == each for offset, each, _ in self.given.get(topic, ()) if offset < first)
        return had or (first > 0 and date < self.window.get(topic, 0))


@dataclass(frozen=True)
class Violation:
    """Something that is not as promised."""

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.text}"


def check(seen: Mapping[str, Seen]) -> list[Violation]:
    """Everything that is not as promised."""
    found: list[Violation] = []
    tried = {name: topic for each in seen.values() for name, topic in each.tried.items()}
    for node, each in seen.items():
        for kind, text in (
            *_lost(each),
            *_unknown(each, tried),
            *_repeated(each),
            *_moved(each),
            *_reused(each),
            *_not_given(each),
            *_overdone(each),
            *_not_copied(each),
        ):
            found.append(Violation(kind, node, text))
    found += _forked(seen)
    found += _not_everywhere(seen)
    return found


def owed(
    seen: Mapping[str, Seen], has: Mapping[str, set[tuple[str, str]]]
) -> Iterable[tuple[str, Kept, list[str]]]:
    """Receipts of nodes, and who lacks what was acknowledged and must have it.

    What upkeep has taken from its publisher before anybody else had it may be nowhere; else it
    comes again. Who has deleted what is as old need not have it.
    """
    dates = {id_: date for each in seen.values() for id_, date in each.dates.items()}
    losers = {topic for each in seen.values() for topic, _ in each.lost}
    losers |= {topic for each in seen.values() for topic, first in each.first.items() if first}
    for node, each in seen.items():
        order = {name: number for number, name in enumerate(each.tried)}
        for kept in each.kept:
            event = kept.topic, kept.id
            lacking = [name for name, ids in has.items() if event not in ids]
            if not lacking:
                continue
            taken = each.lost.get((kept.topic, kept.offset), -1) > order.get(kept.name, -1)
            taken |= 0 <= kept.offset < each.first.get(kept.topic, 0)
            # Its own application was given it all the same.
            nowhere = all(name in lacking for name in has if name != node)
            if nowhere and (taken or (kept.offset < 0 and kept.topic in losers)):
                continue
            date = dates.get(kept.id, math.inf)
            lacking = [name for name in lacking if not seen[name].forgot(*event, date)]
            if lacking:
                yield node, kept, lacking


def _lost(seen: Seen) -> Iterable[tuple[str, str]]:
    """What the node said is kept, is kept: at this place, under this id, with this content.

    Unless its log was told to give it up; what it was asked to publish later has no place there.
    """
    logs = {(topic, place) for topic, places in seen.stored.items() for place in places}
    order = {name: number for number, name in enumerate(seen.tried)}
    for kept in seen.kept:
        place = kept.offset, kept.id, kept.name
        if kept.offset < 0 or (kept.topic, place) in logs:
            continue
        since = seen.lost.get((kept.topic, kept.offset))
        if not seen.is_gone(kept.topic, kept.offset) or (
            since is not None and since <= order.get(kept.name, -1)
        ):
            yield "lost", f"acknowledged {kept.topic} {place} is not in its log"
    for what, observed in (("given", seen.given), ("read", seen.read)):
        for topic, places in observed.items():
            for place in places:
                if (topic, place) not in logs and not seen.is_gone(topic, place[0]):
                    yield "lost", f"{what} {topic} {place} is not in its log"


def _unknown(seen: Seen, tried: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Everything was published by somebody, in this topic, with this content."""
    for topic, places in seen.stored.items():
        for place in places:
            if tried.get(place[2]) != topic:
                yield "unknown", f"nobody published {topic} {place}"


def _repeated(seen: Seen) -> Iterable[tuple[str, str]]:
    """No event is in a log twice or given twice; a new life goes on without a gap.

    What a log has given up comes again elsewhere, so it may be given again.
    """
    for where, observed in (("log", seen.stored), ("subscription", seen.given)):
        for topic, places in observed.items():
            standing = [each for each in places if (topic, each[0]) not in seen.lost]
            for what, values in (
                ("id", Counter(id_ for _, id_, _ in standing)),
                ("content", Counter(name for _, _, name in standing)),
            ):
                for value, count in values.items():
                    if count > 1:
                        yield "repeated", f"{what} {value} is {count} times in its {where} {topic}"
            before = -1 if where == "subscription" else seen.first.get(topic, 0) - 1
            for offset, _, _ in places:
                skipped = range(before + 1, offset)
                if offset <= before or not all(seen.is_gone(topic, each) for each in skipped):
                    yield "gap", f"in its {where} {topic} offset {offset} is behind {before}"
                before = offset


def _moved(seen: Seen) -> Iterable[tuple[str, str]]:
    """An event has one offset, whoever says so and whenever, but for those that were given up."""
    offsets: dict[tuple[str, str], dict[int, None]] = {}
    for topic, offset, id_ in _places(seen):
        if (topic, offset) not in seen.lost:
            offsets.setdefault((topic, id_), {})[offset] = None
    for (topic, id_), places in offsets.items():
        if len(places) > 1:
            yield "moved", f"{topic} {id_} has the offsets {list(places)}"


def _reused(seen: Seen) -> Iterable[tuple[str, str]]:
    """An offset is one event's, for ever."""
    ids: dict[tuple[str, int], dict[str, None]] = {}
    for topic, offset, id_ in _places(seen):
        ids.setdefault((topic, offset), {})[id_] = None
    for (topic, offset), found in ids.items():
        if len(found) > 1:
            yield "reused", f"{topic} offset {offset} was of {list(found)}"
    for topic, places in seen.stored.items():
        for offset, id_, _ in places:
            if (topic, offset) in seen.lost:
                yield "reused", f"{topic} offset {offset} was given up, and is of {id_}"


def _places(seen: Seen) -> Iterable[tuple[str, int, str]]:
    """Every topic, offset and id that anybody was told of."""
    copies = [each.has for each in seen.backups.values()]
    for observed in (seen.given, seen.read, seen.stored, *copies):
        for topic, places in observed.items():
            for offset, id_, _ in places:
                yield topic, offset, id_
    for kept in seen.kept:
        if kept.offset >= 0:
            yield kept.topic, kept.offset, kept.id


def _not_given(seen: Seen) -> Iterable[tuple[str, str]]:
    """What was acknowledged to a node is given to its subscription as well."""
    given = {(topic, offset) for topic, places in seen.given.items() for offset, _, _ in places}
    for kept in seen.kept:
        place = kept.topic, kept.offset
        if kept.offset >= 0 and place not in given and not seen.is_gone(*place):
            yield "not given", f"{kept.topic} {kept.offset} {kept.name} has a receipt"


def _overdone(seen: Seen) -> Iterable[tuple[str, str]]:
    """Retention deletes nothing but the oldest, and no more than it was told."""
    for topic, first in seen.first.items():
        left = len(range(first, seen.stored[topic][-1][0] + 1)) if seen.stored.get(topic) else 0
        if first > 0 and (seen.least is None or left < seen.least):
            yield "overdone", f"retention has left {left} of {topic}, from offset {first} on"


def _not_copied(seen: Seen) -> Iterable[tuple[str, str]]:
    """What had a receipt before a copy was asked for is in the copy."""
    for where, backup in seen.backups.items():
        has = {(topic, *place) for topic, places in backup.has.items() for place in places}
        for kept in seen.kept[: backup.receipts]:
            place = kept.topic, kept.offset, kept.id, kept.name
            if kept.offset >= 0 and place not in has and not seen.is_gone(kept.topic, kept.offset):
                yield "not copied", f"{place} has a receipt, and is not in {where}"


def _forked(seen: Mapping[str, Seen]) -> Iterable[Violation]:
    """An id is one content, wherever it is."""
    names: dict[str, str] = {}
    for node, each in seen.items():
        for places in each.stored.values():
            for _, id_, name in places:
                if names.setdefault(id_, name) != name:
                    yield Violation("forked", node, f"{id_} is {name} and {names[id_]}")


def _not_everywhere(seen: Mapping[str, Seen]) -> Iterable[Violation]:
    """What was acknowledged is in every log."""
    for node, kept, lacking in owed(seen, {n: each.ids(each.stored) for n, each in seen.items()}):
        event = kept.topic, kept.id, kept.name
        if len(lacking) == len(seen):
            yield Violation("lost", node, f"acknowledged {event} is in nobody's log")
        else:
            text = f"acknowledged {event} is not in the log of {', '.join(lacking)}"
            yield Violation("lost elsewhere", node, text)
