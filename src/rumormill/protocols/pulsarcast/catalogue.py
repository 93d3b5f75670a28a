"""Creating topics, and looking around among them.

A new topic begins with its meta topic, `meta-<name>`, which is linked under `#`.meta; then comes
the topic itself. Both go into the DHT, both are subscribed to, and the descriptor is published in
the meta topic. A new version of a topic links the old one as its parent and keeps the meta topic,
so whoever subscribes to that learns of every version.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from rumormill.core.effects import Effects
from rumormill.core.errors import DecodeError, LimitError, LocalError
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates, reasons
from rumormill.protocols.pulsarcast.commands import CreateTopic, TopicView
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.descriptors import (
    MAX_TOPIC_BYTES,
    META,
    TopicDescriptor,
    meta_topic,
    read_topic,
)
from rumormill.protocols.pulsarcast.feed import Feed
from rumormill.protocols.pulsarcast.library import Library, age, shelf_versions
from rumormill.protocols.pulsarcast.membership import Membership, cid_of, is_cid
from rumormill.protocols.pulsarcast.publishing import Publishing
from rumormill.protocols.pulsarcast.signing import SignedEvent

Finished: TypeAlias = Callable[[object, str, float, Effects], None]
"""Takes a result, or the reason why there is none."""

MOST_VERSIONS = 4096
"""Versions that are walked through; our choice."""


class Catalogue:
    """Makes topics, and finds what hangs together with them."""

    def __init__(
        self,
        context: Context,
        library: Library,
        membership: Membership,
        publishing: Publishing,
    ) -> None:
        self._context = context
        self._library = library
        self._membership = membership
        self._publishing = publishing

    # Creating.

    def create(self, wish: CreateTopic, finished: Finished, now: float, effects: Effects) -> None:
        """Create a topic or a version."""
        limits = self._context.config.limits
        if not wish.name or len(wish.name.encode()) > limits.name_bytes:
            raise LocalError(f"a topic's name has 1 to {limits.name_bytes} bytes")
        if is_cid(wish.name):
            raise LocalError(f"{wish.name} is a topic already: subscribe to it, or make a version")
        if META in wish.sub_topics:
            raise LocalError("the sub-topic called meta is made, not chosen")
        links = {name: cid_of(topic) for name, topic in wish.sub_topics.items()}
        needed = list(links.values())
        if wish.parent is not None:
            needed.append(cid_of(wish.parent))

        def with_links(missing: bytes | None, now: float, effects: Effects) -> None:
            if missing is not None:
                finished(None, f"{reasons.NO_SUCH_TOPIC}: {cids.text(missing)}", now, effects)
            else:
                self._create(wish, links, finished, now, effects)

        self._find_all(needed, with_links, now, effects)

    def _find_all(
        self,
        wanted: list[bytes],
        then: Callable[[bytes | None, float, Effects], None],
        now: float,
        effects: Effects,
    ) -> None:
        """Find topics one after another; call back with the first that cannot be found."""
        unknown = [cid for cid in wanted if self._library.get(cid) is None]
        if not unknown:
            then(None, now, effects)
            return

        def found(descriptor: TopicDescriptor | None, now: float, effects: Effects) -> None:
            if descriptor is None:
                then(unknown[0], now, effects)
            else:
                self._find_all(unknown[1:], then, now, effects)

        self._library.find(unknown[0], (), found, now, effects)

    def _create(
        self,
        wish: CreateTopic,
        links: dict[str, bytes],
        finished: Finished,
        now: float,
        effects: Effects,
    ) -> None:
        own = self._context.id
        created = dates.iso_at(now)
        meta: bytes | None = None
        parent: bytes | None = None
        if wish.parent is not None:
            parent = cid_of(wish.parent)
            old = self._library.get(parent)
            meta = None if old is None else old.meta
        if meta is None:
            made = meta_topic(wish.name, own, created)
            self._register(made, now, effects)
            meta = made.cid
        allowed = wish.allowed_publishers
        if isinstance(allowed, msgspec.UnsetType):
            anyone = self._context.config.default_publishers == "anyone"
            allowed = None if anyone else (own,)
        topic = TopicDescriptor(
            wish.name,
            own,
            created,
            parent,
            {**links, META: meta},
            allowed,
            wish.request_to_publish,
            wish.event_linking,
        )
        if len(topic.dag()) > MAX_TOPIC_BYTES:
            raise LimitError(f"a topic's descriptor has at most {MAX_TOPIC_BYTES} bytes")
        self._register(topic, now, effects)
        self._membership.subscribe(meta, now, effects, meta=False)
        self._membership.subscribe(topic.cid, now, effects, meta=False)

        def announced(_: bytes | None, __: str, now: float, effects: Effects) -> None:
            finished(topic, "", now, effects)

        self._publishing.publish(cids.text(meta), topic.dag(), now, effects, finished=announced)

    def _register(self, topic: TopicDescriptor, now: float, effects: Effects) -> None:
        self._library.keep(topic, now, effects)
        self._library.offer(topic, now, effects)

    def on_delivered(self, feed: Feed, signed: SignedEvent, effects: Effects) -> None:
        """An event was delivered; in a meta topic it may be a new version of the topic."""
        if not feed.descriptor.name.startswith("meta-"):
            return
        try:
            version = read_topic(signed.event.payload)
        except DecodeError:
            return
        if version.meta == feed.topic:
            self._library.keep(version, dates.seconds(version.created), effects)

    # Looking around.

    def show(self, cid: bytes, finished: Finished, now: float, effects: Effects) -> None:
        """Find a descriptor."""

        def found(topic: TopicDescriptor | None, now: float, effects: Effects) -> None:
            error = reasons.NO_SUCH_TOPIC if topic is None else ""
            finished(topic, error, now, effects)

        self._library.find_patiently(cid, found, now, effects)

    def describe(self, cid: bytes, finished: Finished, now: float, effects: Effects) -> None:
        """Find a descriptor, the sub-topics and all versions."""

        def shown(topic: object, error: str, now: float, effects: Effects) -> None:
            if not isinstance(topic, TopicDescriptor):
                finished(None, error, now, effects)
                return

            def browsed(found: Any, _: str, now: float, effects: Effects) -> None:
                def listed(versions: Any, _: str, now: float, effects: Effects) -> None:
                    view = TopicView(topic, found or {}, tuple(versions or (topic,)))
                    finished(view, "", now, effects)

                self.list_versions(cid, listed, now, effects)

            self.browse(cid, browsed, now, effects)

        self.show(cid, shown, now, effects)

    def browse(self, cid: bytes, finished: Finished, now: float, effects: Effects) -> None:
        """Find the descriptors of a topic's sub-topics."""

        def found(topic: TopicDescriptor | None, now: float, effects: Effects) -> None:
            if topic is None:
                finished(None, reasons.NO_SUCH_TOPIC, now, effects)
            else:
                self._browse(topic, {}, finished, now, effects)

        self._library.find(cid, (), found, now, effects)

    def _browse(
        self,
        topic: TopicDescriptor,
        lost: dict[bytes, None],
        finished: Finished,
        now: float,
        effects: Effects,
    ) -> None:
        """Look for the first sub-topic that is not at hand; when none is left, finish."""
        seen = {name: self._library.get(link) for name, link in topic.sub_topics.items()}
        links = topic.sub_topics.items()
        unknown = [link for name, link in links if seen[name] is None and link not in lost]
        if not unknown:
            finished(seen, "", now, effects)
            return

        def one(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
            if found is None:
                lost[unknown[0]] = None
            self._browse(topic, lost, finished, now, effects)

        self._library.find(unknown[0], (), one, now, effects)

    def list_versions(self, cid: bytes, finished: Finished, now: float, effects: Effects) -> None:
        """Walk from a version to the first one, and add those known from the meta topic."""
        chain: dict[bytes, TopicDescriptor] = {}

        def found(topic: TopicDescriptor | None, now: float, effects: Effects) -> None:
            while topic is not None:
                chain[topic.cid] = topic
                parent = topic.parent
                if parent is None or len(chain) >= MOST_VERSIONS:
                    break
                topic = self._library.get(parent)
                if topic is None:
                    self._library.find(parent, (), found, now, effects)
                    return
            if not chain:
                finished(None, reasons.NO_SUCH_TOPIC, now, effects)
                return
            newest = next(iter(chain.values()))
            known = self._library.versions(newest)
            if newest.meta is not None:
                known += shelf_versions(self._context.archive, newest.meta)
            chain.update((each.cid, each) for each in known)
            ordered = sorted(chain.values(), key=age)
            finished(ordered, "", now, effects)

        self._library.find(cid, (), found, now, effects)
