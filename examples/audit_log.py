"""An ordered audit log: one chain of signed entries, and only who is allowed writes into it.

    python examples/audit_log.py

A Pulsarcast topic says who may publish. Here its author alone does, and publishes for `billing`
when asked; a stranger is refused. Every reader gets one chain in one order, each entry linked to
the one before by its hash: `rumormill history verify` proves it, and `history --graph` draws it.
"""

import argparse
import asyncio
from pathlib import Path

from rumormill import LocalError, Node


async def main() -> None:
    """Let four nodes meet, write into the log in turns, and read it at the other end."""
    parser = argparse.ArgumentParser(description="An ordered log with allowed publishers.")
    parser.add_argument("--homes", type=Path, default=Path("audit"), help="where nodes keep theirs")
    homes = parser.parse_args().homes

    def node(name: str) -> Node:
        return Node(homes / name, protocol="pulsarcast")

    async with (
        node("auditor") as auditor,
        node("billing") as billing,
        node("stranger") as stranger,
        node("reader") as reader,
    ):
        for other in (billing, stranger, reader):
            await other.connect(auditor.tickets[0])
        log = await auditor.create_topic(
            "audit", allowed_publishers=["author"], request_to_publish=[billing.id]
        )
        events = await reader.subscribe(log.name)
        await log.wait_until_ready(timeout=30)
        await log.publish(b"the books are open")
        for invoice in (1, 2):
            await billing.publish(log.name, b"invoice %d is paid" % invoice)
        try:
            await stranger.publish(log.name, b"nothing was ever paid")
        except LocalError as error:
            print("refused:", error)
        await log.publish(b"the books are closed")
        chain: bytes | None = None
        for _ in range(4):
            event = await anext(events)
            assert event.parents == (() if chain is None else (chain,))
            chain = event.id
            print(f"{event.offset}: {event.data.decode()}")
    print(f"verify: rumormill history verify {log.name} --home {homes / 'reader'}")


asyncio.run(main())
