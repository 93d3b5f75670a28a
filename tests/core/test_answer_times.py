"""How long answers take, and when a question is put again."""

import random

import pytest

from rumormill.core.answer_times import AnswerTimes


def test_it_begins_with_a_second() -> None:
    """As RFC 6298 does where nothing is known."""
    assert AnswerTimes().patience == 1.0


def test_hardly_any_answer_comes_after_it() -> None:
    """Of answers between 50 and 450 ms; and it is no longer than it must be."""
    draws, times, late = random.Random(1), AnswerTimes(), 0
    for _ in range(1000):
        took = draws.uniform(0.05, 0.45)
        late += took > times.patience
        times.note(took)
    assert late < 10
    assert times.patience < 1.0


def test_a_quick_network_is_not_hurried() -> None:
    """Answers within a millisecond still have a quarter of a second."""
    times = AnswerTimes()
    for _ in range(100):
        times.note(0.001)
    assert times.patience == 0.25


@pytest.mark.parametrize("round_trip", [1.6, 4.0])
def test_a_network_slower_than_the_estimate_is_noticed(round_trip: float) -> None:
    """Though answers to repeated questions do not count: patience doubles until one is heard."""
    times, repeated = AnswerTimes(), 0
    for _ in range(50):
        wait = times.patience
        if round_trip <= wait:
            times.note(round_trip)
        else:
            times.repeat()
            repeated += 1
    assert repeated <= 10
    assert times.patience > round_trip
    for _ in range(10):
        times.repeat()
    assert times.patience < 10 * 8, "bounded"
