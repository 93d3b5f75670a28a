"""What the application wants of topics: subscribing, getting ready to publish, creating topics, and
looking around among them.

Subscribing needs the topic's descriptor, because it names the author towards whom the tree grows;
then we enter the tree (`membership`). The meta topic, in which new versions of a topic are
announced, is subscribed to and left along with it unless told otherwise.

A new topic begins with its meta topic, `meta-<name>`, which is linked under `#`.meta; then comes
the topic itself. Both go into the DHT, both are subscribed to, and the descriptor is published in
the meta topic. A new version of a topic links the old one as its parent and keeps the meta topic,
so whoever subscribes to that learns of every version.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from rumormill.core import trace
from rumormill.core.effects import Effects, Notes, Outcome, SetTimer
from rumormill.core.errors import DecodeError, LimitError, LocalError
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import (
    BrowseTopic,
    BrowseTree,
    CreateTopic,
    DescribeTopic,
    ListVersions,
    Question,
    ShowTopic,
    TopicView,
    cid_of,
)
from rumormill.protocols.pulsarcast.context import (
    Context,
    SubscribeTimer,
    TopicFound,
    TreeEntered,
    WayFound,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.descriptors import (
    MAX_TOPIC_BYTES,
    META,
    TopicDescriptor,
    meta_topic,
)
from rumormill.protocols.pulsarcast.history.feed import Feeds
from rumormill.protocols.pulsarcast.tree.known_topics import (
    EVER,
    NOTES,
    KnownTopics,
    PatientLook,
    age,
    versions_in,
)
from rumormill.protocols.pulsarcast.tree.membership import TreeMembership
from rumormill.protocols.pulsarcast.tree.publishing import Publication, Publishing
from rumormill.protocols.pulsarcast.tree.sub_topics import tree_of, wanted
from rumormill.protocols.pulsarcast.tree.trees import Trees


class Subscription(msgspec.Struct, frozen=True):
    """The application subscribed, and we are not in the tree yet."""

    topic: bytes
    since: float
    """When it did: an earlier wish that was taken back is another one."""
    attempts: int = 0


class Arrival(msgspec.Struct, frozen=True):
    """A command waits until there is a way to the root."""

    command: int


class StandBy(msgspec.Struct, frozen=True):
    """The application wants to publish in a topic soon."""


@dataclass(eq=False)
class Subscriptions:
    """The application's wishes."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _topics: KnownTopics
    _membership: TreeMembership
    _alone: dict[bytes, None] = field(default_factory=dict)
    """Topics that are wanted without their meta topics."""

    def __post_init__(self) -> None:
        self._operations = self._context.operations
        self._since = self._membership.subscriptions
        self._publish_only = self._membership.publish_only
        self._context.operations.steps |= {
            (Subscription, TopicFound): self._on_topic,
            (Subscription, SubscribeTimer): self._on_subscribe_timer,
            (Subscription, TreeEntered): self._on_subscribed,
            (Arrival, WayFound): self._on_arrival,
            (StandBy, TopicFound): self._on_wanted_topic,
            (StandBy, TreeEntered): self._on_standing_by,
        }

    def subscribe(
        self,
        cid: bytes,
        now: float,
        effects: Effects,
        *,
        meta: bool | None = None,
        whole: bool = False,
    ) -> None:
        """Subscribe to a topic; once it is wanted `whole`, it stays so until it is left. `meta`
        says whether its meta topic comes along, if that is not as configured."""
        if whole:
            self._membership.whole[cid] = None
        if meta is True:
            self._alone.pop(cid, None)
        if cid in self._since:
            feed, branch = self._feeds.open.get(cid), self._trees.branches.get(cid)
            if whole and feed is not None and branch is not None:
                self._topics.keep(feed.descriptor, EVER, effects)
                self._membership.want(branch, feed)
                self._membership.on_wish(branch, now, effects)
            if meta is True and feed is not None:
                self._subscribe_to_meta(feed.descriptor, now, effects)
            return
        if len(self._since) >= self._context.config.max_topics:
            raise LimitError("no further subscription fits (max_topics)")
        self._publish_only.pop(cid, None)
        self._since[cid] = now
        if not (self._context.config.subscribe_to_meta if meta is None else meta):
            self._alone[cid] = None
        effects.append(trace.Join(cids.text(cid)))
        self._topics.find(cid, Subscription(cid, now), now, effects, wished=now)

    def _on_topic(self, wish: Subscription, news: TopicFound, now: float, effects: Effects) -> None:
        if self._since.get(wish.topic) != wish.since:
            return
        if news.topic is None:
            self._look_again(wish, now, effects)
        else:
            self._membership.enter(news.topic, wish, now, effects)

    def _look_again(self, wish: Subscription, now: float, effects: Effects) -> None:
        """A topic could not be found: it may be so new that the DHT does not have it yet."""
        cid, attempts = wish.topic, wish.attempts
        again = Subscription(cid, wish.since, attempts + 1)
        if attempts < self._context.config.subscribe_retries and self._operations.wait(
            SubscribeTimer, cid, again
        ):
            wait = self._context.config.subscribe_retry_delay * 2**attempts
            effects.append(SetTimer(SubscribeTimer(cid), now + wait))
        else:
            self._roll_back(cid, reasons.NO_SUCH_TOPIC, now, effects)

    def _on_subscribe_timer(
        self, wish: Subscription, _: SubscribeTimer, now: float, effects: Effects
    ) -> None:
        if self._since.get(wish.topic) == wish.since:
            self._topics.find(wish.topic, wish, now, effects)

    def _roll_back(self, cid: bytes, reason: str, now: float, effects: Effects) -> None:
        """A subscription cannot be: forget it, so that a later attempt is a new one."""
        del self._since[cid]
        self._alone.pop(cid, None)
        self._membership.whole.pop(cid, None)
        effects.append(trace.Leave(cids.text(cid)))
        self._operations.tell(WayFound(cid, reason), now, effects)

    def _on_subscribed(
        self, wish: Subscription, news: TreeEntered, now: float, effects: Effects
    ) -> None:
        cid = wish.topic
        if self._since.get(cid) != wish.since:
            return
        if news.error:
            self._roll_back(cid, news.error, now, effects)
            return
        feed, branch = self._feeds.open[cid], self._trees.branches[cid]
        since = EVER if cid in self._membership.whole else wish.since
        self._topics.keep(feed.descriptor, since, effects)
        self._membership.want(branch, feed)
        self._membership.on_wish(branch, now, effects)
        if cid not in self._alone:
            self._subscribe_to_meta(feed.descriptor, now, effects)

    def _subscribe_to_meta(self, descriptor: TopicDescriptor, now: float, effects: Effects) -> None:
        meta = descriptor.meta
        if meta is None:
            return
        try:
            self.subscribe(meta, now, effects, meta=False)
        except LimitError:
            effects.append(trace.Refuse(self._context.id, reasons.BRANCHES_FULL, cids.text(meta)))

    def _on_arrival(self, arrival: Arrival, news: WayFound, now: float, effects: Effects) -> None:
        result = None if news.error else self._topics.get(news.about)
        effects.append(Outcome(arrival.command, result, reasons.sentence(news.error)))

    def unsubscribe(
        self, cid: bytes, now: float, effects: Effects, *, meta: bool | None = None
    ) -> None:
        """End a subscription, and that of its meta topic unless that is wanted otherwise."""
        if meta is None:
            meta = self._context.config.unsubscribe_from_meta
        self._alone.pop(cid, None)
        self._publish_only.pop(cid, None)
        self._membership.whole.pop(cid, None)
        if self._since.pop(cid, None) is None:
            return
        effects.append(trace.Leave(cids.text(cid)))
        self._operations.tell(WayFound(cid, reasons.UNSUBSCRIBED), now, effects)
        feed, branch = self._feeds.open.get(cid), self._trees.branches.get(cid)
        if feed is not None and branch is not None:
            feed.subscribed = False
            branch.wanted = False
            self._membership.step_out(branch, now, effects)
        descriptor = self._topics.get(cid)
        if descriptor is None or descriptor.meta is None or not meta:
            return
        # Another version of the same topic needs its meta topic.
        if not any(version.cid in self._since for version in self._topics.versions(descriptor)):
            self.unsubscribe(descriptor.meta, now, effects, meta=False)

    def stand_by(self, cid: bytes, now: float, effects: Effects) -> None:
        """Be ready to publish in a topic, if there is such a one and it fits."""
        self._publish_only[cid] = None
        self._topics.find(cid, PatientLook(StandBy()), now, effects)

    def _on_wanted_topic(
        self, wish: StandBy, news: TopicFound, now: float, effects: Effects
    ) -> None:
        if news.topic is not None and news.about in self._publish_only:
            self._membership.enter(news.topic, wish, now, effects)

    def _on_standing_by(self, _: StandBy, news: TreeEntered, now: float, effects: Effects) -> None:
        if not news.error and news.about in self._publish_only:
            self._membership.stay_to_publish(news.about, now, effects)

    def resume(self, now: float, effects: Effects) -> None:
        """We come back with our state: everything but the application's wishes is gone."""
        for cid, since in list(self._since.items()):
            self._topics.find(cid, Subscription(cid, since), now, effects)
        for cid in list(self._publish_only):
            self.stand_by(cid, now, effects)


