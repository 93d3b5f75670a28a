"""Who goes and comes back: peers, and subscriptions.

Departures are a Poisson process: the time between two of them is exponential, and each takes one
drawn alike from those that are there. While the allowed share of all is away, departures are left
out. Everybody who leaves comes back after the time away, also when the workload is over by then.
"""

import heapq
import random
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, Self

import msgspec

from rumormill.core.config import Config, require
from rumormill.core.errors import ConfigError
from rumormill.sim.tables import within
from rumormill.sim.units import Seconds, Share, parse_share

MOST_DEPARTURES: Final = 1_000_000
"""Most departures that one run may expect; our choice, far above what a run can show."""


class Departures(Config, frozen=True, kw_only=True):
    """How often something leaves, and what the times away are like."""

    table: ClassVar[str]
    what: ClassVar[str]

    # Departures per minute, as a number; 0 turns them off.
    rate: float = 0.0
    # The same as a share of all; excludes rate.
    fraction: Share = 0.0
    # fixed: always the same time; exponential: drawn with that mean, the usual model of sessions.
    distribution: Literal["fixed", "exponential"] = "fixed"

    def validate(self) -> None:
        """Refuse two rates at once."""
        require(0 <= self.rate <= 1e6, "rate", f"must be from 0 to 1000000 {self.what} per minute")
        require(0 <= self.fraction <= 100, "fraction", "must be from 0 to 100 per minute")
        require(not (self.rate and self.fraction), "fraction", "excludes rate: give one of them")

    def per_second(self, total: int) -> float:
        """How many of so many leave per second, on average."""
        return (self.rate or self.fraction * total) / 60.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `12` (per minute) or `5%` (of all per minute), as on a command line."""
        try:
            amount = parse_share(text)
        except ConfigError:
            raise ConfigError(
                f"{cls.table}: {text!r} is no rate; write {cls.what} per minute, such as 12, "
                f"or a share of all {cls.what} per minute, such as 5%"
            ) from None
        found = cls(fraction=amount) if text.strip().endswith("%") else cls(rate=amount)
        within(cls.table, found.validate)
        return found


class Churn(Departures, frozen=True, kw_only=True):
    """Peers that leave and come back."""

    table = "churn"
    what = "peers"

    # Time until a peer comes back; our choice: long enough that meshes close the gap.
    downtime: Seconds = 30.0
    # Whether a peer comes back with what it knew; our choice: as a new process.
    keep_state: bool = False
    # No peer leaves while this share of all peers is down; our choice: half stay.
    max_down: Share = 0.5

    def validate(self) -> None:
        """Refuse two rates at once and downtimes of nothing."""
        super().validate()
        require(1e-3 <= self.downtime <= 1e9, "downtime", "must be at least 1ms")
        require(0 < self.max_down <= 1, "max_down", "must be more than 0, at most 1")

    @property
    def absence(self) -> tuple[float, float]:
        """The mean time away, and the largest share of all that may be away at once."""
        return self.downtime, self.max_down


class Unsubscribing(Departures, frozen=True, kw_only=True):
    """Subscriptions that end and begin again."""

    table = "unsubscribing"
    what = "subscriptions"

    # Time until a peer subscribes to the topic again; our choice: like a peer's time away.
    away: Seconds = 30.0
    # None ends while this share of all subscriptions is away; our choice: half stay.
    max_away: Share = 0.5

    def validate(self) -> None:
        """Refuse two rates at once and times of nothing."""
        super().validate()
        require(1e-3 <= self.away <= 1e9, "away", "must be at least 1ms")
        require(0 < self.max_away <= 1, "max_away", "must be more than 0, at most 1")

    @property
    def absence(self) -> tuple[float, float]:
        """The mean time away, and the largest share of all that may be away at once."""
        return self.away, self.max_away


class Absence(msgspec.Struct, frozen=True, gc=False):
    """One's time away, in virtual seconds."""

    who: int
    left: float
    back: float


def draw_absences(
    departures: Churn | Unsubscribing,
    moving: Sequence[int],
    total: int,
    during: tuple[float, float],
    rng: random.Random,
) -> list[Absence]:
    """Return who of `moving` is away when, in the order of leaving.

    Shares refer to `total`, those included that do not move. They leave from the first moment of
    `during` to the last.
    """
    start, end = during
    rate = departures.per_second(total)
    if not rate or not moving:
        return []
    require(
        rate * (end - start) <= MOST_DEPARTURES,
        f"{departures.table}.rate",
        f"would make more than {MOST_DEPARTURES} {departures.what} leave; lower it or shorten the"
        " workload",
    )
    mean, share = departures.absence
    most_away = max(1, int(share * total))
    there = list(moving)
    away: list[tuple[float, int]] = []
    absences = []
    now = start + rng.expovariate(rate)
    while now <= end:
        while away and away[0][0] < now:
            there.append(heapq.heappop(away)[1])
        if there and len(away) < most_away:
            place = rng.randrange(len(there))
            there[place], there[-1] = there[-1], there[place]
            lasts = mean
            if departures.distribution == "exponential":
                lasts = rng.expovariate(1.0 / mean)
            absence = Absence(there.pop(), now, now + lasts)
            absences.append(absence)
            heapq.heappush(away, (absence.back, absence.who))
        now += rng.expovariate(rate)
    return absences
