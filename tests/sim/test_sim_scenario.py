"""Scenario files: what is written is used or refused, and refusals say what is allowed."""

import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.sim.churn import Churn
from rumormill.sim.scenario import Fault, Scenario, TopologyKind, WorkloadKind

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "scenarios").glob("*.toml"))


def test_an_empty_file_is_the_default_scenario() -> None:
    """Every key has a default."""
    assert Scenario.parse("") == Scenario()


def test_units_are_read_in_every_table() -> None:
    """Durations, sizes and shares are plain numbers after reading."""
    scenario = Scenario.parse(
        """
        join_interval = "10ms"
        [links]
        jitter = "5ms"
        loss = "1%"
        [workload]
        size = "2kib"
        [[faults]]
        kind = "pause"
        at = "1m"
        fraction = "25%"
        duration = "1s"
        [churn]
        fraction = "10%"
        downtime = "5s"
        """
    )
    assert scenario.join_interval == 0.01
    assert (scenario.links.jitter, scenario.links.loss) == (0.005, 0.01)
    assert scenario.workload.size == 2048
    fault = scenario.faults[0]
    assert (fault.at, fault.fraction, fault.duration) == (60.0, 0.25, 1.0)
    assert scenario.churn.per_second(120) == pytest.approx(0.2)


def test_the_workload_starts_after_the_last_join_and_the_warm_up() -> None:
    """One by one, peers join at equal distances; all at once, at time zero."""
    slow = Scenario(peers=11, join_interval=0.5, warm_up=3.0)
    assert (slow.joined_at, slow.workload_start) == (5.0, 8.0)
    at_once = slow.changed({"join": "all-at-once"})
    assert (at_once.joined_at, at_once.workload_start) == (0.0, 3.0)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_scenarios_are_valid(path: Path) -> None:
    """Each example loads, bears its file's name, and survives a report."""
    scenario = Scenario.load(path)
    assert scenario.name == path.stem
    assert Scenario.from_dict(json.loads(json.dumps(scenario.to_dict()))) == scenario


def test_all_promised_examples_exist() -> None:
    """They show the published numbers, joining, faults, churn, sync, NATs, data sets and papers."""
    assert [path.stem for path in EXAMPLES] == [
        "all-at-once",
        "away",
        "byzantine",
        "churn",
        "liars",
        "partition",
        "planetlab",
        "published-numbers",
        "pulsarcast-reddit2007-churn10",
        "pulsarcast-reddit2007-churn30",
        "pulsarcast-reddit2007-churn5",
        "pulsarcast-reddit2007-latency",
        "pulsarcast-reddit2007-ordered-latency",
        "pulsarcast-reddit2007-ordered",
        "pulsarcast-reddit2007",
        "radius-reference",
        "radius-sparse",
        "reddit2007",
        "wild",
    ]


