"""Topic descriptors: those at hand, those being looked for, and which versions a topic has.

A descriptor is immutable and named by its hash, so one that was found once is right for ever. The
library is bounded; what is in use is never put away.
"""

from collections.abc import Callable, Container, Sequence
from typing import TypeAlias

from rumormill.core.effects import Effects
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import GRAVE, Context
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor, read_topic
from rumormill.protocols.pulsarcast.hunting import Found, Hunting
from rumormill.protocols.pulsarcast.rpc import Block

WithTopic: TypeAlias = Callable[[TopicDescriptor | None, float, Effects], None]


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

    def _forget(self, cid: bytes) -> None:
        meta = self._known.pop(cid).meta
        if meta is not None:
            versions = self._versions[meta]
            del versions[cid]
            if not versions:
                del self._versions[meta]

    def versions(self, descriptor: TopicDescriptor) -> list[TopicDescriptor]:
        """All known versions of a topic, the oldest first."""
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
        known = self._known.get(cid)
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
