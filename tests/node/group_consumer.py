"""The process that the kill tests of named subscriptions kill: it publishes, handles, acknowledges.

Arguments: the home, and how it acknowledges ("each", "some" or "auto"). It prints a line for each
event that it is given and, when `ack` has returned, one for each that it has acknowledged.
"""

import asyncio
import sys
from itertools import count

from rumormill import Node


async def publish(node: Node) -> None:
    """Publish for ever."""
    for number in count():
        await node.publish("work", b"%d" % number)


def say(word: str, offset: int) -> None:
    """Print in one write, so that a line that arrives is whole."""
    sys.stdout.write(f"{word} {offset}\n")
    sys.stdout.flush()


async def main(home: str, how: str) -> None:
    """Handle events until killed."""
    async with Node(home) as node:
        events = await node.subscribe("work", name="w", since_offset=0, auto_ack=how == "auto")
        say("ready", 0)
        publishing = asyncio.ensure_future(publish(node))
        async for event in events:
            say("given", event.offset)
            if how == "each" or (how == "some" and event.offset % 3):
                await events.ack(event)
                say("acked", event.offset)
        await publishing


asyncio.run(main(*sys.argv[1:]))