REFUSALS = [
    ("peer = 3", "peer: there is no such key; did you mean peers?"),
    ("zzz = 3", "zzz: there is no such key; known names: name, protocol, "),
    ("[links]\nlatncy = 3", "links.latncy: there is no such key; did you mean latency?"),
    ('peers = "x"', "peers: expected `int`, got `str`"),
    ("peers = true", "peers: expected `int`, got `bool`"),
    ("peers = 1", "peers: must be from 2 to 100000"),
    ("seed = -1", "seed: must be from 0 to 2^64 - 1"),
    ('join = "all"', "join: 'all' is unknown; allowed: one-by-one, all-at-once"),
    ('warm_up = "5 parsecs"', "warm_up: '5 parsecs' is not a duration; write a number or"),
    ("warm_up = -1", "warm_up: must be from 0s to 1000000s"),
    ("warm_up = nan", "warm_up: nan is not a duration"),
    ('[sync]\ninterval = "0s"', "sync.interval: must be "),
    ('name = ""', "name: must have 1 to 200 characters"),
    ("processing_delay = 61", "processing_delay: must be from 0s to 1m"),
    ("topology = 3", "topology: expected a table, got 3"),
    ("faults = 3", "faults: expected `array`, got `int`"),
    ("faults = [3]", "faults[0]: expected a table, got 3"),
    ("parameters = 3", "parameters: expected `object`, got `int`"),
    (
        '[topology]\nkind = "ringrandom"',
        "topology.kind: 'ringrandom' is unknown; did you mean ring-random?; allowed: random-regu",
    ),
    (
        "[topology]\nkind = []",
        "topology.kind: [] is unknown; allowed: random-regular, ring-random, star, tree, line, com",
    ),
    ("[topology]\ndegree = 1", "topology.degree: must be at least 2 for random-regular"),
    (
        '[topology]\nkind = "star"\ndegree = 3',
        'topology.degree: has no meaning with kind = "star"; only with random-regular, ring-random',
    ),
    ('[topology]\nkind = "file"', 'topology.path: goes with kind = "file" only'),
    ("[topology]\nbranching = 3", "topology.branching: has no meaning with kind = "),
    (
        '[links]\nlatency = "constnt:5ms"',
        "links.latency: 'constnt:5ms' is unknown; did you mean constant?; allowed: constant:50ms, ",
    ),
    ('[links]\nlatency = "uniform:9ms-1ms"', "links.latency: 'uniform:9ms-1ms' does not fit"),
    ('[links]\nbandwidth = "5mb"', "links.bandwidth: '5mb' is unknown"),
    ("[links]\nloss = 1.5", "links.loss: must be from 0 to 1"),
    ("[links]\nreorder = -0.1", "links.reorder: must be from 0 to 1"),
    ("[links]\nqueue_limit = 0", "links.queue_limit: must be from 1 to 1048576"),
    (
        '[workload]\nkind = "zip"',
        "workload.kind: 'zip' is unknown; did you mean zipf?; allowed: fixed, poisson, zipf, redd",
    ),
    ("[workload]\nrate = 0", "workload.rate: must be from 0.000001 to"),
    ("[workload]\nrate = nan", "workload.rate: must be from 0.000001 to"),
    ("[workload]\ntopics = 0", "workload.topics: must be from 1 to 100000"),
    ("[workload]\nmessages = -1", "workload.messages: must be from 0 to 10000000"),
    ('[workload]\nsize = "2mib"', "workload.size: must be from 0b to 1mib"),
    ("[workload]\npublishers = 0", "workload.publishers: must be at least 1 peer"),
    ("[workload]\npublishers = 1.5", "workload.publishers: as a share must be in (0.0, 1.0]"),
    ("[workload]\npublishers = 101", "workload.publishers: must be at most peers, which is 100"),
    (
        "[workload]\nsubscriptions_per_peer = 2",
        "workload.subscriptions_per_peer: must be from 0 to topics, which is 1",
    ),
    (
        "peers = 1000\n[workload]\ntopics = 100000",
        "workload.subscriptions_per_peer: peers × topics must not exceed 10000000",
    ),
    ("[workload]\nlimit = 3", 'workload.limit: has no meaning with kind = "fixed"; only with red'),
    ('[workload]\nkind = "reddit2007"\nlimit = 0', "workload.limit: must be at least 1"),
    ('[workload]\nkind = "reddit2007"\nmessages = 9', "workload.messages: has no meaning with"),
    ("[workload]\nzipf_exponent = 2.0", "workload.zipf_exponent: has no meaning with kind"),
    ('[workload]\narrivals = "poisson"', 'workload.arrivals: kind = "fixed" already says it'),
    ("[[faults]]\nat = 3", "faults[0].kind: is required; allowed: crash, restart, pause, resume, "),
    ('[[faults]]\nkind = "heal"', "faults[0].at: is required"),
    (
        '[[faults]]\nkind = "heal"\nat = 1\n[[faults]]\nkind = "crush"\nat = 3',
        "faults[1].kind: 'crush' is unknown; did you mean crash?; allowed: crash, restart, ",
    ),
    ('[[faults]]\nkind = "crash"\nat = 3', "faults[0].peers: crash needs peers or a fraction"),
    (
        '[[faults]]\nkind = "crash"\nat = 3\npeers = [100]',
        "faults[0].peers: 100 is no peer; 0 to 99 are",
    ),
    (
        '[[faults]]\nkind = "crash"\nat = 3\npeers = [5, 5]',
        "faults[0].peers: names peer 5 twice",
    ),
    (
        '[[faults]]\nkind = "crash"\nat = 3\npeers = [5]\nfraction = 0.5',
        "faults[0].fraction: excludes peers",
    ),
    (
        '[[faults]]\nkind = "crash"\nat = 3\npeers = [5]\nkeep_state = true',
        "faults[0].keep_state: goes with a duration, or with restart",
    ),
    (
        '[[faults]]\nkind = "heal"\nat = 3\nrate = 3.0',
        'faults[0].rate: has no meaning with kind = "heal"; only with slow-reader, byzantine',
    ),
    ('[[faults]]\nkind = "heal"\nat = -20', "faults[0].at: the run begins 10.0198s before"),
    (
        '[[faults]]\nkind = "partition"\nat = 1',
        "faults[0].groups: partition needs one of groups, peers, fraction",
    ),
    ('[[faults]]\nkind = "partition"\nat = 1\ngroups = 1', "faults[0].groups: must be 2 or more"),
    ('[[faults]]\nkind = "partition"\nat = 1\ngroups = 200', "faults[0].groups: there are 100"),
    (
        '[[faults]]\nkind = "partition"\nat = 1\ngroups = [[1], [1, 2]]',
        "faults[0].groups: names peer 1 twice",
    ),
    ("[churn]\nrate = 5\nfraction = 0.1", "churn.fraction: excludes rate"),
    ("[churn]\ndowntime = 0", "churn.downtime: must be at least 1ms"),
    ("[churn]\nmax_down = 0", "churn.max_down: must be more than 0, at most 1"),
    (
        '[churn]\ndistribution = "weibull"',
        "churn.distribution: 'weibull' is unknown; allowed: fixed, exponential",
    ),
    (f"warm_up = 1{'0' * 400}", "warm_up: 1000"),
    (f"peers = 1{'0' * 400}", "peers: "),
    (f"[workload]\nrate = 1{'0' * 400}", "workload.rate: "),
    (f"[workload]\npublishers = 1{'0' * 400}", "workload.publishers: "),
    ("[parameters]\nD = nan", "parameters: only what JSON keeps: text, "),
    (f"x = 1{'0' * 5000}", "scenario: not TOML: "),
    (f"x = {'[' * 50_000}", "scenario: not TOML: "),
    ("[parameters]\nD = 2026-01-01", "parameters: only what JSON keeps: text, "),
    ("x = [", "scenario: not TOML: "),
]


