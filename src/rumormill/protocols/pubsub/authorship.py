"""Authorship: composing our own messages and judging the claims of others'.

The sign policy decides which fields a message must and must not carry (libp2p pubsub README,
"Message Signing"). The signature covers the message without its signature and key fields, behind
the prefix `libp2p-pubsub:`.
"""

from typing import Final

from rumormill.core.errors import DecodeError
from rumormill.core.identity import Identity
from rumormill.core.ids import Topic
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.pubsub.codec import sign_message, signing_payload
from rumormill.protocols.pubsub.config import SignPolicy
from rumormill.protocols.pubsub.messages import Message

SEQNO_MAX: Final = 8
"""Bytes of a sequence number at most. The pubsub README: a 64-bit number. It is half of the id that
we remember for minutes, so an author must not be free to make it a megabyte."""


class Authorship:
    """Signs what we publish and checks what others claim."""

    def __init__(self, identity: Identity, policy: SignPolicy) -> None:
        self._identity = identity
        self._signs = policy is SignPolicy.STRICT_SIGN
        self._next_seqno = 1

    def start(self, now: float) -> None:
        """Begin sequence numbers at the time, so that a restart does not repeat them."""
        self._next_seqno = max(self._next_seqno, int(now * 1e9) + 1)

    def compose(self, topic: Topic, data: bytes) -> Message:
        """Make a message of ours, signed where the policy says so."""
        if not self._signs:
            return Message(topic, data)
        identity = self._identity
        seqno = self._next_seqno.to_bytes(8, "big")
        self._next_seqno += 1
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
        if not message.author or not 0 < len(message.seqno) <= SEQNO_MAX:
            return reasons.INVALID_SIGNATURE
        try:
            payload = signing_payload(message)
        except DecodeError:
            return reasons.INVALID_SIGNATURE
        if self._identity.verify(message.author, message.key, payload, message.signature):
            return None
        return reasons.INVALID_SIGNATURE
