"""The tree of a topic's sub-topics: found link by link, listed in the order in which it is drawn.

Links are hashes, so there is no way in a circle, but a topic may be linked from several places: it
is listed at each and gone into once. The meta topic, which every topic has, is left out. What is
listed is bounded, and says so.
"""

from collections.abc import Callable, Iterator
from typing import Final

from rumormill.core.api import TopicBranch, TopicTree, TopicVersion
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import META, TopicDescriptor, read_topic

MOST_BRANCHES: Final = 1024
"""Sub-topics that are listed; our choice: as many as a peer's own topics."""

_Get = Callable[[bytes], TopicDescriptor | None]


def walk(topic: TopicDescriptor, get: _Get) -> Iterator[tuple[int, str, bytes, bool]]:
    """Each sub-topic with its depth, the name of the link, and whether it was listed before.

    `get` is asked for a descriptor when the walk goes on behind it, and not before.
    """
    seen = {topic.cid: None}
    waiting = _links(topic, 1)
    while waiting:
        depth, label, cid = waiting.pop()
        again = cid in seen
        yield depth, label, cid, again
        found = None if again else get(cid)
        seen[cid] = None
        if found is not None:
            waiting += _links(found, depth + 1)


def _links(topic: TopicDescriptor, depth: int) -> list[tuple[int, str, bytes]]:
    names = sorted((name for name in topic.sub_topics if name != META), reverse=True)
    return [(depth, name, topic.sub_topics[name]) for name in names]


def wanted(topic: TopicDescriptor, get: _Get) -> Iterator[bytes]:
    """The descriptors that a tree needs, in order."""
    for number, (_, _, cid, again) in enumerate(walk(topic, get)):
        if number == MOST_BRANCHES:
            return
        if not again:
            yield cid


def tree_of(topic: TopicDescriptor, get: _Get) -> TopicTree:
    """The tree below a topic, with what is known of each sub-topic."""
    branches: list[TopicBranch] = []
    for depth, label, cid, again in walk(topic, get):
        if len(branches) == MOST_BRANCHES:
            return TopicTree(version_of(topic), tuple(branches), cut=True)
        found = get(cid)
        name, created = (None, None) if found is None else (found.name, found.created)
        branches.append(TopicBranch(depth, label, cids.text(cid), name, created, again))
    return TopicTree(version_of(topic), tuple(branches))


def version_of(topic: TopicDescriptor) -> TopicVersion:
    """A topic as one version among others."""
    parent, meta = topic.parent, topic.meta
    return TopicVersion(
        cids.text(topic.cid),
        topic.name,
        topic.author,
        topic.created,
        None if parent is None else cids.text(parent),
        None if meta is None else cids.text(meta),
    )


def announced(event: Event) -> TopicVersion | None:
    """The version of a topic that an event of its meta topic announces.

    Anybody may ask to publish there, and a descriptor is not signed: so it is its author who must
    have announced it.
    """
    try:
        version = read_topic(event.data)
    except DecodeError:
        return None
    found = version_of(version)
    return found if (found.meta, found.author) == (event.topic, event.author) else None
