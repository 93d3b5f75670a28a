"""What is remembered of a connected peer: when it is asked next, what it may still be asked, and
the timers for both."""

from typing import Final

import msgspec

from rumormill.core.ids import Topic
from rumormill.core.rate_limit import RateLimit
from rumormill.sync.answering import cost_of, new_budget
from rumormill.sync.messages import Body

_LONGEST: Final = 3600.0
"""Seconds for which a partner that gives nothing is left alone, at most."""
_SPARE: Final = 256
"""What is left of the budget with a partner: its clock may be slower, and what we no longer wait
for may arrive yet."""


class Tick(msgspec.Struct, frozen=True):
    """The timer of sync."""


TICK: Final = Tick()


class AskNow(msgspec.Struct, frozen=True):
    """The timer of a question that our budget with the partner did not allow."""

    number: int


class Partner(msgspec.Struct):
    """A connected peer."""

    outbound: bool
    due: float = float("inf")
    """When it is to be asked next; infinite unless there is a reason."""
    offered: dict[Topic, None] = {}
    """What it says it has."""
    in_vain: int = 0
    """Sessions in a row in which it differed and gave nothing, or did not answer."""
    ended: float = float("-inf")
    """When the last one ended."""
    budget: RateLimit = msgspec.field(default_factory=new_budget)
    """What it works out for us, as it counts as well."""
    held: int = 0
    """What the questions that are under way have cost: nobody knows whether it has counted them."""
    unheard: float = float("-inf")
    """When it connected, or we subscribed: no protocol brings what had been published by then."""
    limited: bool = False
    """Whether there is a relay in between that carries only so much."""

    def rests_until(self, pause: float) -> float:
        """When it may be asked again, if so long is left between two sessions in vain."""
        rest: float = min(pause * 2 ** min(self.in_vain, 16), _LONGEST)
        return self.ended + rest

    def wait(self, body: Body, now: float) -> float:
        """Seconds until a question may be put; if it may be now, it is paid for."""
        if self.budget.wait(now, _SPARE, self.held):
            return self.budget.wait(now, 2 * _SPARE, self.held)
        cost = cost_of(body)
        self.budget.owe(cost)
        self.held += cost
        return 0.0

    def let_go(self, body: Body | None, now: float) -> None:
        """A question that was paid for has an end; None for all that are under way."""
        self.budget.wait(now, 0, self.held)
        self.held -= self.held if body is None else cost_of(body)
