"""The ledger: what became of every event at every subscriber that should have got it.

When an event is published, each peer that is up and subscribed to its topic forms a pair with it,
the publisher too if it subscribes. From then on a pair is in exactly one state: pending, delivered,
or dropped for a reason. The rule, at every moment and for every topic:

    expected == delivered + pending + the sum of dropped

The ledger learns from trace entries alone:

- DELIVER_MESSAGE delivers a pair, whatever its state was: a peer that was down may return with its
  state or fetch the history. Delivered wins over every reason to drop.
- REJECT_MESSAGE, LEAVE and NODE_DOWN drop a pair that is pending; the first reason stays.
- UNDELIVERABLE_MESSAGE drops a pair even if it is delivered: the router had accepted the event and
  traced that, but the application's queue had no room.
- DROP_RPC only leaves a note at a pending pair, because another copy may still arrive. At `close`
  a pair that is still pending becomes dropped for the reason of its last note, if it has one.
- A DELIVER_MESSAGE that stands before its PUBLISH_MESSAGE counts as if it stood directly behind it:
  nothing is delivered before it is published, so the clocks of two nodes differed.
- FAIL_PUBLISH opens an event that nobody gets: it is owed like one that was published, and all its
  pairs are dropped. So a protocol that refuses to publish does not look better for it.

A subscription outlives NODE_DOWN: the peer counts again from its NODE_UP on, until it leaves. A
peer of which no NODE_UP is known (a go node's trace has none) is up. A delivery at a peer that was
not expected, because it joined later, is `extra`; a second one of the same pair is `repeated`.

A pair is one byte in its event's table: 0 not expected, 1 pending, 2 delivered, 3 to 127 dropped
for the reason with that number, 128 and above pending with a note (the reason's number + 125).
When an event has been delivered everywhere its table is freed, and only the shared picture of who
was expected remains.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from rumormill.core import trace
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.trace.entries import Batch

SUBSCRIBER_DOWN: Final = "subscriber-down"
SUBSCRIBER_LEFT: Final = "subscriber-left"
UNDELIVERABLE: Final = "undeliverable"
NOT_PUBLISHED: Final = "not-published"
UNSPECIFIED: Final = "unspecified"
OTHER_REASONS: Final = "other-reasons"

MAX_EVENTS = 1_000_000
"""Our choice: about 200 bytes each; events beyond it are counted as untracked, not followed."""

MAX_EARLY = 65_536
"""Our choice: deliveries that wait for their publication, the latest; more are `unpublished`."""

UNKNOWN, EXTRA, NEW, REPEATED = range(4)
"""What a delivery was: of an unknown event, not expected, a pair's first, or a pair's again."""

_PENDING = 1
_DELIVERED = 2
_FIRST_REASON = 3
_LAST_REASON = 127
_NOTE = 125
_ALL_DELIVERED = bytes.maketrans(b"\x01", b"\x02")
_NOTES_TO_DROPS = bytes([*range(128), *(code - _NOTE for code in range(128, 253)), 253, 254, 255])


class TopicSums(msgspec.Struct, frozen=True):
    """Where a topic's pairs stand: `expected` is always the sum of the next three."""

    published: int
    expected: int
    delivered: int
    pending: int
    dropped: dict[str, int]
    extra: int
    repeated: int


class _Topic(msgspec.Struct):
    """Who subscribes, and the counts."""

    live: bytearray = bytearray()
    open: dict[MessageId, "_Event"] = {}
    live_count: int = 0
    mask: bytes | None = b""
    published: int = 0
    expected: int = 0
    delivered: int = 0
    pending: int = 0
    extra: int = 0
    repeated: int = 0
    dropped: list[int] = msgspec.field(default_factory=lambda: [0] * (_LAST_REASON + 1))

    def expect(self, peer: int, yes: int) -> None:
        """From now on the peer is, or is not, expected to get what is published."""
        if peer >= len(self.live):
            self.live.extend(bytes(peer + 1 - len(self.live)))
        if self.live[peer] != yes:
            self.live[peer] = yes
            self.live_count += 1 if yes else -1
            self.mask = None


class _Event(msgspec.Struct):
    """One published event: who was expected (`mask`, shared) and where each pair stands."""

    topic: _Topic
    mask: bytes
    pending: int
    states: bytearray | None
    dropped: int = 0


