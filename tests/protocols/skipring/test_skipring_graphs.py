"""The skip ring as a graph beside Chord and skip graphs: what docs/skipring.md says of them."""

import importlib.util
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[3] / "bench" / "overlays.py"


def overlays() -> Any:
    """The bench, as a module."""
    spec = importlib.util.spec_from_file_location("overlays", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_few_edges_short_ways_and_no_better_congestion() -> None:
    """Degree below four and below both others; a diameter of log n, beyond both others; and routes
    that crowd at short labels, other than the paper says."""
    bench = overlays()
    figures = {name: bench.measured(name, 64) for name in bench.GRAPHS}
    ring, chord, graph = figures["skip ring"], figures["Chord"], figures["skip graph"]
    degree, largest, diameter, _, congestion = ring
    assert degree < 4 < min(graph[0], chord[0])
    assert largest == 11  # 2 log n - 1: the peer with the label 0
    assert max(chord[2], graph[2]) < diameter == 6
    assert largest < chord[1]
    assert congestion > max(chord[4], graph[4])
