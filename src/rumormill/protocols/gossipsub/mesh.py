"""The mesh: for each of our topics, the links over which full messages travel.

A link is meant to be mutual: GRAFT asks the other side to add us, PRUNE tells it to remove us. A
peer keeps between D_lo and D_hi links per topic. Each heartbeat repairs a mesh that is too thin (up
to D) or too thick (down to D), keeps the links with the best scores and enough links that we
dialled ourselves, which an attacker cannot force on us. A pruned pair waits out a back-off before
it grafts again, or links would flap. (GossipSub 1.0 "Control messages", 1.1 "Overlay mesh
management" and "Explicit peering agreements".)
"""

import math
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.gossipsub.trunk import Trunk

PER_PEER_MAX: Final = 1000
"""Our choice: topics in which one peer is backed off separately."""
SLACK: Final = 1.0
"""Seconds that we wait on top of a back-off, since the peer may count them differently. rust and
js: one heartbeat."""
MAX_GRAFTS_AGAIN: Final = 64
"""GRAFTs of a linked peer between two heartbeats; our choice: both sides may graft at once, in as
many topics, and then there is no more to say."""

NEVER: Final = float("-inf")
"""The expiry of a backoff that does not exist."""


class Backoff:
    """For how long after a PRUNE a mesh link must not be grafted again, by topic and peer.

    A time that a remote peer names is clamped to `longest` before it is added to anything, so no
    number on the wire can overflow or pin an entry for ever. The table is bounded, per peer and
    overall. A peer for which there is no more room is backed off in all topics at once, by one
    entry: a peer that fills the table gains nothing by it.
    """

    __slots__ = (
        "_blanket",
        "_by_topic",
        "_count",
        "_limit",
        "_longest",
        "_per_peer",
        "_per_peer_max",
        "evicted",
        "merged",
    )

    def __init__(self, limit: int, longest: float, per_peer_max: int = PER_PEER_MAX) -> None:
        self.merged = 0
        """Backoffs that became part of their peer's backoff in all topics."""
        self.evicted = 0
        """Backoffs forgotten before their time to make room."""
        self._limit = limit
        self._longest = longest
        self._per_peer_max = per_peer_max
        self._by_topic: dict[Topic, dict[PeerId, float]] = {}
        self._per_peer: dict[PeerId, int] = {}
        self._blanket: dict[PeerId, float] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._blanket)

    def add(self, topic: Topic, peer: PeerId, seconds: float, now: float) -> None:
        """Back off for some time; an expiry that lies further away stays."""
        if not seconds > 0:
            return
        expires = now + float(min(seconds, self._longest))
        peers = self._by_topic.get(topic)
        if peers is not None and peer in peers:
            peers[peer] = max(peers[peer], expires)
            return
        if len(self) >= self._limit:
            self.clear(now)
            peers = self._by_topic.get(topic)
        if len(self) >= self._limit or self._per_peer.get(peer, 0) >= self._per_peer_max:
            self._back_off_everywhere(peer, expires)
            return
        if peers is None:
            peers = self._by_topic[topic] = {}
        peers[peer] = expires
        self._per_peer[peer] = self._per_peer.get(peer, 0) + 1
        self._count += 1

    def _back_off_everywhere(self, peer: PeerId, expires: float) -> None:
        self.merged += 1
        known = self._blanket.get(peer)
        if known is not None:
            self._blanket[peer] = max(known, expires)
            return
        for topic in [topic for topic, peers in self._by_topic.items() if peer in peers]:
            expires = max(expires, self._drop(topic, peer))
        while len(self) >= self._limit:
            self._evict_oldest()
        self._blanket[peer] = expires

    def _evict_oldest(self) -> None:
        self.evicted += 1
        if self._by_topic:
            topic, peers = next(iter(self._by_topic.items()))
            self._drop(topic, next(iter(peers)))
        else:
            del self._blanket[next(iter(self._blanket))]

    def _drop(self, topic: Topic, peer: PeerId) -> float:
        peers = self._by_topic[topic]
        expires = peers.pop(peer)
        if not peers:
            del self._by_topic[topic]
        left = self._per_peer[peer] - 1
        if left:
            self._per_peer[peer] = left
        else:
            del self._per_peer[peer]
        self._count -= 1
        return expires

    def expires(self, topic: Topic, peer: PeerId) -> float:
        """When the peer may ask for the link again; `NEVER` if nothing hinders it."""
        expires = NEVER
        peers = self._by_topic.get(topic)
        if peers is not None:
            expires = peers.get(peer, NEVER)
        if self._blanket:
            expires = max(expires, self._blanket.get(peer, NEVER))
        return expires

    def active(self, topic: Topic, peer: PeerId, now: float) -> bool:
        """Whether we must not graft the peer; a little longer than the peer has to wait for us."""
        if not self._by_topic and not self._blanket:
            return False
        return now < self.expires(topic, peer) + SLACK

    def clear(self, now: float) -> None:
        """Forget what has expired; now and then will do."""
        horizon = now - SLACK
        if self._count:
            over = [
                (topic, peer)
                for topic, peers in self._by_topic.items()
                for peer, expires in peers.items()
                if expires <= horizon
            ]
            for topic, peer in over:
                self._drop(topic, peer)
        for peer in [peer for peer, expires in self._blanket.items() if expires <= horizon]:
            del self._blanket[peer]


