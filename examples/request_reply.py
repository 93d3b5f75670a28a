"""Requests and replies: one node asks, whoever can answer does.

    python examples/request_reply.py 2+3 10+20+30

Two nodes know how to add and share the requests of one name; a third one asks, and is told who
answered.
"""

import argparse
import asyncio

from rumormill import Node, PeerId

SUMS = "examples/sums"


async def answer(node: Node) -> None:
    """Add what is asked."""
    async with await node.subscribe(SUMS) as requests:
        async for request in requests:
            try:
                total = sum(int(number) for number in request.data.split(b"+"))
                await node.reply(request, f"{total}")
            except ValueError:
                await node.reply(request, "not numbers", headers={"error": "bad-request"})


async def main() -> None:
    """Ask each sum once for its first answer, then the last one for all answers."""
    parser = argparse.ArgumentParser(description="Requests and replies.")
    parser.add_argument("sums", nargs="+", metavar="SUM")
    options = parser.parse_args()
    async with Node(None) as asker, Node(None) as one, Node(None) as two:
        answering = [asyncio.create_task(answer(node)) for node in (one, two)]
        for node in (one, two):
            await asker.connect(node.tickets[0])
        await asker.wait_until_ready(SUMS, peers=2, timeout=10)
        for text in options.sums:
            reply = await asker.request(SUMS, text, timeout=10)
            mark = "error" if "error" in reply.headers else "answer"
            print(f"{text}: {mark} {reply.data.decode()}")
        authors = set()
        async for reply in asker.request(SUMS, options.sums[-1], timeout=10):
            authors.add(str(PeerId(reply.author)))
            if len(authors) == 2:
                break
        print(f"{len(authors)} nodes answered the last one")
        for task in answering:
            task.cancel()


asyncio.run(main())
