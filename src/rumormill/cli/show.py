"""Output for people: a table of figures, and a progress bar on a terminal.

The rule: a figure that could not be computed shows as a dash, never as zero; every reason for
which something was dropped has a line of its own.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rumormill.sim.scenario import Scenario

Figures = Mapping[str, Any]
Advance = Callable[[float], None]

MISSING = "–"

_REASONS = {
    "dropped": "dropped",
    "failed_publications": "publications failed",
    "skipped_publications": "publications skipped",
    "rpcs_dropped": "RPCs dropped",
    "rejected": "rejected",
    "refused": "refused",
    "penalties": "penalties",
}
"""Figures that are counts by reason, and what to call them."""


def show_runs(runs: Mapping[str, Figures], scenario: Scenario, replay: str) -> None:
    """Print the figures of one run or several, side by side, and how to repeat them."""
    load = scenario.workload.kind
    title = f"{scenario.peers:,} peers, {load}, {scenario.links.latency}, seed {scenario.seed}"
    print_table(title, {label: dict(_rows(figures)) for label, figures in runs.items()}, "0")
    for label, figures in runs.items():
        named = f" of {label}" if len(runs) > 1 else ""
        print(f"trace hash{named}: {figures['trace_hash']}")
    print(f"replay: {replay}")


def print_table(title: str, columns: Mapping[str, Mapping[str, str]], missing: str) -> None:
    """Print columns of named texts side by side; `missing` stands where a column has no text."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(title, style="bold", no_wrap=True)
    for label in columns:
        table.add_column(label, justify="right", overflow="fold")
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        table.add_row(name, *(column.get(name, missing) for column in columns.values()))
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


@contextmanager
def progress_bar(runs: int) -> Iterator[Callable[[str], Advance]]:
    """Yield what makes the progress function of a run; it does nothing off a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    with bar:
        started = 0

        def begin(label: str) -> Advance:
            nonlocal started
            started += 1
            counted = f" ({started} of {runs})" if runs > 1 else ""
            task = bar.add_task(f"{label}{counted}", total=1.0)
            return lambda part: bar.update(task, completed=part, refresh=True)

        yield begin


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    yield "planned publications", f"{figures['planned']:,}"
    yield "published", f"{figures['published']:,}"
    yield "delivered", f"{figures['delivered']:,}"
    yield "delivery ratio", as_percent(figures["delivery_ratio"])
    if figures["pending"]:
        yield "pending at the end", f"{figures['pending']:,}"
    yield "complete in the end", as_percent(figures["complete_ratio"])
    completing = figures["time_to_complete"]
    if completing["incomplete"]:
        yield "events not complete", f"{completing['incomplete']:,}"
    for level in ("p50", "p99", "max"):
        yield f"time to complete {level}", as_seconds(completing[level])
    for level in ("p50", "p90", "p99", "max"):
        yield f"latency {level}", as_seconds(figures[f"latency_{level}"])
    for percent, times in figures["time_to_reach"].items():
        yield f"reaching {percent} %, median", as_seconds(times["median"])
    yield "hops, mean", as_number(figures["hops_mean"])
    yield "hops, max", as_number(figures["hops_max"])
    yield "messages per delivery", as_number(figures["messages_per_delivery"])
    for cause, copies in figures["copies_by_cause"].items():
        yield f"copies: {cause}", f"{copies:,}"
    yield "duplicates per delivery", as_number(figures["duplicates_per_delivery"])
    yield "redundancy (RMR)", as_number(figures["rmr"])
    yield "data sent", as_size(figures["data_bytes"])
    yield "control sent", as_size(figures["control_bytes"])
    yield "load, p99 / mean", as_number(figures["load_p99_over_mean"])
    yield "load, max / mean", as_number(figures["load_max_over_mean"])
    yield from _reach_rows(figures)
    yield from _leaving_rows(figures)
    yield from _sync_rows(figures["sync"])
    for key, name in _REASONS.items():
        for reason, count in figures[key].items():
            yield f"{name}: {reason}", f"{count:,}"


def _reach_rows(figures: Figures) -> Iterator[tuple[str, str]]:
    """What NATs and relays did, where the scenario has any."""
    reach = figures.get("reach")
    if reach is None:
        return
    for kind, count in reach["connections"].items():
        yield f"connections, {kind}", f"{count:,}"
    yield "relayed", as_size(reach["relayed_bytes"])
    yield "relayed by the busiest", as_size(reach["busiest_relay_bytes"])
    for reason, count in reach["circuits_ended"].items():
        yield f"relayed connections ended: {reason}", f"{count:,}"


def _leaving_rows(figures: Figures) -> Iterator[tuple[str, str]]:
    """What unsubscribing did, where the scenario has any."""
    behind = figures.get("left_behind")
    if behind is None:
        return
    left = figures["unsubscribed"]
    yield "unsubscribed", f"{left['left']:,}"
    yield "deliveries after that", f"{left['deliveries']:,}"
    yield "copies after that", f"{left['copies']:,}"
    yield "subscriptions away at the end", f"{behind['ended']:,}"
    yield "entries left of them", f"{behind['entries']:,}"
    yield "links left of them", f"{behind['links']:,}"


def _sync_rows(sync: Figures) -> Iterator[tuple[str, str]]:
    """What sync did; nothing where there was none."""
    if not sync["sessions"]:
        return
    yield "fetched by sync", f"{sync['events']:,}"
    yield "data sent by sync", as_size(sync["data_bytes"])
    yield "control sent by sync", as_size(sync["control_bytes"])
    for outcome, count in sync["sessions"].items():
        yield f"sync sessions: {outcome}", f"{count:,}"


def as_number(value: float | None) -> str:
    """A number, whole or with two places."""
    if value is None:
        return MISSING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def as_percent(value: float | None) -> str:
    """A share as a percentage that rounds up to 100 only when it is exactly that."""
    if value is None:
        return MISSING
    text = f"{100 * value:.2f}"
    return f"{'99.99' if text == '100.00' and value < 1 else text} %"


def as_seconds(value: float | None) -> str:
    """A time, in the unit that suits it."""
    if value is None:
        return MISSING
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def as_size(value: float) -> str:
    """Bytes, in the unit that suits them."""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"
