"""Trunk: a tree for each source inside the mesh, so that a message comes once and as soon as ever.

In a mesh the first copy of a message travels along the fastest path and the others are for nothing.
So a peer tells every neighbour but the one that was first with a source's last message: of this
source announcements only, please (choke). What is left of the mesh is the tree of fastest paths
from that source, and no two sources need share one: a single tree for all would be half as slow
again. The other links stay: over them each message is announced, in eight bytes and within some
milliseconds. An announcement that the message does not follow within the time it usually takes is
answered by asking for the message, and for the next one too if the parent is not there or this is
not the first time; whoever announces well before the
parent delivers becomes the parent; a parent that is lost is replaced by the neighbour that had the
last message next. A source that is new, or was silent for long, has no tree, and its message goes
where most of what others publish goes, or to the whole mesh, as in GossipSub: that, or a probe
without content, is what grows the tree.

The receiver alone decides, each link by itself, and nothing depends on an agreement: a choke that
is lost costs a copy, an unchoke that is lost costs one more announcement. Peers that do not speak
the extension are sent everything and owe nothing.

Announcements are believed at a price: who was asked for what it had announced and did not bring it
in time is not asked again for a while, and is charged (P7) when it makes a habit of it.
"""

from collections.abc import Collection, Container, Iterable
from itertools import filterfalse
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import drop
from rumormill.core.effects import Effects, Send, SendAll, SetTimer
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.trace import CHOKE_RACE, DuplicateMessage
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_3, PeerTable
from rumormill.protocols.gossipsub.sources import BACKUPS, YOUNG, Source, Sources
from rumormill.protocols.gossipsub.trunk_missing import (
    ANSWERING,
    CALLING,
    Letters,
    Speaker,
    Wanting,
    tell,
)
from rumormill.protocols.gossipsub.trunk_outsiders import Outsiders
from rumormill.protocols.gossipsub.trunk_parents import Parents
from rumormill.protocols.gossipsub.trunk_past import past_of, recall
from rumormill.protocols.gossipsub.trunk_probes import Probes
from rumormill.protocols.pubsub.messages import Control, Message, Rpc
from rumormill.protocols.pubsub.trunk_part import (
    ANSWER,
    CALL,
    KEY_BYTES,
    TAG_BYTES,
    Probe,
    TrunkPart,
    key_of,
    mark_of,
)

WISHES_MAX: Final = 5000
"""Sources that a peer may choke, unchoke or tell the past of in a heartbeat: our choice, all of
them once, and some again. A call is as many as it takes to answer one."""
PAST_TOLD: Final = WISHES_MAX // 2
"""Sources of whose past we tell a peer in a heartbeat, which leaves it room for other wishes."""
_CALL_PRICE: Final = 50
HAVES_MAX: Final = 5000
"""Announcements heeded per peer and heartbeat, as with IHAVE (go)."""
ANNOUNCE: Final = "announce"
"""The timer of announcements that wait."""
HELD: Final = 0.005
"""Seconds that an announcement waits for others to the same peer, with which it shares an RPC: our
choice, short beside the way of a message. What comes by the tree waits for nothing."""
HELD_YOUNG: Final = 0.0005
"""The same while a source is young, and half of those who have no tree yet have to ask: our choice,
what comes in one RPC is announced in one."""
_GENERATION: Final = 5
"""Heartbeats after which names of messages begin to be forgotten, and are after as many more; as
long as the message cache answers requests."""


class _Arrival(msgspec.Struct, gc=False):
    """A message that we have."""

    id: MessageId
    source: Source
    at: float
    """When it came."""
    holders: tuple[PeerId, ...] = ()
    """Who announced it before we had it."""
    seconded: bool = False


