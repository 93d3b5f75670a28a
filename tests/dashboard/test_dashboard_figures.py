"""What is shown of a trace is what its metrics and its ledger say, whatever is in it."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_nodes import run
from rumormill.cli.sim_dashboard import latest_of
from rumormill.core import trace
from rumormill.core.event import Event, Head
from rumormill.dashboard import aggregate, log_pages
from rumormill.dashboard import trace_sections as sections
from rumormill.dashboard.aggregate import Aggregator
from rumormill.dashboard.figures import SHOWN_BYTES, event_row, matches, percentile_of_boxes, ranked
from rumormill.dashboard.series import STEPS, Series, rounded, step_for
from rumormill.dashboard.sim_source import Feed, SimulationSource
from rumormill.dashboard.source import VIEWS, Look, wanted_sections
from rumormill.dashboard.trace_figures import TraceAggregator
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.trace.entries import Batch
from rumormill.trace.metrics import Metrics

PEERS = (b"a", b"b", b"c", b"d")
MESSAGES = (b"1", b"2", b"3", b"4", b"5")
TOPICS = ("t", "u")

peers = st.sampled_from(PEERS)
messages = st.sampled_from(MESSAGES)
topics = st.sampled_from(TOPICS)
reasons = st.sampled_from(["full", "down", ""])
metas = st.builds(
    trace.RpcMeta,
    messages=st.lists(st.builds(trace.MessageMeta, messages, topics), max_size=3).map(tuple),
    size=st.integers(100, 200),
    data_size=st.integers(0, 100),
    cause=st.sampled_from(["", trace.IWANT]),
).filter(lambda meta: meta.messages or not (meta.cause or meta.data_size))
payloads = st.one_of(
    st.builds(trace.PublishMessage, messages, topics),
    st.builds(trace.DeliverMessage, messages, topics, peers, st.sampled_from(["", "sync"])),
    st.builds(trace.DuplicateMessage, messages, peers, topics),
    st.builds(trace.RejectMessage, messages, peers, reasons, topics),
    st.builds(trace.UndeliverableMessage, messages, topics, reasons),
    st.builds(trace.FailPublish, topics, reasons),
    st.builds(trace.SendRPC, peers, metas),
    st.builds(trace.RecvRPC, peers, metas),
    st.builds(trace.DropRPC, peers, metas, reasons),
    st.builds(trace.Join, topics),
    st.builds(trace.Leave, topics),
    st.builds(trace.NodeUp),
    st.builds(trace.NodeDown, reasons),
    st.builds(trace.Graft, peers, topics),
    st.builds(trace.Prune, peers, topics),
    st.builds(trace.AddPeer, peers, st.just("/meshsub/1.1.0")),
    st.builds(trace.RemovePeer, peers),
    st.builds(trace.Refuse, peers, reasons, topics, st.integers(1, 3)),
    st.builds(trace.SyncEnded, peers, reasons),
    st.builds(trace.Stabilised, topics, st.booleans()),
)
traces = st.lists(st.tuples(st.floats(0, 3), peers, payloads), max_size=60).map(
    lambda entries: sorted(entries, key=lambda entry: entry[0])
)


def assert_agrees(shown: dict[str, Any], rows: list[dict[str, Any]], metrics: Metrics) -> None:
    """Totals and topics as they are shown, against the figures of the same trace."""
    figures, sums = metrics.summary(), metrics.ledger.total()
    assert shown["published"] == figures["published"]
    assert shown["delivered"] == sums.delivered == figures["delivered"]
    assert shown["pending"] == sums.pending == figures["pending"]
    assert shown["expected"] == shown["delivered"] + shown["pending"] + sum(
        shown["dropped"].values()
    )
    assert shown["dropped"] == ranked(figures["dropped"])
    assert shown["duplicates"] == figures["duplicates"]
    assert shown["failed"] == sum(figures["failed_publications"].values())
    assert shown["rejected"] == sum(figures["rejected"].values())
    assert shown["rejections"] == ranked(figures["rejected"])
    assert shown["copies"] == figures["copies_by_cause"]
    assert shown["bytes"]["data"] == figures["data_bytes"]
    assert shown["bytes"]["control"] == figures["control_bytes"]
    assert shown["copies_per_delivery"] == rounded(figures["messages_per_delivery"])
    by_topic = metrics.ledger.sums()
    for row in rows:
        if row["name"] in by_topic:
            expected = by_topic[row["name"]]
            assert (row["delivered"], row["pending"]) == (expected.delivered, expected.pending)
    assert sum(row["delivered"] for row in rows) == sums.delivered


@given(traces, st.integers(1, 20))
def test_totals_are_those_of_the_metrics_and_the_ledger(entries: Batch, size: int) -> None:
    """However the trace is cut into batches, and at every moment of it."""
    shown, metrics = TraceAggregator(0.5), Metrics()
    for start in range(0, len(entries), size):
        batch = entries[start : start + size]
        shown.observe(batch)
        metrics.observe(batch)
        assert_agrees(sections.totals(shown), sections.topics(shown, "")["rows"], metrics)
        assert shown.delivered == metrics.ledger.total().delivered
    shown.advance(10)
    points = shown.series.points(None)
    if points["t"]:
        delivered = sum(points["deliveries"]) * 0.5
        assert delivered == pytest.approx(shown.delivered)


@given(traces)
def test_every_section_of_every_trace_can_be_sent(entries: Batch) -> None:
    """And links name peers that are in the table."""
    figures = TraceAggregator()
    if entries:
        figures.observe(entries)
    peer_rows = sections.peers(figures)["rows"]
    for a, b, kind, _ in sections.links(figures, "", None)["rows"]:
        assert 0 <= a < len(peer_rows)
        assert 0 <= b < len(peer_rows)
        assert kind in ("mesh", "connected")
    for make in (sections.well, sections.latency, sections.degrees, sections.sync):
        msgspec.json.encode(make(figures))
    msgspec.json.encode(sections.protocol("x", figures, None))


PLANS: list[dict[str, Any]] = [
    {"protocol": "gossipsub", "churn.rate": 30.0},
    {"protocol": "floodsub", "links.loss": 0.2},
    {"protocol": "pulsarcast"},
    {"protocol": "skipring"},
    {"protocol": "radius"},
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan["protocol"])
def test_a_simulation_shows_what_its_figures_say(plan: dict[str, Any]) -> None:
    """Watched or not, it has the same trace; what machines show is shown too."""
    changes = {"peers": 12, "workload.messages": 12, "seed": 7, "topology.degree": 6, **plan}
    scenario = Scenario().changed(changes)
    source, metrics = SimulationSource("sim", {"protocol": ""}), Metrics()

    class Both:
        def __init__(self) -> None:
            self._feed = Feed(source)

        def observe(self, batch: Batch) -> None:
            metrics.observe(batch)
            self._feed.observe(batch)

        def close(self) -> None:
            self._feed.close()

    watched = run_scenario(
        scenario,
        observer=Both(),
        begun=lambda sim: source.begin(
            "run", "x", sim.plan.end, lambda: sim.machines, partial(latest_of, sim)
        ),
    )
    assert watched["trace_hash"] == run_scenario(scenario)["trace_hash"]
    found = run(lambda: source.look(Look(sections=wanted_sections(VIEWS))))
    assert_agrees(found["totals"], found["topics"]["rows"], metrics)
    assert len(found["peers"]["rows"]) >= 12
    assert found["links"]["rows"]
    assert found["compare"]["runs"][0]["totals"] == found["totals"]
    assert dict(found["protocol"]["rows"])["subscriptions"] in (12, 24)  # some have meta topics
    if plan["protocol"] == "pulsarcast":
        assert found["protocol"]["trees"]
        (head, logs), *others = found["heads"]["rows"]
        assert (found["heads"]["topic"], logs) == (newest_topic(found), 12)
        assert head in {row["id"] for row in found["recent"]["rows"]}
        assert not others
    else:
        assert found["heads"] is None
    if plan["protocol"] == "radius":
        assert found["protocol"]["coverage"]
    if plan["protocol"] == "skipring":
        (ring,) = found["protocol"]["ring"].values()
        assert ring["legitimate"]
        assert len(ring["labels"]) == len({label for _, label in ring["labels"]}) == 12
    newest = found["recent"]["rows"][-1]
    journey = run(lambda: source.journey(newest["id"]))
    reached = {hop["peer"] for hop in journey["hops"] if hop["kind"] == "deliver"}
    assert len(reached) == newest["deliveries"]
    assert journey["complete"] == (not journey["waiting"])
    assert reached.isdisjoint(journey["waiting"])


def newest_topic(found: dict[str, Any]) -> str:
    name: str = found["recent"]["rows"][0]["topic"]
    return name


def test_heads_are_what_none_follows() -> None:
    """By how many logs say so; where nobody names another, everything would be one."""

    def event(number: int, *parents: int) -> Event:
        named = tuple([bytes([each]) for each in parents])
        return Event("t", b"", b"", bytes([number]), parents=named)

    chain = [event(1), event(2, 1), event(3, 2)]
    assert log_pages.heads_of("t", [chain, chain[:2], [*chain, event(4, 2)]]) == {
        "topic": "t", "among": 4, "rows": [["03", 2], ["02", 1], ["04", 1]], "left_out": 0,
    }  # fmt: skip
    assert log_pages.heads_of("t", [[event(1), event(2)]]) is None
    assert log_pages.heads_of("t", []) is None
    roots = [event(number) for number in range(40)]
    found = log_pages.heads_of("t", [[*roots, event(41, 40)]])
    assert found is not None
    assert (len(found["rows"]), found["left_out"]) == (16, 25)


def test_tables_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries for journeys, topics, peers: what has no room is counted."""
    monkeypatch.setattr(aggregate, "KEPT_ENTRIES", 100)
    monkeypatch.setattr(aggregate, "MAX_TOPICS", 3)
    monkeypatch.setattr(aggregate, "MAX_PEERS", 5)
    figures = Aggregator()
    for number in range(50):
        name = f"{number}".encode()
        batch: Batch = [
            (float(number), b"me", trace.DeliverMessage(name, f"t{number}", name)),
            *[(float(number), b"me", trace.Refuse(name, f"r{number}"))] * 9,
        ]
        figures.observe(batch)
    assert sum(map(len, figures.kept)) <= 110
    assert len(figures.topics) == 4
    assert figures.topics["(other)"].delivered == 47
    assert len(figures.peers) == 5
    assert figures.peers_left_out > 0
    assert len(figures.recent) == aggregate.RECENT == 64 or len(figures.recent) == 50
    assert figures.delivered == 50
    assert sum(figures.refused.values()) == 450


