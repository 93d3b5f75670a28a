"""Scenario files: what runs, on which network, under which load and which faults.

A scenario is a frozen value read from TOML. The rule: whatever a file says is either used or
refused with the full key and what is allowed there; a key that the chosen kind ignores is refused
too, so that no line of a scenario is without effect. Times of faults and publications count from
the start of the workload, which begins when all peers have joined and the warm-up is over.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from rumormill.core.config import Config, nearest, require
from rumormill.core.errors import ConfigError
from rumormill.protocols.registry import protocol
from rumormill.sim.churn import Churn, Unsubscribing
from rumormill.sim.keeping import Disk, Sync
from rumormill.sim.latency import check_bandwidth, check_latency
from rumormill.sim.reach import Reach
from rumormill.sim.tables import read_config, within
from rumormill.sim.topic_table import TopicTable
from rumormill.sim.units import Bytes, Seconds, Share

LONGEST_FILE: Final = 1 << 20
"""Largest scenario file in bytes; our choice, far above what people write."""

MOST_PEERS: Final = 100_000
"""Most simulated peers; our choice, ten times the largest run we promise."""

MOST_MESSAGES: Final = 10_000_000
"""Most planned publications; our choice, about what fits into 1 GiB."""

MOST_TOPICS: Final = 100_000
"""Most topics of a generated workload; our choice, like the peers."""

MOST_SUBSCRIPTIONS: Final = 10_000_000
"""Most subscriptions, and topics weighed to draw them; our choice, like the messages."""

MOST_FAULTS: Final = 10_000
"""Most fault entries of a file; our choice: more is a process, which churn describes."""

LARGEST_MESSAGE: Final = 1 << 20
"""Largest payload in bytes: go-libp2p-pubsub's default maximum message size, 1 MiB."""

TopologyKind = Literal[
    "random-regular", "ring-random", "star", "tree", "line", "complete", "file", "self-formed"
]
WorkloadKind = Literal["fixed", "poisson", "zipf", "reddit2007"]
Lie = Literal["junk", "withholding", "phantoms", "recursion", "forgery"]
FaultKind = Literal[
    "crash",
    "restart",
    "pause",
    "resume",
    "partition",
    "heal",
    "slow-reader",
    "normal-reader",
    "byzantine",
    "honest",
    "disk-full",
    "disk-freed",
    "disk-broken",
    "disk-mended",
]
"""What strikes, each followed by what ends it."""

ENDINGS: Final[Mapping[FaultKind, FaultKind]] = {
    "crash": "restart",
    "pause": "resume",
    "partition": "heal",
    "slow-reader": "normal-reader",
    "byzantine": "honest",
    "disk-full": "disk-freed",
    "disk-broken": "disk-mended",
}
"""Which fault ends which."""
_HOSTILITY: Final = ("byzantine", "honest")
"""What befalls peers only, and no protocol's servers."""


class Topology(Config, frozen=True, kw_only=True):
    """Who is linked to whom."""

    # Our choice: no peer is special, which published message counts assume. With self-formed,
    # everybody has the ticket of the first peer, and membership does the rest, as in nodes.
    kind: TopologyKind = "random-regular"
    # Links per peer, for ring-random on average; 20 as in the published episub simulations.
    degree: int = 20
    # Children per peer in a tree; our choice: the smallest tree that is no line.
    branching: int = 2
    # Edge list for kind "file": one "dialler listener" pair of peer numbers per line.
    path: str = ""

    def validate(self) -> None:
        """Refuse degrees that cannot connect peers and keys that the kind ignores."""
        require(1 <= self.degree <= MOST_PEERS, "degree", f"must be from 1 to {MOST_PEERS}")
        least = {"random-regular": 2, "ring-random": 2}.get(self.kind, 1)
        require(
            self.degree >= least, "degree", f"must be at least {least} for {self.kind}, to connect"
        )
        require(1 <= self.branching <= MOST_PEERS, "branching", f"must be 1 to {MOST_PEERS}")
        require(bool(self.path) == (self.kind == "file"), "path", 'goes with kind = "file" only')
        _refuse_ignored(self, {"degree": ("random-regular", "ring-random"), "branching": ("tree",)})


