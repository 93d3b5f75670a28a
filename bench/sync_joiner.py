"""A late joiner: how fast a node that has nothing fetches everything, over real sockets.

One process serves a log; another, with an empty home, connects, subscribes with `history="all"`,
and stores what it fetches. Beside it stands what checking the same signatures takes, and nothing
else, in one thread of the same machine in the same run.
"""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

from sync_sessions import AUTHOR, PAYLOAD, TOPIC

from rumormill import Node
from rumormill.protocols.pubsub.codec import sign_message, signing_payload
from rumormill.protocols.pubsub.messages import Message

CHECKED = 20_000
LOOK = 1.0
"""Seconds between two looks at how far it is."""


def signature_rate() -> tuple[float, float]:
    """Signatures checked in a second, and in a second of the processor."""
    message = Message(TOPIC, PAYLOAD, AUTHOR.peer, bytes(8))
    sign_message(message, AUTHOR.sign, AUTHOR.public_key)
    payload = signing_payload(message)
    began, used = time.perf_counter(), time.process_time()
    for _ in range(CHECKED):
        assert AUTHOR.verify(AUTHOR.peer, b"", payload, message.signature)
    return CHECKED / (time.perf_counter() - began), CHECKED / (time.process_time() - used)


async def serve(home: str) -> None:
    """Keep a log open to others until our input ends."""
    async with Node(home) as node, await node.subscribe(TOPIC, history="none"):
        print(node.tickets[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def join(home: Path, ticket: str, events: int) -> float:
    """Seconds until everything is stored."""
    async with Node(home) as node:
        await node.connect(ticket)
        began = shown = time.perf_counter()
        stored = 0
        async with await node.subscribe(TOPIC, history="all"):
            while stored < events:
                await asyncio.sleep(0.1)
                extent = await asyncio.to_thread(node.log.topic, TOPIC)
                stored = extent.next_offset if extent else 0
                if time.perf_counter() - shown > LOOK:
                    shown = time.perf_counter()
                    print(f"  {stored:,} of {events:,}", end="\r", file=sys.stderr, flush=True)
        return time.perf_counter() - began


def bench_joiner(full: Path, home: Path, events: int) -> None:
    """Fetch everything, and say how long it took."""
    shutil.copytree(full, home / "server")
    command = [sys.executable, __file__, str(home / "server")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin
        assert server.stdout
        before, _ = signature_rate()
        ticket, used = server.stdout.readline().strip(), time.process_time()
        spent = asyncio.run(join(home / "joiner", ticket, events))
        used = time.process_time() - used
        after, busy = signature_rate()
        server.stdin.close()
    floor, rate = (before + after) / 2, events / spent
    print(f"a late joiner, {events:,} events of {len(PAYLOAD)} bytes, two processes")
    print(f"  {'signatures alone':34} {floor:10,.0f} a second")
    print(f"  {'fetched, checked and stored':34} {rate:10,.0f} a second   {spent:.1f} s")
    print(f"  {'ratio':34} {rate / floor:10.2f}")
    print(f"  {'processor time of the joiner':34} {1e6 * used / events:10.1f} µs an event")
    print(f"  {'of it one signature':34} {1e6 / busy:10.1f} µs")


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
