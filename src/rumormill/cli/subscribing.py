"""`rumormill sub`: events of a topic to stdout, as fast as its reader takes them."""

import argparse
import asyncio
import contextlib
import sys
import time

from rumormill.cli.grammar import DATA_LOSS, TIMEOUT, USAGE, CommandError
from rumormill.cli.logs import set_up_logs
from rumormill.cli.meeting import announced
from rumormill.cli.numbers import moment, seconds, whole
from rumormill.cli.printing import Printer, choose_printer, write_events
from rumormill.cli.session import Session, open_session, run_async
from rumormill.cli.settings import Resolved, resolve
from rumormill.daemon.control_messages import Begun


class _Tally:
    """How far a subscription has come."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        self.printed = 0
        self.lost = 0


def run_sub(options: argparse.Namespace) -> int:
    """Print events until told to stop."""
    resolved = resolve(options)
    set_up_logs(resolved)
    resolved.check_topic(options.topic)
    offset = whole("--offset", options.offset, least=-(2**53))
    if sum((options.all, offset is not None, options.since is not None)) > 1:
        raise CommandError("choose one of --all, --offset and --since", USAGE)
    since = moment("--since", options.since, time.time())
    printer = choose_printer(options)
    tally = _Tally(whole("--count", options.count))
    wait = seconds("--wait", options.wait)
    start = 0 if options.all else offset
    return run_async(_subscribe(options, resolved, (start, since), printer, tally, wait))


async def _subscribe(
    options: argparse.Namespace,
    resolved: Resolved,
    begin: tuple[int | None, float | None],
    printer: Printer,
    tally: _Tally,
    wait: float | None,
) -> int:
    async with open_session(resolved) as session, contextlib.AsyncExitStack() as stack:
        if session.ephemeral:
            if begin != (None, None):
                raise CommandError(
                    f"--all, --offset and --since need the log of a node, and none runs in"
                    f" {resolved.home}; start `rumormill node`, or use `rumormill history`",
                    USAGE,
                )
            tickets = (await session.service.welcome()).tickets
            stack.enter_context(announced(resolved.home, tickets))
        try:
            async with asyncio.timeout(wait):
                await _print_all(options, session, begin, printer, tally)
        except TimeoutError:
            if tally.count is not None and tally.printed < tally.count:
                raise CommandError(
                    f"{tally.printed} of {tally.count} events came within {wait:g} seconds",
                    TIMEOUT,
                ) from None
    if tally.lost:
        raise CommandError(f"{tally.lost} events were deleted before they were read", DATA_LOSS)
    return 0


async def _print_all(
    options: argparse.Namespace,
    session: Session,
    begin: tuple[int | None, float | None],
    printer: Printer,
    tally: _Tally,
) -> None:
    batches = session.service.subscribe(options.topic, offset=begin[0], since=begin[1])
    async with contextlib.aclosing(batches):  # type: ignore[type-var]
        async for batch in batches:
            if isinstance(batch, Begun):
                if not options.quiet:
                    await _introduce(options.topic, session)
                continue
            tally.lost += batch.lost
            events = batch.events
            if tally.count is not None:
                events = events[: tally.count - tally.printed]
            await asyncio.to_thread(write_events, events, printer)
            tally.printed += len(events)
            if tally.printed == tally.count:
                return


async def _introduce(topic: str, session: Session) -> None:
    """Say on stderr that the subscription holds, and how others reach it."""
    print(f"listening to {topic}", file=sys.stderr)
    if session.ephemeral:
        for ticket in (await session.service.welcome()).tickets:
            print(f"join from elsewhere: --join {ticket}", file=sys.stderr)
