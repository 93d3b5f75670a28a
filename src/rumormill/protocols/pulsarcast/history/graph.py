"""A topic's history: the Merkle DAG of its events, ordered, verified and drawn.

Each event names its parent by CID, so whoever has an event knows what came before it, can see what
is missing, and can check that what arrives for it is the very thing. `EventGraph` keeps the links
alone and answers at once what the heads are and which parents are missing; it grows one event at a
time, in any order. The graph has no cycles, because nobody can name a hash before it exists.

The order of a history is: parents before children, and otherwise by date, and then by CID. Where
one peer publishes and links to what it saw last, that is one chain and the order is the chain's.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError, LimitError
from rumormill.core.event import Event
from rumormill.core.identity import Verifier
from rumormill.protocols.pulsarcast.format.codec import from_stored
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor, TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import fault_of
from rumormill.protocols.pulsarcast.reasons import (
    AUTHOR_NOT_ALLOWED,
    NO_PUBLISHER,
    NOT_ALLOWED,
)

MAX_EVENTS: Final = 1 << 20
"""Events in one graph. Our choice: about 300 MB, and sixty times the paper's busiest workload."""

WRONG_TOPIC: Final = "wrong-topic"
WRONG_FIELDS: Final = "wrong-fields"
NOT_PUBLISHED: Final = "not-published"


