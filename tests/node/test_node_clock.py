"""A wall clock that is set: events say when they came, dates and numbers never go back."""

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from live_nodes import run, until
from rumormill.cli.shared_flags import PROTOCOLS
from rumormill.core.event import Event, Note
from rumormill.core.history import stamp_of
from rumormill.log.event_log import EventLog
from rumormill.log.model import Durability, Retention, StoreConfig
from rumormill.node.clock import Clock
from rumormill.node.config import NodeConfig
from rumormill.node.identity import identity_of
from rumormill.node.node import Node
from rumormill.node.numbers import Numbers

HOUR = 3600.0
QUICK = NodeConfig(trace_interval=0.05)
"""So often the clock is looked at."""


class Wall:
    """The machine's clock, which may be set; and a steady one, which goes by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        true = time.time
        monkeypatch.setattr(time, "time", lambda: true() + self.ahead)


async def looked_at(node: Node) -> None:
    """Wait until a node has compared its clock with the wall's."""
    clock = node._driver.clock
    agree = lambda: abs(clock.wall + clock._steady() - time.time()) < 30  # noqa: E731
    await until(agree, "the clock is looked at")


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wall]:
    yield Wall(monkeypatch)
    monkeypatch.undo()


def test_the_time_never_goes_back_and_comes_right_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set forward it follows at once, set back it goes at half its pace until it is right."""
    steady, ahead = 1000.0, 0.0
    monkeypatch.setattr(time, "time", lambda: 1e9 + steady + ahead)
    clock = Clock(lambda: steady)
    assert (clock.now(), clock.follow()) == (1e9 + 1000.0, False)
    ahead = 500.0
    assert clock.follow()
    assert (clock.now(), clock.ahead, clock.pace) == (1e9 + 1500.0, 0.0, 1.0)
    due = clock.now() + 10.0
    ahead = -100.0
    seen, paces = [clock.now()], []
    while clock.follow() or clock.ahead > 0.2:
        paces.append(clock.pace)
        steady += 1.0
        seen.append(clock.now())
        assert len(seen) < 2000
    assert seen == sorted(seen)
    assert 1190 < len(seen) < 1210  # it was 600 ahead
    assert set(paces) == {0.5, 1.0} or min(paces) == 0.5
    assert abs(clock.now() - time.time()) <= 0.2
    assert clock.now() > due
    assert clock.steadily(clock.now() + 7.0) == pytest.approx(steady + 7.0 / clock.pace)


def test_what_passes_while_the_machine_sleeps_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steady clock stands meanwhile, as Linux's does: an hour is made up at the next look."""
    steady, slept = 50.0, 0.0
    monkeypatch.setattr(time, "time", lambda: 1e9 + steady + slept)
    clock = Clock(lambda: steady)
    for _ in range(3):
        slept += 3600.0
        before = clock.now()
        steady += 1.0
        assert clock.follow()
        assert clock.now() == before + 3601.0 == time.time()
        assert (clock.ahead, clock.pace) == (0.0, 1.0)


def test_what_a_time_service_corrects_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = drift = 0.0
    monkeypatch.setattr(time, "time", lambda: 1e9 + steady + drift)
    clock = Clock(lambda: steady)
    for corrected in (0.05, -0.05, 0.09):
        steady, drift = steady + 1.0, corrected
        assert not clock.follow()
        assert clock.now() == 1e9 + steady
    assert clock.wall == pytest.approx(1e9 + 0.09)