def test_a_gap_in_a_trace_is_no_hour_of_nothing() -> None:
    figures = Aggregator()
    publish = trace.PublishMessage(b"1", "t")
    figures.observe([(0.0, b"a", publish), (1e9, b"a", publish), (1e9 + 1, b"a", publish)])
    assert len(figures.series.points(0.0)["t"]) <= 3


def test_series_forget_what_is_old_and_keep_its_minutes() -> None:
    series = Series()
    for second in range(2 * STEPS):
        series.add(float(second), {"deliveries": float(second)})
    found = series.points(None)
    assert found["t"] == sorted(found["t"])
    assert len(found["t"]) < 300 + 2 * STEPS // 60
    assert found["t"][0] < 120
    assert series.points(2 * STEPS - 3.0) == {
        "t": [2 * STEPS - 2.0, 2 * STEPS - 1.0],
        "deliveries": [2 * STEPS - 2.0, 2 * STEPS - 1.0],
    }
    assert series.points(1e9) == {"t": []}


@given(st.floats(1e-3, 1e8))
def test_a_trace_of_any_length_fits(seconds: float) -> None:
    step = step_for(seconds)
    assert 100 <= math.ceil(seconds / step) <= 601


@given(st.floats(-1e9, 1e9))
def test_numbers_keep_four_digits(value: float) -> None:
    found = rounded(value)
    assert found is not None
    assert found == pytest.approx(value, rel=1e-3, abs=0.51 if abs(value) >= 1e4 else 0)


