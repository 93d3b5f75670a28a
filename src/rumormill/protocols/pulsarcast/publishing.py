"""Publishing: from what the application says to a signed, linked event in the tree.

Who may publish does so himself; who may not, asks (`requests`). An event is linked before it is
signed: to the event that this peer saw last (LAST_SEEN), or to the one that the application names
(CUSTOM), as long as that one exists. No two events of ours have the same date, so the same text
said twice is two events. After an event has gone into the tree, and never before, a copy goes into
the DHT; whether that works changes nothing for the subscribers.

A plain `Publish` is answered at once. Where the event cannot exist yet, because its topic must be
found or somebody asked, nothing is begun: the answer is the command that begins it, and waits.
"""

from collections.abc import Callable
from typing import TypeAlias

from rumormill.core import trace
from rumormill.core.effects import Effects, Published
from rumormill.core.errors import LimitError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates, reasons
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.descriptors import (
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.dissemination import Dissemination
from rumormill.protocols.pulsarcast.feed import Feed
from rumormill.protocols.pulsarcast.hunting import Found, Hunting
from rumormill.protocols.pulsarcast.library import Library
from rumormill.protocols.pulsarcast.membership import Membership, cid_of
from rumormill.protocols.pulsarcast.requests import Requests
from rumormill.protocols.pulsarcast.rpc import RequestReply, RequestStatus, encode_signatures
from rumormill.protocols.pulsarcast.signing import (
    SignedEvent,
    publish_request,
    sign_event,
    sign_request,
)
from rumormill.protocols.pulsarcast.timeline import milliseconds

Finished: TypeAlias = Callable[[bytes | None, str, float, Effects], None]
"""Hears the CID of the event that was published, or why there is none."""

NOBODY: str = "nobody stands in the topic's tree with us"
MUST_WAIT: str = "an allowed publisher has to be asked, or the topic to be found, before that"
ON_REQUEST: str = "published by an allowed publisher at our request"


class Publishing:
    """Makes events and puts them into trees."""

    def __init__(
        self,
        context: Context,
        library: Library,
        membership: Membership,
        events: Dissemination,
        hunting: Hunting,
    ) -> None:
        self._context = context
        self._library = library
        self._membership = membership
        self._events = events
        self._hunting = hunting
        self._last_date = 0
        self._waiting = 0
        self._reached = 0
        self.requests: Requests

    def publish(
        self,
        topic: Topic,
        data: bytes,
        now: float,
        effects: Effects,
        *,
        parent: bytes | None = None,
        finished: Finished | None = None,
        number: int = 0,
    ) -> None:
        """Publish, or ask somebody to; `finished` hears how it ended."""
        cid = cid_of(topic)
        config = self._context.config
        if len(data) > config.limits.payload_bytes:
            raise LimitError(
                f"{len(data)} bytes do not fit an event of at most {config.limits.payload_bytes}"
                " (limits.payload_bytes)"
            )
        if self._waiting >= config.max_requests:
            raise LimitError("too many publications wait for their topic (max_requests)")
        patient = finished is None and self._must_wait(cid)
        if finished is None:
            finished = self._answer(number, topic, data)
        self._waiting += 1

        def with_topic(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
            self._waiting -= 1
            if found is None:
                self._fail(topic, data, reasons.NO_SUCH_TOPIC, finished, now, effects)
            else:
                self._link(found, data, parent, finished, now, effects)

        if patient:
            self._library.find_patiently(cid, with_topic, now, effects)
        else:
            self._library.find(cid, (), with_topic, now, effects)

    def _answer(self, number: int, topic: Topic, data: bytes) -> Finished:
        def answer(cid: bytes | None, error: str, _: float, effects: Effects) -> None:
            if cid is None:
                effects.append(Published(number, None, error=reasons.sentence(error)))
                return
            event = Event(topic, data, self._context.id, cid)
            reached, self._reached = self._reached, 1
            note = ON_REQUEST if reached < 0 else "" if reached else NOBODY
            effects.append(Published(number, event, max(reached, 0), note))

        return answer

    def _must_wait(self, cid: bytes) -> bool:
        """Whether an event cannot be made at once: for want of the topic, or of the right to."""
        topic, own = self._library.get(cid), self._context.id
        return topic is None or (not topic.may_publish(own) and topic.may_request(own))

    def _fail(
        self,
        topic: Topic,
        data: bytes,
        reason: str,
        finished: Finished,
        now: float,
        effects: Effects,
    ) -> None:
        effects.append(trace.SkipPublish(topic, reason))
        finished(None, reason, now, effects)

    def _link(
        self,
        topic: TopicDescriptor,
        data: bytes,
        parent: bytes | None,
        finished: Finished,
        now: float,
        effects: Effects,
    ) -> None:
        """Make sure that the parent which the application names exists."""
        text = cids.text(topic.cid)
        own = self._context.id
        if parent is not None and topic.event_linking is not EventLinking.CUSTOM:
            self._fail(text, data, reasons.LINKS_BY_ITSELF, finished, now, effects)
            return
        if not topic.may_publish(own) and not topic.may_request(own):
            self._fail(text, data, reasons.CANNOT_PUBLISH, finished, now, effects)
            return
        feed = self._membership.publish_for_a_while(topic, now, effects)
        if feed is None:
            self._fail(text, data, reasons.BRANCHES_FULL, finished, now, effects)
            return
        if parent is None or parent in feed.timeline:
            self._compose(feed, data, parent, finished, now, effects)
            return

        def with_parent(found: Found, source: PeerId, now: float, effects: Effects) -> None:
            current = self._events.feeds.get(topic.cid)
            if current is None or not isinstance(found, SignedEvent):
                self._fail(text, data, reasons.NO_SUCH_PARENT, finished, now, effects)
                return
            self._events.backfill(current, source, found, now, effects)
            self._compose(current, data, parent, finished, now, effects)

        sources = self._membership.neighbours(topic.cid)
        if not self._hunting.seek(parent, topic.cid, sources, with_parent, now, effects):
            self._fail(text, data, reasons.NO_SUCH_PARENT, finished, now, effects)

    def _compose(
        self,
        feed: Feed,
        data: bytes,
        parent: bytes | None,
        finished: Finished,
        now: float,
        effects: Effects,
    ) -> None:
        own = self._context.id
        created = dates.iso(self._next_date(now))
        if not feed.descriptor.may_publish(own):
            draft = EventDescriptor(feed.topic, own, data, created, None, parent)
            self._request(feed, draft, finished, now, effects)
            return
        if feed.descriptor.event_linking is EventLinking.LAST_SEEN:
            parent = feed.last
        event = EventDescriptor(feed.topic, own, data, created, own, parent)
        signed = sign_event(event, self._context.identity)
        reached = self._put_out(feed, signed, now, effects)
        self._reached = reached
        finished(signed.cid, "", now, effects)

    def _next_date(self, now: float) -> int:
        """A date of its own for every event."""
        self._last_date = max(milliseconds(now), self._last_date + 1)
        return self._last_date

    def _put_out(self, feed: Feed, signed: SignedEvent, now: float, effects: Effects) -> int:
        reached = self._events.publish(feed, signed, now, effects)
        if self._context.config.store_events:
            dag = signed.event.dag()
            if len(dag) <= self._context.config.kademlia.limits.value_bytes:
                proof = encode_signatures(signed)
                self._hunting.offer(signed.cid, dag, now, effects, proof=proof)
            else:
                effects.append(trace.Refuse(self._context.id, reasons.TOO_LARGE, feed.text))
        return reached

    # Requests.

    def _request(
        self,
        feed: Feed,
        draft: EventDescriptor,
        finished: Finished,
        now: float,
        effects: Effects,
    ) -> None:
        signed = sign_request(draft, self._context.identity)
        text = feed.text

        def answered(reply: RequestReply, now: float, effects: Effects) -> None:
            if reply.status is not RequestStatus.ACCEPTED or reply.event is None:
                reason = reply.reason or reasons.REFUSED
                self._fail(text, draft.payload, reason, finished, now, effects)
            else:
                self._reached = -1
                finished(reply.event, "", now, effects)

        self.requests.ask(signed, answered, now, effects)

    def grant(self, feed: Feed, request: SignedEvent, now: float, effects: Effects) -> bytes:
        """Publish another's request; return the event's CID."""
        parent = request.event.parent
        if feed.descriptor.event_linking is EventLinking.LAST_SEEN:
            parent = feed.last
        signed = publish_request(request, self._context.identity, parent)
        self._put_out(feed, signed, now, effects)
        return signed.cid
