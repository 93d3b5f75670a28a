"""What messages are called, and how RPCs are read: every message that arrives gets its id here.

By default an id is the author and the sequence number, or a hash of the content where messages have
no author. An application may name messages by a function of its own. All peers of a topic must use
the same one: peers that name a message differently take it for two, ask each other in vain for what
they have already, and cannot spare each other copies.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.pubsub.codec import decode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig, PubsubLimits, SignPolicy
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.messages import Message, Rpc
from rumormill.protocols.registry import Hooks, MessageIdFunction

Namer: TypeAlias = Callable[[Message], MessageId]


def author_and_seqno(message: Message) -> MessageId:
    """Name a message by its author and sequence number, raw bytes, as go does by default."""
    return message.author + message.seqno


def content_hash(topic: Topic, data: bytes, _by: PeerId = b"", _seqno: bytes = b"") -> MessageId:
    """Name a message by what it says, whoever says it: a `MessageIdFunction`."""
    named = topic.encode()
    framed = b"".join((len(named).to_bytes(4, "big"), named, data))
    return hashlib.sha256(framed).digest()[:20]


def _by_content(message: Message) -> MessageId:
    return content_hash(message.topic, message.data)


def message_namer(policy: SignPolicy, chosen: MessageIdFunction | None) -> Namer:
    """The function that names messages; what `chosen` gives no proper id has its default one."""
    default = author_and_seqno if policy is SignPolicy.STRICT_SIGN else _by_content
    if chosen is None:
        return default

    def name(message: Message) -> MessageId:
        named = chosen(message.topic, message.data, message.author, message.seqno)
        return named if 0 < len(named) <= MAX_ID_BYTES else default(message)

    return name


def rpc_decoder(config: PubSubConfig, hooks: Hooks) -> Callable[[bytes], Rpc]:
    """Make the function that turns the bytes of one RPC into a value."""
    limits = PubsubLimits(
        rpc_bytes=config.max_rpc_size,
        control_bytes=min(config.max_rpc_size, PubsubLimits().control_bytes),
        topic_bytes=config.max_topic_length,
    )
    name = message_namer(config.sign_policy, hooks.message_id)
    return partial(decode_rpc, limits=limits, name=name)
