"""The parameters of the skip ring."""

import msgspec

from rumormill.core.config import Config, require
from rumormill.protocols.skipring.publication_config import PublicationConfig


class SkipRingConfig(Config, frozen=True, kw_only=True):
    """How a peer of the supervised skip ring behaves."""

    interval: float = 1.0
    """Seconds between two TIMEOUTs. The paper names none; our choice: GossipSub's heartbeat."""
    supervisors: tuple[str, ...] = ()
    """The peer ids of all supervisors, in hexadecimal; the topics are shared among them. The paper:
    "every node is assumed to know the supervisor"."""
    supervisor_count: int = 1
    """How many supervisors a simulator adds to the peers; a node does not read it. The paper has
    one."""
    max_subscriptions: int = 5000
    """Topics that a peer takes part in. Our choice, as for the other protocols."""
    max_topic_length: int = 1024
    """Bytes of a topic's name. Our choice, as for the other protocols."""
    checks_shortcuts: bool = True
    """Whether CHECKTRIE goes to any neighbour instead of to a ring neighbour (Algorithm 5). Our
    choice: Theorem 17 holds as before, because ring neighbours are among them, and a publication
    that flooding missed spreads in about log n intervals instead of n."""
    publications: PublicationConfig = PublicationConfig()
    """Settings of the publication protocol."""
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
        for peer in self.supervisors:
            require(_is_hex(peer), "supervisors", f"{peer!r} is not a peer id in hexadecimal")
        self.publications.validate()
        require(self.patience >= 0, "patience", "must not be negative")
        require(self.max_patience >= self.patience, "max_patience", "must not be below patience")


def _is_hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False
