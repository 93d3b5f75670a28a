"""Topic descriptors: those at hand, those being looked for, and which versions a topic has.

A descriptor is immutable and named by its hash, so one that was found once is right for ever. The
library is bounded; what is in use is never put away. Descriptors of topics that this peer created
or subscribed to are kept in the archive as well, in a topic of their own: a peer that comes back
does not depend on others for what its own topics are.
"""

from collections.abc import Callable, Container, Sequence
from typing import Final, TypeAlias

from rumormill.core.archive import Archive
from rumormill.core.effects import Effects, Keep
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pulsarcast import dates, reasons
from rumormill.protocols.pulsarcast.context import GRAVE, Context
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor, read_topic
from rumormill.protocols.pulsarcast.hunting import Found, Hunting
from rumormill.protocols.pulsarcast.rpc import Block

WithTopic: TypeAlias = Callable[[TopicDescriptor | None, float, Effects], None]

SHELF: Final[Topic] = "pulsarcast/topics"
"""Under which name the archive has descriptors; no topic is called so, as it is no CID."""


def shelved(descriptor: TopicDescriptor) -> Event:
    """A descriptor as the archive keeps it."""
    created = dates.seconds(descriptor.created)
    return Event(SHELF, descriptor.dag(), descriptor.author, descriptor.cid, created=created)


def from_shelf(event: Event) -> TopicDescriptor | None:
    """Read a kept descriptor back; None where it is not what its id says."""
    try:
        descriptor = read_topic(event.data)
    except DecodeError:
        return None
    return descriptor if descriptor.cid == event.id else None


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

    def keep(self, descriptor: TopicDescriptor, effects: Effects) -> None:
        """Put a descriptor in, and into the archive."""
        self.add(descriptor)
        if self._context.archive.get(SHELF, descriptor.cid) is None:
            effects.append(Keep(shelved(descriptor)))

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
        return sorted(found, key=lambda version: (version.created, version.cid))

    def find(
        self,
        cid: bytes,
        sources: Sequence[PeerId],
        then: WithTopic,
        now: float,
        effects: Effects,
    ) -> None:
        """Call back with a descriptor: at once where it is at hand, else when it is found."""
        known = self._at_hand(cid)
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

    def _at_hand(self, cid: bytes) -> TopicDescriptor | None:
        known = self._known.get(cid)
        if known is None:
            kept = self._context.archive.get(SHELF, cid)
            known = None if kept is None else from_shelf(kept)
            if known is not None:
                self.add(known)
        return known

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
