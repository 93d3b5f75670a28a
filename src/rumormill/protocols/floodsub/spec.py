"""FloodSub, as the registry lists it."""

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.junk import junk_rpc
from rumormill.protocols.pubsub.naming import max_rpc, rpc_decoder
from rumormill.protocols.pubsub.router import FUNCTIONS
from rumormill.protocols.registry import Hooks, ProtocolSpec


def _build(
    identity: Identity, randomness: Randomness, config: PubSubConfig, hooks: Hooks
) -> Machine:
    return FloodSub(identity, randomness, config, hooks)


SPEC = ProtocolSpec(
    name="floodsub",
    protocol_ids=(FLOODSUB,),
    presets={"default": PubSubConfig()},
    build=_build,
    encode=encode_rpc,
    decoder=rpc_decoder,
    max_message=max_rpc,
    junk=junk_rpc,
    takes=FUNCTIONS,
    max_topic=lambda config: config.max_topic_length,
)
