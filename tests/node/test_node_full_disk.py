"""A node whose disk is full: what fails, what is counted, and that it recovers."""

import asyncio
import errno
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, take_events, until
from rumormill.core.trace import UndeliverableMessage
from rumormill.log.errors import DiskFullError, StoreError, StoreFailedError
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoreConfig
from rumormill.node import log_reader
from rumormill.node.node import Node
from rumormill.node.taken import DISK_FULL
from trace_log import TraceLog

TOPIC = "news"
SMALL = StoreConfig(max_database_bytes=512 * 1024)
"""A database of this size is full after a few hundred kilobytes."""


async def fill(node: Node) -> None:
    """Publish until the disk is full."""
    for _ in range(200):
        await node.publish(TOPIC, bytes(20_000))
    raise AssertionError("the disk never became full")


def test_a_publication_that_finds_the_disk_full_fails_and_smaller_ones_go_on(
    tmp_path: Path,
) -> None:
    """The publisher is told, nothing acknowledged is lost, and the node still works."""

    async def story() -> None:
        async with Node(tmp_path, store=SMALL) as node:
            with pytest.raises(DiskFullError):
                await fill(node)
            before = len(await node.history(TOPIC))
            receipt = await node.publish(TOPIC, b"small enough")
            events = await node.history(TOPIC)
            assert [event.offset for event in events] == list(range(before + 1))
            assert (receipt.offset, events[-1].data) == (before, b"small enough")

    run(story)


