"""Radius gossip as a machine: two floods of half the diameter, which meet in the middle.

A subscription travels `sub_hops` hops from its subscriber, a publication `pub_hops` hops from its
publisher. Whoever gets both sends the publication to the subscriber in a letter (DIRECTMSG). If the
two radii together are at least the diameter of the overlay, then on a shortest path from publisher
to subscriber there is a peer within both, and every subscriber is reached. Hops are exact: what
starts with r hops reaches everybody within distance r and nobody beyond it, in whatever order
messages arrive (`publications`).

Nothing is believed that is not signed: interests by their owner, publications by their author. Hop
counts are outside the signatures and bounded instead. A publication is accepted for a limited time
after its date and its id is remembered for longer than that, so each is delivered once.

This module is the publishing half and the way in; `subscriptions` is the other half. Handlers of
inputs are `_on_...`; they take the time and append effects.
"""

from functools import partial
from math import inf
from typing import Final

from rumormill.core import inputs, trace
from rumormill.core.effects import Append, Effects, Published, SendAll, SetTimer, Validate
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.history import STEP
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId, Topic, check_topic
from rumormill.core.inputs import Input, PeerDisconnected, Verdict
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.core.rate_limit import RateLimit
from rumormill.overlay.hyparview.hyparview import HyParView
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import RELAY_OVERHEAD, RadiusConfig
from rumormill.protocols.radius.letters import POST, Letters
from rumormill.protocols.radius.messages import (
    MARK_BYTES,
    Frame,
    Publication,
    Relay,
    check_kept,
    is_signed,
    sign,
)
from rumormill.protocols.radius.neighbours import Links, answer
from rumormill.protocols.radius.publications import DIRECT, Copy, SeenPublications
from rumormill.protocols.radius.radii import Radii
from rumormill.protocols.radius.rendezvous import few_of, live_subscribers
from rumormill.protocols.radius.subscriptions import (
    GATHER,
    GREET_RETRY,
    RENEW,
    Greet,
    Subscriptions,
)
from rumormill.protocols.recovery import Recovery
from rumormill.protocols.registry import NO_HOOKS, Hooks
from rumormill.protocols.unsaid import Unsaid, Waiting

RADIUS: Final = "/rumormill/radius/1.0.0"

CLEAN: Final = "clean"
"""The timer at which expired subscriptions are removed."""

NOBODY: Final = "no neighbour and no known subscriber"

_HANDLERS: Final = {
    inputs.Start: "_on_start",
    inputs.Subscribe: "_on_subscribe",
    inputs.Unsubscribe: "_on_unsubscribe",
    inputs.Publish: "_on_publish",
    inputs.Stored: "_on_stored",
    inputs.NotStored: "_on_not_stored",
    inputs.PeerConnected: "_on_peer_connected",
    PeerDisconnected: "_on_peer_disconnected",
    inputs.ConnectFailed: "_on_connect_failed",
    inputs.Received: "_on_received",
    inputs.SendDropped: "_on_send_dropped",
    inputs.TimerFired: "_on_timer",
    inputs.Validated: "_on_validated",
    inputs.Command: "_on_command",
    inputs.Recovered: "_on_recovered",
}


