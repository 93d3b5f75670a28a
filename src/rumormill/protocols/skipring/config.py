"""The parameters of the skip ring."""

import msgspec

from rumormill.core.config import Config, require


class SkipRingConfig(Config, frozen=True, kw_only=True):
    """How a peer of the supervised skip ring behaves."""

    interval: float = 1.0
    """Seconds between two TIMEOUTs. The paper names none; our choice: GossipSub's heartbeat."""
    tuples_per_timeout: int = 64
    """How much of the database a TIMEOUT checks. Our choice: some 30 µs, and a database of 100,000
    subscribers is checked in half an hour of intervals of one second."""
    requests_per_interval: int = 32
    """How many requests a supervisor takes from one peer in an interval. Our choice: more than a
    subscriber ever has neighbours to ask for."""
    patience: int = 4
    """For how many intervals a supervisor waits for an acknowledgement; 0 waits for none. Our
    choice: several round trips across the world."""
    max_patience: int = 1 << 20
    """Up to where patience doubles when a silent subscriber proves to be alive. Our choice: beyond
    every network."""
    misses: int = 3
    """After how many unanswered configurations in a row a subscriber is dead. Our choice, because
    letters may be lost when a connection breaks."""
    probes_per_timeout: int = 16
    """How many silent subscribers are asked again in an interval. Our choice: after a third of a
    thousand crash, all are found in about a minute."""
    max_subscribers: int = 1_000_000
    """Per topic at a supervisor. Our choice: some 300 bytes each."""
    max_topics: int = 10_000
    """At a supervisor. Our choice: the overhead is a message per topic and interval."""

    def validate(self) -> None:
        """Refuse values under which no ring can form."""
        require(self.interval > 0, "interval", "must be positive")
        for field in msgspec.structs.fields(self):
            if field.type is int and field.name != "patience":
                require(getattr(self, field.name) > 0, field.name, "must be positive")
        require(self.patience >= 0, "patience", "must not be negative")
        require(self.max_patience >= self.patience, "max_patience", "must not be below patience")