class MeshChanges(msgspec.Struct):
    """What a heartbeat changed, to be told to the peers concerned."""

    grafts: dict[PeerId, list[Topic]] = {}
    prunes: dict[PeerId, list[Topic]] = {}
    without_px: dict[PeerId, None] = {}


class Mesh:
    """The mesh links of all topics, and the rules by which they change."""

    __slots__ = (
        "_again", "_config", "_randomness", "_table", "_trust", "backoff", "links", "trunk",
    )  # fmt: skip

    def __init__(self, table: PeerTable) -> None:
        config = table.config
        self.links: dict[Topic, dict[PeerId, None]] = {}
        self.backoff = Backoff(limit=config.max_backoffs, longest=config.max_backoff)
        self._config, self._randomness = config, table.randomness
        self._table, self._trust = table, table.trust
        self.trunk: Trunk | None = None
        self._again: dict[PeerId, int] = {}
        """How often peers that are linked have grafted since the last heartbeat."""

    # Joining and leaving.

    def join(self, topic: Topic, preferred: list[PeerId], now: float, effects: Effects) -> None:
        """Open the mesh of a topic with up to D links, those to `preferred` peers first."""
        links = self.links[topic] = {}
        for peer in [p for p in preferred if self._may_graft(topic, p, now)]:
            self._add(topic, links, peer, now, effects)
        for peer in self._candidates(topic, links, self._config.D - len(links), now):
            self._add(topic, links, peer, now, effects)

    def leave(self, topic: Topic, now: float, effects: Effects) -> list[PeerId]:
        """Close the mesh of a topic; return the peers that must be told."""
        links = list(self.links[topic])
        for peer in links:
            self._remove(topic, peer, now, effects)
            self.backoff.add(topic, peer, self._config.unsubscribe_backoff, now)
        del self.links[topic]
        return links

    def drop_peer(self, topic: Topic, peer: PeerId, now: float, effects: Effects) -> None:
        """Remove a link to a peer that left the topic or is gone."""
        if peer in self.links.get(topic, ()):
            self._remove(topic, peer, now, effects)

    # What peers ask.

    def on_graft(self, peer: PeerId, topic: Topic, now: float, effects: Effects) -> str | None:
        """Take a subscriber into a mesh; return why not, when it must not be.

        `GRAFT_UNKNOWN_TOPIC` deserves no answer from 1.1 on, so that nobody can probe or flood us
        with topics, nor does `GRAFT_AGAIN`; every other refusal is answered with a PRUNE.
        """
        links = self.links.get(topic)
        if links is None:
            return reasons.GRAFT_UNKNOWN_TOPIC
        if peer in links:
            again = self._again[peer] = self._again.get(peer, 0) + 1
            return reasons.GRAFT_AGAIN if again > MAX_GRAFTS_AGAIN else None
        if peer not in self._table.topics.get(topic, ()):
            # We must wait as long as the peer does, or it would take our own GRAFT for an attack.
            backoff = self.backoff_after(reasons.GRAFT_NOT_SUBSCRIBED)
            self.backoff.add(topic, peer, backoff, now)
            return reasons.GRAFT_NOT_SUBSCRIBED
        if not self._table.meshes(peer):
            return reasons.GRAFT_NO_MESH
        if self._table.limited(peer):
            self.backoff.add(topic, peer, self._config.prune_backoff, now)
            return reasons.GRAFT_LIMITED
        if peer in self._table.direct:
            return reasons.GRAFT_DIRECT_PEER
        expires = self.backoff.expires(topic, peer)
        if now < expires:
            self._penalise_early_graft(peer, expires, now, effects)
            self.backoff.add(topic, peer, self._config.prune_backoff, now)
            return reasons.GRAFT_DURING_BACKOFF
        refusal = None
        if self._trust.score(peer, now) < 0:
            refusal = reasons.NEGATIVE_SCORE
        elif len(links) >= self._config.D_hi and not (
            self._table.dialled(peer) or self._improves(links, peer, now)
        ):
            refusal = reasons.GRAFT_MESH_FULL
        if refusal is not None:
            self.backoff.add(topic, peer, self._config.prune_backoff, now)
            return refusal
        self._add(topic, links, peer, now, effects)
        return None

    def backoff_after(self, refusal: str) -> float:
        """Seconds that both sides wait after we refused a GRAFT.

        A peer whose subscription we do not take is treated as one that just left: it may drop
        other topics and then be within the limit.
        """
        if refusal == reasons.GRAFT_NOT_SUBSCRIBED:
            return self._config.unsubscribe_backoff
        return self._config.prune_backoff

    def _penalise_early_graft(
        self, peer: PeerId, expires: float, now: float, effects: Effects
    ) -> None:
        penalise = self._trust.penalise
        penalise(peer, reasons.GRAFT_DURING_BACKOFF, 1, effects)
        pruned_at = expires - self._config.prune_backoff
        if now < pruned_at + self._config.graft_flood_threshold:
            penalise(peer, reasons.GRAFT_FLOOD, 1, effects)

    def on_prune(
        self, peer: PeerId, topic: Topic, backoff: float, now: float, effects: Effects
    ) -> bool:
        """Remove a link at the peer's wish; false when there was none."""
        links = self.links.get(topic)
        if links is None:
            return False
        linked = peer in links
        self.drop_peer(topic, peer, now, effects)
        self.backoff.add(topic, peer, backoff or self._config.prune_backoff, now)
        return linked

    # The heartbeat.

    def maintain(
        self, topic: Topic, improve: bool, now: float, changes: MeshChanges, effects: Effects
    ) -> None:
        """Bring the mesh of a topic back within its bounds."""
        self._again.clear()
        config = self._config
        links = self.links[topic]
        score = self._trust.score if self._trust.scores is None else self._trust.scores.score
        scores = {peer: score(peer, now) for peer in links}
        for peer in [peer for peer, mark in scores.items() if mark < 0]:
            self._prune(topic, peer, now, changes, effects)
            changes.without_px[peer] = None
        if len(links) < config.D_lo:
            self._graft(topic, links, config.D - len(links), now, changes, effects)
        if len(links) > config.D_hi:
            for peer in self._excess(links, scores):
                self._prune(topic, peer, now, changes, effects)
        if len(links) >= config.D_lo:
            dialled = sum(map(self._table.dialled, links))
            if dialled < config.D_out:
                missing = config.D_out - dialled
                self._graft(topic, links, missing, now, changes, effects, only_dialled=True)
        if improve and len(links) > 1:
            self._improve(topic, links, now, changes, effects)

    def _excess(self, links: dict[PeerId, None], scores: dict[PeerId, float]) -> list[PeerId]:
        """Choose the links to prune: all but D, of which D_score are the best by score.

        The rest is kept at random, but so that D_out of the kept ones are ours, if there are as
        many. Peers grafted in this same heartbeat have no score in `scores`; they count as zero.
        """
        config = self._config
        ranked = list(links)
        self._randomness.shuffle(ranked)
        ranked.sort(key=lambda peer: scores.get(peer, 0.0), reverse=True)
        rest = ranked[config.D_score :]
        self._randomness.shuffle(rest)
        ranked[config.D_score :] = rest
        dialled = self._table.dialled
        kept, excess = ranked[: config.D], ranked[config.D :]
        missing = config.D_out - sum(map(dialled, kept))
        for outsider in [peer for peer in excess if dialled(peer)][: max(missing, 0)]:
            victim = next((peer for peer in reversed(kept) if not dialled(peer)), None)
            if victim is None:
                break
            kept.remove(victim)
            excess.remove(outsider)
            kept.append(outsider)
            excess.append(victim)
        return excess

    def _improve(
        self,
        topic: Topic,
        links: dict[PeerId, None],
        now: float,
        changes: MeshChanges,
        effects: Effects,
    ) -> None:
        """Opportunistic grafting (1.1): a mesh whose median is poor gets better peers."""
        median = self._poor_median(links, now)
        if median < math.inf:
            wanted = self._config.opportunistic_graft_peers
            self._graft(topic, links, wanted, now, changes, effects, above=median)

    def _improves(self, links: dict[PeerId, None], peer: PeerId, now: float) -> bool:
        """Whether a full mesh takes a peer in: one of peers who bring nothing, a few who do."""
        config = self._config
        if len(links) >= config.D_hi + config.opportunistic_graft_peers:
            return False
        return self._trust.score(peer, now) > self._poor_median(links, now)

    def _poor_median(self, links: dict[PeerId, None], now: float) -> float:
        """The median score of a mesh when it is poor; else infinity, which nobody is above."""
        scores = sorted(self._trust.score(peer, now) for peer in links)
        median = scores[len(scores) // 2] if scores else math.inf
        return median if median < self._trust.thresholds.opportunistic_graft else math.inf

    def _graft(
        self,
        topic: Topic,
        links: dict[PeerId, None],
        count: int,
        now: float,
        changes: MeshChanges,
        effects: Effects,
        *,
        only_dialled: bool = False,
        above: float | None = None,
    ) -> None:
        for peer in self._candidates(
            topic, links, count, now, only_dialled=only_dialled, above=above
        ):
            self._add(topic, links, peer, now, effects)
            changes.grafts.setdefault(peer, []).append(topic)

    def _prune(
        self, topic: Topic, peer: PeerId, now: float, changes: MeshChanges, effects: Effects
    ) -> None:
        self._remove(topic, peer, now, effects)
        self.backoff.add(topic, peer, self._config.prune_backoff, now)
        changes.prunes.setdefault(peer, []).append(topic)

    # Links.

    def _add(
        self, topic: Topic, links: dict[PeerId, None], peer: PeerId, now: float, effects: Effects
    ) -> None:
        links[peer] = None
        if self._trust.scores is not None:
            self._trust.scores.graft(peer, topic, now)
        effects.append(trace.Graft(peer, topic))
        if self.trunk is not None:
            self.trunk.linked(topic, peer, now, effects)

    def _remove(self, topic: Topic, peer: PeerId, now: float, effects: Effects) -> None:
        del self.links[topic][peer]
        self._again.pop(peer, None)
        if self._trust.scores is not None:
            self._trust.scores.prune(peer, topic, now)
        effects.append(trace.Prune(peer, topic))
        if self.trunk is not None:
            self.trunk.unlinked(topic, peer, effects)

    def _may_graft(self, topic: Topic, peer: PeerId, now: float) -> bool:
        return (
            peer in self._table.topics.get(topic, ())
            and peer not in self._table.direct
            and not self._table.limited(peer)
            and self._trust.score(peer, now) >= 0
            and not self.backoff.active(topic, peer, now)
        )

    def _candidates(
        self,
        topic: Topic,
        links: dict[PeerId, None],
        count: int,
        now: float,
        *,
        only_dialled: bool = False,
        above: float | None = None,
    ) -> list[PeerId]:
        if count <= 0:
            return []
        found = [
            peer
            for peer in self._table.outsiders(topic, links)
            if (not only_dialled or self._table.dialled(peer))
            and self._may_graft(topic, peer, now)
            and (above is None or self._trust.score(peer, now) > above)
        ]
        if len(found) <= count:
            return found
        return self._randomness.sample(found, count)


class Fanout:
    """The peers that we publish through in topics to which we do not subscribe.

    Up to D subscribers are chosen at the first publication and kept until none has been made for
    `fanout_ttl` seconds; those that leave are replaced. Bounded by the topics published in within
    that time. (1.0, "Topic membership".)
    """

    __slots__ = ("_table", "_trust", "last_published", "peers")

    def __init__(self, table: PeerTable) -> None:
        self.peers: dict[Topic, dict[PeerId, None]] = {}
        self.last_published: dict[Topic, float] = {}
        self._table, self._trust = table, table.trust

    def use(self, topic: Topic, now: float) -> dict[PeerId, None]:
        """Return the peers to publish through, chosen now when there are none yet."""
        chosen = self.peers.get(topic)
        if not chosen:
            chosen = {}
            self._fill(topic, chosen, now)
            if not chosen:
                return chosen
            self.peers[topic] = chosen
        self.last_published[topic] = now
        return chosen

    def take(self, topic: Topic) -> list[PeerId]:
        """End the fanout of a topic that is joined; its peers become mesh candidates."""
        self.last_published.pop(topic, None)
        return list(self.peers.pop(topic, ()))

    def maintain(self, now: float) -> None:
        """Expire unused topics, drop peers that stand too low, and refill."""
        ttl = self._table.config.fanout_ttl
        for topic in [t for t, last in self.last_published.items() if last + ttl < now]:
            del self.last_published[topic]
            del self.peers[topic]
        for topic, chosen in self.peers.items():
            for peer in [p for p in chosen if not self._trust.publishes(p, now)]:
                del chosen[peer]
            self._fill(topic, chosen, now)

    def drop_peer(self, peer: PeerId, topic: Topic | None = None) -> None:
        """Remove a peer from the fanout of one topic, or of all."""
        for chosen in self.peers.values() if topic is None else (self.peers.get(topic, {}),):
            chosen.pop(peer, None)

    def _fill(self, topic: Topic, chosen: dict[PeerId, None], now: float) -> None:
        table = self._table
        missing = table.config.D - len(chosen)
        if missing <= 0:
            return
        outsiders = table.outsiders(topic, chosen)
        candidates = [peer for peer in outsiders if self._trust.publishes(peer, now)]
        if len(candidates) > missing:
            candidates = table.randomness.sample(candidates, missing)
        chosen.update(dict.fromkeys(candidates))
