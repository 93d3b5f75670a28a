"""Many nodes on one machine, with the settings that a user gets."""

import asyncio
import contextlib
import random

import pytest
from network import until

from rumormill import Node, Subscription

NODES, LINKS, MESSAGES = 50, 8, 1000


@pytest.mark.slow
def test_fifty_nodes_deliver_everything() -> None:
    """50 nodes on 127.0.0.1 deliver 1,000 messages of random publishers, each once, to all."""
    chance = random.Random(50)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node(None)) for _ in range(NODES)]
            subscriptions = [await node.subscribe("news") for node in nodes]
            for number, node in enumerate(nodes):
                others = chance.sample(range(NODES), LINKS // 2)
                for other in dict.fromkeys([(number + 1) % NODES, *others]):
                    if other != number:
                        await node.connect(nodes[other].tickets[0])
            await until(lambda: all(node.subscribers("news") >= 3 for node in nodes))

            async def publish() -> None:
                for number in range(MESSAGES):
                    await chance.choice(nodes).publish("news", b"%d" % number)

            async def read(events: Subscription) -> list[bytes]:
                return [(await anext(events)).data for _ in range(MESSAGES)]

            readers = [asyncio.create_task(read(events)) for events in subscriptions]
            await publish()
            everything = sorted(b"%d" % number for number in range(MESSAGES))
            for reader in readers:
                assert sorted(await reader) == everything
            assert all(events.waiting == 0 for events in subscriptions)

    asyncio.run(asyncio.wait_for(main(), 900))
