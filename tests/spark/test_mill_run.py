"""The mill on Spark: stores, sweeps, and what is wrong with a source."""

import json
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mill_samples import DyingRoad, append
from spark_samples import LiveNode, fill, publish
from test_mill_lake import put
from verify_samples import IDENTITY, MAKERS, TOPIC, gossipsub, kept, pulsarcast

from processes import RUMORMILL, Program, rumormill
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.flight_server import open_server
from rumormill.daemon.flight_service import FlightService
from rumormill.log import EventLog
from rumormill.protocols.pulsarcast.history.graph import HistoryVerifier
from rumormill.spark.bronze import find_node, find_source
from rumormill.spark.lake import Lake
from rumormill.spark.page import page
from rumormill.spark.report import collect
from rumormill.spark.sweep import Grid

pytestmark = pytest.mark.xdist_group("spark")

GRIDS = Path(__file__).resolve().parents[2] / "grids"


def chain() -> list[Event]:
    """A Pulsarcast history with a fork, a missing event and a forged one."""
    events = pulsarcast(9, fork_at=3)
    del events[6]
    events[-1] = msgspec.structs.replace(events[-1], data=b"forged")
    return [kept("pulsarcast", event, number) for number, event in enumerate(events)]


def test_a_store_becomes_verified_events_and_the_health_of_its_histories(
    spark: Any, tmp_path: Path
) -> None:
    """What joins find in the links is what the walk of a history finds."""
    from rumormill.spark.mill import mill

    home, lake = tmp_path / "home", Lake.create(tmp_path / "lake")
    history = chain()
    events = [
        kept(protocol, event, number)
        for protocol in ("gossipsub", "radius", "skipring")
        for number, event in enumerate(MAKERS[protocol](4))
    ]
    append(home, [*events, *history])
    mill(spark, find_source(str(home)), lake)

    rows = lake.rows("events_verified")
    assert len(rows) == len(lake.rows("events")) == 12 + len(history)
    assert {row["fault"] for row in rows if row["protocol"] != "pulsarcast"} == {None}
    verifier = HistoryVerifier(TOPIC, IDENTITY)
    for event in history:
        verifier.check(event)
    report = verifier.report()
    linked = [row for row in rows if row["protocol"] == "pulsarcast"]
    assert {row["id"] for row in linked if row["fault"]} == {each.cid for each in report.faults}
    assert {row["id"] for row in linked if row["is_head"]} == {*report.heads}
    assert {row["id"] for row in linked if row["is_root"]} == {*report.roots}
    missing = {cid for row in linked for cid in row["missing_parents"]}
    assert missing == {gap.cid for gap in report.gaps}
    branching = {row["id"] for row in linked if row["children"] > 1}
    assert branching == {fork.cid for fork in report.forks if fork.cid is not None}

    health = {row["protocol"]: row for row in lake.rows("dag_health")}
    found = health["pulsarcast"]
    assert (found["events"], found["faults"]) == (len(history), len(report.faults))
    assert (found["heads"], found["roots"]) == (len(report.heads), len(report.roots))
    assert (found["gaps"], found["forks"]) == (len(report.gaps), len(report.forks))
    assert (found["is_whole"], found["is_chain"]) == (report.is_whole, report.is_chain)
    assert (health["radius"]["valid"], health["radius"]["heads"]) == (4, None)
    active = lake.rows("topic_activity")
    assert sum(row["published"] for row in active) == len(rows)
    assert sum(row["bytes"] for row in active) == sum(
        len(each.data) for each in [*events, *history]
    )
    assert "Histories" in page(collect(lake), "A store")


def test_a_truncated_trace_changes_nothing_in_the_lake(spark: Any, tmp_path: Path) -> None:
    """The error names the file and the line, and there is no part."""
    from rumormill.spark.mill import mill

    trace, lake = tmp_path / "cut.ndjson", Lake.create(tmp_path / "lake")
    line = '{"type":9,"peerID":"cGVlcg==","timestamp":1,"join":{"topic":"t"}}\n'
    trace.write_text(line * 3 + line[:30])
    with pytest.raises(LocalError, match=r"cut\.ndjson, line 4: ") as caught:
        mill(spark, find_source(str(trace)), lake)
    assert "\n" not in str(caught.value)
    assert lake.parts() == []
    assert list((lake.path / ".versions").iterdir()) == []


def test_a_damaged_store_leaves_the_part_of_before(spark: Any, tmp_path: Path) -> None:
    """The error names store, topic and offset; the lake is as it was."""
    from rumormill.spark.mill import mill

    home, lake = tmp_path / "home", lake_of_before(tmp_path, "home")
    append(home, [kept("gossipsub", event, number) for number, event in enumerate(gossipsub(5))])
    with sqlite3.connect(home / "events-1.db") as database:
        database.execute("UPDATE events SET data = x'00' WHERE key & 1023 = 3")
    database.close()
    with pytest.raises(LocalError, match=rf"'news' of the store {home}: offsets 3 to 3 cannot be"):
        mill(spark, find_source(str(home)), lake)
    check_untouched(lake)


