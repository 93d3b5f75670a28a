"""What a rejection means to those who keep account of peers: score, promises, gater.

The labels themselves are `protocols.pubsub.reasons`, in go-libp2p-pubsub's words.
"""

from typing import Final

from rumormill.protocols.pubsub.reasons import (
    INVALID_SIGNATURE,
    MISSING_SIGNATURE,
    SELF_ORIGIN,
    UNEXPECTED_AUTH_INFO,
    UNEXPECTED_SIGNATURE,
    VALIDATION_QUEUE_FULL,
    VALIDATION_THROTTLED,
)

BLACKLISTED_PEER: Final = "blacklisted peer"
BLACKLISTED_SOURCE: Final = "blacklisted source"

OBVIOUSLY_INVALID: Final = frozenset(
    {
        MISSING_SIGNATURE,
        INVALID_SIGNATURE,
        UNEXPECTED_SIGNATURE,
        UNEXPECTED_AUTH_INFO,
        SELF_ORIGIN,
    }
)
"""Refused on sight: the sender is charged, and the id proves nothing, so it is not recorded."""

NOT_JUDGED: Final = frozenset({BLACKLISTED_PEER, BLACKLISTED_SOURCE, VALIDATION_QUEUE_FULL})
"""Dropped before anything was known of the message: nobody is charged, nothing is recorded."""

OVERLOADED: Final = frozenset({VALIDATION_QUEUE_FULL, VALIDATION_THROTTLED})
"""Dropped because this peer is too busy."""

UNSIGNED: Final = frozenset({MISSING_SIGNATURE, INVALID_SIGNATURE})
"""Anybody can make such a message up: it fulfils no promise."""
