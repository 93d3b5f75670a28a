"""CloudEvents in and out: what other systems say in JSON becomes events, and the reverse.

    python examples/cloud_events.py < events.ndjson

Each line of the standard input is a CloudEvent in JSON's format. It is published, signed, and who
subscribes gets it as a CloudEvent again, with the same id, source and type.
"""

import asyncio
import json
import sys

from rumormill import LocalError, Node, from_cloudevent, to_cloudevent

TOPIC = "examples/cloud"


async def main() -> None:
    """Publish with one node, read with another."""
    async with Node(None) as shop, Node(None) as audit:
        await audit.connect(shop.tickets[0])
        events = await audit.subscribe(TOPIC)
        await shop.wait_until_ready(TOPIC, timeout=10)
        count = 0
        for line in sys.stdin:
            try:
                message = from_cloudevent(json.loads(line))
            except (ValueError, LocalError) as error:
                print(f"refused: {error}")
                continue
            await shop.publish_many(TOPIC, [message])
            count += 1
        for _ in range(count):
            event = await anext(events)
            print(json.dumps(to_cloudevent(event), sort_keys=True))


asyncio.run(main())
