"""Looking for a block by its CID: at the peers who should have it, then in the DHT.

A block is a topic descriptor or an event. Whatever is brought, its CID is computed and compared,
so it does not matter who brings it. Every search has an end: each peer has a few turns, the DHT has
its own limit, and then it has failed. `BlockFound` tells how it ended.

In the DHT a block is what the original stores there: dag-cbor bytes under their CID. The hash
proves that a block is what somebody named, and not who published it: anybody can name a forged
event in the link of one of his own. So an event's signatures travel beside it in the record, and an
event without is not believed. A descriptor is vouched for by its name: who has the name has it from
whoever he trusts with the topic.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.errors import DecodeError
from rumormill.core.identity import Verifier
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.validators import ContentValidator, content_key
from rumormill.protocols.pulsarcast.context import BlockFound, Context, FetchTimer
from rumormill.protocols.pulsarcast.format.additions import Events, Fetch
from rumormill.protocols.pulsarcast.format.codec import add_signatures
from rumormill.protocols.pulsarcast.format.descriptors import (
    TopicDescriptor,
    read_event,
    read_topic,
)
from rumormill.protocols.pulsarcast.format.rpc import addition
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, fault_of

_MOST_SOURCES: Final = 3
"""Peers asked before the DHT; our choice: a tree's neighbours have it, or nobody nearby does."""


class _Search(msgspec.Struct):
    """One block that is looked for."""

    cid: bytes
    topic: bytes
    """The event's topic, empty if that is not known; the block itself where a topic is looked
    for."""
    sources: list[PeerId]
    asked: PeerId | None = None
    ancestors: int = 0
    known: bytes | None = None
    everywhere: bool = True
    repeated: int = 0
    """How often the peer that is being asked was asked again."""
    begun: float = 0.0
    """When it was asked."""


@dataclass(eq=False)
class BlockFetcher:
    """All blocks that are looked for."""

    _context: Context
    _dht: Kademlia
    _searches: dict[bytes, _Search] = field(default_factory=dict)

    def __contains__(self, cid: bytes) -> bool:
        return cid in self._searches

    def seek(
        self,
        cid: bytes,
        topic: bytes,
        sources: Sequence[PeerId],
        operation: msgspec.Struct,
        now: float,
        effects: Effects,
        *,
        ancestors: int = 0,
        known: bytes | None = None,
        everywhere: bool = True,
    ) -> bool:
        """Look for a block on behalf of an operation; false when too much is looked for already.

        With `ancestors`, peers may send so many of the events before it along, back to `known`.
        Unless `everywhere`, the DHT is left out.
        """
        search = self._searches.get(cid)
        if search is None and len(self._searches) >= self._context.config.max_fetches:
            return False
        if not self._context.operations.wait(BlockFound, cid, operation):
            return False
        if search is not None:
            search.everywhere |= everywhere
            return True
        able = [
            peer
            for peer in dict.fromkeys(sources)
            if peer in self._context.connected and not self._context.is_original(peer)
        ]
        search = _Search(cid, topic, able[:_MOST_SOURCES], None, ancestors, known, everywhere)
        self._searches[cid] = search
        self._go_on(search, now, effects)
        return True

    def widen(self, cid: bytes) -> None:
        """Leave out the DHT no longer, where a block is looked for."""
        search = self._searches.get(cid)
        if search is not None:
            search.everywhere = True

    def offer(
        self, cid: bytes, block: bytes, now: float, effects: Effects, *, proof: bytes = b""
    ) -> None:
        """Put a block into the DHT, with what vouches for it, for others to find."""
        self._dht.put_value(content_key(cid), block, now, effects, proof=proof)

    def clear(self) -> None:
        """Forget all searches."""
        self._searches.clear()

    def _go_on(self, search: _Search, now: float, effects: Effects) -> None:
        if search.sources:
            search.asked, search.repeated = search.sources.pop(0), 0
            self._ask(search, search.asked, now, effects)
        elif not search.everywhere:
            self._finish(search, None, self._context.id, now, effects)
        else:
            search.asked = None
            effects.append(CancelTimer(FetchTimer(search.cid)))
            self._dht.get_value(content_key(search.cid), now, effects)

    def _ask(self, search: _Search, peer: PeerId, now: float, effects: Effects) -> None:
        search.begun = now
        question = Fetch(search.topic, (search.cid,), search.ancestors, search.known)
        self._context.send(peer, addition(question), effects)
        wait = self._context.patience(search.repeated, self._context.config.fetch_timeout)
        effects.append(SetTimer(FetchTimer(search.cid), now + wait))

    def _finish(
        self,
        search: _Search,
        block: TopicDescriptor | SignedEvent | None,
        source: PeerId,
        now: float,
        effects: Effects,
    ) -> None:
        del self._searches[search.cid]
        if search.asked is not None:
            effects.append(CancelTimer(FetchTimer(search.cid)))
        self._context.operations.tell(BlockFound(search.cid, block, source), now, effects)

    def found(
        self, block: TopicDescriptor | SignedEvent, source: PeerId, now: float, effects: Effects
    ) -> bool:
        """A block that may be looked for is here; whether it was."""
        search = self._searches.get(block.cid)
        if search is None:
            return False
        if source == search.asked and not search.repeated:
            self._context.answer_times.note(now - search.begun)
        self._finish(search, block, source, now, effects)
        return True

    def on_missing(self, peer: PeerId, answer: Events, now: float, effects: Effects) -> None:
        """A peer says what it does not have."""
        for cid in answer.missing:
            search = self._searches.get(cid)
            if search is not None and search.asked == peer:
                self._go_on(search, now, effects)

    def on_timer(self, cid: bytes, now: float, effects: Effects) -> None:
        """A peer has not answered: ask it again a few times, then another."""
        search = self._searches.get(cid)
        if search is None or search.asked is None:
            return
        tired = search.repeated >= self._context.config.connect_retries
        if tired or search.asked not in self._context.connected:
            self._go_on(search, now, effects)
        else:
            search.repeated += 1
            self._ask(search, search.asked, now, effects)

    def on_value(
        self, cid: bytes, value: bytes | None, proof: bytes, now: float, effects: Effects
    ) -> None:
        """The DHT's answer; Kademlia has compared its hash with the key."""
        search = self._searches.get(cid)
        if search is None or search.asked is not None:
            return
        block: TopicDescriptor | SignedEvent | None = None
        with suppress(DecodeError):
            if value is not None:
                block = _read(value, proof, cid, search.topic)
        self._finish(search, block, self._context.id, now, effects)


def _read(
    value: bytes, proof: bytes, cid: bytes, topic: bytes
) -> TopicDescriptor | SignedEvent | None:
    """What the DHT has under a CID: the topic, or an event of the topic that is wanted."""
    if cid == topic:
        return read_topic(value)
    try:
        event = read_event(value)
    except DecodeError:
        return None if topic else read_topic(value)
    return add_signatures(event, proof) if topic in (b"", event.topic) else None


class BlockValidator(ContentValidator):
    """Which blocks may stand in the DHT: of events, those with their signatures, unless the
    application does without."""

    def __init__(self, verifier: Verifier, *, required: bool) -> None:
        self._verifier = verifier
        self._required = required

    def vouched(self, key: bytes, value: bytes, proof: bytes) -> bool:
        """Whether a proof has the signatures of the event that the value is."""
        try:
            event = read_event(value)
        except DecodeError:
            return True  # a descriptor, or nothing that anybody will take for an event
        signed = add_signatures(event, proof)
        return fault_of(signed, self._verifier, required=self._required) is None
