"""Sources: who publishes in a topic, and by which of our mesh links its messages come and go.

The rule: a table of sources is bounded per topic, the longest silent goes first, and a source that
has none costs copies and nothing else: its messages go to the whole mesh. So does everything of a
source whose tag another source has already.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from itertools import chain, islice
from typing import Final

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pubsub.messages import Message
from rumormill.protocols.pubsub.trunk_part import TAG_BYTES, key_of, mark_of, tag_of

_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
"""How fast a smoothed time follows new ones: those of RFC 6298, which has the same problem."""
YOUNG: Final = 0.4
"""Seconds in which a source is young, and nobody can have heard who wants its messages: our choice,
a long round trip."""
FEW: Final = 2
"""To how many who have not choked it a source's messages go while it is young: our choice. Of a
burst that is as long as a round trip, no choke can have come yet."""
FEW_FIRST: Final = 2
"""To how many the first message of a source goes where other sources show to whom: our choice; with
one the slowest are much later, three bring little (docs/trunk.md)."""
_WITNESSES: Final = 32
"""Other sources of the topic that are heeded for that, the last heard: our choice."""
_KIN: Final = 16
"""How many of them a source of the same author in another topic is worth: our choice, half."""
BACKUPS: Final = 3
"""Neighbours that are remembered as the next best: our choice, one of them may leave too."""
_LIKELY: Final = 0.5
"""Who wants that part of it, or more, is likely to want what the author says here: our choice."""


class Source(msgspec.Struct, gc=False):
    """One author in one topic, as this peer sees it."""

    topic: Topic
    author: PeerId
    """Empty as long as neighbours have told of it, and nothing has come."""
    tag: bytes
    eager: dict[PeerId, None]
    """Whom we send its messages; all other peers that speak the extension are told of them."""
    born: float
    heard: float
    parent: PeerId = b""
    """Who sends us its messages; nobody yet, or nobody any more, if empty."""
    backups: tuple[PeerId, ...] = ()
    """Who had its last message next, in this order; no more than `BACKUPS`."""
    choked: dict[PeerId, float] = msgspec.field(default_factory=dict)
    """Whom we asked not to send, and when."""
    lag: float = 0.0
    deviation: float = 0.0
    """How long the parent's message comes behind the first announcement of it, or before."""
    missed: int = 0
    """How many messages were asked for since the parent was the first to bring one."""
    second: PeerId = b""
    doubled: int = 0
    """Who sends them too, up to which message."""
    elected: float = 0.0
    """When the parent was made one for its announcements."""
    rival: PeerId = b""
    wins: int = 0
    won: float = 0.0
    """Who announced messages well before the parent brought them, how many times in a row, and when
    last: what is announced together counts once."""
    shunned: dict[PeerId, float] | None = None
    """Who was a parent, and was too late; and until when it is none again. Nobody, for most."""
    messages: int = 0
    mark: bytes = b""
    at: float = 0.0
    """What was heard last, a message or a probe, and when: by us, or when whoever told us of it
    could have told us at the time."""

    def name_of(self, message: Message) -> bytes:
        """What one of its messages is called."""
        return self.tag + mark_of(message.seqno)

    def key_of(self, message: Message) -> bytes:
        """What one of its messages is called where its source does not matter."""
        key = message.cached_key
        if not key:
            key = message.cached_key = key_of(self.name_of(message))
        return key

    def shuns(self, peer: PeerId, now: float) -> bool:
        """Whether somebody may not be the parent."""
        return self.shunned is not None and self.shunned.get(peer, 0.0) > now

    def hear(self, mark: bytes, now: float) -> None:
        """Something of it is here."""
        self.mark, self.at = mark, now

    def measure(self, lag: float) -> None:
        """Take in how far the parent was behind."""
        error = lag - self.lag
        self.lag += _GAIN * error
        self.deviation += _DEVIATION_GAIN * (abs(error) - self.deviation)

    def some(self) -> Container[PeerId]:
        """A few of those who have not choked us, others for each message."""
        eager = list(self.eager)
        start = self.messages * FEW % max(1, len(eager))
        return (eager + eager)[start : start + FEW]


