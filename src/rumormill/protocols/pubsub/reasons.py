"""Why a message or a request was refused: the fixed labels under which refusals are counted.

The first group is go-libp2p-pubsub's reject reasons, word for word, so that traces compare.
"""

from typing import Final

MISSING_SIGNATURE = "missing signature"
INVALID_SIGNATURE = "invalid signature"
UNEXPECTED_SIGNATURE = "unexpected signature"
UNEXPECTED_AUTH_INFO = "unexpected auth info"
VALIDATION_THROTTLED = "validation throttled"
VALIDATION_FAILED = "validation failed"
VALIDATION_IGNORED = "validation ignored"

UNUSUAL_SEQNO = "unusual sequence number"
UNUSUAL_SIGNATURE = "unusual signature"

TOLERATED: Final = frozenset({UNUSUAL_SEQNO, UNUSUAL_SIGNATURE})
"""What we do not take and other implementations do: whoever passes it on is not to blame."""
BLAMELESS: Final = TOLERATED | {VALIDATION_IGNORED, VALIDATION_THROTTLED}
"""And what the application wants held against nobody, or we were too busy to look at."""

WRONG_ID = "wrong id"
EMPTY_RPC = "empty rpc"
NOT_SUBSCRIBED = "not subscribed"
SUBSCRIBED_TOO_OFTEN = "subscribed too often"
NOT_CONNECTED = "not connected"
TOO_MANY_SUBSCRIPTIONS = "too many subscriptions"
FILTERED_SUBSCRIPTION = "filtered subscription"
FILTERED_PEER = "filtered peer"
