"""Topic descriptors: those at hand, those being looked for, and which versions a topic has.

A descriptor is immutable and named by its hash, so one that was found once is right for ever. What
is at hand is bounded; what is in use is never put away. Descriptors of topics that this peer
created, subscribed to, or heard of as versions of those are kept as notes in the log, with the date
from which on the topic concerns us: a peer that comes back does not depend on others for what its
own topics are, and knows since when it subscribed, also if it went down before it found the topic:
then the note is the date alone. So a topic is looked for in memory, in the log, at peers who should
have it, and in the DHT, in this order.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, KeepNote, Notes, SetTimer
from rumormill.core.errors import DecodeError
from rumormill.core.event import Note
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.core.rate_limit import RateLimit
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import TopicView
from rumormill.protocols.pulsarcast.context import GRAVE, BlockFound, Context, LookTimer, TopicFound
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import Block
from rumormill.protocols.pulsarcast.format.descriptors import (
    TopicDescriptor,
    is_foreign,
    read_topic,
)
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher

_MORE_LOOKS: Final = 3
_FIRST_PAUSE: Final = 0.5
"""How often, and after how many seconds at first, a topic is looked for again while somebody waits
who asked about it; each pause is twice the one before. Our choice: within a command's patience."""

_WALKS: Final = 2.0
_WALKS_AT_ONCE: Final = 256.0
_MOST_WALKERS: Final = 1024
"""For how many unknown topics that one peer wants to join the DHT is asked, a second and at once,
if it does not show us the topic itself. Our choice: whoever joins has the descriptor and is asked
first, a JOIN is 90 bytes, and a search of the DHT a dozen questions to others."""

NOTES: Final = "pulsarcast/topic/"
"""What the keys of notes about topics begin with; the CID follows."""
_DATE_BYTES: Final = 8
EVER: Final = -1.0
"""The date since which a topic concerns us that the application wants whole."""


def note_of(descriptor: TopicDescriptor, since: float) -> Note:
    """A descriptor as the log keeps it, behind the date from which on it concerns us."""
    wish = wish_of(descriptor.cid, since)
    return Note(wish.key, wish.value + descriptor.dag())


def wish_of(cid: bytes, since: float) -> Note:
    """What the log keeps of a topic that is wanted and was not found yet."""
    date = round(since * 1000).to_bytes(_DATE_BYTES, "big", signed=True)
    return Note(NOTES + cids.text(cid), date)


def _date_of(note: Note) -> float:
    return int.from_bytes(note.value[:_DATE_BYTES], "big", signed=True) / 1000


def from_note(note: Note) -> tuple[TopicDescriptor, float] | None:
    """Read a kept descriptor back; None where it is not what its key says."""
    try:
        descriptor = read_topic(note.value[_DATE_BYTES:])
    except DecodeError:
        return None
    if note.key != NOTES + cids.text(descriptor.cid):
        return None
    return descriptor, _date_of(note)


def versions_in(notes: Iterable[Note], meta: bytes) -> list[TopicDescriptor]:
    """The kept versions of the topic with this meta topic."""
    read = [from_note(note) for note in notes if meta in note.value]
    return [found[0] for found in read if found is not None and found[0].meta == meta]


def view_of_kept(
    get: Callable[[str], bytes | None], keys: Iterable[str], cid: bytes
) -> TopicView | None:
    """What a log's notes alone say of a topic; None where they do not have it.

    `get` reads the note under a key, `keys` are those that begin with `NOTES`.
    """

    def kept(wanted: bytes) -> TopicDescriptor | None:
        key = NOTES + cids.text(wanted)
        value = get(key)
        found = None if value is None else from_note(Note(key, value))
        return None if found is None else found[0]

    topic = kept(cid)
    if topic is None:
        return None
    versions = {cid: topic}
    if topic.meta is not None:
        notes = (Note(key, get(key) or b"") for key in keys)
        versions |= {each.cid: each for each in versions_in(notes, topic.meta)}
    sub_topics = {name: kept(link) for name, link in topic.sub_topics.items()}
    return TopicView(topic, sub_topics, tuple(sorted(versions.values(), key=age)))


