"""Everybody gets everything in the end, on real nodes: who was away, cut off or late."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hostile_peer import HostilePeer

from live_nodes import PATIENCE, pair, run, take, take_events, until
from processes import environment
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.inputs import Verdict
from rumormill.core.trace import OperationMeta, RecvRPC, SendRPC
from rumormill.log.model import StoreConfig
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.sync.config import SyncConfig
from rumormill.sync.messages import SYNC_PROTOCOL
from rumormill.sync.under_way import MAX_ASKED
from trace_log import TraceLog

QUICK = SyncConfig(interval=0.5, settle=0.0)
SYNCED = ["gossipsub", "floodsub", "radius"]


async def meet(one: Node, other: Node) -> None:
    """Connect two nodes."""
    await one.connect(other.tickets[0])


@pytest.mark.parametrize("protocol", SYNCED)
def test_a_returning_subscriber_gets_what_it_missed(protocol: str, tmp_path: Path) -> None:
    """It was closed while others published; it says nothing of that when it is back."""

    async def story() -> None:
        async with Node(tmp_path / "alice", protocol=protocol) as alice:
            async with Node(tmp_path / "bob", protocol=protocol) as bob:
                await meet(bob, alice)
                events = await bob.subscribe("news")
                await alice.subscribe("news")
                await alice.wait_until_ready("news")
                await alice.publish("news", b"before")
                assert await take(events, 1) == [b"before"]
            for number in range(300):
                await alice.publish("news", b"%d" % number)
            async with Node(tmp_path / "bob", protocol=protocol, sync=QUICK) as bob:
                events = await bob.subscribe("news")
                await meet(bob, alice)
                missed = await take_events(events, 300)
                assert [each.data for each in missed] == [b"%d" % n for n in range(300)]
                assert {each.via for each in missed} == {"sync"}
                assert [each.offset for each in missed] == list(range(1, 301))
                await bob.wait_until_ready("news")
                await alice.wait_until_ready("news")
                await alice.publish("news", b"live")
                (live,) = await take_events(events, 1)
                assert (live.data, live.via) == (b"live", "")

    run(story)


def test_a_late_subscriber_chooses_its_history() -> None:
    """By default it begins when it comes; it may have all, or what came since a time."""

    async def story() -> None:
        async with Node(None) as alice:
            await alice.subscribe("news")
            await alice.publish("news", b"old")
            received = (await alice.history("news"))[0].received
            await asyncio.sleep(0.05)
            await alice.publish("news", b"new")
            for choice, expected in (
                ({"history": "all"}, [b"old", b"new"]),
                ({"since": received + 0.02}, [b"new"]),
                ({}, []),
                ({"history": "none"}, []),
            ):
                wanted: dict[str, Any] = choice
                async with Node(None, sync=QUICK) as bob:
                    events = await bob.subscribe("news", **wanted)
                    await meet(bob, alice)
                    await bob.wait_until_ready("news")
                    report = await bob.sync("news")
                    nobody = wanted.get("history") == "none"
                    assert (report.asked, report.answered) == ((0, 0) if nobody else (1, 1))
                    assert [each.data for each in await bob.history("news")] == expected
                    assert await take(events, len(expected)) == expected

    run(story)


def test_what_the_log_lost_comes_back(tmp_path: Path) -> None:
    """Also what a node has published itself."""

    async def story() -> None:
        async with pair(home=tmp_path) as (alice, bob):
            await alice.subscribe("news")
            for number in range(20):
                await alice.publish("news", b"%d" % number)
            await until(lambda: len(bob.log.topics()) == 1, "bob has it")
            key = (tmp_path / "alice" / "identity.key").read_bytes()
        home = tmp_path / "again"
        home.mkdir(mode=0o700)
        (home / "identity.key").write_bytes(key)
        (home / "identity.key").chmod(0o600)
        async with Node(tmp_path / "bob") as bob, Node(home, sync=QUICK) as alice:
            await bob.subscribe("news")
            events = await alice.subscribe("news", history="all")
            await meet(alice, bob)
            assert await take(events, 20) == [b"%d" % number for number in range(20)]

    run(story)


async def gets_the_news(home: Path) -> None:
    """A node that takes up its topics, no others, has what was published while it was away."""
    async with Node(None) as alice:
        await alice.subscribe("news")
        await alice.publish("news", b"while bob was away")
        async with Node(home, resume=True, sync=QUICK) as bob:
            assert bob._driver.machine.view().subscriptions == ("news",)
            await meet(bob, alice)
            await until(lambda: bob.log.topic("news"), "it is in the log")


def test_followed_topics_are_taken_up_again(tmp_path: Path) -> None:
    """With `resume` nobody has to subscribe for the log to be complete; who left has left."""

    async def story() -> None:
        async with Node(tmp_path / "bob", resume=True) as bob:
            await bob.subscribe("news")
            await bob.subscribe("weather")
            await bob.unsubscribe("weather")
        await gets_the_news(tmp_path / "bob")

    run(story)


SHORT_LIFE = """
import asyncio, os, signal, sys
from rumormill import Node

