"""GossipSub's parameters, each with the source of its default, and the named presets."""

import re
from enum import Enum
from typing import Final

import msgspec

from rumormill.core import config
from rumormill.core.config import Config, Rule, require, require_all
from rumormill.core.errors import ConfigError, DecodeError
from rumormill.core.ids import PeerId
from rumormill.protocols.gossipsub.score_params import (
    HARDENING_SCORE,
    HARDENING_THRESHOLDS,
    PeerScoreParams,
    ScoreThresholds,
    score_parameter_decay,
)
from rumormill.protocols.pubsub.config import ENDLESS, FINITE, PubSubConfig
from rumormill.wire import keys
from rumormill.wire.multiaddr import Multiaddr

_SIMULATED: Final = re.compile("[0-9a-f]{8}")


def read_direct_peer(text: str) -> tuple[PeerId, bytes]:
    """Read a direct peer: its id, and its binary address, empty where there is an id alone."""
    try:
        if _SIMULATED.fullmatch(text):
            return bytes.fromhex(text), b""
        if not text.startswith("/"):
            return bytes(keys.PeerId.parse(text)), b""
        address = Multiaddr.parse(text)
    except DecodeError as error:
        why = error.detail
    else:
        if address.peer_id is not None:
            return bytes(address.peer_id), address.encode()
        why = "an address without a peer id"
    raise ConfigError(f"direct_peers: {text!r} is neither a ticket nor a peer id ({why})")


class ProbePolicy(Enum):
    """Who shows the way to its messages without sending any (trunk)."""

    OFF = "off"
    PUBLISHERS = "publishers"
    """Who has published in the last ten minutes."""
    SUBSCRIBERS = "subscribers"
    """Everybody who subscribes, in case it publishes."""


class GaterParams(Config, frozen=True, kw_only=True):
    """The gater's parameters; the defaults are go-libp2p-pubsub's unless they say otherwise."""

    threshold: float = 0.33
    """The gater wakes at this ratio of throttled to validated messages."""
    global_decay: float = score_parameter_decay(120)
    """Of the counts of throttled and validated messages: two minutes."""
    source_decay: float = score_parameter_decay(3600)
    """Of an address's account: an hour."""
    decay_interval: float = 1.0
    decay_to_zero: float = 0.01
    retain_stats: float = 6 * 3600.0
    """How long an address's account outlives the last connection from it."""
    quiet: float = 60.0
    """The gater sleeps when nothing was throttled for so long."""
    duplicate_weight: float = 0.125
    ignore_weight: float = 1.0
    reject_weight: float = 16.0
    topic_delivery_weights: dict[str, float] = msgspec.field(default_factory=dict)
    """What a delivery counts in certain topics; 1 in all others."""
    addresses_max: int = 4096
    """Our choice: accounts kept. The longest without a connection is closed first."""

    def validate(self) -> None:
        """Raise `ConfigError` when a value is outside its range."""
        require_all(self, _GATER_RULES)
        require(self.retain_stats >= 0, "retain_stats", "must be at least 0")


_GATER_RULES: Final = {
    config.POSITIVE: ("threshold", "duplicate_weight"),
    config.FRACTION: ("global_decay", "source_decay", "decay_to_zero"),
    config.SECONDS: ("decay_interval", "quiet"),
    config.AT_LEAST_ONE: ("ignore_weight", "reject_weight", "addresses_max"),
}


