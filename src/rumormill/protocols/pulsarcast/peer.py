"""Pulsarcast: a whole peer as one pure machine.

Topics and events are immutable descriptors named by their hash, linked into a Merkle DAG: a topic
to its earlier version and its sub-topics, an event to its topic and to an event before it. Per
topic there is a tree of peers that grows towards the topic's author: a peer joins below the known
peer that is closest to the author in Kademlia's metric. An event travels along the tree's edges, up
and down, once over each. What a peer missed it finds by the links and gets from its neighbours or
from the DHT, so every subscriber ends with the whole history and can prove every piece of it.

The machine only distributes inputs. What is under way is a table of values (`context`); the
parts are `tree` (topics, trees, the way of events) and `history` (what is known, missing, read), on
the formats that stand beside them; the DHT is Kademlia.
"""

from collections.abc import Callable
from typing import Any, Final

from rumormill.core import inputs, trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, Outcome
from rumormill.core.errors import LocalError
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Received
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.core.rate_limit import RateLimit
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.keeping import LOAD as RECORDS_LOAD
from rumormill.overlay.kademlia.operations import LookupKind, LookupResult
from rumormill.overlay.kademlia.validators import CONTENT_NAMESPACE, DEFAULT_VALIDATORS
from rumormill.overlay.kademlia.validators import cid_of as cid_of_key
from rumormill.protocols.pulsarcast import commands, context, reasons
from rumormill.protocols.pulsarcast.commands import cid_of
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import SLIGHT, Context
from rumormill.protocols.pulsarcast.format import additions
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import Operation, Rpc, RpcMessage, addition
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher, BlockValidator
from rumormill.protocols.pulsarcast.history.exchange import Reconciliation
from rumormill.protocols.pulsarcast.history.feed import Feeds
from rumormill.protocols.pulsarcast.history.fetching import EventFetching
from rumormill.protocols.pulsarcast.history.missing import MissingParents, Refetching
from rumormill.protocols.pulsarcast.history.reading import HistoryReading
from rumormill.protocols.pulsarcast.history.rereading import Rereading
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.edges import ParentSearch
from rumormill.protocols.pulsarcast.tree.kept_requests import KeptRequests
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics
from rumormill.protocols.pulsarcast.tree.membership import TreeMembership
from rumormill.protocols.pulsarcast.tree.publishing import Publication, Publishing
from rumormill.protocols.pulsarcast.tree.requests import Requests
from rumormill.protocols.pulsarcast.tree.topic_commands import Arrival, Subscriptions, TopicCommands
from rumormill.protocols.pulsarcast.tree.trees import Trees
from rumormill.protocols.registry import NO_HOOKS, Hooks

