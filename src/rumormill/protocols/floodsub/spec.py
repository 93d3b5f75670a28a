"""FloodSub, as the registry lists it."""

from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig, SignPolicy
from rumormill.protocols.pubsub.junk import junk_rpc
from rumormill.protocols.pubsub.naming import rpc_decoder
from rumormill.protocols.pubsub.reasons import BLAMELESS
from rumormill.protocols.pubsub.router import FUNCTIONS
from rumormill.protocols.pubsub.split import parts_of
from rumormill.protocols.registry import ProtocolSpec

SPEC = ProtocolSpec(
    name="floodsub",
    protocol_ids=(FLOODSUB,),
    presets={"default": PubSubConfig()},
    build=FloodSub,
    encode=encode_rpc,
    decoder=rpc_decoder,
    max_message=lambda config: config.max_rpc_size,
    junk=junk_rpc,
    parts=parts_of,
    takes=FUNCTIONS,
    max_topic=lambda config: config.max_topic_length,
    proves_authors=lambda config: config.sign_policy is SignPolicy.STRICT_SIGN,
    recovers=True,
    tolerated=BLAMELESS,
)
