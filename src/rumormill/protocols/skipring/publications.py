"""One topic's publications at one subscriber: Algorithm 5 of the paper, with a bound on all work.

Theory. Every subscriber keeps all publications of the topic in a Patricia trie whose nodes have
hashes. Once per timeout it tells a random ring neighbour the label and hash of its root
(CHECKTRIE). Whoever is told of a node compares it with its own: equal hashes end the chain, unequal
ones are answered with the children, and where no such node exists, it asks for all publications
that it therefore lacks (CHECKANDPUBLISH), which are sent (PUBLISH). Nothing is ever deleted, so
on a connected ring the sets grow until all are equal (Theorem 17), and then nothing moves any more
(Theorem 23). New publications are flooded along ring edges and shortcuts (PUBLISHNEW), which is
fast and may fail: the tries repair whatever it missed. Of what they repair, a little at a time is
probably new to others as well, and is flooded on from here: along the tries alone it would take
some seconds from each neighbour to the next. Much at a time is a history that we lack alone.

The rules beyond the paper: a publication counts only when its author has signed it; an answer has
a bounded size and names what did not fit, which the receiver asks for as long as that brings it
something new; a check is answered by one letter at most; and what one peer can have done for it
between two timeouts is limited, so that a chain without end is cut off and counted. The data lies
in the log and the trie holds keys alone: of what is stored, and of nothing else. While a history is
being read into it (`whole`) nobody is told a hash, which would say that we lack all that is yet to
be read, and no check is answered; new publications are taken as always.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Append, Effects, Mail, SetTimer, Validate
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.inputs import Loaded, Verdict
from rumormill.core.randomness import Randomness
from rumormill.overlay.patricia import PatriciaTrie, Prefix, Summary, compare
from rumormill.protocols.skipring import envelope, reasons
from rumormill.protocols.skipring.config import PublicationConfig
from rumormill.protocols.skipring.envelope import Publication
from rumormill.protocols.skipring.messages import (
    CheckAndPublish,
    CheckTrie,
    PublicationLetter,
    PublishBundle,
    PublishNew,
    Want,
)
from rumormill.protocols.skipring.reads import Answer, Reads
from rumormill.protocols.skipring.subscriber import Subscriber

CHECK_AGAIN: Final = 16
"""Publications that a chain moved from which on another follows it at once, and not at the next
timeout: a chain finds some hundred differences, and where it found many there are probably more.
Fewer than these, in one answer, are flooded on."""

MAX_REFUSED: Final = 4096
"""Publications that the application refused and that are remembered, so that the next offer is not
judged again; and as many that the log has not taken. Our choice."""

MAX_UNFLOODED: Final = 16
"""Publications of ours that wait for a first neighbour to be flooded to; older ones, which more
push out, are left to the tries. Our choice: what a program publishes at its start."""

HASHES_PER_STEP: Final = 2048
"""Hashes that are computed at a time when a history has been read. Our choice: 5 milliseconds."""

Item = TypeVar("Item")


class Brought(msgspec.Struct, frozen=True):
    """The barrier behind which a publication that a peer brought enters the trie."""

    topic: Topic
    key: MessageId


class Hash(msgspec.Struct, frozen=True):
    """The timer at which more hashes of a topic's trie are computed."""

    topic: Topic


class _Use(msgspec.Struct, gc=False):
    """What one peer has had done for it since the last timeout."""

    nodes: int = 0
    bytes: int = 0
    forgeries: int = 0
    moved: int = 0
    """Publications that passed between us since a chain ended here."""
    serving: bool = False
    """Our answer is being read, or had a rest: the peer was told so, and will ask for it."""
    asking: bool = False
    """We have asked for the rest of an answer."""