def test_a_subscription_that_finds_the_disk_full_fails_and_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever could not be remembered is told so, and is not followed; the next one is both."""

    async def story() -> None:
        async with Node(tmp_path) as node:

            def full(*_: Any) -> None:
                raise DiskFullError("no room left")

            for make in (node.subscribe, node.create_topic):
                with monkeypatch.context() as patch:
                    patch.setattr(EventLog, "append_soon", full)
                    with pytest.raises(DiskFullError, match="no room left"):
                        await make("late")
                assert "late" not in node._driver.machine.view().subscriptions
            await node.subscribe("late")
        async with Node(tmp_path, resume=True) as node:
            assert "late" in node._driver.machine.view().subscriptions

    run(story)


def test_a_topic_that_was_left_is_not_followed_again_where_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since when it was wanted is in the log, and that it is wanted again is not."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            await node.subscribe("late")
            await node.unsubscribe("late")
            await node.publish(TOPIC, b"behind what was noted")

            def full(*_: Any) -> None:
                raise DiskFullError("no room left")

            with monkeypatch.context() as patch:
                patch.setattr(EventLog, "append_soon", full)
                with pytest.raises(DiskFullError, match="no room left"):
                    await node.subscribe("late")
            await node.subscribe("late")
        async with Node(tmp_path, resume=True) as node:
            assert "late" in node._driver.machine.view().subscriptions

    run(story)


def test_a_subscription_says_that_the_disk_was_full_when_it_is_not_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else is stored before the subscriber is told does not hide why it was refused."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            stored = threading.Event()
            loop, append_soon, read_notes = (
                asyncio.get_running_loop(),
                EventLog.append_soon,
                log_reader.read_notes,
            )

            def full_for_notes(log: EventLog, events: Any, notes: Any, *rest: Any) -> Any:
                if notes:
                    raise DiskFullError("no room left")
                return append_soon(log, events, notes, *rest)

            def read_late(*query: Any) -> Any:
                assert stored.wait(20)
                return read_notes(*query)

            with monkeypatch.context() as patch:
                patch.setattr(EventLog, "append_soon", full_for_notes)
                patch.setattr(log_reader, "read_notes", read_late)
                subscribing = loop.create_task(node.subscribe("late"))
                await until(lambda: node._journal.notes.trouble, "the note was refused")
                patch.setattr(EventLog, "append_soon", append_soon)
                await node.publish(TOPIC, b"small")
                stored.set()
                with pytest.raises(DiskFullError, match="no room left"):
                    await subscribing

    run(story)


def test_events_of_peers_that_find_the_disk_full_are_counted_and_traced(tmp_path: Path) -> None:
    """They are not handed out, because they are not kept; the subscription goes on."""

    async def story() -> None:
        trace = TraceLog()
        async with (
            Node(None) as author,
            Node(tmp_path, store=SMALL, observers=[trace]) as reader,
        ):
            events = await reader.subscribe(TOPIC)
            await reader.connect(author.tickets[0])
            await author.wait_until_ready(TOPIC)
            for _ in range(60):
                await author.publish(TOPIC, bytes(20_000))
            kept = 0
            while kept + reader._journal.lost < 60:
                await asyncio.sleep(0.002)
                kept = len(await reader.history(TOPIC))
            lost = reader._journal.lost
            assert kept > 0
            assert lost > 0
            handed_out = [(await anext(events)).offset for _ in range(kept)]
            assert handed_out == list(range(kept))
            assert events.waiting == 0
        reasons = [each.reason for each in trace.of(UndeliverableMessage)]
        assert reasons == [DISK_FULL] * lost

    run(story)


def test_what_fits_of_a_batch_of_peers_is_kept(tmp_path: Path) -> None:
    """Everything waits for the log at the same moment, and is far too much for the disk."""

    async def story() -> None:
        gate = threading.Event()
        async with Node(None) as author, Node(tmp_path, store=SMALL) as reader:
            await reader.subscribe(TOPIC)
            await reader.connect(author.tickets[0])
            await author.wait_until_ready(TOPIC)
            reader.log.writer().run(gate.wait)
            await author.publish_many(TOPIC, [bytes(20_000)] * 60)
            accepted = lambda: reader.metrics()["accepted_messages"].get(TOPIC, 0)  # noqa: E731
            await until(lambda: accepted() == 60, "all are accepted")
            gate.set()
            await reader._journal.drain()
            kept = await reader.history(TOPIC)
            assert len(kept) * 20_000 > 256 * 1024
            assert len(kept) + reader._journal.lost == 60
            assert [event.offset for event in kept] == list(range(len(kept)))

    run(story)


def test_heads_that_find_the_disk_full_cost_nobody_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author has its receipts, the reader is handed everything, and the trouble is counted."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def story() -> None:
        async with Node(tmp_path / "author") as author, Node(tmp_path / "reader") as reader:
            events = await reader.subscribe(TOPIC)
            await reader.connect(author.tickets[0])
            await author.wait_until_ready(TOPIC)
            monkeypatch.setattr(os, "pwrite", no_room)  # of the log's files only heads use it
            for number in range(20):
                receipt = await author.publish(TOPIC, b"%d" % number)
                assert receipt.offset == number
            assert [(await anext(events)).data for _ in range(20)] == [b"%d" % n for n in range(20)]
            for node in (author, reader):
                metrics = node.metrics()
                assert metrics["rumormill_log_heads_failed"][""] > 0
                assert metrics["rumormill_log_failed"][""] == 0
                assert metrics["rumormill_events_lost"][""] == 0

    run(story)


@pytest.mark.parametrize("broken", [False, True])
def test_a_topic_that_cannot_be_announced_names_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Pulsarcast's topics are made by an event: who makes one is told as who publishes is."""

    async def story() -> None:
        def fail(*_: object) -> int:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR if broken else sqlite3.SQLITE_FULL
            raise error

        kind: type[StoreError] = StoreFailedError if broken else DiskFullError
        says = "must be reopened .*disk I/O" if broken else "no room left .*: free some space"
        async with Node(tmp_path, protocol="pulsarcast") as node:
            with monkeypatch.context() as patch:
                patch.setattr("rumormill.log.inserts.put_events", fail)
                for name in ("one", "two"):
                    with pytest.raises(kind, match=says):
                        await node.create_topic(name)
            if not broken:
                await node.create_topic("three")

    run(story)


async def limit_disk(node: Node, *, full: bool) -> None:
    """Let the database have no further page, or room again."""
    writer = node.log.writer()

    def limit() -> None:
        (pages,) = writer.db.execute("PRAGMA page_count").fetchone()
        writer.db.execute(f"PRAGMA max_page_count = {pages if full else 1 << 30}")

    await asyncio.wrap_future(writer.run(writer.exclusively(limit)))


def test_pulsarcast_gets_again_what_found_the_disk_full(tmp_path: Path) -> None:
    """When there is room, without a new start: every event once, at the next offset."""

    async def story() -> None:
        options: dict[str, Any] = {"protocol": "pulsarcast", "preset": "open"}
        async with Node(None, **options) as author, Node(tmp_path, **options) as reader:
            topic = (await author.create_topic(TOPIC)).name
            await reader.connect(author.tickets[0])
            events = await reader.subscribe(topic)
            await author.wait_until_ready(topic)
            await author.publish(topic, b"before")
            assert await take(events, 1) == [b"before"]
            await limit_disk(reader, full=True)
            for number in range(20):
                await author.publish(topic, bytes([number]) * 20_000)
            await until(lambda: reader._journal.lost >= 20, "the disk takes none of them")
            await limit_disk(reader, full=False)
            found = await take_events(events, 20)
            assert sorted(event.data[0] for event in found) == list(range(20))
            assert [event.offset for event in found] == list(range(1, 21))

    run(story)
