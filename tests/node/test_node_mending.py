"""A running node whose log is repaired, restored or added to: it goes on, and everybody hears."""

import asyncio
from pathlib import Path

import pytest

from live_nodes import pair, run, take, until
from rumormill import LocalError, Node, SyncNode, connect
from rumormill.log import (
    BackupRefusedError,
    DamagedRangeError,
    EventLog,
    StoreFailedError,
    export_parquet,
)
from store_samples import damage

TEN = [b"%d" % number for number in range(10)]


def test_what_a_repair_gives_up_comes_again_from_peers(tmp_path: Path) -> None:
    """History and a subscription from the start stop at the damage, and go on behind it."""

    async def story() -> None:
        async with pair(home=tmp_path) as (alice, bob):
            await alice.publish_many("news", TEN)
            await until(lambda: len(bob.log.read("news", 0)) == 10, "bob has all")
            damage(tmp_path / "bob", 4)
            events = await bob.subscribe("news", since_offset=4)
            with pytest.raises(DamagedRangeError):
                await anext(events)
            report = await bob.repair()
            assert [(each.start, each.end) for each in report.findings] == [(4, 5)]
            assert await take(events, 5) == TEN[5:]
            assert events.dropped == 1
            await bob.sync("news", timeout=30)
            assert await take(events, 1) == [TEN[4]]  # behind the others: no offset is used again
            assert [event.offset for event in await bob.history("news")] == [
                0,
                1,
                2,
                3,
                *range(5, 11),
            ]
            await alice.publish("news", b"and on")
            assert await take(events, 1) == [b"and on"]

    run(story)


def test_a_node_whose_disk_has_failed_takes_events_again_after_a_repair(home: Path) -> None:
    """Without a restart: what was acknowledged is there, and subscriptions are made anew."""

    async def story() -> None:
        async with Node(home) as node:
            await node.publish_many("news", TEN)
            events = await node.subscribe("news", since_offset=10)
            node.log.writer().stop(StoreFailedError("the disk has failed"))
            with pytest.raises(StoreFailedError):
                await node.publish("news", b"in vain")
            with pytest.raises(StoreFailedError):
                await anext(events)
            assert not node.health().healthy
            assert (await node.repair()).ok
            assert node.health().ready
            assert (await node.publish("news", b"again")).offset == 10
            assert len(await node.history("news")) == 11

    run(story)


def test_a_restore_takes_back_what_came_after_the_backup_and_no_offset(
    home: Path, tmp_path: Path
) -> None:
    """Readers go on behind it, named subscriptions keep their places; the old log stays."""

    async def story() -> None:
        copy = tmp_path / "copy"
        async with Node(home) as node, connect(home) as client:
            await node.publish_many("news", TEN)
            async with await node.subscribe("news", name="n", since_offset=0) as named:
                assert await take(named, 8) == TEN[:8]
                await named.ack()
            await node.backup(copy)
            behind = await node.subscribe("news", since_offset=10)
            await node.publish_many("news", [b"back", b"back"])
            assert await take(behind, 2) == [b"back", b"back"]
            with pytest.raises(BackupRefusedError, match="--replace"):
                await node.restore(copy)
            report = await client.restore(copy, replace=True)
            assert (report.events, report.findings[0].start, report.findings[0].end) == (10, 10, 12)
            assert (await node.publish("news", b"on")).offset == 12
            assert await take(behind, 1) == [b"on"]
            async with await node.subscribe("news", name="n") as named:
                assert await take(named, 3) == [*TEN[8:], b"on"]
            assert await node.compact(old=True) > 0
            with pytest.raises(LocalError, match="no rumormill store"):
                await client.restore(tmp_path / "none")
        with EventLog(home, read_only=True) as log:
            assert log.verify().ok

    run(story)


def test_a_new_node_takes_a_backup_with_its_named_subscriptions(tmp_path: Path) -> None:
    """Its log is empty, so nothing has to be said; who follows the topic is given it all."""

    async def story() -> None:
        old, new, copy = tmp_path / "old", tmp_path / "new", tmp_path / "copy"
        async with Node(old) as node:
            await node.publish_many("news", TEN)
            async with await node.subscribe("news", name="n", since_offset=0) as named:
                await take(named, 3)
                await named.ack()
            await node.backup(copy)
        (copy / "identity.key").unlink()  # the new node is another
        async with Node(new) as node:
            events = await node.subscribe("news", since_offset=0)
            assert (await node.restore(copy)).ok
            assert await take(events, 10) == TEN
            assert [(each.name, each.lag) for each in node.groups()] == [("n", 7)]

    run(story)


def test_imported_events_are_given_to_who_reads_the_log(tmp_path: Path) -> None:
    """At their offsets, before what is published next."""

    async def story() -> None:
        file = tmp_path / "news.parquet"
        async with Node(tmp_path / "one") as one:
            await one.publish_many("news", TEN)
            await asyncio.to_thread(export_parquet, one.log, file)
        async with Node(tmp_path / "two") as two, connect(tmp_path / "two") as client:
            events = await two.subscribe("news", since_offset=0)
            assert await client.import_events(file) == 10
            assert (await two.publish("news", b"next")).offset == 10
            assert await take(events, 11) == [*TEN, b"next"]
            assert await two.import_events(file) == 0

    run(story)


def test_nodes_that_know_histories_beside_the_log_are_closed_for_a_restore(
    home: Path, tmp_path: Path
) -> None:
    async def story() -> None:
        async with Node(home, protocol="pulsarcast") as node:
            await node.backup(tmp_path / "copy")
            for wish in (node.restore(tmp_path / "copy"), node.import_events("x.parquet")):
                with pytest.raises(LocalError, match=r"close it, .*, start it again"):
                    await wish
            assert (await node.repair()).ok
        async with Node(None) as node:
            for wish in (node.repair(), node.restore(tmp_path / "copy")):
                with pytest.raises(LocalError, match="keeps nothing on a disk"):
                    await wish

    run(story)


def test_scripts_mend_too(home: Path, tmp_path: Path) -> None:
    with SyncNode(home) as node:
        node.publish("news", b"one")
        node.backup(tmp_path / "copy")
        assert node.repair().ok
        assert node.restore(tmp_path / "copy", replace=True).ok
        assert [event.data for event in node.history("news")] == [b"one"]
