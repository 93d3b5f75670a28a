"""Probes: messages without content, which grow or keep a source's tree (trunk).

A tree pays from the second message of a source on. A source that speaks seldom would flood the mesh
each time, so it floods something small instead: when it subscribes, if every subscriber may be a
publisher some day, and now and then as long as it publishes. A probe goes where a message of its
source would go, is announced to nobody, and decides about parents only where a source has none:
anybody can make one up.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.config import ProbePolicy

PUBLISHING: Final = 600.0
"""Seconds after its last message for which a publisher probes: our choice."""
HABIT: Final = 3
"""Messages within that time from which on it does: our choice, a probe costs as many packets as the
copies that it saves when the next message comes."""
DELAY: Final = 3.0
"""Seconds after subscribing, and half more or less: our choice, when a mesh has formed."""
SOURCES_MAX: Final = 256
"""Sources of a topic whose probes are passed on; our choice: with more of them, only messages grow
trees."""
PROBES_MAX: Final = 1000
"""Probes heeded per peer and heartbeat: our choice, four topics full of sources."""


class Probes:
    """When to probe, and which probes were seen."""

    __slots__ = (
        "_due", "_heard", "_interval", "_number", "_policy", "_published", "_randomness",
        "_sources",
    )  # fmt: skip

    def __init__(self, policy: ProbePolicy, interval: float, randomness: Randomness) -> None:
        self._policy, self._randomness = policy, randomness
        self._interval = interval
        """Seconds between two probes of a source, half more or less."""
        self._due: dict[Topic, float] = {}
        self._published: dict[Topic, tuple[float, int]] = {}
        """When we have last published, and how many messages since we began."""
        self._number = 0
        self._sources: dict[Topic, dict[PeerId, int]] = {}
        """The last probe of each source that probes."""
        self._heard: dict[PeerId, int] = {}
        """How many probes each peer has sent since the last heartbeat."""

    def published(self, topic: Topic, now: float) -> None:
        """We have published in a topic."""
        self._published[topic] = (now, self._published.get(topic, (now, 0))[1] + 1)

    def due(self, subscribed: Iterable[Topic], now: float) -> list[Topic]:
        """The topics in which we are to probe now."""
        if self._policy is ProbePolicy.OFF:
            return []
        for topic in [t for t, (at, _) in self._published.items() if at + PUBLISHING < now]:
            del self._published[topic]
        least = 0 if self._policy is ProbePolicy.SUBSCRIBERS else HABIT
        said = self._published
        wanted = [topic for topic in subscribed if said.get(topic, (now, 0))[1] >= least]
        before, self._due = self._due, {}
        found = []
        for topic in wanted:
            due = before.get(topic)
            if due is None:
                # A message has just shown the way; who has said nothing yet begins soon.
                due = self._after(self._interval if topic in self._published else DELAY, now)
            elif due <= now:
                found.append(topic)
                due = self._after(self._interval, now)
            self._due[topic] = due
        return found

    def _after(self, seconds: float, now: float) -> float:
        return now + seconds * (0.5 + self._randomness.random())

    def next_number(self) -> int:
        """The number of a new probe of ours."""
        self._number = self._number + 1 & 0xFFFFFFFF
        return self._number

    def admits(self, peer: PeerId) -> bool:
        """Whether one more probe of a peer is heeded."""
        heard = self._heard[peer] = self._heard.get(peer, 0) + 1
        return heard <= PROBES_MAX

    def is_new(self, topic: Topic, source: PeerId, number: int) -> bool | None:
        """Whether a probe was not seen before; None if its source is one too many."""
        known = self._sources.setdefault(topic, {})
        last = known.get(source)
        if last is None and len(known) >= SOURCES_MAX:
            return None
        if last == number:
            return False
        known[source] = number
        return True

    def forget_peer(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._heard.pop(peer, None)

    def sweep(self, alive: Mapping[Topic, Mapping[PeerId, object]]) -> None:
        """Begin new counts, and forget the probes of sources that are forgotten."""
        self._heard.clear()
        for topic in list(self._sources):
            sources = alive.get(topic)
            if sources is None:
                del self._sources[topic]
            else:
                known = self._sources[topic]
                for source in [each for each in known if each not in sources]:
                    del known[source]
