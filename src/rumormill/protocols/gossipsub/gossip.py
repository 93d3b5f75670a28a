"""Gossip: telling peers outside the mesh what there is, and fetching what we missed.

Each heartbeat, IHAVE names the recent messages of a topic to some subscribers that are not in our
mesh. Who lacks one asks with IWANT and gets it. Both sides are bounded: how often and for how many
ids a peer can make us ask, and how often it can ask for the same message. A peer whose IHAVE made
us ask has promised: if the message does not come in time, it pays (1.1 "Spam protection measures").
IDONTWANT (1.2) goes the other way: it names a message that we have, so that mesh peers need not
send it.
"""

from collections.abc import Container, Sequence
from typing import Final

from rumormill.core import trace
from rumormill.core.bounded import take_out
from rumormill.core.effects import Effects
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.dialects import Dialects
from rumormill.protocols.gossipsub.message_cache import MessageCache
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.gossipsub.trunk import Trunk
from rumormill.protocols.pubsub.messages import IHave, Message
from rumormill.protocols.pubsub.seen_cache import SeenCache
from rumormill.protocols.registry import Hooks

_USUAL_BYTES: Final = 512
"""Of the ids of one IDONTWANT together: our choice, ten as most implementations have them. All that
a peer may have us remember of such ids comes to a megabyte or two then, and not to thirty."""


class Promises:
    """Which peers owe us which messages, and until when.

    Of each request one message, chosen at random, is watched: that keeps the cost low and still
    finds out a peer that makes a habit of empty advertisements. A message that comes, from
    whomever, ends all promises of it, because the others can then no longer keep theirs. So does a
    rejected message, which is charged elsewhere, unless it was badly signed: that anybody can make
    up. A peer that names messages in a way that we cannot compute brings what we do not recognise
    as its own; whatever it brings, in answer, ends one of its promises.
    """

    __slots__ = ("_by_id", "_by_peer", "_follow_up", "_limit", "_randomness", "count", "unwatched")

    def __init__(self, follow_up: float, limit: int, randomness: Randomness) -> None:
        self.unwatched = 0
        """Requests that were not watched because too many others are."""
        self._follow_up = follow_up
        self._limit = limit
        self._randomness = randomness
        self._by_id: dict[MessageId, dict[PeerId, float]] = {}
        self._by_peer: dict[PeerId, dict[MessageId, None]] = {}
        self.count = 0

    def add(self, peer: PeerId, message_ids: Sequence[MessageId], now: float) -> None:
        """A peer was asked for messages that it had advertised."""
        if not message_ids:
            return
        if self.count >= self._limit:
            self.unwatched += 1
            return
        message_id = self._randomness.choice(message_ids)
        owers = self._by_id.setdefault(message_id, {})
        if peer not in owers:
            owers[peer] = now + self._follow_up
            self._by_peer.setdefault(peer, {})[message_id] = None
            self.count += 1

    @property
    def owing(self) -> Container[PeerId]:
        """Who has promised something."""
        return self._by_peer

    def fulfil(self, message_id: MessageId) -> bool:
        """The message arrived, or entered validation: nobody owes it any more.

        Return whether anybody did.
        """
        owers = self._by_id.pop(message_id, None)
        if owers is None:
            return False
        for peer in owers:
            self._strike(peer, message_id)
        return True

    def settle(self, peer: PeerId) -> None:
        """A peer that owes something has brought something that it had not promised."""
        message_id = next(iter(self._by_peer[peer]))
        owers = self._by_id[message_id]
        del owers[peer]
        if not owers:
            del self._by_id[message_id]
        self._strike(peer, message_id)

    def rejected(self, message_id: MessageId, peer: PeerId, reason: str) -> None:
        """`peer` sent the message and it was rejected."""
        if reason not in reasons.UNSIGNED:
            self.fulfil(message_id)

    def excuse(self, peer: PeerId) -> None:
        """Void a peer's promises: we turned its messages away ourselves, or it is gone."""
        for message_id in self._by_peer.pop(peer, ()):
            owers = self._by_id[message_id]
            del owers[peer]
            self.count -= 1
            if not owers:
                del self._by_id[message_id]

    forget_peer = excuse

    def broken(self, now: float) -> dict[PeerId, int]:
        """How many promises each peer has broken since the last call."""
        broken: dict[PeerId, int] = {}
        if not self._by_id:
            return broken
        emptied = []
        for message_id, owers in self._by_id.items():
            late = [peer for peer, expires in owers.items() if expires < now]
            for peer in late:
                del owers[peer]
                self._strike(peer, message_id)
                broken[peer] = broken.get(peer, 0) + 1
            if not owers:
                emptied.append(message_id)
        for message_id in emptied:
            del self._by_id[message_id]
        return broken

    def _strike(self, peer: PeerId, message_id: MessageId) -> None:
        owed = self._by_peer[peer]
        del owed[message_id]
        if not owed:
            del self._by_peer[peer]
        self.count -= 1


