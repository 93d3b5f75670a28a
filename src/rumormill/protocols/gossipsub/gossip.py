"""Gossip: telling peers outside the mesh what there is, and fetching what we missed.

Each heartbeat, IHAVE names the recent messages of a topic to some subscribers that are not in our
mesh. Who lacks one asks with IWANT and gets it. Both sides are bounded: how often and for how many
ids a peer can make us ask, and how often it can ask for the same message. A peer whose IHAVE made
us ask has promised: if the message does not come in time, it pays (1.1 "Spam protection measures").
IDONTWANT (1.2) goes the other way: it names a message that we have, so that mesh peers need not
send it.
"""

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.message_cache import MessageCache
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.gossipsub.promises import Promises
from rumormill.protocols.pubsub.messages import IHave, Message
from rumormill.protocols.pubsub.seen_cache import SeenCache


class Gossip:
    """The lazy part of GossipSub: message cache, IHAVE, IWANT, IDONTWANT, promises."""

    def __init__(self, table: PeerTable, seen: SeenCache) -> None:
        config, randomness = table.config, table.randomness
        self.cache = MessageCache(config.history_length, config.history_gossip)
        self.promises = Promises(config.iwant_followup_time, config.max_promises, randomness)
        self._config, self._randomness = config, randomness
        self._table, self._trust = table, table.trust
        self._seen = seen
        self._ihaves_heard: dict[PeerId, int] = {}
        self._ids_asked: dict[PeerId, int] = {}
        self._idontwants_heard: dict[PeerId, int] = {}
        self.unwanted: dict[PeerId, dict[MessageId, int]] = {}

    def forget_peer(self, peer: PeerId) -> None:
        """Drop all state of a peer that is gone."""
        self._ihaves_heard.pop(peer, None)
        self._ids_asked.pop(peer, None)
        self._idontwants_heard.pop(peer, None)
        self.unwanted.pop(peer, None)
        self.promises.forget_peer(peer)
        self.cache.forget_peer(peer)

    def start_heartbeat(self, now: float, effects: Effects) -> None:
        """Charge broken promises, and begin new counts."""
        for peer, count in self.promises.broken(now).items():
            self._trust.penalise(peer, reasons.BROKEN_PROMISE, count, effects)
        self._ihaves_heard.clear()
        self._ids_asked.clear()
        self._idontwants_heard.clear()
        if self.unwanted:
            self._age_unwanted()

    def _age_unwanted(self) -> None:
        for peer in list(self.unwanted):
            aged = {id_: ttl - 1 for id_, ttl in self.unwanted[peer].items() if ttl > 1}
            if aged:
                self.unwanted[peer] = aged
            else:
                del self.unwanted[peer]

    # Sending gossip.

    def emit(
        self, topic: Topic, excluded: dict[PeerId, None], now: float
    ) -> list[tuple[PeerId, IHave]]:
        """Choose the peers to gossip to about a topic, and what to tell each."""
        ids = self.cache.gossip_ids(topic)
        if not ids:
            return []
        gossips = self._trust.gossips
        peers = [peer for peer in self._table.outsiders(topic, excluded) if gossips(peer, now)]
        target = max(self._config.D_lazy, int(self._config.gossip_factor * len(peers)))
        if target < len(peers):
            peers = self._randomness.sample(peers, target)
        limit = self._config.max_ihave_length
        if len(ids) <= limit:
            self._randomness.shuffle(ids)
            ihave = IHave(topic, tuple(ids))
            return [(peer, ihave) for peer in peers]
        # Each peer is told another part, so that together they cover the whole.
        return [(peer, IHave(topic, tuple(self._randomness.sample(ids, limit)))) for peer in peers]

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
        seen = self._seen.ids
        wanted: dict[MessageId, None] = {}
        refused = 0
        for ihave in ihaves:
            if ihave.topic not in subscribed:
                continue
            heeded = ihave.message_ids[: config.max_ihave_length]
            refused += len(ihave.message_ids) - len(heeded)
            for message_id in heeded:
                if message_id not in seen:
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
        unwanted = self.unwanted.get(peer, {})
        found: dict[MessageId, Message] = {}
        too_often = 0
        for message_id in message_ids:
            if message_id in unwanted or message_id in found:
                continue
            message, count = self.cache.get_for_peer(message_id, peer)
            if message is None:
                continue
            if count > self._config.gossip_retransmission:
                too_often += 1
                continue
            found[message_id] = message
        if too_often:
            effects.append(trace.Refuse(peer, reasons.IWANT_TOO_OFTEN, count=too_often))
        return tuple(found.values())

    def on_idontwant(
        self, peer: PeerId, message_ids: tuple[MessageId, ...], effects: Effects
    ) -> None:
        """Remember messages that a peer has already."""
        config = self._config
        heard = self._idontwants_heard.get(peer, 0)
        if heard >= config.max_idontwant_messages:
            effects.append(trace.Refuse(peer, reasons.IDONTWANT_TOO_MANY_MESSAGES))
            return
        self._idontwants_heard[peer] = heard + 1
        heeded = message_ids[: config.max_idontwant_length]
        if len(heeded) < len(message_ids):
            refused = len(message_ids) - len(heeded)
            effects.append(trace.Refuse(peer, reasons.IDONTWANT_TOO_MANY_IDS, count=refused))
        if heeded and config.idontwant_ttl:
            unwanted = self.unwanted.setdefault(peer, {})
            for message_id in heeded:
                unwanted[message_id] = config.idontwant_ttl
