"""The mill's tables say of a trace what `trace.metrics` says of it, for every protocol.

The two ways share nothing but the definitions: one walks through the trace, the other joins.
"""

from pathlib import Path
from typing import Any

import pytest
from go_traces import (
    expected_of_go,
    load_of_go,
    overhead_of_go,
    write_go_batches,
    write_go_json,
    write_go_protobuf,
)
from mill_samples import ODD, SCENARIOS, simulate

from rumormill.spark.bronze import Source, TraceFile, find_source
from rumormill.spark.lake import Lake

pytestmark = pytest.mark.xdist_group("spark")

ROUNDING = 2e-9
"""A figure of the simulator has times of a floating-point clock, a trace whole nanoseconds."""


class Milled:
    """A lake with one part, and the figures that its runs should have."""

    def __init__(self, lake: Lake, figures: dict[str, dict[str, Any]]) -> None:
        self.lake = lake
        self.figures = figures

    def quality(self, run: str) -> dict[str, Any]:
        rows = self.lake.rows("delivery_quality")
        [found] = [row for row in rows if row["run"] == run and row["scope"] == "run"]
        return found

    def rows(self, table: str, run: str) -> list[dict[str, Any]]:
        return [row for row in self.lake.rows(table) if row["run"] == run]


@pytest.fixture(scope="module")
def milled(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Milled:
    """Everything in one part: a run of each protocol, and a go network in both formats."""
    from rumormill.spark.mill import mill

    folder = tmp_path_factory.mktemp("traces")
    figures = simulate(folder)
    found = find_source(str(folder), name="all")
    go = folder / "go"
    go.mkdir()
    files = [TraceFile("go-json", i, str(path)) for i, path in enumerate(write_go_json(go))]
    files.append(TraceFile("go-protobuf", 0, str(write_go_protobuf(go / "all.pb"))))
    files.append(TraceFile("go-remote", 0, str(write_go_batches(go / "all.pb.gz"))))
    (go / "empty.ndjson").touch()
    files.append(TraceFile("empty", 0, str(go / "empty.ndjson")))
    lake = Lake.create(tmp_path_factory.mktemp("lake"))
    mill(spark, Source("all", str(folder), (*found.files, *files)), lake)
    return Milled(lake, figures)


@pytest.mark.parametrize("protocol", list(SCENARIOS))
def test_delivery_quality_equals_the_simulators_figures(milled: Milled, protocol: str) -> None:
    """Ratio, latency, duplicates, hops and redundancy, from joins as from a walk."""
    figures, found = milled.figures[protocol], milled.quality(f"all/{protocol}")
    assert found["protocol"] == figures["protocol"]
    assert found["expected"] == figures["expected_deliveries"]
    assert found["dropped"] == sum(figures["dropped"].values())
    for name in (
        "planned", "published", "delivered", "pending", "remote_deliveries", "extra_deliveries",
        "repeated_deliveries", "messages_sent", "duplicates", "hops_max",
    ):  # fmt: skip
        assert found[name] == figures[name], name
    for name in (
        "delivery_ratio", "latency_p50", "latency_p90", "latency_p99", "latency_max",
        "hops_mean", "messages_per_delivery", "duplicates_per_delivery", "rmr",
    ):  # fmt: skip
        assert found[name] == pytest.approx(figures[name], rel=1e-12, abs=ROUNDING), name


@pytest.mark.parametrize("protocol", [*SCENARIOS, ODD])
def test_completeness_equals_the_simulators_figures(milled: Milled, protocol: str) -> None:
    """Who lacks what in the end, and how long it took until nobody did."""
    figures, found = milled.figures[protocol], milled.quality(f"all/{protocol}")
    times = figures["time_to_complete"]
    assert found["complete_ratio"] == figures["complete_ratio"]
    assert found["incomplete"] == times["incomplete"]
    assert found["delivered"] == figures["delivered"]
    assert found["synced_deliveries"] == figures["sync"]["deliveries"]
    assert (found["planned"], found["published"]) == (figures["planned"], figures["published"])
    for name in ("failed", "skipped"):
        assert found[name] == sum(figures[f"{name}_publications"].values()), name
        assert found[name] > 0 or protocol != ODD, name
    for name in ("p50", "p99", "max"):
        assert found[f"time_to_complete_{name}"] == pytest.approx(times[name], abs=ROUNDING), name
    judged = milled.rows("messages", f"all/{protocol}")
    assert sum(row["entitled"] > 0 for row in judged) == times["events"]
    for row in judged:
        assert (row["time_to_complete"] is None) == (row["missing"] > 0 or not row["entitled"])


@pytest.mark.parametrize("protocol", list(SCENARIOS))
def test_sync_equals_the_simulators_figures(milled: Milled, protocol: str) -> None:
    """Sessions by outcome, what they fetched, and what they sent; nothing where there is none."""
    sync, run = milled.figures[protocol]["sync"], f"all/{protocol}"
    rows = milled.rows("sync_sessions", run)
    assert {row["outcome"]: row["sessions"] for row in rows} == sync["sessions"]
    assert sum(row["events"] for row in rows) == sync["events"]
    kinds = {row["kind"]: row["bytes"] for row in milled.rows("overhead", run)}
    sizes = (sync["control_bytes"] + sync["data_bytes"], sync["data_bytes"])
    assert (kinds.get("sync", 0), kinds.get("sync-data", 0)) == sizes
    assert ("sync" in kinds) == bool(sync["sessions"])


def test_the_runs_are_worth_comparing(milled: Milled) -> None:
    """Pairs were dropped, left pending and delivered late; otherwise equality would say little."""
    every = milled.figures.values()
    assert any(figures["pending"] for figures in every)
    assert any(figures["dropped"].get("subscriber-down") for figures in every)
    assert any(set(figures["dropped"]) - {"subscriber-down"} for figures in every)
    assert any(figures["extra_deliveries"] for figures in every)
    ratios = [figures["complete_ratio"] for figures in every]
    assert min(ratios) < max(ratios) == 1.0
    assert milled.figures["away"]["sync"]["deliveries"], "to somebody who was up, and lost it"
    states = {row["state"] for row in milled.lake.rows("deliveries", ["state"])}
    assert states >= {"delivered", "pending", "dropped", "extra", "missed"}


@pytest.mark.parametrize("protocol", list(SCENARIOS))
def test_pairs_are_dropped_for_the_ledgers_reasons(milled: Milled, protocol: str) -> None:
    """Every pair's reason is the one that the ledger finds."""
    counted: dict[str, int] = {}
    for row in milled.rows("deliveries", f"all/{protocol}"):
        assert (row["reason"] is None) == (row["state"] != "dropped")
        if row["reason"] is not None:
            counted[row["reason"]] = counted.get(row["reason"], 0) + 1
    assert counted == milled.figures[protocol]["dropped"]


@pytest.mark.parametrize("protocol", list(SCENARIOS))
def test_overhead_and_load_equal_the_simulators_figures(milled: Milled, protocol: str) -> None:
    """Bytes and control messages by kind, and the skew of the load."""
    figures, run = milled.figures[protocol], f"all/{protocol}"
    kinds = {row["kind"]: row for row in milled.rows("overhead", run)}
    assert kinds["rpc"]["messages"] == figures["rpcs_sent"]
    assert kinds["message"]["messages"] == figures["messages_sent"]
    assert kinds["message"]["bytes"] == figures["data_bytes"]
    assert kinds["control"]["bytes"] == figures["control_bytes"]
    remote = figures["remote_deliveries"]
    assert kinds["control"]["bytes_per_delivery"] == figures["control_bytes"] / remote
    totals = ("rpc", "message", "control", "sync", "sync-data")
    control = {name: row["messages"] for name, row in kinds.items() if name not in totals}
    causes = {name[8:]: control.pop(name) for name in list(control) if name.startswith("copies: ")}
    assert control == figures["control_messages"]
    copies = figures["copies_by_cause"]
    assert causes == {cause: count for cause, count in copies.items() if cause != "spread"}
    assert sum(copies.values()) == figures["messages_sent"]
    loads = sorted(row["over_mean"] for row in milled.rows("peer_load", run))
    assert loads[-1] == pytest.approx(figures["load_max_over_mean"])


def test_windows_and_topics_add_up_to_the_run(milled: Milled) -> None:
    """Each level of `delivery_quality` counts every message and every pair once."""
    for protocol in SCENARIOS:
        run = f"all/{protocol}"
        whole = milled.quality(run)
        for scope in ("topic", "window", "topic-window"):
            rows = [row for row in milled.rows("delivery_quality", run) if row["scope"] == scope]
            for name in ("published", "expected", "delivered", "duplicates", "messages_sent",
                         "entitled", "missing"):  # fmt: skip
                assert sum(row[name] for row in rows) == whole[name], (run, scope, name)
        active = milled.rows("topic_activity", run)
        assert sum(row["published"] for row in active) == whole["published"]
        assert sum(row["delivered"] for row in active) == whole["delivered"]


def test_the_cdf_goes_through_the_percentiles(milled: Milled) -> None:
    """100 steps, rising, through p50, p90, p99 and the maximum."""
    for protocol in SCENARIOS:
        rows = milled.rows("latency_cdf", f"all/{protocol}")
        curve = {row["percent"]: row["latency"] for row in rows}
        quality = milled.quality(f"all/{protocol}")
        assert sorted(curve) == list(range(1, 101))
        assert [curve[key] for key in sorted(curve)] == sorted(curve.values())
        for percent, name in ((50, "p50"), (90, "p90"), (99, "p99"), (100, "max")):
            assert curve[percent] == quality[f"latency_{name}"]


def test_recovery_is_measured_from_the_first_message_to_legitimacy(milled: Milled) -> None:
    """The ring begins in an arbitrary state, loses members and becomes legitimate again."""
    figures = milled.figures["skipring"]
    episodes = sorted(milled.rows("self_stabilisation", "all/skipring"), key=lambda r: r["episode"])
    assert [row["episode"] for row in episodes] == list(range(len(episodes)))
    assert len(episodes) > 1, "the crash should have broken the ring"
    assert figures["legitimate"]
    # The interval between two looks is a second by default.
    assert episodes[-1]["legitimate_at"] == pytest.approx(figures["intervals_to_legitimate"])
    for row in episodes:
        assert row["seconds"] == pytest.approx(row["legitimate_at"] - row["lost_at"])
        assert row["rpcs"] > 0
    assert not milled.rows("self_stabilisation", "all/gossipsub")


GO_RUNS = ("go-json", "go-protobuf", "go-remote")


@pytest.mark.parametrize("run", GO_RUNS)
def test_a_go_trace_gives_the_metrics_that_plain_counting_gives(milled: Milled, run: str) -> None:
    """Four nodes' JSON files merged by their clocks, and protobuf files of all."""
    found = milled.quality(run)
    assert found["protocol"] == "gossipsub"
    for name, value in expected_of_go().items():
        # Of a wall clock an entry keeps about a quarter of a microsecond (docs/trace.md).
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-6), name
    reasons = [row["reason"] for row in milled.rows("deliveries", run) if row["reason"]]
    assert sorted(reasons) == ["subscriber-left"] * 5 + ["validation failed"]


