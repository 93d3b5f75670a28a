"""The process that Pulsarcast's chaos test kills: several nodes, each with a home.

Arguments: the directory of the homes, the ticket of a node that is there already (empty for the
first), and the names of the nodes. Requests come as lines on stdin, and each is answered by one
line of JSON on stdout, after the fact that it states: `create NAME` by the CID of the first node's
new topic, `subscribe CID` when every node has a way to the topic's root, `publish CID TEXT` by the
ids of what each node published, `look CID` by the ids that each node's application was given, in
order. The first line is the tickets. The process ends when stdin does.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from chaos_node import say

from rumormill.core.errors import LocalError
from rumormill.node.node import Node
from rumormill.protocols.pulsarcast.commands import SubscribeTo

QUICK = {
    "kademlia.bootstrap_delay": "0.1",
    "subscribe_retry_delay": "0.2",
    "sync_settle": "0.5",
    "move_linger": "0.5",
    "refresh_interval": "1",
    "retry_delay": "0.2",
    "rendezvous_interval": "0.5",
}
"""A tree that heals in seconds: a test has no minute to wait for a refresh."""


class Reader:
    """A node, and what its application was given."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.heard: dict[str, list[str]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def subscribe(self, topic: str) -> None:
        """Follow a topic, from what this node's log has not had before, once there is a way to its
        root."""
        info = self.node.log.topic(topic)
        await self._enter(topic)
        start = 0 if info is None else info.next_offset
        events = await self.node.subscribe(topic, since_offset=start)
        heard = self.heard[topic] = []

        async def read() -> None:
            while batch := await events.batch(256):
                heard.extend(event.id.hex() for event in batch)

        self._tasks.append(asyncio.create_task(read()))

    async def _enter(self, topic: str) -> None:
        while True:
            try:
                await self.node.command(SubscribeTo(topic=topic))
            except LocalError:  # not found yet: a loaded machine is slow to fill routing tables
                await asyncio.sleep(0.1)
            else:
                return


async def serve(readers: list[Reader]) -> None:
    """Answer requests until there are no more."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        request, subject, *text = line.strip().split(" ", 2)
        if request == "create":
            made = await readers[0].node.create_topic(subject, allowed_publishers="anyone")
            say([made.name])
        elif request == "subscribe":
            await asyncio.gather(*[reader.subscribe(subject) for reader in readers])
            say([True] * len(readers))
        elif request == "publish":
            words = [f"{text[0]} {number}".encode() for number in range(len(readers))]
            nodes = [reader.node for reader in readers]
            said = await asyncio.gather(
                *[node.publish(subject, data) for node, data in zip(nodes, words, strict=True)]
            )
            say([receipt.id.hex() for receipt in said])
        else:
            say([reader.heard.get(subject, []) for reader in readers])


async def main() -> None:
    """Run the nodes that were named."""
    homes, ticket, *names = sys.argv[1:]
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for name in names:
            node = Node(Path(homes) / name, protocol="pulsarcast", parameters=QUICK)
            readers.append(Reader(await stack.enter_async_context(node)))
            if ticket:
                await node.connect(ticket)
        say([reader.node.tickets[0] for reader in readers])
        await serve(readers)


if __name__ == "__main__":
    asyncio.run(main())