class Links(Config, frozen=True, kw_only=True):
    """How links carry messages."""

    # constant:50ms, uniform:10ms-100ms, normal:50ms,10ms, regions, planetlab[:uncapped].
    # 50 ms is our choice: a round trip of 100 ms, as between distant cities.
    latency: str = "constant:50ms"
    # Each message is delayed by a further uniform draw from [0, jitter]; our choice: none.
    jitter: Seconds = 0.0
    # Probability that a message is lost; our choice: none, because streams retransmit.
    loss: Share = 0.0
    # unlimited, 10mbit (both directions), 10mbit/50mbit (up/down), regions. Our choice.
    bandwidth: str = "unlimited"
    # Probability that a message may overtake earlier ones of its link; streams never reorder.
    reorder: Share = 0.0
    # RPCs waiting for one peer; our choice: losses shall come from the links (go's default is 32).
    queue_limit: int = 1024

    def validate(self) -> None:
        """Refuse unknown models and impossible probabilities."""
        check_latency(self.latency)
        check_bandwidth(self.bandwidth)
        require(0 <= self.jitter <= 3600, "jitter", "must be from 0s to 1h")
        require(0 <= self.loss <= 1, "loss", "must be from 0 to 1")
        require(0 <= self.reorder <= 1, "reorder", "must be from 0 to 1")
        require(1 <= self.queue_limit <= 1 << 20, "queue_limit", "must be from 1 to 1048576")


class Workload(Config, frozen=True, kw_only=True):
    """Who subscribes to what, and who publishes what and when."""

    kind: WorkloadKind = "fixed"
    topics: int = 1
    # 60 messages are what the published episub simulations send.
    messages: int = 60
    # Publications per second in the whole network; our choice: 60 messages last six heartbeats.
    rate: float = 10.0
    # Payload bytes; our choice: small, as published message counts assume.
    size: Bytes = 128
    # How many peers publish: a number, or a share of all written with a decimal point.
    publishers: int | float = 1.0
    # Who publishes in a topic: its subscribers, peers that are not (fanout), or anyone.
    publish_from: Literal["subscribers", "outsiders", "anyone"] = "subscribers"
    # Topics per peer; left out: every topic.
    subscriptions_per_peer: int | None = None
    # Topic of rank r has weight 1 / r^exponent; 1.0 is Zipf's own law.
    zipf_exponent: float = 1.0
    # Times between publications; left out: fixed for kind "fixed", else poisson.
    arrivals: Literal["fixed", "poisson"] | None = None
    # So many publications at each of those times, which are the further apart; our choice: one.
    burst: int = 1
    # First so many events of reddit2007; left out: all 17,611.
    limit: int | None = None

    def validate(self) -> None:
        """Refuse impossible amounts and keys that the kind ignores."""
        require(1 <= self.topics <= MOST_TOPICS, "topics", f"must be from 1 to {MOST_TOPICS}")
        require(
            0 <= self.messages <= MOST_MESSAGES, "messages", f"must be from 0 to {MOST_MESSAGES}"
        )
        require(1e-6 <= self.rate <= 1e6, "rate", "must be from 0.000001 to 1000000 per second")
        require(0 <= self.size <= LARGEST_MESSAGE, "size", "must be from 0b to 1mib")
        require(1 <= self.burst <= MOST_MESSAGES, "burst", f"must be from 1 to {MOST_MESSAGES}")
        if isinstance(self.publishers, int):
            require(1 <= self.publishers <= MOST_PEERS, "publishers", "must be at least 1 peer")
        else:
            require(0 < self.publishers <= 1, "publishers", "as a share must be in (0.0, 1.0]")
        wanted = self.subscriptions_per_peer
        require(
            wanted is None or 0 <= wanted <= self.topics,
            "subscriptions_per_peer",
            f"must be from 0 to topics, which is {self.topics}",
        )
        require(0 <= self.zipf_exponent <= 10, "zipf_exponent", "must be from 0 to 10")
        require(self.limit is None or self.limit >= 1, "limit", "must be at least 1")
        require(
            self.kind not in {"fixed", "poisson"} or self.arrivals in {None, self.kind},
            "arrivals",
            f'kind = "{self.kind}" already says it; allowed with kinds zipf and reddit2007',
        )
        generated = ("fixed", "poisson", "zipf")
        _refuse_ignored(
            self,
            {
                "zipf_exponent": ("zipf",),
                "limit": ("reddit2007",),
                "topics": generated,
                "messages": generated,
                "size": generated,
                "publishers": generated,
                "publish_from": generated,
                "subscriptions_per_peer": generated,
            },
        )

    @property
    def draws_per_peer(self) -> int:
        """How many topics are looked at to find one peer's subscriptions."""
        wanted = self.subscriptions_per_peer
        return self.topics if wanted is None or self.kind == "zipf" else wanted

    @property
    def poisson(self) -> bool:
        """Whether times between publications are drawn instead of equal."""
        return (self.arrivals or ("fixed" if self.kind == "fixed" else "poisson")) == "poisson"


