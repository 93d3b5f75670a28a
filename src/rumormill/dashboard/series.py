"""Figures over time: a ring of steps, and beside it one of minutes for what is older.

Bounded: an hour of seconds and a day of minutes, each point one number or None a name. A trace
chooses a longer or a shorter step, so that all of it fits the first ring.
"""

from collections import deque
from collections.abc import Mapping
from math import floor, log10
from typing import Any, Final

NAMES: Final = (
    "deliveries",
    "p50",
    "p99",
    "copies",
    "bytes_data",
    "bytes_control",
    "dropped",
    "queue",
    "appends",
    "fsync",
    "backlog",
    "lag",
    "cpu",
    "rss",
)
STEPS: Final = 3600
MINUTES: Final = 1440
_RECENT: Final = 300
"""Steps that a snapshot has in full, where older ones are there by the minute as well."""
_MINUTE: Final = 60

Point = Mapping[str, float | None]
Row = tuple[float, tuple[float | None, ...]]


class Series:
    """Points in the order of time; `step` is how many seconds one stands for."""

    def __init__(self, step: float = 1.0) -> None:
        self.step = step
        self._steps: deque[Row] = deque(maxlen=STEPS)
        self._minutes: deque[Row] = deque(maxlen=MINUTES)
        self._minute: list[Row] = []

    def add(self, at: float, point: Point) -> None:
        """Note a point; names that it does not have are not known."""
        row = (at, tuple([point.get(name) for name in NAMES]))
        self._steps.append(row)
        if self.step == 1.0:
            self._minute.append(row)
            if len(self._minute) == _MINUTE:
                columns = zip(*[values for _, values in self._minute], strict=True)
                self._minutes.append((at, tuple([_mean(column) for column in columns])))
                self._minute.clear()

    def points(self, after: float | None) -> dict[str, list[Any]]:
        """The points behind a time; without one, all: old ones by the minute."""
        if after is not None:
            rows = []
            for row in reversed(self._steps):
                if row[0] <= after:
                    break
                rows.append(row)
            rows.reverse()
        else:
            rows = list(self._steps)[-_RECENT:] if self.step == 1.0 else list(self._steps)
            if rows and self.step == 1.0:
                rows = [row for row in self._minutes if row[0] < rows[0][0]] + rows
        columns = list(zip(*[values for _, values in rows], strict=True)) or [()] * len(NAMES)
        found: dict[str, list[Any]] = {"t": [at for at, _ in rows]}
        for name, column in zip(NAMES, columns, strict=True):
            if any(value is not None for value in column):  # what is not known takes no room
                found[name] = list(column)
        return found


def _mean(column: tuple[float | None, ...]) -> float | None:
    known = [value for value in column if value is not None]
    return rounded(sum(known) / len(known)) if known else None


def rounded(value: float | None) -> float | None:
    """A number to four digits: more of them nobody sees, and all of them are sent."""
    if value is None or value == 0 or abs(value) >= 10_000:
        return None if value is None else round(value)
    return round(value, 3 - floor(log10(abs(value))))


def step_for(seconds: float) -> float:
    """The shortest step of 1, 2 or 5 times a power of ten that a time has at most 600 of."""
    least = max(seconds, 1e-6) / 600
    power = 10.0 ** floor(log10(least))
    return next((power * each for each in (1, 2, 5) if power * each >= least), power * 10)
