"""Why radius gossip refused something: the reasons under which refusals are counted."""

from typing import Final

INVALID_SIGNATURE: Final = "invalid signature"
EXPIRED: Final = "expired"
TOO_FAR_AHEAD: Final = "date too far ahead"
SUPERSEDED: Final = "superseded by a later word of its owner"
HOPS_CLAMPED: Final = "hops clamped"
NO_TOPIC: Final = "no topic"
SELF_ORIGIN: Final = "self originated message"
NOT_SUBSCRIBED: Final = "not subscribed"
TOO_MANY_NEW: Final = "too many new messages"
TOPIC_FULL: Final = "too many interests in the topic"
OWNER_FULL: Final = "too many interests of the owner"
TABLE_FULL: Final = "too many interests"
SENDER_FULL: Final = "too many interests by one neighbour"
TOO_MANY_OWNERS: Final = "too many new subscribers by one neighbour"
TOO_MANY_LETTERS: Final = "too many letters wait"
NOT_TRIED: Final = "too many subscribers to try"
SUBSCRIBER_LOST: Final = "subscriber out of reach"
VALIDATION_FAILED: Final = "validation failed"
VALIDATION_IGNORED: Final = "validation ignored"
VALIDATION_THROTTLED: Final = "validation throttled"

CONGESTION: Final = ("queue full", "too many messages wait for peers out of reach")
"""Why a runtime drops a message that says nothing of its receiver's life."""

BLAMELESS: Final = frozenset(
    {
        EXPIRED, TOO_FAR_AHEAD, SUPERSEDED, SELF_ORIGIN, TOO_MANY_NEW, TOO_MANY_OWNERS,
        TOPIC_FULL, OWNER_FULL, TABLE_FULL, SENDER_FULL, VALIDATION_IGNORED, VALIDATION_THROTTLED,
    }
)  # fmt: skip
"""What neighbours are refused that do as they should. They pass on what came to them in time, was
news to them and fitted their tables; whoever wrote it has chosen date and number so that it is too
late for us, or tells us something else."""
