"""The judge of a round. It knows nothing but what nodes told their applications, and the logs.

What an application knows of a node are its attempts to publish, its receipts, what its
subscriptions were given and what it read. From that alone follows what must be true, whatever
happened to processes, disks, networks and clocks.
"""

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
            *_not_given(each),
        ):
            found.append(Violation(kind, node, text))
    found += _forked(seen)
    found += _not_everywhere(seen)
    return found


def _lost(seen: Seen) -> Iterable[tuple[str, str]]:
    """What the node said is kept, is kept: at this place, under this id, with this content."""
    logs = {(topic, place) for topic, places in seen.stored.items() for place in places}
    for kept in seen.kept:
        place = kept.offset, kept.id, kept.name
        if kept.offset >= 0 and (kept.topic, place) not in logs:
            yield "lost", f"acknowledged {kept.topic} {place} is not in its log"
    for what, observed in (("given", seen.given), ("read", seen.read)):
        for topic, places in observed.items():
            for place in places:
                if (topic, place) not in logs:
                    yield "lost", f"{what} {topic} {place} is not in its log"


def _unknown(seen: Seen, tried: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Everything was published by somebody, in this topic, with this content."""
    for topic, places in seen.stored.items():
        for place in places:
            if tried.get(place[2]) != topic:
                yield "unknown", f"nobody published {topic} {place}"


def _repeated(seen: Seen) -> Iterable[tuple[str, str]]:
    """No event is in a log twice or given twice; a new life goes on without a gap."""
    for where, observed in (("log", seen.stored), ("subscription", seen.given)):
        for topic, places in observed.items():
            for what, values in (
                ("id", Counter(id_ for _, id_, _ in places)),
                ("content", Counter(name for _, _, name in places)),
            ):
                for value, count in values.items():
                    if count > 1:
                        yield "repeated", f"{what} {value} is {count} times in its {where} {topic}"
            offsets = [offset for offset, _, _ in places]
            if offsets != list(range(len(places))):
                at = next(n for n, offset in enumerate(offsets) if n != offset)
                yield "gap", f"its {where} {topic} has offset {offsets[at]} as number {at}"


def _moved(seen: Seen) -> Iterable[tuple[str, str]]:
    """An event has one offset, whoever says so and whenever."""
    offsets: dict[tuple[str, str], dict[int, None]] = {}
    for observed in (seen.given, seen.read, seen.stored):
        for topic, places in observed.items():
            for offset, id_, _ in places:
                offsets.setdefault((topic, id_), {})[offset] = None
    for kept in seen.kept:
        if kept.offset >= 0:
            offsets.setdefault((kept.topic, kept.id), {})[kept.offset] = None
    for (topic, id_), places in offsets.items():
        if len(places) > 1:
            yield "moved", f"{topic} {id_} has the offsets {list(places)}"


def _not_given(seen: Seen) -> Iterable[tuple[str, str]]:
    """What was acknowledged to a node is given to its subscription as well."""
    for kept in seen.kept:
        if kept.offset >= len(seen.given.get(kept.topic, ())):
            yield "not given", f"{kept.topic} {kept.offset} {kept.name} has a receipt"


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
    logs = {
        node: {
            (topic, id_, name) for topic, places in each.stored.items() for _, id_, name in places
        }
        for node, each in seen.items()
    }
    for node, each in seen.items():
        for kept in each.kept:
            event = kept.topic, kept.id, kept.name
            lacking = [other for other, log in logs.items() if event not in log]
            if len(lacking) == len(logs):
                yield Violation("lost", node, f"acknowledged {event} is in nobody's log")
            elif lacking:
                text = f"acknowledged {event} is not in the log of {', '.join(lacking)}"
                yield Violation("lost elsewhere", node, text)
