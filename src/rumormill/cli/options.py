"""The options that several verbs share, or that are known elsewhere than at their verb.

Only the standard library is imported here, because `rumormill --help` imports it.
"""

from typing import Final

from rumormill.cli.grammar import Option

PROTOCOLS: Final = ("floodsub", "gossipsub", "pulsarcast", "radius", "skipring")
"""The registry's names, repeated here because help does not import it; a test compares them."""

PROTOCOL_OPTIONS: Final = (
    Option("--protocol", "protocol", "NAME", ", ".join(PROTOCOLS), PROTOCOLS),
    Option(
        "--preset",
        "preset",
        "NAME",
        "a protocol's named settings, such as ethereum",
        ("default", "ethereum", "few", "hardening", "open", "ordered"),
    ),
)
"""Which protocol, and which of its presets: asked for by every verb that runs one."""

PLACE: Final = (
    Option("--home", "home", "DIR", "identity, log and control socket (default ~/.rumormill)"),
    Option("--config", "config", "FILE", "settings in TOML (default: config.toml in the home)"),
    Option(
        "--log-level",
        "log_level",
        "LEVEL",
        "debug, info, warning, error (default warning; of a node info)",
        ("debug", "info", "warning", "error"),
    ),
    Option("--log-format", "log_format", "FORMAT", "text or json, on stderr", ("text", "json")),
)
DURABILITY: Final = Option(
    "--durability",
    "durability",
    "MODE",
    "when an event counts as kept: fsync (default), os, memory",
    ("fsync", "os", "memory"),
)
FLIGHT_ENDPOINT: Final = "127.0.0.1:4020"
"""Our choice, on the loopback: nobody else gets in before it is said."""

NODE_OPTIONS: Final = (*PLACE, *PROTOCOL_OPTIONS, DURABILITY)

WHAT_RUNS: Final = (
    *PROTOCOL_OPTIONS,
    Option("--peers", "peers", "N", "how many peers"),
    Option("--seed", "seed", "N", "decides every random draw; same seed, same trace"),
    Option(
        "--join",
        "join",
        "HOW",
        "one-by-one or all-at-once",
        ("one-by-one", "all-at-once"),
    ),
    Option(
        "--start",
        "start",
        "STATE",
        "the state in which all peers begin; skipring: empty, legitimate, arbitrary",
        ("empty", "legitimate", "arbitrary"),
    ),
)
NETWORK: Final = (
    Option(
        "--topology",
        "topology.kind",
        "KIND",
        "random-regular, ring-random, star, tree, line, complete",
        ("random-regular", "ring-random", "star", "tree", "line", "complete"),
    ),
    Option("--degree", "topology.degree", "N", "links per peer"),
    Option(
        "--latency",
        "links.latency",
        "MODEL",
        "constant:50ms, uniform:10ms-100ms, normal:50ms,10ms, regions, planetlab",
        ("constant:50ms", "uniform:10ms-100ms", "normal:50ms,10ms", "regions", "planetlab"),
    ),
    Option("--jitter", "links.jitter", "TIME", "a further random delay of up to this, as 5ms"),
    Option("--loss", "links.loss", "SHARE", "probability that a message is lost, as 1%% or 0.01"),
    Option(
        "--bandwidth",
        "links.bandwidth",
        "MODEL",
        "unlimited, 10mbit, 10mbit/50mbit (up/down), regions",
        ("unlimited", "10mbit", "10mbit/50mbit", "regions"),
    ),
    Option("--churn", "churn", "RATE", "peers that leave per minute, as 12, or of all, as 5%%"),
)
LOAD: Final = (
    Option(
        "--workload",
        "workload.kind",
        "KIND",
        "fixed, poisson, zipf, reddit2007",
        ("fixed", "poisson", "zipf", "reddit2007"),
    ),
    Option("--messages", "workload.messages", "N", "how many; of reddit2007 the first N"),
    Option("--topics", "workload.topics", "N", "how many topics"),
    Option("--rate", "workload.rate", "N", "publications per second in the whole network"),
    Option("--size", "workload.size", "SIZE", "payload, as 128 or 1kib"),
)
SIM_OPTIONS: Final = (*WHAT_RUNS, *NETWORK, *LOAD)
