"""The process that the chaos tests kill: a node with a home that publishes, relays or subscribes.

Arguments: the role, the home, the port of the relay, a word that no other life of this node uses,
and the relay's identity unless this is the relay. A line on stdout is written in one piece, after
the fact that it states: `opening` before the log is opened, `ready` and the node's ticket when it
listens, and one line for each receipt or received event: topic, offset, id, content.
"""

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path

from rumormill.core.errors import LocalError
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node

TOPICS = ("news", "weather")
PUBLISHERS = 4
REPEATS = 40
"""An event's content is its name so many times: a part of a row would show."""


def say(what: object) -> None:
    """Write one line at once: text as it is, everything else as JSON."""
    line = what if isinstance(what, str) else json.dumps(what)
    os.write(1, f"{line}\n".encode())


async def publish(node: Node, worker: int, word: str) -> None:
    """Publish for ever, and tell of each receipt."""
    for number in itertools.count():
        name = f"{word}.{worker}.{number}"
        topic = TOPICS[number % len(TOPICS)]
        receipt = await node.publish(topic, name.encode() * REPEATS)
        say(f"{topic} {receipt.offset} {receipt.id.hex()} {name}")


async def listen(node: Node, topic: str) -> None:
    """Tell of each event that arrives."""
    async for event in await node.subscribe(topic):
        name = event.data[: len(event.data) // REPEATS].decode()
        say(f"{topic} {event.offset} {event.id.hex()} {name}")


async def keep_connected(node: Node, ticket: str) -> None:
    """Connect to the relay, which may be dead just now; afterwards the node keeps the link."""
    while True:
        try:
            await node.connect(ticket)
        except LocalError:
            await asyncio.sleep(0.05)
        else:
            return


async def main() -> None:
    """Run until killed, or until stdin is closed."""
    role, home, port, word, *relay = sys.argv[1:]
    at = f"/ip4/127.0.0.1/tcp/{port if role == 'relay' else 0}"
    config = NodeConfig(redial_delay_first=0.05, redial_delay_longest=0.2)
    say("opening")
    async with Node(
        Path(home), listen=at, config=config, parameters={"heartbeat_interval": 0.1}
    ) as node:
        say(f"ready {node.tickets[0]}")
        work = (
            [publish(node, worker, word) for worker in range(PUBLISHERS)]
            if role == "publisher"
            else [listen(node, topic) for topic in TOPICS]
        )
        tasks = [asyncio.ensure_future(each) for each in work]
        if relay:
            tasks.append(asyncio.ensure_future(keep_connected(node, relay[0])))
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
