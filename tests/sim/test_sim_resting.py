"""Times by the numbers of peers: a table, in less room."""

from hypothesis import given
from hypothesis import strategies as st

from rumormill.sim.resting import Resting

MOST = 4


@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "clear"]), st.integers(0, 9))))
def test_it_holds_what_a_table_would(steps: list[tuple[str, int]]) -> None:
    resting, table = Resting(), dict[int, float]()
    for at, (step, number) in enumerate(steps):
        if step == "put":
            if number not in table and len(table) == MOST:
                del table[min(table, key=table.__getitem__)]
            table[number] = at
            resting.put(number, at, MOST)
        elif step == "remove":
            table.pop(number, None)
            resting.remove(number)
        else:
            table.clear()
            resting.clear()
        assert len(resting) == len(table)
        for each in range(10):
            assert resting.since(each) == table.get(each, float("-inf"))
