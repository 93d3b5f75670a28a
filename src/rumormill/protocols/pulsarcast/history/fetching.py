"""Getting an event by its CID alone: by anybody, whether its author is there or not.

The event may be at hand: in a feed, or in the log of a topic in whose tree we stand. Otherwise the
DHT has it, if it was small enough for that. Since a new peer knows nobody at first, and a new event
is not there at once, it is looked for a few times. What is found is verified as if a stranger had
brought it: its hash is its name, its signatures hold, and its topic, where that can be had, lets
its publisher publish. It is handed out, and not kept.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from rumormill.core.effects import ById, Effects, Outcome, SetTimer
from rumormill.core.inputs import Loaded
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import FetchEvent, event_cid_of
from rumormill.protocols.pulsarcast.context import BlockFound, Context, LookTimer, TopicFound
from rumormill.protocols.pulsarcast.format.codec import read_back
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import UNSIGNED, SignedEvent
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import Feeds, core_event
from rumormill.protocols.pulsarcast.history.graph import not_permitted
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics

_MORE_LOOKS: Final = 3
_FIRST_PAUSE: Final = 0.5
"""How often, and after how many seconds at first, an event is looked for again; each pause is twice
the one before. Our choice: as for topics."""


class Fetching(msgspec.Struct, frozen=True):
    """An event is looked for."""

    command: int
    cid: bytes
    looks: int = 0


class Judging(msgspec.Struct, frozen=True):
    """An event is here, and its topic's descriptor is looked for."""

    command: int
    signed: SignedEvent


@dataclass(eq=False)
class EventFetching:
    """Answers calls for single events."""

    _context: Context
    _feeds: Feeds
    _topics: KnownTopics
    _events: Dissemination
    _fetcher: BlockFetcher
    _dht: Kademlia

    def __post_init__(self) -> None:
        self._context.operations.steps |= {
            (Fetching, Loaded): self._on_loaded,
            (Fetching, BlockFound): self._on_block,
            (Fetching, LookTimer): self._on_timer,
            (Judging, TopicFound): self._on_topic,
        }

    def begin(self, command: int, wish: FetchEvent, now: float, effects: Effects) -> None:
        """Get an event."""
        fetching = Fetching(command, event_cid_of(wish.event))
        cid = fetching.cid
        feed = next((each for each in self._feeds.open.values() if cid in each.timeline), None)
        signed = None if feed is None else feed.at_hand(cid)
        if signed is not None:
            self._judge(command, signed, now, effects)
        elif feed is None or not self._context.load(fetching, feed.text, ById((cid,)), effects):
            self._look(fetching, now, effects)

    def _end(self, command: int, signed: SignedEvent | None, reason: str, effects: Effects) -> None:
        event = None if signed is None else core_event(signed)
        effects.append(Outcome(command, event, reasons.sentence(reason)))

    def _on_loaded(self, fetching: Fetching, loaded: Loaded, now: float, effects: Effects) -> None:
        found = read_back(loaded.events)
        if found:
            self._judge(fetching.command, found[0], now, effects)
        else:
            self._look(fetching, now, effects)

    def _look(self, fetching: Fetching, now: float, effects: Effects) -> None:
        if not self._fetcher.seek(fetching.cid, b"", (), fetching, now, effects):
            self._end(fetching.command, None, reasons.WAITING_FULL, effects)

    def _on_block(self, fetching: Fetching, news: BlockFound, now: float, effects: Effects) -> None:
        command, cid, block = fetching.command, fetching.cid, news.block
        if isinstance(block, SignedEvent):
            self._judge(command, block, now, effects)
            return
        again = Fetching(command, cid, fetching.looks + 1)
        if isinstance(block, TopicDescriptor):
            self._end(command, None, reasons.NOT_AN_EVENT, effects)
        elif fetching.looks < _MORE_LOOKS and self._context.operations.wait(LookTimer, cid, again):
            effects.append(SetTimer(LookTimer(cid), now + _FIRST_PAUSE * 2**fetching.looks))
        else:
            known = self._dht.closest(cid)
            reason = reasons.NO_SUCH_EVENT if known else reasons.NOBODY_TO_ASK
            self._end(command, None, reason, effects)

    def _on_timer(self, fetching: Fetching, timer: LookTimer, now: float, effects: Effects) -> None:
        self._look(fetching, now, effects)

    def _judge(self, command: int, signed: SignedEvent, now: float, effects: Effects) -> None:
        fault = self._events.fault_of_content(signed, now)
        if signed.event.publisher is None:
            fault = reasons.NO_PUBLISHER
        if fault is not None:
            self._end(command, None, reasons.NOT_SIGNED if fault == UNSIGNED else fault, effects)
        else:
            self._topics.find(signed.event.topic, Judging(command, signed), now, effects)

    def _on_topic(self, judging: Judging, news: TopicFound, now: float, effects: Effects) -> None:
        signed = judging.signed
        fault = None if news.topic is None else not_permitted(news.topic, signed.event)
        self._end(judging.command, None if fault else signed, fault or "", effects)
