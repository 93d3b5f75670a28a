"""`rumormill sim`, as people and scripts call it."""

import hashlib
import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from processes import RUMORMILL, environment, rumormill

SMALL = ("--peers", "20", "--messages", "5", "--degree", "6", "--seed", "3")

PROMISED_KEYS = {
    "protocol",
    "peers",
    "seed",
    "published",
    "expected_deliveries",
    "delivered",
    "delivery_ratio",
    "complete_ratio",
    "time_to_complete",
    "sync",
    "messages_per_delivery",
    "duplicates_per_delivery",
    "latency_p50",
    "latency_p90",
    "latency_p99",
    "latency_max",
    "hops_max",
    "control_bytes",
    "data_bytes",
    "load_p99_over_mean",
    "dropped",
    "trace_hash",
}


def figures(*arguments: str, **extra: str) -> dict[str, object]:
    """The JSON object that a run prints."""
    done = rumormill("sim", *arguments, "--json", **extra)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("protocol", ["floodsub", "gossipsub"])
def test_json_is_one_object_with_the_promised_keys(protocol: str) -> None:
    """Scripts find the same keys whatever the protocol, and nothing else on stdout."""
    found = figures(*SMALL, "--protocol", protocol)
    assert found.keys() >= PROMISED_KEYS
    assert (found["protocol"], found["peers"], found["seed"]) == (protocol, 20, 3)
    assert (found["published"], found["delivered"], found["delivery_ratio"]) == (5, 100, 1.0)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    """A run is its scenario and its seed: not the process, and not Python's hash seed."""
    sixty = ("--peers", "60", "--messages", "5", "--degree", "8", "--churn", "20%")
    first = figures(*sixty, "--seed", "1", PYTHONHASHSEED="1")
    again = figures(*sixty, "--seed", "1", PYTHONHASHSEED="4242")
    other = figures(*sixty, "--seed", "2", PYTHONHASHSEED="1")
    assert first == again
    assert first["trace_hash"] != other["trace_hash"]


def test_unsubscribing_has_figures_of_its_own() -> None:
    """With the flag they are there, and the load is the same."""
    calm: Any = figures(*SMALL)
    restless: Any = figures(*SMALL, "--unsubscribing", "1000")
    assert restless["published"] == calm["published"]
    assert calm["unsubscribed"]["left"] == 0 < restless["unsubscribed"]["left"]
    assert ("left_behind" in calm, "left_behind" in restless) == (False, True)
    assert "deliveries after that" in rumormill("sim", *SMALL, "--unsubscribing", "1000").stdout


def test_peers_behind_nats_have_figures_of_their_own() -> None:
    """Who they are, how they were reached, what relays carried; nothing where all are public."""
    behind = ("--set", "reach.punchable=40%", "--set", "reach.relay_only=20%")
    found: Any = figures(*SMALL, *behind)
    assert found["reach"]["peers"] == {"public": 8, "punchable": 8, "relay-only": 4}
    assert sum(found["reach"]["connections"].values()) >= 60
    assert found["refused"]["behind a NAT, and no relay"] == found["reach"]["dials_without_relay"]
    assert "reach" not in figures(*SMALL)
    assert "connections, punched" in rumormill("sim", *SMALL, *behind).stdout


def test_the_hash_is_that_of_the_written_trace(tmp_path: Path) -> None:
    """`sha256sum` of an NDJSON trace gives the trace hash, and nothing else is left behind."""
    path = tmp_path / "run.ndjson"
    found = figures(*SMALL, "--trace", str(path))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == found["trace_hash"]
    assert list(tmp_path.iterdir()) == [path]
    assert found["trace_hash"] == figures(*SMALL)["trace_hash"]


def test_set_reaches_the_parameters_of_the_protocol() -> None:
    """A smaller mesh changes what is sent; nested names are reached too."""
    plain = figures(*SMALL, "--set", "flood_publish=false")
    smaller = figures(*SMALL, "--set", "flood_publish=false", "--set", "D=3", "--set", "D_lo=2",
                     "--set", "D_out=1", "--set", "D_hi=3", "--set", "D_score=2")  # fmt: skip
    nested = figures(*SMALL, "--set", "score.decay_interval=2")
    assert plain["messages_per_delivery"] > smaller["messages_per_delivery"]  # type: ignore[operator]
    assert nested["delivery_ratio"] == 1.0