def lake_of_before(folder: Path, part: str) -> Lake:
    """A lake with a part of this name, which what fails must leave as it is."""
    lake = Lake.create(folder / "lake")
    with lake.writing(part) as draft:
        put(draft, "runs", [{"run": "of before"}])
    return lake


def check_untouched(lake: Lake) -> None:
    assert [row["run"] for row in lake.rows("runs")] == ["of before"]
    assert len(list((lake.path / ".versions").iterdir())) == 1, "nothing half-written is left"


def test_a_wrong_token_changes_nothing_in_the_lake(spark: Any, store: Path, tmp_path: Path) -> None:
    """The sentence says where the right one is; with it, the door gives what the home gives."""
    from rumormill.spark.mill import mill

    lake, token = lake_of_before(tmp_path, "door"), tmp_path / "token"
    with EventLog(store, read_only=True) as log:
        door = open_server(FlightService(log), Endpoint("127.0.0.1", 0), "the right token")
        address = f"127.0.0.1:{door.port}"
        token.write_text("a wrong token\n")
        with pytest.raises(LocalError, match=r"refuses the token.*flight\.token") as caught:
            mill(spark, find_node(address, name="door", token_file=str(token)), lake)
        assert "\n" not in str(caught.value)
        check_untouched(lake)
        token.write_text("the right token\n")
        mill(spark, find_node(address, name="door", token_file=str(token)), lake)
        door.shutdown()
    assert len(lake.rows("events")) == 140


def test_a_node_that_dies_in_the_middle_changes_nothing_in_the_lake(
    spark: Any, store: Path, tmp_path: Path
) -> None:
    """The connection ends after the first rows: the sentence names the node."""
    from rumormill.spark.mill import mill

    lake, home = lake_of_before(tmp_path, "door"), tmp_path / "home"
    with EventLog(home) as log:
        fill(log, "news", 20_000)
        door = open_server(FlightService(log), Endpoint("127.0.0.1", 0), "token")
        (tmp_path / "token").write_text("token")
        with DyingRoad(door.port, after=300_000) as road:
            address = f"127.0.0.1:{road.port}"
            source = find_node(address, name="door", token_file=str(tmp_path / "token"))
            with pytest.raises(LocalError, match=f"the node at {address} cannot be reached"):
                mill(spark, source, lake)
            assert road.died, "it was in the middle"
        door.shutdown()
    check_untouched(lake)


GRID: dict[str, Any] = {
    "name": "small",
    "base": {"topology": {"degree": 4}, "workload": {"messages": 6}, "cool_down": 3, "warm_up": 3},
    "protocols": ["floodsub", "gossipsub", "pulsarcast", "radius:few", "skipring"],
    "peers": [8, 12],
    "conditions": {"calm": {}, "lossy": {"links.loss": 0.1}},
}


