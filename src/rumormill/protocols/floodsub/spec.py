"""FloodSub, as the registry lists it."""

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.junk import junk_rpc
from rumormill.protocols.registry import ProtocolSpec
from rumormill.wire.pubsub_codec import decode_rpc, encode_rpc


def _build(identity: Identity, randomness: Randomness, config: PubSubConfig) -> Machine:
    return FloodSub(identity, randomness, config)


SPEC = ProtocolSpec(
    name="floodsub",
    protocol_ids=(FLOODSUB,),
    presets={"default": PubSubConfig()},
    build=_build,
    encode=encode_rpc,
    decode=decode_rpc,
    junk=junk_rpc,
)
