"""Line and bar plots as SVG, with nothing but the standard library.

One plot has one pair of axes, linear or logarithmic, and a few series of points. Colours and marks
differ between series, so that a plot can be read in black and white. A series may bring a number of
its own, by which it keeps its colour and mark from one plot of a page to the next.

A plot is whole in itself, black on white. What a page may want in other colours has a class:
`ground`, `rule`, `axis` and `span`; the colours of series are readable on white and on black. Type
has twelve pixels where a plot is shown at least `LEAST_WIDTH` pixels wide.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 640
HEIGHT: Final = 400
TYPE: Final = 19
LEAST_WIDTH: Final = WIDTH * 12 // TYPE + 4
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 34, 46, 112
_LEGEND: Final = 44
_COLOURS: Final = (
    "#2f7fc1", "#d1603d", "#3f9150", "#9461a8", "#a8842a", "#7f7f7f", "#1a9c9e", "#c9508f",
)  # fmt: skip
_MARKS: Final = ("circle", "square", "triangle", "diamond", "cross")
_MARKED_POINTS: Final = 10
"""Of a line with many points so many bear a mark."""

_BAR: Final = 30
_BAR_LEFT: Final = 270
_LONGEST_BAR_NAME: Final = 26

_NAMESPACE: Final = "http://www.w3.org/2000/svg"


class Series(NamedTuple):
    """A named line, or points that are not joined."""

    name: str
    points: list[tuple[float, float]]
    number: int | None = None
    joined: bool = True


class Span(NamedTuple):
    """A time to be marked, along the x axis; without an end it goes on to the plot's."""

    begin: float
    end: float | None
    name: str


def colour_of(number: int) -> str:
    """The colour of a series."""
    return _COLOURS[number % len(_COLOURS)]