class Fault(Config, frozen=True, kw_only=True):
    """One planned fault: what happens to whom, and when it ends."""

    kind: FaultKind
    # Counted from the start of the workload; negative: during joining and warm-up.
    at: Seconds
    # Who: peer numbers, or a share of all peers drawn by the seed.
    peers: tuple[int, ...] = ()
    fraction: Share = 0.0
    # Numbers, from 0, of the servers that a protocol needs besides the peers. In a partition the
    # servers belong to the last group.
    servers: tuple[int, ...] = ()
    # What a peer knows after a restart; our choice: nothing, as after a killed process.
    keep_state: bool = False
    # After so long the fault ends by itself; left out: it lasts.
    duration: Seconds | None = None
    # Partition: lists of peer numbers (the rest is one more group), or a number of equal groups.
    groups: int | tuple[tuple[int, ...], ...] = ()
    # RPCs per second that a slow reader reads, or that a byzantine peer sends; our choice.
    rate: float = 10.0
    # What a byzantine peer does: junk is for the protocol, the others answer sync's questions.
    lie: Lie = "junk"

    def validate(self) -> None:
        """Refuse entries without a target and keys that the kind ignores."""
        require(abs(self.at) <= 1e9, "at", "must be within a billion seconds")
        require(0 <= self.fraction <= 1, "fraction", "must be from 0 to 1")
        require(not (self.peers and self.fraction), "fraction", "excludes peers: give one of them")
        require(
            self.duration is None or 0 < self.duration <= 1e9, "duration", "must be more than 0s"
        )
        require(1e-3 <= self.rate <= 1e6, "rate", "must be from 0.001 to 1000000 per second")
        if self.kind in ENDINGS and self.kind != "partition":
            named = bool(self.peers) or self.fraction > 0 or bool(self.servers)
            require(named, "peers", f"{self.kind} needs peers or a fraction of them")
        if self.kind == "partition":
            ways = bool(self.peers) + (self.fraction > 0) + bool(self.groups)
            require(ways == 1, "groups", "partition needs one of groups, peers, fraction")
            require(
                not isinstance(self.groups, int) or self.groups >= 2, "groups", "must be 2 or more"
            )
        strikes_peers = tuple([kind for kind in ENDINGS if kind != "partition"])
        ends_peers = tuple([ENDINGS[kind] for kind in strikes_peers])
        of_servers = tuple([kind for kind in strikes_peers + ends_peers if kind not in _HOSTILITY])
        _refuse_ignored(
            self,
            {
                "peers": (*strikes_peers, "partition", *ends_peers),
                "fraction": (*strikes_peers, "partition"),
                "servers": of_servers,
                "duration": (*strikes_peers, "partition"),
                "keep_state": ("crash", "restart"),
                "groups": ("partition",),
                "rate": ("slow-reader", "byzantine"),
                "lie": ("byzantine",),
            },
        )
        if self.kind == "crash" and self.duration is None:
            require(not self.keep_state, "keep_state", "goes with a duration, or with restart")


