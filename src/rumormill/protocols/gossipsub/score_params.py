"""Parameters of peer scoring: what each behaviour weighs, and what a score then forbids.

The names are go-libp2p-pubsub's in lower case, because published parameter sets use them. Times
are seconds, decays are factors per `decay_interval`.

Parameters come in groups, one per part of the score. A group is off where its weight is 0.
"""

import ipaddress
import math
from typing import Final

import msgspec

from rumormill.core import config
from rumormill.core.config import Config, Rule, require, require_all
from rumormill.core.errors import ConfigError


def score_parameter_decay(seconds: float, interval: float = 1.0, to_zero: float = 0.01) -> float:
    """The factor per `interval` by which a counter of 1 falls to `to_zero` in `seconds`."""
    ticks = math.floor(seconds / interval + 1e-9)
    if ticks < 1:
        raise ConfigError(f"decay: {seconds} s is shorter than one interval of {interval} s")
    return float(to_zero ** (1.0 / ticks))


_BONUS: Final = Rule(
    lambda value: 0 <= value < math.inf, "must be a finite number, at least 0 (0 switches it off)"
)
_MALUS: Final = Rule(
    lambda value: -math.inf < value <= 0, "must be a finite number, at most 0 (0 switches it off)"
)
_LEAST: Final = Rule(lambda value: 0 <= value < math.inf, "must be a finite number, at least 0")

_TOPIC_RULES: Final = {
    _BONUS: ("topic_weight", "time_in_mesh_weight", "first_message_deliveries_weight"),
    _MALUS: (
        "mesh_message_deliveries_weight",
        "mesh_failure_penalty_weight",
        "invalid_message_deliveries_weight",
    ),
    Rule(lambda value: math.isfinite(value) and value != 0, "must not be zero"): (
        "time_in_mesh_quantum",
    ),
    _LEAST: ("mesh_message_deliveries_window",),
    config.FRACTION: ("invalid_message_deliveries_decay",),
}
_GROUP_RULES: Final[dict[str, dict[Rule, tuple[str, ...]]]] = {
    "time_in_mesh": {config.POSITIVE: ("quantum", "cap")},
    "first_message_deliveries": {config.FRACTION: ("decay",), config.POSITIVE: ("cap",)},
    "mesh_message_deliveries": {
        config.FRACTION: ("decay",),
        config.POSITIVE: ("cap", "threshold"),
        config.SECONDS: ("activation",),
    },
    "mesh_failure_penalty": {config.FRACTION: ("decay",)},
}
"""What must hold besides in a group whose weight is not 0."""


