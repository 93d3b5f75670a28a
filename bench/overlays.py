"""Degree, diameter and congestion of the skip ring against Chord and skip graphs of the same size.

    python bench/overlays.py
    python bench/overlays.py --peers 128 512

The graphs are drawn as their papers define them, without a protocol: the skip ring SR(n); Chord
with ids drawn alike and a finger to the successor of each power of two; a skip graph with random
membership vectors. Routes are greedy in each, as its own search is: Chord clockwise, a skip graph
towards the key, the skip ring to the nearest neighbour on the ring. Every peer sends to sixteen
others drawn alike. Congestion is how many routes pass the busiest peer, as a multiple of the mean.
"""

import argparse
import random
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from rumormill.protocols.skipring.labels import CIRCLE, label_of, length_of

ROUTES = 16
SEEDS = 5
Distance = Callable[[int, int], float]


class Graph(NamedTuple):
    """Who knows whom, and how far a peer is from another in the eyes of a search."""

    edges: list[set[int]]
    distance: Distance

    @property
    def neighbours(self) -> list[set[int]]:
        """The same in both directions."""
        both = [set(mine) for mine in self.edges]
        for peer, mine in enumerate(self.edges):
            for other in mine:
                both[other].add(peer)
        return both


def skip_ring(count: int, _draw: random.Random) -> Graph:
    """SR(n): a ring of all, and for every length a ring of those whose labels are no longer."""
    labels = [label_of(number) for number in range(count)]
    place = [label / CIRCLE for label in labels]
    length = [length_of(label) for label in labels]
    edges: list[set[int]] = [set() for _ in range(count)]
    for longest in range(1, max(length) + 1):
        ring = sorted((p for p in range(count) if length[p] <= longest), key=place.__getitem__)
        for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
            if one != other:
                edges[one].add(other)
                edges[other].add(one)
    return Graph(edges, lambda a, b: min((place[a] - place[b]) % 1, (place[b] - place[a]) % 1))


def chord(count: int, draw: random.Random) -> Graph:
    """Fingers to the first peer behind each power of two, on a circle of random ids."""
    place = sorted(draw.random() for _ in range(count))

    def successor(point: float) -> int:
        return bisect_left(place, point % 1) % count

    fingers = range(1, 2 * count.bit_length())
    edges = [
        {successor(mine + 2.0**-power) for power in fingers} - {peer}
        for peer, mine in enumerate(place)
    ]
    for peer in range(count):
        edges[peer].add((peer + 1) % count)
    return Graph(edges, lambda a, b: (place[b] - place[a]) % 1)


def skip_graph(count: int, draw: random.Random) -> Graph:
    """A list of all by key, and one of those whose random vectors begin alike, for every length."""
    edges: list[set[int]] = [set() for _ in range(count)]
    lists = [list(range(count))]
    while lists:
        split: list[list[int]] = []
        for members in lists:
            for one, other in pairwise(members):
                edges[one].add(other)
                edges[other].add(one)
            halves: tuple[list[int], list[int]] = ([], [])
            for peer in members:
                halves[draw.getrandbits(1)].append(peer)
            split += [half for half in halves if len(half) > 1 and len(members) > 1]
        lists = split
    return Graph(edges, lambda a, b: abs(a - b))


def diameter(neighbours: list[set[int]]) -> int:
    """The longest of all shortest ways."""
    longest = 0
    for start in range(len(neighbours)):
        far = {start: 0}
        waiting = deque([start])
        while waiting:
            peer = waiting.popleft()
            for other in neighbours[peer]:
                if other not in far:
                    far[other] = far[peer] + 1
                    waiting.append(other)
        longest = max(longest, *far.values())
    return longest


def congestion(graph: Graph, draw: random.Random) -> tuple[float, float]:
    """Mean length of routes, and the load of the busiest peer as a multiple of the mean."""
    count, distance = len(graph.edges), graph.distance
    load = [0] * count
    hops = []
    for start in range(count):
        for _ in range(ROUTES):
            target, here, steps = draw.randrange(count), start, 0
            while here != target:
                here = min(graph.edges[here], key=lambda peer: distance(peer, target))
                load[here] += 1
                steps += 1
            hops.append(steps)
    return fmean(hops), max(load) / fmean(load)


GRAPHS = {"skip ring": skip_ring, "Chord": chord, "skip graph": skip_graph}


def measured(name: str, count: int) -> list[float]:
    """Mean and largest degree, diameter, mean route and congestion, each a mean over the seeds."""
    rows = []
    for seed in range(SEEDS):
        draw = random.Random(f"{name}/{count}/{seed}")
        graph = GRAPHS[name](count, draw)
        neighbours = graph.neighbours
        degrees = [len(mine) for mine in neighbours]
        rows.append([fmean(degrees), max(degrees), diameter(neighbours), *congestion(graph, draw)])
    return [fmean(column) for column in zip(*rows, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, nargs="+", default=[128, 512])
    heads = ("peers", "graph", "degree, mean", "degree, max", "diameter", "route", "congestion")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|---:|---|{'---:|' * 5}\n")
    for count in parser.parse_args().peers:
        for name in GRAPHS:
            cells = " | ".join(f"{figure:.1f}" for figure in measured(name, count))
            sys.stdout.write(f"| {count} | {name} | {cells} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
