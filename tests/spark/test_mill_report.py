"""The report: right choices, a page that is whole in itself. None of this starts Spark."""

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_mill_lake import put

from rumormill.sim.scenario import Scenario
from rumormill.spark.lake import Lake
from rumormill.spark.line_plot import LEAST_WIDTH, WIDTH, Series, bar_plot, line_plot
from rumormill.spark.page import _percents, page
from rumormill.spark.report import collect, headline

NASTY = "<script>alert('x')</script>"

RUNS: tuple[tuple[str, int, str, float, float, float], ...] = (
    # protocol, peers, seed, delivery ratio, p99, bytes per delivery
    ("floodsub", 50, "1", 1.0, 0.10, 900.0),
    ("floodsub", 50, "2", 0.9, 0.20, 1100.0),
    ("gossipsub", 50, "1", 0.99, 0.30, 400.0),
    ("radius", 50, "1", 0.9, 0.40, 500.0),
    ("floodsub", 100, "1", 1.0, 0.20, 2000.0),
    ("gossipsub", 100, "1", 1.0, 0.20, 700.0),
)


def lake_of(folder: Path, runs: Any = RUNS, *, topic: str = "news") -> Lake:
    """A lake whose gold tables say what the tuples say."""
    tables: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("runs", "delivery_quality", "overhead", "peer_load", "latency_cdf",
                              "self_stabilisation", "sync_sessions", "dag_health",
                              "topic_activity")
    }  # fmt: skip
    for protocol, peers, seed, share, late, cost in runs:
        run = f"made/{protocol},n={peers},seed={seed}"
        key = {"run": run, "protocol": protocol}
        tables["runs"].append(
            {**key, "peers": peers, "seed": seed, "preset": "default", "parameters": "{}",
             "condition": "calm"}
        )  # fmt: skip
        figures = {
            "published": 10, "expected": 100, "delivered": round(100 * share),
            "delivery_ratio": share, "latency_p50": late / 2, "latency_p90": late,
            "latency_p99": late, "latency_max": late, "messages_per_delivery": cost / 100,
            "duplicates_per_delivery": 1.5, "rmr": 1.5, "hops_mean": 2.0, "hops_max": 3,
            "complete_ratio": share, "time_to_complete_p50": 0.0 if share == 1 else None,
            "time_to_complete_p99": 20 * late if share == 1 else None,
            "time_to_complete_max": 30 * late if share == 1 else None,
        }  # fmt: skip
        for scope, start in (("run", None), ("window", 20.0), ("window", 21.0)):
            row = {**key, "scope": scope, "window_start": start, **figures}
            tables["delivery_quality"].append(row)
        for kind, size in (("rpc", cost), ("control", cost / 4)):
            tables["overhead"].append(
                {**key, "kind": kind, "bytes": round(100 * size), "bytes_per_delivery": size}
            )
        for number in range(4):
            tables["peer_load"].append({**key, "peer": bytes([number]), "over_mean": number / 1.5})
        for percent in range(1, 101):
            tables["latency_cdf"].append(
                {**key, "percent": percent, "latency": late * percent / 100}
            )
    tables["self_stabilisation"].append(
        {"run": "made/ring", "protocol": "skipring", "topic": topic, "episode": 0, "lost_at": 0.0,
         "legitimate_at": 4.0, "seconds": 4.0, "rpcs": 12, "messages": 0, "bytes": 345}
    )  # fmt: skip
    for outcome, sessions, events in (("complete", 2, 30), ("equal", 9, 0)):
        run = {"run": "made/floodsub,n=50,seed=1", "protocol": "floodsub"}
        tables["sync_sessions"].append(
            {**run, "outcome": outcome, "sessions": sessions, "topics": 4, "unequal": 2,
             "events": events}
        )  # fmt: skip
    tables["overhead"].append({**run, "kind": "sync", "bytes": 1234, "bytes_per_delivery": 12.34})
    tables["dag_health"].append(
        {"run": "home", "protocol": "pulsarcast", "topic": topic, "events": 3, "valid": 3,
         "unsigned": 0, "faults": 0, "roots": 1, "heads": 1, "forks": 0, "gaps": 0,
         "is_chain": True, "is_whole": True}
    )  # fmt: skip
    tables["topic_activity"].append(
        {"run": "made/x", "protocol": "x", "topic": topic, "window_start": 0.0, "published": 7,
         "publishers": 1, "bytes": 99}
    )  # fmt: skip
    lake = Lake.create(folder / "lake")
    with lake.writing("made") as draft:
        for name, rows in tables.items():
            put(draft, name, rows)
    return lake


