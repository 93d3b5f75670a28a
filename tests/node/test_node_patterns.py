"""Patterns and filters of live nodes: what is entered, what is handed out, what wakes nobody."""

import asyncio
import json
from typing import Any

import pytest
from hostile_peer import HostilePeer

from live_nodes import pair, run, take, take_events, until
from rumormill.core.errors import ConfigError, LocalError
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.patterns import Patterns
from rumormill.node.subscription import Overflow, Subscription
from rumormill.node.sync import SyncNode

NAMED = ("floodsub", "gossipsub", "radius")
"""The protocols in which peers hear the names of each other's topics."""


def reading(celsius: float) -> bytes:
    return json.dumps({"celsius": celsius}).encode()


# Filters.


def test_a_filter_hands_out_what_it_matches_and_nothing_else() -> None:
    """New events and those of the log alike; what it passed over is counted."""

    async def main() -> None:
        async with pair() as (alice, bob):
            hot = await bob.subscribe("news", where="data.celsius > 30")
            for celsius in (10, 35, 20, 31):
                await alice.publish("news", reading(celsius))
            assert await take(hot, 2) == [reading(35), reading(31)]
            assert hot.passed_over == 2
            again = await bob.subscribe("news", since_offset=0, where="data.celsius <= 30")
            assert await take(again, 2) == [reading(10), reading(20)]
            found = await bob.history("news", where="data.celsius > 15", limit=2)
            assert [event.data for event in found] == [reading(35), reading(20)]

    run(main)


class Counted(Subscription):
    """A subscription that counts how often its reader is woken."""

    woken = 0

    def _wake(self) -> None:
        self.woken += 1
        super()._wake()


