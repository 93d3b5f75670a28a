"""GossipSub 1.0 to 1.3 as one machine.

Full messages travel over a mesh of few links per topic (`mesh`); ids of recent messages are
gossiped to peers outside it, who fetch what they missed (`gossip`); peers are scored by what they
bring, and those below thresholds lose gossip, links and in the end our ear (`score`).
A peer that publishes in a topic without subscribing keeps a few peers for it, the fanout. Own
messages are flooded to all subscribers unless told otherwise, so that no mesh can silence us.
Where it is on, a tree for each source saves the copies that nobody needs (`trunk`).

This file is the junction: it turns inputs into calls of those parts and their answers into RPCs.
Everything that a peer is told in one go leaves in one RPC.
"""

from collections.abc import Collection, Iterable
from typing import Final

from rumormill.core import inputs, trace
from rumormill.core.effects import Connect, Effects, Learn, Send, SendAll, SetTimer
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GossipSubConfig, read_direct_peer
from rumormill.protocols.gossipsub.gossip import Gossip
from rumormill.protocols.gossipsub.mesh import Fanout, Mesh, MeshChanges
from rumormill.protocols.gossipsub.outbox import Outbox, PeerExchange
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.gossipsub.score import PeerScore, Trust
from rumormill.protocols.gossipsub.trunk import ANNOUNCE, Trunk
from rumormill.protocols.gossipsub.trunk_missing import ALARM
from rumormill.protocols.pubsub.messages import Control, Message, Prune, Rpc, SubOpts
from rumormill.protocols.pubsub.router import PubSubRouter
from rumormill.protocols.registry import NO_HOOKS, Hooks

DIRECT_CONNECT_DELAY: Final = 1.0
"""Seconds from the start, or from the loss of a direct peer, to the first dial. go: 1 s, in which
the peer may dial us."""

_PRUNES_MAX: Final = 1024
"""Links that a peer may end in a heartbeat: our choice, as many as it may have topics."""

_HEARTBEAT: Final = "heartbeat"
_DIRECT_CONNECT: Final = "direct connect"
"""The timers of the next heartbeat, and of the next dial to direct peers that are missing."""