def test_flags_override_the_file_and_the_file_overrides_defaults(tmp_path: Path) -> None:
    """Flag, file, default: in this order. `--set` reaches scenario keys without a flag."""
    path = tmp_path / "scenario.toml"
    path.write_text(
        'protocol = "floodsub"\npeers = 12\nseed = 9\n'
        "[workload]\nmessages = 4\n[topology]\ndegree = 4\n"
    )
    found = figures(str(path), "--peers", "10", "--set", "workload.size=1kib")
    assert (found["protocol"], found["peers"], found["seed"]) == ("floodsub", 10, 9)
    assert found["published"] == 4
    assert found["data_bytes"] > 1024 * 4 * 9  # type: ignore[operator]


def test_messages_takes_the_first_events_of_the_reddit_workload() -> None:
    """The recorded workload has a fixed length, of which `--messages` plays a part."""
    found = figures("--workload", "reddit2007", "--messages", "3", "--peers", "20")
    assert found["published"] == 3


def test_every_message_can_go_through_the_codec() -> None:
    """The codec loses nothing, so that the round trip changes no figure.

    The hash is left out: a decoded message has no id yet when its arrival is traced.
    """
    checked, plain = figures(*SMALL, "--check-codec"), figures(*SMALL)
    assert {**checked, "trace_hash": ""} == {**plain, "trace_hash": ""}


def test_a_comparison_runs_the_same_plan_under_each_protocol() -> None:
    """Each entry publishes and expects the same; its figures are those of a run of its own."""
    compared = figures(*SMALL, "--compare", "floodsub,gossipsub:ethereum")
    runs: list[dict[str, object]] = compared["runs"]  # type: ignore[assignment]
    assert [run["label"] for run in runs] == ["floodsub", "gossipsub:ethereum"]
    assert len({(run["published"], run["expected_deliveries"]) for run in runs}) == 1
    alone = figures(*SMALL, "--protocol", "gossipsub", "--preset", "ethereum")
    assert runs[1] == {"label": "gossipsub:ethereum", **alone}


def test_a_comparison_gives_parameters_to_those_that_have_them() -> None:
    """`D` is GossipSub's; FloodSub runs as it would without."""
    compared = figures(*SMALL, "--compare", "floodsub,gossipsub", "--set", "D=8")
    runs: list[dict[str, object]] = compared["runs"]  # type: ignore[assignment]
    flood = figures(*SMALL, "--protocol", "floodsub")
    gossip = figures(*SMALL, "--protocol", "gossipsub", "--set", "D=8")
    assert [run["trace_hash"] for run in runs] == [flood["trace_hash"], gossip["trace_hash"]]


def test_a_comparison_gives_sync_to_those_that_do_not_repair_histories() -> None:
    """The skip ring runs as it would without."""
    synced = ("--set", "sync.enabled=true")
    compared = figures(*SMALL, "--compare", "gossipsub,skipring", *synced)
    runs: list[dict[str, object]] = compared["runs"]  # type: ignore[assignment]
    gossip = figures(*SMALL, "--protocol", "gossipsub", *synced)
    ring = figures(*SMALL, "--protocol", "skipring")
    assert [run["trace_hash"] for run in runs] == [gossip["trace_hash"], ring["trace_hash"]]
    assert [bool(run["sync"]["sessions"]) for run in runs] == [True, False]  # type: ignore[index]


def test_people_get_a_table_the_hash_and_a_command_that_replays() -> None:
    """The replay line, run as it stands, gives the same hash."""
    done = rumormill("sim", "--peers", "10", "--messages", "2", "--degree", "4")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "delivery ratio" in done.stdout
    assert "\x1b" not in done.stdout
    replay = lines["replay"].split()
    assert replay[0] == "rumormill"
    assert replay[-2:] == ["--seed", "1"]
    assert rumormill(*replay[1:], "--json").stdout.count(lines["trace hash"]) == 1


def test_every_parameter_is_listed_with_its_value_and_source() -> None:
    """What `--set` reaches can be looked up, nested parameters included."""
    found = figures("--list-parameters", "--protocol", "gossipsub", "--preset", "ethereum")
    listed = {entry["name"]: entry for entry in found["parameters"]}  # type: ignore[attr-defined]
    assert listed["D"]["value"] == 8
    assert "1.0" in listed["D"]["text"]
    assert "score.decay_interval" in listed
    done = rumormill("sim", "--list-parameters", "--protocol", "floodsub")
    assert "seen_ttl = 120.0" in done.stdout


