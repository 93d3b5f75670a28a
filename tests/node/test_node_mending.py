"""A running node whose log is repaired, restored or added to: it goes on, and everybody hears."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from pulsarcast_nodes import QUICK, all_know_all

from live_nodes import pair, run, take, until
from rumormill import LocalError, Node, SyncNode, connect
from rumormill.cli.shared_flags import PROTOCOLS
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


class Network:
    """Nodes of one protocol that follow one topic."""

    def __init__(self, protocol: str, stack: contextlib.AsyncExitStack) -> None:
        self.topic = "news"
        self._ring = protocol == "skipring"
        self._wish: dict[str, Any] = {"protocol": protocol, "parameters": HURRIED.get(protocol)}
        self._stack = stack
        self._nodes: list[Node] = []

    async def enter(self, home: Path | None) -> Node:
        """Add a node that knows nobody yet, unless the protocol has servers."""
        if self._ring and "supervisors" not in self._wish:
            server = Node(None, supervises=True, listen=LOOPBACK, **self._wish)
            above = await self._stack.enter_async_context(server)
            self._wish["supervisors"] = above.tickets[:1]
        return await self._stack.enter_async_context(Node(home, **self._wish))

    async def join(self, node: Node) -> None:
        """Connect a node with the first, and have it follow the topic."""
        if self._nodes and not self._ring:
            await node.connect(self._nodes[0].tickets[0])
        self._nodes.append(node)
        if self._wish["protocol"] == "pulsarcast":
            await all_know_all(self._nodes)
            if len(self._nodes) == 1:
                made = await node.create_topic("news", allowed_publishers="anyone")
                self.topic = made.name
        await node.subscribe(self.topic)
        if len(self._nodes) > 1:
            for each in self._nodes:
                await each.wait_until_ready(self.topic)

    async def level(self, count: int) -> None:
        """Wait until all have the same so many events, each once; what is young is compared at
        somebody's wish only, where sync does it."""
        for node in self._nodes:
            await node.sync(self.topic)

        def is_level() -> bool:
            sets = [sorted(stored(node, self.topic).values()) for node in self._nodes]
            return all(each == sets[0] for each in sets) and len(sets[0]) == count

        await until(is_level, f"all have the same {count} events")


HURRIED: dict[str, dict[str, Any]] = {"pulsarcast": QUICK, "skipring": {"interval": 0.1}}
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


def stored(node: Node, topic: str) -> dict[int, bytes]:
    """What a node's log has, by offset."""
    found: dict[int, bytes] = {}
    extent = node.log.topic(topic)
    offset = 0
    while extent is not None and offset < extent.next_offset:
        try:
            events = node.log.read(topic, offset)
        except DamagedRangeError as damaged:
            offset = damaged.end
            continue
        found |= {event.offset: event.data for event in events}
        offset = 1 + events[-1].offset if events else extent.next_offset
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_the_protocol_a_running_node_is_restored_and_repaired(
    protocol: str, tmp_path: Path
) -> None:
    """What the log had beyond the backup, and what a repair gave up, comes again from peers, at new
    offsets; publishing goes on, and no offset is used twice."""
    home, copy = tmp_path / "alice", tmp_path / "copy"

    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            network = Network(protocol, stack)
            alice, bob = await network.enter(home), await network.enter(None)
            await network.join(alice)
            await network.join(bob)
            topic = network.topic
            offsets: dict[int, bytes] = {}

            async def level(count: int) -> None:
                await network.level(count)
                now = stored(alice, topic)
                assert [at for at in now if offsets.get(at, now[at]) != now[at]] == []
                offsets.update(now)

            await alice.publish_many(topic, TEN[:5])
            await bob.publish_many(topic, TEN[5:])
            await level(10)
            await alice.backup(copy)
            await bob.publish_many(topic, [b"later %d" % number for number in range(4)])
            await alice.publish(topic, b"later still")
            await level(15)

            report = await alice.restore(copy, replace=True)
            assert [(each.start, each.end) for each in report.findings] == [(10, 15)]
            await alice.publish(topic, b"after the restore")
            await level(16)
            assert sorted(stored(alice, topic)) == [*range(10), *range(15, 21)]

            damage(home, 3, epoch=2, topic=topic)
            report = await alice.repair()
            assert [(each.start, each.end) for each in report.findings] == [(3, 4)]
            await bob.publish(topic, b"after the repair")
            await level(17)
            assert sorted(stored(alice, topic)) == [*range(3), *range(4, 10), *range(15, 23)]
            assert alice.log.verify().ok

    run(story)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_the_protocol_a_new_node_takes_a_backup_and_goes_on(
    protocol: str, tmp_path: Path
) -> None:
    """One that runs without a history takes it from a copy, another from an exported file: nothing
    of it is fetched again when they meet, and what follows comes behind it."""
    copy, file = tmp_path / "copy", tmp_path / "news.parquet"

    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            network = Network(protocol, stack)
            alice = await network.enter(tmp_path / "alice")
            await network.join(alice)
            topic = network.topic
            await alice.publish_many(topic, TEN)
            await alice.backup(copy)
            await asyncio.to_thread(export_parquet, alice.log, file)
            (copy / "identity.key").unlink()  # others take it
            bob, carol = [await network.enter(tmp_path / name) for name in ("bob", "carol")]
            assert (await bob.restore(copy)).ok
            assert await carol.import_events(file) == 10 + (protocol == "pulsarcast")
            await network.join(bob)
            await network.join(carol)
            await carol.publish(topic, b"on")
            await network.level(11)
            for node in (alice, bob, carol):
                assert stored(node, topic) == dict(enumerate([*TEN, b"on"]))

    run(story)


def test_what_is_in_memory_alone_cannot_be_mended(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(None) as node:
            for wish in (
                node.repair(),
                node.restore(tmp_path / "copy"),
                node.import_events("x.parquet"),
            ):
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
