"""What `bench/peers.py` prints: two tables as documentation has them, and how ours compare.

Each cell is the median of the rounds. A column that nobody has a figure for is left out.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

COMMON_PACE = 1000.0
SLOW_PACE = 100.0
"""Messages a second, 1 -> 1, for the comparisons at one rate."""

COSTS = {
    "one to one": ("1 -> 1", "cpu"),
    f"at {COMMON_PACE:,.0f} a second": ("1 -> 1", "paced"),
    f"at {SLOW_PACE:,.0f} a second": ("1 -> 1", "slow"),
    "one to twenty": ("1 -> 20", "cpu"),
    "mesh of 20": ("mesh", "cpu"),
    "mesh they form": ("formed", "cpu"),
}
"""Columns of the first table: processor time per delivery in a setting."""

REST = {
    "messages a second, one to one": ("1 -> 1", "best", ",.0f"),
    "one to twenty": ("1 -> 20", "best", ",.0f"),
    "in the mesh": ("mesh", "best", ",.0f"),
    f"p50 at {SLOW_PACE:,.0f} a second, ms": ("1 -> 1", "p50", ".1f"),
    "p99, ms": ("1 -> 1", "p99", ".1f"),
    "bytes per byte in the mesh": ("mesh", "bytes", ".2f"),
    "MiB a node": ("mesh", "rss", ".1f"),
    "s of CPU to start the mesh": ("mesh", "start", ".2f"),
    "bytes per byte in the mesh they form": ("formed", "bytes", ".2f"),
}
"""Columns of the second table, and how their figures are written."""

TARGETS = [
    ("rumormill", "floor", "1 -> 1", 2.0),
    ("rumormill, memory", "floor", "1 -> 1", 2.0),
    ("rumormill", "py-libp2p", "1 -> 1", 1 / 8),
    ("rumormill", "js-libp2p", "1 -> 1", 1 / 2),
    ("rumormill", "py-libp2p", "mesh", 1 / 15),
    ("rumormill", "js-libp2p", "mesh", 1 / 4),
    ("rumormill", "go-libp2p", "1 -> 1", 1.0),
    ("rumormill", "go-libp2p", "1 -> 20", 1.0),
    ("rumormill", "go-libp2p", "mesh", 1.5),
    ("rumormill, trunk", "go-libp2p", "mesh", 1.0),
]
"""Whose CPU per delivery may be at most so many times whose, and where."""
SLOW_TARGETS = {"slow": 1.2, "p50": 1.5}
"""How many times go's may be what a message costs at the slow pace, and how long it takes."""


class Measured(Protocol):
    """A system whose figures are there."""

    @property
    def name(self) -> str: ...
    def value(self, setting: str, name: str) -> float | None: ...


def tables(systems: Sequence[Measured]) -> Iterator[str]:
    """Both tables, line by line; then what was lost or came twice, if anything was or did."""
    costs = {name: (*where, ",.0f") for name, where in COSTS.items()}
    yield from _table("µs of CPU per delivery", costs, systems)
    yield ""
    yield from _table("", REST, systems)
    for system in systems:
        for setting in ("1 -> 1", "1 -> 20", "mesh", "formed"):
            for what in ("lost", "repeated"):
                if found := system.value(setting, what):
                    yield from ("", f"{system.name}, {setting}: {found:.0f} {what}")


def _table(
    title: str, columns: dict[str, tuple[str, str, str]], systems: Sequence[Measured]
) -> Iterator[str]:
    columns = {
        name: column
        for name, column in columns.items()
        if any(system.value(*column[:2]) is not None for system in systems)
    }
    yield f"| {' | '.join([title, *columns])} |"
    yield "|---" * (len(columns) + 1) + "|"
    for system in systems:
        values = [(system.value(*where), form) for *where, form in columns.values()]
        cells = ["–" if value is None else format(value, form) for value, form in values]
        if any(value is not None for value, _ in values):
            yield f"| {' | '.join([system.name, *cells])} |"


def comparisons(systems: Sequence[Measured]) -> Iterator[str]:
    """Ratios that have a target, and whether they keep it."""
    by_name = {system.name: system for system in systems}

    def ratio_of(ours: str, other: str, setting: str, figure: str) -> float | None:
        """How many times the other's figure ours is; None if one of them was not measured."""
        if ours not in by_name or other not in by_name:
            return None
        mine, theirs = (by_name[name].value(setting, figure) for name in (ours, other))
        return None if mine is None or not theirs else mine / theirs

    for ours, other, setting, most in TARGETS:
        yield from _held(ratio_of(ours, other, setting, "cpu"), ours, other, setting, most)
    for figure, most in SLOW_TARGETS.items():
        for ours in ("rumormill", "rumormill, memory"):
            ratio = ratio_of(ours, "go-libp2p", "1 -> 1", figure)
            what = f"{ours}, {figure} at {SLOW_PACE:.0f} a second"
            yield from _held(ratio, what, "go-libp2p", "1 -> 1", most)


def _held(ratio: float | None, ours: str, other: str, setting: str, most: float) -> Iterator[str]:
    if ratio is not None:
        verdict = "holds" if ratio <= most else "missed"
        yield f"{setting:8} {ours} = {ratio:.3f} x {other}   (at most {most:.3f}: {verdict})"