MOST_VERSIONS: Final = 4096
"""Versions that are walked through; our choice."""


class Creation(msgspec.Struct, frozen=True):
    """A topic is to be created, once what it links is known to exist."""

    command: int
    wish: CreateTopic
    links: dict[str, bytes]
    parent: bytes | None
    needed: tuple[bytes, ...]
    """What has not been found yet."""
    earlier: TopicDescriptor | None = None
    """The parent, once it was found."""


class Survey(msgspec.Struct, frozen=True):
    """Somebody wants to know of a topic: itself, its sub-topics, its versions, or all of it."""

    command: int
    body: Question
    found: dict[bytes, TopicDescriptor | None] = {}
    """What was looked for so far; None stands for what is lost."""
    noted: tuple[TopicDescriptor, ...] = ()
    """The versions that the log has, as far as it was read."""


@dataclass(eq=False)
class TopicCommands:
    """Makes topics, and finds what hangs together with them."""

    _context: Context
    _topics: KnownTopics
    _subscriptions: Subscriptions
    _publishing: Publishing

    def __post_init__(self) -> None:
        self._context.operations.steps |= {
            (Creation, TopicFound): self._on_link,
            (Survey, TopicFound): self._on_found,
            (Survey, Loaded): self._on_notes,
        }

    # Creating.

    def create(self, command: int, wish: CreateTopic, now: float, effects: Effects) -> None:
        """Create a topic or a version."""
        limits = self._context.config.limits
        if not wish.name or len(wish.name.encode()) > limits.name_bytes:
            raise LocalError(f"a topic's name has 1 to {limits.name_bytes} bytes")
        with suppress(DecodeError):
            cids.parse(wish.name)
            raise LocalError(f"{wish.name} is a topic already: subscribe to it, or make a version")
        if META in wish.sub_topics:
            raise LocalError("the sub-topic called meta is made, not chosen")
        links = {name: cid_of(topic) for name, topic in wish.sub_topics.items()}
        parent = None if wish.parent is None else cid_of(wish.parent)
        needed = tuple(links.values()) if parent is None else (*links.values(), parent)
        self._go_on(Creation(command, wish, links, parent, needed), now, effects)

    def _on_link(self, creation: Creation, news: TopicFound, now: float, effects: Effects) -> None:
        if news.topic is None:
            self._lacks(creation, news.about, effects)
            return
        try:
            self._go_on(_without(creation, news.topic), now, effects)
        except LocalError as error:
            effects.append(Outcome(creation.command, None, str(error)))

    def _go_on(self, creation: Creation, now: float, effects: Effects) -> None:
        """Find what is linked, one after another; then create."""
        while creation.needed:
            cid = creation.needed[0]
            known = self._topics.get(cid)
            if known is None:
                if not self._topics.look_for(cid, creation, effects):
                    self._lacks(creation, cid, effects)
                return
            creation = _without(creation, known)
        self._create(creation, now, effects)

    def _lacks(self, creation: Creation, cid: bytes, effects: Effects) -> None:
        error = reasons.sentence(f"{reasons.NO_SUCH_TOPIC}: {cids.text(cid)}")
        effects.append(Outcome(creation.command, None, error))

    def _create(self, creation: Creation, now: float, effects: Effects) -> None:
        own, wish, created = self._context.id, creation.wish, dates.iso_at(now)
        allowed = wish.allowed_publishers
        if isinstance(allowed, msgspec.UnsetType):
            anyone = self._context.config.default_publishers == "anyone"
            allowed = None if anyone else (own,)
        meta = None if creation.earlier is None else creation.earlier.meta
        made: list[TopicDescriptor] = []
        if meta is None:
            made.append(meta_topic(wish.name, own, created))
            meta = made[0].cid
        topic = TopicDescriptor(
            wish.name,
            own,
            created,
            creation.parent,
            {**creation.links, META: meta},
            allowed,
            wish.request_to_publish,
            wish.event_linking,
        )
        if len(topic.dag()) > MAX_TOPIC_BYTES:
            raise LimitError(f"a topic's descriptor has at most {MAX_TOPIC_BYTES} bytes")
        for each in (*made, topic):
            self._topics.keep(each, now, effects)
            self._topics.offer(each, now, effects)
        self._subscriptions.subscribe(meta, now, effects, meta=False)
        self._subscriptions.subscribe(topic.cid, now, effects, meta=False)
        announcement = Publication(meta, topic.dag(), command=creation.command, announces=topic)
        self._publishing.begin(announcement, now, effects)

    # Looking around.

    def ask(self, command: int, body: Question, effects: Effects) -> None:
        """Find out what a command asks about a topic."""
        cid_of(body.topic)
        self._survey(Survey(command, body), effects)

    def _on_found(self, survey: Survey, news: TopicFound, now: float, effects: Effects) -> None:
        found = {**survey.found, news.about: news.topic}
        self._survey(replace(survey, found=found), effects)

    def _survey(self, survey: Survey, effects: Effects) -> None:
        """Look for the first topic that is not at hand; when none is left, see what is noted."""
        found, body = dict(survey.found), survey.body
        patient = isinstance(body, ShowTopic | DescribeTopic) and not found
        for cid in _wanted(body, found):
            if cid not in found:
                known = self._topics.get(cid)
                waits = replace(survey, found=dict(found))
                look = PatientLook(waits) if patient else waits
                if known is None and self._topics.look_for(cid, look, effects):
                    return
                found[cid] = known
        topic = found[cid_of(body.topic)]
        survey = replace(survey, found=found)
        scans = isinstance(body, ListVersions | DescribeTopic) and topic is not None
        if not scans or not self._context.load(survey, body.topic, Notes(NOTES), effects):
            self._finish(survey, effects)

    def _on_notes(self, survey: Survey, loaded: Loaded, now: float, effects: Effects) -> None:
        topic = survey.found[cid_of(survey.body.topic)]
        if topic is not None and topic.meta is not None:
            noted = (*survey.noted, *versions_in(loaded.notes, topic.meta))
            survey = replace(survey, noted=noted[:MOST_VERSIONS])
        following = Notes(NOTES, loaded.notes[-1].key) if loaded.more else None
        body = survey.body
        if not following or not self._context.load(survey, body.topic, following, effects):
            self._finish(survey, effects)

    def _finish(self, survey: Survey, effects: Effects) -> None:
        body, found = survey.body, survey.found
        topic = found[cid_of(body.topic)]
        if topic is None:
            error = reasons.sentence(reasons.NO_SUCH_TOPIC)
            effects.append(Outcome(survey.command, None, error))
            return
        sub_topics = {name: found.get(link) for name, link in topic.sub_topics.items()}
        versions = [*_line(topic, found), *self._topics.versions(topic), *survey.noted]
        ordered = sorted({each.cid: each for each in versions}.values(), key=age)
        if isinstance(body, BrowseTree):
            effects.append(Outcome(survey.command, tree_of(topic, found.get)))
            return
        results: dict[type[Question], object] = {
            ShowTopic: topic,
            BrowseTopic: sub_topics,
            ListVersions: ordered,
            DescribeTopic: TopicView(topic, sub_topics, tuple(ordered)),
        }
        effects.append(Outcome(survey.command, results[type(body)]))


def _without(creation: Creation, found: TopicDescriptor) -> Creation:
    """A creation that has found what it needed first."""
    earlier = found if found.cid == creation.parent else creation.earlier
    return replace(creation, needed=creation.needed[1:], earlier=earlier)


def _wanted(body: Question, found: dict[bytes, TopicDescriptor | None]) -> Iterator[bytes]:
    """The topics that an answer needs, in order; each is in `found` before the next is named."""
    cid = cid_of(body.topic)
    yield cid
    topic = found[cid]
    if topic is not None and isinstance(body, BrowseTopic | DescribeTopic):
        yield from topic.sub_topics.values()
    if topic is not None and isinstance(body, BrowseTree):
        yield from wanted(topic, found.get)
    if topic is not None and isinstance(body, ListVersions | DescribeTopic):
        for version in _line(topic, found):
            if version.parent is not None:
                yield version.parent


def _line(
    topic: TopicDescriptor, found: dict[bytes, TopicDescriptor | None]
) -> Iterator[TopicDescriptor]:
    """A topic and the versions before it, back to the first or to one that is not found."""
    version: TopicDescriptor | None = topic
    for _ in range(MOST_VERSIONS):
        if version is None:
            return
        yield version
        version = None if version.parent is None else found.get(version.parent)