class TopicScoreParams(Config, frozen=True, kw_only=True):
    """How behaviour in one topic counts (P1 to P4).

    P3 and P3b are off by default: they punish a mesh peer that delivers less than a threshold, and
    what is little depends on the topic's message rate. A threshold that fits a busy topic empties
    the mesh of a quiet one. Switch them on per topic, from the rate that you expect.
    """

    topic_weight: float = 1.0
    """Our choice, because all topics start equal; weights below are then plain score points."""

    # P1: time in the mesh.
    time_in_mesh_weight: float = 0.01
    """nim-libp2p: with its cap, staying in the mesh is worth at most 0.1."""
    time_in_mesh_quantum: float = 1.0
    """nim-libp2p and the published hardening set: counted in seconds."""
    time_in_mesh_cap: float = 10.0
    """nim-libp2p."""

    # P2: messages that the peer was the first to deliver.
    first_message_deliveries_weight: float = 1.0
    """nim-libp2p, rust-libp2p, js-libp2p."""
    first_message_deliveries_decay: float = score_parameter_decay(60)
    """Our choice: forgotten after a minute. Halved every second, as in nim, rust and js, it forgets
    a good peer between two messages of a quiet topic; with the factor of the published hardening
    set an attacker lives on what it has earned for minutes."""
    first_message_deliveries_cap: float = 10.0
    """nim-libp2p; a larger cap lets a fast peer save up credit for later misdeeds."""

    # P3: too few first or near-first deliveries while in the mesh.
    mesh_message_deliveries_weight: float = 0.0
    """Our choice: off, because the threshold needs the topic's rate (see above)."""
    mesh_message_deliveries_decay: float = 0.997
    """The published hardening set; takes effect with the weight."""
    mesh_message_deliveries_cap: float = 400.0
    """The published hardening set."""
    mesh_message_deliveries_threshold: float = 10.0
    """The published hardening set."""
    mesh_message_deliveries_window: float = 0.005
    """The published hardening set. Short, so that echoing our own message back earns nothing."""
    mesh_message_deliveries_activation: float = 60.0
    """The published hardening set."""

    # P3b: the deficit with which a peer left the mesh, remembered.
    mesh_failure_penalty_weight: float = 0.0
    """Our choice: off together with P3."""
    mesh_failure_penalty_decay: float = 0.997
    """The published hardening set."""

    # P4: invalid messages, squared.
    invalid_message_deliveries_weight: float = -5.0
    """Our choice: with the default thresholds one invalid message takes a peer that has earned
    nothing out of the mesh, two end gossip with it, four graylist it; one that has earned all that
    there is to earn may send one more. The -1 of rust-libp2p and js-libp2p together with their
    decay of 0.3 would forgive one invalid message every second for ever."""
    invalid_message_deliveries_decay: float = score_parameter_decay(600)
    """Our choice: forgiven after ten minutes, so that peers that disagree about validity for a
    while (two versions of one application) find together again."""

    def validate(self) -> None:
        """Raise `ConfigError` when a value is outside its range."""
        require_all(self, _TOPIC_RULES)
        for group, rules in _GROUP_RULES.items():
            if getattr(self, f"{group}_weight"):
                named = {rule: [f"{group}_{name}" for name in rules[rule]] for rule in rules}
                require_all(self, named)

    @property
    def counts_mesh_deliveries(self) -> bool:
        """Whether P3 or P3b is on: both need to know who delivered each message, and when."""
        return bool(self.mesh_message_deliveries_weight or self.mesh_failure_penalty_weight)

    @property
    def counts_invalid(self) -> bool:
        """Whether P4 is on."""
        return bool(self.invalid_message_deliveries_weight)


