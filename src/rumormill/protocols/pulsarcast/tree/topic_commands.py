"""Creating topics, and looking around among them.

A new topic begins with its meta topic, `meta-<name>`, which is linked under `#`.meta; then comes
the topic itself. Both go into the DHT, both are subscribed to, and the descriptor is published in
the meta topic. A new version of a topic links the old one as its parent and keeps the meta topic,
so whoever subscribes to that learns of every version.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from rumormill.core.effects import Effects, Notes, Outcome
from rumormill.core.errors import DecodeError, LimitError, LocalError
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import (
    BrowseTopic,
    CreateTopic,
    DescribeTopic,
    ListVersions,
    Question,
    ShowTopic,
    TopicView,
    cid_of,
)
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.descriptors import (
    MAX_TOPIC_BYTES,
    META,
    TopicDescriptor,
    meta_topic,
)
from rumormill.protocols.pulsarcast.operations import TopicFound
from rumormill.protocols.pulsarcast.tree.known_topics import NOTES, KnownTopics, age, versions_in
from rumormill.protocols.pulsarcast.tree.publishing import Publication, Publishing
from rumormill.protocols.pulsarcast.tree.subscriptions import Subscriptions

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
        patiently = isinstance(body, ShowTopic | DescribeTopic) and not found
        for cid in _wanted(body, found):
            if cid not in found:
                known = self._topics.get(cid)
                waits = replace(survey, found=dict(found))
                if known is None and self._topics.look_for(
                    cid, waits, effects, patiently=patiently
                ):
                    return
                found[cid] = known
        topic = found[cid_of(body.topic)]
        survey = replace(survey, found=found)
        scans = isinstance(body, ListVersions | DescribeTopic) and topic is not None
        if not scans or not self._scan(survey, "", effects):
            self._finish(survey, effects)

    def _scan(self, survey: Survey, after: str, effects: Effects) -> bool:
        """Read the notes about topics behind a key."""
        return self._context.load(survey, survey.body.topic, Notes(NOTES, after), effects)

    def _on_notes(self, survey: Survey, loaded: Loaded, now: float, effects: Effects) -> None:
        topic = survey.found[cid_of(survey.body.topic)]
        if topic is not None and topic.meta is not None:
            noted = (*survey.noted, *versions_in(loaded.notes, topic.meta))
            survey = replace(survey, noted=noted[:MOST_VERSIONS])
        if not loaded.more or not self._scan(survey, loaded.notes[-1].key, effects):
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
