"""Topic descriptors: those at hand, those being looked for, and which versions a topic has.

A descriptor is immutable and named by its hash, so one that was found once is right for ever. The
library is bounded; what is in use is never put away. Descriptors of topics that this peer created
or subscribed to are kept in the archive as well, in a topic of their own: a peer that comes back
does not depend on others for what its own topics are.
"""

from collections.abc import Callable, Container, Sequence
from typing import Final, TypeAlias

from rumormill.core.archive import Archive
from rumormill.core.effects import Append, Effects, SetTimer
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import TopicView
from rumormill.protocols.pulsarcast.context import GRAVE, Context
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor, read_topic
from rumormill.protocols.pulsarcast.hunting import Found, Hunting
from rumormill.protocols.pulsarcast.rpc import Block
from rumormill.protocols.pulsarcast.timers import LookTimer

WithTopic: TypeAlias = Callable[[TopicDescriptor | None, float, Effects], None]

_MORE_LOOKS: Final = 3
_FIRST_PAUSE: Final = 0.5
"""How often, and after how many seconds at first, a topic is looked for again while somebody waits
who asked about it; each pause is twice the one before. Our choice: within a command's patience."""

SHELF: Final[Topic] = "pulsarcast/topics"
"""Under which name the archive has descriptors; no topic is called so, as it is no CID."""


def shelved(descriptor: TopicDescriptor, now: float) -> Event:
    """A descriptor as the archive keeps it, dated by when it was put there."""
    return Event(SHELF, descriptor.dag(), descriptor.author, descriptor.cid, created=now)


def from_shelf(event: Event) -> TopicDescriptor | None:
    """Read a kept descriptor back; None where it is not what its id and its author say."""
    try:
        descriptor = read_topic(event.data)
    except DecodeError:
        return None
    holds = descriptor.cid == event.id and descriptor.author == event.author
    return descriptor if holds else None


def view_of_kept(archive: Archive, cid: bytes) -> TopicView | None:
    """What an archive alone knows of a topic; None where it does not have the topic."""

    def kept(wanted: bytes) -> TopicDescriptor | None:
        event = archive.get(SHELF, wanted)
        return None if event is None else from_shelf(event)

    topic = kept(cid)
    if topic is None:
        return None
    versions = {cid: topic}
    if topic.meta is not None:
        versions |= {each.cid: each for each in shelf_versions(archive, topic.meta)}
    ordered = sorted(versions.values(), key=age)
    sub_topics = {name: kept(link) for name, link in topic.sub_topics.items()}
    return TopicView(topic, sub_topics, tuple(ordered))


def age(descriptor: TopicDescriptor) -> tuple[str, bytes]:
    """What versions are sorted by."""
    return (descriptor.created, descriptor.cid)


def shelf_versions(archive: Archive, meta: bytes) -> list[TopicDescriptor]:
    """The kept versions of the topic with this meta topic."""
    found = [from_shelf(event) for event in archive.scan(SHELF)]
    return [each for each in found if each is not None and each.meta == meta]


