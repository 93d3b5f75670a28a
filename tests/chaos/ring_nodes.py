"""The process that the skip ring's chaos test kills: several nodes, or a supervisor.

Arguments: the interval of TIMEOUTs, the directory of the homes, the supervisor's port, its ticket
unless this is the supervisor, and the names of the nodes. Requests come as lines on stdin, and each
is answered by one line of JSON on stdout, after the fact that it states: `publish TEXT` by the ids
of what each node published, `look` by how each node sees the ring. The first line is the tickets.
The process ends when stdin does.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from chaos_node import say

from rumormill.core.errors import LocalError
from rumormill.node.node import Node
from rumormill.protocols.skipring.peer import LookAt

TOPIC = "news"


async def look(node: Node) -> dict[str, object]:
    """How a node sees its ring."""
    try:
        view = await node.command(LookAt(TOPIC))
    except LocalError:
        return {"label": None, "publications": 0, "root": "", "ring": 0}
    return {
        "label": view.label,
        "publications": view.publications,
        "root": view.root_hash.hex(),
        "ring": len(view.ring),
    }


async def serve(nodes: list[Node]) -> None:
    """Answer requests until there are no more."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        request, _, text = line.strip().partition(" ")
        if request == "publish":
            receipts = await asyncio.gather(
                *[node.publish(TOPIC, f"{text} {n}".encode()) for n, node in enumerate(nodes)]
            )
            say([receipt.id.hex() for receipt in receipts])
        else:
            say([await look(node) for node in nodes])


async def main() -> None:
    """Run the nodes that were named."""
    interval, homes, port, ticket, *names = sys.argv[1:]
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for name in names:
            node = Node(
                Path(homes) / name,
                listen=f"/ip4/127.0.0.1/tcp/{0 if ticket else port}",
                protocol="skipring",
                parameters={"interval": interval},
                supervisors=[ticket] if ticket else (),
                supervises=not ticket,
            )
            nodes.append(await stack.enter_async_context(node))
            if ticket:
                await node.create_topic(TOPIC)
        say([node.tickets[0] for node in nodes])
        await serve(nodes)


if __name__ == "__main__":
    asyncio.run(main())
