"""Why something that a peer sent was not acted upon, or a wish of our own came to nothing.

Each text is a label under which the trace counts; docs/pulsarcast.md explains them.
"""

from typing import Final

# What an event is refused for; each of these is its sender's fault, because every honest peer
# checks the same before it passes an event on. But clocks differ: what was not too early for one is
# for another, so a date is nobody's fault unless it is far off.
FUTURE_DATE: Final = "future-date"
NO_PUBLISHER: Final = "no-publisher"
NOT_ALLOWED: Final = "publisher-not-allowed"
AUTHOR_NOT_ALLOWED: Final = "author-not-allowed"
NOT_SIGNED: Final = "not-signed"
BAD_SIGNATURE: Final = "bad-signature"
OTHER_VERSION: Final = "other-version"
WRONG_CID: Final = "wrong-cid"
VALIDATION_FAILED: Final = "validation-failed"

# What an event is left out for although nobody did wrong.
VALIDATION_IGNORED: Final = "validation-ignored"
VALIDATION_THROTTLED: Final = "validation-throttled"
TOO_OLD: Final = "older-than-memory"
OVERTAKEN: Final = "overtaken"

# What other messages are refused for.
NOT_SERVED: Final = "topic-not-served"
NOT_READ: Final = "topic-being-read"
NOT_FARTHER: Final = "joiner-not-farther"
BAD_REDIRECT: Final = "redirect-not-closer"
NOT_ASKED_FOR: Final = "not-asked-for"
ASKED_TOO_OFTEN: Final = "asked-too-often"
NO_SUCH_TOPIC: Final = "no-such-topic"
BRANCHES_FULL: Final = "too-many-topics"
WAITING_FULL: Final = "too-many-waiting"
TOO_MANY_CHILDREN: Final = "too-many-children"
TOO_LARGE: Final = "too-large"
BANNED: Final = "banned"
UNEXPECTED: Final = "unexpected-operation"
MISPLACED: Final = "misplaced-payload"
NOT_ITS_AUTHOR: Final = "version-not-its-authors"

BLAMELESS: Final = frozenset(
    {FUTURE_DATE, VALIDATION_IGNORED, VALIDATION_THROTTLED, TOO_OLD, OVERTAKEN, NOT_READ}
)
"""What peers are refused that do as they should."""

# Why a subscription came to nothing.
UNSUBSCRIBED: Final = "unsubscribed"

# What becomes of a request to publish.
REQUESTS_OFF: Final = "requests-not-taken"
REQUESTER_NOT_LISTED: Final = "requester-not-listed"
NO_PUBLISHER_REACHED: Final = "no-publisher-reached"
TIMED_OUT: Final = "timed-out"
REQUESTS_FULL: Final = "too-many-requests"
REFUSED: Final = "refused"

# What the application is told of its own wishes.
CANNOT_PUBLISH: Final = "may-not-publish"
NO_SUCH_PARENT: Final = "no-such-parent"
NO_SUCH_EVENT: Final = "no-such-event"
NOBODY_TO_ASK: Final = "nobody-to-ask"
NOT_AN_EVENT: Final = "not-an-event"
LINKS_BY_ITSELF: Final = "topic-links-by-itself"
MUST_WAIT: Final = "must-wait"

_SENTENCES: Final = {
    CANNOT_PUBLISH: "this peer is not among the topic's allowed publishers, and the topic does not"
    " let it request to publish",
    NO_SUCH_PARENT: "the event that was named as parent is not to be found",
    NO_SUCH_EVENT: "the event is not at hand, and whoever could be asked has not got it",
    NOBODY_TO_ASK: "the event is not at hand, and no peer is known that could be asked for it",
    NOT_AN_EVENT: "the CID names a topic, not an event",
    NOT_ALLOWED: "the topic does not let the event's publisher publish",
    AUTHOR_NOT_ALLOWED: "the topic does not let the event's author have others publish for it",
    NO_PUBLISHER: "what was found is a request for an event, which nobody has published",
    BAD_SIGNATURE: "what was found is not signed by whom it names as its publisher",
    NOT_SIGNED: "what was found bears no signature, so nobody knows who published it",
    LINKS_BY_ITSELF: "events of this topic are linked to the last one seen; only a topic of custom"
    " linking lets the publisher name a parent",
    MUST_WAIT: "the event cannot be published at once: the topic has to be found and entered, or an"
    " allowed publisher to be asked, before that",
    WAITING_FULL: "too much waits for the same already (max_waiting)",
    NO_SUCH_TOPIC: "the topic is known neither here nor in the DHT",
    BRANCHES_FULL: "this peer stands in as many topics as it may (max_topics, max_branches)",
    NOT_SERVED: "this peer has left the topic meanwhile",
    UNSUBSCRIBED: "the topic was unsubscribed from meanwhile",
    REQUESTS_OFF: "the topic takes no requests to publish",
    REQUESTER_NOT_LISTED: "the topic does not let this peer request to publish",
    NO_PUBLISHER_REACHED: "none of the topic's allowed publishers can be reached, so nobody could"
    " publish the event",
    TIMED_OUT: "no allowed publisher has answered the request in time (request_timeout); the event"
    " may have been published or not",
    REFUSED: "a publisher has refused the request and gave no reason",
    REQUESTS_FULL: "too many requests to publish are under way (max_requests)",
}


def sentence(reason: str) -> str:
    """A reason, with what follows its colon, as people read it; the label stands at its end."""
    label, colon, rest = reason.partition(": ")
    text = _SENTENCES.get(label)
    return reason if text is None else f"{text}{colon}{rest} ({label})"
