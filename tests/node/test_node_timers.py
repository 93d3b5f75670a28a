"""A machine's timers fire when they are due; patient ones stand back while the loop is behind."""

import asyncio
import time
from collections.abc import Hashable

import pytest

from live_nodes import run, until
from rumormill.core.effects import CancelTimer, SetTimer
from rumormill.node import timers as timers_module
from rumormill.node.timers import Timers


class Clock:
    """Timers, what they have fired, and a loop that can be kept busy."""

    def __init__(self) -> None:
        self.fired: list[Hashable] = []
        self.behind = 0.0
        self.timers = Timers(lambda moment: moment + self.behind, self.fired.append)
        self.now = asyncio.get_running_loop().time

    def set(self, timer: str, *, patient: bool = False) -> None:
        self.timers.set(SetTimer(timer, self.now(), patient))

    async def work(self) -> None:
        """Keep the loop from its timers, and let it see to those that are due by then."""
        time.sleep(0.05)  # noqa: ASYNC251 (that is the point)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_a_patient_timer_waits_for_a_loop_that_is_behind_and_fires_when_it_is_not() -> None:
    async def story() -> None:
        clock = Clock()
        clock.set("patient", patient=True)
        clock.set("punctual")
        await clock.work()
        assert clock.fired == ["punctual"]
        await until(lambda: clock.fired == ["punctual", "patient"], "it fires in the end")
        clock.timers.close()

    run(story)


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers_module, "_PATIENCE", 0.02)

    async def story() -> None:
        clock = Clock()
        clock.set("patient", patient=True)
        await clock.work()
        assert clock.fired == ["patient"]

    run(story)


def test_a_timer_that_is_set_again_fires_once_and_one_that_is_cancelled_never() -> None:
    async def story() -> None:
        clock = Clock()
        for patient in (True, False):
            clock.set("moved", patient=patient)
            clock.set("cancelled", patient=patient)
        clock.timers.cancel(CancelTimer("cancelled"))
        clock.timers.cancel(CancelTimer("never set"))
        await clock.work()
        assert clock.fired == ["moved"]

    run(story)


def test_nothing_fires_after_the_end() -> None:
    async def story() -> None:
        clock = Clock()
        clock.set("patient", patient=True)
        await clock.work()
        clock.set("punctual")
        clock.timers.close()
        await clock.work()
        await asyncio.sleep(timers_module._LOOK_AGAIN)
        assert not clock.fired

    run(story)


def test_a_patient_timer_that_was_due_before_fires_on_uvloop_too() -> None:
    """Its handles do not know when they are due, if that is past."""
    uvloop = pytest.importorskip("uvloop", reason="the extra uvloop is not installed")

    async def story() -> None:
        clock = Clock()
        clock.timers.set(SetTimer("patient", clock.now() - 1, patient=True))
        await until(lambda: clock.fired == ["patient"], "it fires")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_when_the_time_is_set_all_timers_fire_when_they_are_due_by_it() -> None:
    """Forward: at once. What was cancelled stays so, and nothing fires twice."""

    async def story() -> None:
        clock = Clock()
        for timer in ("an hour", "patient hour", "cancelled"):
            clock.timers.set(SetTimer(timer, clock.now() + 3600, timer == "patient hour"))
        clock.timers.set(SetTimer("two hours", clock.now() + 7200))
        clock.timers.cancel(CancelTimer("cancelled"))
        clock.behind = -3600.0
        clock.timers.set_again()
        await until(lambda: len(clock.fired) == 2, "what is due fires")
        clock.timers.set_again()
        await asyncio.sleep(0.01)
        assert sorted(map(str, clock.fired)) == ["an hour", "patient hour"]
        clock.timers.close()

    run(story)
