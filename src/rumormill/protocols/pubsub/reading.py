"""How a pub/sub peer reads RPCs: with the limits and the message ids of its configuration."""

from collections.abc import Callable

from rumormill.protocols.pubsub.authorship import default_message_id
from rumormill.protocols.pubsub.codec import decode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.limits import PubsubLimits
from rumormill.protocols.pubsub.messages import Rpc


def rpc_decoder(config: PubSubConfig) -> Callable[[bytes], Rpc]:
    """Make the function that turns the bytes of one RPC into a value."""
    limits = PubsubLimits(
        rpc_bytes=config.max_rpc_size,
        control_bytes=min(config.max_rpc_size, PubsubLimits().control_bytes),
        topic_bytes=config.max_topic_length,
    )
    message_id = default_message_id(config.sign_policy)

    def decode(data: bytes) -> Rpc:
        return decode_rpc(data, limits, message_id)

    return decode


def max_rpc(config: PubSubConfig) -> int:
    """How long an RPC can be."""
    return config.max_rpc_size
