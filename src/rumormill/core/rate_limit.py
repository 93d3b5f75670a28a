"""A limit on how often something may happen: so many times at once, so many per second.

It is a token bucket whose tokens are counted when they are asked for, so it needs no timer.
"""


class RateLimit:
    """Up to `burst` at once, refilled by `rate` per second."""

    __slots__ = ("_burst", "_left", "_rate", "_since")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._since = 0.0

    def take(self, now: float) -> bool:
        """Use one, if there is one."""
        if self.wait(now, 1):
            return False
        self._left -= 1
        return True

    def wait(self, now: float, count: float, held: float = 0) -> float:
        """Seconds until there are so many, if none is used meanwhile; 0 if there are.

        Who keeps the account of somebody else, and does not know when what was used last arrived
        there, holds that: what might have come back above it is not counted.
        """
        left = self._left + (now - self._since) * self._rate
        self._since = now
        self._left = min(left, self._burst - held)
        return max(0.0, (count - self._left) / self._rate)

    def owe(self, count: float) -> None:
        """Use more than there may be: until that has come back nothing is taken."""
        self._left = max(self._left - count, -self._burst)
