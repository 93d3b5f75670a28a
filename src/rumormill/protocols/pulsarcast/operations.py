"""What is under way: operations as values in one table, and the news that they wait for.

An operation says what is wanted and for whom; what it waits for says where it stands. Both are
plain values, so a peer's whole state can be written down, compared and restored. When the news
come, good or bad, they go to every operation that waits for them, in the order of waiting: each
ends, or waits for the next thing. The table is bounded in what may wait for one thing, of one kind,
for one peer and for all peers. Timers are values as well.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

import msgspec

from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast.format.additions import RequestReply
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import SignedEvent

MOST_OF_A_KIND: Final = 4096
"""Operations of one kind; our choice: as many as requests to publish (`max_requests`)."""
MOST_PER_PEER: Final = 64
"""Operations that one peer has caused. Our choice: a parent that lacks all that a child has asks
for it in 32 questions at once."""
MOST_FOR_PEERS: Final = 1024
"""Operations that all peers together have caused; our choice, as `max_fetches`."""


class PeerOperation(msgspec.Struct, frozen=True):
    """An operation on behalf of another peer."""

    peer: PeerId


class News(msgspec.Struct, frozen=True):
    """What operations wait for, and what it is about: a topic, a block or a request, by its CID."""

    about: bytes


class TopicFound(News, frozen=True):
    """A topic's descriptor is here, or not to be had."""

    topic: TopicDescriptor | None


class BlockFound(News, frozen=True):
    """A block is here, or not to be had; the source is our own id where it was the DHT."""

    block: TopicDescriptor | SignedEvent | None
    source: PeerId


class FeedRead(News, frozen=True):
    """What the log has of a topic has been read."""


class TreeEntered(News, frozen=True):
    """We stand in a topic's tree, or cannot."""

    error: str = ""


class WayFound(News, frozen=True):
    """There is a way to the root of a topic's tree, or will be none."""

    error: str = ""


class RangeFetched(News, frozen=True):
    """A peer was asked for what it has of a range of a topic's dates: whether all of it is here."""

    complete: bool


class EventStored(News, frozen=True):
    """An event of ours is safe on our disk, or will never be."""

    error: str = ""


class RequestAnswered(News, frozen=True):
    """What became of a request to publish."""

    reply: RequestReply


class LookTimer(News, frozen=True):
    """A topic that somebody asks about was not found, and is looked for once more."""


class SubscribeTimer(News, frozen=True):
    """A topic that is subscribed to was not found, and is looked for once more."""


class Timer(msgspec.Struct, frozen=True):
    """What a part of the peer is woken up for, and the topic, block or request that it is about."""

    about: bytes


class BranchTimer(Timer, frozen=True):
    """What is next due in a topic's tree."""


class HoldTimer(Timer, frozen=True):
    """An ordered topic's events have waited long enough for an ancestor."""


class ParentTimer(Timer, frozen=True):
    """A missing parent should have arrived by itself."""


class FetchTimer(Timer, frozen=True):
    """A neighbour should have answered for a missing block."""


class RequestTimer(Timer, frozen=True):
    """A request to publish is to be sent again, or has failed."""


class RangeTimer(Timer, frozen=True):
    """A peer should have answered for a range of a topic's events."""


Step: TypeAlias = Callable[[Any, Any, float, Effects], None]
"""Takes an operation and its news."""


class Operations:
    """Everything that waits for something."""

    def __init__(self, most_for_one: int) -> None:
        self._most_for_one = most_for_one
        self._waiting: dict[tuple[type, Hashable], list[msgspec.Struct]] = {}
        self._kinds: dict[type, int] = {}
        self._peers: dict[PeerId, int] = {}
        self._for_peers = 0
        self.steps: dict[tuple[type, type], Step] = {}
        """What an operation of some kind does with news of some kind: each part says so for its
        own operations when it is built."""

    def count(self, kind: type) -> int:
        """How many operations of a kind there are."""
        return self._kinds.get(kind, 0)

    def wait(self, kind: type, about: Hashable, operation: msgspec.Struct) -> bool:
        """Let an operation wait for news; false when too many do."""
        if len(self._waiting.get((kind, about), ())) >= self._most_for_one:
            return False
        if self._kinds.get(type(operation), 0) >= MOST_OF_A_KIND:
            return False
        if isinstance(operation, PeerOperation):
            own = self._peers.get(operation.peer, 0)
            if own >= MOST_PER_PEER or self._for_peers >= MOST_FOR_PEERS:
                return False
        self.hold(kind, about, operation)
        return True

    def hold(self, kind: type, about: Hashable, operation: msgspec.Struct) -> None:
        """Let an operation wait whose number is bounded elsewhere."""
        self._waiting.setdefault((kind, about), []).append(operation)
        self._count(operation, 1)

    def awaits(self, kind: type, about: Hashable) -> bool:
        """Whether any operation waits for some news."""
        return (kind, about) in self._waiting

    def tell(self, news: News | Loaded, now: float, effects: Effects) -> None:
        """Let everybody go on who waits for these news."""
        about = news.number if isinstance(news, Loaded) else news.about
        for operation in self._waiting.pop((type(news), about), ()):
            self._count(operation, -1)
            self.go_on(operation, news, now, effects)

    def go_on(
        self, operation: msgspec.Struct, news: News | Loaded, now: float, effects: Effects
    ) -> None:
        """Let one operation go on, which need not wait."""
        self.steps[type(operation), type(news)](operation, news, now, effects)

    def clear(self) -> None:
        """Forget everything: who asked for it is gone."""
        self._waiting.clear()
        self._kinds.clear()
        self._peers.clear()
        self._for_peers = 0

    def _count(self, operation: msgspec.Struct, change: int) -> None:
        _add(self._kinds, type(operation), change)
        if isinstance(operation, PeerOperation):
            _add(self._peers, operation.peer, change)
            self._for_peers += change


def _add(counts: dict[Any, int], key: Hashable, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
