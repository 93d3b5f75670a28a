"""A fleet of sensors without a server: each is a node, and whoever wants collects into Parquet.

    python examples/sensor_fleet.py --sensors 5 --readings 20 --to readings.parquet

The collector's home keeps every reading; the file is made from what has arrived. Needs the extra
`rumormill[arrow]`.
"""

import argparse
import asyncio
import json
import random

import pyarrow
import pyarrow.parquet

from rumormill import Node, Subscription

TOPIC = "examples/fleet"


async def sense(name: str, readings: int, ticket: str) -> None:
    """Be one sensor: join, say what is measured, leave."""
    async with Node(None) as node:
        await node.connect(ticket)
        await node.wait_until_ready(TOPIC, timeout=30)
        for number in range(readings):
            reading = {"sensor": name, "number": number, "celsius": random.gauss(20, 2)}
            await node.publish(TOPIC, json.dumps(reading).encode())


async def collect(events: Subscription, expected: int) -> list[dict[str, object]]:
    """Take readings until all are there, each with its author and its place in our log."""
    rows: list[dict[str, object]] = []
    while len(rows) < expected:
        for event in await events.batch():
            place = {"author": event.author, "offset": event.offset, "received": event.received}
            rows.append({**json.loads(event.data), **place})
    return rows


async def main() -> None:
    """Start a collector and its fleet, and write one file."""
    parser = argparse.ArgumentParser(description="A fleet of sensors, collected into Parquet.")
    parser.add_argument("--sensors", type=int, default=5)
    parser.add_argument("--readings", type=int, default=20)
    parser.add_argument("--home", default="fleet-home", help="the collector's home")
    parser.add_argument("--to", default="readings.parquet")
    options = parser.parse_args()
    async with Node(options.home) as collector:
        events = await collector.subscribe(TOPIC)
        ticket = collector.tickets[0]
        fleet = [sense(f"sensor-{n}", options.readings, ticket) for n in range(options.sensors)]
        rows, *_ = await asyncio.gather(collect(events, options.sensors * options.readings), *fleet)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), options.to)
    print(f"{len(rows)} readings of {options.sensors} sensors in {options.to}")


asyncio.run(main())
