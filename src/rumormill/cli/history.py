"""`rumormill history`, `get`, `peers`: what a home has or gets, with or without a running node."""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from rumormill.cli.grammar import TIMEOUT, USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.numbers import moment, seconds, whole
from rumormill.cli.printing import Printer, choose_printer, write_events
from rumormill.cli.session import no_node, open_session, run_async, running_node
from rumormill.cli.settings import Resolved
from rumormill.core.event import Event
from rumormill.core.where import Filter
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import BATCH_EVENTS, Events, Synced
from rumormill.daemon.control_service import read_history
from rumormill.log.event_log import EventLog
from rumormill.node.topic_access import TopicAccess
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.wire.keys import PeerId

_Found = TypeVar("_Found")
Read = Callable[[int, float | None, int], Awaitable[Events]]

_COMPLETE_SECONDS = 60.0
"""How long nothing may come before it is called over, unless it is said."""

_GET_SECONDS = 30.0
"""How long a single event is looked for, unless it is said."""

_NAMED = 20
"""Events that are named one by one when they are missing."""

_LOOK_SECONDS = 1.0
"""How often it is looked how far it is."""


def run_history(options: argparse.Namespace) -> int:
    """Print stored events and stop."""
    resolved = begin(options)
    verifies = options.subject is not None
    if verifies and options.topic != "verify":
        raise CommandError(f"{options.topic!r} is no part of history; did you mean verify?", USAGE)
    topic = options.subject if verifies else options.topic
    resolved.check_topic(topic)
    offset = whole("--offset", options.offset, least=-(2**53))
    since = moment("--since", options.since, time.time())
    count = whole("--count", options.count)
    span = _Span(offset or 0, since, count, options.order == "links")
    if options.where is not None and (verifies or options.graph):
        raise CommandError("--where goes neither with --graph nor with verify", USAGE)
    if options.complete:
        wish = {
            "start": tuple(options.from_event or ()),
            "since": since or 0.0,
            "most": whole("--most", options.most) or 0,
        }
        run_async(_complete(topic, resolved, wish))
    elif options.from_event or options.most:
        raise CommandError("--from and --most belong to --complete", USAGE)
    if verifies:
        return run_async(_verify(topic, resolved, span, options))
    if options.graph:
        if options.json or options.raw or options.format is not None:
            raise CommandError("choose one of --graph, --format, --json and --raw", USAGE)
        return run_async(_graph(topic, resolved, span))
    where = None if options.where is None else Filter(options.where)
    return run_async(_history(topic, resolved, span, where, choose_printer(options)))


async def _complete(topic: str, resolved: Resolved, wish: dict[str, Any]) -> None:
    """Have the running node get what it lacks, and say on stderr how that went."""
    found = await _watched(
        topic,
        resolved,
        _COMPLETE_SECONDS,
        lambda client: client.fetch_history(topic, _COMPLETE_SECONDS, **wish),
    )
    print(found, file=sys.stderr)
    for event in found.missing[:_NAMED]:
        print(f"missing\t{cids.text(event)}", file=sys.stderr)
    if len(found.missing) > _NAMED:
        print(f"missing\tand {len(found.missing) - _NAMED} more", file=sys.stderr)


class _Span(NamedTuple):
    """The part of a topic that was asked for."""

    offset: int = 0
    since: float | None = None
    most: int | None = None
    linked: bool = False