def age(descriptor: TopicDescriptor) -> tuple[str, bytes]:
    """What versions are sorted by."""
    return (descriptor.created, descriptor.cid)


class NoteReading(msgspec.Struct, frozen=True):
    """The log is asked for a topic's descriptor; these peers should have it if the log has not."""

    topic: bytes
    sources: tuple[PeerId, ...]
    wished: float | None = None
    """When the application subscribed, if it did."""


class TopicSearch(msgspec.Struct, frozen=True):
    """Others are asked for a topic's descriptor."""


class PatientLook(msgspec.Struct, frozen=True):
    """An operation that lets a topic be looked for a few times more: it may be so new that the DHT
    does not have it yet, and we that we know nobody to ask."""

    operation: msgspec.Struct
    looks: int = 0


class VersionHeard(msgspec.Struct, frozen=True):
    """The log is asked whether a version of a topic that was announced is kept already."""

    version: TopicDescriptor


@dataclass(eq=False)
class KnownTopics:
    """Descriptors by CID."""

    _context: Context
    _fetcher: BlockFetcher
    _in_use: Container[bytes]
    _known: dict[bytes, TopicDescriptor] = field(default_factory=dict)
    _kept: dict[bytes, float] = field(default_factory=dict)
    """Which of them the log has, and since when they concern us."""
    _wished: dict[bytes, float] = field(default_factory=dict)
    """Since when topics concern us that are being looked for."""
    _versions: dict[bytes, dict[bytes, None]] = field(default_factory=dict)
    _walks: dict[PeerId, RateLimit] = field(default_factory=dict)
    """What the DHT may still be asked for those who want to join."""

    def __post_init__(self) -> None:
        self._context.operations.steps |= {
            (NoteReading, Loaded): self._on_note,
            (TopicSearch, BlockFound): self._on_block_found,
            (PatientLook, TopicFound): self._on_look,
            (PatientLook, LookTimer): self._on_look_timer,
            (VersionHeard, Loaded): self._on_version_note,
        }

    def get(self, cid: bytes) -> TopicDescriptor | None:
        """A descriptor that is at hand."""
        return self._known.get(cid)

    def kept_since(self, cid: bytes) -> float | None:
        """Since when a topic at hand concerns us: who creates or subscribes keeps it."""
        return self._kept.get(cid, self._wished.get(cid))

    def add(self, descriptor: TopicDescriptor) -> None:
        """Put a descriptor in; the oldest that is not in use makes room."""
        cid = descriptor.cid
        if cid not in self._known:
            config = self._context.config
            if len(self._known) >= config.max_descriptors + config.max_topics:
                old = next((each for each in self._known if each not in self._in_use), None)
                if old is not None:
                    self._forget(old)
            self._known[cid] = descriptor
        meta = descriptor.meta
        if meta is not None:
            self._versions.setdefault(meta, {})[cid] = None

    def learn(self, peer: PeerId, descriptor: TopicDescriptor, effects: Effects) -> None:
        """A peer tells of a topic (NEW_TOPIC): we have it at hand if somebody wants it.

        Nothing makes room for it, and nobody vouches for it: it is no version of another topic
        until its author says so in the meta topic.
        """
        if self._is_foreign(descriptor, peer, effects):
            return
        if len(self._known) < self._context.config.max_descriptors:
            self._known.setdefault(descriptor.cid, descriptor)
        else:
            topic = cids.text(descriptor.cid)
            effects.append(trace.Refuse(peer, reasons.WAITING_FULL, topic))

    def _is_foreign(self, descriptor: TopicDescriptor, peer: PeerId, effects: Effects) -> bool:
        """Whether a topic is of a protocol that we do not know; that is counted."""
        foreign = is_foreign(descriptor.protocol_version)
        if foreign:
            topic = cids.text(descriptor.cid)
            effects.append(trace.Refuse(peer, reasons.OTHER_VERSION, topic))
        return foreign

    def _forget(self, cid: bytes) -> None:
        self._kept.pop(cid, None)
        meta = self._known.pop(cid).meta
        versions = {} if meta is None else self._versions.get(meta, {})
        if versions.pop(cid, cid) is None and not versions and meta is not None:
            del self._versions[meta]

    def keep(self, descriptor: TopicDescriptor, since: float, effects: Effects) -> None:
        """Put a descriptor in, and into the log, unless that is known to have it since then."""
        self.add(descriptor)
        since = min(since, self._wished.pop(descriptor.cid, since))
        if descriptor.cid not in self._kept or since == EVER < self._kept[descriptor.cid]:
            self._kept[descriptor.cid] = since
            effects.append(KeepNote(note_of(descriptor, since)))

    def keep_again(self, effects: Effects) -> None:
        """The log has changed, and may lack notes of ours: have it keep what it had."""
        for cid, since in self._kept.items():
            effects.append(KeepNote(note_of(self._known[cid], since)))
        for cid, since in self._wished.items():
            effects.append(KeepNote(wish_of(cid, since)))

    def versions(self, descriptor: TopicDescriptor) -> list[TopicDescriptor]:
        """All versions of a topic that are at hand, the oldest first."""
        meta = descriptor.meta
        known = {} if meta is None else self._versions.get(meta, {})
        found = [self._known[cid] for cid in known]
        return sorted(found, key=age)

    def hear(self, meta: TopicDescriptor, author: PeerId, payload: bytes, effects: Effects) -> None:
        """An event of a topic was delivered; in a meta topic it may be a version of the topic, if
        it is by the one whom the version names as its author."""
        if not meta.name.startswith("meta-"):
            return
        try:
            version = read_topic(payload)
        except DecodeError:
            return
        if version.meta != meta.cid or self._is_foreign(version, author, effects):
            return
        if version.author != author:
            effects.append(trace.Refuse(author, reasons.NOT_ITS_AUTHOR, cids.text(meta.cid)))
            return
        if version.cid in self._known:
            self.keep(version, dates.seconds(version.created), effects)
        elif not self._read_note(VersionHeard(version), version.cid, effects):
            text = cids.text(version.cid)
            effects.append(trace.Refuse(self._context.id, reasons.WAITING_FULL, text))

    def _on_version_note(
        self, heard: VersionHeard, loaded: Loaded, now: float, effects: Effects
    ) -> None:
        version = heard.version
        if self._take_note(version.cid, loaded) is None:
            self.keep(version, dates.seconds(version.created), effects)

    # Looking for a topic that is not at hand.

    def find(
        self,
        cid: bytes,
        operation: msgspec.Struct,
        now: float,
        effects: Effects,
        sources: Sequence[PeerId] = (),
        wished: float | None = None,
    ) -> None:
        """Let an operation go on with a descriptor, which is looked for where it is not at hand."""
        known = self._known.get(cid)
        if known is not None or not self.look_for(cid, operation, effects, sources, wished):
            self._context.operations.go_on(operation, TopicFound(cid, known), now, effects)

    def look_for(
        self,
        cid: bytes,
        operation: msgspec.Struct,
        effects: Effects,
        sources: Sequence[PeerId] = (),
        wished: float | None = None,
    ) -> bool:
        """Look for a descriptor; `TopicFound` follows. False when too much is looked for."""
        operations = self._context.operations
        reading = NoteReading(cid, tuple(sources), wished)
        begun = operations.awaits(TopicFound, cid) or self._read_note(reading, cid, effects)
        if not sources:
            self._fetcher.widen(cid)  # whoever wants to join may have asked for less
        return begun and operations.wait(TopicFound, cid, operation)

    def _read_note(self, operation: msgspec.Struct, cid: bytes, effects: Effects) -> bool:
        text = cids.text(cid)
        return self._context.load(operation, text, Notes(NOTES + text), effects)

    def _take_note(self, cid: bytes, loaded: Loaded) -> TopicDescriptor | None:
        for note in loaded.notes:
            found = from_note(note)
            if found is not None and found[0].cid == cid:
                self.add(found[0])
                self._kept[cid] = found[1]
                return found[0]
        return None

    def _wish(self, cid: bytes, since: float, loaded: Loaded, effects: Effects) -> None:
        """Remember since when a topic is wanted that is not here, unless the log has it."""
        dates = [_date_of(note) for note in loaded.notes if len(note.value) == _DATE_BYTES]
        remember(self._wished, cid, min([since, *dates]), self._context.config.max_topics)
        if not dates:
            effects.append(KeepNote(wish_of(cid, since)))

    def _on_note(self, reading: NoteReading, loaded: Loaded, now: float, effects: Effects) -> None:
        cid = reading.topic
        known = self._known.get(cid)
        if known is None:
            known = self._take_note(cid, loaded)
            if known is not None and known.author == self._context.id:
                self.offer(known, now, effects)
            elif known is None and reading.wished is not None:
                self._wish(cid, reading.wished, loaded, effects)
        if known is None:
            everywhere = all(self._may_walk(peer, now) for peer in reading.sources)
            search = TopicSearch()
            if self._fetcher.seek(
                cid, cid, reading.sources, search, now, effects, everywhere=everywhere
            ):
                return
        self._context.operations.tell(TopicFound(cid, known), now, effects)

    def _may_walk(self, peer: PeerId, now: float) -> bool:
        """Whether the DHT is asked for a topic that a peer wants to join and does not show us."""
        limit = self._walks.get(peer) or RateLimit(_WALKS, _WALKS_AT_ONCE)
        remember(self._walks, peer, limit, _MOST_WALKERS)
        return limit.take(now)

    def _on_block_found(
        self, _: TopicSearch, news: BlockFound, now: float, effects: Effects
    ) -> None:
        found = news.block if isinstance(news.block, TopicDescriptor) else None
        if found is not None and self._is_foreign(found, news.source, effects):
            found = None
        if found is not None:
            self.add(found)
        self._context.operations.tell(TopicFound(news.about, found), now, effects)

    def _on_look(self, look: PatientLook, news: TopicFound, now: float, effects: Effects) -> None:
        operations, cid = self._context.operations, news.about
        again = PatientLook(look.operation, look.looks + 1)
        if (
            news.topic is None
            and look.looks < _MORE_LOOKS
            and operations.wait(LookTimer, cid, again)
        ):
            effects.append(SetTimer(LookTimer(cid), now + _FIRST_PAUSE * 2**look.looks))
        else:
            operations.go_on(look.operation, news, now, effects)

    def _on_look_timer(
        self, look: PatientLook, timer: LookTimer, now: float, effects: Effects
    ) -> None:
        self.find(timer.about, look, now, effects)

    def offer(self, descriptor: TopicDescriptor, now: float, effects: Effects) -> None:
        """Put a descriptor into the DHT, where others look for it."""
        if self._context.config.store_topics:
            self._fetcher.offer(descriptor.cid, descriptor.dag(), now, effects)

    def on_block(self, peer: PeerId, block: Block, now: float, effects: Effects) -> None:
        """A peer sent a descriptor."""
        reason, points = reasons.NOT_ASKED_FOR, 0.0
        if block.topic in self._fetcher:
            reason, points = reasons.WRONG_CID, GRAVE
            try:
                descriptor = read_topic(block.data)
                if descriptor.cid == block.topic:
                    self._fetcher.found(descriptor, peer, now, effects)
                    return
            except DecodeError as error:
                reason = error.reason
        self._context.refuse(peer, reason, block.topic, points, now, effects)
