"""The judge of the fault suite sees every way in which a promise can be broken."""

from collections.abc import Callable

import pytest
from chaos_checker import Backup, Kept, Seen, check, owed
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


def restored() -> dict[str, Seen]:
    """The first node took a copy back that had its first event alone: of what it lost, one came
    again from the second, and one was nobody else's."""
    seen = honest()
    first, place = seen["n0"], (3, "id-d", "d")
    first.tried["d"] = TOPIC
    first.given[TOPIC].append(place)
    first.kept.append(Kept(TOPIC, *place))
    first.lost = {(TOPIC, offset): 3 for offset in (1, 2, 3)}
    first.stored[TOPIC][1:] = again = [(4, "id-c", "c"), (5, "id-b", "b")]
    first.given[TOPIC] += again
    first.backups["copy"] = Backup(1, {TOPIC: [(0, "id-a", "a")]})
    return seen


def retained() -> dict[str, Seen]:
    """The second node has deleted its first event, and what is as old did not come any more."""
    seen = honest()
    seen["n0"].dates = {"id-a": 10, "id-b": 30}
    second = seen["n1"]
    second.least, second.first, second.window = 1, {TOPIC: 1}, {TOPIC: 20}
    second.dates = {"id-c": 5}
    second.stored[TOPIC] = [(1, "id-b", "b")]
    second.given[TOPIC] = [(0, "id-c", "c"), (1, "id-b", "b")]
    return seen


def deleted_at_once() -> dict[str, Seen]:
    """The first node has deleted what it had published before it came to anybody."""
    seen = honest()
    first = seen["n0"]
    first.least, first.first = 1, {TOPIC: 2}
    for observed in (first.stored, seen["n1"].stored, seen["n1"].given):
        observed[TOPIC][:] = [place for place in observed[TOPIC] if place[1] == "id-c"]
    return seen


@pytest.mark.parametrize("upkeep", [restored, retained, deleted_at_once])
def test_what_upkeep_may_take_away_is_no_fault(upkeep: Callable[[], dict[str, Seen]]) -> None:
    assert check(upkeep()) == []


def test_who_took_a_copy_back_is_owed_what_others_have() -> None:
    """What is nowhere any more, nobody waits for."""
    seen = restored()
    seen["n0"].stored[TOPIC].pop()
    has = {name: each.ids(each.stored) for name, each in seen.items()}
    assert [(kept.name, lacking) for _, kept, lacking in owed(seen, has)] == [("b", ["n0"])]


def test_what_was_deleted_before_it_came_to_anybody_is_owed_to_nobody() -> None:
    """Also where its publisher's own application was given it, which is all that some ask."""
    seen = deleted_at_once()
    for observed in ("stored", "given"):
        has = {name: each.ids(getattr(each, observed)) for name, each in seen.items()}
        assert [*owed(seen, has)] == []


def use_again_what_was_lost(seen: dict[str, Seen]) -> None:
    for observed in (seen["n0"].stored, seen["n0"].given):
        observed[TOPIC][-2:] = [(2, "id-b", "b")]


def let_another_have_the_offset(seen: dict[str, Seen]) -> None:
    seen["n0"].read[TOPIC].append((3, "id-z", "z"))


def lose_what_came_afterwards(seen: dict[str, Seen]) -> None:
    seen["n0"].lost[TOPIC, 3] = 2


def lose_what_the_copy_has(seen: dict[str, Seen]) -> None:
    del seen["n0"].lost[TOPIC, 1]


def lack_in_the_copy(seen: dict[str, Seen]) -> None:
    seen["n0"].backups["copy"].has.clear()


def come_twice_again(seen: dict[str, Seen]) -> None:
    seen["n0"].given[TOPIC].append((6, "id-b", "b"))


def come_never_again(seen: dict[str, Seen]) -> None:
    for observed in (seen["n0"].stored, seen["n0"].given):
        observed[TOPIC].pop()


def delete_more_than_was_said(seen: dict[str, Seen]) -> None:
    seen["n1"].least = 2


def delete_unasked(seen: dict[str, Seen]) -> None:
    seen["n1"].least = None


def lack_what_is_younger(seen: dict[str, Seen]) -> None:
    seen["n1"].window[TOPIC] = 10


def let_the_deleted_come_again(seen: dict[str, Seen]) -> None:
    for observed in (seen["n1"].stored, seen["n1"].given):
        observed[TOPIC].append((2, "id-c", "c"))


@pytest.mark.parametrize(
    ("upkeep", "break_it", "found"),
    [
        (restored, use_again_what_was_lost, "reused"),
        (restored, let_another_have_the_offset, "reused"),
        (restored, lose_what_came_afterwards, "lost"),
        (restored, lose_what_the_copy_has, "lost"),
        (restored, lack_in_the_copy, "not copied"),
        (restored, come_twice_again, "repeated"),
        (restored, come_never_again, "lost elsewhere"),
        (retained, delete_more_than_was_said, "overdone"),
        (retained, delete_unasked, "overdone"),
        (retained, lack_what_is_younger, "lost elsewhere"),
        (retained, let_the_deleted_come_again, "repeated"),
    ],
)
def test_upkeep_that_takes_more_than_it_may_is_seen(
    upkeep: Callable[[], dict[str, Seen]], break_it: Callable[[dict[str, Seen]], None], found: str
) -> None:
    seen = upkeep()
    break_it(seen)
    assert found in kinds(seen)


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