def test_what_does_not_match_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal asks the filter, not the reader."""
    monkeypatch.setattr("rumormill.node.subscribing.Subscription", Counted)

    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("news", where="data.celsius > 30")
            assert isinstance(events, Counted)
            reader = asyncio.ensure_future(anext(events))
            await node.publish_many("news", [reading(number % 30) for number in range(300)])
            await until(lambda: events.passed_over == 300, "the journal has asked")
            assert (events.woken, reader.done()) == (0, False)
            await node.publish("news", reading(31))
            assert (await reader).data == reading(31)
            assert events.woken == 1

    run(main)


def test_a_filter_that_matches_little_reads_a_long_log_through() -> None:
    """Pieces without a match are passed over, also when the buffer was full in between."""

    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("news", buffer=2, where="data.celsius >= 10")
            await node.publish_many("news", [reading(number / 60) for number in range(1200)])
            found = await take_events(events, 600)
            assert [event.offset for event in found] == [*range(600, 1200)]
            assert (events.dropped, events.passed_over) == (0, 600)

    run(main)


def test_a_filter_that_cannot_be_read_is_refused_by_every_call() -> None:
    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(ConfigError, match="where: write == to compare; at character 8"):
                await node.subscribe("news", where="data.x = 3")
            with pytest.raises(ConfigError, match="where: expected a field"):
                await node.history("news", where="x == 3")
            assert node.metrics()["topic_subscription_status"] == {}

    run(main)


def test_a_script_filters_too() -> None:
    with SyncNode(None) as node:
        hot = node.subscribe("news", where="data.celsius > 30")
        node.publish_many("news", [reading(celsius) for celsius in (10, 40, 20, 50)])
        assert [next(hot).data, next(hot).data] == [reading(40), reading(50)]


# Patterns.


@pytest.mark.parametrize("protocol", NAMED)
def test_topics_join_a_pattern_as_peers_announce_them(protocol: str) -> None:
    """Those of now and those of later, one level or all; others do not."""

    async def main() -> None:
        async with Node(None, protocol=protocol) as alice, Node(None, protocol=protocol) as bob:
            await alice.create_topic("news/a")
            await alice.create_topic("news")
            await bob.connect(alice.tickets[0])
            level = await bob.subscribe("news/*")
            below = await bob.subscribe("news/#", where="topic != 'news/a'")
            await alice.wait_until_ready("news/a")
            for name in ("news/b", "news/b/c", "other/a"):
                await alice.create_topic(name)
            for name in ("news/b", "news/b/c"):
                await alice.wait_until_ready(name)
            for name in ("news/a", "news/b", "news/b/c", "other/a", "news"):
                await alice.publish(name, name.encode())
            assert sorted(await take(level, 2)) == [b"news/a", b"news/b"]
            assert sorted(await take(below, 2)) == [b"news/b", b"news/b/c"]
            assert sorted(level.topics) == ["news/a", "news/b"]
            assert sorted(below.topics) == ["news/a", "news/b", "news/b/c"]
            assert (level.waiting, below.waiting) == (0, 0)

    run(main)


@pytest.mark.parametrize("protocol", ["gossipsub", "skipring"])
def test_topics_of_the_own_log_join_with_their_first_event(protocol: str) -> None:
    """What was published before the subscription is not news, unless it is asked for."""

    async def main() -> None:
        parts: dict[str, Any] = {"supervises": True} if protocol == "skipring" else {}
        async with Node(None, protocol=protocol, **parts) as node:
            await node.publish("news/old", b"before")
            fresh = await node.subscribe("news/*")
            whole = await node.subscribe("news/*", since_offset=0)
            await node.publish("news/old", b"after")
            await node.publish("news/new", b"first")
            assert sorted(await take(fresh, 2)) == [b"after", b"first"]
            assert sorted(await take(whole, 3)) == [b"after", b"before", b"first"]

    run(main)


def test_a_full_buffer_loses_nothing_of_any_topic() -> None:
    """Each topic has its own place in the log, and they are read in turns."""

    async def main() -> None:
        async with Node(None) as node:
            for name in "abc":
                await node.create_topic(f"news/{name}")
            events = await node.subscribe("news/*", buffer=4)
            for name in "abc":
                await node.publish_many(f"news/{name}", [b"%d" % number for number in range(300)])
            found = await take_events(events, 900)
            for name in "abc":
                offsets = [event.offset for event in found if event.topic == f"news/{name}"]
                assert offsets == [*range(300)]
            few = await node.subscribe("news/*", buffer=1, overflow=Overflow.DROP_OLDEST)
            for name in "abc":
                await node.publish(f"news/{name}", name.encode())
            assert await take(few, 1) == [b"c"]
            assert few.dropped == 2

    run(main)


def test_a_pattern_enters_no_more_topics_than_it_may() -> None:
    """Names come from peers; those over the limit are counted."""

    async def main() -> None:
        config = NodeConfig(pattern_topics=3)
        async with Node(None) as alice, Node(None, config=config) as bob:
            for number in range(5):
                await alice.create_topic(f"news/{number}")
            await bob.connect(alice.tickets[0])
            events = await bob.subscribe("news/#")
            await until(lambda: events.left_out == 2, "two topics are left out")
            assert len(events.topics) == 3
            assert bob.metrics()["rumormill_pattern_topics_left_out"] == {"news/#": 2.0}

    run(main)


def test_closing_and_leaving_a_pattern() -> None:
    """What was only opened for it is left with it; what another subscription has stays."""

    async def main() -> None:
        async with Node(None) as node:
            for name in ("news/a", "news/b"):
                await node.publish(name, b"known")
            followed = node.metrics
            loose = await node.subscribe("news/*", follow=False)
            assert followed()["topic_subscription_status"] == {"news/a": 1.0, "news/b": 1.0}
            loose.close()
            assert followed()["topic_subscription_status"] == {}
            pattern = await node.subscribe("news/*")
            plain = await node.subscribe("news/a")
            pattern.close()
            assert followed()["topic_subscription_status"] == {"news/a": 1.0, "news/b": 1.0}
            pattern = await node.subscribe("news/*")
            await node.unsubscribe("news/*")
            assert (pattern.closed, plain.closed) == (True, False)
            assert followed()["topic_subscription_status"] == {"news/a": 1.0}
            idle = await node.subscribe("nobody/#")
        assert idle.closed
        assert [event async for event in idle] == []

    run(main)


@pytest.mark.parametrize("name", ["news/*", "news/#", "*", "news*"])
def test_a_pattern_is_never_a_topic(name: str) -> None:
    """Every call that takes one topic refuses it with a sentence, and nothing is joined."""

    async def main() -> None:
        async with Node(None) as node:
            for call in (
                lambda: node.publish(name, b"x"),
                lambda: node.publish_many(name, [b"x"]),
                lambda: node.history(name),
                lambda: node.create_topic(name),
                lambda: node.wait_until_ready(name),
            ):
                with pytest.raises(LocalError, match="is a pattern of names and not a topic"):
                    await call()
            with pytest.raises(LocalError, match="is a pattern of names and not a topic"):
                node.topic(name)
            assert node.log.topics() == []
            assert node.metrics()["topic_subscription_status"] == {}

    run(main)


def test_what_a_pattern_cannot_be_is_said() -> None:
    """Wildcards in the wrong place, offsets, and protocols whose topics have no names."""

    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError, match="stands for a whole level"):
                await node.subscribe("news*")
            with pytest.raises(LocalError, match="0 is the beginning of each"):
                await node.subscribe("news/*", since_offset=3)
        async with Node(None, protocol="pulsarcast") as node:
            with pytest.raises(LocalError, match="topics of pulsarcast are known by their hashes"):
                await node.subscribe("news/*")

    run(main)


def test_a_thousand_topics_at_once_are_entered_in_turns_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever announces them, before somebody subscribes or later: a few each time round."""
    rounds = [0]

    def offer(self: Patterns, *wish: Any) -> None:
        rounds[-1] += 1
        offered(self, *wish)

    offered = Patterns._offer
    monkeypatch.setattr(Patterns, "_offer", offer)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def come_round() -> None:
            rounds.append(0)
            loop.call_soon(come_round)

        async with Node(None) as alice, HostilePeer() as mallory:
            loop.call_soon(come_round)
            await mallory.connect(alice)
            mallory.hello(*[f"swarm/{number}" for number in range(100)])
            known = alice._driver.machine.view
            await until(lambda: len(known().peers) >= 100, "they are known")
            early = await alice.subscribe("swarm/#")
            assert len(early.topics) == 100
            mallory.hello(*[f"swarm/later/{number}" for number in range(100)])
            await until(lambda: len(early.topics) == 200, "they are entered")

    run(main)
    assert sum(rounds) == 200
    assert max(rounds) <= 20


def test_half_a_million_names_are_looked_through_in_turns_of_the_loop() -> None:
    """As many as strangers may announce; nobody waits for more than a part of them."""

    async def main() -> None:
        names = [f"{number}" for number in range(500_000)]
        others = 0
        patterns = Patterns(lambda: [*names, *names[:9]], lambda: None, lambda _: None, 512)

        async def wait_for_a_turn() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        waiting = asyncio.ensure_future(wait_for_a_turn())
        assert await patterns._look() == names
        assert others > 50
        names.append("new")
        assert await patterns._look() == ["new"]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(main)


def test_a_view_of_peers_by_topic_costs_nothing_before_somebody_looks() -> None:
    """Nodes look at it every few seconds, and strangers may have named all those topics."""

    async def main() -> None:
        async with Node(None) as alice, HostilePeer() as mallory:
            seen = alice.view().peers
            await mallory.connect(alice)
            mallory.hello(*[f"swarm/{number}" for number in range(1000)])
            await until(lambda: len(seen) == 1000, "all are known")
            mine = (bytes(mallory.key.peer_id),)
            assert seen["swarm/7"] == mine
            assert dict(seen) == {f"swarm/{number}": mine for number in range(1000)}
            assert seen == alice.view().peers

    run(main)