class GossipSubConfig(PubSubConfig, frozen=True, kw_only=True):
    """All parameters of a GossipSub peer.

    "1.0" and "1.1" below are the parameter tables of the specifications' versions; "go" is
    go-libp2p-pubsub, named where the specifications are silent.
    """

    D: int = 6
    """Mesh links per topic that a peer aims at. 1.0."""

    D_lo: int = 4
    """Below this many mesh links a heartbeat grafts up to D. 1.0."""

    D_hi: int = 12
    """Above this many mesh links a heartbeat prunes down to D. 1.0."""

    D_score: int = 4
    """When pruning, keep this many links by score alone. 1.1 (4 or 5)."""

    D_out: int = 2
    """Keep at least this many links that we dialled; below D_lo and at most D / 2. 1.1."""

    D_lazy: int = 6
    """Gossip to at least this many peers per heartbeat. 1.0: as many as D."""

    heartbeat_interval: float = 1.0
    """Seconds between heartbeats. 1.0."""

    heartbeat_initial_delay: float = 0.1
    """Seconds before the first heartbeat. go."""

    heartbeat_spread: float = 1.0
    """The first heartbeat is put off by a random part of so many intervals. Our choice: peers
    that start together must not beat together, or all of them graft at once and have to prune."""

    history_length: int = 5
    """Heartbeats for which a message can be asked for. 1.0, `mcache_len`."""

    history_gossip: int = 3
    """Heartbeats for which a message is gossiped about. 1.0, `mcache_gossip`."""

    fanout_ttl: float = 60.0
    """Seconds for which peers are kept for a topic that we publish in without subscribing. 1.0."""

    prune_backoff: float = 60.0
    """Seconds before a pruned link may be grafted again. 1.1."""

    unsubscribe_backoff: float = 10.0
    """The same after a PRUNE because of unsubscribing. 1.1."""

    max_backoff: float = 3600.0
    """Seconds of back-off that a peer can impose at most. rust, after GHSA-gc42-3jg7-rxr2."""

    max_backoffs: int = 100_000
    """Back-offs remembered at most, all topics and peers together. Our choice: a bound that no
    honest network reaches."""

    flood_publish: bool = True
    """Send own messages to every subscriber above the publish threshold, not to the mesh alone.
    1.1."""

    gossip_factor: float = 0.25
    """Gossip to this part of the peers outside the mesh, when that is more than D_lazy. 1.1."""

    max_ihave_length: int = 5000
    """Message ids that one peer can make us ask for per heartbeat, and ids per IHAVE. go."""

    max_ihave_messages: int = 10
    """IHAVE-bearing RPCs heeded per peer and heartbeat. go."""

    gossip_retransmission: int = 3
    """How many more times a peer may ask for the same message. go."""

    iwant_followup_time: float = 3.0
    """Seconds that a peer has to keep the promise of an IHAVE. go."""

    max_promises: int = 10_000
    """Promises tracked at most. Our choice: two heartbeats of 5000-id IHAVEs from one peer each
    track a single promise, so thousands of peers fit."""

    graft_flood_threshold: float = 10.0
    """A GRAFT that comes within this many seconds of our PRUNE costs double. go."""

    do_px: bool = False
    """Offer other peers to a peer that we prune. 1.1 recommends it for bootstrappers only."""

    prune_peers: int = 16
    """Peers offered, and heeded, in one PRUNE. go."""

    opportunistic_graft_ticks: int = 10
    """Every this many heartbeats a mesh of poor score is improved. The `-oppgraft` variants of the
    published hardening set; once a minute, as in 1.1, heals a mesh too late."""

    opportunistic_graft_peers: int = 2
    """Peers grafted then. 1.1."""

    direct_peers: tuple[str, ...] = ()
    """Peers that are always connected, always sent to, and never in a mesh: tickets, or peer ids
    where the peer dials us. In a simulation: eight hexadecimal digits, as traces name peers. Both
    sides should name each other. 1.1, "Explicit peering agreements"."""

    direct_connect_ticks: int = 300
    """Heartbeats at most between two dials to a direct peer that is missing; they begin a second
    after its loss, and the pauses double. 1.1 (5 minutes)."""

    idontwant_threshold: int = 1024
    """Bytes of data from which on an IDONTWANT pays. go; 1.2 leaves it open."""

    idontwant_ttl: int = 3
    """Heartbeats for which an IDONTWANT is remembered. go."""

    max_idontwant_messages: int = 1000
    """IDONTWANT-bearing RPCs heeded per peer and heartbeat. go."""

    max_idontwant_length: int = 10
    """Ids heeded in one IDONTWANT-bearing RPC. go."""

    trunk: bool = False
    """Whether a tree grows for each source inside the mesh, among peers that have it on. Our own
    extension (docs/trunk.md)."""

    trunk_memory: float = 600.0
    """Seconds of silence after which a source's tree is forgotten; probes, if any, go twice in
    that time. Our choice: an old tree is better than none, and is mended as peers go."""

    probes: ProbePolicy = ProbePolicy.PUBLISHERS
    """Who keeps or grows trees by messages without content: `off`, `publishers` (of the last ten
    minutes) or `subscribers` (all of them). Our choice: those who publish, seldom as it may be."""

    trunk_sources: int = 4096
    """Sources per topic that have a tree. Our choice: a bound on memory, some megabytes."""

    scoring: bool = True
    """Whether peers are scored at all. Our choice: on, with parameters that cannot hurt an
    honest peer; go leaves it off."""

    gater: GaterParams | None = None
    """When set, messages are turned away by their sender's record while validation is
    overloaded. go: off unless asked for."""

    score: PeerScoreParams = PeerScoreParams()
    """How peers are scored. See `score_params`."""

    thresholds: ScoreThresholds = ScoreThresholds()
    """What a score means. See `score_params`."""

    def validate(self) -> None:
        """Refuse degrees, histories and times that contradict each other."""
        super().validate()
        require_all(self, _RULES)
        self._validate_degrees()
        between = 0 <= self.history_gossip <= self.history_length
        require(between, "history_gossip", "must be between 0 and history_length")
        require(0 <= self.gossip_factor <= 1, "gossip_factor", "must be between 0 and 1")
        for text in self.direct_peers:
            read_direct_peer(text)
        if self.gater is not None:
            self.gater.validate()
        if self.scoring:
            self.score.validate()
            self.thresholds.validate()

    def _validate_degrees(self) -> None:
        if self.D == self.D_lo == self.D_hi == self.D_out == 0:
            return  # a bootstrapper, which keeps no mesh (1.1, "Recommendations")
        require(self.D_lo <= self.D, "D_lo", f"must be at most D ({self.D})")
        require(self.D_hi >= self.D, "D_hi", f"must be at least D ({self.D})")
        require(self.D_score <= self.D_hi, "D_score", f"must be at most D_hi ({self.D_hi})")
        below = self.D_out < self.D_lo or self.D_out == 0
        require(below, "D_out", f"must be below D_lo ({self.D_lo})")
        require(self.D_out <= self.D // 2, "D_out", f"must be at most D / 2 ({self.D // 2})")


_RULES: Final = {
    config.NOT_NEGATIVE: ("D", "D_lo", "D_hi", "D_score", "D_out", "D_lazy", "history_length"),
    FINITE: ("heartbeat_interval", "trunk_memory"),
    Rule(lambda value: 0 <= value < ENDLESS, "must not be negative, and must be finite"): (
        "heartbeat_initial_delay",
        "heartbeat_spread",
        "fanout_ttl",
        "prune_backoff",
        "unsubscribe_backoff",
        "max_backoff",
        "max_ihave_length",
        "max_ihave_messages",
        "gossip_retransmission",
        "iwant_followup_time",
        "graft_flood_threshold",
        "prune_peers",
        "opportunistic_graft_peers",
        "idontwant_threshold",
        "idontwant_ttl",
        "max_idontwant_messages",
        "max_idontwant_length",
    ),
    config.AT_LEAST_ONE: (
        "max_backoffs",
        "max_promises",
        "trunk_sources",
        "opportunistic_graft_ticks",
        "direct_connect_ticks",
    ),
}

PRESETS: dict[str, Config] = {
    "default": GossipSubConfig(),
    # Ethereum consensus-specs, "The gossip domain: gossipsub".
    "ethereum": GossipSubConfig(
        D=8, D_lo=6, D_hi=12, D_lazy=6, heartbeat_interval=0.7, history_length=6, history_gossip=3
    ),
    # libp2p/gossipsub-hardening, scripts/configs/1k.json: the published tuned set.
    "hardening": GossipSubConfig(
        D=8,
        D_lo=6,
        D_hi=12,
        D_score=6,
        D_lazy=12,
        opportunistic_graft_ticks=60,
        score=HARDENING_SCORE,
        thresholds=HARDENING_THRESHOLDS,
    ),
}
