"""The judge of the fault suite sees every way in which a promise can be broken."""

from collections.abc import Callable

import pytest
from chaos_checker import Kept, Seen, check
from chaos_node import content_of, name_in

TOPIC = "news"


def honest() -> dict[str, Seen]:
    """Two nodes: the first published two events, the second one; both have and were given all."""
    first = [(0, "id-a", "a"), (1, "id-b", "b"), (2, "id-c", "c")]
    second = [(0, "id-c", "c"), (1, "id-a", "a"), (2, "id-b", "b")]
    return {
        "n0": Seen(
            tried={"a": TOPIC, "b": TOPIC},
            kept=[Kept(TOPIC, 0, "id-a", "a"), Kept(TOPIC, 1, "id-b", "b")],
            given={TOPIC: [*first]},
            read={TOPIC: first[:1]},
            stored={TOPIC: [*first]},
        ),
        "n1": Seen(
            tried={"c": TOPIC},
            kept=[Kept(TOPIC, 0, "id-c", "c")],
            given={TOPIC: [*second]},
            stored={TOPIC: [*second]},
        ),
    }


def kinds(seen: dict[str, Seen]) -> set[str]:
    return {violation.kind for violation in check(seen)}


def test_an_honest_network_is_not_accused() -> None:
    assert check(honest()) == []


def test_what_was_tried_and_never_acknowledged_may_be_anywhere_or_nowhere() -> None:
    seen = honest()
    seen["n0"].tried |= {"d": TOPIC, "e": TOPIC}
    seen["n1"].stored[TOPIC].append((3, "id-d", "d"))
    assert check(seen) == []


def cut_off_the_publisher(seen: dict[str, Seen]) -> None:
    for observed in (seen["n0"].stored, seen["n0"].given):
        observed[TOPIC].pop(1)
        observed[TOPIC][1] = (1, "id-c", "c")


def lose_what_was_given(seen: dict[str, Seen]) -> None:
    seen["n1"].stored[TOPIC].pop()


def lose_what_was_read(seen: dict[str, Seen]) -> None:
    seen["n0"].read[TOPIC].append((3, "id-d", "d"))


def lose_what_was_requested(seen: dict[str, Seen]) -> None:
    seen["n0"].kept.append(Kept(TOPIC, -1, "id-x", "x"))


def lack_at_another(seen: dict[str, Seen]) -> None:
    for observed in (seen["n1"].stored, seen["n1"].given):
        observed[TOPIC].pop()


def give_twice(seen: dict[str, Seen]) -> None:
    seen["n1"].given[TOPIC].append((0, "id-c", "c"))


def store_twice(seen: dict[str, Seen]) -> None:
    seen["n1"].stored[TOPIC].append((3, "id-other", "c"))


def skip_one(seen: dict[str, Seen]) -> None:
    seen["n1"].given[TOPIC].pop(1)


def move_between_lives(seen: dict[str, Seen]) -> None:
    seen["n0"].read[TOPIC].append((2, "id-b", "b"))


def move_the_receipt(seen: dict[str, Seen]) -> None:
    seen["n0"].kept[1] = Kept(TOPIC, 2, "id-b", "b")


def invent(seen: dict[str, Seen]) -> None:
    seen["n1"].stored[TOPIC].append((3, "id-z", "z"))


def publish_elsewhere(seen: dict[str, Seen]) -> None:
    seen["n1"].stored["weather"] = [(0, "id-a", "a")]


def damage(seen: dict[str, Seen]) -> None:
    seen["n1"].stored[TOPIC][1] = (1, "id-a", name_in(content_of("a")[:-1]))


def give_nothing(seen: dict[str, Seen]) -> None:
    seen["n0"].given.clear()


@pytest.mark.parametrize(
    ("break_it", "found"),
    [
        (cut_off_the_publisher, "lost"),
        (lose_what_was_given, "lost"),
        (lose_what_was_read, "lost"),
        (lose_what_was_requested, "lost"),
        (lack_at_another, "lost elsewhere"),
        (give_twice, "repeated"),
        (store_twice, "repeated"),
        (skip_one, "gap"),
        (move_between_lives, "moved"),
        (move_the_receipt, "moved"),
        (invent, "unknown"),
        (publish_elsewhere, "unknown"),
        (damage, "forked"),
        (give_nothing, "not given"),
    ],
)
def test_a_broken_promise_is_seen(break_it: Callable[[dict[str, Seen]], None], found: str) -> None:
    seen = honest()
    break_it(seen)
    assert found in kinds(seen)


@pytest.mark.parametrize("name", ["n0.1.0.0", "n3.12.1.999"])
def test_a_content_says_its_name_and_a_part_of_it_does_not(name: str) -> None:
    data = content_of(name)
    assert name_in(data) == name
    for wrong in (data[:-1], data + b"|", data.replace(b".", b",", 1), b"", b"\xff|"):
        assert name_in(wrong) != name
