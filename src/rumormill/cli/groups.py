"""`rumormill groups`, and `sub --name`: named subscriptions, listed, forgotten, consumed.

The rule of a consumer: an event is acknowledged when it has been written to stdout, and not before.
"""

import argparse
import json
from collections.abc import AsyncIterator

from msgspec.structs import asdict

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.session import log_to_change, run_async, running_node
from rumormill.cli.settings import Resolved
from rumormill.core.api import GroupView
from rumormill.core.errors import LocalError
from rumormill.core.event import Position
from rumormill.daemon.control_errors import error_of
from rumormill.daemon.control_messages import Begun, Events, Subscribe
from rumormill.daemon.control_service import Service
from rumormill.log.event_log import EventLog
from rumormill.log.positions import read_positions

_AT_ONCE = 16
"""Events that are taken, printed and acknowledged together: few, so that others have some too."""


def run_groups(options: argparse.Namespace) -> int:
    """List named subscriptions, or forget one."""
    resolved = begin(options)
    if options.forget is not None:
        if options.topic is None:
            raise CommandError("--forget: name the TOPIC too", USAGE)
        return run_async(_forget(resolved, options.topic, options.forget))
    return run_async(_list(resolved, options.topic, as_json=options.json))


async def _forget(resolved: Resolved, topic: str, name: str) -> int:
    async with running_node(resolved) as client:
        if client is not None:
            await client.forget_group(topic, name)
            return 0
    with log_to_change(resolved) as log:
        if (topic, name) not in [(each.topic, each.name) for each in read_positions(log)]:
            raise LocalError(f"there is no subscription {name!r} to {topic!r}")
        log.append([], notes=[Position(topic, name, None)]).result()
    return 0


async def _list(resolved: Resolved, topic: str | None, *, as_json: bool) -> int:
    async with running_node(resolved) as client:
        found = _stored(resolved) if client is None else await client.groups()
    shown = [group for group in found if topic in (None, group.topic)]
    if as_json:
        for group in shown:
            print(json.dumps(asdict(group)))
    elif not shown:
        print("no named subscriptions")
    else:
        heads = ("TOPIC", "NAME", "NEXT", "PENDING", "LAG", "CONSUMERS", "DROPPED", "LATE")
        rows = [heads, *[tuple(map(str, asdict(group).values())) for group in shown]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            print("  ".join(cells).rstrip())
    return 0


def _stored(resolved: Resolved) -> list[GroupView]:
    """The named subscriptions of a home in which no node runs."""
    with EventLog(resolved.home, read_only=True) as log:
        extents = {extent.name: extent for extent in log.topics()}
        views = []
        for each in read_positions(log):
            start, extent = each.next_offset or 0, extents.get(each.topic)
            lag = 0 if extent is None else extent.next_offset - max(start, extent.first_offset)
            views.append(GroupView(each.topic, each.name, start, len(each.pending), lag))
    return views


async def consumed(
    service: Service, request: Subscribe, count: int | None
) -> AsyncIterator[Begun | Events]:
    """What `Service.subscribe` gives, of a named subscription, and at most so many events.

    Asking for the next batch acknowledges the last; so it ends by itself, behind the last one.
    """
    consumer = await service.consume(request)
    try:
        yield Begun(0)
        lost = done = 0
        while done != count:
            wanted = _AT_ONCE if count is None else min(_AT_ONCE, count - done)
            given = await consumer.take(wanted)
            if not given.events:
                return
            yield Events(given.events, given.lost - lost)
            settled = await consumer.settle([event.offset for event in given.events])
            if settled.error is not None:
                raise error_of(settled.error)
            done, lost = done + len(given.events), given.lost
    finally:
        await consumer.close()