class EventGraph:
    """The links between the events of one topic."""

    __slots__ = ("_children", "_created", "_heads", "_limit", "_missing", "_parents")

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self._limit = limit
        self._parents: dict[bytes, bytes | None] = {}
        self._created: dict[bytes, float] = {}
        self._children: dict[bytes | None, list[bytes]] = {}
        self._heads: dict[bytes, None] = {}
        self._missing: dict[bytes, None] = {}

    def add(self, cid: bytes, parent: bytes | None, created: float = 0.0) -> bool:
        """Add an event; False where it was there. Beyond the limit it is a `LimitError`."""
        if cid in self._parents:
            return False
        if len(self._parents) == self._limit:
            raise LimitError(f"more than {self._limit} events in one history")
        self._parents[cid] = parent
        self._created[cid] = created
        self._children.setdefault(parent, []).append(cid)
        self._missing.pop(cid, None)
        if cid not in self._children:
            self._heads[cid] = None
        if parent is not None:
            if parent in self._parents:
                self._heads.pop(parent, None)
            else:
                self._missing[parent] = None
        return True

    def add_event(self, event: Event) -> bool:
        """Add a kept event by what it says of itself."""
        parent = event.parents[0] if event.parents else None
        return self.add(event.id, parent, event.created or 0.0)

    def __len__(self) -> int:
        return len(self._parents)

    def __contains__(self, cid: bytes) -> bool:
        return cid in self._parents

    def parent(self, cid: bytes) -> bytes | None:
        """The parent that an event of the graph names, there or not."""
        return self._parents[cid]

    def children(self, cid: bytes | None) -> tuple[bytes, ...]:
        """The events that name a parent, in the order of their coming; of None, the roots."""
        return tuple(self._children.get(cid, ()))

    def latest_child(self, cid: bytes) -> float:
        """When the newest event was created that names a parent; no time if none does."""
        dates = [self._created[child] for child in self._children.get(cid, ())]
        return max(dates, default=math.inf)

    @property
    def heads(self) -> tuple[bytes, ...]:
        """The events that none follows."""
        return tuple(self._heads)

    @property
    def roots(self) -> tuple[bytes, ...]:
        """The events that name no parent."""
        return self.children(None)

    @property
    def missing(self) -> tuple[bytes, ...]:
        """The parents that are named and not there."""
        return tuple(self._missing)

    @property
    def forks(self) -> tuple[bytes | None, ...]:
        """The events, or None for the beginning, that more than one event follows."""
        return tuple([cid for cid, following in self._children.items() if len(following) > 1])

    @property
    def is_chain(self) -> bool:
        """Whether there is one single line from a beginning to a head, with nothing missing."""
        return not self._missing and not self.forks

    def order(self) -> list[bytes]:
        """All events: parents before children, otherwise by date and CID."""
        created, children = self._created, self._children
        orphans = [cid for parent in self._missing for cid in children[parent]]
        waiting = [(created[cid], cid) for cid in (*self.roots, *orphans)]
        heapq.heapify(waiting)
        found: list[bytes] = []
        while waiting:
            cid = heapq.heappop(waiting)[1]
            found.append(cid)
            for child in children.get(cid, ()):
                heapq.heappush(waiting, (created[child], child))
        return found


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events in the order of a history, which does not depend on the order that they come in."""
    graph, kept = EventGraph(), {}
    for event in events:
        graph.add_event(event)
        kept[event.id] = event
    return [kept[cid] for cid in graph.order()]


def not_permitted(topic: TopicDescriptor, event: EventDescriptor) -> str | None:
    """Why the topic does not let the event stand in it, or None."""
    publisher, author = event.publisher, event.author
    if publisher is None:
        return NO_PUBLISHER
    if not topic.may_publish(publisher):
        return NOT_ALLOWED
    if author != publisher and not topic.may_request(author):
        return AUTHOR_NOT_ALLOWED
    return None


class Fault(msgspec.Struct, frozen=True, gc=False):
    """What is wrong with one event."""

    cid: bytes
    reason: str


class Gap(msgspec.Struct, frozen=True, gc=False):
    """A parent that is not there, and the events that name it."""

    cid: bytes
    needed_by: tuple[bytes, ...]


class Fork(msgspec.Struct, frozen=True, gc=False):
    """An event, or None for the beginning, that several events follow."""

    cid: bytes | None
    children: tuple[bytes, ...]


class HistoryReport(msgspec.Struct, frozen=True):
    """What a history consists of, and what is wrong with it.

    Events with a fault are counted in `events` and are not part of the graph. Unsigned ones, as the
    JavaScript original publishes them, are in the graph: their CIDs hold, their authors may not.
    """

    events: int
    heads: tuple[bytes, ...]
    roots: tuple[bytes, ...]
    gaps: tuple[Gap, ...]
    forks: tuple[Fork, ...]
    faults: tuple[Fault, ...]
    unsigned: int
    is_chain: bool

    @property
    def is_whole(self) -> bool:
        """Whether every event is what it says and none is missing before another."""
        return not self.gaps and not self.faults


@dataclass(eq=False)
class HistoryVerifier:
    """Checks kept events one by one: CIDs, topic, signatures, links.

    Where the topic's descriptor is known, it checks that each publisher was allowed to publish, and
    each author for whom another published to have asked for it.
    """

    topic: bytes
    verifier: Verifier
    descriptor: TopicDescriptor | None = None
    limit: int = MAX_EVENTS

    def __post_init__(self) -> None:
        self._graph = EventGraph(self.limit)
        self._faults: list[Fault] = []
        self._count = self._unsigned = 0

    def check(self, kept: Event) -> str | None:
        """Check one event and take it up; return what is wrong with it."""
        if self._count == self.limit:
            raise LimitError(f"more than {self.limit} events in one history")
        self._count += 1
        reason = self._fault(kept)
        if reason is None:
            self._graph.add_event(kept)
        else:
            self._faults.append(Fault(kept.id, reason))
        return reason

    def report(self) -> HistoryReport:
        """What the events seen so far amount to."""
        graph, faults = self._graph, self._faults
        return HistoryReport(
            self._count,
            graph.heads,
            graph.roots,
            tuple([Gap(cid, graph.children(cid)) for cid in graph.missing]),
            tuple([Fork(cid, graph.children(cid)) for cid in graph.forks]),
            tuple(faults),
            self._unsigned,
            graph.is_chain and not faults,
        )

    def _fault(self, kept: Event) -> str | None:
        try:
            signed = from_stored(kept)
        except DecodeError as error:
            return error.reason
        event, descriptor = signed.event, self.descriptor
        publisher, author = event.publisher, event.author
        if event.topic != self.topic:
            return WRONG_TOPIC
        if kept.author != author or kept.parents != (() if not event.parent else (event.parent,)):
            return WRONG_FIELDS
        if publisher is None:
            return NOT_PUBLISHED
        if descriptor is not None and (reason := not_permitted(descriptor, event)) is not None:
            return reason
        if not signed.publisher_signature and not signed.author_signature:
            self._unsigned += 1
            return None
        return fault_of(signed, self.verifier)


# A history drawn with characters: newest first, a column for each branch. An event is `*`, a parent
# that is missing is `?`, and branches come together at their parent:
#
#     * the newest
#     | * a branch
#     |/
#     * their parent
#     ? what is missing before it

MAX_COLUMNS: Final = 64
"""Our choice: what a wide terminal shows beside a line of text."""


def draw(graph: EventGraph, label: Callable[[bytes], str]) -> Iterator[str]:
    """The lines of the drawing; `label` says what stands beside an event or a missing parent.

    More branches side by side than there is room for are a `LimitError`.
    """
    columns: list[bytes] = []  # what comes next in each
    for cid in reversed(_with_missing(graph)):
        if cid not in columns:
            columns.append(cid)
            if len(columns) > MAX_COLUMNS:
                raise LimitError(f"more than {MAX_COLUMNS} branches side by side cannot be drawn")
        own = columns.index(cid)
        for other in range(len(columns) - 1, own, -1):
            if columns[other] == cid:
                yield _closing(len(columns), own, other)
                del columns[other]
        known = cid in graph
        marks = ["|"] * len(columns)
        marks[own] = "*" if known else "?"
        yield f"{' '.join(marks)} {label(cid)}"
        parent = graph.parent(cid) if known else None
        if parent is not None:
            columns[own] = parent
        else:
            if own + 1 < len(columns):
                yield _closing(len(columns), own, own)
            del columns[own]


def _with_missing(graph: EventGraph) -> list[bytes]:
    """The order of the history, with each missing parent before those that name it."""
    found: list[bytes] = []
    missing = dict.fromkeys(graph.missing)
    for cid in graph.order():
        parent = graph.parent(cid)
        if parent in missing:
            del missing[parent]
            found.append(parent)
        found.append(cid)
    return found


def _closing(count: int, into: int, closed: int) -> str:
    """A line in which a column ends, inside another to its left or by itself.

    Columns to the right of it move one place to the left.
    """
    line = [" "] * (2 * count)
    for column in range(count):
        if column < closed:
            line[2 * column] = "|"
            if into <= column < closed - 1:
                line[2 * column + 1] = "_"
        elif column > into:
            line[2 * column - 1] = "/"
    return "".join(line).rstrip()
