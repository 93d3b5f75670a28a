"""What attackers build arbitrary messages from: mostly what they have heard of, else made up.

Every protocol's junk is drawn here, so that all of them meet the same mixture: a name that is
known gets past the first check, one that is not must be stopped there.
"""

from typing import Final

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness

KNOWN: Final = 0.8
"""How much of what is drawn exists."""


def some_topic(randomness: Randomness, topics: list[Topic]) -> Topic:
    """A topic that is known, or one that nobody has."""
    if topics and randomness.random() < KNOWN:
        return randomness.choice(topics)
    return f"junk-{randomness.randrange(1 << 30)}"


def some_peer(randomness: Randomness, peers: list[PeerId]) -> PeerId:
    """A peer that is known, or bytes that are no peer's id."""
    if peers and randomness.random() < KNOWN:
        return randomness.choice(peers)
    return randomness.randbytes(4)