class Publications:
    """The publications of a topic, as one subscriber has them."""

    def __init__(
        self,
        topic: Topic,
        identity: Identity,
        config: PublicationConfig,
        randomness: Randomness,
        *,
        ring: Subscriber,
        reads: Reads,
        validator: Callable[[Event, PeerId], Verdict] | None = None,
    ) -> None:
        self.topic = topic
        self.trie = PatriciaTrie(config.key_bits)
        self.whole = False
        """Whether everything that was stored at the beginning is in the trie."""
        self.delivers = False
        """Whether the application is told of others' publications."""
        self._identity = identity
        self._config = config
        self._randomness = randomness
        self._ring = ring
        self._reads = reads
        self._validator = validator
        self._used: dict[PeerId, _Use] = {}
        self._pending: dict[MessageId, tuple[PeerId, Publication, bool, bool]] = {}
        self._unstored: dict[MessageId, bool] = {}
        """What peers brought and the log has yet to take, and whether the application gets it."""
        self._refused: dict[MessageId, Verdict] = {}
        self._lost: dict[MessageId, None] = {}
        """What the log has not taken. It was passed on when it came, and is not again: neighbours
        with full disks would send it to and fro for ever."""
        self._unflooded: dict[MessageId, Publication] = {}
        """What we published before we had a neighbour."""

    @property
    def root_hash(self) -> bytes:
        """Equal at two subscribers exactly when they have the same publications.

        Empty while our own are being read.
        """
        return self.trie.root_hash if self.whole else b""

    # What is stored.

    def read(self, effects: Effects) -> None:
        """Fill the trie from the log: at the beginning, and when the runtime starts us again."""
        self.whole = False
        self._unstored.clear()
        self._reads.read_history(self.topic, effects)

    def read_anew(self, effects: Effects) -> None:
        """Fill another trie: the log has changed. What it is taking now, it takes."""
        self.trie = PatriciaTrie(self._config.key_bits)
        self.whole = False
        self._reads.read_history(self.topic, effects)

    def restore(self, events: Sequence[Event], now: float, effects: Effects) -> None:
        """Take a piece of the history.

        Events of the topic that another protocol stored have no keys of ours and are passed over.
        """
        bits = self._config.key_bits
        for event in events:
            if envelope.is_publication(event, bits):
                self.trie.insert(event.id)
        self.hash_some(now, effects)

    def hash_some(self, now: float, effects: Effects) -> None:
        """When all is read, hash it; when all is hashed, we can speak of it."""
        if self.whole or self.topic in self._reads:
            return
        self.whole = self.trie.hash_some(HASHES_PER_STEP)
        if not self.whole:
            effects.append(SetTimer(Hash(self.topic), now))

    def stored(self, key: MessageId) -> None:
        """The log has taken a publication that a peer brought."""
        self._unstored.pop(key, None)
        self._lost.pop(key, None)
        self.trie.insert(key)

    def not_stored(self, key: MessageId, reason: str, effects: Effects) -> None:
        """The log has not taken it: to others we still lack it, so it is brought again."""
        remember(self._lost, key, None, MAX_REFUSED)
        if self._unstored.pop(key, False):
            effects.append(trace.UndeliverableMessage(key, self.topic, reason))

    # What we say.

    def publish(self, publication: Publication, delivered: bool, effects: Effects) -> int:
        """Take a publication of ours that is stored, and flood it; return to how many neighbours.

        Before it is stored it must not stand in the trie, which tells others of it.
        """
        own, topic = self._identity.peer, self.topic
        self.trie.insert(publication.id)
        effects.append(trace.PublishMessage(publication.id, topic))
        if delivered:
            effects.append(trace.DeliverMessage(publication.id, topic, own))
        reached = self._flood(publication, own, effects)
        if not reached and self._config.flooding:
            remember(self._unflooded, publication.id, publication, MAX_UNFLOODED)
        return reached

    def meet_neighbours(self, effects: Effects) -> None:
        """Flood what we published before we had anybody to send it to."""
        if self._unflooded and self._ring.neighbours:
            waiting, self._unflooded = self._unflooded, {}
            for publication in waiting.values():
                self._flood(publication, self._identity.peer, effects)

    def check_neighbour(self, ring: Sequence[PeerId], effects: Effects) -> None:
        """PUBLISHTIMEOUT: name our root to one of the ring neighbours; a new interval begins."""
        self._used.clear()
        if ring and self.whole:
            root = (self.trie.root_summary(),)
            effects.append(Mail(self._randomness.choice(ring), CheckTrie(self.topic, root)))

    def _flood(self, publication: Publication, received_from: PeerId, effects: Effects) -> int:
        if not self._config.flooding:
            return 0
        message = PublishNew(self.topic, publication)
        reached = 0
        for peer in self._ring.neighbours:
            if peer != received_from:
                effects.append(Mail(peer, message))
                reached += 1
        return reached

    # What others say.

    def receive(self, peer: PeerId, message: PublicationLetter, effects: Effects) -> None:
        """Take a letter of another subscriber."""
        use = self._use_of(peer)
        if use is None:
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_PEERS, self.topic))
        elif isinstance(message, PublishNew):
            self._take(peer, use, message.publication, effects, flood=True, asked=False)
        elif isinstance(message, PublishBundle):
            self._on_bundle(peer, use, message, effects)
        else:
            wants = message.wants if isinstance(message, CheckAndPublish) else ()
            self._on_check(peer, use, message.nodes, wants, effects)

    def _use_of(self, peer: PeerId) -> _Use | None:
        use = self._used.get(peer)
        if use is None and len(self._used) < self._config.peers_per_interval:
            use = self._used[peer] = _Use()
        return use

    def _on_check(
        self,
        peer: PeerId,
        use: _Use,
        nodes: tuple[Summary, ...],
        wants: tuple[Want, ...],
        effects: Effects,
    ) -> None:
        """CHECKTRIE, and CHECKANDPUBLISH when there are wants.

        An answer holds what fits one message. So a chain stays as narrow as a message and always
        gets to its end, where publications are sent; a wide one would spend all that a peer may
        ask for in an interval on the upper levels, every time anew. Which part of the keys an
        answer is about is drawn each time, because some differences stay: publications that one
        side refuses, or no longer has, must not hide the others for ever.
        """
        if not self.whole:
            effects.append(trace.Refuse(peer, reasons.HISTORY_UNREAD, self.topic))
            return
        use.nodes += len(nodes) + len(wants)
        if use.nodes > self._config.nodes_per_interval:
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_CHECKS, self.topic))
            return
        trie = self.trie
        answer: list[Summary] = []
        missing: list[Prefix] = []
        for node in nodes:
            comparison = compare(trie, node)
            answer += comparison.nodes
            if comparison.missing is not None:
                missing.append(comparison.missing)
        if missing:
            lacking = tuple([Want(prefix) for prefix in self._part_of(missing)])
            reply = CheckAndPublish(self.topic, self._part_of(answer), lacking)
            effects.append(Mail(peer, reply))
        elif answer:
            effects.append(Mail(peer, CheckTrie(self.topic, self._part_of(answer))))
        goes_on = bool(answer or missing)
        if wants:
            use.serving = self._serve(peer, use, wants, goes_on, effects)
        self._end_chain(peer, use, goes_on, effects)

    def _end_chain(self, peer: PeerId, use: _Use, goes_on: bool, effects: Effects) -> None:
        """Unless a chain goes on, it has ended here: where much was missing, begin another."""
        goes_on = goes_on or use.serving or use.asking
        if not goes_on and use.moved >= CHECK_AGAIN:
            use.moved = 0
            effects.append(Mail(peer, CheckTrie(self.topic, (self.trie.root_summary(),))))

    def _part_of(self, items: list[Item]) -> tuple[Item, ...]:
        """As many items as fit a message, from an arbitrary place on and round the end."""
        most = self._config.nodes_per_message
        if len(items) <= most:
            return tuple(items)
        start = self._randomness.randrange(len(items))
        return tuple([*items[start:], *items[:start]][:most])

    def _serve(
        self, peer: PeerId, use: _Use, wants: tuple[Want, ...], goes_on: bool, effects: Effects
    ) -> bool:
        """Read the first publications that a peer lacks; return whether there are any for it."""
        if use.bytes >= self._config.bytes_per_interval:
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_BYTES, self.topic))
            return False
        if not self._reads.has_room(peer):
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_READS, self.topic))
            return False
        most = self._config.publications_per_message
        keys: list[tuple[int, MessageId]] = []
        for place, want in enumerate(wants):
            behind = self.trie.some_keys(want.prefix, most - len(keys) + 1, want.after or None)
            keys += [(place, key) for key in behind]
            if len(keys) > most:
                break
        answer = Answer(self.topic, peer, wants, tuple(keys), (), goes_on)
        if keys:
            self._reads.read_for(answer if len(keys) <= most else answer.cut(most), effects)
        return bool(keys)

    def send(self, answer: Answer, loaded: Loaded, effects: Effects) -> None:
        """PUBLISH: what a peer lacks, as far as it fits one answer, and what did not fit."""
        peer, use = answer.peer, self._use_of(answer.peer)
        if use is None:
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_PEERS, self.topic))
            return
        events = {event.id: event for event in loaded.events}
        last = loaded.events[-1].id if loaded.more and loaded.events else None
        found: list[Publication] = []
        rest = answer.rest
        size = 0
        for number, (_, key) in enumerate(answer.keys):
            try:
                publication = envelope.from_event(events[key])
            except (KeyError, DecodeError):
                own = self._identity.peer  # who asks could not know that
                effects.append(trace.Refuse(own, reasons.NO_LONGER_KEPT, self.topic))
            else:
                if found and size + publication.size > self._config.answer_bytes:
                    rest = answer.rest_from(number)
                    break
                size += publication.size
                found.append(publication)
            if key == last and number + 1 < len(answer.keys):
                rest = answer.rest_from(number + 1)
                break
        use.bytes += size
        use.moved += len(found)
        if found:
            effects.append(Mail(peer, PublishBundle(self.topic, tuple(found), rest)))
        use.serving = bool(rest)
        self._end_chain(peer, use, answer.goes_on, effects)

    def _on_bundle(self, peer: PeerId, use: _Use, bundle: PublishBundle, effects: Effects) -> None:
        """PUBLISH, and the request for what did not fit, as long as anything new came."""
        fresh = 0
        few = len(bundle.publications) < CHECK_AGAIN and not bundle.rest
        for publication in bundle.publications:
            fresh += self._take(peer, use, publication, effects, flood=few, asked=True)
        use.asking = bool(fresh and bundle.rest)
        if use.asking:
            effects.append(Mail(peer, CheckAndPublish(self.topic, (), bundle.rest)))
        use.moved += fresh

    # Judging a publication.

    def _take(
        self,
        peer: PeerId,
        use: _Use,
        publication: Publication,
        effects: Effects,
        *,
        flood: bool,
        asked: bool,
    ) -> bool:
        """Take a publication that a peer brings; return whether it was new and true."""
        key, topic = publication.id, self.topic
        if key in self.trie or key in self._unstored or key in self._pending:
            effects.append(trace.DuplicateMessage(key, peer, topic))
            return False
        if (refusal := self._refused.get(key)) is not None:
            to_blame = self._to_blame(peer, refusal, asked=asked)
            effects.append(trace.Refuse(to_blame, reasons.REFUSED_BEFORE, topic))
            return False
        if publication.topic != topic:
            effects.append(trace.RejectMessage(key, peer, reasons.WRONG_TOPIC, topic))
            return False
        if use.forgeries >= self._config.forgeries_per_interval:
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_FORGERIES, topic))
            return False
        if not envelope.check(publication, self._identity):
            use.forgeries += 1
            effects.append(trace.RejectMessage(key, peer, reasons.INVALID_SIGNATURE, topic))
            return False
        event = publication.to_event()
        verdict = Verdict.ACCEPT if self._validator is None else self._validator(event, peer)
        if verdict is Verdict.DEFER:
            if len(self._pending) >= self._config.max_pending_validations:
                reason = reasons.VALIDATION_THROTTLED
                effects.append(trace.RejectMessage(key, peer, reason, topic))
                return False
            self._pending[key] = (peer, publication, flood, asked)
            effects.append(Validate(event, peer))
            return True
        return self._judged(peer, publication, event, verdict, effects, flood=flood, asked=asked)

    def validated(self, key: MessageId, verdict: Verdict, effects: Effects) -> bool:
        """Take a deferred verdict; return whether it was for a publication of this topic."""
        waiting = self._pending.pop(key, None)
        if waiting is None:
            return False
        peer, publication, flood, asked = waiting
        event = publication.to_event()
        self._judged(peer, publication, event, verdict, effects, flood=flood, asked=asked)
        return True

    def _to_blame(self, peer: PeerId, verdict: Verdict, *, asked: bool) -> PeerId:
        """Whose fault it is that our own rules refuse a publication: nobody's, if they say so, or
        if we asked for what the peer has, which was taken by rules of its own, or by ours as they
        were."""
        return peer if verdict is Verdict.REJECT and not asked else self._identity.peer

    def _judged(
        self,
        peer: PeerId,
        publication: Publication,
        event: Event,
        verdict: Verdict,
        effects: Effects,
        *,
        flood: bool,
        asked: bool,
    ) -> bool:
        key, topic = publication.id, self.topic
        if verdict is not Verdict.ACCEPT:
            refusal = verdict is Verdict.REJECT
            reason = reasons.VALIDATION_FAILED if refusal else reasons.VALIDATION_IGNORED
            to_blame = self._to_blame(peer, verdict, asked=asked)
            effects.append(trace.RejectMessage(key, to_blame, reason, topic))
            remember(self._refused, key, verdict, MAX_REFUSED)
            return False
        self._unstored[key] = self.delivers
        if self.delivers:
            effects.append(trace.DeliverMessage(key, topic, peer))
        effects.append(Append(event, self.delivers, Brought(topic, key)))
        if flood and key not in self._lost:
            self._flood(publication, peer, effects)
        return True
