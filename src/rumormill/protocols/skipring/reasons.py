"""Why the skip ring refused something: the reasons under which refusals are counted."""

from typing import Final

NOT_SUPERVISOR: Final = "not-supervisor"
"""A configuration from a peer that does not supervise the topic."""
NOT_RESPONSIBLE: Final = "not-responsible"
"""A request about a topic that is not ours to supervise."""
NOT_NEIGHBOUR: Final = "not-a-neighbour"
"""A token from a peer that is neither the supervisor nor a ring neighbour."""
STALE_TOKEN: Final = "stale-token"
"""A token of another round than the one that the supervisor waits for."""
FOREIGN_SENDER: Final = "foreign-sender"
"""A peer introduced itself under another peer's id."""
NOT_SUBSCRIBED: Final = "not-subscribed"
"""A message of a ring that we are not part of."""
TOO_MANY_REQUESTS: Final = "too-many-requests"
"""More requests to the supervisor in one interval than a peer may make."""
TOO_MANY_SUBSCRIBERS: Final = "too-many-subscribers"
"""The topic's database is full."""
NOT_OFFERED: Final = "topic-not-offered"
"""The supervisor serves topics that were given beforehand, and this is none of them."""
TOO_MANY_TOPICS: Final = "too-many-topics"
"""The supervisor has as many topics as it may have."""
TOO_MANY_PEERS: Final = "too-many-peers"
"""More peers spoke of publications in one interval than are remembered."""
TOO_MANY_CHECKS: Final = "too-many-checks"
"""More nodes to compare in one interval than a peer may name."""
TOO_MANY_BYTES: Final = "too-many-bytes-asked-for"
"""More publications in one interval than a peer may have sent to it."""
TOO_MANY_READS: Final = "too-many-reads"
"""More answers that wait for the log than a peer may have, or than all together."""
HISTORY_UNREAD: Final = "history-unread"
"""A check while our own history is still being read from the log."""
TOO_MANY_FORGERIES: Final = "too-many-forgeries"
"""A publication of a peer that has brought too many false ones."""
WRONG_TOPIC: Final = "wrong-topic"
"""A publication of another topic than the message's."""
NO_LONGER_KEPT: Final = "no-longer-kept"
"""A publication that a peer asks for and that the log does not have any more."""
REFUSED_BEFORE: Final = "refused-before"
"""A publication that the application has refused already."""

# As for the other protocols.
INVALID_SIGNATURE: Final = "invalid signature"
VALIDATION_FAILED: Final = "validation failed"
VALIDATION_IGNORED: Final = "validation ignored"
VALIDATION_THROTTLED: Final = "validation throttled"

CONGESTION: Final = ("queue full", "too many messages wait for peers out of reach")
"""Why a runtime drops a message that says nothing of its receiver's life."""

BLAMELESS: Final = frozenset(
    {HISTORY_UNREAD, NO_LONGER_KEPT, REFUSED_BEFORE, VALIDATION_IGNORED, VALIDATION_THROTTLED}
)
"""What neighbours are refused that do as they should: they cannot know what our log and our
application have made of a publication, and offer it, or ask for it, again and again."""
