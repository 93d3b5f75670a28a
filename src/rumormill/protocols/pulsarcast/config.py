"""Pulsarcast's parameters, each with the source of its default, and the named presets.

"Thesis" is J. G. Antunes, "Pulsarcast" (2021), "original" its JavaScript implementation. Both say
little about numbers: where they are silent the choice is ours and the reason stands beside it.
"""

from typing import Literal

import msgspec

from rumormill.core.config import Config, require
from rumormill.overlay.kademlia.config import HOUR, KademliaConfig


class RpcLimits(Config, frozen=True, kw_only=True):
    """How much one RPC may hold; counts are per RPC or per part of it, as they say.

    What the *sender* chose (counts, answers, addresses) fails the whole RPC, whose sender is to
    blame. What the *author* of an event chose travels through honest peers, so it spoils that event
    alone.
    """

    rpc_bytes: int = 2 << 20
    """Our choice: an event of 1 MiB, and an answer of several smaller ones."""
    messages: int = 64
    """Messages and additions. Our choice: the original sends one, we batch a few."""
    payload_bytes: int = 1 << 20
    """Our choice: GossipSub's customary limit of 1 MiB for the whole message."""
    peer_id_bytes: int = 64
    """Our choice: the longest libp2p peer id has 44."""
    version_bytes: int = 128
    """Our choice: the only version there is has 17."""
    name_bytes: int = 1024
    """Of a topic and of each of its sub-topics, as for the topics of other protocols."""
    sub_topics: int = 2048
    """Our choice: what a topic descriptor of 256 KiB can hold."""
    tree_peers: int = 256
    """Neighbours in an UPDATE. Our choice: nobody sends any."""
    peers: int = 32
    """Peers that a LEAVE or an answer to a JOIN recommends. Our choice: more than Kademlia's k."""
    addresses: int = 16
    """Addresses of each. Our choice: as many as identify usually tells."""
    address_bytes: int = 256
    """Our choice: a relayed address of a long name."""
    reason_bytes: int = 256
    """Our choice: a sentence."""
    cids: int = 4096
    """CIDs in one list. Our choice: 160 kB, and 4096 events are behind them."""
    events: int = 1024
    """Events in one answer. Our choice: what fits 1 MiB at a kilobyte each."""
    key_bytes: int = 1100
    """An RSA key of 8192 bits, the largest that is accepted."""
    signature_bytes: int = 1024
    """The signature of such a key."""
    other_fields: int = 16
    """Fields that nobody knows, in each part. Our choice: room for extensions."""

    def validate(self) -> None:
        """Refuse limits under which nothing could be received."""
        for field in msgspec.structs.fields(self):
            require(getattr(self, field.name) >= 0, field.name, "must not be negative")
        require(self.rpc_bytes > 0, "rpc_bytes", "must be positive")
        require(self.messages > 0, "messages", "must be positive")
        require(self.payload_bytes < self.rpc_bytes, "payload_bytes", "must be below rpc_bytes")


DEFAULT_LIMITS = RpcLimits()


