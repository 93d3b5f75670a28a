"""What is needed of a node that is watched, and what was read of it at one moment."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from rumormill.core.api import Completeness, Health, Message, PeerView, Receipt
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.machine import View
from rumormill.log.event_log import EventLog
from rumormill.trace.entries import Observer


class WatchedAccess(Protocol):
    """The keys of topics."""

    def shown(self, event: Event) -> Event:
        """An event in clear if it can be read, else as it travels."""


class WatchedNode(Protocol):
    """What is needed of a node that is watched."""

    @property
    def id(self) -> PeerId:
        """Its peer id."""

    @property
    def peers(self) -> list[PeerView]:
        """Connected peers."""

    @property
    def log(self) -> EventLog:
        """Its log, for reading."""

    @property
    def access(self) -> WatchedAccess:
        """The keys of its topics."""

    @property
    def reachability(self) -> list[str]:
        """What is known of who reaches it."""

    @property
    def tickets(self) -> list[str]:
        """What others need to join it: where it can be reached."""

    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """What it counts: value by label, by metric."""

    def health(self) -> Health:
        """Whether it lives, and takes events."""

    def view(self) -> View:
        """What its protocol shows of itself."""

    def completeness(self, topic: str) -> Completeness:
        """How complete a topic's history is."""

    def add_observer(self, observer: Observer) -> None:
        """Show it the trace from now on."""

    def remove_observer(self, observer: Observer) -> None:
        """Show it no more."""

    async def publish_many(
        self, topic: str, items: Iterable[bytes | Message], *, parents: Iterable[str]
    ) -> list[Receipt]:
        """Publish in this order; return when all of it is safe in the log."""


class Reading:
    """What was read of a node at one moment."""

    def __init__(self, node: WatchedNode, at: float, before: "Reading | None") -> None:
        self.at = at
        self.metrics = node.metrics()
        self.view = node.view()
        self.health = node.health()
        self.before = before
        if before is not None:
            before.before = None  # one is enough to tell how fast something grows

    def value(self, name: str) -> float:
        """A metric without a label, or the sum over all its labels."""
        return sum(self.metrics.get(name, {}).values())

    def speed(self, name: str) -> float | None:
        """How much it grew a second since the reading before."""
        if self.before is None or self.at <= self.before.at:
            return None
        return (self.value(name) - self.before.value(name)) / (self.at - self.before.at)

    def grown(self, name: str) -> Mapping[str, float]:
        """A metric's values by label, without what the reading before had."""
        before = {} if self.before is None else self.before.metrics.get(name, {})
        return {
            label: value - before.get(label, 0.0)
            for label, value in self.metrics.get(name, {}).items()
        }
