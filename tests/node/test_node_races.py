"""Calls of one node at the same time: readers and retention, subscribers, repairs given up."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, until
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.log import EventLog, Retention, files
from rumormill.log.errors import DiskFullError, StoreFailedError
from rumormill.log.keeping import ALL_TOPICS, retention_lines
from rumormill.node.identity import load_or_create_key
from rumormill.node.log_reader import read_history
from rumormill.node.node import Node
from rumormill.node.synced import followed_topics
from rumormill.wire.keys import PrivateKey

TOPIC = "news"


def filled(log: EventLog, count: int) -> None:
    events = [Event(TOPIC, b"x", b"a", b"%d" % n, received=float(n)) for n in range(count)]
    log.append(events).result()


# Readers, while retention deletes what they are about to read.


def test_a_history_goes_on_behind_what_retention_deletes_meanwhile(tmp_path: Path) -> None:
    """Deleted between two pieces: it is passed over, as what was deleted before is."""

    async def story() -> None:
        with EventLog(tmp_path) as log:
            filled(log, 1000)

            def opened(event: Event) -> Event:
                if not event.offset:
                    log.retain({TOPIC: Retention(max_events=100)}, 0.0)
                return event

            found = await read_history(log, TOPIC, 0, None, None, opened, None)
            offsets = [event.offset for event in found]
            assert offsets[-100:] == [*range(900, 1000)]
            assert offsets[:-100] == [*range(len(offsets) - 100)]

    run(story)


def test_a_history_since_a_time_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted between looking where the time is and reading there."""
    with EventLog(tmp_path) as log:
        filled(log, 50)
        losses = log.losses

        def deleting(topic: str) -> list[tuple[int, int]]:
            log.retain({TOPIC: Retention(max_events=10)}, 0.0)
            return losses(topic)

        monkeypatch.setattr(log, "losses", deleting)
        assert [event.offset for event in log.read_since(TOPIC, 20.0, 3)] == [40, 41, 42]


def test_what_retention_says_stands_while_it_works(tmp_path: Path) -> None:
    """Two that apply rules at a time do not trip over each other."""
    with EventLog(tmp_path) as log:
        filled(log, 50)

        class Rules(dict[str, Retention]):
            """Are asked between the extents and the oldest event."""

            def get(self, key: str, default: Any = None) -> Any:
                log.retain({TOPIC: Retention(max_events=10)}, 0.0)
                return super().get(key, default)

        rules = Rules({ALL_TOPICS: Retention(max_events=5)})
        (line,) = retention_lines(log, rules, None, apply=False)
        assert line.oldest == 40.0


# Subscribers.


def test_a_subscription_stays_whatever_becomes_of_another_to_the_same_topic(
    tmp_path: Path,
) -> None:
    """Two begin at a time and one is given up: the other is followed, and known to a later life."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            given_up = asyncio.ensure_future(node.subscribe(TOPIC))
            await asyncio.sleep(0)
            other = asyncio.ensure_future(node.subscribe(TOPIC))
            await asyncio.sleep(0)
            given_up.cancel()
            events = await other
            assert followed_topics(node.log) == [TOPIC]
            events.close()
            assert TOPIC in node.view().subscriptions
            await node.publish(TOPIC, b"still here")
        assert given_up.cancelled()
        async with Node(tmp_path, resume=True) as again:
            assert TOPIC in again.view().subscriptions

    run(story)


def test_a_subscription_that_is_given_up_alone_is_not_followed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(tmp_path) as node:
            for begun in (node.subscribe(TOPIC), node.create_topic(TOPIC)):
                given_up = asyncio.ensure_future(begun)
                await asyncio.sleep(0)
                given_up.cancel()
                await asyncio.wait([given_up])
                assert TOPIC not in node.view().subscriptions
        with EventLog(tmp_path) as log:
            assert followed_topics(log) == []

    run(story)


@pytest.mark.parametrize("behind", [False, True], ids=["news", "from the log"])
def test_tasks_may_share_a_subscription(behind: bool) -> None:
    """Each event comes to one of them, none waits for ever, and the end comes to all."""

    async def story() -> None:
        async with Node(None) as node:
            if behind:
                await node.publish_many(TOPIC, [b"%d" % n for n in range(300)])
            events = await node.subscribe(TOPIC, since_offset=0 if behind else None, buffer=40)
            came: list[bytes] = []

            async def work() -> None:
                async for event in events:
                    came.append(event.data)
                    await asyncio.sleep(0)

            workers = [asyncio.ensure_future(work()) for _ in range(4)]
            await asyncio.sleep(0)
            if not behind:
                await node.publish_many(TOPIC, [b"%d" % n for n in range(300)])
            await until(lambda: len(came) >= 300, "all have come")
            events.close()
            await asyncio.gather(*workers)
            assert sorted(map(int, came)) == [*range(300)]

    run(story)


def test_a_position_that_found_the_disk_full_is_written_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged while nothing could be written is, when the subscription closes."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            await node.publish_many(TOPIC, [b"0", b"1", b"2"])
            events = await node.subscribe(TOPIC, name="w", since_offset=0, auto_ack=False)
            assert await take(events, 2) == [b"0", b"1"]
            with monkeypatch.context() as patched:
                patched.setattr(files, "spare_bytes", lambda *_: -1)
                with pytest.raises(DiskFullError):
                    await events.ack()
            events.close()
        async with Node(tmp_path) as node:
            events = await node.subscribe(TOPIC, name="w", auto_ack=False)
            assert await take(events, 1) == [b"2"]

    run(story)


def test_who_waits_to_publish_when_the_node_closes_is_told(tmp_path: Path) -> None:
    """Whatever there is still no room for: the disk, or a peer that does not read."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            node._journal.congested = lambda: True
            waiting = [asyncio.ensure_future(node.publish(TOPIC, b"%d" % n)) for n in range(3)]
            waiting.append(asyncio.ensure_future(node.publish_many(TOPIC, [b"more"])))
            await asyncio.sleep(0)
        for each in waiting:
            with pytest.raises(LocalError, match="closed"):
                await each

    run(story)


# Repairs.


def test_a_repair_that_is_given_up_is_done_all_the_same(tmp_path: Path) -> None:
    """Whoever waited for it is gone; the node takes events again, as its log does."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            await node.publish(TOPIC, b"before")
            writer = node.log.writer()
            writer.run(lambda: writer.stop(StoreFailedError("the disk failed"))).result()
            with pytest.raises(StoreFailedError):
                await node.publish(TOPIC, b"lost")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await node.repair()
            await node.publish(TOPIC, b"after")
            assert [event.data for event in await node.history(TOPIC)] == [b"before", b"after"]

    run(story)


# Files.


def test_a_key_that_finds_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is started again and again on a full disk does not fill its home with drafts."""

    found: list[Path] = []

    def full(_: int) -> None:
        found.extend(tmp_path.iterdir())
        if found:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Exception, match="No space left"):
            load_or_create_key(tmp_path / "identity.key")
    assert found
    assert not list(tmp_path.iterdir())


def test_a_key_file_that_leads_nowhere_is_no_new_identity(tmp_path: Path) -> None:
    """Nothing is made at the end of the link, and the error says what to do."""
    path, elsewhere = tmp_path / "identity.key", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    with pytest.raises(LocalError, match=r"identity\.key is a link .* bring the key back"):
        load_or_create_key(path)
    assert not elsewhere.exists()
    elsewhere.write_bytes(PrivateKey(bytes(32)).encode())
    elsewhere.chmod(0o600)
    assert load_or_create_key(path).peer_id == PrivateKey(bytes(32)).peer_id
