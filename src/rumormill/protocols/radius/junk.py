"""Arbitrary frames, as an attacker would send them: well-formed, and everything else wrong.

Subscriptions in the name of others, forged and endless ones, publications from the past and from
the future, letters to people who want none, hops for millions of peers, membership messages that
make no sense, and minima that claim a network of any size.
"""

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.overlay.hyparview.messages import Membership, PeerInfo
from rumormill.protocols.radius.messages import (
    MARK_BYTES,
    Frame,
    Interest,
    Publication,
    Relay,
    Spread,
)
from rumormill.protocols.scraps import some_peer, some_topic

_HOPS = (0, 1, 6, 2**31, 2**32 - 1)
_DATES = (0, 1, 10**9, 2**63, 2**64 - 1)


def junk_frame(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> Frame:
    """Make an arbitrary frame out of what the attacker knows."""
    some = randomness.randrange

    def topic() -> Topic:
        return some_topic(randomness, topics)

    def peer() -> PeerId:
        return some_peer(randomness, peers)

    def hops() -> int:
        return randomness.choice(_HOPS)

    def interest() -> Interest:
        sequence, expires = randomness.choice(_DATES), randomness.choice(_DATES)
        signature = randomness.randbytes(64)
        return Interest(peer(), topic(), sequence, expires, not some(2), (), signature)

    def publication() -> Publication:
        data, signature = randomness.randbytes(some(200)), randomness.randbytes(64)
        return Publication(peer(), topic(), randomness.choice(_DATES), data, signature)

    def membership() -> Membership:
        named = tuple(PeerInfo(peer()) for _ in range(some(9)))
        minima = tuple(float(some(3)) for _ in range(32)) if some(2) else ()
        number = randomness.choice(_DATES)
        return Membership(some(10), hops(), not some(2), number, named, some(5), minima)

    return Frame(
        tuple(Spread(interest(), hops()) for _ in range(some(3))),
        tuple(
            Relay(publication(), hops(), randomness.randbytes(MARK_BYTES * some(4)))
            for _ in range(some(3))
        ),
        tuple(publication() for _ in range(some(2))),
        tuple(membership() for _ in range(some(3))),
    )
