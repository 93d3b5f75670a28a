"""A simulated peer's journal: where its machine and its disk meet, in virtual time.

It keeps the contract of a node's journal: events are committed in the order of appending, a barrier
is answered when its event is safe or lost, and a read sees what was appended before it. Here the
disk takes as long as the scenario says, may be full or broken, and a crash takes back whatever was
not committed. What was committed survives: the journal belongs to the host, not to the machine.
An event that it has already is not handed out again.

When it holds too many events, or one for too long, those that were kept first are deleted, as a
log's retention would do, whenever something is kept or read. What was deleted is not kept again.
"""

from itertools import islice
from typing import Final

import msgspec

from rumormill.core.effects import (
    Append,
    ById,
    Computation,
    Disregard,
    KeepNote,
    Load,
    Notes,
    Records,
)
from rumormill.core.event import Event, KeptRecord, Note
from rumormill.core.history import SUM_BITS, Deleted, HistoryQuery, Key, stamp_of, topic_tag
from rumormill.core.ids import MessageId, Topic
from rumormill.core.inputs import Loaded
from rumormill.sim.histories import MemoryHistory

DEFAULT_LIMIT: Final = 100_000
"""Events that one peer keeps; our choice: more than the runs that we ship publish."""

PIECE: Final = 256
"""Events in the answer to one `Load`, as in a node."""


class Kept:
    """The events of one topic, by offset and by id, and the order of its history."""

    __slots__ = ("deleted", "events", "history", "next_offset", "offsets")

    def __init__(self, topic: Topic, sum_bits: int) -> None:
        self.events: dict[int, Event] = {}
        self.offsets: dict[MessageId, int] = {}
        self.next_offset = 0
        self.history = MemoryHistory(topic, self.find, sum_bits)
        self.deleted = Deleted()

    def find(self, event_id: MessageId) -> Event | None:
        """The event with an id."""
        offset = self.offsets.get(event_id)
        return None if offset is None else self.events[offset]