class PeerScoreParams(Config, frozen=True, kw_only=True):
    """How a peer is scored: its topics, and what counts beyond topics (P5 to P7)."""

    topics: dict[str, TopicScoreParams] = msgspec.field(default_factory=dict)
    """Parameters by topic."""
    default_topic: TopicScoreParams | None = TopicScoreParams()
    """Parameters of all other topics; null leaves them unscored, which is all that go can do. Our
    choice: scored, because topics are rarely known when a node is configured."""
    topic_score_cap: float = 10.0
    """js-libp2p. Limits what good behaviour in all topics together can earn; 0 is no limit."""

    # P5: the application's own opinion.
    application_weight: float = 1.0
    """Deployed by Filecoin and Ethereum nodes: the application's number counts as it is."""

    # P6: many peers at one address, squared.
    ip_colocation_factor_weight: float = 0.0
    """Our choice: off, because peers behind one NAT or on one machine are a normal sight."""
    ip_colocation_factor_threshold: int = 10
    """rust-libp2p and js-libp2p."""
    ip_colocation_factor_whitelist: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.0/8`) that P6 never counts. Nor does it ever
    count loopback, as in go."""

    # P7: broken promises, GRAFTs during backoff, and the like, squared.
    behaviour_penalty_weight: float = -10.0
    """rust-libp2p, js-libp2p, Filecoin."""
    behaviour_penalty_threshold: float = 6.0
    """Filecoin and Ethereum nodes: a few broken promises are lost messages, not an attack."""
    behaviour_penalty_decay: float = score_parameter_decay(3600)
    """Filecoin: forgiven after an hour."""

    decay_interval: float = 1.0
    """go-libp2p-pubsub, rust-libp2p, js-libp2p, nim-libp2p."""
    decay_to_zero: float = 0.01
    """go-libp2p-pubsub, nim-libp2p."""
    retain_score: float = 3600.0
    """rust-libp2p and js-libp2p: how long a bad score survives a disconnect."""
    delivery_record_ttl: float = 120.0
    """go-libp2p-pubsub: as long as a message id stays in the seen cache."""

    # Bounds on memory.
    peers_max: int = 4096
    """Our choice, far above any number of connections: scores kept, of connected peers and of
    those that left. The longest gone is forgotten first."""
    topics_per_peer_max: int = 1024
    """Our choice, far above any number of topics that two peers share."""
    delivery_records_max: int = 65536
    """Our choice: 120 s at 500 messages a second. The oldest is forgotten first."""

    def validate(self) -> None:
        """Raise `ConfigError` when a value is outside its range."""
        named = dict(self.topics)
        if self.default_topic is not None:
            named["(default_topic)"] = self.default_topic
        for topic, params in named.items():
            try:
                params.validate()
            except ConfigError as error:
                raise ConfigError(f"topic {topic}: {error}") from None
        rule = "must be a finite number above 0, or 0 for no cap"
        require(_BONUS.holds(self.topic_score_cap), "topic_score_cap", rule)
        finite = math.isfinite(self.application_weight)
        require(finite, "application_weight", "must be a finite number")
        require_all(self, _PEER_RULES)
        if self.ip_colocation_factor_weight:
            require_all(self, {config.AT_LEAST_ONE: ("ip_colocation_factor_threshold",)})
        if self.behaviour_penalty_weight:
            require_all(self, {config.FRACTION: ("behaviour_penalty_decay",)})
        for network in self.ip_colocation_factor_whitelist:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                rule = f"{network!r} is not an address or a network"
                raise ConfigError(f"ip_colocation_factor_whitelist: {rule}") from None


_PEER_RULES: Final = {
    _MALUS: ("ip_colocation_factor_weight", "behaviour_penalty_weight"),
    _LEAST: ("behaviour_penalty_threshold", "retain_score", "delivery_record_ttl"),
    config.SECONDS: ("decay_interval",),
    config.FRACTION: ("decay_to_zero",),
    config.AT_LEAST_ONE: ("peers_max", "topics_per_peer_max", "delivery_records_max"),
}


class ScoreThresholds(Config, frozen=True, kw_only=True):
    """What a score forbids. Each of the first three lies at or below the one before it."""

    gossip: float = -10.0
    """rust-libp2p and js-libp2p: below it, no gossip to or from the peer."""
    publish: float = -50.0
    """rust-libp2p and js-libp2p: below it, own messages are not sent to the peer."""
    graylist: float = -80.0
    """rust-libp2p and js-libp2p: below it, everything from the peer is ignored."""
    accept_px: float = 10.0
    """rust-libp2p and js-libp2p: below it, peers that it offers are not connected to."""
    opportunistic_graft: float = 0.2
    """Our choice: below this median score a mesh takes in better peers. Staying in the mesh earns
    0.1, so half of the mesh has brought nothing first for half a minute or more. A topic may just
    be quiet; then nobody is better, and nothing happens."""

    def validate(self) -> None:
        """Raise `ConfigError` when a value is outside its range."""
        require(_MALUS.holds(self.gossip), "gossip", "must be finite and at most 0")
        for name, above in (("publish", "gossip"), ("graylist", "publish")):
            value = getattr(self, name)
            holds = _MALUS.holds(value) and value <= getattr(self, above)
            require(holds, name, f"must be finite, at most 0, and at most {above}")
        for name in ("accept_px", "opportunistic_graft"):
            require(_BONUS.holds(getattr(self, name)), name, "must be finite and at least 0")


HARDENING_SCORE: Final = PeerScoreParams(
    default_topic=TopicScoreParams(
        topic_weight=0.25,
        time_in_mesh_weight=0.0027,
        time_in_mesh_cap=3600.0,
        first_message_deliveries_weight=0.664,
        first_message_deliveries_decay=0.9916,
        first_message_deliveries_cap=1500.0,
        mesh_message_deliveries_weight=-0.25,
        mesh_failure_penalty_weight=-0.25,
        invalid_message_deliveries_weight=-99.0,
        invalid_message_deliveries_decay=0.9994,
    ),
    topic_score_cap=0.0,
    ip_colocation_factor_weight=0.0,
    ip_colocation_factor_threshold=1,
    decay_interval=1.0,
    decay_to_zero=0.01,
    retain_score=30.0,
)
"""The one published tuned set: libp2p/gossipsub-hardening, `scripts/configs/1k.json` (1000 nodes,
120 messages a second in one topic). It names no P7; ours stays on. What our defaults have from this
set is not repeated."""

HARDENING_THRESHOLDS: Final = ScoreThresholds(
    gossip=-4000.0,
    publish=-5000.0,
    graylist=-10000.0,
    accept_px=0.0,
    opportunistic_graft=0.0,
)
"""libp2p/gossipsub-hardening, `scripts/configs/1k.json`. Its `-oppgraft` variants put the last
threshold at 1 (cold boot) or 10 (covert flash, attack at dawn)."""
