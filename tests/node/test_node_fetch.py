"""Events and histories from elsewhere, as programs get them: by `Node`, `SyncNode`, and Flight."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from pulsarcast_nodes import all_know_all

from live_nodes import run, until
from rumormill.core.api import FetchedHistory
from rumormill.core.errors import LocalError
from rumormill.node.node import Node
from rumormill.node.sync import SyncNode
from rumormill.spark.access import DataLossError, NodeAccess
from rumormill.spark.options import read_options
from rumormill.spark.planning import fetch_first

QUICK = {
    "kademlia.bootstrap_delay": 0.05,
    "kademlia.upkeep_interval": 0.5,
    "subscribe_retry_delay": 0.1,
    "fetch_timeout": 1.0,
    "join_timeout": 1.0,
    "connect_timeout": 1.0,
}


async def started(stack: AsyncExitStack, count: int) -> list[Node]:
    """Nodes that know each other."""
    nodes = [
        await stack.enter_async_context(Node(None, protocol="pulsarcast", parameters=QUICK))
        for _ in range(count)
    ]
    for node in nodes[1:]:
        await node.connect(nodes[0].tickets[0])
    await all_know_all(nodes)
    return nodes


def holds(node: Node, events: int) -> bool:
    """Whether a node holds so many events, two topics, for the DHT."""
    return node.metrics()["rumormill_records"]["held"] >= events + 3


def test_a_history_is_fetched_from_the_author_and_without_it() -> None:
    """Complete while the author answers; from the last event on through the DHT afterwards."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            author, holder, early, late = await started(stack, 4)
            topic = await author.create_topic("news")
            said = [b"%d" % number for number in range(5)]
            last = (await author.publish_many(topic.name, said))[-1]
            await until(lambda: holds(holder, 5), "the DHT has it all")
            found = await early.fetch_history(topic.name)
            assert found == FetchedHistory(5, (), found.answered, True)
            assert [event.data for event in await early.history(topic.name)] == said
            await author.close()
            await early.close()
            assert (await late.fetch(last.id)).data == b"4"
            heard: list[int] = []
            handle = late.topic(topic.name)
            found = await handle.fetch_history(start=[last.id], progress=heard.append)
            assert (found.events, found.missing, found.complete) == (5, (), False)
            assert sorted(event.data for event in await handle.history()) == said
            with pytest.raises(LocalError, match="names no event"):
                await late.fetch_history(topic.name, start=["nothing"])

    run(story)


def test_elsewhere_it_is_sync() -> None:
    """A bound needs links to follow; without anybody to ask, nothing is complete."""

    async def story() -> None:
        async with Node(None) as node:
            await node.create_topic("news")
            assert await node.fetch_history("news") == FetchedHistory()
            with pytest.raises(LocalError, match="no links that one could follow"):
                await node.fetch_history("news", most=5)
            with pytest.raises(LocalError, match="cannot be had by its name alone"):
                await node.fetch("an event")

    run(story)


def test_a_spark_query_has_the_node_fetch_first() -> None:
    """Through the Flight door, all or so many; what nobody has fails it, and is named."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            author, reader = await started(stack, 2)
            topic = await author.create_topic("news")
            await author.publish_many(topic.name, [b"%d" % number for number in range(3)])
            doors = await stack.enter_async_context(reader.serve(flight="127.0.0.1:0"))
            given = {"node": doors.flight, "token": doors.token, "subscribe": topic.name}
            options = read_options(given | {"fetchHistory": "all"}, streaming=False)
            assert options.fetch == 0
            await asyncio.to_thread(fetch_first, options)
            assert len(await reader.history(topic.name)) == 3
            access = options.places[0]
            assert isinstance(access, NodeAccess)
            found = await asyncio.to_thread(access.fetch_history, topic.name, 0)
            assert found == FetchedHistory(0, (), found.answered, True)

    run(story)


def test_what_is_missing_fails_a_query_unless_it_may_be_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = FetchedHistory(1, (b"\x01\x02",), 1)
    monkeypatch.setattr(NodeAccess, "fetch_history", lambda *_: lacking)
    given = {"node": "127.0.0.1:1", "token": "t" * 40, "subscribe": "news", "fetchHistory": "7"}
    options = read_options(given, streaming=False)
    assert options.fetch == 7
    with pytest.raises(DataLossError, match=r"1 events that others link to.*0102"):
        fetch_first(options)
    fetch_first(read_options(given | {"failOnDataLoss": "false"}, streaming=False))


def test_scripts_have_it_too() -> None:
    with SyncNode(None, protocol="pulsarcast", parameters=QUICK) as node:
        topic = node.create_topic("news")
        receipt = node.publish(topic, b"mine")
        assert node.fetch(receipt.id).data == b"mine"
        found = node.fetch_history(topic)
        assert (found.events, found.complete) == (0, True)
