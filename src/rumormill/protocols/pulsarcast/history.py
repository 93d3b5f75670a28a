"""A topic's history: the Merkle DAG of its events, walked, ordered and verified.

Each event names its parent by CID, so whoever has an event knows what came before it, can see what
is missing, and can check that what arrives for it is the very thing. `EventGraph` keeps the links
alone and answers at once what the heads are and which parents are missing; it grows one event at a
time, in any order. The graph has no cycles, because nobody can name a hash before it exists.

The order of a history is: parents before children, and otherwise by date, and then by CID. Where
one peer publishes and links to what it saw last, that is one chain and the order is the chain's.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from rumormill.core.archive import Archive
from rumormill.core.errors import DecodeError, LimitError
from rumormill.core.event import Event
from rumormill.core.identity import Verifier
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.proof import from_stored
from rumormill.protocols.pulsarcast.reasons import AUTHOR_NOT_ALLOWED, NOT_ALLOWED
from rumormill.protocols.pulsarcast.signing import SignedEvent, fault_of

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
        return self._ordered([*self.roots, *self._orphans()])

    def following(self, cid: bytes) -> list[bytes]:
        """The events that descend from one, in order, without itself."""
        return self._ordered(self._children.get(cid, []))

    def back(self, cid: bytes) -> Iterator[bytes]:
        """Walk from an event to its beginning, or to the last one before a missing parent."""
        current: bytes | None = cid
        while current is not None and current in self._parents:
            yield current
            current = self._parents[current]

    def unknown_to(self, known: Iterable[bytes]) -> list[bytes]:
        """In order, the events that are neither among `known` nor ancestors of one of them."""
        seen: dict[bytes, None] = {}
        for head in known:
            for cid in self.back(head):
                if cid in seen:
                    break
                seen[cid] = None
        return [cid for cid in self.order() if cid not in seen]

    def _orphans(self) -> list[bytes]:
        return [cid for parent in self._missing for cid in self._children[parent]]

    def _ordered(self, first: list[bytes]) -> list[bytes]:
        created, children = self._created, self._children
        waiting = [(created[cid], cid) for cid in first]
        heapq.heapify(waiting)
        found: list[bytes] = []
        while waiting:
            cid = heapq.heappop(waiting)[1]
            found.append(cid)
            for child in children.get(cid, ()):
                heapq.heappush(waiting, (created[child], child))
        return found


class Missing(msgspec.Struct, frozen=True, gc=False):
    """Where a walk ends too early: an event that is not there, or not what its name says."""

    cid: bytes
    reason: str = "missing"


def walk_back(
    archive: Archive, topic: bytes, start: bytes, limit: int = MAX_EVENTS
) -> Iterator[SignedEvent | Missing]:
    """Follow parent links through what a peer kept, checking every CID.

    The walk ends behind an event without a parent, after `limit` events, or with a `Missing`.
    """
    name = cids.text(topic)
    wanted: bytes | None = start
    while wanted is not None and limit > 0:
        kept = archive.get(name, wanted)
        if kept is None:
            yield Missing(wanted)
            return
        signed = _checked(kept, topic)
        if isinstance(signed, str):
            yield Missing(wanted, signed)
            return
        yield signed
        wanted = signed.event.parent
        limit -= 1


def graph_of(events: Iterable[Event], limit: int = MAX_EVENTS) -> EventGraph:
    """The graph of kept events."""
    graph = EventGraph(limit)
    for event in events:
        graph.add_event(event)
    return graph


def walk_forward(
    archive: Archive, topic: bytes, known: Iterable[bytes] = (), limit: int = MAX_EVENTS
) -> Iterator[SignedEvent | Missing]:
    """Go through what a peer kept from the beginning, or from behind what is `known`, in order.

    `known` are heads: whoever has an event is taken to have what came before it.
    """
    name = cids.text(topic)
    for cid in graph_of(archive.scan(name)).unknown_to(known)[:limit]:
        kept = archive.get(name, cid)
        if kept is None:
            yield Missing(cid)
            continue
        signed = _checked(kept, topic)
        yield Missing(cid, signed) if isinstance(signed, str) else signed


def _checked(kept: Event, topic: bytes) -> SignedEvent | str:
    """A kept event, or why it is none of the topic's."""
    try:
        signed = from_stored(kept)
    except DecodeError as error:
        return error.reason
    event = signed.event
    if event.topic != topic:
        return WRONG_TOPIC
    parents = () if event.parent is None else (event.parent,)
    if kept.author != event.author or kept.parents != parents:
        return WRONG_FIELDS
    return signed


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


class HistoryVerifier:
    """Checks kept events one by one: CIDs, topic, signatures, links.

    Where the topic's descriptor is known, it checks that each publisher was allowed to publish, and
    each author for whom another published to have asked for it.
    """

    def __init__(
        self,
        topic: bytes,
        verifier: Verifier,
        descriptor: TopicDescriptor | None = None,
        limit: int = MAX_EVENTS,
    ) -> None:
        self._topic = topic
        self._verifier = verifier
        self._descriptor = descriptor
        self._graph = EventGraph(limit)
        self._faults: list[Fault] = []
        self._limit = limit
        self._count = self._unsigned = 0

    def check(self, kept: Event) -> str | None:
        """Check one event and take it up; return what is wrong with it."""
        if self._count == self._limit:
            raise LimitError(f"more than {self._limit} events in one history")
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
        signed = _checked(kept, self._topic)
        if isinstance(signed, str):
            return signed
        publisher = signed.event.publisher
        if publisher is None:
            return NOT_PUBLISHED
        descriptor = self._descriptor
        if descriptor is not None and not descriptor.may_publish(publisher):
            return NOT_ALLOWED
        author = signed.event.author
        if descriptor is not None and author != publisher and not descriptor.may_request(author):
            return AUTHOR_NOT_ALLOWED
        if not signed.publisher_signature and not signed.author_signature:
            self._unsigned += 1
            return None
        return fault_of(signed, self._verifier)


def verify_history(
    events: Iterable[Event],
    topic: bytes,
    verifier: Verifier,
    descriptor: TopicDescriptor | None = None,
    limit: int = MAX_EVENTS,
) -> HistoryReport:
    """Check a whole history at once."""
    checking = HistoryVerifier(topic, verifier, descriptor, limit)
    for event in events:
        checking.check(event)
    return checking.report()
