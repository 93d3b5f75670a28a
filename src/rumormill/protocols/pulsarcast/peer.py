"""Pulsarcast: a whole peer as one pure machine.

Topics and events are immutable descriptors named by their hash, linked into a Merkle DAG: a topic
to its earlier version and its sub-topics, an event to its topic and to an event before it. Per
topic there is a tree of peers that grows towards the topic's author: a peer joins below the known
peer that is closest to the author in Kademlia's metric. An event travels along the tree's edges, up
and down, once over each. What a peer missed it finds by the links and gets from its neighbours or
from the DHT, so every subscriber ends with the whole history and can prove every piece of it.

The machine only distributes inputs. Its parts: `forest`, `climbing`, `nursery` and `membership` are
the trees; `dissemination` the way of events; `publishing` and `requests` where they come from;
`gaps`, `syncing` and `history` what was missed; `library` and `catalogue` the topics; Kademlia the
rest.
"""

from collections.abc import Callable
from typing import Any

from rumormill.core import trace
from rumormill.core.effects import Effects, Outcome
from rumormill.core.errors import LocalError
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId
from rumormill.core.inputs import (
    Answered,
    Asked,
    AskFailed,
    Command,
    ConnectFailed,
    Input,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
)
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.operations import LookupKind, LookupResult
from rumormill.overlay.kademlia.validators import CONTENT_NAMESPACE, DEFAULT_VALIDATORS
from rumormill.overlay.kademlia.validators import cid_of as cid_of_key
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import commands, reasons, validation
from rumormill.protocols.pulsarcast.blocks import BlockValidator
from rumormill.protocols.pulsarcast.branch import Branch, BranchTimer
from rumormill.protocols.pulsarcast.catalogue import Catalogue
from rumormill.protocols.pulsarcast.climbing import Climbing
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import SLIGHT, Context
from rumormill.protocols.pulsarcast.dissemination import Dissemination
from rumormill.protocols.pulsarcast.feed import Feed
from rumormill.protocols.pulsarcast.forest import Forest
from rumormill.protocols.pulsarcast.gaps import Gaps
from rumormill.protocols.pulsarcast.hunting import Hunting
from rumormill.protocols.pulsarcast.library import Library
from rumormill.protocols.pulsarcast.membership import Membership, cid_of
from rumormill.protocols.pulsarcast.nursery import Nursery
from rumormill.protocols.pulsarcast.publishing import Publishing
from rumormill.protocols.pulsarcast.recollection import Histories
from rumormill.protocols.pulsarcast.requests import Requests
from rumormill.protocols.pulsarcast.rpc import (
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    Operation,
    RequestReply,
    Rpc,
    RpcMessage,
    Terms,
    addition,
)
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.syncing import Syncing
from rumormill.protocols.pulsarcast.timers import (
    GapTimer,
    HoldTimer,
    HuntTimer,
    LookTimer,
    PullTimer,
    RequestTimer,
    SubscribeTimer,
)
from rumormill.protocols.registry import NO_HOOKS, Hooks


