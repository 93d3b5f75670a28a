"""Tables: what makes room in a full one, and what room an empty one keeps."""

import sys

import pytest

from rumormill.core.bounded import drop, remember, take_out


def test_the_oldest_makes_room_and_who_is_entered_again_is_the_newest() -> None:
    table: dict[str, int] = {}
    assert [remember(table, key, value, 2) for value, key in enumerate("abab")] == [None] * 4
    assert remember(table, "c", 4, 2) == "a"
    assert table == {"b": 3, "c": 4}


def test_a_table_that_was_full_and_is_empty_takes_no_more_than_a_new_one() -> None:
    table = dict.fromkeys(range(100), "value")
    assert [take_out(table, key) for key in range(100)] == ["value"] * 100
    assert take_out(table, 0) is None
    assert sys.getsizeof(table) == sys.getsizeof({})


@pytest.mark.parametrize("left", [0, 1, 5, 12, 20])
def test_a_table_that_many_have_left_takes_no_more_room_than_one_without_them(left: int) -> None:
    """Entries keep their order, and those that come later go behind them."""
    table, other = dict.fromkeys(range(40)), dict.fromkeys(range(20, 20 + left))
    for key in (*range(20), *range(20 + left, 40), 99):
        drop(table, key)
    assert list(table) == list(other)
    assert sys.getsizeof(table) == sys.getsizeof(other)
    table[7] = None
    assert list(table) == [*other, 7]


def test_of_a_large_table_one_entry_is_removed_and_nothing_else_is_done() -> None:
    table = dict.fromkeys(range(1000), "value")
    before = sys.getsizeof(table)
    assert drop(table, 500) == "value"
    assert drop(table, 500) is None
    assert sys.getsizeof(table) == before
