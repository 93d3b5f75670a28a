"""Arbitrary pub/sub RPCs, as an attacker would send them: well-formed, and everything else wrong.

Topics that exist and that do not, forged authors, false signatures, promises of messages that
nobody has, links asked for and refused at random, back-offs of centuries.
"""

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.pubsub.messages import (
    Control,
    IHave,
    Message,
    PeerInfo,
    Prune,
    Rpc,
    SubOpts,
)
from rumormill.protocols.scraps import some_peer, some_topic

_BACKOFFS = (0, 1, 60, 3600, 2**63 - 1, 2**64 - 1)


def junk_rpc(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> Rpc:
    """Make an arbitrary RPC out of what the attacker knows."""
    some = randomness.randrange

    def topic() -> Topic:
        return some_topic(randomness, topics)

    def peer() -> PeerId:
        return some_peer(randomness, peers)

    def ids() -> tuple[bytes, ...]:
        return tuple(randomness.randbytes(12) for _ in range(1 + some(20)))

    def message() -> Message:
        seqno, signature = randomness.randbytes(8), randomness.randbytes(64)
        return Message(topic(), randomness.randbytes(some(200)), peer(), seqno, signature)

    control = Control(
        ihave=tuple(IHave(topic(), ids()) for _ in range(some(3))),
        iwant=ids() if some(2) else (),
        graft=tuple(topic() for _ in range(some(3))),
        prune=tuple(
            Prune(topic(), (PeerInfo(peer()),) if some(2) else (), randomness.choice(_BACKOFFS))
            for _ in range(some(3))
        ),
        idontwant=ids() if some(2) else (),
    )
    return Rpc(
        subscriptions=tuple(SubOpts(bool(some(2)), topic()) for _ in range(some(3))),
        publish=tuple(message() for _ in range(some(3))),
        control=control,
    )