async def _history(
    topic: str, resolved: Resolved, span: _Span, where: Filter | None, printer: Printer
) -> int:
    """Print what can be read: by the running node's keys, or by those that this command has."""
    access = TopicAccess()
    key_file = resolved.topic_keys.get(topic)
    access.set_keys(topic, key_file)
    seen = unreadable = 0
    left, everything = span.most, (span.offset, span.since) == (0, None)
    if where is not None:  # how many are to be read for that is not known
        span = span._replace(most=None)

    async def opened(*span: Any) -> Events:
        nonlocal seen, unreadable
        found = await read(*span)
        unreadable += found.unreadable
        seen += len(found.events) + found.unreadable
        return found

    async with _reader(resolved, topic, raw=key_file is not None) as read:
        async for events in _batches(opened, span):
            clear = [*filter(None, map(access.opened, events))]
            unreadable += len(events) - len(clear)
            if where is not None:
                clear = where.matching(clear)[:left]
                left = None if left is None else left - len(clear)
            await asyncio.to_thread(write_events, clear, printer)
            if left == 0:
                break
    if everything and not seen:
        what = f"the log of {resolved.home} has nothing of {topic}"
        print(f"{what}; `rumormill topics` lists what it has", file=sys.stderr)
    if unreadable:
        raise CommandError(
            f"{unreadable} events of {topic} cannot be read with the keys that are here; give one"
            f" with --topic-key {topic}=FILE"
        )
    return 0


async def _graph(topic: str, resolved: Resolved, span: _Span) -> int:
    from rumormill.cli.graph import draw_history

    async with _reader(resolved, topic, raw=True) as read:
        return await draw_history(_batches(read, span), whole=span == _Span())


async def _verify(topic: str, resolved: Resolved, span: _Span, options: argparse.Namespace) -> int:
    from rumormill.cli.graph import parse_name, verify_history, verify_ring_history
    from rumormill.cli.topics import find_descriptor

    if span != _Span() or options.graph or options.raw or options.format is not None:
        raise CommandError("history verify takes a topic, its place and --json alone", USAGE)
    cid = parse_name(topic)
    descriptor = None if cid is None else await find_descriptor(resolved, cid)
    async with _reader(resolved, topic, raw=True) as read:
        if cid is None:
            return await verify_ring_history(_batches(read, span), topic, options)
        return await verify_history(_batches(read, span), cid, descriptor, options)


async def _batches(read: Read, span: _Span) -> AsyncIterator[list[Event]]:
    offset, since, count, linked = span
    if linked:
        from rumormill.protocols.pulsarcast.history.graph import in_order

        everything = [each async for some in _batches(read, _Span(offset, since)) for each in some]
        yield in_order(everything)[:count]
        return
    while count is None or count > 0:
        limit = BATCH_EVENTS if count is None else min(count, BATCH_EVENTS)
        found = await read(offset, since, limit)
        events = found.events
        if found.gap is not None:
            start, end = found.gap
            said = f"offsets {start} to {end - 1} were lost, as a repair has recorded"
            print(said, file=sys.stderr)
        if not events:
            break
        yield events
        offset, since = events[-1].offset + 1, None
        count = None if count is None else count - len(events)


@contextlib.asynccontextmanager
async def _reader(resolved: Resolved, topic: str, *, raw: bool) -> AsyncIterator[Read]:
    """Read through the daemon where there is one, otherwise from the files beside it.

    With `raw` the daemon decrypts nothing; from files, nobody does.
    """
    async with running_node(resolved) as client:
        if client is not None:
            for line in (await client.topics()).topics:
                if line.name == topic and line.completeness is not None:
                    print(f"{topic}: {line.completeness}", file=sys.stderr)
            yield lambda offset, since, limit: client.history(
                topic, offset=offset, since=since, limit=limit, raw=raw
            )
            return
    with EventLog(resolved.home, read_only=True) as log:
        yield lambda *span: asyncio.to_thread(read_history, log, topic, *span)


def run_get(options: argparse.Namespace) -> int:
    """Print one event, wherever it is."""
    return run_async(_get(begin(options), options, choose_printer(options)))


async def _get(resolved: Resolved, options: argparse.Namespace, printer: Printer) -> int:
    patience = seconds("--timeout", options.timeout) or _GET_SECONDS
    async with open_session(resolved) as session:
        if session.ephemeral and not session.joined:
            raise no_node(resolved, "; start one, or give --join TICKET", "nobody to ask: ")
        event = await session.service.fetch(options.event, patience)
    await asyncio.to_thread(write_events, [event], printer)
    return 0


