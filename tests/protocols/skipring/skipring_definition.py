"""Definition 2 and what follows from it, written from the paper's text alone.

This is the judge of the tests. It imports nothing of the package and shares no idea with it: labels
are strings of bits, order is that of fractions, and rings are made by sorting.
"""

from fractions import Fraction
from functools import cache
from math import ceil, log2
from typing import NamedTuple


class Neighbour(NamedTuple):
    """What a subscriber stores of another: the label that it believes in, and who it is."""

    label: str
    id: bytes


class State(NamedTuple):
    """The variables of a subscriber (section 3.2)."""

    label: str | None
    left: Neighbour | None
    right: Neighbour | None
    ring: Neighbour | None
    shortcuts: list[tuple[str, bytes | None]]


def label(x: int) -> str:
    """Section 2.1: l(x) takes the leading bit of x and moves it to the units place."""
    bits = f"{x:b}"
    return bits[1:] + bits[0]


def position(bits: str) -> Fraction:
    """Section 2.1: r(y) is the sum of y_i / 2^i."""
    return sum((Fraction(int(bit), 2**i) for i, bit in enumerate(bits, 1)), Fraction(0))


class Links(NamedTuple):
    """Whom the subscriber at a label must know, by label."""

    left: str | None
    right: str | None
    ring: str | None
    everybody: frozenset[str]


@cache
def skip_ring(n: int) -> dict[str, Links]:
    """SR(n): ring edges, and for each level the sorted ring over labels no longer than it."""
    labels = sorted((label(x) for x in range(n)), key=position)
    edges: dict[str, dict[str, None]] = {each: {} for each in labels}

    def add_ring(members: list[str]) -> None:
        for one, other in zip(members, members[1:] + members[:1], strict=True):
            if one != other:
                edges[one][other] = edges[other][one] = None

    add_ring(labels)
    for level in range(1, ceil(log2(n)) if n > 1 else 1):
        add_ring([each for each in labels if len(each) <= level])
    links = {}
    for place, each in enumerate(labels):
        left = labels[place - 1] if place > 0 else None
        right = labels[place + 1] if place + 1 < n else None
        ring = None
        if n > 1 and left is None:
            ring = labels[-1]
        elif n > 1 and right is None:
            ring = labels[0]
        links[each] = Links(left, right, ring, frozenset(edges[each]))
    return links


def faults(subscribers: dict[bytes, State], database: list[tuple[str, bytes | None]]) -> str:
    """Why a state is not legitimate, in one sentence; empty when it is.

    Legitimate: the database holds each subscriber once under the labels l(0) to l(n-1), each
    subscriber knows its label, and the explicit edges are exactly those of SR(n).
    """
    n = len(subscribers)
    expected = skip_ring(n) if n else {}
    recorded = dict(database)
    if len(database) != n or recorded.keys() != expected.keys():
        return f"the database has {len(database)} tuples for {n} subscribers, or wrong labels"
    if {each for each in recorded.values() if each is not None} != set(subscribers):
        return "the database does not hold the subscribers"
    for own, state in subscribers.items():
        if state.label is None or recorded.get(state.label) != own:
            return f"{own.hex()} has the label {state.label}"
        links = expected[state.label]
        for name, wanted in (("left", links.left), ("right", links.right), ("ring", links.ring)):
            stored = getattr(state, name)
            right = None if wanted is None else Neighbour(wanted, recorded[wanted])
            if stored != right:
                return f"{own.hex()} ({state.label}) has {name} {stored} in place of {right}"
        known = {each.id for each in (state.left, state.right, state.ring) if each is not None}
        for at, peer in state.shortcuts:
            if peer is None or recorded.get(at) != peer:
                return f"{own.hex()} ({state.label}) has a shortcut {at} to {peer!r}"
            known.add(peer)
        if known != {recorded[each] for each in links.everybody}:
            return (
                f"{own.hex()} ({state.label}) has {len(known)} edges, not {sorted(links.everybody)}"
            )
    return ""
