"""`rumormill sub`: events of a topic to stdout, as fast as its reader takes them."""

import argparse
import asyncio
import contextlib
import sys
import time

from rumormill.cli.grammar import DATA_LOSS, TIMEOUT, USAGE, CommandError
from rumormill.cli.logs import set_up_logs
from rumormill.cli.numbers import moment, seconds, whole
from rumormill.cli.printing import choose_printer, write_events
from rumormill.cli.session import Session, announced, open_session, run_async
from rumormill.cli.settings import Resolved, resolve
from rumormill.daemon.control_messages import Begun


def run_sub(options: argparse.Namespace) -> int:
    """Print events until told to stop."""
    resolved = resolve(options)
    set_up_logs(resolved)
    return run_async(_subscribe(options, resolved))


async def _subscribe(options: argparse.Namespace, resolved: Resolved) -> int:
    resolved.check_topic(options.topic)
    offset = whole("--offset", options.offset, least=-(2**53))
    if sum((options.all, offset is not None, options.since is not None)) > 1:
        raise CommandError("choose one of --all, --offset and --since", USAGE)
    offset = 0 if options.all else offset
    since = moment("--since", options.since, time.time())
    printer = choose_printer(options)
    count = whole("--count", options.count)
    wait = seconds("--wait", options.wait)
    printed = lost = 0
    async with open_session(resolved) as session, contextlib.AsyncExitStack() as stack:
        if session.ephemeral:
            if (offset, since) != (None, None):
                raise CommandError(
                    f"--all, --offset and --since need the log of a node, and none runs in"
                    f" {resolved.home}; start `rumormill node`, or use `rumormill history`",
                    USAGE,
                )
            tickets = (await session.service.welcome()).tickets
            stack.enter_context(announced(resolved.home, tickets))
        batches = session.service.subscribe(options.topic, offset=offset, since=since)
        try:
            async with asyncio.timeout(wait), contextlib.aclosing(batches):  # type: ignore[type-var]
                async for batch in batches:
                    if isinstance(batch, Begun):
                        if not options.quiet:
                            await _introduce(options.topic, session)
                        continue
                    lost += batch.lost
                    events = batch.events[: None if count is None else count - printed]
                    await asyncio.to_thread(write_events, events, printer)
                    printed += len(events)
                    if printed == count:
                        break
        except TimeoutError:
            if count is not None and printed < count:
                text = f"{printed} of {count} events came within {wait:g} seconds"
                raise CommandError(text, TIMEOUT) from None
    if lost:
        raise CommandError(f"{lost} events were deleted before they were read", DATA_LOSS)
    return 0


async def _introduce(topic: str, session: Session) -> None:
    """Say on stderr that the subscription holds, and how others reach it."""
    print(f"listening to {topic}", file=sys.stderr)
    if session.ephemeral:
        for ticket in (await session.service.welcome()).tickets:
            print(f"join from elsewhere: --join {ticket}", file=sys.stderr)
