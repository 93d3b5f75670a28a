"""The interests of other peers, by topic: what their owners said last, and how far it may travel.

Of two words of an owner about a topic the one with the higher sequence number counts, in whatever
order they arrive: a SUB that was overtaken by its UNSUB finds the UNSUB here and changes nothing.
An UNSUB is kept until the date until which any earlier SUB could last, which it names itself, so
nothing that it withdrew can come back to life after it is forgotten. A copy of the same word with
more hops left extends its radius (see `publications`).

A subscriber that could not be reached is not served until it speaks again, with a new number.
"""

from typing import Final

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.messages import Interest

_IRREGULAR: Final = 0.1
"""Renewals come within this part of a `ttl` of the time at which they are due. Our choice: twice
the part by which they come early in order to go together."""


FAR: Final = 1 << 16
"""Stands for a distance that nobody said. Our choice: farther than anything travels."""


class Entry(msgspec.Struct, eq=False, gc=False):
    """What is known of one owner's interest in one topic."""

    interest: Interest
    hops: int
    """Hops that the best copy had left here."""
    since: float
    """From when on it has been known that the owner subscribes, without a break."""
    lost: bool = False
    """Whether the owner could not be reached since it said this."""
    brought_by: PeerId = b""
    """The neighbour that told us first; nobody in particular, if it was a stranger."""
    tried: bool = False
    """Whether a letter has gone there since it was last lost."""
    distance: int = 0
    """Hops to the owner, by the way of the best copy; 0 for what is our own."""


class _Topic(msgspec.Struct, eq=False):
    """The interests in one topic; none of them expires before `soonest`.

    `rim` are those that our neighbours need not know: they had at most one hop left here. `recent`
    are those of late, the oldest first. A publication that a neighbour brought concerns no others.
    """

    soonest: int
    entries: dict[PeerId, Entry] = {}
    rim: dict[PeerId, Entry] = {}
    recent: dict[PeerId, Entry] = {}

    def place(self, entry: Entry) -> None:
        """Sort an entry by the hops that it has left."""
        if entry.hops <= 1:
            self.rim[entry.interest.owner] = entry
        else:
            self.rim.pop(entry.interest.owner, None)

    def forget_recent(self, before: float) -> None:
        """What is known since before then is no longer of late."""
        recent = self.recent
        while recent:
            owner = next(iter(recent))
            if recent[owner].since > before:
                return
            del recent[owner]


