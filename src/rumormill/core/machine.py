"""The one shape of every protocol and overlay: inputs and the time go in, effects come out."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Input


class Shown(Mapping[Topic, tuple[PeerId, ...]]):
    """Peers by topic as a view shows them, each topic's as it is when it is asked for: strangers
    may have named hundreds of thousands of topics, of which whoever looks wants a few."""

    def __init__(self, table: Mapping[Topic, Mapping[PeerId, None]]) -> None:
        self._table = table

    def __getitem__(self, topic: Topic) -> tuple[PeerId, ...]:
        return tuple(self._table[topic])

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class View(msgspec.Struct, frozen=True):
    """What a machine shows of itself, to metrics, tools and people.

    `subscriptions` are the topics that the application wants, `peers` whom a publication in a topic
    would go to or through, as far as this peer knows. `links` are the edges of the protocol's own
    overlay by their kind ("mesh", "parent", "shortcut", ...) and topic; those that serve all topics
    stand under the topic "". `scores` say what it thinks of connected peers, where it does;
    `evicted` how many entries full tables gave up early, or did not take. `compared` says when a
    topic was last found to have all that another peer has, `lacking` since when something is known
    to be missing, and `backlog` how much, at least. `members` counts those whom membership knows
    of: linked, known in all, remembered on disk, lost; `records` those of a hash table: held for
    others, own, and bytes held. `labels` say where this peer stands in a topic's ring, in bits.
    """

    subscriptions: tuple[Topic, ...] = ()
    peers: Mapping[Topic, tuple[PeerId, ...]] = {}
    links: Mapping[str, Mapping[Topic, tuple[PeerId, ...]]] = {}
    scores: Mapping[PeerId, float] = {}
    evicted: Mapping[str, int] = {}
    compared: Mapping[Topic, float] = {}
    lacking: Mapping[Topic, float] = {}
    backlog: Mapping[Topic, int] = {}
    members: Mapping[str, int] = {}
    records: Mapping[str, int] = {}
    labels: Mapping[Topic, str] = {}


class Machine(Protocol):
    """A pure state machine.

    The caller owns time and order: `now` never goes back from one call to the next, and the
    effects of one call are carried out before the next call. A machine never raises because of
    what a peer sent; it raises `LocalError` for an impossible request of its own application.
    """

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input at time `now` (seconds) and append what must be done about it."""

    def view(self) -> View:
        """Show what is there now; made anew at each call."""