def run_peers(options: argparse.Namespace) -> int:
    """List peers."""
    return run_async(_peers(begin(options), as_json=options.json))


async def _peers(resolved: Resolved, *, as_json: bool) -> int:
    async with open_session(resolved) as session:
        if session.ephemeral and not session.joined:
            raise no_node(resolved, "; start `rumormill node`, or give --join TICKET")
        for peer in await session.service.peers():
            if as_json:
                shown = msgspec.structs.asdict(peer) | {"id": str(PeerId(peer.id))}
                print(json.dumps(shown))
            else:
                side = "dialled" if peer.outbound else "accepted"
                print(f"{PeerId(peer.id)}\t{peer.address}\t{side}\t{peer.protocol}")
    return 0


def run_ticket(options: argparse.Namespace) -> int:
    """Print the ticket of the running node, or of its network."""
    return run_async(_ticket(begin(options), options))


async def _ticket(resolved: Resolved, options: argparse.Namespace) -> int:
    async with running_node(resolved) as client:
        if client is None:
            raise no_node(resolved, "; start `rumormill node`")
        welcome = await client.welcome()
    ticket = welcome.network_ticket if options.network else ",".join(welcome.tickets)
    print(json.dumps({"ticket": ticket}) if options.json else ticket)
    return 0


def run_sync(options: argparse.Namespace) -> int:
    """Compare histories with other nodes."""
    return run_async(_sync(begin(options), options))


async def _sync(resolved: Resolved, options: argparse.Namespace) -> int:
    topic, wait = options.topic, seconds("--wait", options.wait) or _COMPLETE_SECONDS
    found = await _watched(topic, resolved, wait, lambda client: client.sync(topic, None))
    print(json.dumps(msgspec.to_builtins(found)) if options.json else _told(found))
    return 0


async def _watched(
    topic: str | None,
    resolved: Resolved,
    wait: float,
    ask: Callable[[ControlClient], Awaitable[_Found]],
) -> _Found:
    """What the running node answers, unless nothing comes for so long before."""
    async with running_node(resolved) as client, running_node(resolved) as watcher:
        if client is None or watcher is None:
            raise no_node(resolved, "; start `rumormill node`")
        asking = asyncio.ensure_future(ask(client))
        watching = asyncio.ensure_future(_watch(watcher, topic, wait))
        try:
            await asyncio.wait([asking, watching], return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            watching.result()
            why = f"not every node has answered, and nothing has come for {wait:g} seconds"
            raise CommandError(why, TIMEOUT)
        finally:
            asking.cancel()
            watching.cancel()
            await asyncio.wait([asking, watching])


async def _watch(watcher: ControlClient, topic: str | None, wait: float) -> None:
    """Return when the log has got nothing for so long; say on a terminal how much it has got."""
    first: int | None = None
    latest, quiet_from, shown = 0, time.monotonic(), ""
    try:
        while time.monotonic() < quiet_from + wait:
            listed = (await watcher.topics()).topics
            stored = sum(line.next_offset for line in listed if topic in (None, line.name))
            first = stored if first is None else first
            if stored > max(first, latest):
                latest, quiet_from = stored, time.monotonic()
                shown = f"\r{stored - first:,} events more in the log"
                if sys.stderr.isatty():
                    print(shown, end="", file=sys.stderr, flush=True)
            await asyncio.sleep(min(_LOOK_SECONDS, wait))
    finally:
        if shown and sys.stderr.isatty():
            print(file=sys.stderr)


def _told(found: Synced) -> str:
    if not found.asked:
        return "nobody to compare with: no peer is connected, or no such topic is followed"
    events = "1 event" if found.events == 1 else f"{found.events} events"
    return f"fetched {events}; {found.answered} of {found.asked} nodes have answered"
