"""What a peer has kept of a topic's events, as a machine may read it.

Some protocols answer for old events: they hand history to whoever missed it. The runtime keeps
events (`Keep`, `Deliver`) and the machine reads them back through this narrow door, which is
injected like randomness and identities: a log on disk in a node, a table in the simulator. It
survives a restart of the peer. An event that a machine kept is found from that moment on.
"""

from collections.abc import Iterator
from typing import Protocol

from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic


class Archive(Protocol):
    """Kept events by topic and id."""

    def get(self, topic: Topic, event_id: MessageId) -> Event | None:
        """Return an event, or None when it was never kept or is no longer."""

    def scan(self, topic: Topic) -> Iterator[Event]:
        """Go through all events of a topic, in the order in which they were kept."""


class EmptyArchive:
    """The archive of a peer that keeps nothing."""

    def get(self, topic: Topic, event_id: MessageId) -> Event | None:
        """Nothing is kept."""
        return None

    def scan(self, topic: Topic) -> Iterator[Event]:
        """Nothing is kept."""
        return iter(())
