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
    PUBLICATION_MESSAGES,
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
        kind = self.randomness.choice((*messages.RING_MESSAGES, *PUBLICATION_MESSAGES))
        parts: tuple[object, ...] = ()
        if kind is messages.GetConfiguration:
            parts = (self.peer(),)
        elif kind is messages.SetData:
            parts = (self.maybe_reference(), maybe_label, self.maybe_reference())
        elif kind is messages.Check:
            parts = (self.reference(), self.label(), self.flag())
        elif kind is messages.Introduce:
            parts = (self.reference(), self.flag())
        elif kind is messages.Linearize:
            parts = (self.reference(),)
        elif kind is messages.IntroduceShortcut:
            parts = (self.reference(), self.label())
        elif kind is CheckTrie:
            parts = (self.nodes(),)
        elif kind is CheckAndPublish:
            parts = (self.nodes(), self.wants())
        elif kind is PublishBundle:
            carried = [self.publication(topic) for _ in range(self.randomness.randrange(4))]
            parts = (tuple(carried), self.wants())
        elif kind is PublishNew:
            parts = (self.publication(topic),)
        return kind(topic, *parts)  # type: ignore[arg-type]


def junk_letter(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> Letter:
    """Make an arbitrary letter out of what the attacker knows."""
    return _Junk(randomness, peers, topics).letter()