WRONG = {
    "no number": ("--peers", "many"),
    "too few peers": ("--peers", "1"),
    "no share": ("--loss", "2"),
    "no protocol": ("--protocol", "gosipsub"),
    "no preset": ("--preset", "moonbase"),
    "no parameter": ("--set", "DD=3"),
    "no value": ("--set", "D"),
    "a value that does not fit": ("--set", "D=six"),
    "values that contradict": ("--set", "D=3"),
    "no scenario key": ("--set", "links.colour=red"),
    "no latency model": ("--latency", "warp"),
    "no rate of churn": ("--churn", "often"),
    "no rate of unsubscribing": ("--unsubscribing", "often"),
    "no workload": ("--workload", "reddit2008"),
    "no file": ("missing.toml",),
    "no flag": ("--frobnicate",),
    "a shortened flag": ("--peer", "10"),
    "no folder for the trace": ("--trace", "missing/run.ndjson"),
    "no trace format": ("--trace", "run.docx"),
    "compared with itself": ("--compare", "floodsub,floodsub"),
    "compared with nothing": ("--compare", "floodsub,"),
    "two ways to say what runs": ("--compare", "floodsub", "--protocol", "gossipsub"),
    "one file for two traces": ("--compare", "floodsub,gossipsub", "--trace", "run.ndjson"),
    "sync for a protocol that needs none": (
        "--protocol",
        "skipring",
        "--set",
        "sync.enabled=true",
    ),
    "a start that the protocol does not know": ("--start", "legitimate"),
    "one file for two states": (
        "--compare",
        "skipring,gossipsub",
        "--dump-state",
        "state.json",
    ),
    "no folder for the state": ("--protocol", "skipring", "--dump-state", "missing/state.json"),
    "a parameter that nobody has": ("--compare", "floodsub", "--set", "D=8"),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_gives_one_sentence_and_exit_code_two(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """No traceback, no usage page, nothing on stdout, no file."""
    done = rumormill("sim", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("rumormill")
    assert list(tmp_path.iterdir()) == []


def test_a_skip_ring_has_starts_states_and_figures_of_its_own(tmp_path: Path) -> None:
    """`--start` and `--dump-state`, and the figures that the protocol adds."""
    path = tmp_path / "state.json"
    arguments = ("--protocol", "skipring", "--peers", "9", "--messages", "3", "--json")
    done = rumormill("sim", *arguments, "--start", "arbitrary", "--dump-state", str(path))
    figures = json.loads(done.stdout)
    assert figures["legitimate"] is True
    assert {"intervals_to_legitimate", "average_degree", "max_degree"} <= figures.keys()
    peers = json.loads(path.read_text())
    assert len(peers) == 10
    assert sum("topic-0" in each["state"]["members"] for each in peers.values()) == 9


def test_the_state_of_every_protocol_can_be_dumped(tmp_path: Path) -> None:
    """By peer: what it shows, and all that it knows."""
    path = tmp_path / "state.json"
    arguments = ("--peers", "9", "--messages", "3", "--dump-state", str(path))
    assert rumormill("sim", *arguments).returncode == 0
    peers = json.loads(path.read_text())
    assert len(peers) == 9
    for peer in peers.values():
        assert peer["view"]["subscriptions"] == ["topic-0"]
        assert peer["view"]["links"]["mesh"]["topic-0"]
        assert peer["state"]["type"] == "GossipSub"


def test_a_failed_run_names_its_seed_and_the_way_to_repeat_it(tmp_path: Path) -> None:
    """A trace that cannot be written ends the run with exit code 1 and a replay command."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is always full")
    (tmp_path / "run.ndjson.part").symlink_to(full)
    done = rumormill("sim", *SMALL, "--trace", "run.ndjson", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "seed: 3\n" in done.stderr
    assert (
        "replay: rumormill sim --peers 20 --messages 5 --degree 6 --seed 3 --trace" in done.stderr
    )


def test_ctrl_c_ends_a_run_with_one_line_and_leaves_no_trace(tmp_path: Path) -> None:
    """Progress shows on a terminal; once it does, the run is under way and can be interrupted."""
    terminal, side = pty.openpty()
    long_run = ("--peers", "50", "--messages", "5000", "--trace", "run.ndjson")
    with subprocess.Popen(
        [*RUMORMILL, "sim", *long_run],
        cwd=tmp_path,
        env=environment(TERM="xterm", NO_COLOR="1"),
        stdout=subprocess.PIPE,
        stderr=side,
    ) as run:
        os.close(side)
        try:
            seen = read_until(terminal, b"1 %")
            assert [path.name for path in tmp_path.iterdir()] == ["run.ndjson.part"]
            run.send_signal(signal.SIGINT)
            seen += read_until(terminal, b"interrupted")
            output, _ = run.communicate()
        finally:
            run.kill()
    os.close(terminal)
    assert run.returncode == 130
    assert output == b""
    assert b"Traceback" not in seen
    assert list(tmp_path.iterdir()) == []


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What a terminal shows up to the wanted text; fails where it ends without."""
    seen = b""
    while wanted not in seen:
        try:
            seen += os.read(terminal, 1024)
        except OSError:
            pytest.fail(f"the terminal closed after {seen!r}")
    return seen