async def live():
    async with Node(sys.argv[1]) as node:
        await node.subscribe("news")
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(live())
"""


def test_who_is_killed_when_it_has_subscribed_knows_that_it_has(tmp_path: Path) -> None:
    """What `subscribe` returned is on the disk: the topic, and since when it is followed."""

    async def story() -> None:
        killed = [sys.executable, "-c", SHORT_LIFE, str(tmp_path / "bob")]
        done = await asyncio.to_thread(subprocess.run, killed, env=environment(), check=False)
        assert done.returncode == -signal.SIGKILL
        await gets_the_news(tmp_path / "bob")

    run(story)


def test_an_event_that_our_rules_refuse_is_asked_for_once() -> None:
    """The validator sees what comes by sync as it sees what arrives; a refusal is remembered."""

    async def story() -> None:
        async with Node(None) as alice, Node(None, sync=QUICK) as bob:
            await alice.subscribe("news")
            for word in (b"good", b"bad", b"fair"):
                await alice.publish("news", word)
            judged: list[bytes] = []

            async def validator(event: Event, _: bytes) -> Verdict:
                judged.append(event.data)
                await asyncio.sleep(0)
                return Verdict.REJECT if event.data == b"bad" else Verdict.ACCEPT

            bob.set_validator("news", validator)
            events = await bob.subscribe("news", history="all")
            await meet(bob, alice)
            assert await take(events, 2) == [b"good", b"fair"]
            await bob.sync("news")
            report = await bob.sync("news")
            assert (report.answered, report.events) == (1, 0)
            assert judged == [b"good", b"bad", b"fair"]

    run(story)


def test_copies_are_counted_on_disks(tmp_path: Path) -> None:
    """A receipt may wait until others have the event; if they do not, it says how many do."""

    async def story() -> None:
        async with pair(home=tmp_path) as (alice, bob):
            receipt = await alice.publish("news", b"kept twice", copies=1, timeout=PATIENCE)
            assert receipt.copies == 1
            assert [each.data for each in await bob.history("news")] == [b"kept twice"]
            for patience in (0.3, 3.0, 30.0):  # what a busy machine has not heard of yet, later
                with pytest.raises(LocalError, match="of 2 other nodes") as raised:
                    await alice.publish("news", b"thrice?", copies=2, timeout=patience)
                if "1 of 2" in str(raised.value):
                    break
            assert "1 of 2" in str(raised.value)

    run(story)


def test_what_cannot_be_asked_for() -> None:
    """One sentence says what to give."""

    async def story() -> None:
        async with Node(None) as node:
            for wrong, word in (
                ({"history": "everything"}, "'missed', 'all', 'none'"),
                ({"history": "all", "since": 5.0}, "give one"),
                ({"since": -1.0}, "seconds since 1970"),
            ):
                given: dict[str, Any] = wrong
                with pytest.raises(LocalError, match=word):
                    await node.subscribe("news", **given)

    run(story)


class HalfSpoken(HostilePeer):
    """Says half of every answer, and then nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.protocols = (*self.protocols, SYNC_PROTOCOL)
        self.asked = 0

    def _on_data(self, stream_id: int, data: bytes) -> None:
        super()._on_data(stream_id, data)
        if self._negotiations[stream_id].protocol == SYNC_PROTOCOL:
            self.asked += 1
            self._answer(stream_id, b"\x64" + bytes(50))


