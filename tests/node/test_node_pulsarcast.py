"""Pulsarcast on real nodes: topics, trees, requests and history over libp2p on the loopback."""

from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from pulsarcast_nodes import all_know_all

from live_nodes import run, take, take_events, until
from rumormill.node.node import Node
from rumormill.node.subscription import Subscription
from rumormill.protocols.pulsarcast.commands import (
    CreateTopic,
    History,
    ReadHistory,
    SubscribeTo,
)
from rumormill.protocols.pulsarcast.format import cid as cids

PEERS = 6
PARAMETERS = {
    "fan_out": 2,
    "kademlia.bootstrap_delay": 0.1,
    "subscribe_retry_delay": 0.2,
    "sync_settle": 0.5,
    "move_linger": 0.5,
    "refresh_interval": 1.0,
    "rendezvous_interval": 0.5,
}


async def started(stack: AsyncExitStack, preset: str) -> list[Node]:
    """Nodes in a line, each of which knows the one before it."""
    nodes = [
        await stack.enter_async_context(
            Node(None, protocol="pulsarcast", preset=preset, parameters=PARAMETERS)
        )
        for _ in range(PEERS)
    ]
    for before, node in pairwise(nodes):
        await node.connect(before.tickets[0])
    await all_know_all(nodes)
    return nodes


async def subscribed(nodes: list[Node], author: Node) -> tuple[str, list[Subscription]]:
    """A topic of one node's that all follow."""
    topic = cids.text((await author.command(CreateTopic(name="news"))).cid)
    for node in nodes:
        await node.command(SubscribeTo(topic=topic))
    return topic, [await node.subscribe(topic) for node in nodes]


@pytest.mark.parametrize("preset", ["open", "ordered"])
def test_everybody_publishes_and_everybody_reads_the_same_history(preset: str) -> None:
    """By themselves, or by asking the author; the last node's history is complete and verified."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = await started(stack, preset)
            topic, subscriptions = await subscribed(nodes, nodes[0])
            said = [b"from %d" % number for number in range(PEERS)]
            for node, data in zip(nodes, said, strict=True):
                await node.publish(topic, data)
            for subscription in subscriptions:
                heard = await take(subscription, PEERS)
                assert (heard if preset == "ordered" else sorted(heard)) == said
            history = await nodes[-1].command(ReadHistory(topic=topic))
            assert isinstance(history, History)
            assert history.complete
            assert sorted(event.data for event in history.events) == said

    run(story)


def test_the_tree_heals_when_its_root_is_gone() -> None:
    """The author's node ends; the others go on, and miss nothing."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = await started(stack, "open")
            topic, subscriptions = await subscribed(nodes, nodes[2])
            await nodes[0].publish(topic, b"before")
            for subscription in subscriptions:
                assert await take(subscription, 1) == [b"before"]
            await nodes[2].close()
            left = [number for number in range(PEERS) if number != 2]
            said = [b"after %d" % number for number in left]
            for number, data in zip(left, said, strict=True):
                await nodes[number].publish(topic, data)
            for number in left:
                assert sorted(await take(subscriptions[number], len(said))) == said

    run(story)


@pytest.mark.parametrize("preset", ["open", "ordered"])
def test_a_late_subscriber_from_the_beginning_is_given_what_was_before_it(preset: str) -> None:
    """Older events are fetched, and come on the subscription, each at the next offset."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = await started(stack, preset)
            topic, _ = await subscribed(nodes[:3], nodes[0])
            for number in range(20):
                await nodes[0].publish(topic, b"%d" % number)
            late = await nodes[-1].subscribe(topic, since_offset=0)
            found = await take_events(late, 20)
            assert [event.offset for event in found] == list(range(20))
            said = [event.data for event in found]
            everything = [b"%d" % number for number in range(20)]
            assert (said if preset == "ordered" else sorted(said)) == (
                everything if preset == "ordered" else sorted(everything)
            )
            await nodes[0].publish(topic, b"news")
            assert await take(late, 1) == [b"news"]

    run(story)


def test_what_is_fetched_late_is_no_news_and_comes_to_who_reads_the_log() -> None:
    """A subscription to what is new is not given the past that is read meanwhile."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = await started(stack, "open")
            topic, _ = await subscribed(nodes[:3], nodes[0])
            for number in range(5):
                await nodes[0].publish(topic, b"%d" % number)
            late = nodes[-1]
            await late.command(SubscribeTo(topic=topic))
            await nodes[0].publish(topic, b"new")
            kept = lambda: [event.data for event in late.log.read(topic, 0, 10)]  # noqa: E731
            await until(lambda: b"new" in kept(), "the new event is there")
            # It links to the last one before it, which was fetched first.
            known = kept()
            assert b"4" in known[: known.index(b"new")]
            from_log = await late.subscribe(topic, since_offset=len(known))
            news = await late.subscribe(topic)
            await late.command(ReadHistory(topic=topic))
            past = [each for each in (b"0", b"1", b"2", b"3") if each not in known]
            assert sorted(await take(from_log, len(past))) == past
            await nodes[0].publish(topic, b"newer")
            assert await take(news, 1) == [b"newer"]

    run(story)
