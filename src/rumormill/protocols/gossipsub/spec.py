"""GossipSub, as the registry lists it."""

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.gated import GatedGossipSub
from rumormill.protocols.gossipsub.membership import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.junk import junk_rpc
from rumormill.protocols.pubsub.reading import max_rpc, rpc_decoder
from rumormill.protocols.registry import Hooks, ProtocolSpec


def _build(
    identity: Identity, randomness: Randomness, config: GossipSubConfig, hooks: Hooks
) -> Machine:
    router = GossipSub if config.gater is None else GatedGossipSub
    return router(
        identity,
        randomness,
        config,
        validator=hooks.validator,
        application_score=hooks.application_score,
        check_record=hooks.check_record,
        peer_records=hooks.peer_records,
    )


SPEC = ProtocolSpec(
    name="gossipsub",
    protocol_ids=PROTOCOLS,
    presets=PRESETS,
    build=_build,
    encode=encode_rpc,
    decoder=rpc_decoder,
    max_message=max_rpc,
    junk=junk_rpc,
    max_topic=lambda config: config.max_topic_length,
    takes_batches=True,
)