def found(report: dict[str, Any], protocol: str, peers: int) -> dict[str, Any]:
    [one] = [
        each
        for each in report["configurations"]
        if (each["protocol"], each["peers"]) == (protocol, peers)
    ]
    return one


def test_runs_of_several_seeds_are_one_configuration(tmp_path: Path) -> None:
    """Its figures are their means."""
    report = collect(lake_of(tmp_path))
    one = found(report, "floodsub", 50)
    assert one["runs"] == 2
    assert one["delivery_ratio"] == pytest.approx(0.95)
    assert one["bytes_per_delivery"] == pytest.approx(1000.0)
    assert one["control_bytes_per_delivery"] == pytest.approx(250.0)
    assert one["load_max_over_mean"] == pytest.approx(2.0)
    assert len(report["runs"]) == len(RUNS)


def test_a_time_to_complete_is_known_if_every_run_is_complete(tmp_path: Path) -> None:
    """A mean over those that are would be the better the more fail."""
    report = collect(lake_of(tmp_path))
    assert found(report, "floodsub", 50)["complete_ratio"] == pytest.approx(0.95)
    assert found(report, "floodsub", 50)["time_to_complete_max"] is None
    assert found(report, "floodsub", 100)["time_to_complete_max"] == 30 * 0.20


def test_a_page_tells_what_sync_did_and_what_it_cost(tmp_path: Path) -> None:
    """Outcomes, the most frequent first; nothing where there was none."""
    report = collect(lake_of(tmp_path))
    text = page(report, "x")
    row = ["made/floodsub,n=50,seed=1", "11", "9 equal, 2 complete", "30", "12.34"]
    assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" in text
    assert ">Sync</h2>" not in page({**report, "sync_sessions": []}, "x")


def test_a_percentage_is_a_hundred_only_if_it_is(tmp_path: Path) -> None:
    """One pair that is missing among a million is to be seen."""
    text = page(collect(lake_of(tmp_path, [("floodsub", 50, "1", 0.999_999, 0.1, 9.0)])), "x")
    assert "99.99%" in text
    assert "100.00%" not in text


def test_the_front_holds_what_no_other_beats(tmp_path: Path) -> None:
    """Under the same condition and size: slower, dearer and worse than another is off the front."""
    report = collect(lake_of(tmp_path))
    assert found(report, "floodsub", 50)["pareto"], "the fastest"
    assert found(report, "gossipsub", 50)["pareto"], "the cheapest, and delivers most"
    assert not found(report, "radius", 50)["pareto"]
    assert found(report, "gossipsub", 100)["pareto"]
    assert not found(report, "floodsub", 100)["pareto"], "as good, and dearer"
    best = {row["peers"]: row for row in report["best"]}
    assert best[50]["latency_p99"] == "floodsub"
    assert best[50]["delivery_ratio"] == best[50]["cost"] == "gossipsub"
    assert best[100]["latency_p99"] == "gossipsub", "among equals the cheaper one"
    assert best[50]["pareto"] == ["floodsub", "gossipsub"]


def test_configurations_of_another_condition_do_not_compete(tmp_path: Path) -> None:
    """Better numbers under an easier condition say nothing."""
    report = collect(lake_of(tmp_path, RUNS[:1]))
    assert [each["pareto"] for each in report["configurations"]] == [True]


def test_a_page_of_percents_shows_what_is_near_a_hundred() -> None:
    """The axis begins at the ten below the least, or at zero where much is lost."""
    near, far = Series("a", [(0.0, 97.0), (1.0, 100.0)]), Series("b", [(0.0, 30.0), (1.0, 99.0)])
    assert _percents([near]) == (90.0, 100.0)
    assert _percents([near._replace(points=[(0.0, 73.5)])]) == (70.0, 100.0)
    assert _percents([near, far]) == (0.0, 100.0)