@pytest.mark.parametrize("run", GO_RUNS)
def test_a_go_trace_gives_the_costs_that_plain_counting_gives(milled: Milled, run: str) -> None:
    """RPCs, messages and every kind of control; what each node bore. Go tells no bytes."""
    rows = milled.rows("overhead", run)
    assert {row["kind"]: row["messages"] for row in rows} == overhead_of_go()
    assert {row["bytes"] for row in rows if row["kind"] == "rpc"} == {0}
    loads = {
        row["peer"]: (row["rpcs_sent"], row["messages_sent"], row["duplicates"])
        for row in milled.rows("peer_load", run)
    }
    assert loads == load_of_go()


def test_an_empty_trace_is_a_run_of_nothing(milled: Milled) -> None:
    """It has a row in `runs`, no figures, and spoils nobody else's."""
    [run] = milled.rows("runs", "empty")
    assert run["protocol"] == "unknown"
    assert milled.rows("delivery_quality", "empty") == milled.rows("peer_load", "empty") == []


def test_traces_keep_every_entry_in_its_place(spark: Any, milled: Milled) -> None:
    """Bronze has the entries of each file, in the file's order."""
    traces = milled.lake.frame(spark, "traces")
    first = traces.where("run = 'go-json'").orderBy("moment", "seq").limit(1).collect()[0]
    assert (first["type"], first["topic"]) == (9, "blocks")
    assert Path(milled.lake.path / "parts" / "all").is_symlink()
