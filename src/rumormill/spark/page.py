"""A report as one page: tables and plots for a person who has a minute.

The rule: the page is whole in itself. It loads nothing, runs no script, and whatever comes from a
lake (names of topics, of runs, of files) is escaped before it is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from rumormill.spark.line_plot import Series, bar_plot, key_mark, line_plot
from rumormill.version import __version__

MOST_LINES: Final = 8
"""Configurations in one plot: as many as there are colours."""

MOST_ROWS: Final = 200
MOST_TOPICS: Final = 20

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p.note { color: #555; margin-top: .2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e3e3e3; }
th { font-weight: 600; color: #444; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td.best { font-weight: 700; } tr.front td:first-child::after { content: " ★"; color: #b8860b; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); gap: 1rem; }
.plots svg { width: 100%; height: auto; border: 1px solid #eee; }
.key span { display: inline-block; margin-right: 1.2rem; white-space: nowrap; }
"""

_COLUMNS: Final = (
    ("delivery_ratio", "delivered", "percent", max),
    ("latency_p50", "latency p50", "seconds", min),
    ("latency_p99", "p99", "seconds", min),
    ("messages_per_delivery", "messages per delivery", "number", min),
    ("duplicates_per_delivery", "duplicates per delivery", "number", min),
    ("bytes_per_delivery", "bytes per delivery", "number", min),
    ("load_max_over_mean", "busiest peer ÷ mean", "number", min),
    ("hops_mean", "hops", "number", min),
)


def page(report: Mapping[str, Any], title: str) -> str:
    """Write a report as HTML."""
    configurations = report["configurations"]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{_summary(report)}</p>',
    ]
    for (condition, peers), rivals in _sections(configurations):
        parts += _section(condition, peers, rivals)
    parts += _against_size(configurations)
    parts += _recovery(report["self_stabilisation"])
    parts += _histories(report["dag_health"])
    parts += _topics(report["topics"])
    parts.append(f'<p class="note">rumormill {escape(__version__)}</p></body></html>')
    return "\n".join(parts) + "\n"


def _summary(report: Mapping[str, Any]) -> str:
    runs, parts = report["runs"], ", ".join(map(escape, report["parts"]))
    said = [f"Lake {escape(report['lake'])}: {parts}."]
    if runs:
        delivered = sum(run["delivered"] for run in runs)
        said.append(
            f"{len(runs):,} runs, {delivered:,} deliveries. Figures are means over runs that differ"
            " in their seed alone. ★ marks the Pareto front: no other configuration is at least as"
            " good in delivery, 99th percentile of latency and cost, and better in one of them."
        )
    return " ".join(said)


def _sections(
    configurations: Iterable[dict[str, Any]],
) -> list[tuple[tuple[str, int], list[dict[str, Any]]]]:
    """Configurations under the same condition, larger networks first within a condition."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for each in configurations:
        groups.setdefault((each["condition"], each["peers"]), []).append(each)
    return sorted(groups.items(), key=lambda item: (item[0][0], -item[0][1]))


def _section(condition: str, peers: int, rivals: list[dict[str, Any]]) -> list[str]:
    named = f"{condition}, {peers:,} peers" if condition else f"{peers:,} peers"
    drawn = _chosen(rivals)
    numbered = {each["key"]: number for number, each in enumerate(drawn)}
    parts = [f"<h2>{escape(named)}</h2>", *_comparison(rivals)]
    if len(drawn) < len(rivals):
        parts.append(
            f'<p class="note">The plots show {len(drawn)} of {len(rivals)} configurations: the'
            " Pareto front first, then the others in the order of the table.</p>"
        )
    keys = "".join(
        f"<span>{key_mark(numbered[each['key']])} {escape(each['configuration'])}</span>"
        for each in drawn
    )
    parts += [f'<p class="key">{keys}</p>', '<div class="plots">']
    for title, x_name, y_name, curve, is_log in (
        ("Latency", "seconds", "percent of deliveries within", "latency_cdf", True),
        ("Delivery over time", "seconds since the first publication", "delivered",
         "delivery_over_time", False),
        ("Load of the peers", "percent of peers, idlest first", "messages sent ÷ mean",
         "load_distribution", False),
    ):  # fmt: skip
        lines = [
            Series(each["configuration"], _drawable(each[curve]), numbered[each["key"]])
            for each in drawn
            if each[curve]
        ]
        if lines:
            parts.append(
                line_plot(title, x_name, y_name, lines, log_x=is_log, log_y=False, legend=False)
            )
    bars = [
        (each["configuration"], each["duplicates_per_delivery"], numbered[each["key"]])
        for each in drawn
        if each["duplicates_per_delivery"] is not None
    ]
    if bars:
        parts.append(bar_plot("Duplicates per delivery", bars))
    return [*parts, "</div>"]


def _drawable(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points]


def _chosen(rivals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is drawn, if not all can be: the front, then others, of every protocol one first."""
    ordered = sorted(rivals, key=lambda each: not each["pareto"])
    first: dict[str, dict[str, Any]] = {}
    for each in ordered:
        first.setdefault(each["protocol"], each)
    keys = dict.fromkeys([each["key"] for each in (*first.values(), *ordered)])
    chosen = list(keys)[:MOST_LINES]
    return [each for each in rivals if each["key"] in chosen]


