"""Named subscriptions: a position that is remembered, acknowledgements, work that is shared."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from live_nodes import pair, run, take, take_events, until
from rumormill.core.api import GroupView
from rumormill.core.errors import LocalError
from rumormill.core.event import Event, Position
from rumormill.log.errors import CorruptLogError, NoDescriptorsError, StoreFailedError
from rumormill.log.event_log import EventLog
from rumormill.log.model import Retention
from rumormill.log.positions import read_positions
from rumormill.log.repair import repair
from rumormill.node import groups
from rumormill.node.node import Node
from rumormill.node.subscription import Subscription


async def publish(node: Node, *numbers: int) -> None:
    await node.publish_many("work", [b"%d" % number for number in numbers])


async def offered(events: Subscription) -> list[int]:
    """What it is given without another having to do anything."""
    found: list[int] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            while batch := await events.batch():
                found += [event.offset for event in batch]
    return found


def view(node: Node) -> GroupView:
    (found,) = node.groups()
    return found


def test_a_name_goes_on_behind_what_was_acknowledged(tmp_path: Path) -> None:
    """Across subscriptions and lives; a new name begins with the present, or where it is told."""

    async def main() -> None:
        async with Node(tmp_path) as node:
            await publish(node, 0, 1)
            async with await node.subscribe("work", name="w", auto_ack=False) as events:
                await publish(node, 2, 3, 4, 5)
                given = await take_events(events, 3)
                assert [event.offset for event in given] == [2, 3, 4]
                await events.ack(given[0], given[2].offset)
                assert (events.pending, events.lag) == (1, 1)
            assert view(node) == GroupView("work", "w", 5, 1, 1)
            async with await node.subscribe("work", name="w", since_offset=0) as events:
                again, new = await take_events(events, 2)
                assert [(again.offset, again.via), (new.offset, new.via)] == [(3, "again"), (5, "")]
        async with Node(tmp_path) as node:
            assert view(node) == GroupView("work", "w", 6, 1, 0)
            events = await node.subscribe("work", name="w")
            assert await offered(events) == [5]
            other = await node.subscribe("work", name="other", since_offset=4)
            assert await take(other, 2) == [b"4", b"5"]

    run(main)


def test_asking_for_the_next_acknowledges(tmp_path: Path) -> None:
    """With auto_ack; what the consumer was still at work on when it ended comes again."""

    async def main() -> None:
        async with Node(tmp_path) as node:
            events = await node.subscribe("work", name="w")
            await publish(node, 0, 1, 2, 3)
            assert await take(events, 3) == [b"0", b"1", b"2"]
            assert events.pending == 1
        async with Node(tmp_path) as node:
            events = await node.subscribe("work", name="w")
            assert len(await events.batch()) == 1
            assert [event.offset for event in await events.batch()] == [3]
            await events.ack()
            assert (events.pending, events.lag) == (0, 0)
        async with Node(tmp_path) as node:
            assert await offered(await node.subscribe("work", name="w")) == []

    run(main)


def test_consumers_of_a_name_share_and_the_rest_of_one_that_ends_goes_to_another() -> None:
    async def main() -> None:
        async with Node(None) as node:
            one, two = [await node.subscribe("work", name="w", auto_ack=False) for _ in "12"]
            alone = await node.subscribe("work")
            await publish(node, *range(6))
            given = [await take(each, 3) for each in (one, two)]
            assert given == [[b"0", b"1", b"2"], [b"3", b"4", b"5"]]
            assert len(await take(alone, 6)) == 6
            await one.ack()
            assert view(node).consumers == 2
            two.close()
            assert await take(one, 3) == [b"3", b"4", b"5"]
            await one.nack(4)
            assert [event.via for event in await take_events(one, 1)] == ["again"]
            await one.ack()
            assert await offered(one) == []
            assert view(node) == GroupView("work", "w", 6, 0, 0, 1)

    run(main)


def test_a_consumer_that_waits_gets_what_another_gives_back() -> None:
    """Also an interrupted wait takes nothing with it."""

    async def main() -> None:
        async with Node(None) as node:
            one, two = [await node.subscribe("work", name="w", auto_ack=False) for _ in "12"]
            await publish(node, 0)
            assert await take(one, 1) == [b"0"]
            waits = asyncio.ensure_future(anext(two))
            await asyncio.sleep(0)
            await one.nack()
            assert (await waits).data == b"0"
            await two.nack()
            for _ in range(20):
                waits = asyncio.ensure_future(anext(two))
                await asyncio.sleep(0)
                waits.cancel()
                await asyncio.gather(waits, return_exceptions=True)
            assert await take(one, 1) == [b"0"]

    run(main)


def test_what_is_not_acknowledged_in_time_is_given_to_another() -> None:
    """A consumer that stays connected and does nothing holds up nobody; what it says later counts
    all the same, and the next one has the whole time again."""

    async def main() -> None:
        async with Node(None) as node:
            wish = {"name": "w", "auto_ack": False, "ack_within": 0.05}
            stuck = await node.subscribe("work", **wish)  # type: ignore[arg-type]
            await publish(node, 0, 1, 2)
            assert [event.offset for event in await take_events(stuck, 3)] == [0, 1, 2]
            await stuck.ack(1)
            async with await node.subscribe("work", name="w", auto_ack=False) as patient:
                again = await take_events(patient, 2)
                assert [(event.offset, event.via) for event in again] == [
                    (0, "again"),
                    (2, "again"),
                ]
                late = view(node).late
                assert late >= 2
                assert view(node).pending == 2
                await stuck.ack()  # of what it still has, which is nothing
                assert patient.pending == 2
                await stuck.ack(0)
                assert patient.pending == 1
                assert await offered(stuck) == [], "nobody takes it from who has no time to keep"
            given = (await take_events(stuck, 1))[0]
            await until(lambda: view(node).late > late, "it is taken back again")
            assert (await take_events(stuck, 1))[0].offset == given.offset == 2
            await stuck.ack()
            assert view(node).pending == 0

    run(main)


def test_who_is_slow_and_asks_for_the_next_has_acknowledged() -> None:
    """Or the same event would come to it for ever."""

    async def main() -> None:
        async with Node(None) as node:
            slow = await node.subscribe("work", name="w", ack_within=0.02)
            await publish(node, 0, 1)
            for offset in (0, 1):
                assert (await take_events(slow, 1))[0].offset == offset
                await until(lambda count=offset: view(node).late > count, "it is too late")
            await publish(node, 2)
            assert (await take_events(slow, 1))[0].offset == 2

    run(main)


def test_what_is_pending_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that acknowledges nothing is given no more than the bound, and goes on later."""
    monkeypatch.setattr(groups, "MOST_PENDING", 5)

    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("work", name="w", auto_ack=False)
            await publish(node, *range(12))
            assert len(await offered(events)) == 5
            await events.ack(0, 1)
            assert await offered(events) == [5, 6]
            await events.ack()
            assert await offered(events) == [7, 8, 9, 10, 11]

    run(main)