def test_a_row_shows_text_as_text_and_cuts_what_is_long() -> None:
    def row(data: bytes, **more: Any) -> dict[str, Any]:
        return event_row(Event("t", data, b"", b"\x01", **more))

    assert row("<b>é</b>".encode())["text"] == "<b>é</b>"
    long = row(("é" * SHOWN_BYTES).encode())
    assert long["text"] == "é" * (SHOWN_BYTES // 2)
    assert (long["size"], long["cut"]) == (2 * SHOWN_BYTES, SHOWN_BYTES)
    odd = row(("x" + "é" * SHOWN_BYTES).encode())
    assert odd["text"] == "x" + "é" * (SHOWN_BYTES // 2 - 1)
    assert row(b"\xff")["text"] is None
    many = row(b"", head=Head(b"\xff", {f"{n}": "v" * 1000 for n in range(99)}, "a/b"))
    assert (many["key"], len(many["headers"])) == ("ff", 32)
    assert len(many["headers"]["0"]) == 256


def test_a_filter_is_plain_text() -> None:
    event = Event("t", b"hello (a+)+ world", b"", b"\xab\xcd", offset=12)
    for text in ("", "hello", "(a+)+", "12", "abcd"):
        assert matches(event, text)
    for text in ("h.llo", "1", "HELLO"):
        assert not matches(event, text)


def test_percentiles_of_boxes() -> None:
    boxes = {"0.1": 5.0, "1.0": 9.0, "+Inf": 10.0, "sum": 3.0}
    assert percentile_of_boxes(boxes, 0.5) == 0.1
    assert percentile_of_boxes(boxes, 0.9) == 1.0
    assert percentile_of_boxes({"+Inf": 0.0}, 0.5) is None


def test_the_tail_says_what_damage_and_retention_took(tmp_path: Path) -> None:
    """An offset that retention has taken is counted, not shown as nothing."""
    from rumormill.log.event_log import EventLog
    from rumormill.log.model import Retention

    with EventLog(tmp_path) as log:
        events = [Event("t", b"%d" % n, b"", b"%d" % n) for n in range(20)]
        log.append(events).result()
        log.retain({"t": Retention(max_events=5)}, 0.0)
        first = log.topic("t")
        assert first is not None
        assert first.first_offset > 0
        found = log_pages.read_tail(log, lambda event: event, "t", 0, "")
        assert found["more"] == first.first_offset
        assert [row["offset"] for row in found["rows"]] == [*range(first.first_offset, 20)]
        assert log_pages.read_tail(log, lambda event: event, "u", None, "")["rows"] == []