def test_what_passes_between_two_looks_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may stop us between the two clocks: then they are not compared."""
    steady, pauses = 0.0, [0.0] * 4

    def wall() -> float:
        nonlocal steady
        steady += pauses.pop(0)
        return 1e9 + steady

    monkeypatch.setattr(time, "time", wall)
    clock = Clock(lambda: steady)
    pauses[:] = [0.5, 0.5, 0.5]
    assert not clock.follow()
    pauses[:] = [0.5, 0.0]
    assert not clock.follow()
    assert (clock.now(), clock.wall, clock.pace) == (1e9 + steady, 1e9, 1.0)


@pytest.mark.parametrize("wrong", [-1e9, 0.0, 1.04e10, 4e11])
def test_a_clock_that_shows_no_date_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """It goes on as before, or counts from the beginning until there is a date."""
    steady, shown = 50.0, 1e9
    monkeypatch.setattr(time, "time", lambda: shown)
    clock = Clock(lambda: steady)
    shown, steady = wrong, 60.0
    assert not clock.follow()
    assert (clock.now(), clock.wall + steady, clock.pace) == (1e9 + 10.0, 1e9 + 10.0, 1.0)
    begun = Clock(lambda: steady)
    assert begun.now() == begun.wall + steady == 1.0
    shown = 1e9 + 10.0
    assert not clock.follow()
    assert begun.follow()
    assert begun.now() == shown


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrong", [-1e9, 1.04e10, 4e11])
def test_a_node_lives_through_a_clock_that_shows_no_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, wrong: float
) -> None:
    """It is started with it, again, and with a right one: what it publishes is new each time."""
    topics = ["news"]

    async def life(number: int) -> None:
        async with Node(tmp_path, protocol=protocol, supervises=protocol == "skipring") as node:
            if protocol == "pulsarcast" and not number:
                topics[0] = (await node.create_topic("news")).name
            events = await node.subscribe(topics[0])
            receipt = await node.publish(topics[0], b"%d" % number)
            assert receipt.offset == number
            assert (await anext(events)).data == b"%d" % number

    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: wrong)
        for number in range(2):
            run(lambda number=number: life(number))
    for number in range(2, 4):
        run(lambda number=number: life(number))


def test_numbers_that_a_wrong_clock_gave_do_not_come_again(tmp_path: Path) -> None:
    """An earlier life, which followed it, has used up numbers far beyond its dates."""

    async def life(number: int) -> None:
        async with Node(tmp_path) as node:
            assert (await node.publish("news", b"%d" % number)).offset == number

    author = identity_of(tmp_path).peer
    numbers = [(1 << 63) + 1, (1 << 63) + 2]
    with EventLog(tmp_path) as log:
        ids = [author + number.to_bytes(8) for number in numbers]
        log.append([Event("news", b"", author, each, received=1.04e10) for each in ids]).result()
    for number in range(2, 5):
        run(lambda number=number: life(number))


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_events_say_when_they_came_also_after_the_clock_was_set(
    tmp_path: Path, wall: Wall, step: float
) -> None:
    """It was wrong by the step for as long as the node ran."""

    async def story() -> None:
        async with Node(tmp_path, config=QUICK) as node:
            await node.publish("news", b"before")
            wall.ahead = step
            await looked_at(node)
            await node.publish("news", b"after")
            before, after = await node.history("news")
            assert after.received == pytest.approx(time.time(), abs=30)
            assert before.received == pytest.approx(time.time() - step, abs=30)
            assert [each.data for each in await node.history("news", since=time.time() - 60)] == (
                [b"after"] if step > 0 else [b"before", b"after"]
            )

    run(story)


def test_a_member_of_the_network_survives_its_clock(tmp_path: Path, wall: Wall) -> None:
    """Both directions, in the middle of a conversation: nobody is cut off, nothing is lost."""

    async def story() -> None:
        async with Node(tmp_path / "a", config=QUICK) as a, Node(tmp_path / "b", config=QUICK) as b:
            events = await b.subscribe("news")
            await b.connect(a.tickets[0])
            await a.wait_until_ready("news")
            for number, ahead in enumerate((0.0, HOUR, 26 * HOUR, HOUR, -HOUR, 0.0)):
                wall.ahead = ahead
                await looked_at(a)
                await looked_at(b)
                await a.publish("news", b"%d" % number)
                assert (await anext(events)).data == b"%d" % number
            assert len(a.peers) == len(b.peers) == 1
            assert not a.metrics()["rumormill_penalties"]
            assert not a.refusals

    run(story)


def number_of(event: Event) -> int:
    """The number of an event of GossipSub, FloodSub or radius, which its id ends with."""
    return int.from_bytes(event.id[-8:])


def test_numbers_grow_over_lives_whose_clocks_go_back(tmp_path: Path, wall: Wall) -> None:
    """Each message of GossipSub has a number above all earlier ones of its author: peers take one
    that they know for a repetition."""

    async def life(names: list[bytes]) -> None:
        async with Node(tmp_path, config=QUICK) as node:
            for name in names:
                await node.publish("news", name)
            if names[0] == b"set back":
                wall.ahead = -HOUR
                await until(lambda: node._driver.clock.ahead > 60, "the clock was looked at")
                await node.publish("news", b"ahead of the clock")

    async def all_events() -> list[Event]:
        async with Node(tmp_path) as node:
            return await node.history("news")

    wall.ahead = HOUR
    run(lambda: life([b"an hour ahead"]))
    wall.ahead = 0.0
    run(lambda: life([b"right", b"right again"]))
    run(lambda: life([b"the third", b"the fourth"]))
    run(lambda: life([b"set back"]))
    run(lambda: life([b"the last"]))
    found = [*map(number_of, run(all_events))]
    assert len(found) == 8
    assert all(one < other for one, other in pairwise(found))


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub", "radius"])
@pytest.mark.parametrize("back", [0.5, HOUR], ids=["a little", "far"])
def test_a_number_is_behind_all_earlier_ones_wherever_a_life_ended(
    tmp_path: Path, wall: Wall, protocol: str, back: float
) -> None:
    """A life ends ahead of its clock, by as little as nobody would note; the next ones begin even
    earlier. Retention has deleted what they said, so no event tells."""
    found: list[int] = []

    async def life(back: float) -> None:
        async with Node(tmp_path, protocol=protocol, config=QUICK) as node:
            sub = await node.subscribe("news")
            await node.publish("news", b"before")
            clock, before = node._driver.clock, node._driver.clock.wall
            wall.ahead -= back
            await until(lambda: clock.wall < before - back / 2, "the clock was looked at")
            await node.publish("news", b"ahead of the clock")
            found.extend([number_of(await anext(sub)) for _ in range(2)])
            node.log.retain({"news": Retention(max_age_seconds=1)}, now=time.time() + HOUR)

    for _ in range(4):
        run(lambda: life(back))
        wall.ahead -= 100 * HOUR
    assert all(one < other for one, other in pairwise(found))


def test_what_has_a_receipt_has_a_number_that_the_log_knows(tmp_path: Path, wall: Wall) -> None:
    """Whenever the process ends: the note is in the transaction of the event."""

    async def story() -> None:
        async with Node(tmp_path, config=QUICK) as node:
            wall.ahead = -HOUR
            await until(lambda: node._driver.clock.ahead > 60, "the clock was looked at")
            for _ in range(20):
                receipts = [node.publish("news", b"%d" % number) for number in range(20)]
                await asyncio.gather(*receipts)
                last = (await node.history("news"))[-1]
                assert Numbers(node.log).latest * 1e9 >= number_of(last)

    run(story)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("back", [30.0, HOUR], ids=["a little", "far"])
def test_what_has_a_receipt_is_kept_whatever_retention_has_deleted(
    tmp_path: Path, wall: Wall, protocol: str, back: float
) -> None:
    """A life whose clock was ahead published, and retention deleted some of it. The next one begins
    before these dates, or counts on from them within a moment: what it says is new all the same."""
    topics = ["news"]

    async def life(first: int) -> None:
        async with Node(tmp_path, protocol=protocol, supervises=protocol == "skipring") as node:
            if protocol == "pulsarcast" and not first:
                topics[0] = (await node.create_topic("news")).name
            for number in range(first, first + 6):
                receipt = await node.publish(topics[0], b"%d" % number)
                assert receipt.offset == number
                keep_two = {topics[0]: Retention(max_events=2)}
                await asyncio.to_thread(node.log.retain, keep_two, 0.0)
            kept = await node.history(topics[0])
            assert [each.data for each in kept] == [b"%d" % (first + 4), b"%d" % (first + 5)]

    wall.ahead = back
    run(lambda: life(0))
    wall.ahead = 0.0
    run(lambda: life(6))


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub", "radius"])
def test_peers_that_delete_do_not_take_what_follows_for_deleted(
    tmp_path: Path, wall: Wall, protocol: str
) -> None:
    """An author's clock was set back between two lives. Until it has caught up, its numbers count
    on from the latest; a peer compares them with those of what it has deleted."""

    async def before() -> None:
        async with Node(tmp_path, protocol=protocol) as node:
            await node.publish("news", b"before")

    async def story() -> None:
        async with (
            Node(tmp_path, protocol=protocol) as author,
            Node(None, protocol=protocol) as peer,
        ):
            events = await peer.subscribe("news")
            await peer.connect(author.tickets[0])
            await author.wait_until_ready("news")
            for number in range(6):
                await author.publish("news", b"%d" % number)
                coming = asyncio.ensure_future(anext(events))
                await until(lambda: coming.done() or peer.log.counters.gone, "it has come")  # noqa: B023
                assert not peer.log.counters.gone
                assert (await coming).data == b"%d" % number
                peer.log.retain({"news": Retention(max_events=1)}, now=0.0)

    wall.ahead = 1.5 if protocol == "radius" else 30.0  # it refuses what is dated 2 s ahead
    run(before)
    wall.ahead = 0.0
    run(story)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_author_dates_what_it_says_behind_all_that_it_has_said(
    tmp_path: Path, wall: Wall, protocol: str
) -> None:
    """Its clock is set back a little between two lives, and in the middle of one: a peer that has
    deleted events of an author takes what the author dates before them for deleted too."""
    topics, said = ["news"], []

    async def life(number: int) -> None:
        supervises = protocol == "skipring"
        async with Node(tmp_path, protocol=protocol, supervises=supervises, config=QUICK) as node:
            if protocol == "pulsarcast" and not number:
                topics[0] = (await node.create_topic("news")).name
            for _ in range(3):
                await node.publish(topics[0], b"%d" % len(said))
                said.append(stamp_of((await node.history(topics[0]))[-1]))
                clock, before = node._driver.clock, node._driver.clock.wall
                wall.ahead -= 2.0
                await until(lambda: clock.wall < before - 1, "the clock was looked at")  # noqa: B023

    for number in range(3):
        wall.ahead = -7.0 * number
        run(lambda number=number: life(number))
    assert len(said) == 9
    assert all(one < other for one, other in pairwise(said))


def test_numbers_of_one_moment_are_known_to_the_log() -> None:
    """The date of the last of many is before its number: what begins behind the date would give
    the number again. Who is named by something else may be in the log already, with any date."""
    with EventLog(None, StoreConfig(durability=Durability.MEMORY)) as log:
        numbers = Numbers(log)
        moment = 1_700_000_000.0
        first = int(moment * 1e9)

        def used(number: int, name: bytes) -> list[Note]:
            numbers.use(number, Event("news", b"", b"us", name), moment)
            return numbers.note()

        assert not used(first, b"us" + first.to_bytes(8)), "its own date tells"
        (note,) = used(first + 1, b"us" + (first + 1).to_bytes(8))
        log.append([], notes=[note]).result()
        assert numbers.note() == [note], "until it is known to be kept"
        numbers.noted()
        assert not numbers.note()
        assert int(Numbers(log).latest * 1e9) > first + 1
        assert not used(first + 2, b"named by its content"), "noted with some to spare"
        assert used(first + 10**9, b"named by its content")