class Journal:
    """One peer's committed events, and those on their way to the disk."""

    def __init__(
        self,
        *,
        commit_delay: float = 0.0,
        limit: int = DEFAULT_LIMIT,
        max_age: float | None = None,
        indexed: bool = False,
        sum_bits: int = SUM_BITS,
        keeps_events: bool = True,
    ) -> None:
        self.commit_delay = commit_delay
        """Seconds from an append to its commit."""
        self.keeps_events = keeps_events
        """Whether events are put here at all: not where nobody reads them back."""
        self.trouble = ""
        """Why nothing can be committed now; empty while the disk works."""
        self._limit, self._max_age = limit, max_age
        self._indexed, self._sum_bits = indexed, sum_bits
        """Whether histories are compared, and how long the sums are by which that is done."""
        self._tags: dict[bytes, Topic] = {}
        self._topics: dict[Topic, Kept] = {}
        self._order: dict[tuple[Topic, MessageId], None] = {}
        self._notes: dict[str, Note] = {}
        self.records: dict[bytes, KeptRecord] = {}
        self._waiting: list[Append | KeepNote] = []
        self._loads: list[Load] = []

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: tuple[Topic, MessageId]) -> bool:
        return key in self._order

    # What the machine asks for.

    def append(self, effect: Append | KeepNote) -> bool:
        """Take an event or a note on its way to the disk; return whether it begins a commit."""
        self._waiting.append(effect)
        return len(self._waiting) == 1

    def load(self, effect: Load) -> Loaded | None:
        """Read at once, or behind the appends that wait: then the commit brings the answer."""
        if self._waiting and not isinstance(effect.query, Computation):
            self._loads.append(effect)
            return None
        return self._read(effect)

    def commit(self, now: float) -> tuple[list[Append], list[Loaded]]:
        """Put what waits on the disk, unless there is `trouble`; then do the reads behind it."""
        batch, self._waiting = self._waiting, []
        loads, self._loads = self._loads, []
        appends = []
        for each in batch:
            if isinstance(each, Append):
                known = not self.trouble and not self.keep(each.event, now)
                appends.append(msgspec.structs.replace(each, deliver=False) if known else each)
            elif not self.trouble:
                self._keep_note(each.note)
        return appends, [self._read(load) for load in loads]

    def _keep_note(self, note: Note | KeptRecord) -> None:
        if isinstance(note, Note):
            if note.value:
                self._notes[note.key] = note
            else:
                self._notes.pop(note.key, None)
        elif note.value is None:
            self.records.pop(note.key, None)
        else:
            self.records[note.key] = note

    def crash(self) -> tuple[list[Append], list[Load]]:
        """Lose what was not committed; return it, and the reads that nobody will answer."""
        lost, self._waiting = self._waiting, []
        loads, self._loads = self._loads, []
        return [each for each in lost if isinstance(each, Append)], loads

    # The disk.

    def keep(self, event: Event, now: float) -> bool:
        """Keep an event; return whether it is new."""
        if (event.topic, event.id) in self._order:
            return False
        kept = self._kept(event.topic)
        event = msgspec.structs.replace(event, offset=kept.next_offset, received=now)
        if kept.deleted.has(event):
            return False
        if self._indexed:
            kept.history.add(Key(stamp_of(event), event.id))
        kept.next_offset += 1
        kept.offsets[event.id] = event.offset
        kept.events[event.offset] = event
        self._order[event.topic, event.id] = None
        self.retain(now)
        return True

    def _kept(self, topic: Topic) -> Kept:
        kept = self._topics.get(topic)
        if kept is None:
            kept = self._topics[topic] = Kept(topic, self._sum_bits)
            self._tags[topic_tag(topic)] = topic
        return kept

    def retain(self, now: float) -> None:
        """Delete what is too much or too old."""
        while self._order:
            topic, event_id = oldest = next(iter(self._order))
            kept = self._topics[topic]
            event = kept.events[kept.offsets[event_id]]
            too_old = self._max_age is not None and event.received < now - self._max_age
            if not too_old and len(self._order) <= self._limit:
                return
            del self._order[oldest], kept.offsets[event_id], kept.events[event.offset]
            kept.history.delete(event)
            kept.deleted.add([(event.author, stamp_of(event), event.received)])

    # The histories, as `HistoryQuery`s see them.

    def history(self, topic: Topic) -> MemoryHistory | None:
        """A topic's history."""
        kept = self._topics.get(topic)
        return None if kept is None else kept.history

    def latest(self, topic: Topic, most: int) -> list[Event]:
        """The last events of a topic, by offset."""
        kept = self._topics.get(topic)
        return [] if kept is None else list(kept.events.values())[-most:]

    def named(self, tag: bytes) -> Topic | None:
        """The topic with this tag."""
        return self._tags.get(tag)

    def disregard(self, effect: Disregard) -> None:
        """Know an event that is not wanted."""
        self._kept(effect.topic).history.add(effect.key)

    def _read(self, load: Load) -> Loaded:
        if isinstance(load.query, Notes):
            prefix, after = load.query.prefix, load.query.after
            keys = [key for key in sorted(self._notes) if key.startswith(prefix) and key > after]
            notes = tuple([self._notes[key] for key in keys[:PIECE]])
            return Loaded(load.number, (), len(keys) > PIECE, notes)
        query = load.query
        if isinstance(query, Computation):
            return Loaded(load.number, answer=query.work_out())
        if isinstance(query, Records):
            behind = sorted(key for key in self.records if key > query.after)
            records = tuple([self.records[key] for key in behind[:PIECE]])
            return Loaded(load.number, more=len(behind) > PIECE, records=records)
        if isinstance(query, HistoryQuery):
            return Loaded(load.number, answer=query.work_out(self))
        kept = self._topics.get(load.topic)
        if kept is None:
            return Loaded(load.number, ())
        if isinstance(query, ById):
            ids = query.ids[:PIECE]
            found = [kept.events[kept.offsets[each]] for each in ids if each in kept.offsets]
            return Loaded(load.number, tuple(found), len(query.ids) > PIECE)
        first = next(iter(kept.events), kept.next_offset)
        places = range(max(query.offset, first), kept.next_offset)
        found_on = (kept.events[place] for place in places if place in kept.events)
        events = list(islice(found_on, PIECE + 1))
        return Loaded(load.number, tuple(events[:PIECE]), len(events) > PIECE)