class Trunk:
    """The trees of all sources, as this peer sees them."""

    __slots__ = (
        "_links", "_older", "_own", "_recent", "_saying", "_table", "_ticks", "_unsaid",
        "outsiders", "parents", "probes", "sources", "speakers", "wanting",
    )  # fmt: skip

    def __init__(self, own: PeerId, table: PeerTable, links: dict[Topic, dict[PeerId, None]]):
        self.speakers: dict[PeerId, Speaker] = {}
        self.sources = Sources(table.config.trunk_sources)
        self.wanting = Wanting(self.sources, self.speakers, table.trust, links)
        self.parents = Parents(table, self.speakers, links)
        self.probes = Probes(table.config.probes, table.config.trunk_memory / 2, table.randomness)
        self._own, self._table, self._links = own, table, links
        self._recent: dict[bytes, _Arrival] = {}
        self._older: dict[bytes, _Arrival] = {}
        self.outsiders = Outsiders()
        self._unsaid: dict[PeerId, list[bytes]] = {}
        self._saying = 0.0
        """When that is said."""
        self._ticks = 0

    # Peers and links.

    def connected(self, peer: PeerId, protocol: str, effects: Effects) -> None:
        """Offer the extension, before anything else is said, to a peer that may know it."""
        if protocol == GOSSIPSUB_1_3:
            effects.append(Send(peer, Rpc(control=Control(offers_trunk=True))))

    def offered(self, peer: PeerId) -> None:
        """A peer speaks the extension."""
        if self._table.peers[peer].protocol == GOSSIPSUB_1_3:
            self.speakers.setdefault(peer, Speaker())

    def linked(self, topic: Topic, peer: PeerId, now: float, effects: Effects) -> None:
        """A mesh link is new. It carries announcements of the sources that have a tree, beginning
        with those that could have been made already."""
        speaker = self.speakers.get(peer)
        if speaker is None:
            return
        if not speaker.measured:
            speaker.called = now
            effects.append(Send(peer, CALLING))
        past = past_of(self.sources, topic, now)
        if past is not None and speaker.recalled + len(past.names) <= PAST_TOLD:
            speaker.recalled += len(past.names)
            tell(peer, TrunkPart(past=(past,)), effects)

    def unlinked(self, topic: Topic, peer: PeerId, effects: Effects) -> None:
        """A mesh link is gone: whatever came over it must come from elsewhere, from now on."""
        letters = Letters()
        for source in self.sources.of(topic):
            self.parents.lose(source, peer, letters)
        letters.send(effects)

    def gone(self, peer: PeerId, effects: Effects) -> None:
        """A peer is gone."""
        drop(self.speakers, peer)
        self.outsiders.forget_peer(peer)
        self._unsaid.pop(peer, None)
        self.probes.forget_peer(peer)
        self.wanting.forget_peer(peer)
        letters = Letters()
        for source in self.sources.every():
            if source.shunned is not None:
                source.shunned.pop(peer, None)
            self.parents.lose(source, peer, letters)
        letters.send(effects)

    def left(self, topic: Topic) -> None:
        """We have left a topic."""
        self.sources.leave(topic)
        self.outsiders.leave(topic)

    # The way of a message.

    def arrived(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        """A peer brought a new message."""
        source = self._source_of(message, peer, now)
        if source is not None:
            key = source.key_of(message)
            speaker = self.speakers.get(peer)
            if speaker is not None:
                self.wanting.kept(peer, speaker, key, now)
            missing = self.wanting.take(key)
            holders = () if missing is None else tuple(missing.announcers)
            self._recent[key] = _Arrival(message.id, source, now, holders)
            self.parents.elect(source, peer, missing, now, effects)
            source.hear(mark_of(message.seqno), now)
            if holders:
                self.parents.reserve(source, holders)

    def _source_of(self, message: Message, sender: PeerId, now: float) -> Source | None:
        topic, author = message.topic, message.author
        if not author or not message.seqno:
            return None
        source = self.sources.come(topic, author)
        if source is None:
            eager = self.sources.first_eager(topic, author, self._links, sender, now)
            return self.sources.add(topic, author, eager, now)
        self.sources.touch(source, now)
        source.messages += 1
        return source

    def duplicate(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        """A peer brought a message again, as the last effect says."""
        source = self.sources.get(message.topic, message.author)
        speaker = self.speakers.get(peer)
        if source is None or speaker is None or message.author == self._own:
            return
        key = message.cached_key or source.key_of(message)
        asked = self.wanting.kept(peer, speaker, key, now)
        if peer == source.parent or asked:
            return
        if not source.parent:
            source.parent = peer
            return
        self._second(source, key, peer, now)
        if peer == source.second and source.messages < source.doubled:
            return
        if peer in source.choked:
            effects[-1] = DuplicateMessage(message.id, peer, message.topic, CHOKE_RACE)
        self.parents.choke(source, peer, now, effects)

    def _second(self, source: Source, key: bytes, peer: PeerId, now: float) -> _Arrival | None:
        """Note who had a message next after the parent."""
        arrival = self._find(key)
        links = self._links.get(source.topic, ())
        if arrival is None or peer == source.parent or peer not in links:
            return arrival
        if not arrival.seconded and not arrival.holders:  # the parent was ahead
            source.backups = (peer,)
            source.measure(arrival.at - now)
        elif len(source.backups) < BACKUPS and peer not in source.backups:
            source.backups += (peer,)
        arrival.seconded = True
        return arrival

    def _find(self, key: bytes) -> _Arrival | None:
        """A message that we have."""
        return self._recent.get(key) or self._older.get(key)

    def divide(
        self, message: Message, received_from: PeerId, peers: Iterable[PeerId], now: float
    ) -> tuple[Iterable[PeerId], tuple[PeerId, ...], bytes]:
        """Say who is sent a message, who is told of it, and its name; the rest has it already."""
        source = self.sources.get(message.topic, message.author)
        if source is None and message.author == self._own:
            source = self.sources.add(message.topic, self._own, dict.fromkeys(peers), now)
        if source is None:
            return peers, (), b""
        name, key = source.name_of(message), source.key_of(message)
        arrival = self._recent.get(key)
        if arrival is None:  # it is our own
            self.probes.published(message.topic, now)
            source.hear(mark_of(message.seqno), now)
            self.sources.touch(source, now)
            arrival = self._recent[key] = _Arrival(message.id, source, now)
        holders, speakers = arrival.holders, self.speakers
        for holder in holders:
            self._credit(holder, arrival, now)
        eager: Container[PeerId] = source.eager
        if source.messages and now - source.born < YOUNG and message.author != self._own:
            eager = source.some()
        having = (*holders, received_from, message.author)
        sent: list[PeerId] = []
        told: list[PeerId] = []
        for peer in peers:
            if peer not in having:
                (told if peer in speakers and peer not in eager else sent).append(peer)
        return sent, tuple(told), name

    def announce(
        self, peers: tuple[PeerId, ...], name: bytes, now: float, effects: Effects
    ) -> None:
        """Tell peers of a message in a moment, with what else there is to tell them by then."""
        unsaid = self._unsaid
        source = self.sources.by_tag.get(name[:TAG_BYTES])
        is_young = source is not None and now - source.born < YOUNG
        due = now + (HELD_YOUNG if is_young else HELD)
        if not unsaid or due < self._saying:
            self._saying = due
            effects.append(SetTimer(ANNOUNCE, due))
        longest = 0
        for peer in peers:
            names = unsaid.setdefault(peer, [])
            names.append(name)
            longest = max(longest, len(names))
        if longest >= HAVES_MAX:
            self.say(effects)

    def say(self, effects: Effects) -> None:
        """Make the announcements that wait."""
        alike: dict[tuple[bytes, ...], list[PeerId]] = {}
        for peer, names in self._unsaid.items():
            alike.setdefault(tuple(names), []).append(peer)
        self._unsaid.clear()
        for have, peers in alike.items():
            rpc = Rpc(control=Control(trunk=TrunkPart(have=have)))
            effects.append(SendAll(tuple(peers), rpc))

    def may_send(self, message: Message, peers: Collection[PeerId]) -> Collection[PeerId]:
        """Those who may be about to send us a message: nobody who speaks the extension, if it is
        ours, or of a source that has a tree."""
        source = self.sources.get(message.topic, message.author)
        if message.author != self._own and (source is None or not source.messages):
            return peers
        return [peer for peer in peers if peer not in self.speakers]

    # What peers say.

    def heard(
        self, peer: PeerId, part: TrunkPart, now: float, effects: Effects
    ) -> tuple[MessageId, ...]:
        """Take a peer's part; return the ids of messages that it asks for."""
        speaker = self.speakers.get(peer)
        if speaker is None:  # who speaks it has had our offer, even if its own was lost
            self.offered(peer)
            speaker = self.speakers.get(peer)
        if speaker is None:
            effects.append(trace.Refuse(peer, reasons.TRUNK_NOT_OFFERED))
            return ()
        if part.have:
            for name in self._heeded(peer, speaker, part.have, now, effects):
                self._on_have(peer, speaker, name, now, effects)
        if part.gossip:
            heeded = self._heeded(peer, speaker, part.gossip, now, effects)
            if speaker.shunned <= now:
                others = filterfalse(self._recent.__contains__, heeded)
                for key in filterfalse(self._older.__contains__, others):
                    self.wanting.announced(peer, key, b"", now, effects)
        echo = part.echo
        wishes = part.choke or part.unchoke or part.past or echo == CALL
        if (wishes or speaker.wishes > WISHES_MAX) and self._heeds(peer, speaker, part, effects):
            self._on_wishes(peer, part, now, effects)
        if echo == ANSWER:
            self.wanting.answered(peer, now)
        if part.probes:
            self._on_probes(peer, part.probes, now, effects)
        return tuple(self._wanted(peer, part.want, effects)) if part.want else ()

    def _heeds(self, peer: PeerId, speaker: Speaker, part: TrunkPart, effects: Effects) -> bool:
        """Whether a peer may wish for this as well, in this heartbeat."""
        price = len(part.choke) + len(part.unchoke)
        for past in part.past:
            price += 1 + len(past.names)
        if part.echo == CALL:
            price += _CALL_PRICE
        speaker.wishes += price
        if speaker.wishes <= WISHES_MAX:
            return True
        effects.append(trace.Refuse(peer, reasons.WISH_TOO_MANY))
        return False

    def _on_wishes(self, peer: PeerId, part: TrunkPart, now: float, effects: Effects) -> None:
        """A peer says of which sources it wants the messages, whether it wants an answer, and what
        it has heard."""
        by_tag = self.sources.by_tag
        for tag in part.choke:
            source = by_tag.get(tag)
            if source is not None:
                source.eager.pop(peer, None)
        for tag in part.unchoke:
            source = by_tag.get(tag)
            if source is not None and peer in self._table.topics.get(source.topic, ()):
                source.eager[peer] = None
        for past in part.past:
            if peer in self._links.get(past.topic, ()):
                recall(self.sources, self._own, peer, past, now, effects)
        if part.echo == CALL:
            effects.append(Send(peer, ANSWERING))

    def _wanted(self, peer: PeerId, keys: tuple[bytes, ...], effects: Effects) -> list[MessageId]:
        known = [arrival.id for arrival in map(self._find, keys) if arrival is not None]
        if len(known) < len(keys):
            unknown = len(keys) - len(known)
            effects.append(trace.Refuse(peer, reasons.IWANT_UNKNOWN, count=unknown))
        return known

    def _heeded(
        self,
        peer: PeerId,
        speaker: Speaker,
        announced: tuple[bytes, ...],
        now: float,
        effects: Effects,
    ) -> tuple[bytes, ...]:
        """As many of a peer's announcements as it may make."""
        if not self._table.trust.gossips(peer, now):
            effects.append(trace.Refuse(peer, reasons.BELOW_GOSSIP_THRESHOLD))
            return ()
        speaker.haves += len(announced)
        refused = min(speaker.haves - HAVES_MAX, len(announced))
        if refused <= 0:
            return announced
        effects.append(trace.Refuse(peer, reasons.HAVE_TOO_MANY, count=refused))
        return announced[: len(announced) - refused]

    def _on_have(
        self, peer: PeerId, speaker: Speaker, name: bytes, now: float, effects: Effects
    ) -> None:
        tag, key = name[:TAG_BYTES], key_of(name)
        source = self.sources.by_tag.get(tag)
        if source is not None:
            arrival = self._second(source, key, peer, now)
            if arrival is not None:
                self._credit(peer, arrival, now)
                return
        if speaker.shunned <= now:
            self.wanting.announced(peer, key, tag, now, effects)

    def _credit(self, peer: PeerId, arrival: _Arrival, now: float) -> None:
        """P3: a neighbour that we keep from sending has a message as early as if it had sent it."""
        scores = self._table.trust.scores
        if scores is not None and peer in arrival.source.choked:
            said = now - HELD  # it may have waited at the peer as long
            scores.announced(peer, arrival.source.topic, arrival.id, said)

    # Probes.

    def probe(self, topic: Topic, peers: Iterable[PeerId], now: float, effects: Effects) -> None:
        """Show the way to our own messages: along the tree, or everywhere if there is none."""
        source = self.sources.get(topic, self._own)
        if source is None:
            source = self.sources.add(topic, self._own, dict.fromkeys(peers), now)
        if source is not None:
            probe = Probe(topic, self._own, self.probes.next_number())
            self._pass_on(source, probe, peers, b"", now, effects)

    def _pass_on(
        self,
        source: Source,
        probe: Probe,
        peers: Iterable[PeerId],
        sender: PeerId,
        now: float,
        effects: Effects,
    ) -> None:
        self.sources.touch(source, now)
        eager, speakers = source.eager, self.speakers
        others = [peer for peer in peers if peer in eager and peer in speakers and peer != sender]
        if others:
            rpc = Rpc(control=Control(trunk=TrunkPart(probes=(probe,))))
            effects.append(SendAll(tuple(others), rpc))

    def _on_probes(
        self, peer: PeerId, probes: tuple[Probe, ...], now: float, effects: Effects
    ) -> None:
        for probe in probes:
            topic, author = probe.topic, probe.source
            links = self._links.get(topic)
            if links is None or author == self._own or (peer not in links and peer != author):
                continue
            new = self.probes.is_new(topic, author, probe.number)
            if new is None or not self.probes.admits(peer):
                effects.append(trace.Refuse(peer, reasons.PROBE_TOO_MANY, topic))
                continue
            source = self.sources.come(topic, author)
            if source is None:
                source = self.sources.add(topic, author, dict.fromkeys(links), now)
            if source is None:
                continue
            if not source.parent:
                source.parent = peer
            if new:
                source.hear(probe.number.to_bytes(KEY_BYTES, "big"), now)
                self._pass_on(source, probe, links, peer, now, effects)
            if peer != source.parent:
                self.parents.choke(source, peer, now, effects)

    # Time passes.

    def heartbeat(self, now: float) -> None:
        """Begin new counts, and forget what is old."""
        self._ticks += 1
        self.outsiders.heartbeat()
        for speaker in self.speakers.values():
            speaker.haves = speaker.wishes = speaker.recalled = 0
        if self._ticks % _GENERATION == 0:
            self._recent, self._older = {}, self._recent
            self.sources.sweep(now - self._table.config.trunk_memory)
            self.probes.sweep(self.sources.by_topic)
        self.wanting.sweep(now)
