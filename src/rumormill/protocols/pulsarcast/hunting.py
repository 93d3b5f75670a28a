"""Looking for a block by its CID: at the peers who should have it, then in the DHT.

A block is a topic descriptor or an event. Whatever is brought, its CID is computed and compared,
so it does not matter who brings it. Every hunt has an end: each peer has a few seconds, the DHT its
own limit, and then it has failed.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast.codec import add_signatures
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor, read_event, read_topic
from rumormill.protocols.pulsarcast.rpc import Events, Fetch, addition
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.timers import HuntTimer

Found: TypeAlias = TopicDescriptor | SignedEvent | None
Done: TypeAlias = Callable[[Found, PeerId, float, Effects], None]
"""Takes what was found and who brought it: our own id where it was the DHT."""

_MOST_SOURCES = 3
"""Peers asked before the DHT; our choice: a tree's neighbours have it, or nobody nearby does."""


class _Hunt(msgspec.Struct):
    """One block that is looked for."""

    cid: bytes
    topic: bytes
    """The event's topic; the block itself where a topic is looked for."""
    sources: list[PeerId]
    done: list[Done]
    asked: PeerId | None = None
    ancestors: int = 0
    known: bytes | None = None
    everywhere: bool = True


class Hunting:
    """All blocks that are looked for."""

    def __init__(self, context: Context, dht: Kademlia) -> None:
        self._context = context
        self._dht = dht
        self._hunts: dict[bytes, _Hunt] = {}

    def __contains__(self, cid: bytes) -> bool:
        return cid in self._hunts

    def seek(
        self,
        cid: bytes,
        topic: bytes,
        sources: Sequence[PeerId],
        done: Done,
        now: float,
        effects: Effects,
        *,
        ancestors: int = 0,
        known: bytes | None = None,
        everywhere: bool = True,
    ) -> bool:
        """Look for a block; false, and nothing follows, when too many are looked for already.

        With `ancestors`, peers may send so many of the events before it along, back to `known`.
        Unless `everywhere`, the DHT is left out.
        """
        hunt = self._hunts.get(cid)
        config = self._context.config
        if hunt is not None:
            if len(hunt.done) >= config.max_waiting:
                return False
            hunt.done.append(done)
            hunt.everywhere |= everywhere
            return True
        if len(self._hunts) >= config.max_fetches:
            return False
        able = [
            peer
            for peer in dict.fromkeys(sources)
            if peer in self._context.connected and not self._context.is_original(peer)
        ]
        hunt = _Hunt(cid, topic, able[:_MOST_SOURCES], [done], None, ancestors, known, everywhere)
        self._hunts[cid] = hunt
        self._go_on(hunt, now, effects)
        return True

    def offer(
        self, cid: bytes, block: bytes, now: float, effects: Effects, *, proof: bytes = b""
    ) -> None:
        """Put a block into the DHT, with what vouches for it, for others to find."""
        self._dht.put_value(content_key(cid), block, now, effects, proof=proof)

    def reset(self, now: float, effects: Effects) -> None:
        """Begin every hunt anew: answers that were on their way will not come."""
        for hunt in list(self._hunts.values()):
            hunt.sources.clear()
            self._go_on(hunt, now, effects)

    def _go_on(self, hunt: _Hunt, now: float, effects: Effects) -> None:
        if hunt.sources:
            hunt.asked = hunt.sources.pop(0)
            question = Fetch(hunt.topic, (hunt.cid,), hunt.ancestors, hunt.known)
            self._context.send(hunt.asked, addition(question), effects)
            timeout = self._context.config.fetch_timeout
            effects.append(SetTimer(HuntTimer(hunt.cid), now + timeout))
        elif not hunt.everywhere:
            self._finish(hunt, None, self._context.id, now, effects)
        else:
            hunt.asked = None
            effects.append(CancelTimer(HuntTimer(hunt.cid)))
            self._dht.get_value(content_key(hunt.cid), now, effects)

    def _finish(
        self, hunt: _Hunt, found: Found, source: PeerId, now: float, effects: Effects
    ) -> None:
        del self._hunts[hunt.cid]
        if hunt.asked is not None:
            effects.append(CancelTimer(HuntTimer(hunt.cid)))
        for done in hunt.done:
            done(found, source, now, effects)

    def found(
        self,
        cid: bytes,
        block: TopicDescriptor | SignedEvent,
        source: PeerId,
        now: float,
        effects: Effects,
    ) -> bool:
        """A block that may be looked for is here; whether it was."""
        hunt = self._hunts.get(cid)
        if hunt is None:
            return False
        self._finish(hunt, block, source, now, effects)
        return True

    def on_missing(self, peer: PeerId, answer: Events, now: float, effects: Effects) -> None:
        """A peer says what it does not have."""
        for cid in answer.missing:
            hunt = self._hunts.get(cid)
            if hunt is not None and hunt.asked == peer:
                self._go_on(hunt, now, effects)

    def on_timer(self, cid: bytes, now: float, effects: Effects) -> None:
        """A peer has not answered."""
        hunt = self._hunts.get(cid)
        if hunt is not None and hunt.asked is not None:
            self._go_on(hunt, now, effects)

    def on_value(
        self, cid: bytes, value: bytes | None, proof: bytes, now: float, effects: Effects
    ) -> None:
        """The DHT's answer; Kademlia has compared its hash with the key."""
        hunt = self._hunts.get(cid)
        if hunt is None or hunt.asked is not None:
            return
        block: Found = None
        if value is not None:
            try:
                if hunt.topic == cid:
                    block = read_topic(value)
                else:
                    event = read_event(value)
                    block = add_signatures(event, proof) if event.topic == hunt.topic else None
            except DecodeError:
                block = None
        self._finish(hunt, block, self._context.id, now, effects)
