"""Generators of which few are held draw as if all were."""

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.sim import draws
from rumormill.sim.draws import Draws, Generators

KINDS = ("random", "getrandbits", "randrange", "choice", "sample", "shuffle", "randbytes")
MOST = 2


def drawn(source: random.Random | Draws, kind: str, size: int) -> object:
    items = list(range(size))
    if kind == "random":
        return source.random()
    if kind == "shuffle":
        source.shuffle(items)
        return items
    if kind == "choice":
        return source.choice(items)
    if kind == "sample":
        return source.sample(items, size // 2)
    return getattr(source, kind)(size)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(KINDS), st.integers(1, 300))))
def test_every_draw_is_that_of_a_generator_of_its_own(
    plan: list[tuple[int, str, int]],
) -> None:
    generators = Generators(1, MOST)
    thrifty = [generators.draws(str(number)) for number in range(4)]
    whole = [random.Random(f"1/{number}") for number in range(4)]
    for number, kind, size in plan:
        assert drawn(thrifty[number], kind, size) == drawn(whole[number], kind, size)
        assert len(generators.live) <= MOST


def test_a_generator_that_is_no_longer_held_is_made_again() -> None:
    generators = Generators(1, MOST)
    thrifty = [generators.draws(str(number)) for number in range(MOST + 1)]
    whole = [random.Random(f"1/{number}") for number in range(MOST + 1)]
    for _ in range(3):
        for mine, other in zip(thrifty, whole, strict=True):
            assert mine not in generators.live
            assert [mine.randrange(1 << 1070), mine.random()] == [
                other.randrange(1 << 1070),
                other.random(),
            ]


def test_who_draws_in_turn_with_many_is_not_seeded_for_every_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeded: list[str] = []

    class Counted(random.Random):
        def __init__(self, seed: str) -> None:
            seeded.append(seed)
            super().__init__(seed)

    monkeypatch.setattr(draws, "Random", Counted)
    generators = Generators(1, MOST)
    thrifty = [generators.draws(str(number)) for number in range(4 * MOST)]
    for _ in range(32):
        for mine in thrifty:
            mine.random()
    assert len(seeded) == 2 * len(thrifty)


def test_who_draws_much_keeps_its_generator_and_need_not_draw_it_all_again() -> None:
    generators = Generators(1)
    much, whole = generators.draws("much"), random.Random("1/much")
    for _ in range(draws._MOST_REPEATED):
        assert much.random() == whole.random()
    generators.live.clear()
    assert much.random() == whole.random()
    assert not generators.live
    assert [much.random() for _ in range(9)] == [whole.random() for _ in range(9)]
    assert not generators.live


def test_what_was_put_away_goes_on_where_it_was() -> None:
    source, whole = Generators(1).draws("7"), random.Random("1/7")
    assert source.sample(range(90), 30) == whole.sample(range(90), 30)
    restored = pickle.loads(pickle.dumps(source))
    assert restored.getstate() == source.getstate()
    assert [restored.random() for _ in range(9)] == [whole.random() for _ in range(9)]
