"""Churn: peers that leave at random moments and come back.

Departures are a Poisson process: the time between two of them is exponential, and each takes a peer
drawn alike from those that are up. While the allowed share of peers is down, departures are left
out. Everybody who leaves comes back after the downtime, also when the workload is over by then.
"""

import heapq
import random
from collections.abc import Sequence
from typing import Final

import msgspec

from rumormill.core.config import require
from rumormill.sim.scenario import Churn

MOST_DEPARTURES: Final = 1_000_000
"""Most departures that one run may expect; our choice, far above what a run can show."""


class Absence(msgspec.Struct, frozen=True, gc=False):
    """One peer's time away, in virtual seconds."""

    peer: int
    left: float
    back: float


def draw_absences(
    churn: Churn,
    moving: Sequence[int],
    peers: int,
    during: tuple[float, float],
    rng: random.Random,
) -> list[Absence]:
    """Return who of `moving` is away when, in the order of leaving.

    `peers` is the size of the network, to which shares refer; peers leave from the first moment
    of `during` to the last.
    """
    start, end = during
    rate = churn.per_second(peers)
    if not rate or not moving:
        return []
    require(
        rate * (end - start) <= MOST_DEPARTURES,
        "churn.rate",
        f"would make more than {MOST_DEPARTURES} peers leave; lower it or shorten the workload",
    )
    most_down = max(1, int(churn.max_down * peers))
    up = list(moving)
    down: list[tuple[float, int]] = []
    absences = []
    now = start + rng.expovariate(rate)
    while now <= end:
        while down and down[0][0] < now:
            up.append(heapq.heappop(down)[1])
        if up and len(down) < most_down:
            place = rng.randrange(len(up))
            up[place], up[-1] = up[-1], up[place]
            away = churn.downtime
            if churn.distribution == "exponential":
                away = rng.expovariate(1.0 / churn.downtime)
            absence = Absence(up.pop(), now, now + away)
            absences.append(absence)
            heapq.heappush(down, (absence.back, absence.peer))
        now += rng.expovariate(rate)
    return absences
