"""Kademlia's parameters, each with the source of its default."""

from rumormill.core.config import Config, require
from rumormill.overlay.kademlia.messages import KadLimits

HOUR = 3600.0


class KademliaConfig(Config, frozen=True, kw_only=True):
    """How a peer keeps its table, looks things up and keeps records for others."""

    server: bool = True
    """Whether this peer answers questions, and so belongs in others' tables. The specification:
    peers that cannot be reached, or not for long, run as clients."""
    k: int = 20
    """Contacts per bucket, and holders of a record (libp2p kad-dht specification)."""
    alpha: int = 3
    """Questions in flight on one path (Kademlia paper, section 2.3). With `paths` this makes nine
    in a lookup, where the libp2p specification allows ten."""
    paths: int = 3
    """Disjoint paths of a lookup (S/Kademlia, section 4.4, calls it d). Our choice: one honest path
    is enough to find a value, and more paths make each of them shorter-sighted."""
    region: float = 1.0
    """Peers that store or look for records ask everybody within the distance where so many times k
    peers are expected, even if there are more: made-up ids next to a key do not hide it then. Our
    choice after CVE-2023-26248; 0 asks the k closest and nobody else."""
    holders: int = 0
    """Peers that a record is put at; 0 for k, as in the paper. With fewer, who knows so many within
    the distance where k peers are expected puts it there without a search: whoever looks for it
    asks all of those."""
    quorum: int = 1
    """Valid values that end a search. One is enough where the value proves itself by its hash;
    raise it for namespaces whose values change."""
    corrections: int = 3
    """Peers near the key without the value that are given it after a search. The paper (2.3)
    gives it to one, the specification to all; our choice lies between."""
    ask_timeout: float = 5.0
    """Seconds until a question counts as failed, dialling included. Our choice: five round trips of
    a second; js and go wait 10 s, and a lookup waits for its slowest peer."""
    lookup_timeout: float = 60.0
    """Seconds until a lookup ends with what it has (js-libp2p kad-dht 0.14: one minute)."""
    lookups: int = 64
    """Lookups under way at once; the rest wait. Our choice: about 600 questions in flight."""
    waiting_lookups: int = 4096
    """Lookups that wait; more end at once, as `busy`. Our choice: a burst of publications."""
    candidates: int = 100
    """Peers that one path remembers. Our choice: five times k."""
    max_failures: int = 2
    """Failures in a row that remove a contact; after the first it is named to nobody. Our choice:
    the paper waits for five, and a single lost answer must not empty a table."""
    replacements: int = 10
    """Peers that wait for a place in a full bucket (paper, section 4.1). Our choice: k / 2."""
    checks: int = 16
    """Questions in flight that only see whether a peer is there. Our choice."""
    recheck_after: float = 60.0
    """A contact heard of within so many seconds is not checked when another wants its place. Our
    choice: a live network hears of contacts far more often than they die."""
    refresh_interval: float = 600.0
    """Seconds between refreshes of the table (specification: 10 minutes)."""
    refresh_pause: float = 0.0
    """Seconds between the lookups of one refresh. Our choice: none, so that who joins knows peers
    at every distance at once."""
    refresh_contacts: int = 0
    """Contacts at a distance that are enough when the table is refreshed: a lookup there asks one
    peer at a time on each path, and ends with so many. 0 walks to the k closest, as the paper."""
    bootstrap_delay: float = 1.0
    """Seconds from the first contact to the lookup of our own id (js-libp2p: 1 s)."""
    upkeep_interval: float = 60.0
    """Seconds between looks at what is due: expiry, republishing, missing contacts. Our choice."""
    per_subnet_bucket: int = 2
    """Contacts of one network (IPv4 /24, IPv6 /48) in one bucket (go-ethereum, p2p/discover).
    Loopback and private addresses do not count."""
    per_subnet_table: int = 10
    """Contacts of one network in the whole table (go-ethereum, p2p/discover)."""
    durable: bool = True
    """Whether records, own and others', are on disk as well, where the overlay has one: so they
    outlive a restart of all holders. Our choice; off, a holder's disk is spared."""
    records: int = 16_384
    """Records held for others. Our choice: five times what 17,611 events on 100 peers need."""
    records_bytes: int = 64 << 20
    """Bytes of their keys and values. Our choice."""
    records_per_peer: int = 8192
    """Of those, records that one peer gave us. Our choice: half of all."""
    records_per_peer_bytes: int = 32 << 20
    """Bytes of them. Our choice: half of all."""
    own_records: int = 32_768
    """Records that this peer published and republishes. Our choice."""
    republish_interval: float = 22 * HOUR
    """Seconds between publications of our own values and provider records (specification)."""
    republish_at_once: int = 8
    """Republishing lookups under way at once. Our choice: an eighth of all."""
    replicate_interval: float = 0.0
    """Seconds after which a holder puts a record again that nobody else did, to whoever is closest
    to it now; 0 for never. Who is still among those keeps it for another lifetime: so it stays as
    long as one of its holders does, its publisher gone or not. The paper (2.5) says an hour; it
    costs every record some 2 k messages each time. go and js leave it to the publisher, and so is
    our choice for a table that says nothing else."""
    provider_keys: int = 16_384
    """Keys whose providers are remembered. Our choice: as records."""
    provider_age: float = 48 * HOUR
    """Seconds for which a provider is remembered (specification: 48 hours)."""
    providers_per_key: int = 64
    """Providers remembered of one key; the oldest makes room. Our choice: three times what a
    search wants."""
    ban_time: float = 3600.0
    """Seconds for which who gave a false value is neither asked nor answered. Our choice."""
    offences_before_disconnect: int = 3
    """False values that close the connection. Our choice: banned at the first, cut off when it
    goes on."""
    bans: int = 1024
    """Banned peers remembered; the oldest makes room. Our choice."""
    limits: KadLimits = KadLimits()

    @property
    def copies(self) -> int:
        """How many peers hold a record."""
        return self.holders or self.k

    def validate(self) -> None:
        """Refuse values under which nothing can be found or kept."""
        self.limits.validate()
        for name in (
            "k", "alpha", "paths", "quorum", "lookups", "max_failures", "checks",
            "per_subnet_bucket", "per_subnet_table", "records", "records_bytes", "records_per_peer",
            "records_per_peer_bytes", "own_records",
            "republish_at_once", "provider_keys", "providers_per_key",
            "offences_before_disconnect", "bans",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in (
            "ask_timeout", "lookup_timeout", "refresh_interval", "upkeep_interval",
            "republish_interval", "provider_age",
        ):  # fmt: skip
            require(getattr(self, name) > 0, name, "must be positive")
        for name in (
            "corrections", "waiting_lookups", "replacements", "recheck_after", "region",
            "refresh_pause", "refresh_contacts", "bootstrap_delay", "replicate_interval",
            "ban_time", "holders",
        ):  # fmt: skip
            require(getattr(self, name) >= 0, name, "must not be negative")
        require(self.replicate_interval <= 12 * HOUR, "replicate_interval", "must be 12 h at most")
        require(self.candidates >= self.k, "candidates", "must be at least k")
        for name in ("holders", "refresh_contacts"):
            require(getattr(self, name) <= self.k, name, "must not exceed k")
        require(self.k <= self.limits.closer_peers, "k", "must not exceed limits.closer_peers")