class PulsarcastConfig(Config, frozen=True, kw_only=True):
    """All parameters of a Pulsarcast peer."""

    # The tree.

    fan_out: int = 4
    """Children per topic; a joiner beyond them is handed down to a child. Our choice, measured
    (docs/pulsarcast-evaluation.md): a sender's load is at most this many times the mean, and
    smaller values only make the tree deeper."""

    connect_retries: int = 2
    """How often a neighbour that cannot be connected to is dialled again before another is
    chosen. Original: `retryOnClose` = 2."""

    connect_timeout: float = 10.0
    """Seconds until a dial that nobody answered counts as failed. Our choice: a libp2p dial."""

    join_timeout: float = 2.0
    """Seconds until a JOIN without an acknowledgement is sent again; after `connect_retries`
    repetitions it has failed. Our choice: a round trip of the slowest links of the paper (800 ms
    each way)."""

    retry_delay: float = 0.25
    """Seconds before the first repetition; every further one waits twice as long. Our choice: a
    crash is told apart from a hiccup within a second."""

    max_retry_delay: float = 30.0
    """Seconds of back-off at most. Our choice: as long as `refresh_interval`."""

    avoid_failed: float = 30.0
    """Seconds for which a peer that failed as a parent is not tried again. Our choice."""

    max_redirects: int = 32
    """Redirections that one attempt to join follows. Our choice: with a fan-out of two it reaches
    every peer of a tree of four billion."""

    refresh_interval: float = 30.0
    """Seconds between the JOINs that renew an edge. Our choice: a silent parent or child is given
    up after `missed_refreshes` of them, and the cost is one small RPC per edge."""

    missed_refreshes: int = 3
    """Refreshes without a sign of life after which an edge is dropped. Our choice."""

    move_linger: float = 2.0
    """Seconds for which the old parent still serves a child that moved, so that nothing falls
    between two parents. Our choice: more than the slowest round trip of the paper."""

    leave_linger: float = 10.0
    """Seconds for which a peer that leaves serves children that have not found another parent.
    Our choice: time for a few attempts to join elsewhere."""

    rendezvous_interval: float = 5.0
    """Seconds after which a peer that stands in for the author looks for a closer one; doubled
    each time up to `max_rendezvous_interval`. Our choice."""

    max_rendezvous_interval: float = 60.0
    """See `rendezvous_interval`. Our choice: an author that returns has its tree in a minute."""

    candidates: int = 20
    """Known peers closest to the author that are considered as parents: Kademlia's k."""

    max_topics: int = 4096
    """Topics whose trees we stand in, own and relayed. Our choice: a bound on memory."""

    max_children: int = 64
    """Children per topic beyond any doubt: `fan_out` is a wish (children on their way elsewhere
    are still served), this is a wall. Our choice."""

    publish_linger: float = 60.0
    """Seconds for which a publisher that does not subscribe stays in the tree after its last
    event. GossipSub 1.0's `fanout_ttl`, for the same purpose."""

    # Topics and permissions.

    default_publishers: Literal["anyone", "author"] = "author"
    """Who may publish in a topic that is created without saying so. Original: the author, others
    may request it."""

    subscribe_to_meta: bool = True
    """Subscribe to the meta topic along with a topic. Thesis, `subscribeToMeta`."""

    unsubscribe_from_meta: bool = True
    """Leave the meta topic along with the topic. Thesis, `unsubscribeFromMeta`."""

    subscribe_retries: int = 4
    """How often a topic that could not be found is looked for again before the subscription is
    rolled back. Our choice: with the delay below a topic has half a minute to reach the DHT."""

    subscribe_retry_delay: float = 2.0
    """Seconds before the first of them; each further one waits twice as long. Our choice."""

    require_signatures: bool = True
    """Refuse events without their publisher's signature. Our choice; the original does not sign,
    so a network with its peers must turn this off."""

    max_clock_skew: float = 60.0
    """Seconds by which an event may be dated ahead of our clock. Our choice: clocks without NTP."""

    max_descriptors: int = 4096
    """Topic descriptors remembered besides those in use. Our choice."""

    max_waiting: int = 256
    """Peers, publications and calls that wait for one descriptor. Our choice."""

    request_timeout: float = 90.0
    """Seconds until a request to publish that nobody answered has failed. Our choice: an author
    that was killed has been started again by then, and its tree has healed."""

    request_retry: float = 10.0
    """Seconds at most after which an unanswered request is sent again; the publisher takes it once.
    It is sooner where answers usually come soon. Our choice: eight hops up and down at the paper's
    mean latency."""

    max_requests: int = 4096
    """Requests to publish that are under way here, own and passed on. Our choice."""

    # Events.

    timeline_limit: int = 100_000
    """Events per topic whose ids are remembered: what dedup and reconciliation know. Our choice:
    the paper's whole workload; about 15 MB for a topic that fills it."""

    hold_limit: int = 4096
    """Events of a topic that wait for a missing ancestor. Our choice."""

    hold_timeout: float = 60.0
    """Seconds that an ordered topic waits for a missing ancestor before it goes on without it.
    Our choice: neighbours and the DHT have had their turn by then."""

    link_timeout: float = 20.0
    """Seconds that an event of any other topic waits for the one that it links to before it goes on
    without it. Our choice: neighbours have been asked twice and compared by then, and who follows
    several publishers would rather have one event late than all."""

    gap_delay: float = 1.0
    """Seconds that an unordered topic waits for a missing parent before it asks for it. Our
    choice: a copy on another edge arrives within a second."""

    fetch_timeout: float = 2.0
    """Seconds that a neighbour has to answer for missing events. Our choice: as `join_timeout`."""

    fetch_batch: int = 128
    """Events per answer to a question for missing ones. Our choice: 128 KiB of small events."""

    max_fetches: int = 1024
    """Missing events looked for at the same time. Our choice."""

    sync_settle: float = 5.0
    """Events younger than this are left out when neighbours compare what they have, since they
    may still be on their way. Our choice: a tree of ten hops at the paper's mean latency."""

    sync_margin: float = 60.0
    """Seconds before the last agreement from which neighbours compare again. Our choice: events
    are dated by their author, and a request to publish may take that long."""

    store_events: bool = True
    """Put events into the DHT, after they were forwarded. Thesis, algorithm 4."""

    store_topics: bool = True
    """Put topic descriptors into the DHT. Thesis, algorithm 1."""

    # Misbehaviour.

    ban_score: float = 100.0
    """Penalty points at which a peer is disconnected and no longer listened to. Our choice: ten
    forged events."""

    penalty_decay: float = 600.0
    """Seconds in which penalty points halve. Our choice."""

    ban_time: float = 600.0
    """Seconds for which a banned peer is not listened to. Our choice."""

    limits: RpcLimits = RpcLimits()
    """How much one RPC may hold. See `RpcLimits`."""

    kademlia: KademliaConfig = KademliaConfig(replicate_interval=HOUR, holders=8)
    """The parameters of the DHT. Holders put records again each hour, as Kademlia's paper says
    (2.5): what is in the DHT stays there, also when its author is gone. A record has 8 holders, our
    choice: with a third of all peers away at once, all of them are in one case of 6,500."""

    def validate(self) -> None:
        """Refuse values that are impossible or contradict each other."""
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.name in ("connect_retries", "subscribe_retries"):
                require(0 <= value <= 30, field.name, "must be from 0 to 30")
            elif field.type is int:
                require(value >= 1, field.name, "must be at least 1")
            elif field.type is float:
                require(0 < value < 1e9, field.name, "must be positive and finite")
        require(self.max_children > self.fan_out, "max_children", "must be more than fan_out")
        require(
            self.fetch_batch <= min(self.limits.events, self.limits.cids),
            "fetch_batch",
            "must be at most limits.events and limits.cids",
        )
        self.limits.validate()
        self.kademlia.validate()


PRESETS: dict[str, Config] = {
    "default": PulsarcastConfig(),
    # The paper's two modes: everyone publishes, or the author orders what others request.
    "open": PulsarcastConfig(default_publishers="anyone"),
    "ordered": PulsarcastConfig(default_publishers="author"),
}
