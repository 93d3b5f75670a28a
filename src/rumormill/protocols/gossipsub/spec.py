"""GossipSub, as the registry lists it."""

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.gater import GatedGossipSub
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.reasons import BLAMELESS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.config import SignPolicy
from rumormill.protocols.pubsub.junk import junk_rpc
from rumormill.protocols.pubsub.naming import rpc_decoder
from rumormill.protocols.pubsub.router import FUNCTIONS
from rumormill.protocols.pubsub.split import parts_of
from rumormill.protocols.registry import Hooks, ProtocolSpec


def _build(
    identity: Identity, randomness: Randomness, config: GossipSubConfig, hooks: Hooks
) -> Machine:
    router = GossipSub if config.gater is None else GatedGossipSub
    return router(identity, randomness, config, hooks)


SPEC = ProtocolSpec(
    name="gossipsub",
    protocol_ids=PROTOCOLS,
    presets=PRESETS,
    build=_build,
    encode=encode_rpc,
    decoder=rpc_decoder,
    max_message=lambda config: config.max_rpc_size,
    junk=junk_rpc,
    parts=parts_of,
    takes=(*FUNCTIONS, "application_score"),
    max_topic=lambda config: config.max_topic_length,
    proves_authors=lambda config: config.sign_policy is SignPolicy.STRICT_SIGN,
    recovers=True,
    tolerated=BLAMELESS,
)