def test_what_retention_deleted_is_skipped_and_told(tmp_path: Path) -> None:
    """Both what was pending and what was never handed out."""

    async def main() -> None:
        async with Node(tmp_path) as node:
            events = await node.subscribe("work", name="w", auto_ack=False)
            await publish(node, *range(8))
            await take(events, 2)
            events.close()
            await asyncio.to_thread(node.log.retain, {"work": Retention(max_events=3)}, 0.0)
            events = await node.subscribe("work", name="w")
            assert await take(events, 3) == [b"5", b"6", b"7"]
            assert events.dropped == 5
            assert view(node).dropped == 5
            assert node.metrics()["rumormill_group_dropped"] == {"w work": 5.0}

    run(main)


def test_filters_are_shared_and_what_does_not_match_is_done_with() -> None:
    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("work", name="w", where="data > 2", auto_ack=False)
            await publish(node, 0, 5, 1)
            assert await take(events, 1) == [b"5"]
            await until(lambda: not events.lag, "the filter has seen all")
            assert view(node) == GroupView("work", "w", 3, 1, 0, 1)
            with pytest.raises(LocalError, match="share one filter"):
                await node.subscribe("work", name="w")

    run(main)


def test_names_are_seen_and_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        async with Node(tmp_path) as node:
            events = await node.subscribe("work", name="w")
            await publish(node, 0, 1, 2)
            await take(events, 1)
            found = node.metrics()
            seen = [found[f"rumormill_group_{each}"] for each in ("consumers", "pending", "lag")]
            assert seen == [{"w work": 1.0}, {"w work": 1.0}, {"w work": 2.0}]
            with pytest.raises(LocalError, match="'w' to 'work' is open"):
                await node.forget_group("work", "w")
            await node.unsubscribe("work")
            assert await offered(events) == [1, 2], "what waits can still be read"
            events = await node.subscribe("work", name="w")
            await publish(node, 3)
            assert await take(events, 1) == [b"3"]
            events.close()
            await node.forget_group("work", "w")
            with pytest.raises(LocalError, match="there is no subscription 'w' to 'work'"):
                await node.forget_group("work", "w")
        async with Node(tmp_path) as node:
            assert node.groups() == []

    run(main)


def test_what_cannot_have_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_GROUPS", 1)

    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError, match="a subscription to one topic"):
                await node.subscribe("work/*", name="w")
            with pytest.raises(LocalError, match="drops nothing"):
                await node.subscribe("work", name="w", overflow="drop-oldest")
            for name in ("", "a\nb"):
                with pytest.raises(LocalError, match="printable text"):
                    await node.subscribe("work", name=name)
            with pytest.raises(LocalError, match="at most 128 bytes"):
                await node.subscribe("work", name="x" * 129)
            for within in (0, -1, float("inf")):
                with pytest.raises(LocalError, match=r"ack_within: .* a number of seconds above 0"):
                    await node.subscribe("work", name="w", ack_within=within)
            with pytest.raises(LocalError, match="overflow: 'lose' is not one of"):
                await node.subscribe("work", name="w", overflow="lose")
            with pytest.raises(LocalError, match="ack_within: only a subscription with a name"):
                await node.subscribe("work", ack_within=5)
            plain = await node.subscribe("work")
            with pytest.raises(LocalError, match="with a name"):
                await plain.ack()
            with pytest.raises(LocalError, match="with a name"):
                await plain.nack()
            await node.subscribe("work", name="w")
            with pytest.raises(LocalError, match="remembers 1 named subscriptions already"):
                await node.subscribe("work", name="v")

    run(main)