class Gossip:
    """The lazy part of GossipSub: message cache, IHAVE, IWANT, IDONTWANT, promises."""

    __slots__ = (
        "_config", "_idontwants_heard", "_ids_asked", "_ihaves_heard", "_limits", "_randomness",
        "_seen", "_table", "_trust", "_turns", "_turns_before", "cache", "dialects", "promises",
        "trunk", "unwanted",
    )  # fmt: skip

    def __init__(self, table: PeerTable, seen: SeenCache, hooks: Hooks) -> None:
        config, randomness = table.config, table.randomness
        self.cache = MessageCache(config.history_length, config.history_gossip)
        self.promises = Promises(config.iwant_followup_time, config.max_promises, randomness)
        self._config, self._randomness = config, randomness
        self._table, self._trust = table, table.trust
        self._seen = seen
        self.dialects = Dialects(config, hooks, self.cache)
        self._limits = hooks.limits
        self.trunk: Trunk | None = None
        self._ihaves_heard: dict[PeerId, int] = {}
        self._ids_asked: dict[PeerId, int] = {}
        self._idontwants_heard: dict[PeerId, int] = {}
        self._turns: dict[Topic, dict[PeerId, None]] = {}
        self._turns_before: dict[Topic, dict[PeerId, None]] = {}
        """Who is still to be told in this round, as left by this heartbeat and by the last."""
        self.unwanted: dict[PeerId, dict[MessageId, int]] = {}

    def forget_peer(self, peer: PeerId) -> None:
        """Drop all state of a peer that is gone."""
        self._ihaves_heard.pop(peer, None)
        self._ids_asked.pop(peer, None)
        self._idontwants_heard.pop(peer, None)
        self.unwanted.pop(peer, None)
        for turns in (self._turns, self._turns_before):
            for waiting in turns.values():
                waiting.pop(peer, None)
        self.promises.forget_peer(peer)
        self.dialects.forget_peer(peer)
        self.cache.forget_peer(peer)

    def start_heartbeat(self, now: float, effects: Effects) -> None:
        """Charge broken promises, and begin new counts."""
        self.dialects.heartbeats += 1
        for peer, count in self.promises.broken(now).items():
            self._trust.penalise(peer, reasons.BROKEN_PROMISE, count, effects)
        self._ihaves_heard.clear()
        self._ids_asked.clear()
        self._idontwants_heard.clear()
        self._turns, self._turns_before = {}, self._turns
        if self.unwanted:
            self._age_unwanted()

    def _age_unwanted(self) -> None:
        for peer in list(self.unwanted):
            aged = {id_: ttl - 1 for id_, ttl in self.unwanted[peer].items() if ttl > 1}
            if aged:
                self.unwanted[peer] = aged
            else:
                take_out(self.unwanted, peer)

    def arrived(self, peer: PeerId, message: Message, links: Container[PeerId]) -> None:
        """A peer brought a message, new or not: nobody owes it any more, whatever its name."""
        promises = self.promises
        expected = promises.fulfil(message.id)
        for name in self.cache.names:
            expected = promises.fulfil(name(message)) or expected
        # Who is in our mesh sends by itself; others when they write, or because we asked.
        if not expected and peer not in links and peer in promises.owing:
            promises.settle(peer)

    # Sending gossip.

    def emit(
        self, topic: Topic, excluded: dict[PeerId, None], now: float
    ) -> list[tuple[PeerId, IHave]]:
        """Choose the peers to gossip to about a topic, and what to tell each."""
        ids = self.cache.gossip_ids(topic)
        if not ids:
            return []
        gossips, waits_for = self._trust.gossips, self.dialects.waits_for
        outsiders = self._table.outsiders(topic, excluded)
        peers = [peer for peer in outsiders if gossips(peer, now) and not waits_for(peer)]
        limited = [peer for peer in peers if self._table.limited(peer)]
        if limited:  # who is in nobody's mesh because of a relay is told every time
            peers = [peer for peer in peers if peer not in limited]
        target = max(self._config.D_lazy, int(self._config.gossip_factor * len(peers)))
        if target < len(peers):
            peers = self._next_to_tell(topic, peers, target)
        peers = peers + limited
        if self.trunk is not None:
            peers = self._tell_by_key(self.trunk, topic, peers)
        if not peers:
            return []
        limit = self._config.max_ihave_length
        if len(ids) <= limit:
            self._randomness.shuffle(ids)
            ihave = IHave(topic, tuple(ids))
            told = [(peer, self._fitted(peer, ihave)) for peer in peers]
        else:
            # Each peer is told another part, so that together they cover the whole.
            sample = self._randomness.sample
            parts = [(peer, IHave(topic, tuple(sample(ids, limit)))) for peer in peers]
            told = [(peer, self._fitted(peer, ihave)) for peer, ihave in parts]
        return [(peer, ihave) for peer, ihave in told if ihave.message_ids]

    def _tell_by_key(self, trunk: Trunk, topic: Topic, peers: list[PeerId]) -> list[PeerId]:
        """Tell those who speak the extension, each of what it was not told yet; return the rest."""
        rest: list[PeerId] = []
        found: dict[int, list[bytes] | None] = {}
        for peer in peers:
            if peer not in trunk.speakers:
                rest.append(peer)
                continue
            windows = min(trunk.outsiders.windows_untold(peer, topic), self._config.history_gossip)
            if windows not in found:
                ids = self.cache.gossip_ids(topic, windows)
                found[windows] = trunk.sources.keys_of(self.cache.messages[each] for each in ids)
            keys = found[windows]
            if keys is None:
                rest.append(peer)
            else:
                trunk.outsiders.tell(peer, keys[: self._config.max_ihave_length])
        return rest

    def _fitted(self, peer: PeerId, ihave: IHave) -> IHave:
        """Name what the peer could take, as it names it."""
        name, most = self.dialects.names.get(peer), self._limits.get(peer)
        if name is None and most is None:
            return ihave
        found = [self.cache.messages[each] for each in ihave.message_ids]
        if most is not None:
            found = [message for message in found if message.meta.size <= most]
        return IHave(ihave.topic, tuple([name(each) if name else each.id for each in found]))

    def _next_to_tell(self, topic: Topic, peers: list[PeerId], count: int) -> list[PeerId]:
        """Choose `count` peers, at random, but none again before all others had their turn.

        Drawn anew each time, some peers would not be told of a message in any of its heartbeats:
        among many attackers those are enough for it to be lost.
        """
        present = dict.fromkeys(peers)
        turn = [peer for peer in self._turns_before.get(topic, ()) if peer in present]
        if len(turn) < count:
            waiting = dict.fromkeys(turn)
            others = [peer for peer in peers if peer not in waiting]
            self._randomness.shuffle(others)
            turn += others
        self._turns[topic] = dict.fromkeys(turn[count:])
        return turn[:count]

    # Hearing gossip.

    def on_ihave(
        self,
        peer: PeerId,
        ihaves: tuple[IHave, ...],
        subscribed: dict[Topic, dict[PeerId, None]],
        now: float,
        effects: Effects,
    ) -> tuple[MessageId, ...]:
        """Return the ids to ask the peer for."""
        config = self._config
        if not self._trust.gossips(peer, now):
            effects.append(trace.Refuse(peer, reasons.BELOW_GOSSIP_THRESHOLD))
            return ()
        heard = self._ihaves_heard[peer] = self._ihaves_heard.get(peer, 0) + 1
        if heard > config.max_ihave_messages:
            effects.append(trace.Refuse(peer, reasons.IHAVE_TOO_MANY_MESSAGES))
            return ()
        allowance = config.max_ihave_length - self._ids_asked.get(peer, 0)
        seen, aliases = self._seen.ids, self.cache.aliases
        wanted: dict[MessageId, None] = {}
        refused = 0
        for ihave in ihaves:
            if ihave.topic not in subscribed:
                continue
            self.dialects.hear(peer, ihave.message_ids)
            heeded = ihave.message_ids[: config.max_ihave_length]
            refused += len(ihave.message_ids) - len(heeded)
            for message_id in heeded:
                if message_id not in seen and message_id not in aliases:
                    wanted[message_id] = None
        asked = list(wanted)
        if len(asked) > 1:
            self._randomness.shuffle(asked)
        if len(asked) > allowance:
            refused += len(asked) - allowance
            del asked[allowance:]
        if refused:
            effects.append(trace.Refuse(peer, reasons.IHAVE_TOO_MANY_IDS, count=refused))
        if not asked:
            return ()
        self._ids_asked[peer] = self._ids_asked.get(peer, 0) + len(asked)
        self.promises.add(peer, asked, now)
        return tuple(asked)

    def on_iwant(
        self, peer: PeerId, message_ids: tuple[MessageId, ...], now: float, effects: Effects
    ) -> tuple[Message, ...]:
        """Return the messages that a peer asked for and may have."""
        if not self._trust.gossips(peer, now):
            effects.append(trace.Refuse(peer, reasons.BELOW_GOSSIP_THRESHOLD))
            return ()
        unwanted, aliases = self.unwanted.get(peer, {}), self.cache.aliases
        found: dict[MessageId, Message] = {}
        too_often = unknown = 0
        for message_id in message_ids:
            if message_id in unwanted or message_id in found:
                continue
            known = aliases.get(message_id, message_id)
            message, count = self.cache.get_for_peer(known, peer)
            if message is None:
                unknown += 1
                continue
            if count > self._config.gossip_retransmission:
                too_often += 1
                continue
            found[message_id] = message
        if unknown:
            effects.append(trace.Refuse(peer, reasons.IWANT_UNKNOWN, count=unknown))
        if too_often:
            effects.append(trace.Refuse(peer, reasons.IWANT_TOO_OFTEN, count=too_often))
        return tuple(found.values())

    def on_idontwant(
        self, peer: PeerId, message_ids: tuple[MessageId, ...], effects: Effects
    ) -> None:
        """Remember messages that a peer has already."""
        self.dialects.hear(peer, message_ids)
        config = self._config
        heard = self._idontwants_heard.get(peer, 0)
        if heard >= config.max_idontwant_messages:
            effects.append(trace.Refuse(peer, reasons.IDONTWANT_TOO_MANY_MESSAGES))
            return
        heeded = message_ids[: config.max_idontwant_length]
        # Each is remembered for some heartbeats, so long ones count for several.
        self._idontwants_heard[peer] = heard + 1 + sum(map(len, heeded)) // _USUAL_BYTES
        if len(heeded) < len(message_ids):
            refused = len(message_ids) - len(heeded)
            effects.append(trace.Refuse(peer, reasons.IDONTWANT_TOO_MANY_IDS, count=refused))
        if heeded and config.idontwant_ttl:
            unwanted = self.unwanted.setdefault(peer, {})
            for message_id in heeded:
                unwanted[message_id] = config.idontwant_ttl
