"""GossipSub, as the registry lists it."""

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.membership import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.junk import junk_rpc
from rumormill.protocols.registry import ProtocolSpec
from rumormill.wire.pubsub_codec import decode_rpc, encode_rpc


def _build(identity: Identity, randomness: Randomness, config: GossipSubConfig) -> Machine:
    return GossipSub(identity, randomness, config)


SPEC = ProtocolSpec(
    name="gossipsub",
    protocol_ids=PROTOCOLS,
    presets=PRESETS,
    build=_build,
    encode=encode_rpc,
    decode=decode_rpc,
    junk=junk_rpc,
)
