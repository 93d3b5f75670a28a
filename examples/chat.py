"""A chat between terminals: everybody who knows one ticket is in the room.

    python examples/chat.py --name ann
    python examples/chat.py --name bob --join /ip4/127.0.0.1/tcp/40001/p2p/12D3...

Lines that you type go to everybody; the room's last lines are shown when you come back, because
with `--home` a node keeps what it has heard.
"""

import argparse
import asyncio
import sys

from rumormill import Node, Subscription

ROOM = "examples/chat"


async def listen(lines: Subscription, me: bytes) -> None:
    """Print what others say."""
    async for event in lines:
        if event.author != me:
            print(event.data.decode(errors="replace"), flush=True)


async def main() -> None:
    """Join, then say every line of the standard input."""
    parser = argparse.ArgumentParser(description="A chat between terminals.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--join", metavar="TICKET", help="a ticket of somebody in the room")
    parser.add_argument("--home", help="where to keep the room; nothing is kept without it")
    options = parser.parse_args()
    async with Node(options.home) as node:
        history = await node.history(ROOM)
        lines = await node.subscribe(ROOM, since_offset=max(0, len(history) - 10))
        listener = asyncio.create_task(listen(lines, node.id))
        print(f"ticket: {node.tickets[0]}", flush=True)
        if options.join:
            await node.connect(options.join)
            await node.wait_until_ready(ROOM, timeout=10)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await node.publish(ROOM, f"{options.name}: {line.strip()}".encode())
        lines.close()
        await listener


asyncio.run(main())
