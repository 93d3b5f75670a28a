"""Publishing: from what the application says to a signed, linked event in the tree.

Who may publish does so himself (`dissemination`); who may not, asks (`requests`). An event is
linked before it is signed: to the event that this peer saw last (LAST_SEEN), or to the one that the
application names (CUSTOM), as long as that one exists. No two events of ours have the same date, so
the same text said twice is two events. Whatever must come first (the topic found, its tree entered,
a parent fetched, somebody asked) is waited for, unless the application wants the event at once or
not at all. A request that was under way when its asker was killed is asked again in its next life
(`kept_requests`).
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Effects, Outcome, Published
from rumormill.core.errors import LimitError
from rumormill.core.event import Event
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    BlockFound,
    Context,
    EventStored,
    FeedRenewed,
    ParentSettled,
    RequestAnswered,
    TopicFound,
    TreeEntered,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import RequestStatus
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, sign_event, sign_request
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, core_event
from rumormill.protocols.pulsarcast.history.timeline import milliseconds
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination, OwnEvent
from rumormill.protocols.pulsarcast.tree.kept_requests import KeptRequests
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics, PatientLook
from rumormill.protocols.pulsarcast.tree.membership import TreeMembership
from rumormill.protocols.pulsarcast.tree.requests import Requests
from rumormill.protocols.pulsarcast.tree.trees import Trees

NOBODY: Final = "nobody stands in the topic's tree with us"
ON_REQUEST: Final = "published by an allowed publisher at our request"


class Publication(msgspec.Struct, frozen=True):
    """What the application wants to publish, and who is told how it ended.

    That is a `Publish` with its number, which is 0 for one of an earlier life, or the command that
    created the topic which this announces.
    """

    topic: bytes
    data: bytes
    number: int | None = None
    command: int | None = None
    announces: TopicDescriptor | None = None
    parent: bytes | None = None
    at_once: bool = False
    request: SignedEvent | None = None
    """What an earlier life asked for, and has no answer to."""


class Unspoken(msgspec.Struct, frozen=True):
    """A publication whose event is on its way to the disk."""

    publication: Publication
    own: OwnEvent


@dataclass(eq=False)
class Publishing:
    """Makes events of what the application says."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _topics: KnownTopics
    _membership: TreeMembership
    _events: Dissemination
    _fetcher: BlockFetcher
    _requests: Requests
    _kept: KeptRequests
    _last_date: int = 0

    def __post_init__(self) -> None:
        self._kept.ask_again = self._ask_again
        self._context.operations.steps |= {
            (Publication, TopicFound): self._on_topic,
            (Publication, TreeEntered): self._on_tree,
            (Publication, BlockFound): self._on_parent,
            (Publication, ParentSettled): self._on_settled,
            (Publication, FeedRenewed): self._on_renewed,
            (Publication, RequestAnswered): self._on_answer,
            (Unspoken, EventStored): self._on_stored,
        }

    def start(self, now: float, latest: float) -> None:
        """Dates go on behind those of earlier lives, unless nobody would hear what is so far ahead:
        peers may differ from us by as much again."""
        if latest < now + self._context.config.max_clock_skew / 2:
            self._last_date = max(self._last_date, milliseconds(latest))

    def begin(self, publication: Publication, now: float, effects: Effects) -> None:
        """Publish, or ask somebody to."""
        config = self._context.config
        size = len(publication.data)
        if size > config.limits.payload_bytes:
            raise LimitError(
                f"{size} bytes do not fit an event of at most {config.limits.payload_bytes}"
                " (limits.payload_bytes)"
            )
        if self._context.operations.count(Publication) >= config.max_requests:
            raise LimitError("too many publications are under way (max_requests)")
        if publication.at_once and not self._can_at_once(publication.topic):
            self._fail(publication, reasons.MUST_WAIT, effects)
        else:
            wish = publication if publication.number is None else PatientLook(publication)
            self._topics.find(publication.topic, wish, now, effects)

    def _ask_again(self, signed: SignedEvent, now: float, effects: Effects) -> None:
        """An earlier life of ours waited for an answer to this request when it ended."""
        topic, operations = signed.event.topic, self._context.operations
        if operations.count(Publication) < self._context.config.max_requests:
            publication = Publication(topic, signed.event.payload, 0, request=signed)
            self._topics.find(topic, PatientLook(publication), now, effects)

    def _can_at_once(self, cid: bytes) -> bool:
        """Whether an event can be made and appended without anything coming first."""
        feed, own = self._feeds.open.get(cid), self._context.id
        if feed is None or feed.next is not None:
            return False
        return feed.descriptor.may_publish(own) or not feed.descriptor.may_request(own)

    def _fail(
        self, publication: Publication, reason: str, effects: Effects, *, lost: bool = False
    ) -> None:
        """There is no event. A topic exists without its announcement, unless our disk `lost` it.

        A request of an earlier life whose topic is not to be found waits for the next one.
        """
        if publication.request is not None:
            if reason == reasons.NO_SUCH_TOPIC:
                return
            self._kept.drop(publication.request.cid, effects)
        effects.append(trace.FailPublish(cids.text(publication.topic), reason))
        error = reasons.sentence(reason)
        if publication.number is not None:
            effects.append(Published(publication.number, None, error=error))
        elif publication.command is not None:
            made = None if lost else publication.announces
            effects.append(Outcome(publication.command, made, error if made is None else ""))

    def _on_topic(
        self, publication: Publication, news: TopicFound, now: float, effects: Effects
    ) -> None:
        topic, own = news.topic, self._context.id
        if topic is None:
            self._fail(publication, reasons.NO_SUCH_TOPIC, effects)
        elif publication.parent is not None and topic.event_linking is not EventLinking.CUSTOM:
            self._fail(publication, reasons.LINKS_BY_ITSELF, effects)
        elif not topic.may_publish(own) and not topic.may_request(own):
            self._fail(publication, reasons.CANNOT_PUBLISH, effects)
        else:
            self._membership.enter(topic, publication, now, effects)

    def _on_tree(
        self, publication: Publication, news: TreeEntered, now: float, effects: Effects
    ) -> None:
        cid = publication.topic
        feed = None if news.error else self._membership.stay_to_publish(cid, now, effects)
        if feed is None:
            self._fail(publication, news.error or reasons.NOT_SERVED, effects)
        else:
            self._link(feed, publication, now, effects)

    def _link(self, feed: Feed, publication: Publication, now: float, effects: Effects) -> None:
        """Have what it is to follow, when it is known what the log has."""
        cid, parent = publication.topic, publication.parent
        if feed.next is not None:
            if not self._context.operations.wait(FeedRenewed, cid, publication):
                self._fail(publication, reasons.WAITING_FULL, effects)
        elif parent is None or parent in feed.timeline:
            self._follow(feed, publication, now, effects)
        else:
            sources = self._trees.neighbours(cid)
            if not self._fetcher.seek(parent, cid, sources, publication, now, effects):
                self._fail(publication, reasons.NO_SUCH_PARENT, effects)

    def _on_renewed(
        self, publication: Publication, _: FeedRenewed, now: float, effects: Effects
    ) -> None:
        feed = self._feeds.open.get(publication.topic)
        if feed is None:
            self._fail(publication, reasons.NOT_SERVED, effects)
        else:
            self._link(feed, publication, now, effects)

    def _on_parent(
        self, publication: Publication, news: BlockFound, now: float, effects: Effects
    ) -> None:
        """The parent that the application names has been found, or has not."""
        feed = self._events.on_found(news, now, effects)
        if feed is None or news.about not in feed.timeline:
            self._fail(publication, reasons.NO_SUCH_PARENT, effects)
        elif feed.next is not None:
            self._link(feed, publication, now, effects)
        else:
            self._follow(feed, publication, now, effects)

    def _follow(self, feed: Feed, publication: Publication, now: float, effects: Effects) -> None:
        """Compose the event, behind its parent where that waits for its own."""
        parent, operations = publication.parent, self._context.operations
        if parent is None or feed.is_settled(parent):
            self._compose(feed, publication, now, effects)
        elif not operations.wait(ParentSettled, parent, publication):
            self._fail(publication, reasons.WAITING_FULL, effects)

    def _on_settled(
        self, publication: Publication, news: ParentSettled, now: float, effects: Effects
    ) -> None:
        feed = self._feeds.open.get(publication.topic)
        if feed is None:
            self._fail(publication, reasons.NOT_SERVED, effects)
        elif feed.next is not None:
            self._link(feed, publication, now, effects)
        else:
            self._compose(feed, publication, now, effects)

    def _compose(self, feed: Feed, publication: Publication, now: float, effects: Effects) -> None:
        """Make the event, and have it stored; or the request for it, and send that."""
        own, identity = self._context.id, self._context.identity
        if publication.request is not None:
            self._requests.ask(publication.request, publication, now, effects)
            return
        self._last_date = max(milliseconds(now), self._last_date + 1)
        created = dates.iso(self._last_date)
        data, parent = publication.data, publication.parent
        if not feed.descriptor.may_publish(own):
            draft = EventDescriptor(feed.topic, own, data, created, None, parent)
            request = sign_request(draft, identity)
            self._kept.keep(request, effects)
            self._requests.ask(request, publication, now, effects)
            return
        parent = self._events.parent_of_next(feed, parent)
        event = EventDescriptor(feed.topic, own, data, created, own, parent)
        waiting = self._events.append(feed, sign_event(event, identity), effects)
        self._context.operations.hold(EventStored, event.cid, Unspoken(publication, waiting))

    def _on_stored(
        self, unspoken: Unspoken, news: EventStored, now: float, effects: Effects
    ) -> None:
        publication, own = unspoken.publication, unspoken.own
        if news.error:
            self._events.forget(own)
            self._fail(publication, news.error, effects, lost=True)
            return
        reached = self._events.publish(own, now, effects)
        note = "" if reached else NOBODY
        self._succeed(publication, core_event(own.signed), reached, note, effects)

    def _on_answer(
        self, publication: Publication, news: RequestAnswered, now: float, effects: Effects
    ) -> None:
        reply = news.reply
        self._kept.drop(news.about, effects)
        if reply.status is not RequestStatus.ACCEPTED or reply.event is None:
            self._fail(publication, reply.reason or reasons.REFUSED, effects)
            return
        topic = cids.text(publication.topic)
        event = Event(topic, publication.data, self._context.id, reply.event)
        self._succeed(publication, event, 0, ON_REQUEST, effects)

    def _succeed(
        self, publication: Publication, event: Event, reached: int, note: str, effects: Effects
    ) -> None:
        if publication.number is not None:
            effects.append(Published(publication.number, event, reached, note))
        elif publication.command is not None:
            effects.append(Outcome(publication.command, publication.announces))