_QUESTIONS: Final = 4
"""Questions of one RPC that are answered: our choice, we put one."""
_ANSWERS: Final = 128.0
_ANSWERS_AT_ONCE: Final = 1024.0
"""Questions for events that a peer has answered, per second and at once. Our choice: an answer has
up to as many events, more than anybody verifies meanwhile."""
_MOST_ASKERS: Final = 1024


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
        shared = self._context = Context(identity, randomness, config, hooks)
        self.id = shared.id
        self._operations = shared.operations
        self._started = False
        self._askers: dict[PeerId, RateLimit] = {}
        """What those who lately asked for events may still ask."""
        self.dht = Kademlia(
            shared.id,
            randomness,
            config.kademlia,
            on_result=self._on_result,
            on_contact=self._on_contact,
            addresses=hooks.addresses,
            validators={
                **DEFAULT_VALIDATORS,
                CONTENT_NAMESPACE: BlockValidator(identity, required=config.require_signatures),
            },
            disk=True,
        )
        trees, feeds = self.trees, self.feeds = Trees(), Feeds(shared)
        fetcher = self._fetcher = BlockFetcher(shared, self.dht)
        topics = self.topics = KnownTopics(shared, fetcher, trees.branches)
        events = self._events = Dissemination(shared, trees, feeds, topics, fetcher)
        self._missing = MissingParents(shared, trees, feeds, events, fetcher)
        self._refetching = Refetching(shared, feeds, self._missing)
        compared = self._reconciliation = Reconciliation(shared, trees, feeds, self._missing)
        self._rereading = Rereading(shared, feeds, compared)
        requests = self._requests = Requests(shared, trees, feeds, events)
        parents = self._parents = ParentSearch(shared, trees, self.dht, events, requests, compared)
        membership = self.membership = TreeMembership(
            shared, trees, feeds, topics, parents, events, compared
        )
        self._subscriptions = Subscriptions(shared, trees, feeds, topics, membership)
        self._kept_requests = KeptRequests(shared)
        self._publishing = Publishing(
            shared, trees, feeds, topics, membership, events, fetcher, requests, self._kept_requests
        )
        self._topic_commands = TopicCommands(shared, topics, self._subscriptions, self._publishing)
        self._fetching = EventFetching(shared, feeds, topics, events, fetcher, self.dht)
        self._reading = HistoryReading(
            shared, trees, feeds, topics, membership, events, compared, fetcher
        )

    def handle(self, event: inputs.Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if type(event) is Received:
            message: Rpc = event.message  # type: ignore[assignment]
            if len(message.messages) == 1 and not message.additions and not message.refused:
                only = message.messages[0]
                if only.op == Operation.PUBLISH_EVENT and type(only.payload) is SignedEvent:
                    self._on_event(event.peer, only.payload, message, now, effects)
                    return
            self._on_rpc(event.peer, message, now, effects)
            return
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise LocalError(f"{type(event).__name__} is not an input of this protocol")
        handler(self, event, now, effects)

    # Between the parts.

    def _on_result(self, result: LookupResult, now: float, effects: Effects) -> None:
        if result.kind is LookupKind.FIND_CLOSEST:
            self._parents.on_found(result.key, result.peers, now, effects)
        elif result.kind is LookupKind.GET_VALUE:
            cid = cid_of_key(result.key)
            if cid is not None:
                self._fetcher.on_value(cid, result.value, result.proof, now, effects)

    def _on_contact(self, peer: PeerId, now: float, effects: Effects) -> None:
        self._parents.on_alive(peer, now, effects)

    # What the runtime shows of us.

    def view(self) -> View:
        """Show the trees in which we stand (see `core.machine`)."""
        branches = {cids.text(cid): branch for cid, branch in self.trees.branches.items()}
        parents = {topic: (each.parent,) for topic, each in branches.items() if each.parent}
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
            records=self.dht.records.counts,
        )

    # Peers and the network.

    def _on_start(self, event: inputs.Start, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)
        if self._started:
            self._resume(now, effects)
        self._started = True
        self._publishing.start(now, event.latest)
        self._kept_requests.start(now, effects)

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

    def _on_peer_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        peer = event.peer
        if peer in self._context.connected or peer == self.id:
            return
        self._context.connected[peer] = event.protocol
        effects.append(trace.AddPeer(peer, event.protocol))
        self.dht.handle(event, now, effects)
        self._parents.on_alive(peer, now, effects)

    def _on_peer_disconnected(
        self, event: inputs.PeerDisconnected, now: float, effects: Effects
    ) -> None:
        if self._context.connected.pop(event.peer, None) is None:
            return
        effects.append(trace.RemovePeer(event.peer))
        self.dht.handle(event, now, effects)
        self.membership.on_peer_gone(event.peer, now, effects)

    def _on_connect_failed(self, event: inputs.ConnectFailed, now: float, effects: Effects) -> None:
        self.dht.handle(event, now, effects)
        self._parents.on_connect_failed(event.peer, now, effects)

    def _on_send_dropped(self, event: inputs.SendDropped, now: float, effects: Effects) -> None:
        """What was lost is asked for again: joins, fetches and requests by their timers, events
        by the comparison of neighbours."""

    def _on_timer(self, event: inputs.TimerFired, now: float, effects: Effects) -> None:
        timer = event.timer
        if self.dht.owns(timer):
            self.dht.handle(event, now, effects)
        elif isinstance(timer, context.News):
            self._operations.tell(timer, now, effects)
        elif isinstance(timer, context.Timer):
            _TIMERS[type(timer)](self)(timer.about, now, effects)

    # What the log says.

    def _on_stored(
        self, event: inputs.Stored | inputs.NotStored, now: float, effects: Effects
    ) -> None:
        error = event.reason if isinstance(event, inputs.NotStored) else ""
        for barrier in event.barriers:
            if isinstance(barrier, SignedEvent):
                self._refetching.note(barrier, now, effects)
            else:
                assert isinstance(barrier, bytes)
                self._operations.tell(context.EventStored(barrier, error), now, effects)

    def _on_loaded(self, event: inputs.Loaded, now: float, effects: Effects) -> None:
        if event.number == RECORDS_LOAD:
            self.dht.handle(event, now, effects)
        else:
            self._operations.tell(event, now, effects)

    def _on_log_changed(self, event: inputs.LogChanged, now: float, effects: Effects) -> None:
        self.topics.keep_again(effects)
        self._rereading.begin(effects)

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
        terms = {
            message.topic_of(each): each
            for each in message.additions
            if isinstance(each, additions.Terms)
        }
        if not message.messages and len(terms) == len(message.additions):
            for news in terms.values():
                self._reconciliation.on_news(peer, news, now, effects)
            return
        for part in message.messages:
            self._on_message(peer, part, terms, now, effects)
        questions = 0
        for each in message.additions:
            if isinstance(each, additions.Fetch | additions.Have):
                questions += 1
                if questions > _QUESTIONS or not self._answers_to(peer, now):
                    effects.append(trace.Refuse(peer, reasons.ASKED_TOO_OFTEN))
                    continue
            self._on_addition(peer, each, terms, now, effects)

    def _answers_to(self, peer: PeerId, now: float) -> bool:
        """Whether a peer has not asked too much for events lately."""
        limit = self._askers.get(peer) or RateLimit(_ANSWERS, _ANSWERS_AT_ONCE)
        remember(self._askers, peer, limit, _MOST_ASKERS)
        return limit.take(now)

    def _on_message(
        self,
        peer: PeerId,
        part: RpcMessage,
        terms: dict[bytes, additions.Terms],
        now: float,
        effects: Effects,
    ) -> None:
        op, payload = part.op, part.payload
        if part.misplaced:
            self._context.refuse(peer, reasons.MISPLACED, None, SLIGHT, now, effects)
        elif isinstance(payload, SignedEvent) and op == Operation.PUBLISH_EVENT:
            self._on_event(peer, payload, None, now, effects)
        elif isinstance(payload, SignedEvent) and op == Operation.REQUEST_TO_PUBLISH:
            self._requests.on_request(peer, payload, now, effects)
        elif isinstance(payload, bytes) and op == Operation.JOIN_TOPIC:
            self.membership.on_join(peer, payload, terms.get(payload), now, effects)
        elif isinstance(payload, bytes) and op == Operation.LEAVE_TOPIC:
            self.membership.on_leave(peer, payload, part.elsewhere, now, effects)
        elif isinstance(payload, TopicDescriptor) and op == Operation.NEW_TOPIC:
            self.topics.learn(peer, payload, effects)
        elif op != Operation.PING:
            self._context.refuse(peer, reasons.UNEXPECTED, None, SLIGHT, now, effects)

    def _on_addition(
        self,
        peer: PeerId,
        each: additions.Addition,
        terms: dict[bytes, additions.Terms],
        now: float,
        effects: Effects,
    ) -> None:
        match each:
            case additions.JoinReply():
                self.membership.on_reply(peer, each, terms.get(each.topic), now, effects)
            case additions.RequestReply():
                self._requests.on_reply(peer, each, now, effects)
                self._parents.on_alive(peer, now, effects)
            case additions.Fetch():
                self._on_fetch(peer, each, now, effects)
            case additions.Events():
                self._missing.on_events(peer, each, now, effects)
                if each.end:
                    self._reconciliation.on_answer(peer, each, now, effects)
            case additions.Have():
                self._reconciliation.on_have(peer, each, now, effects)
            case additions.Block():
                self.topics.on_block(peer, each, now, effects)

    def _on_fetch(
        self, peer: PeerId, question: additions.Fetch, now: float, effects: Effects
    ) -> None:
        cid = question.topic
        if cid in question.wanted:
            topic = self.topics.get(cid)
            lacking = additions.Events(cid, missing=(cid,))
            answer = lacking if topic is None else additions.Block(cid, topic.dag())
            self._context.send(peer, addition(answer), effects)
        self._missing.on_fetch(peer, question, now, effects)

    # What the application asks for.

    def _on_subscribe(self, event: inputs.Subscribe, now: float, effects: Effects) -> None:
        cid = cid_of(event.topic)
        if event.publish_only:
            if cid in self.membership.subscriptions:
                raise LocalError(
                    f"the topic {event.topic!r} is either subscribed to or publish-only:"
                    " unsubscribe first"
                )
            self._subscriptions.stand_by(cid, now, effects)
            return
        whole = event.since == 0
        self._subscriptions.subscribe(cid, now, effects, meta=event.meta, whole=whole)

    def _on_unsubscribe(self, event: inputs.Unsubscribe, now: float, effects: Effects) -> None:
        self._subscriptions.unsubscribe(cid_of(event.topic), now, effects, meta=event.meta)

    def _on_publish(self, event: inputs.Publish, now: float, effects: Effects) -> None:
        cid, number = cid_of(event.topic), event.number
        parent = event.parents[0] if event.parents else None
        if len(event.parents) > 1:
            raise LocalError(f"an event of Pulsarcast follows one other, not {len(event.parents)}")
        if parent is not None and not cids.is_cid(parent):
            raise LocalError(f"the parent {parent.hex()} is no CID of an event")
        publication = Publication(cid, event.data, number, parent=parent, at_once=event.at_once)
        self._publishing.begin(publication, now, effects)

    def _on_command(self, event: inputs.Command, now: float, effects: Effects) -> None:
        try:
            self._carry_out(event.number, event.body, now, effects)
        except LocalError as error:
            effects.append(Outcome(event.number, None, str(error)))

    def _carry_out(self, number: int, body: object, now: float, effects: Effects) -> None:
        match body:
            case commands.CreateTopic():
                self._topic_commands.create(number, body, now, effects)
            case commands.SubscribeTo(topic=topic):
                cid = cid_of(topic)
                self._subscriptions.subscribe(cid, now, effects)
                self.membership.wait_for_way(cid, Arrival(number), now, effects)
            case commands.FetchEvent():
                self._fetching.begin(number, body, now, effects)
            case commands.ReadHistory():
                self._reading.begin(number, body, now, effects)
            case commands.Question():
                self._topic_commands.ask(number, body, effects)
            case _:
                raise LocalError(f"{type(body).__name__} is not a command of Pulsarcast")


