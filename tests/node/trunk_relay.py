"""The process that `test_node_trunk.py` stops: a node with trees between two others.

Its arguments are a topic and the tickets of those whom it joins; it prints its id when it has, and
ends with its input.
"""

import asyncio
import sys

from rumormill import Node


async def relay(topic: str, tickets: list[str]) -> None:
    """Pass messages on until the input ends."""
    async with Node(None, members=False, parameters={"trunk": True}) as node:
        await node.subscribe(topic)
        for ticket in tickets:
            await node.connect(ticket)
        sys.stdout.write(f"{node.id.hex()}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(relay(sys.argv[1], sys.argv[2:]))
