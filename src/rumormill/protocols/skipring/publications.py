"""One topic's publications at one subscriber: Algorithm 5 of the paper, with a bound on all work.

Theory. Every subscriber keeps all publications of the topic in a Patricia trie whose nodes have
hashes. Once per timeout it tells a random ring neighbour the label and hash of its root
(CHECKTRIE). Whoever is told of a node compares it with its own: equal hashes end the chain, unequal
ones are answered with the children, and where no such node exists, it asks for all publications
that it therefore lacks (CHECKANDPUBLISH), which are sent (PUBLISH). Nothing is ever deleted, so
on a connected ring the sets grow until all are equal (Theorem 17), and then nothing moves any more
(Theorem 23). New publications are flooded along ring edges and shortcuts (PUBLISHNEW), which is
fast and may fail: the tries repair whatever it missed.

The rules beyond the paper: a publication counts only when its author has signed it; an answer has
a bounded size and names what did not fit, which the receiver asks for as long as that brings it
something new; a check is answered by one message at most; and what one peer can have done for it
between two timeouts is limited, so that a chain without end is cut off and counted. The data lies
in the archive; the trie holds keys alone and is rebuilt from the archive at the start.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from rumormill.core import trace
from rumormill.core.archive import Archive
from rumormill.core.effects import Append, Effects, Mail, Validate
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.inputs import Verdict
from rumormill.core.randomness import Randomness
from rumormill.overlay.patricia import PatriciaTrie, Prefix, Summary, compare
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.skipring import envelope
from rumormill.protocols.skipring.envelope import Publication
from rumormill.protocols.skipring.publication_config import PublicationConfig
from rumormill.protocols.skipring.publication_messages import (
    CheckAndPublish,
    CheckTrie,
    PublicationMessage,
    PublishBundle,
    PublishNew,
    Want,
)

TOO_MANY_CHECKS = "too-many-checks"
TOO_MANY_BYTES = "too-many-bytes-asked-for"
TOO_MANY_FORGERIES = "too-many-forgeries"
TOO_MANY_PEERS = "too-many-peers"
WRONG_TOPIC = "wrong-topic"
NO_LONGER_KEPT = "no-longer-kept"
ALREADY_REFUSED = "refused-before"


Item = TypeVar("Item")


class _Use(msgspec.Struct, gc=False):
    """What one peer has had done for it since the last timeout."""

    nodes: int = 0
    bytes: int = 0
    forgeries: int = 0
    moved: int = 0
    """Publications that passed between us since a chain ended here."""
    serving: bool = False
    """The peer was told that our last answer has a rest, and will ask for it."""
    asking: bool = False
    """We have asked for the rest of an answer."""


class Publications:
    """The publications of a topic, as one subscriber has them."""

    def __init__(
        self,
        topic: Topic,
        identity: Identity,
        archive: Archive,
        config: PublicationConfig,
        randomness: Randomness,
        *,
        neighbours: Callable[[], Sequence[PeerId]],
        validator: Callable[[Event, PeerId], Verdict] | None = None,
    ) -> None:
        """Make a topic's publications; `neighbours` tells where a flood goes on to."""
        self.topic = topic
        self.trie: PatriciaTrie[None] = PatriciaTrie(config.key_bits)
        self._identity = identity
        self._archive = archive
        self._config = config
        self._randomness = randomness
        self._neighbours = neighbours
        self._validator = validator
        self.delivers = False
        """Whether the application is told of others' publications."""
        self._used: dict[PeerId, _Use] = {}
        self._pending: dict[MessageId, tuple[PeerId, Publication, bool]] = {}
        self._refused: dict[MessageId, None] = {}

    @property
    def root_hash(self) -> bytes:
        """Equal at two subscribers exactly when they have the same publications."""
        return self.trie.root_hash

    def restore(self) -> int:
        """Build the trie from what the archive has kept; return how many publications it has.

        Events of the topic that another protocol kept have no keys of ours and are passed over.
        """
        bits = self._config.key_bits
        for event in self._archive.scan(self.topic):
            if envelope.is_publication(event, bits):
                self.trie.insert(event.id, None)
        return len(self.trie)

    # What we say.

    def publish(self, publication: Publication, delivered: bool, effects: Effects) -> int:
        """Take a publication of ours that is stored, and flood it; return to how many neighbours.

        Before it is stored it must not stand in the trie, which tells others of it.
        """
        own, topic = self._identity.peer, self.topic
        self.trie.insert(publication.id, None)
        effects.append(trace.PublishMessage(publication.id, topic))
        if delivered:
            effects.append(trace.DeliverMessage(publication.id, topic, own))
        return self._flood(publication, own, effects)

    def check_neighbour(self, ring: Sequence[PeerId], effects: Effects) -> None:
        """PUBLISHTIMEOUT: name our root to one of the ring neighbours; a new interval begins."""
        self._used.clear()
        if ring:
            root = (self.trie.root_summary(),)
            effects.append(Mail(self._randomness.choice(ring), CheckTrie(self.topic, root)))

    def _flood(self, publication: Publication, received_from: PeerId, effects: Effects) -> int:
        if not self._config.flooding:
            return 0
        message = PublishNew(self.topic, publication)
        reached = 0
        for peer in dict.fromkeys(self._neighbours()):
            if peer != received_from:
                effects.append(Mail(peer, message))
                reached += 1
        return reached

    # What others say.

    def receive(self, peer: PeerId, message: PublicationMessage, effects: Effects) -> None:
        """Take a message of another subscriber."""
        use = self._use_of(peer)
        if use is None:
            effects.append(trace.Refuse(peer, TOO_MANY_PEERS, self.topic))
        elif isinstance(message, PublishNew):
            self._take(peer, use, message.publication, effects, flood=True)
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
        use.nodes += len(nodes) + len(wants)
        if use.nodes > self._config.nodes_per_interval:
            effects.append(trace.Refuse(peer, TOO_MANY_CHECKS, self.topic))
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
        if wants:
            use.serving = self._serve(peer, use, wants, effects)
        goes_on = answer or missing or use.serving or use.asking
        if not goes_on and use.moved >= self._config.check_again:
            # The chain has ended here. Where much was missing, more may be: begin another.
            use.moved = 0
            effects.append(Mail(peer, CheckTrie(self.topic, (trie.root_summary(),))))

    def _part_of(self, items: list[Item]) -> tuple[Item, ...]:
        """As many items as fit a message, from an arbitrary place on and round the end."""
        most = self._config.nodes_per_message
        if len(items) <= most:
            return tuple(items)
        start = self._randomness.randrange(len(items))
        return tuple([*items[start:], *items[:start]][:most])

    def _serve(self, peer: PeerId, use: _Use, wants: tuple[Want, ...], effects: Effects) -> bool:
        """Send the publications that a peer lacks; return whether some did not fit the answer."""
        if use.bytes >= self._config.bytes_per_interval:
            effects.append(trace.Refuse(peer, TOO_MANY_BYTES, self.topic))
            return False
        found: list[Publication] = []
        rest: list[Want] = []
        size = looked_at = 0
        most, full = self._config.publications_per_message, self._config.answer_bytes
        for place, want in enumerate(wants):
            after = want.after
            for key in self.trie.some_keys(want.prefix, most - looked_at + 1, after or None):
                publication = None if looked_at == most else self._kept(key, peer, effects)
                if looked_at == most or (
                    publication is not None and found and size + publication.size > full
                ):
                    rest = [Want(want.prefix, after), *wants[place + 1 :]]
                    break
                looked_at += 1
                after = key
                if publication is not None:
                    size += publication.size
                    found.append(publication)
            if rest:
                break
        use.bytes += size
        use.moved += len(found)
        if found:
            effects.append(Mail(peer, PublishBundle(self.topic, tuple(found), tuple(rest))))
        return bool(rest)

    def _kept(self, key: MessageId, peer: PeerId, effects: Effects) -> Publication | None:
        event = self._archive.get(self.topic, key)
        if event is not None:
            try:
                return envelope.from_event(event)
            except DecodeError:
                pass
        effects.append(trace.Refuse(peer, NO_LONGER_KEPT, self.topic))
        return None

    def _on_bundle(self, peer: PeerId, use: _Use, bundle: PublishBundle, effects: Effects) -> None:
        """PUBLISH, and the request for what did not fit, as long as anything new came."""
        fresh = 0
        for publication in bundle.publications:
            fresh += self._take(peer, use, publication, effects, flood=False)
        use.asking = bool(fresh and bundle.rest)
        if use.asking:
            effects.append(Mail(peer, CheckAndPublish(self.topic, (), bundle.rest)))
        use.moved += fresh

    # Judging a publication.

    def _take(
        self, peer: PeerId, use: _Use, publication: Publication, effects: Effects, *, flood: bool
    ) -> bool:
        """Take a publication that a peer brings; return whether it was new and true."""
        key, topic = publication.id, self.topic
        if key in self.trie or key in self._pending:
            effects.append(trace.DuplicateMessage(key, peer, topic))
            return False
        if key in self._refused:
            effects.append(trace.Refuse(peer, ALREADY_REFUSED, topic))
            return False
        if publication.topic != topic:
            effects.append(trace.RejectMessage(key, peer, WRONG_TOPIC, topic))
            return False
        if use.forgeries >= self._config.forgeries_per_interval:
            effects.append(trace.Refuse(peer, TOO_MANY_FORGERIES, topic))
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
            self._pending[key] = (peer, publication, flood)
            effects.append(Validate(event, peer))
            return True
        return self._judged(peer, publication, event, verdict, effects, flood=flood)

    def validated(self, key: MessageId, verdict: Verdict, effects: Effects) -> bool:
        """Take a deferred verdict; return whether it was for a publication of this topic."""
        waiting = self._pending.pop(key, None)
        if waiting is None:
            return False
        peer, publication, flood = waiting
        self._judged(peer, publication, publication.to_event(), verdict, effects, flood=flood)
        return True

    def _judged(
        self,
        peer: PeerId,
        publication: Publication,
        event: Event,
        verdict: Verdict,
        effects: Effects,
        *,
        flood: bool,
    ) -> bool:
        key, topic = publication.id, self.topic
        if verdict is not Verdict.ACCEPT:
            refusal = verdict is Verdict.REJECT
            reason = reasons.VALIDATION_FAILED if refusal else reasons.VALIDATION_IGNORED
            effects.append(trace.RejectMessage(key, peer, reason, topic))
            self._remember_refused(key)
            return False
        self.trie.insert(key, None)
        if self.delivers:
            effects.append(trace.DeliverMessage(key, topic, peer))
        effects.append(Append(event, self.delivers))
        if flood:
            self._flood(publication, peer, effects)
        return True

    def _remember_refused(self, key: MessageId) -> None:
        refused = self._refused
        if self._config.max_refused:
            if len(refused) >= self._config.max_refused:
                del refused[next(iter(refused))]
            refused[key] = None
