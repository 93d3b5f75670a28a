"""What all parts of a peer share: who we are, whom we are connected to, how to send and to read,
and what is under way.

The parts of a peer (trees, topics, events, history) are objects of their own that know this one,
and each other only through what the peer hands them. What is under way are operations, plain values
in one table. An operation says what is wanted and for whom; what it waits for says where it stands.
So a peer's whole state can be written down, compared and restored. When the news come, good or bad,
they go to every operation that waits for them, in the order of waiting: each ends, or waits for the
next thing. The table is bounded in what may wait for one thing, of one kind, for one peer and for
all peers. Timers are values as well.

Here is also what peers have done wrong, and what follows from it: every refusal that an honest peer
cannot cause costs its sender points, which halve with time. At the limit the peer is disconnected
and not listened to for a while. Nobody else notices: a false event is refused by the first honest
peer that sees it, so only the liar's neighbours ever pay.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from rumormill.core import trace
from rumormill.core.answer_times import AnswerTimes
from rumormill.core.bounded import remember
from rumormill.core.effects import ById, Disconnect, Effects, FromOffset, Load, Mail, Notes, Send
from rumormill.core.history import HistoryQuery
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Loaded
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.additions import RequestReply
from rumormill.protocols.pulsarcast.format.descriptors import PROTOCOL, TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.registry import Hooks

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


class FeedRenewed(News, frozen=True):
    """What the log has of a topic after it has changed is known, or we have left the tree."""


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


class ParentSettled(News, frozen=True):
    """An event that one of ours is to follow has waited for its own parent, and is in the log."""


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


class NewsTimer(Timer, frozen=True):
    """Neighbours are to be told what they should have got."""


class HoldTimer(Timer, frozen=True):
    """An ordered topic's events have waited long enough for an ancestor."""


class ParentTimer(Timer, frozen=True):
    """A missing parent should have arrived by itself."""


class FetchTimer(Timer, frozen=True):
    """A neighbour should have answered for a missing block."""


class RefetchTimer(Timer, frozen=True):
    """What our disk had no room for is to be asked for again."""


class RequestTimer(Timer, frozen=True):
    """A request to publish is to be sent again, or has failed."""


class KeptTimer(Timer, frozen=True):
    """What an earlier life asked for is to be asked for again."""


class RangeTimer(Timer, frozen=True):
    """A peer should have answered for a range of a topic's events."""


Step: TypeAlias = Callable[[Any, Any, float, Effects], None]
"""Takes an operation and its news."""


class Operations:
    """Everything that waits for something."""

    def __init__(self, most_for_one: int) -> None:
        self._most_for_one = most_for_one
        self._waiting: dict[tuple[type, Hashable], list[msgspec.Struct]] = {}
        self._kinds: Counter[type] = Counter()
        self._peers: Counter[PeerId] = Counter()
        self._for_peers = 0
        self.steps: dict[tuple[type, type], Step] = {}
        """What an operation of some kind does with news of some kind: each part says so for its
        own operations when it is built."""

    def count(self, kind: type) -> int:
        """How many operations of a kind there are."""
        return self._kinds[kind]

    def wait(self, kind: type, about: Hashable, operation: msgspec.Struct) -> bool:
        """Let an operation wait for news; false when too many do."""
        if len(self._waiting.get((kind, about), ())) >= self._most_for_one:
            return False
        if self._kinds[type(operation)] >= MOST_OF_A_KIND:
            return False
        if isinstance(operation, PeerOperation):
            own = self._peers[operation.peer]
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
        self._kinds[type(operation)] += change
        if isinstance(operation, PeerOperation):
            self._for_peers += change
            self._peers[operation.peer] += change
            if not self._peers[operation.peer]:
                del self._peers[operation.peer]


OURS: Final = "/rumormill/pulsarcast/1.0.0"
"""The dialect of our own peers: the original's messages and our additions."""

SLIGHT: Final = 1.0
"""Points for what a confused peer may do."""
GRAVE: Final = 10.0
"""Points for what only a liar does."""

