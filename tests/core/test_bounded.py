"""Tables: what makes room in a full one, and what room an empty one keeps."""

import sys

from rumormill.core.bounded import remember, take_out


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
