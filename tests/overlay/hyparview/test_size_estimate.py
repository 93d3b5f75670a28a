"""The size estimate: its error, its merging, its rounds."""

import random

from hypothesis import given
from hypothesis import strategies as st

from rumormill.overlay.hyparview import reasons
from rumormill.overlay.hyparview.size_estimate import LARGEST, SizeEstimate


def drawn(seed: object, epoch: float = 60.0, now: float = 1000.0, count: int = 32) -> SizeEstimate:
    estimate = SizeEstimate(random.Random(str(seed)), count, epoch)
    estimate.advance(now)
    return estimate


def merged(peers: int, seed: int, count: int = 32) -> SizeEstimate:
    """What a peer knows when all minima of a round have come to it."""
    estimate = drawn((seed, 0), count=count)
    for peer in range(1, peers):
        other = drawn((seed, peer), count=count)
        assert estimate.merge(other.epoch, other.minima, 1000.0) is None
    return estimate


def test_the_standard_error_is_what_theory_says() -> None:
    """Over 150 networks of 100 peers: unbiased, with a standard error of 1 / √(k − 2)."""
    errors = [merged(100, seed).size / 100 - 1 for seed in range(150)]
    mean = sum(errors) / len(errors)
    spread = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    theory = 1 / 30**0.5
    assert abs(mean) < 3 * theory / 150**0.5
    assert 0.8 * theory < spread < 1.25 * theory


@given(st.lists(st.integers(0, 20), max_size=60), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(peers: list[int], rng: random.Random) -> None:
    """Minima merge to the same, however often and in whatever order they come."""
    sources = [drawn(("source", peer)).minima for peer in peers]
    one, other = drawn("me"), drawn("me")
    for minima in sources:
        one.merge(one.epoch, minima, 1000.0)
    rng.shuffle(sources)
    for minima in sources + sources:
        other.merge(other.epoch, minima, 1000.0)
    assert one.minima == other.minima


def test_it_grows_at_once_and_shrinks_after_two_rounds() -> None:
    """The larger one of this round's and the last round's estimate counts."""
    estimate = merged(200, 1)
    large = estimate.size
    assert large > 100
    assert estimate.advance(1060.0)
    assert estimate.size == large
    assert not estimate.advance(1060.1)
    assert estimate.advance(1120.0)
    assert estimate.size < 5


def test_the_next_round_may_be_heard_of_before_our_clock_says_so() -> None:
    """One round ahead is somebody's clock; two are somebody's lie. Past rounds change nothing."""
    estimate, ahead = drawn(1), drawn(2, now=1060.0)
    epoch = estimate.epoch
    assert estimate.merge(epoch + 2, ahead.minima, 1000.0) == reasons.EPOCH_AHEAD
    assert estimate.epoch == epoch
    assert estimate.merge(epoch + 1, ahead.minima, 1000.0) is None
    assert estimate.epoch == epoch + 1
    before = estimate.minima
    assert estimate.merge(epoch, (1e-9,) * 32, 1000.0) is None
    assert estimate.minima == before


def test_no_lie_makes_it_endless() -> None:
    """The smallest minima that can be said give the largest size, and no error."""
    estimate = drawn(1)
    assert estimate.merge(estimate.epoch, (1e-45,) * 32, 1000.0) is None
    assert estimate.size == LARGEST
