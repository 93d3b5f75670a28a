"""Of several ways the first that works counts; the others are ended, and failures are told."""

import asyncio
from collections.abc import Awaitable, Callable

from rumormill.libp2p.racing import race


def way(
    result: int | str, begun: list[int | str], ended: list[int | str], *, hangs: bool = False
) -> Callable[[], Awaitable[int | str]]:
    async def go() -> int | str:
        begun.append(result)
        try:
            if hangs:
                await asyncio.get_running_loop().create_future()
            return result
        except asyncio.CancelledError:
            ended.append(result)
            raise

    return go


def test_a_way_that_leads_nowhere_holds_up_the_next_only_for_a_moment() -> None:
    begun: list[int | str] = []
    ended: list[int | str] = []
    ways = [way(1, begun, ended, hangs=True), way("no", begun, ended), way(3, begun, ended)]
    assert asyncio.run(race([*ways, way(4, begun, ended)], head_start=0.01)) == 3
    assert begun == [1, "no", 3], "a failure is followed at once, and nobody begins after the first"
    assert ended == [1]


def test_if_none_works_all_reasons_are_told() -> None:
    assert asyncio.run(race([way("a", [], []), way("b", [], [])])) == ["a", "b"]
    assert asyncio.run(race([])) == []