_HANDLERS: dict[type, Callable[[PulsarcastPeer, Any, float, Effects], None]] = {
    inputs.Start: PulsarcastPeer._on_start,
    inputs.Subscribe: PulsarcastPeer._on_subscribe,
    inputs.Unsubscribe: PulsarcastPeer._on_unsubscribe,
    inputs.Publish: PulsarcastPeer._on_publish,
    inputs.Stored: PulsarcastPeer._on_stored,
    inputs.NotStored: PulsarcastPeer._on_stored,
    inputs.Loaded: PulsarcastPeer._on_loaded,
    inputs.LogChanged: PulsarcastPeer._on_log_changed,
    inputs.Command: PulsarcastPeer._on_command,
    inputs.PeerConnected: PulsarcastPeer._on_peer_connected,
    inputs.PeerDisconnected: PulsarcastPeer._on_peer_disconnected,
    inputs.ConnectFailed: PulsarcastPeer._on_connect_failed,
    inputs.Asked: lambda peer, *query: peer.dht.handle(*query),
    inputs.Answered: lambda peer, *query: peer.dht.handle(*query),
    inputs.AskFailed: lambda peer, *query: peer.dht.handle(*query),
    inputs.SendDropped: PulsarcastPeer._on_send_dropped,
    inputs.TimerFired: PulsarcastPeer._on_timer,
    inputs.Validated: lambda peer, *verdict: peer._events.on_validated(*verdict),
}

_TIMERS: dict[type, Callable[[PulsarcastPeer], Callable[[bytes, float, Effects], None]]] = {
    context.BranchTimer: lambda peer: peer.membership.on_timer,
    context.NewsTimer: lambda peer: peer._reconciliation.on_news_timer,
    context.HoldTimer: lambda peer: peer._events.on_hold_timer,
    context.ParentTimer: lambda peer: peer._missing.on_timer,
    context.FetchTimer: lambda peer: peer._fetcher.on_timer,
    context.RangeTimer: lambda peer: peer._reconciliation.on_timer,
    context.RefetchTimer: lambda peer: peer._refetching.on_timer,
    context.KeptTimer: lambda peer: peer._kept_requests.on_timer,
    context.RequestTimer: lambda peer: peer._requests.on_timer,
}