def test_who_says_half_an_answer_and_no_more_keeps_nobody_from_the_others() -> None:
    """Each costs the time of one answer; then the next partner is asked."""

    async def story() -> None:
        impatient = SyncConfig(interval=0.2, settle=0.0, timeout=0.2)
        async with AsyncExitStack() as stack:
            alice = await stack.enter_async_context(Node(None, sync=impatient))
            bob = await stack.enter_async_context(Node(None))
            for number in range(100):
                await bob.publish("news", b"%d" % number)
            events = await alice.subscribe("news", history="all")
            silent = [await stack.enter_async_context(HalfSpoken()) for _ in range(4)]
            for mallory in silent:
                await mallory.connect(alice)
                mallory.hello("news")
            await until(lambda: all(each.asked for each in silent), "all of them were asked")
            await bob.subscribe("news")
            await meet(bob, alice)
            assert len(await take(events, 100)) == 100
            assert not any(each.closed for each in silent), "it may just be slow"

    run(story)


def test_a_long_history_that_a_validator_judges_is_held_against_nobody() -> None:
    """What we ask for does not count as what a peer has us store (`docs/security.md`)."""

    async def story() -> None:
        narrow = NodeConfig(stored_bytes_at_once=1 << 15, stored_bytes_per_second=1)
        async with Node(None) as alice, Node(None, config=narrow, sync=QUICK) as bob:
            await alice.publish_many("news", [bytes(1000)] * 300)

            async def validator(*_: object) -> Verdict:
                return Verdict.ACCEPT

            bob.set_validator("news", validator)
            events = await bob.subscribe("news", history="all")
            await alice.subscribe("news")
            await meet(bob, alice)
            assert len(await take(events, 300)) == 300
            assert bob.refusals == {}

    run(story)


def test_what_the_log_refuses_for_ever_is_asked_for_once() -> None:
    """It is too long for this node, and stays so: others keep it."""

    async def story() -> None:
        short = StoreConfig(max_event_bytes=1000)
        async with Node(None) as alice, Node(None, store=short, sync=QUICK) as bob:
            await alice.publish_many("news", [bytes(2000)] * 5 + [b"short"])
            await alice.subscribe("news")
            events = await bob.subscribe("news", history="all")
            await meet(bob, alice)
            assert await take(events, 1) == [b"short"]
            reports = [await bob.sync("news") for _ in range(3)]
            assert (reports[-1].answered, reports[-1].events) == (1, 0)
            assert bob.completeness("news").backlog == 0

    run(story)


def test_who_was_killed_has_many_topics_back_by_a_few_questions_at_a_time(tmp_path: Path) -> None:
    """Two of four nodes are away while others publish in a hundred topics. When they are back,
    several topics are fetched from a partner at a time, and never more than a few."""
    topics = [f"topic {number}" for number in range(100)]
    words = [b"%d" % number for number in range(3)]

    async def story() -> None:
        async with Node(tmp_path / "0") as alice, Node(tmp_path / "1") as bob:
            await meet(alice, bob)
            for topic in topics:
                await alice.subscribe(topic)
                await bob.subscribe(topic)
            for name in ("2", "3"):
                async with Node(tmp_path / name) as away:
                    for topic in topics:
                        await away.subscribe(topic)
            for topic in topics:
                for word in words:
                    await alice.publish(topic, word)
            await asyncio.gather(*[back(name, alice, bob) for name in ("2", "3")])

    def has_all(node: Node, topic: str) -> bool:
        extent = node.log.topic(topic)
        return extent is not None and extent.next_offset == len(words)

    async def back(name: str, alice: Node, bob: Node) -> None:
        log = TraceLog()
        async with Node(tmp_path / name, resume=True) as node:
            node.add_observer(log)
            await meet(node, alice)
            await meet(node, bob)
            extents = lambda: [node.log.topic(topic) for topic in topics]  # noqa: E731
            await until(
                lambda: all(each and each.next_offset == 3 for each in extents()), "all came"
            )
        assert 1 < most_at_a_time(log) <= MAX_ASKED

    run(story)


def most_at_a_time(log: TraceLog) -> int:
    """Fetches that were under way with one peer at most."""
    under_way: Counter[bytes] = Counter()
    peak = 0
    for _, _, payload in log.entries:
        if isinstance(payload, SendRPC):
            under_way[payload.send_to] += payload.meta.operations == (OperationMeta("sync fetch"),)
            peak = max(peak, *under_way.values())
        elif isinstance(payload, RecvRPC):
            answered = payload.meta.operations == (OperationMeta("sync events"),)
            under_way[payload.received_from] -= answered
    return peak