class _Axis:
    """Maps values to pixels."""

    def __init__(
        self, values: list[float], begin: float, end: float, *, log: bool,
        ends: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        self.log = log and min(values) > 0
        self._begin, self._end = begin, end
        low, high = min(values), max(values)
        if self.log:
            # It begins and ends with a number, however short it is.
            self.low, self.high = math.log10(_step(low, up=False)), math.log10(_step(high, up=True))
        else:
            least, most = (0.0, high) if ends is None else ends
            self.low, self.high = min(low, least), max(high, most)
        if self.high <= self.low:
            self.high = self.low + 1

    def place(self, value: float) -> float:
        """The pixel of a value."""
        scaled = math.log10(value) if self.log else value
        share = (scaled - self.low) / (self.high - self.low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """The values at which lines are drawn."""
        if self.log:
            steps = _STEPS if self.high - self.low < 3 else (1,)
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            found = [step * 10.0**decade for decade in decades for step in steps]
            return [
                tick for tick in found if self.low - 1e-9 <= math.log10(tick) <= self.high + 1e-9
            ]
        step = 10 ** math.floor(math.log10(self.high - self.low))
        if (self.high - self.low) / step < 3:
            step /= 4
        first = math.ceil(self.low / step)
        count = int((self.high - first * step) / step + 1e-9) + 1
        return [(first + number) * step for number in range(count)]


_STEPS: Final = (1, 2, 5)


def _step(value: float, *, up: bool) -> float:
    """The nearest of …, 0.5, 1, 2, 5, 10, … that is not above a value, or not below it."""
    decade = 10.0 ** math.floor(math.log10(value))
    steps = [step * decade for step in (*_STEPS, 10)]
    if up:
        return min(step for step in steps if step >= value * (1 - 1e-9))
    return max(step for step in steps if step <= value * (1 + 1e-9))


def line_plot(
    title: str,
    x_name: str,
    y_name: str,
    series: list[Series],
    *,
    log_x: bool = True,
    log_y: bool = True,
    legend: bool = True,
    ends: tuple[float, float] | None = None,
    spans: Sequence[Span] = (),
) -> str:
    """Return a plot as the text of an SVG file; a linear y axis comprises `ends`, else zero."""
    drawn = [line for line in series if line.points]
    if not drawn:
        raise ValueError(f"nothing to draw in {title!r}")
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    x_axis = _Axis(xs, _LEFT, WIDTH - _RIGHT, log=log_x)
    # A legend below the plot needs room; without one the picture ends earlier.
    height = HEIGHT if legend else HEIGHT - _LEGEND
    y_axis = _Axis(ys, HEIGHT - _BOTTOM, _TOP, log=log_y, ends=ends)
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts = [
        _opening(height, title),
        *_spans(x_axis, spans),
        *_grid(x_axis, y_axis),
        _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - _BOTTOM + 54, x_name),
        f'<g transform="translate(20 {middle}) rotate(-90)">{_text(0, 0, y_name)}</g>',
    ]
    for place, line in enumerate(drawn):
        number = place if line.number is None else line.number
        colour = colour_of(number)
        placed = [(x_axis.place(x), y_axis.place(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        if line.joined:
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
            )
        few = max(1, len(placed) // _MARKED_POINTS) if line.joined else 1
        parts += [_mark(number, x, y, colour) for x, y in placed[::few]]
        if legend:
            along = _LEFT + (WIDTH - _LEFT) * place / len(drawn)
            parts.append(_mark(number, along + 6, HEIGHT - 22, colour))
            parts.append(_text(along + 16, HEIGHT - 18, line.name, anchor="start"))
    return "\n".join([*parts, "</svg>\n"])


def bar_plot(title: str, bars: list[tuple[str, float, int]]) -> str:
    """Return horizontal bars, each with its name, its value and the number of its colour."""
    if not bars:
        raise ValueError(f"nothing to draw in {title!r}")
    height = 50 + _BAR * len(bars)
    longest = max(value for _, value, _ in bars) or 1.0
    room = WIDTH - _BAR_LEFT - 90
    parts = [_opening(height, title)]
    for place, (name, value, number) in enumerate(bars):
        y = 42 + _BAR * place
        width = max(1.0, room * value / longest)
        box = f'x="{_BAR_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 6}"'
        parts += [
            _text(_BAR_LEFT - 8, y + 18, _short(name), anchor="end"),
            f'<rect {box} fill="{colour_of(number)}"/>',
            _text(_BAR_LEFT + width + 6, y + 18, _number(round(value, 3)), anchor="start"),
        ]
    return "\n".join([*parts, "</svg>\n"])


def _short(name: str) -> str:
    """A name that fits left of the bars; its end tells parameters apart."""
    if len(name) <= _LONGEST_BAR_NAME:
        return name
    return f"{name[:12]}…{name[13 - _LONGEST_BAR_NAME :]}"


def _opening(height: int, title: str) -> str:
    box = f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {WIDTH} {height}"'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" fill="white"/>'
    head = _text(WIDTH / 2, 28, title, size=TYPE + 2)
    return f'{box} font-family="sans-serif" font-size="{TYPE}">\n{ground}\n{head}'


def key_mark(number: int) -> str:
    """A series' mark alone, for a legend outside of the plots."""
    return (
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 24 12" width="24" height="12">'
        f"{_line(0, 6, 24, 6, colour=colour_of(number), kind='key')}"
        f"{_mark(number, 12, 6, colour_of(number))}</svg>"
    )


def _spans(x_axis: _Axis, spans: Sequence[Span]) -> list[str]:
    """What is marked: a ground of its own, and its name where none stands so near before it."""
    parts = []
    bottom, right, free = HEIGHT - _BOTTOM, WIDTH - _RIGHT, float(_LEFT)
    for span in sorted(spans):
        begin = max(float(_LEFT), x_axis.place(span.begin))
        end = right if span.end is None else min(float(right), x_axis.place(span.end))
        if begin >= right or end < begin:
            continue
        width = max(2.0, end - begin)
        box = f'x="{begin:.1f}" y="{_TOP}" width="{width:.1f}" height="{bottom - _TOP}"'
        parts.append(f'<rect class="span" {box} fill="#d04030" fill-opacity="0.16"/>')
        room = len(span.name) * TYPE * 0.55
        if begin >= free and begin + room <= right:
            parts.append(_text(begin + 4, bottom - 8, span.name, anchor="start"))
            free = begin + room + 8
    return parts


def _grid(x_axis: _Axis, y_axis: _Axis) -> list[str]:
    parts = []
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for tick in x_axis.ticks():
        x = x_axis.place(tick)
        parts.append(_line(x, _TOP, x, bottom))
        parts.append(_text(x, bottom + 25, _number(tick)))
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        parts.append(_line(_LEFT, y, right, y))
        parts.append(_text(_LEFT - 8, y + 6, _number(tick), anchor="end"))
    parts.append(_line(_LEFT, bottom, right, bottom, colour="#333333", kind="axis"))
    parts.append(_line(_LEFT, _TOP, _LEFT, bottom, colour="#333333", kind="axis"))
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _line(
    x1: float, y1: float, x2: float, y2: float, *, colour: str = "#dddddd", kind: str = "rule"
) -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {place} stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = TYPE) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _mark(number: int, x: float, y: float, colour: str) -> str:
    kind = _MARKS[number % len(_MARKS)]
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    shapes: dict[str, tuple[tuple[float, float], ...]] = {
        "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        "triangle": ((0, -5), (5, 4), (-5, 4)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
        "cross": ((-1.5, -5), (1.5, -5), (1.5, -1.5), (5, -1.5), (5, 1.5), (1.5, 1.5), (1.5, 5),
                  (-1.5, 5), (-1.5, 1.5), (-5, 1.5), (-5, -1.5), (-1.5, -1.5)),
    }  # fmt: skip
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes[kind])
    return f'<polygon points="{points}" fill="{colour}"/>'
