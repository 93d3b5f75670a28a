"""`rumormill top`: one screen about a running node, in the terminal.

It shows the sections of the dashboard, as the node tells them over its control socket. Names that
peers have chosen are printed as text: nothing in them moves the cursor or has a colour.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.printing import plain
from rumormill.cli.session import run_async, set_by
from rumormill.cli.show import MISSING, as_number, as_seconds, as_size
from rumormill.daemon.homes import HomeSource
from rumormill.dashboard.source import Look, Sections

SECTIONS: Final = (
    "source", "well", "totals", "latency", "process", "series", "topics", "peers", "sync",
)  # fmt: skip
_ROWS: Final = 20
"""Of a table, where the screen does not say how many fit."""
_NARROW: Final = 80
_GIVE_WAY: Final = ("copies", "mesh", "next", "from", "score")
"""Columns that are left out of a terminal that is narrower than that, so that names have room."""
_FIRST_LOOK: Final = 1.2
"""Seconds until there is a rate to show."""
_ORDERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "rate": lambda row: (-(row.get("rate") or 0), row["name"]),
    "delivered": lambda row: (-row["delivered"], row["name"]),
    "bytes": lambda row: (-row.get("bytes", 0), row["name"]),
    "name": lambda row: row["name"],
}


def run_top(options: argparse.Namespace) -> int:
    """Show the node of the home until q or Ctrl-C."""
    resolved = begin(options)
    try:
        interval = float(options.interval)
    except ValueError:
        interval = 0.0
    if not 0.2 <= interval <= 3600:
        raise CommandError("--interval: 0.2 to 3600 seconds", USAGE)
    return run_async(_run(HomeSource(resolved.home), interval, options))


async def _run(source: HomeSource, interval: float, options: argparse.Namespace) -> int:
    look = Look(sections=SECTIONS, series_after=0.0)
    try:
        await source.look(look)
        await asyncio.sleep(_FIRST_LOOK)
        if options.once or options.json:
            await _print(source, look, interval, options)
        else:
            await _keep_showing(source, look, interval, options.sort)
    finally:
        await source.close()
    return 0


async def _print(
    source: HomeSource, look: Look, interval: float, options: argparse.Namespace
) -> None:
    while True:
        found = await source.look(look)
        if options.json:
            print(json.dumps(figures(found, options.sort)), flush=True)
        else:
            width = None if sys.stdout.isatty() else 120
            console = Console(highlight=False, width=width)
            console.print(screen(found, options.sort, _ROWS, console.width))
        if options.once:
            return
        await asyncio.sleep(interval)


async def _keep_showing(source: HomeSource, look: Look, interval: float, order: str) -> None:
    stop = set_by(signal.SIGINT, signal.SIGTERM)
    console = Console(highlight=False)
    with _keys(stop), Live(console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            found = await source.look(look)
            rows = max(3, (console.height - 14) // 2)
            live.update(screen(found, order, rows, console.width), refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await stop.wait()


@contextlib.contextmanager
def _keys(stop: asyncio.Event) -> Iterator[None]:
    """Hear of a q; the terminal is as before in the end."""
    if not sys.stdin.isatty():
        yield
        return
    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(stdin)

    def look() -> None:
        typed = os.read(stdin, 64)
        if not typed or b"q" in typed:
            stop.set()

    tty.setcbreak(stdin)
    loop.add_reader(stdin, look)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _last(found: Sections, name: str) -> float | None:
    """The last known point of a series."""
    known = [value for value in found["series"].get(name, ()) if value is not None]
    return known[-1] if known else None


def figures(found: Sections, order: str) -> dict[str, Any]:
    """What the screen shows, for programs."""
    return {
        "node": found["source"]["title"],
        "protocol": found["source"]["protocol"],
        "well": found["well"]["ok"],
        "sentence": found["well"]["sentence"],
        "deliveries_per_second": _last(found, "deliveries"),
        "appends_per_second": _last(found, "appends"),
        "latency_p50": found["latency"]["p50"],
        "latency_p99": found["latency"]["p99"],
        "totals": found["totals"],
        "process": found["process"],
        "topics": sorted(found["topics"]["rows"], key=_ORDERS[order]),
        "topics_left_out": found["topics"]["left_out"],
        "peers": [row for row in found["peers"]["rows"] if not row.get("me")],
        "peers_left_out": found["peers"]["left_out"],
        "sync": found["sync"],
    }


def screen(found: Sections, order: str, rows: int, width: int) -> Group:
    """One screen, so many columns wide."""
    shown = figures(found, order)
    style = "green" if shown["well"] else "bold red"
    head = Text.assemble(
        (plain(shown["node"]), "bold"), f"  {shown['protocol']}  ", (shown["sentence"], style)
    )
    totals, process = shown["totals"], shown["process"]
    backlog = sum(row["backlog"] for row in shown["sync"]["topics"])
    lines = [
        {
            "deliveries/s": as_number(shown["deliveries_per_second"]),
            "appends/s": as_number(shown["appends_per_second"]),
            "p50": as_seconds(shown["latency_p50"]),
            "p99": as_seconds(shown["latency_p99"]),
            "copies/delivery": as_number(totals["copies_per_delivery"]),
        },
        {
            "sent": as_size(totals["bytes"]["sent"]),
            "received": as_size(totals["bytes"]["received"]),
            "queued": as_size(process.get("queue_bytes", 0)),
            "log": as_size(process.get("log_bytes", 0)),
            "cpu": MISSING if "cpu" not in process else f"{100 * process['cpu']:.0f} %",
            "memory": as_size(int(process.get("rss", 0))),
        },
        {
            "missing events": f"{backlog:,}",
            "dropped": _reasons(totals["dropped"]),
            "RPCs not sent": _reasons(totals["rpc_dropped"]),
            "refused": _reasons(totals["refused"]),
        },
    ]
    return Group(head, *map(_line, lines), _topics(shown, rows, width), _peers(shown, rows, width))


def _line(values: Mapping[str, str]) -> Text:
    return Text.assemble(
        *[part for name, value in values.items() for part in ((f"{name} ", "dim"), f"{value}  ")]
    )


def _reasons(counts: Mapping[str, int]) -> str:
    total = int(sum(counts.values()))
    if not total:
        return "0"
    most = max(counts, key=lambda reason: counts[reason])
    return f"{total:,} ({plain(most)})"


def _table(heads: Mapping[str, bool], rows: Iterable[tuple[Text | str, ...]], width: int) -> Table:
    """A table of columns, each with whether it is of numbers, as far as there is room."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    kept = [width >= _NARROW or head not in _GIVE_WAY for head in heads]
    for place, head in enumerate(compress(heads, kept)):
        # Where it is narrow, the first column, of names, gives way next; figures stay whole.
        table.add_column(head, justify="right" if heads[head] else "left", no_wrap=place > 0)
    for row in rows:
        table.add_row(*compress(row, kept))
    return table


