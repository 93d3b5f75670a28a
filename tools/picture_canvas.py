"""What `draw_pictures.py` draws on: a few shapes, written as SVG by hand.

The rule: colours are named by what they mean, and each has a shade for light and for dark, on a
ground of the picture's own, so that it can be read on any page. Letters have 14 px.
"""

import math
from collections.abc import Iterable
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

Point: TypeAlias = tuple[float, float]

_PEER: Final = 13.0
"""Radius of a peer with its number in it."""

_LIGHT: Final = {
    "ground": "#f5f7f8", "ink": "#1f2a33", "link": "#cfd8dd", "strong": "#8fa3ae",
    "way": "#00796b", "again": "#d08a2e", "peer": "#00897b", "publisher": "#c2185b",
    "told": "#5c6bc0", "paper": "#ffffff",
}  # fmt: skip
_DARK: Final = {
    "ground": "#161b20", "ink": "#dfe6ea", "link": "#36424a", "strong": "#627580",
    "way": "#2bb8a6", "again": "#c98a3c", "peer": "#12877a", "publisher": "#c2356e",
    "told": "#5767b5", "paper": "#161b20",
}  # fmt: skip

_RULES: Final = """\
text{font:14px sans-serif;fill:var(--ink)}
.number{font-size:12px;fill:#fff;text-anchor:middle}
line,path{fill:none;stroke-width:1.2}
.ground{fill:var(--ground)}
.link{stroke:var(--link)}
.strong{stroke:var(--strong);stroke-width:2.4}
.way{stroke:var(--way);stroke-width:2}
.again{stroke:var(--again);stroke-dasharray:5 4}
.letter{stroke:var(--publisher);stroke-width:2;stroke-dasharray:7 4}
.disk{stroke:var(--publisher);stroke-width:6}
circle.peer{fill:var(--peer)}
circle.publisher{fill:var(--publisher)}
circle.told{fill:var(--told)}
circle.both{fill:var(--peer);stroke:var(--told);stroke-width:5}
circle.wanted{fill:var(--told);stroke:var(--publisher);stroke-width:4}
circle.relay{fill:var(--paper);stroke:var(--strong);stroke-width:2}
circle.relay+.number{fill:var(--ink)}
circle.again{fill:var(--paper);stroke:var(--again);stroke-width:2;stroke-dasharray:none}
.way-head{fill:var(--way)}
.letter-head{fill:var(--publisher)}"""


def circle(peers: Iterable[int], centre: Point, radius: float) -> dict[int, Point]:
    """Places for peers on a circle, the first at the top, clockwise."""
    listed = list(peers)
    turns = {peer: 2 * math.pi * index / len(listed) for index, peer in enumerate(listed)}
    return {
        peer: (centre[0] + radius * math.sin(turn), centre[1] - radius * math.cos(turn))
        for peer, turn in turns.items()
    }


class Canvas:
    """A picture that grows shape by shape."""

    def __init__(self, title: str, width: float, height: float) -> None:
        self._title = title
        self._width, self._height = _short(width), _short(height)
        self._shapes: list[str] = []

    def line(self, start: Point, end: Point, kind: str) -> None:
        """A line of some meaning."""
        self._shapes.append(f'<line class="{kind}" {_ends(start, end)}/>')

    def arrow(self, start: Point, end: Point, kind: str, gap: float = _PEER + 1) -> None:
        """A line that ends in front of its goal, with a head."""
        far = math.dist(start, end)
        share = max(far - gap, 0) / far if far else 0
        tip = start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
        self._shapes.append(
            f'<line class="{kind}" {_ends(start, tip)} marker-end="url(#{kind}-head)"/>'
        )

    def bow(self, start: Point, end: Point, kind: str) -> None:
        """An arrow that leaves the straight way free."""
        middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        across = (start[1] - end[1]) * 0.18, (end[0] - start[0]) * 0.18
        bend = middle[0] + across[0], middle[1] + across[1]
        far = math.dist(bend, end)
        share = (far - _PEER - 4) / far
        tip = bend[0] + (end[0] - bend[0]) * share, bend[1] + (end[1] - bend[1]) * share
        way = f"M{_at(start)}Q{_at(bend)} {_at(tip)}"
        self._shapes.append(f'<path class="{kind}" d="{way}" marker-end="url(#{kind}-head)"/>')

    def peer(self, place: Point, name: str, kind: str) -> None:
        """A peer with its number."""
        self._dot(place, kind, _PEER)
        x, y = place
        self._shapes.append(
            f'<text class="number" x="{_short(x)}" y="{_short(y + 4)}">{escape(name)}</text>'
        )

    def mark(self, place: Point, kind: str) -> None:
        """A moment in somebody's life."""
        self._dot(place, kind, 4.5)

    def text(self, place: Point, words: str, anchor: str = "start") -> None:
        """Words, on their baseline."""
        where = f'x="{_short(place[0])}" y="{_short(place[1])}"'
        side = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._shapes.append(f"<text {where}{side}>{escape(words)}</text>")

    def legend(self, place: Point, *rows: tuple[str, str]) -> None:
        """What shapes mean, below each other."""
        for row, (kind, words) in enumerate(rows):
            self.keys((place[0], place[1] + 32 * row), (kind, words))

    def keys(self, place: Point, *columns: tuple[str, str]) -> None:
        """What shapes mean, beside each other."""
        x, y = place
        for kind, words in columns:
            if kind in {"peer", "publisher", "relay", "told", "both", "wanted"}:
                self._dot((x + 14, y - 5), kind, 7)
            elif kind in {"way", "letter"}:
                self.arrow((x, y - 5), (x + 28, y - 5), kind, gap=3)
            elif kind == "again" and len(columns) > 1:
                self.mark((x + 14, y - 5), kind)
            elif kind:
                self.line((x, y - 5), (x + 28, y - 5), kind)
            self.text((x + 38, y), words)
            x += 62 + 7.2 * len(words)

    def svg(self) -> str:
        """The file."""
        shades = [
            f"svg{{{';'.join(f'--{name}:{shade}' for name, shade in shades.items())}}}"
            for shades in (_LIGHT, _DARK)
        ]
        heads = "".join(
            f'<marker id="{kind}-head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="9" '
            f'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path class="{kind}-head" d="M0 0L8 4L0 8z"/></marker>'
            for kind in ("way", "letter")
        )
        size = f'width="{self._width}" height="{self._height}"'
        room = f'viewBox="0 0 {self._width} {self._height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {room} {size} role="img">',
            f"<title>{escape(self._title)}</title>",
            f"<style>{shades[0]}",
            f"@media (prefers-color-scheme:dark){{{shades[1]}}}",
            f"{_RULES}</style>",
            f"<defs>{heads}</defs>",
            f'<rect class="ground" {size} rx="10"/>',
            *self._shapes,
            "</svg>\n",
        ]
        return "\n".join(lines)

    def _dot(self, place: Point, kind: str, radius: float) -> None:
        where = f'cx="{_short(place[0])}" cy="{_short(place[1])}" r="{_short(radius)}"'
        self._shapes.append(f'<circle class="{kind}" {where}/>')


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _at(place: Point) -> str:
    return f"{_short(place[0])} {_short(place[1])}"


def _ends(start: Point, end: Point) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'x1="{_short(x1)}" y1="{_short(y1)}" x2="{_short(x2)}" y2="{_short(y2)}"'
