"""A bare peer of the hash table as a runtime builds it, and the format of its questions.

Questions and answers are libp2p's. Bare peers of ours recognise each other by a protocol on which
nothing is ever sent; a peer that speaks the questions alone is met by `Meet`, or by its asking.
"""

from collections.abc import Callable

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.messages import (
    KAD_PROTOCOL,
    KadMessage,
    KadPeer,
    KadType,
    Record,
    decode_kad,
    encode_kad,
)
from rumormill.overlay.kademlia.peer import KademliaPeer
from rumormill.protocols.registry import Hooks, ProtocolSpec, QuerySpec

BARE_PROTOCOL = "/rumormill/kademlia/1.0.0"


def kad_decoder(config: KademliaConfig) -> Callable[[bytes], WireMessage]:
    """Make the function that reads messages within the limits of a configuration."""
    limits = config.limits
    return lambda data: decode_kad(data, limits)


def max_kad_message(config: KademliaConfig) -> int:
    """How long a message can be."""
    return config.limits.message_bytes


def junk_question(randomness: Randomness, peers: list[bytes], _: list[str]) -> WireMessage:
    """Make an arbitrary question as an attacker would."""
    key = randomness.randbytes(36)
    named = tuple(KadPeer(randomness.choice(peers)) for _ in range(3)) if peers else ()
    record = Record(key, randomness.randbytes(20))
    return KadMessage(randomness.choice(tuple(KadType)), key, record, named, named)


KAD_QUERIES = QuerySpec((KAD_PROTOCOL,), encode_kad, kad_decoder, max_kad_message)
"""For protocols whose configuration is a `KademliaConfig`; others name its decoder themselves."""


def _build(
    identity: Identity, randomness: Randomness, config: KademliaConfig, hooks: Hooks
) -> Machine:
    return KademliaPeer(identity.peer, randomness, config, addresses=hooks.addresses)


SPEC = ProtocolSpec(
    name="kademlia",
    protocol_ids=(BARE_PROTOCOL,),
    presets={"default": KademliaConfig()},
    build=_build,
    encode=encode_kad,
    decoder=lambda config, _hooks: kad_decoder(config),
    max_message=max_kad_message,
    junk=junk_question,
    queries=KAD_QUERIES,
    finds_peers=True,
)
