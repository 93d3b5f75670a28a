"""What is fixed for all peers of the skip ring, and what each may set.

A peer's settings may be narrower than the limits in what it sends; what it must be able to read is
fixed, so that two peers with different settings still understand each other.
"""

from typing import Final, Literal

import msgspec

from rumormill.core.config import Config, require

MAX_MESSAGE: Final = 1 << 20
"""Bytes of one message, as for the other protocols (go's pub/sub: 1 MiB)."""

MAX_DATA: Final = 1 << 19
"""Bytes of data in one publication. Our choice: half a message, so that it fits one together with
its envelope and whatever else the message has to say."""

MAX_TOPIC: Final = 1024
"""Bytes of a topic's name, as for the other protocols."""

MAX_PEER: Final = 64
"""Bytes of a peer id. libp2p's have 34 to 42; the simulator's have 4."""

MAX_ADDRESSES: Final = 8
"""Addresses of one peer. Our choice: two or three interfaces with both versions of IP."""

MAX_ADDRESS: Final = 256
"""Bytes of one binary multiaddr. A relayed address with two peer ids has about 120."""

MAX_NODES: Final = 1024
"""Nodes, and prefixes, in one message. Our choice: some 80 kB, and the work of 10 ms."""

MAX_PUBLICATIONS: Final = 1024
"""Publications in one message. Our choice: checking their signatures takes some 80 ms."""

MAX_MISSING: Final = 8
"""Labels that a token carries. Our choice: as many are repaired in a round."""

MAX_SIGNATURE: Final = 512
"""RSA with 4096 bits, the longest that libp2p knows."""

MAX_KEY: Final = 1024
"""An RSA public key of 4096 bits with its framing has about 550."""


MAX_PATIENCE: Final = 1 << 20
"""Up to where patience doubles when a silent subscriber proves to be alive. Our choice: beyond
every network."""


class PublicationConfig(Config, frozen=True, kw_only=True):
    """Limits of one topic's publications. Where no source is named, the value is our choice."""

    key_bits: int = 256
    """m of the paper, "the constant m": bits of a publication's key. All of SHA-256, because keys
    are also the publications' names, and an author must not be able to make two with one name."""

    flooding: bool = True
    """Whether new publications are sent along all edges at once (section 4.3). "We do not rely on
    flooding to show convergence": without it they arrive all the same, neighbour by neighbour."""

    max_data: int = MAX_DATA
    """Bytes of data in one publication of ours at most."""

    nodes_per_message: int = 256
    """Nodes, and prefixes, in one message at most: some 10 kB, which is the work of 2 ms. Two
    tries that differ in more places are reconciled in several rounds."""

    publications_per_message: int = 256
    """Publications in one answer at most: checking their signatures takes some 20 ms."""

    answer_bytes: int = 1 << 18
    """Bytes of publications in one answer, after which the rest must be asked for: what passes a
    slow link in a second or two, so that the ring's upkeep does not wait longer behind it."""

    nodes_per_interval: int = 1 << 14
    """Nodes and prefixes of one peer that are looked at between two timeouts. A chain among 100,000
    publications needs at most some 3,000 at each side, so this is several; a peer that goes on for
    ever is refused from here on."""

    bytes_per_interval: int = 1 << 24
    """Bytes of publications that are sent to one peer between two timeouts."""

    forgeries_per_interval: int = 16
    """Wrongly signed publications of one peer that are checked between two timeouts; after them
    nothing more of that peer is checked. Honest peers pass on none."""

    peers_per_interval: int = 4096
    """Peers whose use of these limits is remembered between two timeouts; further ones are
    refused. A subscriber has some tens of neighbours."""

    max_pending_validations: int = 8192
    """Publications that wait for a deferred verdict at most, as for the other protocols."""

    def validate(self) -> None:
        """Refuse impossible values."""
        require(1 <= self.key_bits <= 256, "key_bits", "must be 1 to 256, the bits of the hash")
        for name, most in (
            ("max_data", MAX_DATA),
            ("nodes_per_message", MAX_NODES),
            ("publications_per_message", MAX_PUBLICATIONS),
            ("answer_bytes", MAX_MESSAGE // 2),
        ):
            require(1 <= getattr(self, name) <= most, name, f"must be 1 to {most}")
        require(
            self.nodes_per_message >= 2,
            "nodes_per_message",
            "must be at least 2, or no answer can name both children of a node",
        )
        for name in ("nodes_per_interval", "bytes_per_interval", "peers_per_interval"):
            require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("forgeries_per_interval", "max_pending_validations"):
            require(getattr(self, name) >= 0, name, "must not be negative")


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
    topics: tuple[str, ...] = ()
    """The topics that there are, when they are given beforehand: a supervisor serves no others, and
    a peer that is told them asks for no others. The paper: topics are "usually relatively broad and
    predefined by the supervisor". Without any, a topic is whatever somebody subscribes to."""
    supervision: Literal["database", "token"] = "database"
    """What a supervisor keeps, and how it hears of others. `database`: who has which label, and
    requests by chance, as the paper has it. `token`: the number of subscribers, and a token that
    goes round, as its outlook has it (section 6). All peers of a ring must be told the same."""
    hierarchy: str = ""
    """What stands between the levels of topics' names, such as "/". Topics with one first level
    then take turns: a supervisor has one configuration per interval for all of them, and a peer one
    chance to ask for its own; without it each topic has that. The paper: "better scalability can be
    achieved by organizing topics in a hierarchical manner" (section 1.3)."""
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
        for topic in self.topics:
            within = 1 <= len(topic.encode()) <= self.max_topic_length
            require(within, "topics", f"{topic!r} must have 1 to {self.max_topic_length} bytes")
        require(
            len(self.topics) <= self.max_topics,
            "topics",
            f"must be at most {self.max_topics}, the topics of a supervisor (max_topics)",
        )
        self.publications.validate()
        rule = f"must be 0 to {MAX_PATIENCE}"
        require(0 <= self.patience <= MAX_PATIENCE, "patience", rule)


def _is_hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False
