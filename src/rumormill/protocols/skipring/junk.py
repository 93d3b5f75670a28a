"""Arbitrary letters, as an attacker or a corrupt channel holds them: well-formed, and else wrong.

Labels that nobody has or that are another's, foreign ids, configurations from peers that supervise
nothing, hashes of no trie, prefixes of any length, forged publications, promises of more.
"""

from collections.abc import Callable
from typing import Any, get_type_hints

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.overlay.patricia import HASH_BYTES, Prefix, Summary, prefix_of
from rumormill.protocols.scraps import some_peer, some_topic
from rumormill.protocols.skipring.envelope import Publication, named
from rumormill.protocols.skipring.labels import LABEL_BITS, Label, label_of
from rumormill.protocols.skipring.messages import (
    LETTERS,
    Flag,
    Letter,
    Reference,
    Token,
    Want,
)

_KEY_BITS = 256
_KINDS = [kind for kind in LETTERS if kind is not Token]
"""All that every ring knows; tokens are for rings that pass them."""


def junk_letter(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> Letter:
    """Make an arbitrary letter out of what the attacker knows."""
    some, octets = randomness.randrange, randomness.randbytes

    def peer() -> PeerId:
        return some_peer(randomness, peers)

    def label() -> Label:
        """Mostly one of the first labels, which living subscribers have."""
        known = randomness.random() < 0.8
        return label_of(some(2 * len(peers) + 2 if known else 1 << LABEL_BITS))

    def reference() -> Reference:
        return Reference(label(), peer())

    def prefix() -> Prefix:
        longest = randomness.choice((0, 4, 16, _KEY_BITS))
        return prefix_of(octets(_KEY_BITS // 8), some(longest + 1))

    def want() -> Want:
        return Want(prefix(), octets(_KEY_BITS // 8) if some(2) else b"")

    def publication() -> Publication:
        seqno, data, signature = some(1 << 64), octets(some(99)), octets(64)
        return named(Publication(topic, peer(), seqno, data, 0, signature), _KEY_BITS)

    topic = some_topic(randomness, topics)
    maybe_label = label() if randomness.random() < 0.8 else None
    kind = randomness.choice(_KINDS)
    draws: dict[Any, Callable[[], object]] = {
        PeerId: peer,
        Label: label,
        Label | None: lambda: maybe_label,
        Flag: lambda: randomness.choice((Flag.LIN, Flag.CYC)),
        Reference: reference,
        Reference | None: lambda: reference() if randomness.random() < 0.8 else None,
        Publication: publication,
        tuple[bytes, ...]: tuple,
        tuple[Summary, ...]: lambda: tuple(
            Summary(prefix(), octets(HASH_BYTES)) for _ in range(some(8))
        ),
        tuple[Want, ...]: lambda: tuple(want() for _ in range(some(4))),
        tuple[Publication, ...]: lambda: tuple(publication() for _ in range(some(4))),
    }
    hints = get_type_hints(kind)
    return kind(topic, *[draws[hints[name]]() for name in kind.body.fields])
