"""What is known of a node's own completeness: when a topic was last found to have all that somebody
else has, and what is known to be missing, since when.

How much is missing is at least what a partner has more than we have; it may be more. Who says so
and then gives nothing has said nothing.
"""

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.sync.session import Session


class Gap(msgspec.Struct):
    """Events of a topic that are missing."""

    since: float
    events: int
    told_by: PeerId


class Gaps:
    """The topics of one peer."""

    def __init__(self) -> None:
        self.compared: dict[Topic, float] = {}
        self.known: dict[Topic, Gap] = {}

    def note(self, session: Session, now: float) -> None:
        """A session has found out something."""
        for topic, events in session.missing.items():
            gap = self.known.get(topic)
            if gap is None and events:
                self.known[topic] = Gap(now, events, session.peer)
            elif gap is not None and (events or gap.told_by == session.peer):
                gap.events = events

    def lose(self, topic: Topic, now: float) -> None:
        """An event of a topic came, and could not be kept."""
        self.compared.pop(topic, None)
        gap = self.known.setdefault(topic, Gap(now, 0, b""))
        gap.events += 1

    def end(self, session: Session, now: float, *, good: bool) -> None:
        """A session is over, and was good if nothing was left to do."""
        for topic in session.compared if good else ():
            self.compared[topic] = now
            self.known.pop(topic, None)
        if not good and not session.events:
            for topic in session.missing:
                if topic in self.known and self.known[topic].told_by == session.peer:
                    del self.known[topic]

    def forget(self, topic: Topic) -> None:
        """A topic is followed no more."""
        self.compared.pop(topic, None)
        self.known.pop(topic, None)