def test_curves_begin_with_the_run_or_its_first_publication(tmp_path: Path) -> None:
    """A simulation's clock begins with the run; others begin with their first publication."""
    lake = lake_of(tmp_path)
    with lake.writing("sim") as draft:
        put(draft, "runs", [{"run": "sim", "scenario": "{}"}])
        window = {"run": "sim", "scope": "window", "window_start": 20.0, "expected": 1}
        whole = {"run": "sim", "scope": "run", "delivered": 1, "delivery_ratio": 1.0}
        put(draft, "delivery_quality", [{**window, "delivery_ratio": 1.0}, whole])
    [simulated] = [each for each in collect(lake)["configurations"] if each["runs"] == 1
                   and each["delivery_over_time"] == [(20.0, 1.0)]]  # fmt: skip
    assert simulated["peers"] == 0
    report = collect(lake)
    one = found(report, "gossipsub", 50)
    assert [at for at, _ in one["delivery_over_time"]] == [0.0, 1.0]
    assert [value for _, value in one["latency_cdf"]] == list(range(1, 101))
    assert len(one["load_distribution"]) == 100


class _Page(html.parser.HTMLParser):
    """Everything that a browser would fetch, and whether tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.loads += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> _Page:
    parsed = _Page()
    parsed.feed(text)
    parsed.close()
    return parsed


def test_a_page_loads_nothing(tmp_path: Path) -> None:
    """No scripts, no styles or pictures from elsewhere; the only address is SVG's own name."""
    text = page(collect(lake_of(tmp_path)), "A report")
    parsed = read(text)
    assert parsed.open == []
    assert all(each.startswith("a href=#section-") for each in parsed.loads)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & {*parsed.tags}
    assert set(re.findall(r"https?:[^\s\"'<]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text


def test_a_page_shows_table_and_plots(tmp_path: Path) -> None:
    """The comparison, five plots per condition and size, and cost against the number of peers."""
    text = page(collect(lake_of(tmp_path)), "A report")
    for title in (
        "Latency", "Delivery over time", "Load of the peers", "Duplicates per delivery",
        "Latency against cost",
    ):  # fmt: skip
        assert text.count(f">{title}</text>") == 2, title
    assert text.count(">Cost against size: calm</text>") == 2, "in messages and in bytes"
    order = [text.index(each) for each in (">Comparison</h2>", ">Best configurations</h2>", "<svg")]
    assert order == sorted(order)
    words = " ".join(read(text).text)
    for expected in ("95.00%", "99.00%", "200.0 ms", "1,000", "Self-stabilisation", "Histories"):
        assert expected in words
    assert len(text) < 500_000


def test_a_page_says_what_to_choose(tmp_path: Path) -> None:
    """The best by each goal and the front, under every condition and size."""
    text = page(collect(lake_of(tmp_path)), "A report")
    section = text.partition(">Best configurations</h2>")[2].partition("<h2 ")[0]
    rows = [re.findall(r"<td>(.*?)</td>", line) for line in section.splitlines()]
    assert ["calm, 50 peers", "gossipsub", "floodsub", "gossipsub", "floodsub, gossipsub"] in rows
    assert ["calm, 100 peers", *["gossipsub"] * 4] in rows
    assert 'class="front"><td>gossipsub' in text
    assert "Best configurations" not in page(collect(lake_of(tmp_path, RUNS[:1])), "No choice")


def test_a_page_follows_the_readers_choice_of_light_or_dark(tmp_path: Path) -> None:
    """Whatever a plot draws in black or white has a class that the page colours."""
    text = page(collect(lake_of(tmp_path)), "A report")
    assert "prefers-color-scheme: dark" in text
    for svg in re.findall(r"<figure>(.*?)</figure>", text, re.DOTALL):
        assert svg.count('fill="white"') == svg.count('class="ground"') == 1
        ruled = re.findall(r'<line class="(\w+)" [^>]*stroke="(#\w+)"', svg)
        assert {*ruled} <= {("rule", "#dddddd"), ("axis", "#333333")}


def test_a_topic_of_several_runs_says_so(tmp_path: Path) -> None:
    """Publications are those of all runs; bytes are shown where some source tells them."""
    lake = Lake.create(tmp_path / "lake")
    rows = [
        {"run": f"made/{run}", "protocol": "x", "topic": "news", "window_start": start,
         "published": 2, "publishers": 1, "bytes": None}
        for run in ("a", "b") for start in (0.0, 1.0)
    ]  # fmt: skip
    with lake.writing("made") as draft:
        put(draft, "topic_activity", rows)
    report = collect(lake)
    assert report["topics"] == [
        {"part": "made", "topic": "news", "runs": 2, "published": 8, "bytes": None}
    ]
    assert "<th>published in all</th></tr>" in page(report, "A sweep")
    with lake.writing("home") as draft:
        known = {"run": "home", "topic": "chat", "bytes": 99, "window_start": 0.0, "published": 1}
        put(draft, "topic_activity", [{"protocol": "x", "publishers": 1, **known}])
    told = page(collect(lake), "A sweep and a store")
    assert "<td>8</td><td>–</td>" in told
    assert "<td>1</td><td>99</td>" in told


def test_a_page_says_in_one_sentence_what_became_of_everything(tmp_path: Path) -> None:
    """Complete, or how much is missing; and what was acknowledged and lost, where that is known."""
    pairs = {"published": 10, "entitled": 100, "missing": 0, "lost": None, "acknowledged": None}
    whole, short = pairs, {**pairs, "missing": 3}
    assert headline([whole, whole]) == (
        "Nothing that was acknowledged is lost: in 2 runs all 20 messages are complete in the end,"
        " 200 of 200 pairs of message and entitled peer."
    )
    told = (
        "n 1 of 2 runs something is missing in the end, 3 of 200 pairs of message and entitled"
        " peer."
    )
    assert headline([whole, short]) == f"I{told}"
    audited = {"lost": 0, "acknowledged": 9}
    assert headline([{**short, **audited}, {**whole, **audited}]) == (
        f"None of 18 acknowledged messages is lost; i{told}"
    )
    gone = headline([{**whole, "lost": 2, "acknowledged": 9}])
    assert gone.startswith("2 of 9 acknowledged messages are lost; in 0 of 1 run")
    assert headline([{**pairs, "missing": None}]) == ""
    report = collect(lake_of(tmp_path))
    report["runs"] = [{**run, **pairs} for run in report["runs"]]
    assert f'<p class="headline">{headline(report["runs"])}</p>' in page(report, "A report")


def test_a_page_says_how_it_was_made(tmp_path: Path) -> None:
    """Date, command, versions, seeds and scenario; escaped."""
    text = page(faulty(tmp_path), "A report", {"date": "today", "command": f"sweep {NASTY}"})
    section = " ".join(read(text.partition(">How it was made</h2>")[2][:-15]).text)
    for expected in ("today", f"sweep {NASTY}", "seeds", "1, 2", "scenario stormy", '"workload"'):
        assert expected in section, expected
    assert "<nav>" in text


def test_seeds_are_spread_and_publications_are_told(tmp_path: Path) -> None:
    """The least and the most of several runs below their mean; planned, published and failed."""
    text = page(collect(lake_of(tmp_path)), "A report")
    assert "95.00%<small>90.00% – 100.00%</small>" in text
    assert "<th>planned</th><th>published</th><th>failed</th>" in text


def faulty(folder: Path) -> dict[str, Any]:
    """The report of two simulated runs with faults, and of a network that renamed its topics."""
    faults = [{"kind": "partition", "at": 5.0, "groups": 2, "duration": 4.0},
              {"kind": "crash", "at": 20.0, "peers": [1]}]  # fmt: skip
    scenario = Scenario.from_dict({"protocol": "floodsub", "faults": faults})
    lake = Lake.create(folder / "lake")
    figures = {"topic_names": {"zQmHash": "weather"}}
    runs = [f"sim/{seed}" for seed in "12"]
    with lake.writing("sim") as draft:
        shared = {"protocol": "floodsub", "condition": "stormy", "parameters": "{}", "peers": 50}
        made = {"scenario": json.dumps(scenario.to_dict()), "figures": json.dumps(figures)}
        put(draft, "runs", [{"run": run, "seed": run[-1], **shared, **made} for run in runs])
        start = scenario.workload_start
        put(draft, "delivery_quality", [
            {"run": run, "protocol": "floodsub", "scope": scope, "window_start": at, "expected": 9,
             "delivered": 9, "delivery_ratio": 1.0 - 0.2 * (at == start + 5), "published": 9,
             "planned": 9, "failed": 0, "entitled": 81, "missing": 0, "complete_ratio": 1.0}
            for run in runs
            for scope, at in [("run", None), *[("window", start + each) for each in range(30)]]
        ])  # fmt: skip
        put(draft, "topic_activity", [
            {"run": run, "protocol": "floodsub", "topic": "zQmHash", "window_start": 0.0,
             "published": 7} for run in runs
        ])  # fmt: skip
        put(draft, "dag_health", [{"run": runs[0], "protocol": "pulsarcast", "topic": "zQmHash",
                                   "events": 3}])  # fmt: skip
        session = {"outcome": "equal", "sessions": 2, "topics": 2, "unequal": 0, "events": 0}
        put(draft, "sync_sessions", [{"run": runs[0], "protocol": "floodsub", **session}])
    return collect(lake)


def test_faults_are_marked_where_they_were(tmp_path: Path) -> None:
    """In the plot over time, by the scenario; one that has no end goes on."""
    report = faulty(tmp_path)
    [one] = report["configurations"]
    start = round(one["delivery_over_time"][0][0], 1)
    assert one["faults"] == [(start + 5, start + 9, "partition"), (start + 20, None, "crash")]
    text = page(report, "A report")
    plot = text.partition(">Delivery over time</text>")[2].partition("</figure>")[0]
    assert plot.count('class="span"') == 2
    assert ">partition</text>" in plot
    assert text.count('class="span"') == 2, "and in no other"


def test_topics_have_the_names_that_people_gave_them(tmp_path: Path) -> None:
    """Where a protocol calls them by hashes."""
    report = faulty(tmp_path)
    assert [each["topic"] for each in report["topics"]] == ["weather"]
    assert [each["topic"] for each in report["dag_health"]] == ["weather"]


def test_type_in_plots_has_twelve_pixels(tmp_path: Path) -> None:
    """At the least width at which a page shows one."""
    text = page(collect(lake_of(tmp_path)), "A report")
    sizes = [int(size) for size in re.findall(r'font-size="(\d+)"', text)]
    assert sizes
    assert min(sizes) * LEAST_WIDTH / WIDTH >= 12
    assert f"min-width: {LEAST_WIDTH}px" in text


def test_names_from_a_lake_cannot_become_markup(tmp_path: Path) -> None:
    """A topic may be called anything."""
    text = page(collect(lake_of(tmp_path, topic=NASTY)), NASTY)
    assert NASTY not in text
    assert "script" not in read(text).tags


def test_a_lake_of_histories_alone_has_a_page(tmp_path: Path) -> None:
    """No traces were milled: no comparison, no plots, no failure."""
    text = page(collect(lake_of(tmp_path, ())), "Histories")
    assert "<svg" not in text
    assert "Histories" in text


def test_a_report_is_json(tmp_path: Path) -> None:
    """Without infinities or bytes, so that every reader of JSON takes it."""
    text = json.dumps(collect(lake_of(tmp_path)), allow_nan=False)
    assert json.loads(text)["parts"] == ["made"]


def test_more_configurations_than_colours_are_thinned_out(tmp_path: Path) -> None:
    """The table has all, the plots the front and one of each protocol first."""
    many = [(f"p{number:02}", 50, "1", 0.5, 1.0 + number, 100.0) for number in range(12)]
    text = page(collect(lake_of(tmp_path, many)), "Many")
    assert "The plots show 8 of 12 configurations" in text
    assert all(f"<td>p{number:02}</td>" in text for number in range(12))


def test_plots_need_something_to_draw() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        line_plot("empty", "x", "y", [Series("a", [])])
    with pytest.raises(ValueError, match="nothing to draw"):
        bar_plot("empty", [])


@pytest.mark.parametrize("values", [(6.5, 7.2), (30.0, 60.0), (0.002, 0.2), (3.0, 3.0), (1, 9e6)])
def test_a_logarithmic_axis_has_numbers_at_least_at_two_places(values: Any) -> None:
    """However close its values are to each other."""
    text = line_plot("t", "x", "y", [Series("a", [(one, one) for one in values])], legend=False)
    numbers = re.findall(r'text-anchor="end"[^>]*>([\d.,]+)</text>', text)
    assert len(numbers) >= 2
    assert len(numbers) == len({*numbers})


def test_a_plot_of_one_value_is_drawn() -> None:
    """Neither a single point nor zeros divide by zero."""
    read(line_plot("one", "x", "y", [Series("a", [(0.0, 0.0)])]))
    read(line_plot("flat", "x", "y", [Series("a", [(1.0, 5.0), (2.0, 5.0)])]))
    read(bar_plot("zero", [("a", 0.0, 0)]))