class Radius:
    """A radius gossip peer."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: RadiusConfig,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        config.validate()
        self.id = identity.peer
        self.neighbours: dict[PeerId, float] = {}
        """Whom messages are passed on to, each with the time since when."""
        self.overlay: HyParView | Links = Links(self._on_up, self._on_down)
        if config.overlay == "hyparview":
            self.overlay = HyParView(
                identity.peer,
                randomness,
                config.hyparview,
                wrap=Frame.of_membership,
                addresses=hooks.addresses,
                on_up=self._on_up,
                on_down=self._on_down,
            )
        self.radii = Radii(config, self.overlay, self.neighbours)
        self.subscriptions = Subscriptions(
            identity,
            randomness,
            config,
            neighbours=self.neighbours,
            radii=self.radii,
            may_verify=self._may_verify,
            may_introduce=self._may_introduce,
            addresses=hooks.addresses,
        )
        self.publish_only: dict[Topic, None] = {}
        self._identity = identity
        self._config = config
        self._validator = hooks.validator
        remembered = config.publication_lifetime + 2 * config.clock_skew
        self.seen = SeenPublications(remembered, config.max_delivered)
        self._last_time = 0
        self._pending: dict[MessageId, Copy] = {}
        self._unsaid: Unsaid[Publication] = Unsaid()
        self.check_kept = partial(check_kept, verifier=identity)
        self._recovery = Recovery(self.id, hooks.validator, config.max_pending_validations)
        self._rate_limits: dict[PeerId, RateLimit] = {}
        self._strangers = RateLimit(config.verify_rate, config.verify_burst)
        self._introductions: dict[PeerId, RateLimit] = {}
        self._by_strangers = RateLimit(config.owner_rate, config.owner_burst)
        self._letters = Letters(
            identity.peer, self.subscriptions.interests, self._rate_limits, self.overlay.touch
        )

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise LocalError(f"{type(event).__name__} is not an input of this protocol")
        getattr(self, handler)(event, now, effects)

    def view(self) -> View:
        """Show subscriptions, known subscribers and neighbours (see `core.machine`)."""
        return View(
            tuple(self.subscriptions.own),
            self.subscriptions.interests.by_topic(),
            {"neighbour": {"": tuple(self.neighbours)}},
        )

    @property
    def sub_hops(self) -> int:
        """How far our subscriptions travel now."""
        return self.radii.subscriptions

    @property
    def pub_hops(self) -> int:
        """How far our publications travel now, at most."""
        return self.radii.publications

    # Requests of the application.

    def _on_start(self, event: inputs.Start, now: float, effects: Effects) -> None:
        self._last_time = int(event.latest * 1e9)
        self.overlay.start(now, effects)
        effects.append(SetTimer(CLEAN, now + self._config.clean_interval))
        self.subscriptions.start(self.sub_hops, now, effects)

    def _on_subscribe(self, event: inputs.Subscribe, now: float, effects: Effects) -> None:
        topic, own = event.topic, self.subscriptions.own
        if topic in (self.publish_only if event.publish_only else own):
            return
        if topic in own or topic in self.publish_only:
            raise LocalError(
                f"the topic {topic!r} is either subscribed to or publish-only: unsubscribe first"
            )
        check_topic(topic, self._config.max_topic_length)
        if max(len(own), len(self.publish_only)) >= self._config.max_subscriptions:
            raise LimitError(
                f"cannot subscribe to more than {self._config.max_subscriptions} topics"
                " (max_subscriptions)"
            )
        if event.publish_only:
            self.publish_only[topic] = None
            return
        effects.append(trace.Join(topic))
        self.subscriptions.subscribe(topic, self.sub_hops, now, effects)

    def _on_unsubscribe(self, event: inputs.Unsubscribe, now: float, effects: Effects) -> None:
        topic = event.topic
        self.publish_only.pop(topic, None)
        if topic in self.subscriptions.own:
            effects.append(trace.Leave(topic))
            self.subscriptions.unsubscribe(topic, self.sub_hops, now, effects)

    def _on_publish(self, event: inputs.Publish, now: float, effects: Effects) -> None:
        publication, topic = self._compose(event, now), event.topic
        own = publication.to_event()
        deliver = topic in self.subscriptions.own or topic in self.publish_only
        self._unsaid.append(event.number, own, publication, deliver, publication.time, effects)

    def _on_stored(self, event: inputs.Stored, now: float, effects: Effects) -> None:
        for own in self._unsaid.stored(event):
            self._publish(own, now, effects)

    def _on_not_stored(self, event: inputs.NotStored, now: float, effects: Effects) -> None:
        self._unsaid.not_stored(event, effects)

    def _compose(self, event: inputs.Publish, now: float) -> Publication:
        check_topic(event.topic, self._config.max_topic_length)
        self._last_time = max(self._last_time + STEP, int(now * 1e9))
        publication = Publication(self.id, event.topic, self._last_time, event.data)
        sign(publication, self._identity)
        config = self._config
        room = config.max_message - RELAY_OVERHEAD - MARK_BYTES * config.max_marks
        if len(publication.encoded) > room:
            raise LimitError(
                f"{len(event.data)} bytes do not fit a message of at most"
                f" {config.max_message} bytes with its envelope (max_message)"
            )
        return publication

    def _publish(self, own: Waiting[Publication], now: float, effects: Effects) -> None:
        publication, topic = own.message, own.event.topic
        hops = self.radii.publication(self.subscriptions.interests.of_topic(topic), now)
        self.seen.put(publication.id, hops, now)
        effects.append(trace.PublishMessage(publication.id, topic))
        if own.delivered:
            effects.append(trace.DeliverMessage(publication.id, topic, self.id))
        reached = self._meet(Copy(self.id, publication, hops), now, effects)
        effects.append(Published(own.number, own.event, reached, "" if reached else NOBODY))

    def _on_command(self, event: inputs.Command, now: float, effects: Effects) -> None:
        answer(event, self.neighbours, effects)

    # Peers come and go.

    def _on_peer_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        peer = event.peer
        if peer in self._rate_limits or peer == self.id:
            return
        config = self._config
        self._rate_limits[peer] = RateLimit(config.verify_rate, config.verify_burst)
        self._introductions[peer] = RateLimit(config.owner_rate, config.owner_burst)
        effects.append(trace.AddPeer(peer, event.protocol))
        self.overlay.on_connected(peer, event.outbound, now, effects)

    def _on_peer_disconnected(self, event: PeerDisconnected, now: float, effects: Effects) -> None:
        if self._rate_limits.pop(event.peer, None) is not None:
            del self._introductions[event.peer]
            effects.append(trace.RemovePeer(event.peer))
            self.overlay.on_disconnected(event.peer, now, effects)

    def _on_connect_failed(self, event: inputs.ConnectFailed, now: float, effects: Effects) -> None:
        self.overlay.on_connect_failed(event.peer, now, effects)

    def _on_up(self, peer: PeerId, now: float, effects: Effects) -> None:
        self.neighbours[peer] = now
        if self._config.greet:
            self.subscriptions.greet(peer, now, effects)

    def _on_down(self, peer: PeerId, now: float, effects: Effects) -> None:
        self.neighbours.pop(peer, None)

    def _may_verify(self, peer: PeerId, now: float) -> bool:
        """Whether a peer may have us check one more signature now."""
        return self._rate_limits.get(peer, self._strangers).take(now)

    def _may_introduce(self, peer: PeerId, now: float) -> bool:
        """Whether a peer may tell us of one more subscriber that we have not heard of."""
        return self._introductions.get(peer, self._by_strangers).take(now)

    # What peers send.

    def _on_received(self, event: inputs.Received, now: float, effects: Effects) -> None:
        peer = event.peer
        frame: Frame = event.message  # type: ignore[assignment]
        if peer not in self.neighbours:
            self.overlay.touch(peer, now)
        if frame.interests:
            self.subscriptions.on_spreads(peer, frame.interests, now, effects)
        for relay in frame.publications:
            self._on_relay(peer, relay, now, effects)
        for publication in frame.direct:
            self._on_direct(peer, publication, now, effects)
        for message in frame.membership:
            self.overlay.on_message(peer, message, now, effects)

    def _on_relay(self, peer: PeerId, relay: Relay, now: float, effects: Effects) -> None:
        publication, hops = relay.publication, relay.hops
        if hops > self._config.max_hops:
            effects.append(trace.Refuse(peer, reasons.HOPS_CLAMPED, publication.topic))
            hops = self._config.max_hops
        uid = publication.id
        best = self.seen.get(uid)
        if best is not None:
            effects.append(trace.DuplicateMessage(uid, peer, publication.topic))
            if hops <= best or best >= self.radii.enough:
                return
        copy = Copy(peer, publication, hops, relay.served)
        if uid in self._pending:
            # The verdict is awaited; what counts by then is the copy that may travel farthest.
            if self._refusal(copy, now) is None:
                self._pending[uid] = copy
                self.seen.put(uid, hops, now)
        elif self._accepts(copy, now, effects):
            self.seen.put(uid, hops, now)
            if best is None:
                self._judge(copy, now, effects)
            else:
                self._meet(copy, now, effects, again=best >= 0)

    def _on_direct(
        self, peer: PeerId, publication: Publication, now: float, effects: Effects
    ) -> None:
        uid = publication.id
        if self.seen.get(uid) is not None:
            effects.append(trace.DuplicateMessage(uid, peer, publication.topic))
        elif publication.topic not in self.subscriptions.own:
            effects.append(trace.Refuse(peer, reasons.NOT_SUBSCRIBED, publication.topic))
        else:
            copy = Copy(peer, publication, DIRECT)
            if self._accepts(copy, now, effects):
                self.seen.put(uid, DIRECT, now)
                self._judge(copy, now, effects)

    def _accepts(self, copy: Copy, now: float, effects: Effects) -> bool:
        reason = self._refusal(copy, now)
        if reason is not None:
            self._reject(copy, reason, effects)
        return reason is None

    def _refusal(self, copy: Copy, now: float) -> str | None:
        """Why a publication is refused; the signature is looked at last, since it costs most."""
        publication, config = copy.publication, self._config
        if not publication.topic:
            return reasons.NO_TOPIC
        if publication.author == self.id:
            return reasons.SELF_ORIGIN
        age = now - publication.time / 1e9
        if age > config.publication_lifetime + config.clock_skew:
            return reasons.EXPIRED
        if age < -config.clock_skew:
            return reasons.TOO_FAR_AHEAD
        if not self._may_verify(copy.peer, now):
            return reasons.TOO_MANY_NEW
        if not is_signed(publication, self._identity):
            return reasons.INVALID_SIGNATURE
        return None

    def _judge(self, copy: Copy, now: float, effects: Effects) -> None:
        """Ask the application about a publication, be it of a topic of ours or only passed on."""
        if self._validator is None:
            self._accept(copy, now, effects)
            return
        verdict = self._validator(copy.publication.to_event(), copy.peer)
        if verdict is not Verdict.DEFER:
            self._on_verdict(copy, verdict, now, effects)
        elif len(self._pending) >= self._config.max_pending_validations:
            self._drop(copy, reasons.VALIDATION_THROTTLED, now, effects)
        else:
            self._pending[copy.publication.id] = copy
            effects.append(Validate(copy.publication.to_event(), copy.peer))

    def _on_validated(self, event: inputs.Validated, now: float, effects: Effects) -> None:
        if event.verdict is Verdict.DEFER:
            raise LocalError("a deferred validation must end in accept, ignore or reject")
        if self._recovery.on_validated(event.message_id, event.verdict, effects):
            return
        copy = self._pending.pop(event.message_id, None)
        if copy is not None:
            self._on_verdict(copy, event.verdict, now, effects)

    def _on_recovered(self, event: inputs.Recovered, now: float, effects: Effects) -> None:
        """A stored publication that we asked for, however old it is."""
        peer, given, checked = event.peer, event.event, event.checked
        if given.topic not in self.subscriptions.own or given.id in self._pending:
            return
        if not isinstance(checked, Publication):
            self._recovery.take(peer, given, checked, effects)
            return
        accepted = self._recovery.take(peer, checked.to_event(), None, effects)
        if self.seen.get(given.id) is None:  # of what is not, no copy is passed on either
            self.seen.put(given.id, DIRECT if accepted else self._config.max_hops, now)

    def _on_verdict(self, copy: Copy, verdict: Verdict, now: float, effects: Effects) -> None:
        if verdict is Verdict.ACCEPT:
            self._accept(copy, now, effects)
        elif verdict is Verdict.REJECT:
            self._drop(copy, reasons.VALIDATION_FAILED, now, effects)
        else:
            self._drop(copy, reasons.VALIDATION_IGNORED, now, effects)

    def _drop(self, copy: Copy, reason: str, now: float, effects: Effects) -> None:
        """Go no further with a true publication; no copy of it, however good, is passed on."""
        self.seen.put(copy.publication.id, self._config.max_hops, now)
        self._reject(copy, reason, effects)

    def _reject(self, copy: Copy, reason: str, effects: Effects) -> None:
        uid, topic = copy.publication.id, copy.publication.topic
        effects.append(trace.RejectMessage(uid, copy.peer, reason, topic))

    def _accept(self, copy: Copy, now: float, effects: Effects) -> None:
        publication = copy.publication
        topic = publication.topic
        if topic in self.subscriptions.own:
            effects.append(trace.DeliverMessage(publication.id, topic, copy.peer))
            effects.append(Append(publication.to_event(), deliver=True))
        if copy.hops != DIRECT:
            self._meet(copy, now, effects)

    # Where the floods meet.

    def _meet(self, copy: Copy, now: float, effects: Effects, *, again: bool = False) -> int:
        """Serve the subscribers that we know and pass the publication on; return to how many.

        With `again` it is a farther travelling copy of a publication that was served before.
        """
        publication, config = copy.publication, self._config
        topic, interests = publication.topic, self.subscriptions.interests
        onward = self.subscriptions.chosen(copy.peer) if copy.hops > 0 else ()
        marks = b""
        if config.serving == "few":
            settled = now - config.settle
            relies = copy.peer != self.id and (
                self.radii.publisher_knows or self.neighbours.get(copy.peer, inf) <= settled
            )
            entries = interests.unsure(topic, settled) if relies else interests.of_topic(topic)
            chosen, marks = few_of(
                live_subscribers(entries, publication.author, now),
                publication.id,
                copy.served,
                dict.fromkeys((*onward, copy.peer)),
                settled,
                hops=copy.hops,
                relies=relies,
                max_marks=config.max_marks,
            )
        else:
            entries = interests.of_topic(topic)
            chosen = [owner for owner, _ in live_subscribers(entries, publication.author, now)]
        if again:
            chosen = []
        if onward:
            relay = Relay(publication, copy.hops - 1, marks)
            effects.append(SendAll(onward, Frame(publications=(relay,))))
        return len(onward) + self._letters.send(publication, chosen, now, effects)

    def _flood_instead(self, publication: Publication, now: float, effects: Effects) -> None:
        """A letter did not reach its subscriber; what we published ourselves may by its links."""
        uid, hops = publication.id, self.radii.publications
        if publication.author == self.id and (self.seen.get(uid) or hops) < hops:
            self.seen.put(uid, hops, now)
            self._meet(Copy(self.id, publication, hops), now, effects, again=True)

    # Time, and what could not be sent.

    def _on_timer(self, event: inputs.TimerFired, now: float, effects: Effects) -> None:
        timer = event.timer
        if timer == POST:
            self._letters.go_on(now, effects)
        elif timer == GATHER:
            self.subscriptions.flush(effects)
        elif timer == RENEW:
            self.subscriptions.renew(self.sub_hops, now, effects)
        elif timer == CLEAN:
            effects.append(SetTimer(CLEAN, now + self._config.clean_interval))
            self.subscriptions.clean(now)
            self.seen.turn(now)
        elif isinstance(timer, Greet):
            if timer.peer in self.neighbours:
                self.subscriptions.greet(timer.peer, now, effects)
        elif self.overlay.on_timer(timer, now, effects):
            self.subscriptions.widen(self.sub_hops, now, effects)

    def _on_send_dropped(self, event: inputs.SendDropped, now: float, effects: Effects) -> None:
        peer = event.peer
        frame: Frame = event.message  # type: ignore[assignment]
        if frame.direct and event.reason not in reasons.CONGESTION:
            # A letter failed, and not for want of room here: its addressee is out of reach.
            informants = self.subscriptions.interests.lose(peer)
            if informants:
                lost = len(informants)
                effects.append(trace.Refuse(peer, reasons.SUBSCRIBER_LOST, count=lost))
                self._letters.on_missing(informants)
            for publication in frame.direct:
                self._flood_instead(publication, now, effects)
        if frame.interests and peer in self.neighbours:
            effects.append(SetTimer(Greet(peer), now + GREET_RETRY))
