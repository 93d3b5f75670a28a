"""The engine: virtual time goes forward, and simultaneous things keep their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.trace import Join
from rumormill.sim.engine import Engine
from rumormill.trace.entries import FLUSH_AT, Recorder
from trace_log import TraceLog


def test_things_happen_in_order_of_time() -> None:
    """Whatever the order of scheduling, the earlier moment comes first, and `now` tells it."""
    engine, seen = Engine(Recorder()), []
    for at in (3.0, 1.0, 2.0):
        engine.schedule(at, lambda name: seen.append((engine.now, name)), f"at {at:g}")
    engine.run_until(10.0)
    assert seen == [(1.0, "at 1"), (2.0, "at 2"), (3.0, "at 3")]
    assert engine.steps == 3


@given(st.lists(st.integers(0, 3), max_size=60))
def test_simultaneous_things_happen_as_they_were_scheduled(moments: list[int]) -> None:
    """Entries of one moment are a queue: first scheduled, first called."""
    engine, seen = Engine(Recorder()), []
    for number, at in enumerate(moments):
        engine.schedule(float(at), seen.append, (at, number))
    engine.run_until(3.0)
    assert seen == sorted((at, number) for number, at in enumerate(moments))


def test_what_is_scheduled_for_now_comes_after_what_was_already_due() -> None:
    """An entry made at its own moment stands behind the others of that moment."""
    engine, seen = Engine(Recorder()), []

    def first(_: None) -> None:
        seen.append("first")
        engine.schedule(engine.now, seen.append, "made meanwhile")

    engine.schedule(1.0, first)
    engine.schedule(1.0, seen.append, "second")
    engine.run_until(1.0)
    assert seen == ["first", "second", "made meanwhile"]


def test_the_past_is_now() -> None:
    """Time does not go back: what is late happens at once."""
    engine, seen = Engine(Recorder()), []
    engine.run_until(5.0)
    engine.schedule(2.0, lambda _: seen.append(engine.now))
    engine.run_until(5.0)
    assert seen == [5.0]


def test_the_end_is_included_and_the_rest_waits() -> None:
    """A stretch runs up to and including its end; what comes later stays in the queue."""
    engine, seen = Engine(Recorder()), []
    engine.schedule(1.0, seen.append, "on time")
    engine.schedule(1.0000001, seen.append, "later")
    engine.run_until(1.0)
    assert (seen, engine.now) == (["on time"], 1.0)
    engine.run_until(0.5)
    assert (seen, engine.now) == (["on time"], 1.0)
    engine.run_until(2.0)
    assert (seen, engine.now) == (["on time", "later"], 2.0)


def test_time_passes_when_nothing_happens() -> None:
    """An empty queue does not stop the clock."""
    engine = Engine(Recorder())
    engine.run_until(7.0)
    assert (engine.now, engine.steps) == (7.0, 0)


def test_the_recorder_is_flushed_on_the_way() -> None:
    """A long stretch does not keep its whole trace in memory."""
    log = TraceLog()
    engine = Engine(Recorder([log]))
    held = []

    def record(_: None) -> None:
        engine.recorder.record((engine.now, b"peer", Join("news")))
        held.append(len(engine.recorder._buffer))

    for number in range(3 * FLUSH_AT):
        engine.schedule(number / 1000, record)
    engine.run_until(1000.0)
    assert max(held) < FLUSH_AT + 512
    assert len(log.entries) >= 2 * FLUSH_AT


def test_an_error_leaves_the_rest_in_the_queue() -> None:
    """What fails is not called again, and what follows it can still run."""
    engine, seen = Engine(Recorder()), []

    def fail(_: None) -> None:
        raise ValueError("broken")

    engine.schedule(1.0, fail)
    engine.schedule(1.0, seen.append, "after")
    with pytest.raises(ValueError, match="broken"):
        engine.run_until(2.0)
    engine.run_until(2.0)
    assert seen == ["after"]


def test_a_stretch_that_failed_has_no_end_later() -> None:
    """Whoever goes on after an error runs up to the new end, and not to the old one."""
    engine, seen = Engine(Recorder()), []

    def fail(_: None) -> None:
        raise ValueError("broken")

    engine.schedule(1.0, fail)
    for at in (1.0001, 2.0001, 3.0):
        engine.schedule(at, seen.append, at)
    with pytest.raises(ValueError, match="broken"):
        engine.run_until(2.0)
    engine.run_until(4.0)
    assert seen == [1.0001, 2.0001, 3.0]
    assert (engine.steps, len(engine)) == (4, 0)