_MOST_RECORDS = 4096
"""Peers with a record at most; our choice. The oldest record goes first."""


@dataclass(eq=False)
class PeerPenalties:
    """The records of misbehaving peers."""

    limit: float
    half_life: float
    ban_time: float
    _points: dict[PeerId, tuple[float, float]] = field(default_factory=dict)
    banned: dict[PeerId, float] = field(default_factory=dict)
    """Peers that are not listened to, and until when."""

    def points(self, peer: PeerId, now: float) -> float:
        """What a peer's record weighs now."""
        points, since = self._points.get(peer, (0.0, now))
        faded: float = 0.5 ** ((now - since) / self.half_life)
        return points * faded

    def penalise(
        self, peer: PeerId, reason: str, amount: float, now: float, effects: Effects
    ) -> None:
        """Add to a peer's record; at the limit it is shut out."""
        points = self.points(peer, now) + amount
        effects.append(trace.Penalise(peer, reason, amount))
        if points < self.limit:
            remember(self._points, peer, (points, now), _MOST_RECORDS)
        else:
            self._points.pop(peer, None)
            remember(self.banned, peer, now + self.ban_time, _MOST_RECORDS)
            effects.append(Disconnect(peer, reason, keep_out=True))

    def is_banned(self, peer: PeerId, now: float) -> bool:
        """Whether a peer is shut out."""
        if peer in self.banned and self.banned[peer] <= now:
            del self.banned[peer]
        return peer in self.banned


@dataclass(eq=False)
class Context:
    """What the parts share."""

    identity: Identity
    randomness: Randomness
    config: PulsarcastConfig
    hooks: Hooks
    connected: dict[PeerId, str] = field(default_factory=dict)
    """Peers that can be sent to, and the dialect that they speak."""
    _loads: int = 0

    def __post_init__(self) -> None:
        config = self.config
        self.id = self.identity.peer
        self.operations = Operations(config.max_waiting)
        self.penalties = PeerPenalties(config.ban_score, config.penalty_decay, config.ban_time)
        self.answer_times = AnswerTimes()
        """How long neighbours usually take to answer."""

    def patience(self, repeated: int, most: float) -> float:
        """Seconds until a question that a neighbour has not answered is put again, which was put
        so often before: longer each time, but never longer than it is said."""
        wait = self.answer_times.patience
        if repeated:
            self.answer_times.repeat()
            wait *= 2**repeated
        return min(wait, most)

    def is_original(self, peer: PeerId) -> bool:
        """Whether a peer speaks only the original's dialect: it acknowledges nothing."""
        return self.connected.get(peer) == PROTOCOL

    def send(self, peer: PeerId, message: WireMessage, effects: Effects) -> None:
        """Send to a peer, which is dialled if need be."""
        effects.append(Send(peer, message) if peer in self.connected else Mail(peer, message))

    def load(
        self,
        operation: msgspec.Struct,
        topic: Topic,
        query: ById | FromOffset | Notes | HistoryQuery,
        effects: Effects,
    ) -> bool:
        """Ask the log; the operation goes on with what it has. False when too much is asked."""
        number = self._loads + 1
        if not self.operations.wait(Loaded, number, operation):
            if isinstance(operation, PeerOperation):
                effects.append(trace.Refuse(operation.peer, reasons.WAITING_FULL, topic))
            return False
        self._loads = number
        effects.append(Load(number, topic, query))
        return True

    def refuse(
        self,
        peer: PeerId,
        reason: str,
        topic: bytes | None,
        points: float,
        now: float,
        effects: Effects,
    ) -> None:
        """Count what is not acted upon, and what it costs its sender."""
        effects.append(trace.Refuse(peer, reason, "" if topic is None else cids.text(topic)))
        if points:
            self.penalties.penalise(peer, reason, points, now, effects)

    def backoff(self, failures: int) -> float:
        """How long to wait after so many failures in a row: twice as long each time, jittered."""
        config = self.config
        delay: float = config.retry_delay * 2 ** min(max(failures - 1, 0), 30)
        return min(delay, config.max_retry_delay) * (0.5 + self.randomness.random())
