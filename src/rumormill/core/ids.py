"""Names on the network: peers, topics, messages.

A peer id is opaque bytes everywhere: the libp2p peer id on a real network, four bytes in the
simulator. Protocols compare, store and send ids; what an id is made of is never their business.
"""

from collections.abc import Sequence
from typing import TypeAlias

from rumormill.core.errors import LimitError, LocalError

PeerId: TypeAlias = bytes
MessageId: TypeAlias = bytes
Parents: TypeAlias = tuple[MessageId, ...]
"""The events that an event follows."""
Topic: TypeAlias = str


def check_topic(topic: Topic, max_length: int) -> None:
    """Refuse a name from our own application that cannot be a topic's (`max_topic_length`)."""
    if not topic:
        raise LocalError("a topic needs a name")
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        raise LocalError(f"the topic {topic!r} is not text that UTF-8 can express") from None
    if length > max_length:
        raise LimitError(f"a topic name has at most {max_length} bytes (max_topic_length)")


def no_addresses(_: PeerId) -> Sequence[bytes]:
    """Nobody's whereabouts are known: what a machine is given that needs none."""
    return ()
