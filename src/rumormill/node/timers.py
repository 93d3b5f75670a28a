"""The timers of a machine, by the event loop's clock; set again when the machine's time is.

A patient timer finds out whether the loop is behind: it is when the timer fires late, because then
no moment was free since. It then waits for one, and not for ever: so what nobody waits for (a look
at the members, a first comparison of histories) stands back while messages come in a burst.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from rumormill.core.effects import CancelTimer, SetTimer

_LATE: Final = 0.004
_LOOK_AGAIN: Final = 0.4
_PATIENCE: Final = 1.0
"""Seconds: how late a timer is when the loop is behind, when it looks again, and how long it does
that at most. Our choice: a loop with nothing to do is on time to a millisecond, one with a burst of
messages takes tens of them to come round, and whoever set the timer counts in seconds."""


class Timers:
    """Those of one machine."""

    def __init__(
        self, steadily: Callable[[float], float], fire: Callable[[Hashable], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._steadily = steadily
        """When the loop's clock will be where the machine's time is this."""
        self._fire = fire
        self._handles: dict[Hashable, asyncio.TimerHandle] = {}
        self._set: dict[Hashable, SetTimer] = {}

    def set(self, effect: SetTimer) -> None:
        """Set a timer, or move one."""
        timer, at = effect.timer, self._steadily(effect.at)
        self._set[timer] = effect
        if (old := self._handles.get(timer)) is not None:
            old.cancel()
        if effect.patient:
            due = max(at, self._loop.time())
            self._wait(timer, due, due + _PATIENCE)
        else:
            self._handles[timer] = self._loop.call_at(at, self._on_time, timer)

    def cancel(self, effect: CancelTimer) -> None:
        """Forget a timer, if it is set."""
        self._set.pop(effect.timer, None)
        handle = self._handles.pop(effect.timer, None)
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        """Forget all of them."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        self._set.clear()

    def set_again(self) -> None:
        """The machine's time has been set: have all of them fire when they are due by it."""
        for effect in [*self._set.values()]:
            self.set(effect)

    def _on_time(self, timer: Hashable) -> None:
        del self._handles[timer], self._set[timer]
        self._fire(timer)

    def _wait(self, timer: Hashable, due: float, latest: float) -> None:
        # The handle is not asked when it is due: uvloop's do not know it, if that is now.
        handle = self._loop.call_at(due, self._on_patient, timer, due, latest)
        self._handles[timer] = handle

    def _on_patient(self, timer: Hashable, due: float, latest: float) -> None:
        now = self._loop.time()
        if now - due < _LATE or now >= latest:
            self._on_time(timer)
        else:
            self._wait(timer, min(now + _LOOK_AGAIN, latest), latest)
