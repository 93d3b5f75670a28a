"""What messages are called and who wrote them: every message that arrives gets its id here.

By default an id is the author and the sequence number, or a hash of the content where messages have
no author. The configuration may choose another preset (`message_ids`), for all topics or for one,
and an application may name messages by a function of its own. All peers of a topic should use the
same: peers that name a message differently take it for two, and cannot spare each other copies.

The sign policy decides which fields a message must and must not carry (libp2p pubsub README,
"Message Signing"). The signature covers the message without its signature and key fields, behind
the prefix `libp2p-pubsub:`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.history import STEP
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, Topic
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.pubsub.codec import (
    decode_rpc,
    from_event,
    sign_message,
    signing_payload,
)
from rumormill.protocols.pubsub.config import PubSubConfig, PubsubLimits, SignPolicy
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.message_ids import NAMINGS, MessageNaming, author_and_seqno
from rumormill.protocols.pubsub.messages import Message, Rpc
from rumormill.protocols.registry import Hooks, MessageIdFunction


def message_namer(
    config: PubSubConfig, chosen: MessageIdFunction | None
) -> Callable[[Message], MessageId]:
    """The function that names messages; what `chosen` gives no proper id has its default one."""
    general = NAMINGS[config.message_id]
    if config.message_id is MessageNaming.LIBP2P and config.sign_policy is SignPolicy.STRICT_SIGN:
        general = author_and_seqno  # the same, without a question: this is the way of each message
    special = {topic: NAMINGS[naming] for topic, naming in config.message_ids.items()}

    def by_topic(message: Message) -> MessageId:
        return special.get(message.topic, general)(message)

    default = by_topic if special else general
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
    name = message_namer(config, hooks.message_id)
    return partial(decode_rpc, limits=limits, name=name)


SEQNO_MAX: Final = 8
"""Bytes of a sequence number at most. The pubsub README: a 64-bit number. It is half of the id that
we remember for minutes, so an author must not be free to make it a megabyte. go passes on messages
with a longer one, and with none."""


_LATEST: Final = 1 << 63
"""The last date that a sequence number follows, in the year 2262: numbers have 64 bits."""
_LAST_START: Final = 3 << 62
"""Where a life begins that comes after others which had numbers beyond that."""


class Authorship:
    """Signs what we publish and checks what others claim."""

    __slots__ = ("_identity", "_next_seqno", "_signs")

    def __init__(self, identity: Identity, policy: SignPolicy) -> None:
        self._identity = identity
        self._signs = policy is SignPolicy.STRICT_SIGN
        self._next_seqno = 1

    def start(self, now: float) -> None:
        """Begin sequence numbers at the time, so that a restart does not repeat them."""
        self._next_seqno = max(self._next_seqno, min(int(now * 1e9), _LAST_START) + STEP)

    def compose(self, topic: Topic, data: bytes, now: float = 0.0) -> Message:
        """Make a message of ours, signed where the policy says so.

        Its sequence number is a date in nanoseconds, later than that of any before: numbers must
        grow, and by dates peers can tell what they missed, and what they have deleted.
        """
        if not self._signs:
            return Message(topic, data)
        identity = self._identity
        number = max(self._next_seqno, min(int(now * 1e9), _LATEST))
        self._next_seqno = number + STEP
        seqno = number.to_bytes(8, "big")
        message = Message(topic, data, identity.peer, seqno)
        sign_message(message, identity.sign, identity.public_key)
        return message

    def check(self, message: Message) -> str | None:
        """Return why the policy rejects a message, or None when it is acceptable.

        This includes the signature, which is the expensive part: call it once per message.
        """
        if not self._signs:
            if message.signature:
                return reasons.UNEXPECTED_SIGNATURE
            if message.author or message.seqno or message.key:
                return reasons.UNEXPECTED_AUTH_INFO
            return None
        if not message.signature:
            return reasons.MISSING_SIGNATURE
        if not message.author:
            return reasons.INVALID_SIGNATURE
        try:
            payload = signing_payload(message)
        except DecodeError:
            return reasons.INVALID_SIGNATURE
        signed = (message.author, message.key, payload, message.signature)
        if self._identity.verify(*signed):
            usual = 0 < len(message.seqno) <= SEQNO_MAX
            return None if usual else reasons.UNUSUAL_SEQNO
        if self._identity.passes_elsewhere(*signed):
            return reasons.UNUSUAL_SIGNATURE
        return reasons.INVALID_SIGNATURE

    def check_kept(self, event: Event) -> Message | str:
        """The message of an event that somebody has kept, or why the policy does not accept it.

        Any thread may ask.
        """
        try:
            message = from_event(event)
        except DecodeError as error:
            return error.reason
        return self.check(message) or message