def check_report(report: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The report's numbers are the simulator's own, within the rounding of a clock."""
    figures = {row["run"]: json.loads(row["figures"]) for row in rows}
    assert [run["run"] for run in report["runs"]] == sorted(figures)
    for run in report["runs"]:
        own = figures[run["run"]]
        assert (run["peers"], run["seed"]) == (own["peers"], str(own["seed"]))
        assert run["expected"] == own["expected_deliveries"]
        for name in (
            "published", "delivered", "delivery_ratio", "latency_p50", "latency_p90",
            "latency_p99", "latency_max", "hops_mean", "hops_max", "messages_per_delivery",
            "duplicates_per_delivery", "rmr", "load_max_over_mean", "load_p99_over_mean",
            "complete_ratio",
        ):  # fmt: skip
            assert run[name] == pytest.approx(own[name], rel=1e-9, abs=2e-9), (run["run"], name)
        for name in ("p50", "p99", "max"):
            known = own["time_to_complete"][name]
            assert run[f"time_to_complete_{name}"] == pytest.approx(known, abs=2e-9)
        size = own["control_bytes"] + own["data_bytes"]
        assert run["bytes_per_delivery"] == pytest.approx(size / own["remote_deliveries"])


def test_a_sweep_reports_the_simulators_own_numbers(spark: Any, tmp_path: Path) -> None:
    """Every combination is in the lake; what an interrupted sweep has finished is not run again."""
    from rumormill.spark.sweep import simulate, sweep

    lake, grid = Lake.create(tmp_path / "lake"), Grid.from_dict(GRID)
    folder = lake.path / ".sweeps" / "small"
    folder.mkdir(parents=True)
    for run in grid.runs()[:3]:
        simulate(run, folder, "small")
    finished = {each: each.stat().st_mtime_ns for each in folder.iterdir()}
    assert len(finished) == 6, "a trace and figures of each"
    said: list[str] = []
    assert sweep(spark, grid, lake, tell=said.append) == {"runs": 20, "new": 17}
    assert said[0] == "20 simulations, 17 of them new"
    assert {each: each.stat().st_mtime_ns for each in finished} == finished
    report = collect(lake)
    check_report(report, lake.rows("runs"))
    assert {(each["condition"], each["peers"]) for each in report["best"]} == {
        ("calm", 8), ("calm", 12), ("lossy", 8), ("lossy", 12),
    }  # fmt: skip
    assert "Cost against size: lossy" in page(report, "A sweep")


LONGER = """
name = "killed"
protocols = ["floodsub"]
seeds = [1, 2, 3, 4, 5, 6]
[base]
peers = 20
topology.degree = 6
workload.messages = 60
"""


def test_a_sweep_that_was_killed_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    """SIGKILL for driver, JVM and workers after the first results; the rest is run, no more."""
    from rumormill.spark.sweep import sweep

    (tmp_path / "grid.toml").write_text(LONGER)
    folder = tmp_path / "lake" / ".sweeps" / "killed"
    command = [*RUMORMILL, "sweep", "grid.toml", "--master", "local[1]"]
    with Program(command, cwd=tmp_path, start_new_session=True) as program:
        while not list(folder.glob("*.json")):
            assert program.process.poll() is None, program.errors
            time.sleep(0.02)
        program.kill()
    finished = {each: each.stat().st_mtime_ns for each in sorted(folder.glob("[!.]*"))}
    figures = [each for each in finished if each.suffix == ".json"]
    assert 1 <= len(figures) < 6
    lake, grid = Lake.create(tmp_path / "lake"), Grid.load(tmp_path / "grid.toml")
    assert lake.parts() == []
    # A task that dies a little later than its driver may have finished one more.
    new = sweep(spark, grid, lake)["new"]
    assert 0 < new <= 6 - len(figures)
    assert {each: each.stat().st_mtime_ns for each in figures} == {
        each: finished[each] for each in figures
    }
    check_report(collect(lake), lake.rows("runs"))
    assert {each.suffix for each in folder.iterdir()} == {".json", ".parquet"}, "no drafts are left"


# The commands, as far as they come without Spark.


def test_commands_say_in_one_sentence_what_is_wrong(tmp_path: Path) -> None:
    for arguments, sentence in (
        (("mill", "no.ndjson", "--to", "lake"), "there is no "),
        (("mill", ".", "--to", "lake", "--once"), "holds neither a store nor a trace"),
        (("report", "no-lake"), "there is no lake"),
        (("sweep", "no.toml"), "no.toml: cannot be read"),
        (("mill", "127.0.0.1:4020", "--to", "lake"), "token"),
        (("mill", ".", "--token-file", "x", "--to", "lake"), "goes with the HOST:PORT of a node"),
    ):
        done = rumormill(*arguments, cwd=tmp_path)
        assert done.returncode in (1, 2)
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "lake").exists()


@pytest.mark.slow
def test_the_papers_workload_is_swept_milled_and_reported_in_one_command(tmp_path: Path) -> None:
    """The beginning of it, under all protocols, by one command, with the simulator's numbers."""
    done = rumormill(
        "sweep", str(GRIDS / "reddit2007.toml"), "--with", "workload.limit=60", "--to", "lake",
        "--master", "local[2]", "--report", "report.html", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["runs"]) == 5
    lake = Lake.existing(tmp_path / "lake")
    check_report(collect(lake), lake.rows("runs"))
    assert (tmp_path / "report.html").read_text().count("<figure>") == 5
    again = rumormill("report", "lake", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["parts"] == ["reddit2007"]
    repeated = rumormill(
        "sweep", str(GRIDS / "reddit2007.toml"), "--with", "workload.limit=60", "--to", "lake",
        "--master", "local[2]", cwd=tmp_path,
    )  # fmt: skip
    assert "5 simulations, 0 of them new" in repeated.stderr


@pytest.mark.slow
def test_a_simulators_trace_is_milled_by_the_command(tmp_path: Path) -> None:
    """From `sim --trace` to figures on the screen and a page."""
    rumormill("sim", "--peers", "12", "--degree", "4", "--trace", "storm.ndjson", cwd=tmp_path)
    done = rumormill("mill", "storm.ndjson", "--to", "lake", "--master", "local[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("storm: gossipsub, 100.00% delivered, p99 ")
    assert "delivery_quality" in done.stderr
    assert rumormill("report", "lake", cwd=tmp_path).stdout == "report.html\n"
    assert "storm" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_running_node_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    """What is published while the stream runs comes into the lake; Ctrl-C ends it quietly."""
    with LiveNode(tmp_path / "home") as node:
        token = str(node.home / "flight.token")
        command = [*RUMORMILL, "mill", node.endpoint, "--name", "live", "--token-file", token]
        command += ["--to", "lake", "--stream", "--interval", "1s", "--master", "local[2]"]
        with Program(command, cwd=tmp_path) as program:

            def taken() -> int:
                return sum("is in the lake" in line for line in program.errors)

            for number in range(2):
                publish(node.home, "news", [b"item %d" % number])
                program.wait_for(lambda n=number: taken() > n, "a batch that was taken")
            assert program.stop(signal.SIGINT) == 130
            assert program.errors[-1] == "rumormill: interrupted"
            assert "Traceback" not in "\n".join(program.errors)
    lake = Lake.existing(tmp_path / "lake")
    assert sorted(row["offset"] for row in lake.rows("events")) == [0, 1]
