"""Pulsarcast: a whole peer as one pure machine.

Topics and events are immutable descriptors named by their hash, linked into a Merkle DAG: a topic
to its earlier version and its sub-topics, an event to its topic and to an event before it. Per
topic there is a tree of peers that grows towards the topic's author: a peer joins below the known
peer that is closest to the author in Kademlia's metric. An event travels along the tree's edges, up
and down, once over each. What a peer missed it finds by the links and gets from its neighbours or
from the DHT, so every subscriber ends with the whole history and can prove every piece of it.

The machine only distributes inputs. What is under way is a table of values (`operations`); the
parts are `tree` (topics, trees, the way of events) and `history` (what is known, missing, read), on
the formats that stand beside them; the DHT is Kademlia.
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
    Loaded,
    NotStored,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Stored,
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
from rumormill.protocols.pulsarcast.additions import (
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    RequestReply,
    Terms,
)
from rumormill.protocols.pulsarcast.commands import cid_of
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import SLIGHT, Context
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher, BlockValidator
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds
from rumormill.protocols.pulsarcast.history.missing_parents import MissingParents
from rumormill.protocols.pulsarcast.history.reading import HistoryReading
from rumormill.protocols.pulsarcast.history.reconciliation import Reconciliation
from rumormill.protocols.pulsarcast.operations import (
    EventStored,
    FetchTimer,
    HoldTimer,
    LookTimer,
    ParentTimer,
    RangeTimer,
    RequestTimer,
    SubscribeTimer,
    WayFound,
)
from rumormill.protocols.pulsarcast.rpc import Operation, Rpc, RpcMessage, addition
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.tree.children import Children
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics
from rumormill.protocols.pulsarcast.tree.membership import TreeMembership
from rumormill.protocols.pulsarcast.tree.own_events import OwnEvents
from rumormill.protocols.pulsarcast.tree.parent_search import ParentSearch
from rumormill.protocols.pulsarcast.tree.publishing import Publication, Publishing
from rumormill.protocols.pulsarcast.tree.requests import Requests
from rumormill.protocols.pulsarcast.tree.subscriptions import Subscriptions
from rumormill.protocols.pulsarcast.tree.topic_commands import Question, TopicCommands
from rumormill.protocols.pulsarcast.tree.trees import Branch, BranchTimer, Trees
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
        self._operations = context.operations
        self._started = False
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
        trees = self.trees = Trees(context, self._on_left)
        feeds = self.feeds = Feeds(context)
        fetcher = self._fetcher = BlockFetcher(context, self.dht)
        topics = self.topics = KnownTopics(context, fetcher, trees.branches)
        events = self._events = Dissemination(
            context, trees, feeds, topics, on_missing=self._on_missing
        )
        self._missing = MissingParents(context, trees, feeds, events, fetcher)
        self._reconciliation = Reconciliation(context, trees, feeds, self._missing)
        self._parents = ParentSearch(
            context,
            trees,
            self.dht,
            on_parent=self._on_parent,
            refresh=self._reconciliation.refresh,
        )
        children = Children(context, on_silence=self._on_silence)
        membership = self.membership = TreeMembership(
            context, trees, feeds, topics, self._parents, children, events, self._reconciliation
        )
        self._subscriptions = Subscriptions(context, trees, feeds, topics, membership)
        own = OwnEvents(context, feeds, events, fetcher)
        self._requests = Requests(context, trees, feeds, own)
        self._publishing = Publishing(
            context, trees, feeds, topics, membership, events, fetcher, own, self._requests
        )
        self._topic_commands = TopicCommands(context, topics, self._subscriptions, self._publishing)
        self._reading = HistoryReading(
            context, trees, feeds, topics, membership, events, self._reconciliation, fetcher
        )

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
        self._events.on_parent(branch, now, effects)
        self._requests.on_parent(branch.topic, now, effects)
        self._operations.tell(WayFound(branch.topic), now, effects)

    def _on_silence(self, branch: Branch, now: float, effects: Effects) -> None:
        self.membership.on_silence(branch, now, effects)

    def _on_missing(
        self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects
    ) -> None:
        self._missing.note(feed, cid, peer, now, effects)

    def _on_result(self, result: LookupResult, now: float, effects: Effects) -> None:
        if result.kind is LookupKind.FIND_CLOSEST:
            self._parents.on_found(result.key, result.peers, now, effects)
        elif result.kind is LookupKind.GET_VALUE:
            cid = cid_of_key(result.key)
            if cid is not None:
                self._fetcher.on_value(cid, result.value, result.proof, now, effects)

    # What the runtime shows of us.

    def view(self) -> View:
        """Show the trees in which we stand (see `core.machine`)."""
        branches = {cids.text(cid): branch for cid, branch in self.trees.branches.items()}
        parents = {
            topic: (branch.parent,)
            for topic, branch in branches.items()
            if branch.parent is not None
        }
        return View(
            tuple([cids.text(cid) for cid in self.membership.subscriptions]),
            {
                **{feed.text: () for feed in self.feeds.opening.values()},
                **{topic: branch.neighbours for topic, branch in branches.items()},
            },
            {
                "parent": parents,
                "child": {topic: tuple(branch.children) for topic, branch in branches.items()},
            },
        )

    # Peers and the network.

    def _on_start(self, event: Start, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)
        if self._started:
            self._resume(now, effects)
        self._started = True

    def _resume(self, now: float, effects: Effects) -> None:
        """We come back with our state: connections and timers are gone, and so are those who waited
        for us. What the application wants is begun anew, from what the log has."""
        for part in (
            self._operations,
            self._fetcher,
            self._missing,
            self._reconciliation,
            self._parents,
            self._requests,
            self._events,
            self._reading,
            self.membership,
            self.feeds,
        ):
            part.clear()
        self.trees.branches.clear()
        self._subscriptions.resume(now, effects)

    def _on_peer_connected(self, event: PeerConnected, now: float, effects: Effects) -> None:
        peer = event.peer
        if peer in self._context.connected or peer == self.id:
            return
        self._context.connected[peer] = event.protocol
        effects.append(trace.AddPeer(peer, event.protocol))
        self.dht.handle(event, now, effects)
        self._parents.on_connected(peer, now, effects)

    def _on_peer_disconnected(self, event: PeerDisconnected, now: float, effects: Effects) -> None:
        if self._context.connected.pop(event.peer, None) is None:
            return
        effects.append(trace.RemovePeer(event.peer))
        self.dht.handle(event, now, effects)
        self.membership.on_peer_gone(event.peer, now, effects)

    def _on_connect_failed(self, event: ConnectFailed, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)
        self._parents.on_connect_failed(event.peer, now, effects)

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
            self._events.on_hold_timer(timer.topic, now, effects)
        elif isinstance(timer, ParentTimer):
            self._missing.on_timer(timer, now, effects)
        elif isinstance(timer, FetchTimer):
            self._fetcher.on_timer(timer.cid, now, effects)
        elif isinstance(timer, RangeTimer):
            self._reconciliation.on_timer(timer.topic, now, effects)
        elif isinstance(timer, RequestTimer):
            self._requests.on_timer(timer.cid, now, effects)
        elif isinstance(timer, LookTimer | SubscribeTimer):
            self._operations.tell(timer, now, effects)

    # What the log says.

    def _on_stored(self, event: Stored, now: float, effects: Effects) -> None:
        for cid in event.barriers:
            assert isinstance(cid, bytes)
            self._operations.tell(EventStored(cid), now, effects)

    def _on_not_stored(self, event: NotStored, now: float, effects: Effects) -> None:
        for cid in event.barriers:
            assert isinstance(cid, bytes)
            self._operations.tell(EventStored(cid, event.reason), now, effects)

    def _on_loaded(self, event: Loaded, now: float, effects: Effects) -> None:
        self._operations.tell(event, now, effects)

    # What peers send.

    def _on_event(
        self, peer: PeerId, signed: SignedEvent, message: Rpc | None, now: float, effects: Effects
    ) -> None:
        if self._context.penalties.banned and self._context.penalties.is_banned(peer, now):
            effects.append(trace.Refuse(peer, reasons.BANNED))
            return
        self._events.receive(peer, signed, message, now, effects)

    def _on_rpc(self, peer: PeerId, message: Rpc, now: float, effects: Effects) -> None:
        if self._context.penalties.is_banned(peer, now):
            effects.append(trace.Refuse(peer, reasons.BANNED))
            return
        for refused in message.refused:
            effects.append(trace.Refuse(peer, refused.reason))
            self._context.penalties.penalise(peer, refused.reason, SLIGHT, now, effects)
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
        if part.misplaced:
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
            self._missing.on_events(peer, each, now, effects)
            if each.end:
                self._reconciliation.on_answer(peer, each, now, effects)
        elif kind is Have:
            self._reconciliation.on_have(peer, each, now, effects)
        elif kind is Block:
            self.topics.on_block(peer, each, now, effects)

    def _on_fetch(self, peer: PeerId, question: Fetch, now: float, effects: Effects) -> None:
        if question.topic in question.wanted:
            topic = self.topics.get(question.topic)
            if topic is None:
                answer = Events(question.topic, missing=(question.topic,))
                self._context.send(peer, addition(answer), effects)
            else:
                block = Block(question.topic, topic.dag())
                self._context.send(peer, addition(block), effects)
        self._missing.on_fetch(peer, question, now, effects)

    # What the application asks for.

    def _on_subscribe(self, event: Subscribe, now: float, effects: Effects) -> None:
        cid = cid_of(event.topic)
        if event.publish_only:
            if cid in self.membership.subscriptions:
                raise LocalError(
                    f"the topic {event.topic!r} is either subscribed to or publish-only:"
                    " unsubscribe first"
                )
            self._subscriptions.stand_by(cid, now, effects)
            return
        meta = self._context.config.subscribe_to_meta
        self._subscriptions.subscribe(cid, now, effects, meta=meta)

    def _on_unsubscribe(self, event: Unsubscribe, now: float, effects: Effects) -> None:
        meta = self._context.config.unsubscribe_from_meta
        self._subscriptions.unsubscribe(cid_of(event.topic), now, effects, meta=meta)

    def _on_publish(self, event: Publish, now: float, effects: Effects) -> None:
        cid, number = cid_of(event.topic), event.number
        publication = Publication(cid, event.data, number=number, at_once=event.at_once)
        self._publishing.begin(publication, now, effects)

    def _on_validated(self, event: Validated, now: float, effects: Effects) -> None:
        self._events.on_validated(event, now, effects)

    def _on_command(self, event: Command, now: float, effects: Effects) -> None:
        try:
            self._carry_out(event.number, event.body, now, effects)
        except LocalError as error:
            effects.append(Outcome(event.number, None, str(error)))

    def _carry_out(self, number: int, body: object, now: float, effects: Effects) -> None:
        if isinstance(body, commands.CreateTopic):
            self._topic_commands.create(number, body, now, effects)
        elif isinstance(body, commands.SubscribeTo):
            cid = cid_of(body.topic)
            self._subscriptions.subscribe(cid, now, effects, meta=body.meta)
            self._subscriptions.announce_arrival(number, cid, now, effects)
        elif isinstance(body, commands.UnsubscribeFrom):
            self._subscriptions.unsubscribe(cid_of(body.topic), now, effects, meta=body.meta)
            effects.append(Outcome(number))
        elif isinstance(body, commands.PublishEvent):
            parent = None if body.parent is None else cid_of(body.parent)
            cid = cid_of(body.topic)
            publication = Publication(cid, body.data, command=number, parent=parent)
            self._publishing.begin(publication, now, effects)
        elif isinstance(body, Question):
            self._topic_commands.ask(number, body, effects)
        elif isinstance(body, commands.ReadHistory):
            self._reading.begin(number, body, now, effects)
        else:
            raise LocalError(f"{type(body).__name__} is not a command of Pulsarcast")


_HANDLERS: dict[type, Callable[[PulsarcastPeer, Any, float, Effects], None]] = {
    Start: PulsarcastPeer._on_start,
    Subscribe: PulsarcastPeer._on_subscribe,
    Unsubscribe: PulsarcastPeer._on_unsubscribe,
    Publish: PulsarcastPeer._on_publish,
    Stored: PulsarcastPeer._on_stored,
    NotStored: PulsarcastPeer._on_not_stored,
    Loaded: PulsarcastPeer._on_loaded,
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
