"""What a receiver demands of a message: the rules of the JavaScript original, exactly.

The original decodes a message, checks its shape, and drops it in silence when that fails. A sender
that wants to be heard must know the rules, and a receiver that is stricter or laxer would see
another history. They are stated here once, as functions from what was found in the bytes (None for
an absent field) to the reason of a refusal:

- a message has metadata with a date and a version, and exactly one payload; an operation is one of
  the seven, and an absent one counts as the first;
- an event has an author, a topic link, a payload (which may be empty), a parent link (which may be
  empty) and metadata with a date and a version; its publisher may be absent;
- an UPDATE names its topic;
- a topic in protobuf is never accepted: its author cannot be read back.

A date is any that `dates.normal` accepts, and it is the rewritten date that is hashed. Whether the
payload suits the operation is not looked at there (one such message stops the original); here
`misplaced` says so, and whoever dispatches asks it first.
"""

from typing import Final

from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.descriptors import Metadata

NO_PAYLOAD: Final = "no-payload"
NO_METADATA: Final = "no-metadata"
BAD_DATE: Final = "bad-date"
NO_VERSION: Final = "no-version"
UNKNOWN_OPERATION: Final = "unknown-operation"
NO_AUTHOR: Final = "event-without-author"
NO_TOPIC: Final = "event-without-topic"
NO_EVENT_PAYLOAD: Final = "event-without-payload"
NO_PARENT: Final = "event-without-parent"
NO_EVENT_METADATA: Final = "event-without-metadata"
BAD_EVENT_DATE: Final = "event-bad-date"
NO_EVENT_VERSION: Final = "event-without-version"
BAD_CID: Final = "bad-cid"
TOPIC_IN_PROTOBUF: Final = "topic-in-protobuf"
NO_TREE_TOPIC: Final = "tree-without-topic"
MISPLACED: Final = "misplaced-payload"


def message_fault(metadata: Metadata | None) -> str | None:
    """Judge what every message has."""
    if metadata is None:
        return NO_METADATA
    if dates.normal(metadata.created) is None:
        return BAD_DATE
    return None if metadata.protocol_version else NO_VERSION


def event_fault(
    author: bytes | None,
    topic: bytes | None,
    payload: bytes | None,
    parent: bytes | None,
    created: str | None,
    version: str | None,
) -> str | None:
    """Judge an event's fields; a `parent` of no bytes is a link that is there and empty.

    `created` is the normal form of the date, "" where there is none, and None where the metadata
    are absent.
    """
    if author is None:
        return NO_AUTHOR
    if not topic:
        return NO_TOPIC
    if payload is None:
        return NO_EVENT_PAYLOAD
    if parent is None:
        return NO_PARENT
    if created is None:
        return NO_EVENT_METADATA
    if not created:
        return BAD_EVENT_DATE
    if not version:
        return NO_EVENT_VERSION
    if not cids.is_cid(topic) or (parent and not cids.is_cid(parent)):
        return BAD_CID
    return None
