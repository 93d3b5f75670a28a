"""The pub/sub layer as a machine: subscriptions, and the way of a message.

A peer that connects is told our topics and tells us its own. A message that arrives is first
looked up among the seen ones, because most arrivals are duplicates and a duplicate must cost
next to nothing. A new one passes, in this order: is its topic ours, does the sign policy accept
it, is its author not ourselves, what does the application's validator say. Only then is it
delivered, and routed on. An id counts as seen once the signature is good, and not before: a
forger must not be able to block a message by sending a false copy of it first.

Routing is the subclass's: FloodSub and GossipSub differ in `_route` and in what they add to
the hooks. Handlers of inputs are `_on_...`; they take the time and append effects.
"""

from collections.abc import Container, Iterable
from typing import Final

import msgspec

from rumormill.core import inputs, trace
from rumormill.core.bounded import drop
from rumormill.core.effects import (
    Append,
    CancelTimer,
    Effects,
    Published,
    Send,
    SendAll,
    SetTimer,
    Validate,
)
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.event import Event
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId, Topic, check_topic
from rumormill.core.inputs import Received, Verdict
from rumormill.core.machine import Shown, View
from rumormill.core.randomness import Randomness
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.pubsub.codec import proof_of
from rumormill.protocols.pubsub.config import MAX_NAMES, PubSubConfig
from rumormill.protocols.pubsub.messages import Control, Message, Rpc, SubOpts
from rumormill.protocols.pubsub.naming import Authorship, message_namer
from rumormill.protocols.pubsub.peer_state import PeerState
from rumormill.protocols.pubsub.seen_cache import SeenCache
from rumormill.protocols.pubsub.split import fits, interleaved, share_rpcs, split_rpc
from rumormill.protocols.recovery import Recovery
from rumormill.protocols.registry import NO_HOOKS, Hooks
from rumormill.protocols.unsaid import Unsaid, Waiting

FUNCTIONS: Final = ("message_id", "subscription_filter", "peer_filter")
"""The application's own functions that this layer uses."""

ANNOUNCE_RETRY: Final = 1.0
"""Seconds until a subscription announcement that could not be sent is sent again. go waits up to
1 s: long enough for a queue to empty, and short beside a heartbeat or two without a new topic."""

NO_SUBSCRIBERS = "no connected peer subscribes to the topic"
ALREADY_PUBLISHED = "a message with this id was published or received before"

_HANDLERS = {
    inputs.Start: "_on_start",
    inputs.Subscribe: "_on_subscribe",
    inputs.Unsubscribe: "_on_unsubscribe",
    inputs.Publish: "_on_publish",
    inputs.Stored: "_on_stored",
    inputs.NotStored: "_on_not_stored",
    inputs.PeerConnected: "_on_peer_connected",
    inputs.PeerDisconnected: "_on_peer_disconnected",
    inputs.ConnectFailed: "_on_connect_failed",
    inputs.SendDropped: "_on_send_dropped",
    inputs.TimerFired: "_on_timer",
    inputs.Validated: "_on_validated",
    inputs.Recovered: "_on_recovered",
}


class _Announce(msgspec.Struct, frozen=True):
    """The timer that repeats an announcement to a peer."""

    peer: PeerId