def _topics(shown: Mapping[str, Any], rows: int, width: int) -> Table:
    numbers = ("a second", "delivered", "copies", "peers", "mesh", "next", "size")
    lines = [
        (
            Text(plain(row["title"])[:40], no_wrap=True, overflow="ellipsis"),
            as_number(row["rate"]),
            f"{row['delivered']:,}",
            f"{row['duplicates']:,}",
            str(row["subscribers"]),
            str(row.get("mesh", MISSING)),
            f"{row.get('next', 0):,}",
            as_size(row.get("bytes", 0)),
        )
        for row in shown["topics"][:rows]
    ]
    table = _table({"topic": False, **dict.fromkeys(numbers, True)}, lines, width)
    _more(table, len(shown["topics"]) - rows, shown["topics_left_out"])
    return table


def _peers(shown: Mapping[str, Any], rows: int, width: int) -> Table:
    texts, numbers = ("peer", "way", "from"), ("round trip", "score", "queued", "new", "copies")
    lines = [
        (
            row["name"],
            row["kind"],
            row["direction"],
            as_delay(row.get("rtt")),
            as_number(row.get("score")),
            as_size(row["queue"]),
            f"{row.get('delivered', 0):,}",
            f"{row.get('duplicates', 0):,}",
        )
        for row in shown["peers"][:rows]
    ]
    table = _table({**dict.fromkeys(texts, False), **dict.fromkeys(numbers, True)}, lines, width)
    _more(table, len(shown["peers"]) - rows, shown["peers_left_out"])
    return table


def as_delay(value: float | None) -> str:
    """A round trip; those of one machine and one room differ by microseconds."""
    if value is None or value >= 0.01:
        return as_seconds(value)
    return f"{1000 * value:.2f} ms"


def _more(table: Table, beyond: int, left_out: int) -> None:
    if (count := max(0, beyond) + left_out) > 0:
        table.add_row(f"and {count:,} more")