class PulsarcastPeer:
    """One Pulsarcast peer (see `core.machine`)."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: PulsarcastConfig,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        config.validate()
        context = self._context = Context(identity, randomness, config, hooks)
        self.id = context.id
        self.dht = Kademlia(
            context.id,
            randomness,
            config.kademlia,
            on_result=self._on_result,
            addresses=hooks.addresses,
            validators={
                **DEFAULT_VALIDATORS,
                CONTENT_NAMESPACE: BlockValidator(identity, required=config.require_signatures),
            },
        )
        self.forest = Forest(context, self._on_left)
        self._hunting = Hunting(context, self.dht)
        self.library = Library(context, self._hunting, self.forest.branches)
        self.events = Dissemination(
            context, self.forest, on_gap=self._on_gap, on_delivered=self._on_delivered
        )
        self._gaps = Gaps(context, self.forest, self.events, self._hunting)
        self._syncing = Syncing(context, self.forest, self.events, self._gaps)
        self._climbing = Climbing(
            context,
            self.forest,
            self.dht,
            on_parent=self._on_parent,
            refresh=self._syncing.refresh,
        )
        self._nursery = Nursery(context, self.forest, on_silence=self._on_silence)
        self.membership = Membership(
            context,
            self.forest,
            self.library,
            self._climbing,
            self._nursery,
            self.events,
            self._syncing,
        )
        self._publishing = Publishing(
            context, self.library, self.membership, self.events, self._hunting
        )
        self._requests = Requests(context, self.forest, self.events, self._publishing.grant)
        self._publishing.requests = self._requests
        self._catalogue = Catalogue(context, self.library, self.membership, self._publishing)
        self._histories = Histories(
            context, self.library, self.membership, self.events, self._syncing, self._hunting
        )
        self._started = False

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if type(event) is Received:
            message: Rpc = event.message  # type: ignore[assignment]
            if len(message.messages) == 1 and not message.additions and not message.refused:
                only = message.messages[0]
                if only.op == Operation.PUBLISH_EVENT and only.event is not None:
                    self._on_event(event.peer, only.event, message, now, effects)
                    return
            self._on_rpc(event.peer, message, now, effects)
            return
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise LocalError(f"{type(event).__name__} is not an input of this protocol")
        handler(self, event, now, effects)

    # Between the parts.

    def _on_left(self, topic: bytes, now: float, effects: Effects) -> None:
        self.membership.on_left(topic, now, effects)

    def _on_parent(self, branch: Branch, now: float, effects: Effects) -> None:
        self.events.on_parent(branch, now, effects)
        self._requests.on_parent(branch.topic, now, effects)
        self.membership.on_parent(branch, now, effects)

    def _on_silence(self, branch: Branch, now: float, effects: Effects) -> None:
        self.membership.on_silence(branch, now, effects)

    def _on_gap(self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects) -> None:
        self._gaps.note(feed, cid, peer, now, effects)

    def _on_delivered(self, feed: Feed, signed: SignedEvent, effects: Effects) -> None:
        self._catalogue.on_delivered(feed, signed, effects)

    def _on_result(self, result: LookupResult, now: float, effects: Effects) -> None:
        if result.kind is LookupKind.FIND_CLOSEST:
            self._climbing.on_found(result.key, result.peers, now, effects)
        elif result.kind is LookupKind.GET_VALUE:
            cid = cid_of_key(result.key)
            if cid is not None:
                self._hunting.on_value(cid, result.value, result.proof, now, effects)

    # What the runtime shows of us.

    def view(self) -> View:
        """Show the trees in which we stand (see `core.machine`)."""
        branches = {cids.text(cid): branch for cid, branch in self.forest.branches.items()}
        parents = {
            topic: (branch.parent,)
            for topic, branch in branches.items()
            if branch.parent is not None
        }
        return View(
            tuple([cids.text(cid) for cid in self.membership.subscriptions]),
            {topic: branch.neighbours for topic, branch in branches.items()},
            {
                "parent": parents,
                "child": {topic: tuple(branch.children) for topic, branch in branches.items()},
            },
        )

    # Peers and the network.

    def _on_start(self, event: Start, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)
        if self._started:
            self._climbing.reset()
            self._hunting.reset(now, effects)
            self._gaps.reset()
            self._requests.resume(now, effects)
            self.events.resume(now, effects)
            self.library.resume(now, effects)
            self.membership.resume(now, effects)
        self._started = True

    def _on_peer_connected(self, event: PeerConnected, now: float, effects: Effects) -> None:
        peer = event.peer
        if peer in self._context.connected or peer == self.id:
            return
        self._context.connected[peer] = event.protocol
        effects.append(trace.AddPeer(peer, event.protocol))
        self.dht.handle(event, now, effects)
        self._climbing.on_connected(peer, now, effects)

    def _on_peer_disconnected(self, event: PeerDisconnected, now: float, effects: Effects) -> None:
        if self._context.connected.pop(event.peer, None) is None:
            return
        effects.append(trace.RemovePeer(event.peer))
        self.dht.handle(event, now, effects)
        self.membership.on_peer_gone(event.peer, now, effects)

    def _on_connect_failed(self, event: ConnectFailed, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)
        self._climbing.on_connect_failed(event.peer, now, effects)

    def _on_query(self, event: Asked | Answered | AskFailed, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)

    def _on_send_dropped(self, event: SendDropped, now: float, effects: Effects) -> None:
        """What was lost is asked for again: joins, fetches and requests by their timers, events
        by the comparison of neighbours."""

    def _on_timer(self, event: TimerFired, now: float, effects: Effects) -> None:
        timer = event.timer
        if self.dht.owns(timer):
            self.dht.handle(event, now, effects)
        elif isinstance(timer, BranchTimer):
            self.membership.on_timer(timer.topic, now, effects)
        elif isinstance(timer, HoldTimer):
            self.events.on_hold_timer(timer.topic, now, effects)
        elif isinstance(timer, GapTimer):
            self._gaps.on_timer(timer, now, effects)
        elif isinstance(timer, HuntTimer):
            self._hunting.on_timer(timer.cid, now, effects)
        elif isinstance(timer, PullTimer):
            self._syncing.on_timer(timer.topic, now, effects)
        elif isinstance(timer, RequestTimer):
            self._requests.on_timer(timer.cid, now, effects)
        elif isinstance(timer, LookTimer):
            self.library.on_timer(timer.topic, now, effects)
        elif isinstance(timer, SubscribeTimer):
            self.membership.on_subscribe_timer(timer.topic, now, effects)

    # What peers send.

    def _on_event(
        self, peer: PeerId, signed: SignedEvent, message: Rpc | None, now: float, effects: Effects
    ) -> None:
        if self._context.standing.banned and self._context.standing.is_banned(peer, now):
            effects.append(trace.Refuse(peer, reasons.BANNED))
            return
        self.events.receive(peer, signed, message, now, effects)

    def _on_rpc(self, peer: PeerId, message: Rpc, now: float, effects: Effects) -> None:
        if self._context.standing.is_banned(peer, now):
            effects.append(trace.Refuse(peer, reasons.BANNED))
            return
        for refused in message.refused:
            effects.append(trace.Refuse(peer, refused.reason))
            self._context.standing.penalise(peer, refused.reason, SLIGHT, now, effects)
        terms: dict[bytes, Terms] = {}
        for each in message.additions:
            if type(each) is Terms:
                terms[each.topic] = each
        for part in message.messages:
            self._on_message(peer, part, terms, now, effects)
        for each in message.additions:
            self._on_addition(peer, each, terms, now, effects)

    def _on_message(
        self,
        peer: PeerId,
        part: RpcMessage,
        terms: dict[bytes, Terms],
        now: float,
        effects: Effects,
    ) -> None:
        op = part.op
        if validation.misplaced(part):
            self._context.refuse(peer, validation.MISPLACED, None, SLIGHT, now, effects)
        elif op == Operation.PUBLISH_EVENT and part.event is not None:
            self._on_event(peer, part.event, None, now, effects)
        elif op == Operation.REQUEST_TO_PUBLISH and part.event is not None:
            self._requests.on_request(peer, part.event, now, effects)
        elif op == Operation.JOIN_TOPIC and part.topic_id is not None:
            topic = part.topic_id
            self.membership.on_join(peer, topic, terms.get(topic), now, effects)
        elif op == Operation.LEAVE_TOPIC and part.topic_id is not None:
            self.membership.on_leave(peer, part.topic_id, part.elsewhere, now, effects)
        elif op != Operation.PING:
            self._context.refuse(peer, reasons.UNEXPECTED, None, SLIGHT, now, effects)

    def _on_addition(
        self, peer: PeerId, each: Any, terms: dict[bytes, Terms], now: float, effects: Effects
    ) -> None:
        kind = type(each)
        if kind is JoinReply:
            self.membership.on_reply(peer, each, terms.get(each.topic), now, effects)
        elif kind is RequestReply:
            self._requests.on_reply(peer, each, now, effects)
        elif kind is Fetch:
            self._on_fetch(peer, each, now, effects)
        elif kind is Events:
            self._gaps.on_events(peer, each, now, effects)
            if each.end:
                self._syncing.on_answer(peer, each, now, effects)
        elif kind is Have:
            self._syncing.on_have(peer, each, now, effects)
        elif kind is Block:
            self.library.on_block(peer, each, now, effects)

    def _on_fetch(self, peer: PeerId, question: Fetch, now: float, effects: Effects) -> None:
        if question.topic in question.wanted:
            topic = self.library.get(question.topic)
            if topic is None:
                answer = Events(question.topic, missing=(question.topic,))
                self._context.send(peer, addition(answer), effects)
            else:
                block = Block(question.topic, topic.dag())
                self._context.send(peer, addition(block), effects)
        self._gaps.on_fetch(peer, question, now, effects)

    # What the application asks for.

    def _on_subscribe(self, event: Subscribe, now: float, effects: Effects) -> None:
        cid = cid_of(event.topic)
        if event.publish_only:
            if cid in self.membership.subscriptions:
                raise LocalError(
                    f"the topic {event.topic!r} is either subscribed to or publish-only:"
                    " unsubscribe first"
                )
            self.membership.publish_only[cid] = None
            self.membership.stand_by(cid, now, effects)
            return
        meta = self._context.config.subscribe_to_meta
        self.membership.subscribe(cid, now, effects, meta=meta)

    def _on_unsubscribe(self, event: Unsubscribe, now: float, effects: Effects) -> None:
        meta = self._context.config.unsubscribe_from_meta
        self.membership.unsubscribe(cid_of(event.topic), now, effects, meta=meta)

    def _on_publish(self, event: Publish, now: float, effects: Effects) -> None:
        self._publishing.publish(event.topic, event.data, now, effects, number=event.number)

    def _on_validated(self, event: Validated, now: float, effects: Effects) -> None:
        self.events.on_validated(event, now, effects)

    def _on_command(self, event: Command, now: float, effects: Effects) -> None:
        number, body = event.number, event.body

        def finished(result: object, error: str, _: float, effects: Effects) -> None:
            effects.append(Outcome(number, result, reasons.sentence(error)))

        try:
            self._carry_out(body, finished, now, effects)
        except LocalError as error:
            effects.append(Outcome(number, None, str(error)))

    def _carry_out(
        self,
        body: object,
        finished: Callable[[object, str, float, Effects], None],
        now: float,
        effects: Effects,
    ) -> None:
        if isinstance(body, commands.CreateTopic):
            self._catalogue.create(body, finished, now, effects)
        elif isinstance(body, commands.SubscribeTo):
            cid = cid_of(body.topic)

            def ready(error: str, now: float, effects: Effects) -> None:
                finished(self.library.get(cid), error, now, effects)

            self.membership.subscribe(cid, now, effects, meta=body.meta, ready=ready)
        elif isinstance(body, commands.UnsubscribeFrom):
            self.membership.unsubscribe(cid_of(body.topic), now, effects, meta=body.meta)
            finished(None, "", now, effects)
        elif isinstance(body, commands.PublishEvent):

            def published(cid: bytes | None, error: str, now: float, effects: Effects) -> None:
                finished(None if cid is None else cids.text(cid), error, now, effects)

            parent = None if body.parent is None else cid_of(body.parent)
            self._publishing.publish(
                body.topic, body.data, now, effects, parent=parent, finished=published
            )
        elif isinstance(body, commands.DescribeTopic):
            self._catalogue.describe(cid_of(body.topic), finished, now, effects)
        elif isinstance(body, commands.ShowTopic):
            self._catalogue.show(cid_of(body.topic), finished, now, effects)
        elif isinstance(body, commands.BrowseTopic):
            self._catalogue.browse(cid_of(body.topic), finished, now, effects)
        elif isinstance(body, commands.ListVersions):
            self._catalogue.list_versions(cid_of(body.topic), finished, now, effects)
        elif isinstance(body, commands.ReadHistory):
            self._histories.read(body, finished, now, effects)
        else:
            raise LocalError(f"{type(body).__name__} is not a command of Pulsarcast")


_HANDLERS: dict[type, Callable[[PulsarcastPeer, Any, float, Effects], None]] = {
    Start: PulsarcastPeer._on_start,
    Subscribe: PulsarcastPeer._on_subscribe,
    Unsubscribe: PulsarcastPeer._on_unsubscribe,
    Publish: PulsarcastPeer._on_publish,
    Command: PulsarcastPeer._on_command,
    PeerConnected: PulsarcastPeer._on_peer_connected,
    PeerDisconnected: PulsarcastPeer._on_peer_disconnected,
    ConnectFailed: PulsarcastPeer._on_connect_failed,
    Asked: PulsarcastPeer._on_query,
    Answered: PulsarcastPeer._on_query,
    AskFailed: PulsarcastPeer._on_query,
    SendDropped: PulsarcastPeer._on_send_dropped,
    TimerFired: PulsarcastPeer._on_timer,
    Validated: PulsarcastPeer._on_validated,
}