class Sources:
    """The sources of all topics, the longest silent first."""

    __slots__ = ("_most", "by_tag", "by_topic", "evicted", "foretold")

    def __init__(self, most: int) -> None:
        self.by_topic: dict[Topic, dict[PeerId, Source]] = {}
        self.by_tag: dict[bytes, Source] = {}
        self.foretold: dict[Topic, dict[bytes, Source]] = {}
        """By their tags, those of whom neighbours have told and nothing has come."""
        self.evicted = 0
        """Sources that were forgotten early to make room, or have the tag of another."""
        self._most = most

    def get(self, topic: Topic, author: PeerId) -> Source | None:
        """A source that is known."""
        known = self.by_topic.get(topic)
        return None if known is None else known.get(author)

    def of(self, topic: Topic) -> Iterable[Source]:
        """All of a topic."""
        known, foretold = self.by_topic.get(topic, {}), self.foretold.get(topic, {})
        return chain(known.values(), foretold.values())

    def every(self) -> Iterable[Source]:
        """All of all topics."""
        for known in (*self.by_topic.values(), *self.foretold.values()):
            yield from known.values()

    def foretell(self, topic: Topic, name: bytes, at: float, parent: PeerId) -> bool:
        """Enter a source that a neighbour has told of and that is not known, if there is room."""
        tag, mark = name[:TAG_BYTES], name[TAG_BYTES:]
        if self._count(topic) >= self._most:
            return False
        source = Source(topic, b"", tag, {}, at, at, parent, messages=1, mark=mark, at=at)
        self.foretold.setdefault(topic, {})[tag] = self.by_tag[tag] = source
        return True

    def _count(self, topic: Topic) -> int:
        return len(self.by_topic.get(topic, ())) + len(self.foretold.get(topic, ()))

    def come(self, topic: Topic, author: PeerId) -> Source | None:
        """Something has come of a source: find it, be it among those that were foretold."""
        source = self.get(topic, author)
        foretold = self.foretold.get(topic)
        if source is None and foretold:
            source = foretold.pop(tag_of(topic, author), None)
            if source is not None:
                source.author = author
                self.by_topic.setdefault(topic, {})[author] = source
            if not foretold:
                del self.foretold[topic]
        return source

    def add(
        self, topic: Topic, author: PeerId, eager: dict[PeerId, None], now: float
    ) -> Source | None:
        """Enter a source that is not known; None if its tag is taken."""
        tag = tag_of(topic, author)
        if tag in self.by_tag:
            self.evicted += 1
            return None
        if self._count(topic) >= self._most:
            self.evicted += 1
            oldest = self.foretold.get(topic) or self.by_topic[topic]
            self.forget(next(iter(oldest.values())))
        known = self.by_topic.setdefault(topic, {})
        source = known[author] = self.by_tag[tag] = Source(topic, author, tag, eager, now, now)
        return source

    def first_eager(
        self,
        topic: Topic,
        author: PeerId,
        links: Mapping[Topic, Mapping[PeerId, None]],
        sender: PeerId,
        now: float,
    ) -> dict[PeerId, None]:
        """Whom a new source's messages are sent: those who want most of what others publish.

        What comes from the same neighbour as its first message counts four times: it has come the
        same way, and so goes on the same way. What its author says in other topics counts more
        than all others say, and is enough to send it to nobody but those who are likely to want
        it. If there is nothing to go by, everybody.
        """
        near = links.get(topic, {})
        known = islice(reversed(self.by_topic.get(topic, {}).values()), _WITNESSES)
        old = [source for source in known if now - source.born >= YOUNG]
        kin = [known[author] for known in self.by_topic.values() if author in known]
        old_kin = [source for source in kin if now - source.born >= YOUNG]
        if not old and not old_kin:
            return dict(near)
        eager = [source.eager for source in old]
        eager += 3 * [source.eager for source in old if source.parent == sender]
        wanted = Counter(chain.from_iterable(eager))
        share = {}
        for peer in near:
            if peer != sender:
                votes, of = wanted[peer], len(eager)
                for source in old_kin:
                    if peer in links.get(source.topic, ()):
                        weight = _KIN * (4 if source.parent == sender else 1)
                        votes, of = votes + weight * (peer in source.eager), of + weight
                share[peer] = votes / max(1, of)
        ranked = sorted(share, key=share.__getitem__, reverse=True)
        if kin:
            return {peer: None for peer in ranked if share[peer] >= _LIKELY}
        return dict.fromkeys(ranked[:FEW_FIRST])

    def keys_of(self, messages: Iterable[Message]) -> list[bytes] | None:
        """What messages are called in gossip; None if one has no name."""
        keys = []
        for message in messages:
            source = self.get(message.topic, message.author)
            if source is None or not message.seqno:
                return None
            keys.append(message.cached_key or source.key_of(message))
        return keys

    def touch(self, source: Source, now: float) -> None:
        """Something of a source was heard."""
        source.heard = now
        known = self.by_topic[source.topic]
        known[source.author] = known.pop(source.author)

    def forget(self, source: Source) -> None:
        """Drop a source."""
        of, key = (self.by_topic, source.author) if source.author else (self.foretold, source.tag)
        known = of[source.topic]
        del known[key], self.by_tag[source.tag]
        if not known:
            del of[source.topic]

    def leave(self, topic: Topic) -> None:
        """Drop all sources of a topic."""
        for source in list(self.of(topic)):
            self.forget(source)

    def sweep(self, horizon: float) -> None:
        """Drop sources that were silent since `horizon`."""
        for known in list(self.by_topic.values()):
            silent = []
            for source in known.values():
                if source.heard >= horizon:
                    break
                silent.append(source)
            for source in silent:
                self.forget(source)
        for foretold in list(self.foretold.values()):
            for source in [each for each in foretold.values() if each.heard < horizon]:
                self.forget(source)
