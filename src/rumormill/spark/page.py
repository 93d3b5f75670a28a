"""A report as one page: tables and plots for a person who has a minute.

The first sentence says what became of everything. Then come the comparison, the best
configurations, the plots, what concerns single protocols, and how the page was made. The rule: the
page is whole in itself. It loads nothing, runs no script, follows the reader's choice of light or
dark, and whatever comes from a lake (names of topics, of runs, of files) is escaped before it is
written. A configuration has one colour and one mark in all plots of a section, and the section's
key stands above them once; what is not drawn for want of colours is said.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any, Final

from rumormill.spark.line_plot import LEAST_WIDTH, Series, Span, bar_plot, key_mark, line_plot
from rumormill.spark.report import grouped, headline

MOST_ROWS: Final = 200
MOST_TOPICS: Final = 20
MOST_ON_FRONT: Final = 6
LONG: Final = 4
"""A page of more sections has a table of contents."""

_SHOWN_SEEDS: Final = 12

_STYLE: Final = f"""
:root {{ color-scheme: light dark; --ink: #222; --soft: #5a5a5a; --rule: #dddddd; --ground: #fff;
  --star: #a87900; --row: #f6f6f3; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e4e4e4; --soft: #a5a5a5; --rule: #3d3d3d;
  --ground: #1b1b1b; --star: #e0b040; --row: #262626; }} }}
body {{ font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  margin: 2rem auto; max-width: 1360px; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: .2rem; }} h2 {{ font-size: 1.25rem; margin-top: 2.2rem; }}
h3 {{ font-size: 1rem; margin: 1.2rem 0 .3rem; }} p.note {{ color: var(--soft); margin: .3rem 0; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--rule); }}
td {{ white-space: nowrap; }} .words td {{ white-space: normal; }}
th {{ font-weight: 600; color: var(--soft); vertical-align: bottom; }}
th:first-child, td:first-child, .words td, .words th {{ text-align: left; }}
tr:hover td {{ background: var(--row); }} td.best {{ font-weight: 700; }}
tr.front td:first-child::after {{ content: " ★"; color: var(--star); }}
.plots {{ columns: {LEAST_WIDTH}px 3; column-gap: 1rem; }}
figure {{ margin: 0 0 1rem; border: 1px solid var(--rule); overflow-x: auto; max-width: 640px;
  break-inside: avoid; }}
figure svg {{ display: block; width: 100%; min-width: {LEAST_WIDTH}px; height: auto; }}
figure svg text {{ fill: var(--ink); }} figure svg .ground {{ fill: var(--ground); }}
figure svg .rule {{ stroke: var(--rule); }} figure svg .axis {{ stroke: var(--soft); }}
.key span {{ display: inline-block; margin-right: 1.2rem; white-space: nowrap; }}
td small {{ display: block; color: var(--soft); font-size: 12px; font-weight: 400;
  white-space: normal; }}
nav a {{ color: inherit; margin-right: 1rem; }}
p.headline {{ font-size: 1.15rem; margin: .6rem 0; }}
pre {{ overflow-x: auto; font-size: 13px; }} dl {{ margin: 0; }} dt {{ color: var(--soft); }}
dd {{ margin: 0 0 .4rem; overflow-wrap: anywhere; }}
"""

_COLUMNS: Final = (
    ("planned", "planned", "count", None),
    ("published", "published", "count", None),
    ("failed", "failed", "count", min),
    ("delivery_ratio", "delivered", "percent", max),
    ("complete_ratio", "complete in the end", "percent", max),
    ("time_to_complete_max", "time to complete", "seconds", min),
    ("latency_p50", "latency p50", "seconds", min),
    ("latency_p99", "latency p99", "seconds", min),
    ("messages_per_delivery", "messages per delivery", "number", min),
    ("duplicates_per_delivery", "duplicates per delivery", "number", min),
    ("bytes_per_delivery", "bytes per delivery", "number", min),
    ("load_max_over_mean", "busiest peer ÷ mean", "number", min),
    ("hops_mean", "hops", "number", min),
)


def page(
    report: Mapping[str, Any], title: str, made: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Write a report as HTML; `made` says when, how and with what it was made."""
    configurations = report["configurations"]
    groups = sections(configurations)
    body: list[str] = []
    if groups:
        body.append("<h2>Comparison</h2>")
    for (condition, peers), rivals in groups:
        body += [f"<h3>{escape(section_name(condition, peers))}</h3>", *_comparison(rivals)]
    body += _choices(report["best"], groups)
    for (condition, peers), rivals in groups:
        body += section_plots(condition, peers, rivals)
    body += against_size(configurations)
    body += _recovery(report["self_stabilisation"])
    body += _sync(report["sync_sessions"], report["runs"])
    body += _histories(report["dag_health"])
    body += _topics(report["topics"])
    body += _origin(report, made)
    said = headline(report["runs"])
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *([f'<p class="headline">{escape(said)}</p>'] if said else []),
        f'<p class="note">{_summary(report)}</p>',
        *_with_contents(body),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _with_contents(body: Sequence[str]) -> list[str]:
    """Sections under names of their own, behind a list of them if there are many."""
    found: list[str] = []
    links: list[str] = []
    for line in body:
        if line.startswith("<h2>"):
            name = f"section-{len(links) + 1}"
            text = line.removeprefix("<h2>").removesuffix("</h2>")
            links.append(f'<a href="#{name}">{text}</a>')
            found.append(f'<h2 id="{name}">{text}</h2>')
        else:
            found.append(line)
    return [f"<nav>{' '.join(links)}</nav>", *found] if len(links) > LONG else found


def _origin(report: Mapping[str, Any], made: Mapping[str, str]) -> list[str]:
    """When, how and of what the page was made."""
    seeds = sorted({str(run["seed"]) for run in report["runs"] if run["seed"] is not None})
    shown = ", ".join(seeds[:_SHOWN_SEEDS]) + (", …" if len(seeds) > _SHOWN_SEEDS else "")
    told = {**made, **({"seeds" if len(seeds) > 1 else "seed": shown} if seeds else {})}
    parts = [f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in told.items()]
    for each in report["scenarios"]:
        name = f"scenario {each['condition']}".strip()
        text = escape(json.dumps(each["scenario"], indent=2))
        parts.append(f"<dt>{escape(name)}</dt><dd><details><summary>as JSON</summary>")
        parts.append(f"<pre>{text}</pre></details></dd>")
    return ["<h2>How it was made</h2>", "<dl>", *parts, "</dl>"] if parts else []


def _summary(report: Mapping[str, Any]) -> str:
    runs, parts = report["runs"], ", ".join(map(escape, report["parts"]))
    said = [f"Parts of the lake: {parts}."]
    if runs:
        delivered = sum(run["delivered"] for run in runs)
        said.append(
            f"{len(runs):,} runs, {delivered:,} deliveries. Figures are means over runs that differ"
            " in their seed alone, with the least and the most of them below. ★ marks the Pareto"
            " front: no other configuration is at least as good in delivery, 99th percentile of"
            " latency and cost, and better in one of them."
        )
    return " ".join(said)


def _choices(best: Sequence[Mapping[str, Any]], groups: Sequence[Any]) -> list[str]:
    rivals = {key for key, members in groups if len(members) > 1}
    rows = [
        [
            section_name(each["condition"], each["peers"]),
            *[each[name] or "–" for name in ("delivery_ratio", "latency_p99", "cost")],
            ", ".join(each["pareto"][:MOST_ON_FRONT])
            + (", …" if len(each["pareto"]) > MOST_ON_FRONT else ""),
        ]
        for each in best[:MOST_ROWS]
        if (each["condition"], each["peers"]) in rivals
    ]
    if not rows:
        return []
    heads = ["under", "delivers most", "fastest (p99)", "cheapest", "Pareto front"]
    note = '<p class="note">Among equals the one that is better by the other two goals.</p>'
    return ["<h2>Best configurations</h2>", *_table(heads, rows, kind="words"), note]


def _comparison(rivals: Sequence[Mapping[str, Any]]) -> list[str]:
    best = {}
    for name, _, _, better in _COLUMNS:
        known = [each[name] for each in rivals if each[name] is not None]
        # What all have in common distinguishes nobody.
        best[name] = better(known) if better and len(dict.fromkeys(known)) > 1 else None
    rows = []
    for each in rivals[:MOST_ROWS]:
        cells = [f"<td>{escape(each['configuration'])}</td><td>{each['runs']}</td>"]
        for name, _, kind, _ in _COLUMNS:
            is_best = best[name] is not None and each[name] == best[name]
            mark = ' class="best"' if is_best else ""
            cells.append(f"<td{mark}>{_shown(each[name], kind)}{_spread(each, name, kind)}</td>")
        front = ' class="front"' if each["pareto"] and len(rivals) > 1 else ""
        rows.append(f"<tr{front}>{''.join(cells)}</tr>")
    heads = "".join(f"<th>{escape(text)}</th>" for _, text, _, _ in _COLUMNS)
    top = f"<tr><th>configuration</th><th>runs</th>{heads}</tr>"
    table = ['<div class="wide"><table>', top, *rows, "</table></div>"]
    if len(rivals) > MOST_ROWS:
        table.append(f'<p class="note">{len(rivals) - MOST_ROWS} more are in the JSON form.</p>')
    return table


def _spread(configuration: Mapping[str, Any], name: str, kind: str) -> str:
    """The least and the most over seeds, where they are not the same."""
    least, most = configuration["spread"].get(name, (None, None))
    if least == most or configuration[name] is None:
        return ""
    return f"<small>{_shown(least, kind)} – {_shown(most, kind)}</small>"


def _shown(value: float | None, kind: str) -> str:
    if value is None:
        return "–"
    if kind == "percent":
        text = f"{value:.2%}"
        return "99.99%" if text == "100.00%" and value < 1 else text
    if kind == "count":
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    if kind == "seconds":
        return f"{value:.3f} s" if value >= 1 else f"{value * 1000:.1f} ms"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _recovery(episodes: Sequence[dict[str, Any]]) -> list[str]:
    """How long the overlays of each run were not legitimate, all topics together."""
    if not episodes:
        return []
    rows = []
    for (run,), members in list(grouped(episodes, "run").items())[:MOST_ROWS]:
        starts = [each["seconds"] for each in members if each["episode"] == 0]
        later = [each["seconds"] for each in members if each["episode"] > 0]
        rows.append(
            [
                run,
                f"{len(dict.fromkeys(each['topic'] for each in members)):,}",
                _longest(starts),
                f"{len(later):,}",
                _longest(later),
                f"{sum(each['seconds'] is None for each in members):,}",
            ]
        )
    heads = ["run", "topics", "legitimate first after", "broken later", "longest until mended",
             "not mended"]  # fmt: skip
    note = "Of several topics the slowest. Costs by topic and time are in the JSON form."
    return ["<h2>Self-stabilisation</h2>", *_table(heads, rows), f'<p class="note">{note}</p>']


def _longest(seconds: Iterable[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    return f"{max(known):.1f} s" if known else "–"


def _sync(sessions: Sequence[dict[str, Any]], runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the sessions of each run came to, and what they cost."""
    costs = {run["run"]: run["sync_bytes_per_delivery"] for run in runs}
    rows = []
    for (run,), members in list(grouped(sessions, "run").items())[:MOST_ROWS]:
        ended = sorted(members, key=lambda each: (-each["sessions"], each["outcome"]))
        rows.append(
            [
                run,
                f"{sum(each['sessions'] for each in members):,}",
                ", ".join(f"{each['sessions']:,} {each['outcome']}" for each in ended),
                f"{sum(each['events'] for each in members):,}",
                _shown(costs.get(run), "number"),
            ]
        )
    heads = ["run", "sessions", "outcomes", "events fetched", "bytes per delivery"]
    return ["<h2>Sync</h2>", *_table(heads, rows)] if rows else []


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
    has_bytes = any(each["bytes"] is not None for each in topics)
    heads = ["topic", "part", "runs", "published in all", *(["bytes"] if has_bytes else [])]
    rows = []
    for each in topics[:MOST_TOPICS]:
        row = [str(each["topic"]), each["part"], str(each["runs"]), f"{each['published']:,}"]
        if has_bytes:
            row.append("–" if each["bytes"] is None else f"{each['bytes']:,}")
        rows.append(row)
    return ["<h2>Busiest topics</h2>", *_table(heads, rows)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> list[str]:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    lines = [f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows]
    opening = f'<table class="{kind}">' if kind else "<table>"
    return [f'<div class="wide">{opening}<tr>{top}</tr>', *lines, "</table></div>"]


MOST_LINES: Final = 8
"""Configurations in one plot: as many as there are colours."""

Section = tuple[tuple[Any, ...], list[dict[str, Any]]]

_CURVES: Final = (
    # title, x, y, curve, is x logarithmic, scale of y
    ("Latency", "seconds", "% of deliveries within", "latency_cdf", True, 1.0),
    ("Delivery over time", "published at, in seconds of the run", "% delivered",
     "delivery_over_time", False, 100.0),
    ("Load of the peers", "% of peers, idlest first", "messages sent ÷ mean",
     "load_distribution", False, 1.0),
)  # fmt: skip


def sections(configurations: Iterable[dict[str, Any]]) -> list[Section]:
    """Configurations under the same condition, larger networks first within a condition."""
    groups = grouped(configurations, "condition", "peers")
    return sorted(groups.items(), key=lambda item: (item[0][0], -item[0][1]))


def section_name(condition: str, peers: int) -> str:
    """What people call a condition and a size."""
    return f"{condition}, {peers:,} peers" if condition else f"{peers:,} peers"


def section_plots(condition: str, peers: int, rivals: list[dict[str, Any]]) -> list[str]:
    """The plots of one condition and size."""
    drawn = _chosen(rivals)
    numbers = {each["key"]: number for number, each in enumerate(drawn)}
    parts = [f"<h2>{escape(section_name(condition, peers))}</h2>"]
    if len(drawn) < len(rivals):
        parts.append(
            f'<p class="note">The plots show {len(drawn)} of {len(rivals)} configurations: the'
            " Pareto front first, then the others in the order of the table.</p>"
        )
    parts += [_key([each["configuration"] for each in drawn]), '<div class="plots">']
    for title, x_name, y_name, curve, is_log, scale in _CURVES:
        lines = [
            Series(
                each["configuration"],
                [(float(x), scale * y) for x, y in each[curve]],
                numbers[each["key"]],
            )
            for each in drawn
            if each[curve]
        ]
        if lines:
            plot = line_plot(
                title, x_name, y_name, lines, log_x=is_log, log_y=False, legend=False,
                ends=_percents(lines) if y_name.startswith("%") else None,
                spans=_marked(drawn) if curve == "delivery_over_time" else (),
            )  # fmt: skip
            parts.append(f"<figure>{plot}</figure>")
    parts += _duplicates(drawn, numbers)
    parts += _trade(rivals, numbers)
    return [*parts, "</div>"]


def _marked(drawn: Iterable[Mapping[str, Any]]) -> list[Span]:
    """The faults under which the configurations of a section ran."""
    return [
        Span(*each) for each in dict.fromkeys(fault for one in drawn for fault in one["faults"])
    ]


def _percents(lines: Sequence[Series]) -> tuple[float, float]:
    """The ends of an axis of percents: whole, or from the ten below if all is in the upper half."""
    least = min(y for line in lines for _, y in line.points)
    return (min(90.0, 10 * (least // 10)) if least >= 50 else 0.0), 100.0


def _chosen(rivals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is drawn, if not all can be: the front, then others, of every protocol one first."""
    ordered = sorted(rivals, key=lambda each: not each["pareto"])
    first: dict[str, dict[str, Any]] = {}
    for each in ordered:
        first.setdefault(each["protocol"], each)
    keys = dict.fromkeys([each["key"] for each in (*first.values(), *ordered)])
    chosen = list(keys)[:MOST_LINES]
    return [each for each in rivals if each["key"] in chosen]


def _key(names: Sequence[str]) -> str:
    spans = [f"<span>{key_mark(each)} {escape(name)}</span>" for each, name in enumerate(names)]
    return f'<p class="key">{"".join(spans)}</p>'


def _duplicates(drawn: Sequence[Mapping[str, Any]], numbers: Mapping[str, int]) -> list[str]:
    bars = [
        (each["configuration"], each["duplicates_per_delivery"], numbers[each["key"]])
        for each in drawn
        if each["duplicates_per_delivery"] is not None
    ]
    return [f"<figure>{bar_plot('Duplicates per delivery', bars)}</figure>"] if bars else []


def _trade(rivals: Sequence[Mapping[str, Any]], numbers: Mapping[str, int]) -> list[str]:
    """Latency against cost: every configuration is a point, those without a colour are grey."""
    known = [each for each in rivals if each["cost"] and each["latency_p99"] is not None]
    if len(known) < 2:
        return []
    unit = "messages" if any(each["bytes_per_delivery"] is None for each in known) else "bytes"
    rest = [_point(each) for each in known if each["key"] not in numbers]
    series = [Series("others", rest, 5, joined=False)] if rest else []
    series += [
        Series(each["configuration"], [_point(each)], numbers[each["key"]])
        for each in known
        if each["key"] in numbers
    ]
    plot = line_plot(
        "Latency against cost", f"{unit} per delivery", "p99 of latency, seconds", series,
        legend=False,
    )  # fmt: skip
    return [f"<figure>{plot}</figure>"]


def _point(configuration: Mapping[str, Any]) -> tuple[float, float]:
    return float(configuration["cost"]), float(configuration["latency_p99"])


def against_size(configurations: Iterable[dict[str, Any]]) -> list[str]:
    """Cost against the number of peers, where a lake has more than one size."""
    parts = []
    for (condition,), members in grouped(configurations, "condition").items():
        grown = _grown(members, "messages_per_delivery")
        if not grown:
            continue
        named = f": {condition}" if condition else ""
        names = list(grown)[:MOST_LINES]
        parts += [_key(names), '<div class="plots">']
        for figure in ("messages_per_delivery", "bytes_per_delivery"):
            lines = _grown(members, figure)
            series = [
                Series(name, lines[name], number)
                for number, name in enumerate(names)
                if name in lines
            ]
            if series:
                title = f"Cost against size{named}"
                y_name = figure.replace("_", " ")
                plot = line_plot(title, "peers", y_name, series, legend=False)
                parts.append(f"<figure>{plot}</figure>")
        parts.append("</div>")
    return ["<h2>Cost against the number of peers</h2>", *parts] if parts else []


def _grown(
    configurations: Iterable[Mapping[str, Any]], figure: str
) -> dict[str, list[tuple[float, float]]]:
    """A figure by the number of peers, of every configuration that has several sizes."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in configurations:
        if each[figure] is not None:
            points = lines.setdefault(each["configuration"], [])
            points.append((float(each["peers"]), float(each[figure])))
    return {name: sorted(points) for name, points in lines.items() if len(points) > 1}
