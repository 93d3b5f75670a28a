"""What the suite's upkeep tells the judge, where something fails between one log and the other."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chaos_member import Member
from chaos_node import Life
from chaos_upkeep import Upkeep

from rumormill import Node
from rumormill.log import EventLog, StoreFailedError, opening


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a node of the suite says."""
    lines: list[tuple[Any, ...]] = []
    monkeypatch.setattr("chaos_upkeep.say", lambda *what: lines.append(what))
    return lines


def member(home: Path) -> Member:
    """Who hears it."""
    life = Life(
        home=str(home), listen="", protocol="gossipsub", word="", connect=[], routes={},
        topics={"news": "news"}, since={}, supervisors=[],
    )  # fmt: skip
    return Member("n0", life, None, lambda: None)


def restored(tmp_path: Path, and_then: Callable[[], None]) -> Path:
    """A home that goes back to a copy of three of its five events; something happens meanwhile."""

    async def run() -> None:
        async with Node(tmp_path / "home") as node:
            topic = node.topic("news")
            upkeep = Upkeep(node, {"news": "news"})
            for number in range(5):
                if number == 3:
                    await upkeep.do("backup", str(tmp_path / "copy"))
                await topic.publish(str(number))
            and_then()
            await upkeep.do("restore", str(tmp_path / "copy"))

    asyncio.run(run())
    return tmp_path / "home"


def test_a_restore_that_stops_the_log_may_have_been_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[tuple[Any, ...]]
) -> None:
    """The other database counts, and cannot be opened: the next life has the copy's events."""
    open_writing = opening.open_writing

    def fail(*_: object) -> None:
        raise StoreFailedError("a flush failed")

    home = restored(tmp_path, lambda: monkeypatch.setattr(opening, "open_writing", fail))
    monkeypatch.setattr(opening, "open_writing", open_writing)
    with EventLog(home) as log:
        said.append(("losses", {"news": (0, log.losses("news"))}))
    assert said[-1] == ("losses", {"news": (0, [(3, 5)])})

    hears = member(home)
    for line in said:
        hears._hear(*line)
    assert hears.faults == []
    assert [*hears.seen.lost] == [("news", 3), ("news", 4)]


def test_what_a_life_gives_up_after_a_restore_is_nobodys_wish(
    tmp_path: Path, said: list[tuple[Any, ...]]
) -> None:
    home = restored(tmp_path, lambda: None)
    hears = member(home)
    for line in [*said, ("losses", {"news": (0, [(2, 5)])})]:
        hears._hear(*line)
    assert [fault.kind for fault in hears.faults] == ["gave up"]


def test_a_schedule_may_damage_the_last_event(tmp_path: Path, said: list[tuple[Any, ...]]) -> None:
    """Its numbers are rounded, up to 1."""

    async def run() -> None:
        async with Node(tmp_path / "home") as node:
            await node.topic("news").publish("only")
            await Upkeep(node, {"news": "news"}).do("damage", "1.0")

    asyncio.run(run())
    assert said[0] == ("damaging", "news", 0)
    assert not [line for line in said if line[0] == "refused"]
