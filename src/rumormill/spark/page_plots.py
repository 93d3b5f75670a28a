"""The plots of a report's page: of every condition and size, and of cost against size.

The rule: a configuration has one colour and one mark in all plots of a section, and the section's
key stands above them once. What is not drawn for want of colours is said.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from rumormill.spark.line_plot import Series, bar_plot, key_mark, line_plot
from rumormill.spark.report import grouped

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
            )  # fmt: skip
            parts.append(f"<figure>{plot}</figure>")
    parts += _duplicates(drawn, numbers)
    parts += _trade(rivals, numbers)
    return [*parts, "</div>"]


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