class PubSubRouter:
    """The common part of FloodSub and GossipSub."""

    # A simulation has many thousands: more attributes than Python shares the names of.
    __slots__ = (
        "_authorship", "_checked_topic", "_name", "_peer_filter", "_pending", "_randomness",
        "_recovery", "_seen", "_seen_ids", "_settings", "_subscription_filter", "_unannounced",
        "_unsaid", "_usual_topic", "_validator", "check_kept", "id", "peers", "publish_only",
        "subscriptions", "topics",
    )  # fmt: skip

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: PubSubConfig,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        config.validate()
        self.id = identity.peer
        self.peers: dict[PeerId, PeerState] = {}
        self.topics: dict[Topic, dict[PeerId, None]] = {}
        self.subscriptions: dict[Topic, None] = {}
        self.publish_only: dict[Topic, None] = {}
        self._randomness = randomness
        self._settings = config
        self._authorship = Authorship(identity, config.sign_policy)
        self.check_kept = self._authorship.check_kept
        self._name = message_namer(config, hooks.message_id)
        self._validator = hooks.validator
        self._subscription_filter = hooks.subscription_filter
        self._peer_filter = hooks.peer_filter
        self._seen = SeenCache(config.seen_ttl, config.seen_limit)
        self._seen_ids = self._seen.ids
        self._pending: dict[MessageId, tuple[PeerId, Message]] = {}
        self._unsaid: Unsaid[Message] = Unsaid()
        self._recovery = Recovery(self.id, hooks.validator, config.max_pending_validations)
        self._unannounced: dict[PeerId, dict[Topic, None]] = {}
        self._usual_topic: tuple[Topic, ...] = ()  # of the last who had one: many share it
        self._checked_topic: Topic | None = None
        """The name that was published to last, and need not be checked again."""

    def view(self) -> View:
        """Show subscriptions and who shares them (see `core.machine`)."""
        evicted = {"seen ids": self._seen.evicted}
        return View(tuple(self.subscriptions), Shown(self.topics), evicted=evicted)

    def handle(self, event: inputs.Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if type(event) is not Received:
            handler = _HANDLERS.get(type(event))
            if handler is None:
                raise LocalError(f"{type(event).__name__} is not an input of this protocol")
            getattr(self, handler)(event, now, effects)
            return
        # From here on every instruction counts: this is the way of each arriving message.
        peer = event.peer
        state = self.peers.get(peer)
        if state is None:
            effects.append(trace.Refuse(peer, reasons.NOT_CONNECTED))
            return
        rpc: Rpc = event.message  # type: ignore[assignment]
        if rpc.subscriptions and self._has_news(peer, rpc.subscriptions):
            self._on_subscriptions(peer, state, rpc.subscriptions, now, effects)
        standing = state.standing
        if standing is not None:
            earned = standing.earned
            if (earned is None or earned < 0) and not self._accepts_from(peer, rpc, now, effects):
                return
        publish = rpc.publish
        for message in publish:
            message_id = message.id
            if message_id in self._seen_ids:
                effects.append(trace.DuplicateMessage(message_id, peer, message.topic))
                if self._judges_all or message_id in self._judged or peer in self._owing:
                    self._on_duplicate(peer, message, now, effects)
            else:
                self._on_new_message(peer, message, now, effects)
        if len(publish) > 1:
            share_rpcs(effects, self._settings.max_rpc_size)
        if rpc.control is not None:
            self._on_control(peer, rpc.control, now, effects)
        elif not publish and not rpc.subscriptions:
            effects.append(trace.Refuse(peer, reasons.EMPTY_RPC))

    # What subclasses decide.

    def _route(self, message: Message, received_from: PeerId, now: float, effects: Effects) -> int:
        """Send a message on to whom it concerns; return to how many."""
        raise LocalError("this router routes nothing")

    def _before_validation(
        self, peer: PeerId, message: Message, now: float, effects: Effects
    ) -> None:
        """A new message of a true author arrived; the application's validation is next."""

    def _on_deferred(self, message: Message, now: float) -> None:
        """The application's verdict on a message is going to take a while."""

    def _on_accepted(self, peer: PeerId, message: Message, now: float) -> None:
        """A peer brought a valid message first."""

    def _on_rejected(
        self, peer: PeerId, message: Message, reason: str, now: float, effects: Effects
    ) -> None:
        """A peer brought a message that was refused."""

    def _accepts_from(self, peer: PeerId, rpc: Rpc, now: float, effects: Effects) -> bool:
        """Whether messages and control are heeded of a peer in no good standing, or unknown one."""
        return True

    _judges_all = False  # whether every copy matters
    _judged: Container[MessageId] = ()
    """Seen messages of which a further copy matters: of most it does not."""
    _owing: Container[PeerId] = ()  # peers of which every copy matters

    def _on_duplicate(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        """A peer brought a further copy of a judged message."""

    def _on_control(self, peer: PeerId, control: Control, now: float, effects: Effects) -> None:
        """A peer sent control messages."""

    def _on_peer_left_topic(self, peer: PeerId, topic: Topic, now: float, effects: Effects) -> None:
        """A peer ended a subscription, or is gone."""

    # Own requests.

    def _on_start(self, event: inputs.Start, now: float, effects: Effects) -> None:
        self._authorship.start(max(now, event.latest))

    def _on_connect_failed(self, event: inputs.ConnectFailed, now: float, effects: Effects) -> None:
        """Peers are offered in exchange in numbers; one that cannot be reached is no loss."""

    def _on_subscribe(self, event: inputs.Subscribe, now: float, effects: Effects) -> None:
        topic, wanted, other = event.topic, self.subscriptions, self.publish_only
        if event.publish_only:
            wanted, other = other, wanted
        if topic in wanted:
            return
        if topic in other:
            raise LocalError(
                f"the topic {topic!r} is either subscribed to or publish-only: unsubscribe first"
            )
        check_topic(topic, self._settings.max_topic_length)
        if self._subscription_filter is not None and not self._subscription_filter(topic):
            raise LocalError(f"the subscription filter does not allow the topic {topic!r}")
        if len(wanted) >= self._settings.max_subscriptions:
            raise LimitError(
                f"cannot subscribe to more than {self._settings.max_subscriptions} topics"
                " (max_subscriptions)"
            )
        wanted[topic] = None
        if not event.publish_only:
            effects.append(trace.Join(topic))
            self._announce(SubOpts(True, topic), effects)

    def _on_unsubscribe(self, event: inputs.Unsubscribe, now: float, effects: Effects) -> None:
        topic = event.topic
        self.publish_only.pop(topic, None)
        if topic not in self.subscriptions:
            return
        del self.subscriptions[topic]
        effects.append(trace.Leave(topic))
        self._announce(SubOpts(False, topic), effects)

    def _announce(self, sub: SubOpts, effects: Effects) -> None:
        if self.peers:
            effects.append(SendAll(tuple(self.peers), Rpc(subscriptions=(sub,))))

    def _on_publish(self, event: inputs.Publish, now: float, effects: Effects) -> None:
        message = self._compose(event, now)
        own = self._event_of(message)
        deliver = event.topic in self.subscriptions or event.topic in self.publish_only
        seqno = int.from_bytes(message.seqno)
        self._unsaid.append(event.number, own, message, deliver, seqno, effects)

    def _on_stored(self, event: inputs.Stored, now: float, effects: Effects) -> None:
        """Say what is safe now; what became safe together spreads together."""
        safe = self._unsaid.stored(event)
        if len(safe) == 1:
            self._publish(safe[0], now, effects)
            return
        batch: Effects = []
        for own in safe:
            self._publish(own, now, batch)
        effects.extend(interleaved(batch, self._settings.max_rpc_size))

    def _on_not_stored(self, event: inputs.NotStored, now: float, effects: Effects) -> None:
        self._unsaid.not_stored(event, effects)

    def _compose(self, event: inputs.Publish, now: float) -> Message:
        if event.topic != self._checked_topic:
            check_topic(event.topic, self._settings.max_topic_length)
            self._checked_topic = event.topic
        message = self._authorship.compose(event.topic, event.data, now)
        message.id = self._name(message)
        if message.meta.size > self._settings.max_rpc_size:
            raise LimitError(
                f"{len(event.data)} bytes do not fit a message of at most"
                f" {self._settings.max_rpc_size} bytes with its envelope (max_rpc_size)"
            )
        return message

    def _publish(self, own: Waiting[Message], now: float, effects: Effects) -> None:
        message = own.message
        topic, message_id = message.topic, message.id
        if not self._seen.add(message_id, now):
            # Where a message is named by what it says, it has been said before: the log has it.
            effects.append(Published(own.number, own.event, 0, ALREADY_PUBLISHED))
            return
        effects.append(trace.PublishMessage(message_id, topic))
        if own.delivered:
            effects.append(trace.DeliverMessage(message_id, topic, self.id))
        reached = self._route(message, self.id, now, effects)
        effects.append(Published(own.number, own.event, reached, "" if reached else NO_SUBSCRIBERS))

    # Peers come and go.

    def _on_peer_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        peer = event.peer
        if (known := self.peers.get(peer)) is not None:
            known.outbound, known.limited = event.outbound, event.limited
        elif peer != self.id:
            self.peers[peer] = PeerState(
                event.protocol, event.outbound, event.address, event.limited
            )
            effects.append(trace.AddPeer(peer, event.protocol))
        if self.subscriptions and peer != self.id:  # again over another stream: it may not know
            hello = Rpc(subscriptions=tuple(SubOpts(True, topic) for topic in self.subscriptions))
            self._send_split(peer, hello, effects)

    def _on_peer_disconnected(
        self, event: inputs.PeerDisconnected, now: float, effects: Effects
    ) -> None:
        peer = event.peer
        state = drop(self.peers, peer)
        if state is None:
            return
        effects.append(trace.RemovePeer(peer))
        for topic in state.topics:
            self._forget_subscriber(peer, topic)
            self._on_peer_left_topic(peer, topic, now, effects)
        if self._unannounced.pop(peer, None):
            effects.append(CancelTimer(_Announce(peer)))

    def _forget_subscriber(self, peer: PeerId, topic: Topic) -> None:
        subscribers = self.topics[topic]
        drop(subscribers, peer)
        if not subscribers:
            del self.topics[topic]

    # What peers send.

    def _has_news(self, peer: PeerId, subs: tuple[SubOpts, ...]) -> bool:
        """Whether not all is said again, which costs its peer next to nothing, and so must us."""
        topics = self.topics
        return any(sub.subscribe != (peer in topics.get(sub.topic, ())) for sub in subs)

    def _on_subscriptions(
        self, peer: PeerId, state: PeerState, subs: Iterable[SubOpts], now: float, effects: Effects
    ) -> None:
        known, limit = dict.fromkeys(state.topics), self._settings.max_subscriptions_per_peer
        interests, admits = self._subscription_filter, self._peer_filter
        filtered, refused, too_often, size = 0, 0, 0, sum(map(len, known))
        for sub in subs:
            topic = sub.topic
            if sub.subscribe == (topic in known):
                continue
            if sub.subscribe:
                if interests is not None and not interests(topic):
                    filtered += 1
                    continue
                if admits is not None and not admits(peer, topic):
                    effects.append(trace.Refuse(peer, reasons.FILTERED_PEER, topic))
                    continue
                if len(known) >= limit or size + len(topic) > MAX_NAMES:
                    refused += 1
                    continue
            if known and not state.may_change(now):
                too_often += 1
            elif sub.subscribe:
                known[topic] = None
                size += len(topic)
                self.topics.setdefault(topic, {})[peer] = None
            else:
                del known[topic]
                self._forget_subscriber(peer, topic)
                self._on_peer_left_topic(peer, topic, now, effects)
        state.topics = tuple(known)
        if state.topics == self._usual_topic:
            state.topics = self._usual_topic
        elif len(known) == 1:
            self._usual_topic = state.topics
        if filtered:
            effects.append(trace.Refuse(peer, reasons.FILTERED_SUBSCRIPTION, count=filtered))
        if refused:
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_SUBSCRIPTIONS, count=refused))
        if too_often:
            effects.append(trace.Refuse(peer, reasons.SUBSCRIBED_TOO_OFTEN, count=too_often))

    def _on_new_message(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        if not message.id:
            message.id = self._name(message)
            if message.id in self._seen_ids:
                effects.append(trace.DuplicateMessage(message.id, peer, message.topic))
                if self._judges_all or message.id in self._judged or peer in self._owing:
                    self._on_duplicate(peer, message, now, effects)
                return
        if message.topic not in self.subscriptions:
            effects.append(trace.Refuse(peer, reasons.NOT_SUBSCRIBED, message.topic))
            return
        reason = self._authorship.check(message)
        if reason is not None:
            self._reject(peer, message, reason, now, effects)
            return
        self._seen.add(message.id, now)
        if message.author == self.id:  # signed by us, so said by us, before we were started again
            effects.append(trace.DuplicateMessage(message.id, peer, message.topic))
            if peer in self._owing:
                self._on_duplicate(peer, message, now, effects)
            return
        self._before_validation(peer, message, now, effects)
        event = self._event_of(message)
        verdict = Verdict.ACCEPT if self._validator is None else self._validator(event, peer)
        self._on_verdict(peer, message, event, verdict, now, effects)

    def _on_verdict(
        self,
        peer: PeerId,
        message: Message,
        event: Event,
        verdict: Verdict,
        now: float,
        effects: Effects,
    ) -> None:
        if verdict is Verdict.ACCEPT:
            self._accept(peer, message, event, now, effects)
        elif verdict is Verdict.REJECT:
            self._reject(peer, message, reasons.VALIDATION_FAILED, now, effects)
        elif verdict is Verdict.IGNORE:
            self._reject(peer, message, reasons.VALIDATION_IGNORED, now, effects)
        elif len(self._pending) >= self._settings.max_pending_validations:
            self._reject(peer, message, reasons.VALIDATION_THROTTLED, now, effects)
        else:
            self._pending[message.id] = (peer, message)
            self._on_deferred(message, now)
            effects.append(Validate(event, peer))

    def _on_validated(self, event: inputs.Validated, now: float, effects: Effects) -> None:
        if event.verdict is Verdict.DEFER:
            raise LocalError("a deferred validation must end in accept, ignore or reject")
        if self._recovery.on_validated(event.message_id, event.verdict, effects):
            return
        waiting = self._pending.pop(event.message_id, None)
        if waiting is not None:
            peer, message = waiting
            self._on_verdict(peer, message, self._event_of(message), event.verdict, now, effects)

    def _on_recovered(self, event: inputs.Recovered, now: float, effects: Effects) -> None:
        """A stored event that we asked for: maybe our own, or seen, and not in our log."""
        given, checked = event.event, event.checked
        if given.topic in self.subscriptions and given.id not in self._pending:
            if isinstance(checked, Message):
                checked = None if self._name(checked) == given.id else reasons.WRONG_ID
            if checked is None:
                self._seen.add(given.id, now)
            self._recovery.take(event.peer, given, checked, effects)

    def _accept(
        self, peer: PeerId, message: Message, event: Event, now: float, effects: Effects
    ) -> None:
        self._on_accepted(peer, message, now)
        topic = message.topic
        if topic in self.subscriptions:
            effects.append(trace.DeliverMessage(message.id, topic, peer))
            effects.append(Append(event, deliver=True))
        self._route(message, peer, now, effects)

    def _reject(
        self, peer: PeerId, message: Message, reason: str, now: float, effects: Effects
    ) -> None:
        effects.append(trace.RejectMessage(message.id, peer, reason, message.topic))
        self._on_rejected(peer, message, reason, now, effects)

    def _event_of(self, message: Message) -> Event:
        return Event(
            message.topic, message.data, message.author, message.id, (), None, proof_of(message)
        )

    # What could not be sent.

    def _on_send_dropped(self, event: inputs.SendDropped, now: float, effects: Effects) -> None:
        peer = event.peer
        rpc: Rpc = event.message  # type: ignore[assignment]
        if peer in self.peers and rpc.subscriptions:
            lost = self._unannounced.setdefault(peer, {})
            lost.update((sub.topic, None) for sub in rpc.subscriptions)
            effects.append(SetTimer(_Announce(peer), now + ANNOUNCE_RETRY))

    def _on_timer(self, event: inputs.TimerFired, now: float, effects: Effects) -> None:
        timer = event.timer
        if isinstance(timer, _Announce):
            subs = self._take_unannounced(timer.peer)
            if subs:
                self._send_split(timer.peer, Rpc(subscriptions=subs), effects)

    def _take_unannounced(self, peer: PeerId) -> tuple[SubOpts, ...]:
        """What a peer must still be told of our subscriptions, as they are now."""
        if not self._unannounced:
            return ()
        topics = self._unannounced.pop(peer, {})
        return tuple(SubOpts(topic in self.subscriptions, topic) for topic in topics)

    def _send_split(self, peer: PeerId, rpc: Rpc, effects: Effects) -> None:
        """Send an RPC that may be larger than the limit."""
        limit = self._settings.max_rpc_size
        parts = (rpc,) if fits(rpc, rpc.meta.size, limit) else split_rpc(rpc, limit)[0]
        effects.extend(Send(peer, part) for part in parts)