class Ledger:
    """An observer that keeps the books; its methods may also be called entry by entry."""

    def __init__(self) -> None:
        self.index: dict[PeerId, int] = {}
        self.unpublished = self.republished = self.untracked = 0
        self._up = bytearray()
        self._subscriptions: list[dict[Topic, int]] = []
        """Each peer's topics, with how many events had been opened when it joined."""
        self._topics: defaultdict[Topic, _Topic] = defaultdict(_Topic)
        self.opened = 0
        """Events so far that are followed, those included that were not published."""
        self._events: dict[MessageId, _Event] = {}
        self._early: dict[MessageId, list[tuple[PeerId, trace.DeliverMessage]]] = {}
        self._early_count = 0
        self._codes: dict[str, int] = {}
        self._names: list[str] = []
        self._down, self._left, self._undeliverable, self._not_published = map(
            self._code, (SUBSCRIBER_DOWN, SUBSCRIBER_LEFT, UNDELIVERABLE, NOT_PUBLISHED)
        )
        self._handlers: dict[type[trace.TracePayload], Callable[[PeerId, Any], object]] = {
            trace.PublishMessage: self._open,
            trace.FailPublish: self.fail,
            trace.DeliverMessage: self.deliver,
            trace.RejectMessage: self.reject,
            trace.UndeliverableMessage: self.undeliver,
            trace.DropRPC: self.note_lost,
            trace.Join: self.join,
            trace.Leave: self.leave,
            trace.NodeUp: self.node_up,
            trace.NodeDown: self.node_down,
        }

    def observe(self, batch: Batch) -> None:
        """Enter a batch of a trace."""
        for _now, peer, payload in batch:
            self.enter(peer, payload)

    def enter(self, peer: PeerId, payload: trace.TracePayload) -> None:
        """Enter what happened at a peer; kinds that move no pair are ignored."""
        handler = self._handlers.get(type(payload))
        if handler is not None:
            handler(peer, payload)

    def close(self) -> None:
        """Settle: a pending pair whose last copy was noted as lost is dropped for that reason."""
        for topic in self._topics.values():
            for message_id, event in list(topic.open.items()):
                states = event.states
                if states is None:
                    continue
                settled = 0
                for code in range(_FIRST_REASON, _FIRST_REASON + len(self._names)):
                    count = states.count(code + _NOTE)
                    topic.dropped[code] += count
                    settled += count
                if settled:
                    event.states = states.translate(_NOTES_TO_DROPS)
                    event.dropped += settled
                    event.pending -= settled
                    topic.pending -= settled
                    if not event.pending:
                        del topic.open[message_id]

    def sums(self) -> dict[Topic, TopicSums]:
        """Return where each topic's pairs stand, topics in the order of their appearance."""
        return {name: self._sums([topic]) for name, topic in self._topics.items()}

    def total(self) -> TopicSums:
        """Return where all pairs stand."""
        return self._sums(list(self._topics.values()))

    def subscribers(self) -> dict[Topic, list[tuple[int, int]]]:
        """Who subscribes and is up now: how many events had been opened when it joined, and its
        number, in this order."""
        found: defaultdict[Topic, list[tuple[int, int]]] = defaultdict(list)
        for number, topics in enumerate(self._subscriptions):
            if self._up[number]:
                for name, before in topics.items():
                    found[name].append((before, number))
        return {name: sorted(members) for name, members in found.items()}

    def register(self, peer: PeerId) -> int:
        """Return the number of a peer, giving it one if it is new."""
        number = self.index.setdefault(peer, len(self.index))
        if number == len(self._up):
            self._up.append(1)
            self._subscriptions.append({})
        return number

    def node_up(self, peer: PeerId, payload: trace.NodeUp) -> None:
        """Expect the peer again on the topics to which it subscribes."""
        number = self.register(peer)
        self._up[number] = 1
        for name in self._subscriptions[number]:
            self._topics[name].expect(number, 1)

    def node_down(self, peer: PeerId, payload: trace.NodeDown) -> None:
        """Drop what the peer still waited for, and expect nothing of it until it is up again."""
        number = self.register(peer)
        self._up[number] = 0
        for name in self._subscriptions[number]:
            self._depart(number, name, self._down)

    def join(self, peer: PeerId, payload: trace.Join) -> None:
        """Expect the peer on a topic."""
        number = self.register(peer)
        self._subscriptions[number].setdefault(payload.topic, self.opened)
        if self._up[number]:
            self._topics[payload.topic].expect(number, 1)

    def leave(self, peer: PeerId, payload: trace.Leave) -> None:
        """Drop what the peer still waited for on a topic."""
        number = self.register(peer)
        if payload.topic in self._subscriptions[number]:
            del self._subscriptions[number][payload.topic]
            self._depart(number, payload.topic, self._left)

    def publish(self, peer: PeerId, payload: trace.PublishMessage) -> int:
        """Open an event; return how many subscribers it is meant for."""
        message_id = payload.message_id
        if message_id in self._events:
            self.republished += 1
            return 0
        if self.opened >= MAX_EVENTS:
            self.untracked += 1
            return 0
        self.opened += 1
        topic = self._topics[payload.topic]
        mask = topic.mask
        if mask is None:
            mask = topic.mask = bytes(topic.live)
        count = topic.live_count
        self._events[message_id] = event = _Event(
            topic, mask, count, bytearray(mask) if count else None
        )
        topic.published += 1
        if count:
            topic.expected += count
            topic.pending += count
            topic.open[message_id] = event
        return count

    def take_early(self, message_id: MessageId) -> list[tuple[PeerId, trace.DeliverMessage]]:
        """The deliveries of an event that came before its publication, to be entered now."""
        early = self._early.pop(message_id, [])
        self._early_count -= len(early)
        self.unpublished -= len(early)
        return early

    def fail(self, peer: PeerId, payload: trace.FailPublish) -> bool:
        """Open an event that nobody gets; return whether it is followed."""
        self.register(peer)
        if self.opened >= MAX_EVENTS:
            return False
        self.opened += 1
        topic = self._topics[payload.topic]
        topic.expected += topic.live_count
        topic.dropped[self._not_published] += topic.live_count
        return True

    def deliver(self, peer: PeerId, payload: trace.DeliverMessage) -> int:
        """Enter a delivery; return what it was (`NEW`, `REPEATED`, `EXTRA` or `UNKNOWN`)."""
        message_id = payload.message_id
        event = self._events.get(message_id)
        if event is None:
            self.unpublished += 1
            self._early.setdefault(message_id, []).append((peer, payload))
            self._early_count += 1
            while self._early_count > MAX_EARLY:
                self._early_count -= len(self._early.pop(next(iter(self._early))))
            return UNKNOWN
        topic = event.topic
        number = self.index.get(peer, -1)
        if number < 0 or number >= len(event.mask) or not event.mask[number]:
            topic.extra += 1
            return EXTRA
        states = event.states
        if states is None or (state := states[number]) == _DELIVERED:
            topic.repeated += 1
            return REPEATED
        states[number] = _DELIVERED
        topic.delivered += 1
        if state == _PENDING or state > _LAST_REASON:
            topic.pending -= 1
            event.pending -= 1
            if not event.pending:
                del topic.open[message_id]
        else:
            topic.dropped[state] -= 1
            event.dropped -= 1
        if not event.pending and not event.dropped:
            event.states = None
        return NEW

    def reject(self, peer: PeerId, payload: trace.RejectMessage) -> None:
        """Drop a pair that waits, for the reason for which the peer refused the event."""
        event = self._events.get(payload.message_id)
        number = self.index.get(peer, -1)
        if event is not None and number >= 0:
            self._drop(event, payload.message_id, number, self._code(payload.reason))

    def undeliver(self, peer: PeerId, payload: trace.UndeliverableMessage) -> bool:
        """Drop a pair for which there was no room; return whether it had counted as delivered."""
        event = self._events.get(payload.message_id)
        number = self.index.get(peer, -1)
        if event is None or number < 0:
            return False
        states = event.states
        if states is None:
            event.states = states = bytearray(event.mask.translate(_ALL_DELIVERED))
        if number < len(states) and states[number] == _DELIVERED:
            states[number] = self._undeliverable
            event.dropped += 1
            event.topic.delivered -= 1
            event.topic.dropped[self._undeliverable] += 1
            return True
        self._drop(event, payload.message_id, number, self._undeliverable)
        return False

    def note_lost(self, peer: PeerId, payload: trace.DropRPC) -> None:
        """Note at the addressee's pending pairs why copies did not get there."""
        messages = payload.meta.messages
        if not messages:
            return
        number = self.index.get(payload.send_to, -1)
        if number < 0:
            return
        note = self._code(payload.reason) + _NOTE
        for message in messages:
            event = self._events.get(message.message_id)
            if event is not None and event.pending:
                states = event.states
                if states is not None and number < len(states):
                    state = states[number]
                    if state == _PENDING or state > _LAST_REASON:
                        states[number] = note

    def _open(self, peer: PeerId, payload: trace.PublishMessage) -> None:
        self.publish(peer, payload)
        if payload.message_id in self._events:
            for early in self.take_early(payload.message_id):
                self.deliver(*early)

    def _depart(self, number: int, name: Topic, code: int) -> None:
        topic = self._topics[name]
        topic.expect(number, 0)
        for message_id, event in list(topic.open.items()):
            self._drop(event, message_id, number, code)

    def _drop(self, event: _Event, message_id: MessageId, number: int, code: int) -> None:
        """Move a pair from pending to dropped; leave it alone in every other state."""
        states = event.states
        if states is None or number >= len(states):
            return
        state = states[number]
        if state != _PENDING and state <= _LAST_REASON:
            return
        topic = event.topic
        states[number] = code
        topic.pending -= 1
        topic.dropped[code] += 1
        event.dropped += 1
        event.pending -= 1
        if not event.pending:
            del topic.open[message_id]

    def _code(self, reason: str) -> int:
        """Return a reason's number; when all numbers are taken, further reasons share the last."""
        reason = reason or UNSPECIFIED
        code = self._codes.get(reason)
        if code is None:
            code = _FIRST_REASON + len(self._names)
            if code == _LAST_REASON:
                reason = OTHER_REASONS
            if code > _LAST_REASON:
                return _LAST_REASON
            self._codes[reason] = code
            self._names.append(reason)
        return code

    def _sums(self, topics: list[_Topic]) -> TopicSums:
        dropped = {}
        for code, name in enumerate(self._names, _FIRST_REASON):
            count = sum(topic.dropped[code] for topic in topics)
            if count:
                dropped[name] = count
        names = [name for name in TopicSums.__struct_fields__ if name != "dropped"]
        counts = {name: sum(getattr(topic, name) for topic in topics) for name in names}
        return TopicSums(dropped=dict(sorted(dropped.items())), **counts)