def _comparison(rivals: Sequence[Mapping[str, Any]]) -> list[str]:
    best = {}
    for name, _, _, better in _COLUMNS:
        known = [each[name] for each in rivals if each[name] is not None]
        best[name] = better(known) if known else None
    rows = []
    for each in rivals[:MOST_ROWS]:
        cells = [f"<td>{escape(each['configuration'])}</td><td>{each['runs']}</td>"]
        for name, _, kind, _ in _COLUMNS:
            is_best = each[name] is not None and each[name] == best[name] and len(rivals) > 1
            mark = ' class="best"' if is_best else ""
            cells.append(f"<td{mark}>{_shown(each[name], kind)}</td>")
        front = ' class="front"' if each["pareto"] and len(rivals) > 1 else ""
        rows.append(f"<tr{front}>{''.join(cells)}</tr>")
    heads = "".join(f"<th>{escape(text)}</th>" for _, text, _, _ in _COLUMNS)
    table = [f"<table><tr><th>configuration</th><th>runs</th>{heads}</tr>", *rows, "</table>"]
    if len(rivals) > MOST_ROWS:
        table.append(f'<p class="note">{len(rivals) - MOST_ROWS} more are in the JSON form.</p>')
    return table


def _shown(value: float | None, kind: str) -> str:
    if value is None:
        return "–"
    if kind == "percent":
        return f"{value:.2%}"
    if kind == "seconds":
        return f"{value:.3f} s" if value >= 1 else f"{value * 1000:.1f} ms"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _against_size(configurations: Iterable[Mapping[str, Any]]) -> list[str]:
    """Cost against the number of peers, where a lake has more than one size."""
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for each in configurations:
        if each["messages_per_delivery"] is not None:
            named = lines.setdefault(each["condition"], {})
            points = named.setdefault(each["configuration"], [])
            points.append((float(each["peers"]), each["messages_per_delivery"]))
    parts = []
    for condition, named in lines.items():
        series = [
            Series(name, sorted(points)) for name, points in named.items() if len(points) > 1
        ][:MOST_LINES]
        if series:
            title = f"Cost against size{f': {condition}' if condition else ''}"
            numbered = [line._replace(number=number) for number, line in enumerate(series)]
            keys = "".join(
                f"<span>{key_mark(number)} {escape(line.name)}</span>"
                for number, line in enumerate(series)
            )
            plot = line_plot(title, "peers", "messages per delivery", numbered, legend=False)
            parts += [f'<p class="key">{keys}</p>', plot]
    if not parts:
        return []
    return ["<h2>Cost against the number of peers</h2>", '<div class="plots">', *parts, "</div>"]


def _recovery(episodes: Sequence[Mapping[str, Any]]) -> list[str]:
    if not episodes:
        return []
    rows = [
        [
            each["run"],
            each["topic"],
            "start" if each["episode"] == 0 else f"{each['lost_at']:.1f} s",
            "not mended" if each["seconds"] is None else f"{each['seconds']:.1f} s",
            f"{each['rpcs']:,}",
            f"{each['bytes']:,}",
        ]
        for each in episodes[:MOST_ROWS]
    ]
    heads = ["run", "topic", "broken at", "legitimate after", "RPCs until then", "bytes"]
    return ["<h2>Self-stabilisation</h2>", *_table(heads, rows)]


def _histories(histories: Sequence[Mapping[str, Any]]) -> list[str]:
    if not histories:
        return []
    counts = ("events", "valid", "unsigned", "faults", "heads", "forks", "gaps")
    rows = [
        [
            each["topic"],
            each["protocol"],
            *["–" if each[name] is None else f"{each[name]:,}" for name in counts],
            "yes" if each["is_whole"] else "no",
        ]
        for each in histories[:MOST_ROWS]
    ]
    return ["<h2>Histories</h2>", *_table(["topic", "protocol", *counts, "whole"], rows)]


def _topics(topics: Sequence[Mapping[str, Any]]) -> list[str]:
    if not topics:
        return []
    rows = [
        [str(each["topic"]), each["part"], f"{each['published']:,}", f"{each['bytes']:,}"]
        for each in topics[:MOST_TOPICS]
    ]
    title = "<h2>Busiest topics</h2>"
    return [title, *_table(["topic", "part", "published", "bytes known"], rows)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    lines = [f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows]
    return [f"<table><tr>{top}</tr>", *lines, "</table>"]
