"""rumormill as a contestant: `rumormill_peer.py NODES HOME LINKS [trunk] [PROFILE]`.

The home `memory` means none. Links that are `given` are the only ones; those that are `found` are
what membership makes of them. Versions that know nothing of membership keep to what is given. With
`trunk` GossipSub saves the copies that nobody needs. A profile is written where one is asked for.
"""

import asyncio
import contextlib
import inspect
import sys
from pathlib import Path

from stage import TOPIC, Count, perform

from rumormill import Node, Subscription


class Rumormill:
    """All nodes of this process."""

    def __init__(self, count: Count, nodes: list[Node]) -> None:
        self.count = count
        self.nodes = nodes
        self.readers: list[asyncio.Task[None]] = []

    def tickets(self) -> list[str]:
        return [node.tickets[0] for node in self.nodes]

    async def connect(self, node: int, ticket: str) -> None:
        await self.nodes[node].connect(ticket)

    async def subscribe(self, node: int) -> None:
        events = await self.nodes[node].subscribe(TOPIC)
        self.readers.append(asyncio.create_task(self.read(node, events)))

    async def read(self, node: int, events: Subscription) -> None:
        take = self.count.take
        async for event in events:
            take(node, event.data)

    async def ready(self, node: int, peers: int) -> None:
        await self.nodes[node].wait_until_ready(TOPIC, peers=peers, timeout=60)

    async def publish(self, node: int, data: bytes) -> None:
        await self.nodes[node].publish(TOPIC, data)


async def main() -> None:
    count = Count()
    home = None if sys.argv[2] == "memory" else Path(sys.argv[2])
    finds = "members" in inspect.signature(Node.__init__).parameters
    settings = {"members": False} if finds and sys.argv[3] == "given" else {}
    if "trunk" in sys.argv[4:]:
        settings["parameters"] = {"trunk": True}
    async with contextlib.AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(Node(home and home / str(number), **settings))
            for number in range(int(sys.argv[1]))
        ]
        await perform(Rumormill(count, nodes), count)


if __name__ == "__main__":
    if places := [each for each in sys.argv[4:] if each != "trunk"]:
        import cProfile

        cProfile.run("asyncio.run(main())", places[0])
    else:
        asyncio.run(main())