class GossipSub(PubSubRouter):
    """A GossipSub peer."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: GossipSubConfig,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        super().__init__(identity, randomness, config, hooks)
        self._config = config
        self.direct: dict[PeerId, list[bytes]] = {}
        """The direct peers, with the addresses that the configuration names."""
        for text in config.direct_peers:
            peer, address = read_direct_peer(text)
            if peer != self.id:
                self.direct.setdefault(peer, []).extend([address] if address else ())
        self._direct_pause = DIRECT_CONNECT_DELAY
        self._score: PeerScore | None = None
        if config.scoring:
            self._score = PeerScore(config.score, hooks.application_score)
        self.trust = Trust(self._score, config.thresholds)
        self._table = PeerTable(
            self.peers, self.topics, self.direct, config, self.trust, randomness
        )
        self.mesh = Mesh(self._table)
        self.gossip = Gossip(self._table, self._seen, hooks)
        self._owing = self.gossip.promises.owing
        self.fanout = Fanout(self._table)
        self._outbox = Outbox(self.mesh.links)
        self._exchange = PeerExchange(self._table, hooks)
        self._graylist = config.thresholds.graylist
        if self._score is not None:
            self._judged = self._score.records
        self._floodsub_peers: dict[PeerId, None] = {}
        self._prunes_heard: dict[PeerId, int] = {}
        self._ticks = 0
        self.trunk: Trunk | None = None
        if config.trunk:
            trunk = Trunk(self.id, self._table, self.mesh.links)
            self.trunk = self.mesh.trunk = self.gossip.trunk = trunk
            self._judges_all = True

    def view(self) -> View:
        """Show mesh, fanout, scores and more tables besides (see `core.machine`)."""
        shown, cache, backoff = super().view(), self.gossip.cache, self.mesh.backoff
        kinds = {"mesh": self.mesh.links, "fanout": self.fanout.peers}
        links = {
            kind: {topic: tuple(peers) for topic, peers in of_topic.items()}
            for kind, of_topic in kinds.items()
        }
        evicted = {
            **shown.evicted,
            "messages": cache.evicted + cache.refused,
            "back-offs": backoff.evicted + backoff.merged,
            "promises": self.gossip.promises.unwatched,
        }
        if self.trunk is not None:
            evicted |= {
                "sources": self.trunk.sources.evicted,
                "announcements": self.trunk.wanting.unwatched,
            }
        scores: dict[PeerId, float] = {}
        if self._score is not None:
            scores = self._score.scores()
            evicted |= self._score.evicted()
        return View(shown.subscriptions, shown.peers, links, scores, evicted)

    # Own requests.

    def _on_start(self, event: inputs.Start, now: float, effects: Effects) -> None:
        super()._on_start(event, now, effects)
        config = self._config
        spread = config.heartbeat_spread * config.heartbeat_interval
        delay = config.heartbeat_initial_delay + self._randomness.random() * spread
        effects.append(SetTimer(_HEARTBEAT, now + delay))
        for peer, addresses in self.direct.items():
            if addresses:
                effects.append(Learn(peer, tuple(addresses)))
        if self.direct:
            effects.append(SetTimer(_DIRECT_CONNECT, now + DIRECT_CONNECT_DELAY))

    def _on_subscribe(self, event: inputs.Subscribe, now: float, effects: Effects) -> None:
        topic = event.topic
        super()._on_subscribe(event, now, effects)
        if event.publish_only or topic in self.mesh.links:
            return
        self.mesh.join(topic, self.fanout.take(topic), now, effects)
        links = tuple(self.mesh.links[topic])
        if links:
            effects.append(SendAll(links, Rpc(control=Control(graft=(topic,)))))

    def _on_unsubscribe(self, event: inputs.Unsubscribe, now: float, effects: Effects) -> None:
        topic = event.topic
        super()._on_unsubscribe(event, now, effects)
        if topic not in self.mesh.links:
            return
        if self.trunk is not None:
            self.trunk.left(topic)
        for peer in self.mesh.leave(topic, now, effects):
            prune = self._prune_for(peer, topic, self._config.unsubscribe_backoff, now, px=False)
            effects.append(Send(peer, Rpc(control=Control(prune=(prune,)))))

    # Peers come and go.

    def _on_peer_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        if event.peer == self.id:
            return
        new = event.peer not in self.peers
        if self._score is not None and new:
            self._score.add_peer(event.peer, event.address, now)
        if self.trunk is not None and new:
            self.trunk.connected(event.peer, event.protocol, effects)
        super()._on_peer_connected(event, now, effects)
        if self._score is not None:
            self.peers[event.peer].standing = self._score.standing(event.peer)
        if not self._table.meshes(event.peer):
            self._floodsub_peers[event.peer] = None

    def _on_peer_disconnected(
        self, event: inputs.PeerDisconnected, now: float, effects: Effects
    ) -> None:
        peer = event.peer
        if peer not in self.peers:
            return
        super()._on_peer_disconnected(event, now, effects)
        self.fanout.drop_peer(peer)
        self.gossip.forget_peer(peer)
        self._outbox.forget_peer(peer)
        if self.trunk is not None:
            self.trunk.gone(peer, effects)
        self._floodsub_peers.pop(peer, None)
        self._prunes_heard.pop(peer, None)
        if self._score is not None:
            self._score.remove_peer(peer, now)
        if peer in self.direct:
            self._direct_pause = DIRECT_CONNECT_DELAY
            effects.append(SetTimer(_DIRECT_CONNECT, now + DIRECT_CONNECT_DELAY))

    def _on_peer_left_topic(self, peer: PeerId, topic: Topic, now: float, effects: Effects) -> None:
        self.mesh.drop_peer(topic, peer, now, effects)
        self.fanout.drop_peer(peer, topic)

    # What peers send.

    def _accepts_from(self, peer: PeerId, rpc: Rpc, now: float, effects: Effects) -> bool:
        score = self._score
        if score is None or score.score(peer, now) >= self._graylist or peer in self.direct:
            return True
        refused = max(1, len(rpc.publish))
        effects.append(trace.Refuse(peer, reasons.BELOW_GRAYLIST, count=refused))
        return False

    def _on_control(self, peer: PeerId, control: Control, now: float, effects: Effects) -> None:
        wanted: tuple[MessageId, ...] = ()
        messages: tuple[Message, ...] = ()
        prunes: tuple[Prune, ...] = ()
        if control.ihave:
            wanted = self.gossip.on_ihave(peer, control.ihave, self.mesh.links, now, effects)
        asked, part = control.iwant, control.trunk
        if control.offers_trunk:
            self._on_offer(peer, effects)
        if part is not None:
            if self.trunk is None:
                effects.append(trace.Refuse(peer, reasons.TRUNK_NOT_OFFERED))
            else:
                asked += self.trunk.heard(peer, part, now, effects)
        if asked:
            messages = self.gossip.on_iwant(peer, asked, now, effects)
            admits = self._peer_filter
            if admits is not None:
                messages = tuple(m for m in messages if admits(peer, m.topic))
        if control.graft:
            prunes = self._on_grafts(peer, control.graft, now, effects)
        if control.prune:
            self._on_prunes(peer, control.prune, now, effects)
        if control.idontwant:
            self.gossip.on_idontwant(peer, control.idontwant, effects)
        if wanted or messages or prunes:
            answer = Control(iwant=wanted, prune=prunes) if wanted or prunes else None
            rpc = Rpc(publish=messages, control=answer, cause=trace.IWANT if messages else "")
            self._send_split(peer, rpc, effects)

    def _on_offer(self, peer: PeerId, effects: Effects) -> None:
        state = self.peers[peer]
        if state.said_extensions:  # 1.3: once, in the first RPC
            effects.append(trace.Refuse(peer, reasons.EXTENSIONS_AGAIN))
        state.said_extensions = True
        if self.trunk is not None:
            self.trunk.offered(peer)

    def _on_grafts(
        self, peer: PeerId, topics: tuple[Topic, ...], now: float, effects: Effects
    ) -> tuple[Prune, ...]:
        refused: dict[Topic, float] = {}
        px = self._config.do_px
        for topic in topics:
            self._take_as_announcement(peer, topic, now, effects)
            refusal = self.mesh.on_graft(peer, topic, now, effects)
            if refusal is None:
                continue
            effects.append(trace.Refuse(peer, refusal, topic))
            px = px and refusal == reasons.GRAFT_MESH_FULL
            unknown = refusal == reasons.GRAFT_UNKNOWN_TOPIC
            if unknown and not self._table.is_told_unknown_topics(peer):
                continue
            if refusal != reasons.GRAFT_AGAIN:
                refused[topic] = self.mesh.backoff_after(refusal)
        return tuple(
            self._prune_for(peer, topic, backoff, now, px=px) for topic, backoff in refused.items()
        )

    def _take_as_announcement(
        self, peer: PeerId, topic: Topic, now: float, effects: Effects
    ) -> None:
        """Who grafts one of our topics subscribes to it: py-libp2p grafts before it says so.

        Filters and limits are those of any announcement; whom they keep out is no subscriber, and
        then the mesh refuses the link.
        """
        state = self.peers[peer]
        if topic in state.topics or topic not in self.mesh.links:
            return
        if self._table.meshes(peer):
            self._on_subscriptions(peer, state, (SubOpts(True, topic),), now, effects)

    def _on_prunes(
        self, peer: PeerId, prunes: tuple[Prune, ...], now: float, effects: Effects
    ) -> None:
        heard = self._prunes_heard[peer] = self._prunes_heard.get(peer, 0) + len(prunes)
        if heard > _PRUNES_MAX:
            effects.append(trace.Refuse(peer, reasons.PRUNE_TOO_MANY, count=len(prunes)))
            return
        for prune in prunes:
            linked = self.mesh.on_prune(peer, prune.topic, float(prune.backoff), now, effects)
            if linked and prune.peers:
                self._exchange.accept(self.id, peer, prune.peers, now, effects)

    def _prune_for(
        self, peer: PeerId, topic: Topic, backoff: float, now: float, *, px: bool
    ) -> Prune:
        if not self._table.exchanges_peers(peer):
            return Prune(topic)
        offered = self._exchange.offer(topic, peer, now) if px else ()
        return Prune(topic, offered, int(backoff))

    # The way of a message.

    def _before_validation(
        self, peer: PeerId, message: Message, now: float, effects: Effects
    ) -> None:
        if self._owing:
            self.gossip.arrived(peer, message, self.mesh.links.get(message.topic, ()))
        if self.trunk is not None:
            self.trunk.arrived(peer, message, now, effects)
        if len(message.data) >= self._config.idontwant_threshold:
            self._tell_unwanted(message, peer, effects)

    def _on_deferred(self, message: Message, now: float) -> None:
        # A verdict that is given at once needs no record of who brings copies meanwhile.
        if self._score is not None:
            self._score.validate_message(message.id, now)

    def _tell_unwanted(self, message: Message, received_from: PeerId, effects: Effects) -> None:
        """IDONTWANT (1.2): spare us the copies that mesh peers have not sent yet."""
        links: Collection[PeerId] = self.mesh.links.get(message.topic, ())
        if links and self.trunk is not None:
            links = self.trunk.may_send(message, links)
        if not links or (len(links) == 1 and received_from in links):
            return
        heeds, names = self._table.heeds_idontwant, self.gossip.dialects.names
        heeding = [peer for peer in links if peer != received_from and heeds(peer)]
        alike = tuple([peer for peer in heeding if peer not in names])
        if alike:
            effects.append(SendAll(alike, Rpc(control=Control(idontwant=(message.id,)))))
        if len(alike) < len(heeding):
            for peer in heeding:
                if peer in names:
                    unwanted = Control(idontwant=(names[peer](message),))
                    effects.append(Send(peer, Rpc(control=unwanted)))

    def _on_accepted(self, peer: PeerId, message: Message, now: float) -> None:
        if self._score is not None:
            self._score.deliver_message(peer, message.topic, message.id, now)

    def _on_rejected(
        self, peer: PeerId, message: Message, reason: str, now: float, effects: Effects
    ) -> None:
        self.gossip.promises.rejected(message.id, peer, reason)
        if self._score is not None:
            self._score.reject_message(peer, message.topic, message.id, reason, now)

    def _on_duplicate(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        if peer in self._owing:
            self.gossip.arrived(peer, message, self.mesh.links.get(message.topic, ()))
        if self._score is not None and message.id in self._judged:
            self._score.duplicate_message(peer, message.topic, message.id, now)
        if self.trunk is not None:
            self.trunk.duplicate(peer, message, now, effects)

    def _route(self, message: Message, received_from: PeerId, now: float, effects: Effects) -> int:
        self.gossip.cache.put(message)
        own = received_from == self.id
        if own and len(message.data) >= self._config.idontwant_threshold:
            self._tell_unwanted(message, received_from, effects)
        recipients = self._recipients(message.topic, own, now)
        if not recipients:
            return 0
        author, gossip = message.author, self.gossip
        chosen: Iterable[PeerId] = recipients
        told: tuple[PeerId, ...] = ()
        name = b""
        if self.trunk is not None:
            chosen, told, name = self.trunk.divide(message, received_from, recipients, now)
        peers = [peer for peer in chosen if peer != received_from and peer != author]
        piggybacking: list[PeerId] = []
        if peers and (gossip.unwanted or gossip.dialects.names or self._outbox.pending):
            peers = self._willing(message, peers, piggybacking)
        if peers and own and self._config.flood_publish:
            self._flood(message, peers, effects)
        elif peers:
            effects.append(SendAll(tuple(peers), message.alone()))
        for peer in piggybacking:
            control = self._outbox.take(peer)
            # A GRAFT must not overtake the announcement of its topic.
            subs = self._take_unannounced(peer)
            self._send_split(peer, Rpc(subs, (message,), control), effects)
        if told and self.trunk is not None:
            self.trunk.announce(told, name, now, effects)
        return len(peers) + len(piggybacking) + len(told)

    def _flood(self, message: Message, peers: list[PeerId], effects: Effects) -> None:
        """Send an own message; copies that do not go along the mesh say why they are sent."""
        links = self.mesh.links.get(message.topic)
        linked = tuple([peer for peer in peers if peer in links]) if links else ()
        if linked:
            effects.append(SendAll(linked, message.alone()))
        if len(linked) < len(peers):
            others = tuple([peer for peer in peers if peer not in links] if links else peers)
            effects.append(SendAll(others, Rpc((), (message,), cause=trace.FLOOD_PUBLISH)))

    def _willing(
        self, message: Message, recipients: list[PeerId], piggybacking: list[PeerId]
    ) -> list[PeerId]:
        """Those who have not said that they do not want a message, without those to whom we have
        more to say: they are added to another list."""
        message_id, unwanted = message.id, self.gossip.unwanted
        names, pending = self.gossip.dialects.names, self._outbox.pending
        peers: list[PeerId] = []
        for peer in recipients:
            if unwanted and message_id in unwanted.get(peer, ()):
                continue
            if peer in names and names[peer](message) in unwanted.get(peer, ()):
                continue
            (piggybacking if pending and peer in pending else peers).append(peer)
        return peers

    def _recipients(self, topic: Topic, own: bool, now: float) -> Collection[PeerId]:
        links = self.mesh.links.get(topic)
        flood = own and self._config.flood_publish
        if links is not None and not (flood or self.direct or self._floodsub_peers):
            return links
        subscribers = self.topics.get(topic)
        if subscribers is None:
            return ()
        direct, publishes = self.direct, self.trust.publishes
        if flood:
            return [peer for peer in subscribers if peer in direct or publishes(peer, now)]
        chosen = dict.fromkeys(peer for peer in direct if peer in subscribers)
        for peer in self._floodsub_peers:
            if peer in subscribers and publishes(peer, now):
                chosen[peer] = None
        chosen.update(self.fanout.use(topic, now) if links is None else links)
        return chosen

    # The heartbeat.

    def _on_timer(self, event: inputs.TimerFired, now: float, effects: Effects) -> None:
        timer = event.timer
        if timer == _HEARTBEAT:
            effects.append(SetTimer(timer, now + self._config.heartbeat_interval))
            self._on_heartbeat(now, effects)
        elif timer == _DIRECT_CONNECT:
            self._connect_direct_peers(now, effects)
        elif timer == ALARM and self.trunk is not None:
            self.trunk.wanting.on_alarm(now, effects)
        elif timer == ANNOUNCE and self.trunk is not None:
            self.trunk.say(effects)
        else:
            super()._on_timer(event, now, effects)

    def _on_heartbeat(self, now: float, effects: Effects) -> None:
        self._ticks += 1
        self._prunes_heard.clear()
        self._seen.sweep(now)
        self.mesh.backoff.clear(now)
        if self._score is not None:
            self._score.refresh(now)
        self.gossip.start_heartbeat(now, effects)
        if self.trunk is not None:
            self.trunk.heartbeat(now)
        changes = MeshChanges()
        improve = self._ticks % self._config.opportunistic_graft_ticks == 0
        outbox = self._outbox
        for topic, links in self.mesh.links.items():
            self.mesh.maintain(topic, improve, now, changes, effects)
            for peer, ihave in self.gossip.emit(topic, links, now):
                outbox.ihave(peer, ihave)
        self.fanout.maintain(now)
        for topic, peers in self.fanout.peers.items():
            for peer, ihave in self.gossip.emit(topic, peers, now):
                outbox.ihave(peer, ihave)
        if self.trunk is not None:
            self.trunk.outsiders.send(effects)
            for topic in self.trunk.probes.due(self.subscriptions, now):
                self.trunk.probe(topic, self._recipients(topic, True, now), now, effects)
        self._queue_changes(changes, now)
        for peer in list(outbox.pending):
            control = outbox.take(peer)
            if control is not None:
                subs = self._take_unannounced(peer)
                self._send_split(peer, Rpc(subs, control=control), effects)
        self.gossip.cache.shift()

    def _queue_changes(self, changes: MeshChanges, now: float) -> None:
        for peer, topics in changes.grafts.items():
            for topic in topics:
                self._outbox.graft(peer, topic)
        for peer, topics in changes.prunes.items():
            px = self._config.do_px and peer not in changes.without_px
            for topic in topics:
                prune = self._prune_for(peer, topic, self._config.prune_backoff, now, px=px)
                self._outbox.prune(peer, prune)

    def _connect_direct_peers(self, now: float, effects: Effects) -> None:
        """Dial direct peers that are missing, and again after a pause that doubles."""
        missing = [peer for peer in self.direct if peer not in self.peers]
        if missing:
            effects.extend(map(Connect, missing))
            longest = self._config.direct_connect_ticks * self._config.heartbeat_interval
            self._direct_pause = min(2 * self._direct_pause, longest)
            effects.append(SetTimer(_DIRECT_CONNECT, now + self._direct_pause))

    def _on_send_dropped(self, event: inputs.SendDropped, now: float, effects: Effects) -> None:
        super()._on_send_dropped(event, now, effects)
        rpc: Rpc = event.message  # type: ignore[assignment]
        if rpc.control is not None and event.peer in self.peers:
            self._outbox.retry(event.peer, rpc.control)