class Scenario(Config, frozen=True, kw_only=True):
    """A whole run, apart from the code."""

    name: str = "unnamed"
    protocol: str = "gossipsub"
    preset: str = "default"
    # Protocol parameters by name, over the preset; their own configuration checks them.
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    peers: int = 100
    seed: int = 1
    # The state in which all peers begin, for protocols that know several; left out: just started.
    # One that is not empty has no peers that join: they are all there.
    start: str = ""
    # Published numbers are for peers that join one after another.
    join: Literal["one-by-one", "all-at-once"] = "one-by-one"
    # Our choice: a thousand peers join within one heartbeat, as in the published simulations.
    join_interval: Seconds = 0.0002
    # Our choice: ten heartbeats, after which meshes are steady.
    warm_up: Seconds = 10.0
    # Tail after the last publication; our choice: enough for gossip and IWANT to end.
    cool_down: Seconds = 10.0
    # Encode and decode every simulated message; costs time, so off outside tests.
    check_codec: bool = False
    # Time between arrival and handling of an RPC; our choice: none, links are what is studied.
    processing_delay: Seconds = 0.0
    topology: Topology = Topology()
    links: Links = Links()
    workload: Workload = Workload()
    faults: tuple[Fault, ...] = ()
    topic: TopicTable = TopicTable()
    churn: Churn = Churn()
    unsubscribing: Unsubscribing = Unsubscribing()
    disk: Disk = Disk()
    sync: Sync = Sync()
    reach: Reach = Reach()

    def validate(self) -> None:
        """Check every table and what they say about each other."""
        require(2 <= self.peers <= MOST_PEERS, "peers", f"must be from 2 to {MOST_PEERS}")
        require(0 <= self.seed < 1 << 64, "seed", "must be from 0 to 2^64 - 1")
        for key in ("name", "protocol", "preset"):
            require(0 < len(getattr(self, key)) <= 200, key, "must have 1 to 200 characters")
        for key in ("join_interval", "warm_up", "cool_down"):
            require(0 <= getattr(self, key) <= 1e6, key, "must be from 0s to 1000000s")
        require(
            msgspec.json.decode(msgspec.json.encode(self.parameters)) == self.parameters,
            "parameters",
            "only what JSON keeps: text, finite numbers, true and false, lists, tables",
        )
        require(0 <= self.processing_delay <= 60, "processing_delay", "must be from 0s to 1m")
        require(len(self.faults) <= MOST_FAULTS, "faults", f"at most {MOST_FAULTS} entries")
        for field in msgspec.structs.fields(self):
            if isinstance(field.default, Config):
                within(field.name, getattr(self, field.name).validate)
        publishers = self.workload.publishers
        require(
            not isinstance(publishers, int) or publishers <= self.peers,
            "workload.publishers",
            f"must be at most peers, which is {self.peers}",
        )
        require(
            self.peers * self.workload.draws_per_peer <= MOST_SUBSCRIPTIONS,
            "workload.subscriptions_per_peer",
            f"peers × topics must not exceed {MOST_SUBSCRIPTIONS} in all",
        )
        for index, fault in enumerate(self.faults):
            within(f"faults[{index}]", fault.validate)
            self._check_targets(f"faults[{index}]", fault)
            asked = self.sync.enabled or fault.lie == "junk"
            require(asked, f"faults[{index}].lie", "without sync nobody asks who could be lied to")

    def _check_targets(self, path: str, fault: Fault) -> None:
        last = self.peers - 1
        groups = () if isinstance(fault.groups, int) else fault.groups
        named: dict[int, None] = {}
        for key, members in (("peers", fault.peers), *(("groups", group) for group in groups)):
            for peer in members:
                require(0 <= peer <= last, f"{path}.{key}", f"{peer} is no peer; 0 to {last} are")
                require(peer not in named, f"{path}.{key}", f"names peer {peer} twice")
                named[peer] = None
        if isinstance(fault.groups, int):
            require(fault.groups <= self.peers, f"{path}.groups", f"there are {self.peers} peers")
        require(
            self.workload_start + fault.at >= 0,
            f"{path}.at",
            f"the run begins {self.workload_start:g}s before the workload; must be from there on",
        )

    @property
    def joined_at(self) -> float:
        """Virtual time at which the last peer joins."""
        return 0.0 if self.join == "all-at-once" else (self.peers - 1) * self.join_interval

    @property
    def workload_start(self) -> float:
        """Virtual time from which publications and faults are counted."""
        return self.joined_at + self.warm_up

    @classmethod
    def parse(cls, text: str, source: str = "scenario") -> Self:
        """Read and validate the text of a TOML file."""
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also too many digits, too deep lists
            raise ConfigError(f"{source}: not TOML: {error}") from None
        return cls.from_dict(table)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and validate a file; a topology's path is relative to the file's folder."""
        file = Path(path)
        try:
            with file.open("rb") as stream:
                content = stream.read(LONGEST_FILE + 1)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        if len(content) > LONGEST_FILE:
            raise ConfigError(f"{path}: larger than {LONGEST_FILE} bytes, the limit of scenarios")
        try:
            scenario = cls.parse(content.decode(), str(path))
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not UTF-8 text") from None
        if scenario.topology.path:
            beside = str(file.parent / scenario.topology.path)
            topology = msgspec.structs.replace(scenario.topology, path=beside)
            scenario = msgspec.structs.replace(scenario, topology=topology)
        return scenario

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], *, lax: bool = False) -> Self:
        """Build and validate a scenario; `lax` accepts numbers written as text."""
        scenario = read_config(cls, table, lax=lax)
        scenario.validate()
        return scenario

    def to_dict(self) -> dict[str, Any]:
        """Return what a JSON report holds; `from_dict` builds an equal scenario from it."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return a validated copy with values replaced by dotted name, such as `links.loss`.

        Values may be text as typed on a command line.
        """
        table = self.to_dict()
        for name, value in changes.items():
            inner = table
            *parents, last = name.split(".")
            for parent in parents:
                step = inner.get(parent)
                if not isinstance(step, dict):
                    tables = [key for key, item in table.items() if isinstance(item, dict)]
                    raise ConfigError(f"{name}: no such table; {nearest(parent, tables)}")
                inner = step
            inner[last] = value
        return self.from_dict(table, lax=True)

    def under(self, name: str) -> Self:
        """The same run with another protocol; one that repairs histories itself needs no sync, and
        one without creation of topics has no options for them."""
        spec = protocol(name)
        changes: dict[str, Any] = {"protocol": name}
        changes["sync.enabled"] = self.sync.enabled and spec.recovers
        return self.changed(changes if spec.topics is not None else {**changes, "topic": {}})


def _refuse_ignored(config: Any, used_by: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse keys that differ from their default although the configuration's kind ignores them."""
    for field in msgspec.structs.fields(config):
        kinds = used_by.get(field.name)
        if kinds is not None and config.kind not in kinds:
            rule = f'has no meaning with kind = "{config.kind}"; only with {", ".join(kinds)}'
            require(getattr(config, field.name) == field.default, field.name, rule)