class Library:
    """Descriptors by CID."""

    def __init__(self, context: Context, hunting: Hunting, in_use: Container[bytes]) -> None:
        self._context = context
        self._hunting = hunting
        self._in_use = in_use
        self._known: dict[bytes, TopicDescriptor] = {}
        self._versions: dict[bytes, dict[bytes, None]] = {}
        self._waiting: dict[bytes, list[tuple[WithTopic, int]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, cid: bytes) -> TopicDescriptor | None:
        """A descriptor that is at hand."""
        return self._known.get(cid)

    def add(self, descriptor: TopicDescriptor) -> None:
        """Put a descriptor in; the oldest that is not in use makes room."""
        cid = descriptor.cid
        if cid in self._known:
            return
        config = self._context.config
        if len(self._known) >= config.max_descriptors + config.max_topics:
            old = next((each for each in self._known if each not in self._in_use), None)
            if old is not None:
                self._forget(old)
        self._known[cid] = descriptor
        meta = descriptor.meta
        if meta is not None:
            self._versions.setdefault(meta, {})[cid] = None

    def keep(self, descriptor: TopicDescriptor, now: float, effects: Effects) -> None:
        """Put a descriptor in, and into the archive."""
        self.add(descriptor)
        if self._context.archive.get(SHELF, descriptor.cid) is None:
            effects.append(Append(shelved(descriptor, now)))

    def kept_since(self, cid: bytes) -> float | None:
        """When a topic's descriptor was put into the archive: who subscribes or creates does so."""
        kept = self._context.archive.get(SHELF, cid)
        return None if kept is None else kept.created

    def _forget(self, cid: bytes) -> None:
        meta = self._known.pop(cid).meta
        if meta is not None:
            versions = self._versions[meta]
            del versions[cid]
            if not versions:
                del self._versions[meta]

    def versions(self, descriptor: TopicDescriptor) -> list[TopicDescriptor]:
        """All versions of a topic that are at hand, the oldest first."""
        meta = descriptor.meta
        known = {} if meta is None else self._versions.get(meta, {})
        found = [self._known[cid] for cid in known]
        return sorted(found, key=age)

    def find(
        self,
        cid: bytes,
        sources: Sequence[PeerId],
        then: WithTopic,
        now: float,
        effects: Effects,
    ) -> None:
        """Call back with a descriptor: at once where it is at hand, else when it is found."""
        known = self._at_hand(cid, now, effects)
        if known is not None:
            then(known, now, effects)
            return

        def done(found: Found, _: PeerId, now: float, effects: Effects) -> None:
            if isinstance(found, TopicDescriptor):
                self.add(found)
                then(found, now, effects)
            else:
                then(None, now, effects)

        if not self._hunting.seek(cid, cid, sources, done, now, effects):
            then(None, now, effects)

    def find_patiently(self, cid: bytes, then: WithTopic, now: float, effects: Effects) -> None:
        """Do what `find` does, and look a few times more where the topic is not found.

        It may be so new that the DHT does not have it yet, and we that we know nobody to ask.
        """
        self._look(cid, then, 0, now, effects)

    def _look(self, cid: bytes, then: WithTopic, looks: int, now: float, effects: Effects) -> None:
        def looked(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
            waiting = self._waiting.get(cid, ())
            most = self._context.config.max_waiting
            full = len(waiting) >= most or (not waiting and len(self._waiting) >= most)
            if found is not None or looks >= _MORE_LOOKS or full:
                then(found, now, effects)
                return
            self._waiting.setdefault(cid, []).append((then, looks + 1))
            effects.append(SetTimer(LookTimer(cid), now + _FIRST_PAUSE * 2**looks))

        self.find(cid, (), looked, now, effects)

    def on_timer(self, cid: bytes, now: float, effects: Effects) -> None:
        """Look for a topic once more."""
        for then, looks in self._waiting.pop(cid, ()):
            self._look(cid, then, looks, now, effects)

    def resume(self, now: float, effects: Effects) -> None:
        """Look for topics again: the timers are gone."""
        for cid in self._waiting:
            effects.append(SetTimer(LookTimer(cid), now + _FIRST_PAUSE))

    def _at_hand(self, cid: bytes, now: float, effects: Effects) -> TopicDescriptor | None:
        known = self._known.get(cid)
        if known is None:
            kept = self._context.archive.get(SHELF, cid)
            known = None if kept is None else from_shelf(kept)
            if known is not None:
                self.add(known)
                if known.author == self._context.id:
                    self.offer(known, now, effects)
        return known

    def offer(self, descriptor: TopicDescriptor, now: float, effects: Effects) -> None:
        """Put a descriptor into the DHT, where others look for it."""
        if self._context.config.store_topics:
            self._hunting.offer(descriptor.cid, descriptor.dag(), now, effects)

    def on_block(self, peer: PeerId, block: Block, now: float, effects: Effects) -> None:
        """A peer sent a descriptor."""
        if block.topic not in self._hunting:
            self._context.refuse(peer, reasons.NOT_ASKED_FOR, block.topic, 0.0, now, effects)
            return
        try:
            descriptor = read_topic(block.data)
        except DecodeError as error:
            self._context.refuse(peer, error.reason, block.topic, GRAVE, now, effects)
            return
        if descriptor.cid != block.topic:
            self._context.refuse(peer, reasons.WRONG_CID, block.topic, GRAVE, now, effects)
            return
        self._hunting.found(block.topic, descriptor, peer, now, effects)
