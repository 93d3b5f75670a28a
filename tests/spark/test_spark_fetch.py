"""`fetchHistory`: a query has its node fetch what others have, before it reads."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from spark_samples import configured, run_to_end

from live_nodes import run, until
from rumormill.node.node import Node

pytestmark = pytest.mark.xdist_group("spark")

QUICK = {
    "kademlia.bootstrap_delay": 0.05,
    "kademlia.upkeep_interval": 0.5,
    "fetch_timeout": 1.0,
    "join_timeout": 1.0,
}


def test_a_query_has_its_node_fetch_the_history_first(spark: Any, tmp_path: Path) -> None:
    """A node that was not there when they were published: table, stream, and so many at most."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(Node(None, protocol="pulsarcast", parameters=QUICK))
                for _ in range(3)
            ]
            author, first, second = nodes
            for node in nodes[1:]:
                await node.connect(author.tickets[0])
                contacts = node._driver.protocol.dht.contacts.table
                await until(lambda table=contacts: len(table) >= 1, "they know each other")
            topic = (await author.create_topic("news")).name
            said = [b"%d" % number for number in range(6)]
            await author.publish_many(topic, said)
            doors = [
                await stack.enter_async_context(node.serve(flight="127.0.0.1:0"))
                for node in (first, second)
            ]
            places = [{"node": door.flight, "token": door.token, "subscribe": topic}
                      for door in doors]  # fmt: skip

            def table() -> list[bytes]:
                rows = configured(spark.read, **places[0], fetchHistory="all").load().collect()
                return sorted(bytes(row.value) for row in rows)

            assert await first.history(topic) == []
            assert await asyncio.to_thread(table) == said

            def stream() -> int:
                frame = configured(
                    spark.readStream, **places[1], fetchHistory="all", startingOffsets="earliest"
                ).load()
                run_to_end(frame, tmp_path)
                return int(spark.read.parquet(str(tmp_path / "table")).count())

            assert await second.history(topic) == []
            assert await asyncio.to_thread(stream) == 6

    run(story, patience=300)