@pytest.mark.parametrize(("text", "message"), REFUSALS, ids=lambda value: value[:40])
def test_refusals_name_the_key_and_what_is_allowed(text: str, message: str) -> None:
    """Every rule's message begins with the full key and says what would fit."""
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        Scenario.parse(text)


def test_publishers_tell_counts_from_shares() -> None:
    """An integer counts peers; a number with a decimal point is a share of them."""
    assert Scenario.parse("[workload]\npublishers = 1").workload.publishers == 1
    share = Scenario.parse("[workload]\npublishers = 1.0").workload.publishers
    assert isinstance(share, float)


def test_changes_come_as_typed_on_a_command_line() -> None:
    """Dotted names reach into tables; text becomes the field's type; the result is validated."""
    changed = Scenario().changed(
        {"peers": "300", "links.loss": "5%", "check_codec": "true", "workload.publishers": "7"}
    )
    assert (changed.peers, changed.links.loss, changed.check_codec) == (300, 0.05, True)
    assert changed.workload.publishers == 7
    with pytest.raises(ConfigError, match=r"link\.loss: no such table; did you mean links\?"):
        Scenario().changed({"link.loss": "5%"})
    with pytest.raises(ConfigError, match=r"links\.los: there is no such key; did you mean loss\?"):
        Scenario().changed({"links.los": "5%"})
    with pytest.raises(ConfigError, match="peers: must be from 2"):
        Scenario().changed({"peers": "0"})


@pytest.mark.parametrize(
    ("text", "churn"), [("12", Churn(rate=12.0)), ("5%", Churn(fraction=0.05)), ("0", Churn())]
)
def test_churn_is_written_in_one_word(text: str, churn: Churn) -> None:
    """A number is peers per minute; a percentage is of all peers per minute."""
    assert Churn.parse(text) == churn


def test_impossible_churn_is_refused() -> None:
    """The refusal shows both ways of writing it."""
    with pytest.raises(ConfigError, match=r"churn: 'much' is no rate; .*such as 12, .*such as 5%"):
        Churn.parse("much")
    with pytest.raises(ConfigError, match=r"churn\.rate: must be from 0"):
        Churn.parse("-3")


def test_files_are_bounded_and_must_be_text(tmp_path: Path) -> None:
    """Missing, oversized and binary files are refused with their name."""
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read: No such file"):
        Scenario.load(tmp_path / "nowhere.toml")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        Scenario.load(large)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Scenario.load(binary)


def test_a_topology_file_lies_beside_its_scenario(tmp_path: Path) -> None:
    """A relative path means the scenario's folder, not the current one."""
    (tmp_path / "run.toml").write_text('[topology]\nkind = "file"\npath = "links.tsv"\n')
    assert Scenario.load(tmp_path / "run.toml").topology.path == str(tmp_path / "links.tsv")


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10), st.just([])
)
keys = st.sampled_from(
    [field.name for field in msgspec.structs.fields(Scenario)]
    + [field.name for field in msgspec.structs.fields(Fault)]
    + ["kind", "latency", "bandwidth", "rate"]
)
kinds = st.sampled_from([*get_args(TopologyKind), *get_args(WorkloadKind)])
values = st.recursive(
    scalars | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=5))
def test_any_table_is_a_scenario_or_refused(table: dict[str, object]) -> None:
    """Whatever a file holds, reading it gives a valid scenario or the declared error."""
    for lax in (False, True):
        try:
            scenario = Scenario.from_dict(table, lax=lax)
        except ConfigError:
            continue
        scenario.validate()
        assert scenario.workload_start >= 0


def test_every_key_is_documented() -> None:
    """The scenario page has a line for every key of every table."""
    text = (ROOT / "docs" / "scenarios.md").read_text()
    tables = [Scenario, *(type(getattr(Scenario(), key)) for key in _nested()), Fault]
    for table in tables:
        for field in msgspec.structs.fields(table):
            assert f"| `{field.name}` |" in text, f"{table.__name__}.{field.name}"


def _nested() -> list[str]:
    return ["topology", "links", "workload", "topic", "churn", "unsubscribing", "disk", "sync"]