def test_events_of_others_come_to_a_name_that_was_away(tmp_path: Path) -> None:
    """What was published while the consumer was away, but its node not, is in the log."""

    async def main() -> None:
        async with pair("work", tmp_path) as (alice, bob):
            (await bob.subscribe("work", name="w")).close()
            await publish(alice, 0, 1)
            assert await take(await bob.subscribe("work", name="w"), 2) == [b"0", b"1"]

    run(main)


def test_positions_survive_a_repair_and_damage_is_told(tmp_path: Path) -> None:
    position = Position("work", "w", 7, (3, 5))
    with EventLog(tmp_path) as log:
        log.append([], notes=[position, Position("a", "w", 1)]).result()
        log.append([], notes=[Position("a", "w", None)]).result()
        assert read_positions(log) == [position]
    repair(tmp_path)

    def damage(db: sqlite3.Connection) -> None:
        db.execute("UPDATE positions SET name = 'x'")

    with EventLog(tmp_path) as log:
        assert read_positions(log) == [position]
        log.change(damage)
        with pytest.raises(CorruptLogError, match="position of subscription 'x'"):
            read_positions(log)


def test_who_asks_again_is_given_what_could_not_be_read_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No descriptor was left, for a moment: it ends nobody's subscription."""

    async def main() -> None:
        async with Node(None) as node:
            await publish(node, 0, 1)
            read, trouble = node.log.read, [NoDescriptorsError("none is left")]

            def reads(*arguments: Any) -> list[Event]:
                if trouble:
                    raise trouble.pop()
                return read(*arguments)

            monkeypatch.setattr(node.log, "read", reads)
            one, two = [await node.subscribe("work", name="w", since_offset=0) for _ in "12"]
            with pytest.raises(NoDescriptorsError):
                await anext(one)
            assert await take(two, 2) == [b"0", b"1"]
            await publish(node, 2)
            assert await take(one, 1) == [b"2"]

    run(main)


def test_a_name_goes_on_after_a_repair_whoever_still_has_it_open(tmp_path: Path) -> None:
    """The disk has failed; one consumer does not know yet, and another subscribes anew."""

    async def main() -> None:
        async with Node(tmp_path) as node:
            events = await node.subscribe("work", name="w", since_offset=0, auto_ack=False)
            await publish(node, 0, 1, 2)
            first = (await take_events(events, 1))[0]
            node.log.writer().stop(StoreFailedError("the disk has failed"))
            with pytest.raises(StoreFailedError):
                await publish(node, 3)
            await node.repair()
            await publish(node, 3)
            again = await node.subscribe("work", name="w", auto_ack=False)
            assert await take(again, 3) == [b"1", b"2", b"3"]
            assert view(node) == GroupView("work", "w", 4, 4, 0, 2)
            await events.ack(first)
            await again.ack()
            await publish(node, 4, 5)
            assert sorted([*await take(events, 1), *await take(again, 1)]) == [b"4", b"5"]

    run(main)


@pytest.mark.parametrize("goes_on", [True, False], ids=["in use again", "closed"])
def test_what_is_acknowledged_after_the_end_stays_so(tmp_path: Path, goes_on: bool) -> None:
    """By the last consumer of a name, at work on what it had when it was closed: neither that nor
    what others have acknowledged since comes again, in this life or the next."""

    async def main() -> None:
        async with Node(tmp_path) as node:
            await publish(node, *range(6))
            ended = await node.subscribe("work", name="w", since_offset=0, auto_ack=False)
            assert len(await take(ended, 2)) == 2
            ended.close()
            if goes_on:
                events = await node.subscribe("work", name="w", auto_ack=False)
                assert [each.offset for each in await take_events(events, 4)] == [0, 1, 2, 3]
                await events.ack(1, 2, 3)
            await ended.ack(0)
            if not goes_on:
                assert view(node).pending == 1
                await ended.ack(1)
            assert read_positions(node.log) == [Position("work", "w", 4 if goes_on else 2)]
            if not goes_on:
                events = await node.subscribe("work", name="w", auto_ack=False)
            assert await offered(events) == ([4, 5] if goes_on else [2, 3, 4, 5])
            events.close()
            await node.forget_group("work", "w")
            with pytest.raises(LocalError, match="there is no subscription 'w' to 'work'"):
                await ended.ack(1)
            assert read_positions(node.log) == []

    run(main)
