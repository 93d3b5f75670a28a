"""Arbitrary letters, as an attacker or a corrupt channel holds them: well-formed, and else wrong.

Labels that nobody has or that are another's, foreign ids, configurations from peers that supervise
nothing, hashes of no trie, prefixes of any length, forged publications, promises of more.
"""

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.overlay.patricia import HASH_BYTES, Prefix, Summary, prefix_of
from rumormill.protocols.scraps import some_peer, some_topic
from rumormill.protocols.skipring import messages
from rumormill.protocols.skipring.envelope import Publication, named
from rumormill.protocols.skipring.labels import LABEL_BITS, Label, label_of
from rumormill.protocols.skipring.messages import Flag, Letter, Reference
from rumormill.protocols.skipring.publication_messages import (
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    PublishNew,
    Want,
)

_KEY_BITS = 256


class _Junk:
    """Draws parts of letters from what the attacker knows."""

    def __init__(self, randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> None:
        self.randomness = randomness
        self.peers = peers
        self.topics = topics

    def topic(self) -> Topic:
        return some_topic(self.randomness, self.topics)

    def peer(self) -> PeerId:
        return some_peer(self.randomness, self.peers)

    def label(self) -> Label:
        """Mostly one of the first labels, which living subscribers have."""
        if self.randomness.random() < 0.8:
            return label_of(self.randomness.randrange(2 * len(self.peers) + 2))
        return label_of(self.randomness.randrange(1 << LABEL_BITS))

    def reference(self) -> Reference:
        return Reference(self.label(), self.peer())

    def flag(self) -> Flag:
        return self.randomness.choice((Flag.LIN, Flag.CYC))

    def maybe_reference(self) -> Reference | None:
        return self.reference() if self.randomness.random() < 0.8 else None

    def prefix(self) -> Prefix:
        longest = self.randomness.choice((0, 4, 16, _KEY_BITS))
        key = self.randomness.randbytes(_KEY_BITS // 8)
        return prefix_of(key, self.randomness.randrange(longest + 1))

    def nodes(self) -> tuple[Summary, ...]:
        count = self.randomness.randrange(8)
        return tuple(
            Summary(self.prefix(), self.randomness.randbytes(HASH_BYTES)) for _ in range(count)
        )

    def wants(self) -> tuple[Want, ...]:
        randbytes = self.randomness.randbytes
        count = self.randomness.randrange(4)
        return tuple(
            Want(self.prefix(), randbytes(_KEY_BITS // 8) if self.randomness.randrange(2) else b"")
            for _ in range(count)
        )

    def publication(self, topic: Topic) -> Publication:
        randomness = self.randomness
        seqno, data = randomness.randrange(1 << 64), randomness.randbytes(randomness.randrange(99))
        signature = randomness.randbytes(64)
        return named(Publication(topic, self.peer(), seqno, data, 0, signature), _KEY_BITS)

    def letter(self) -> Letter:
        topic = self.topic()
        maybe_label = self.label() if self.randomness.random() < 0.8 else None
        kinds: tuple[type[Letter], ...] = (*messages.RING_MESSAGES, *_PUBLICATION_KINDS)
        kind = self.randomness.choice(kinds)
        if kind is messages.GetConfiguration:
            return messages.GetConfiguration(topic, self.peer())
        if kind is messages.SetData:
            return messages.SetData(
                topic, self.maybe_reference(), maybe_label, self.maybe_reference()
            )
        if kind is messages.Check:
            return messages.Check(topic, self.reference(), self.label(), self.flag())
        if kind is messages.Introduce:
            return messages.Introduce(topic, self.reference(), self.flag())
        if kind is messages.Linearize:
            return messages.Linearize(topic, self.reference())
        if kind is messages.IntroduceShortcut:
            return messages.IntroduceShortcut(topic, self.reference(), self.label())
        if kind in {messages.Subscribe, messages.Unsubscribe, messages.Acknowledge}:
            return kind(topic)
        return self._about_publications(kind, topic)

    def _about_publications(self, kind: type[Letter], topic: Topic) -> Letter:
        if kind is CheckTrie:
            return CheckTrie(topic, self.nodes())
        if kind is CheckAndPublish:
            return CheckAndPublish(topic, self.nodes(), self.wants())
        if kind is PublishBundle:
            count = self.randomness.randrange(4)
            carried = tuple(self.publication(topic) for _ in range(count))
            return PublishBundle(topic, carried, self.wants())
        if kind is PublishNew:
            return PublishNew(topic, self.publication(topic))
        return messages.RemoveConnections(topic)


_PUBLICATION_KINDS = (CheckTrie, CheckAndPublish, PublishBundle, PublishNew)


def junk_letter(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> Letter:
    """Make an arbitrary letter out of what the attacker knows."""
    return _Junk(randomness, peers, topics).letter()
