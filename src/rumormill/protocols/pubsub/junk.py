"""Arbitrary pub/sub RPCs, as an attacker would send them: well-formed, and everything else wrong.

Topics that exist and that do not, forged authors, false signatures, promises of messages that
nobody has, links asked for and refused at random, back-offs of centuries, trees cut and grown.
"""

from functools import partial

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.pubsub import messages
from rumormill.protocols.pubsub.trunk_part import Past, Probe, TrunkPart, tag_of
from rumormill.protocols.scraps import some_peer, some_topic

_BACKOFFS = (0, 1, 60, 3600, 2**63 - 1, 2**64 - 1)


def junk_rpc(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> messages.Rpc:
    """Make an arbitrary RPC out of what the attacker knows."""
    some = randomness.randrange
    topic, peer = partial(some_topic, randomness, topics), partial(some_peer, randomness, peers)

    def ids() -> tuple[bytes, ...]:
        return tuple(randomness.randbytes(12) for _ in range(1 + some(20)))

    def message() -> messages.Message:
        seqno, signature = randomness.randbytes(8), randomness.randbytes(64)
        return messages.Message(topic(), randomness.randbytes(some(200)), peer(), seqno, signature)

    def prune() -> messages.Prune:
        name = topic()
        offered = (messages.PeerInfo(peer()),) if some(2) else ()
        return messages.Prune(name, offered, randomness.choice(_BACKOFFS))

    def tags() -> tuple[bytes, ...]:
        return tuple(tag_of(topic(), peer()) for _ in range(1 + some(4)))

    def names() -> tuple[bytes, ...]:
        return tuple(tag + randomness.randbytes(4) for tag in tags())

    def trunk() -> TrunkPart:
        probes = tuple(Probe(topic(), peer(), some(9)) for _ in range(some(3)))
        heard = names()
        past = Past(topic(), heard, tuple(float(some(900)) for _ in heard))
        return TrunkPart(names(), names(), tags(), tags(), probes, past=(past,))

    control = messages.Control(
        ihave=tuple(messages.IHave(topic(), ids()) for _ in range(some(3))),
        iwant=ids() if some(2) else (),
        graft=tuple(topic() for _ in range(some(3))),
        prune=tuple(prune() for _ in range(some(3))),
        idontwant=ids() if some(2) else (),
        offers_trunk=bool(some(2)),
        trunk=trunk() if some(2) else None,
    )
    return messages.Rpc(
        subscriptions=tuple(messages.SubOpts(bool(some(2)), topic()) for _ in range(some(3))),
        publish=tuple(message() for _ in range(some(3))),
        control=control,
    )