class InterestTable:
    """The table. Times in it are microseconds, as interests carry them."""

    __slots__ = ("_brought", "_config", "_count", "_topics", "owners")

    def __init__(self, config: RadiusConfig) -> None:
        self._config = config
        self._topics: dict[Topic, _Topic] = {}
        self._count = 0
        self._brought: dict[PeerId, int] = {}
        """How many interests each neighbour has told us of first."""
        self.owners: dict[PeerId, int] = {}
        """How many interests each owner has, withdrawn ones included."""

    def __len__(self) -> int:
        return self._count

    def find(self, topic: Topic, owner: PeerId) -> Entry | None:
        """Return what is known of an owner's interest in a topic."""
        table = self._topics.get(topic)
        return None if table is None else table.entries.get(owner)

    def of_topic(self, topic: Topic) -> dict[PeerId, Entry]:
        """Return the interests in a topic by their owners, for reading."""
        table = self._topics.get(topic)
        return {} if table is None else table.entries

    def unsure(self, topic: Topic, before: float) -> dict[PeerId, Entry]:
        """Return those of a topic that a neighbour need not know, or only since `before`."""
        table = self._topics.get(topic)
        if table is None:
            return {}
        table.forget_recent(before)
        return {**table.rim, **table.recent}

    def all(self) -> list[Entry]:
        """Return every entry, in the order of arrival within each topic."""
        return [entry for table in self._topics.values() for entry in table.entries.values()]

    def by_topic(self) -> dict[Topic, tuple[PeerId, ...]]:
        """Return who subscribes to what: the table without what has been ended."""
        found: dict[Topic, tuple[PeerId, ...]] = {}
        for topic, table in self._topics.items():
            entries = table.entries.items()
            live = [own for own, each in entries if not (each.lost or each.interest.withdrawn)]
            if live:
                found[topic] = tuple(live)
        return found

    def no_room(self, topic: Topic, owner: PeerId, informant: PeerId) -> str | None:
        """Return why one more interest does not fit, or None."""
        config = self._config
        if self._count >= config.max_interests:
            return reasons.TABLE_FULL
        if self.owners.get(owner, 0) >= config.max_interests_per_owner:
            return reasons.OWNER_FULL
        if len(self.of_topic(topic)) >= config.max_interests_per_topic:
            return reasons.TOPIC_FULL
        if self._brought.get(informant, 0) >= config.max_interests_per_neighbour:
            return reasons.SENDER_FULL
        return None

    def put(
        self,
        interest: Interest,
        hops: int,
        now: float,
        informant: PeerId = b"",
        distance: int = FAR,
    ) -> Entry:
        """Note a verified interest that is newer than what is known; room must have been found."""
        topic, owner = interest.topic, interest.owner
        table = self._topics.get(topic)
        if table is None:
            table = self._topics[topic] = _Topic(interest.expires)
        elif interest.expires < table.soonest:
            table.soonest = interest.expires
        entry = table.entries.get(owner)
        if entry is None:
            self._count += 1
            self.owners[owner] = self.owners.get(owner, 0) + 1
            self._brought[informant] = self._brought.get(informant, 0) + 1
            entry = table.entries[owner] = Entry(interest, hops, now, brought_by=informant)
            table.recent[owner] = entry
        elif entry.lost or not self._continues(entry.interest, interest):
            entry.tried = entry.tried and not entry.lost
            entry.since = now
            table.recent.pop(owner, None)
            table.recent[owner] = entry
        entry.interest = interest
        entry.lost = False
        self.bring_closer(entry, hops, distance)
        table.forget_recent(now - self._config.settle)
        return entry

    def bring_closer(self, entry: Entry, hops: int, distance: int) -> None:
        """Note a copy that is the first of its word, or has more hops left than those before."""
        entry.hops, entry.distance = hops, distance
        self._topics[entry.interest.topic].place(entry)

    def _continues(self, earlier: Interest, later: Interest) -> bool:
        """Whether a word renews the one before it, as far as the time between them tells.

        A word at another time comes from an owner that started anew: not everybody knows it yet.
        """
        ttl = earlier.expires - earlier.sequence
        due = (1 - self._config.renew_left) * ttl
        return not earlier.withdrawn and (
            abs(later.sequence - earlier.sequence - due) <= _IRREGULAR * ttl
        )

    def lose(self, owner: PeerId) -> list[PeerId]:
        """Serve an owner no more until it speaks again; return who told us of its interests."""
        lost = []
        for table in self._topics.values() if owner in self.owners else ():
            entry = table.entries.get(owner)
            if entry is not None and not entry.lost and not entry.interest.withdrawn:
                entry.lost = True
                lost.append(entry.brought_by)
        return lost

    def clean(self, now: float) -> None:
        """Remove what has expired."""
        date = int(now * 1e6)
        for topic in [name for name, table in self._topics.items() if table.soonest <= date]:
            table = self._topics[topic]
            kept = {}
            for owner, entry in table.entries.items():
                if entry.interest.expires > date:
                    kept[owner] = entry
                    continue
                self._count -= 1
                table.rim.pop(owner, None)
                table.recent.pop(owner, None)
                for counts, key in ((self.owners, owner), (self._brought, entry.brought_by)):
                    counts[key] -= 1
                    if not counts[key]:
                        del counts[key]
            if kept:
                soonest = min([entry.interest.expires for entry in kept.values()])
                table.entries, table.soonest = kept, soonest
            else:
                del self._topics[topic]
