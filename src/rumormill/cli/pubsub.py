"""`rumormill pub` and `sub`: from an argument or stdin to receipts, from a topic to stdout.

Batches are published one at a time: the next is read while the node makes the last one safe, so
stdin is read no faster than the node publishes. Events are printed as fast as the reader of stdout
takes them.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable

from msgspec.structs import replace

from rumormill.cli.grammar import DATA_LOSS, TIMEOUT, USAGE, CommandError
from rumormill.cli.groups import consumed
from rumormill.cli.logs import begin
from rumormill.cli.numbers import moment, pairs, seconds, whole
from rumormill.cli.printing import choose_printer, plain, receipt_json, write_events
from rumormill.cli.session import Session, announced, no_node, open_session, run_async
from rumormill.cli.settings import Resolved
from rumormill.core.api import Reach
from rumormill.core.errors import LimitError
from rumormill.core.event import VERSION, Event, Head
from rumormill.core.where import Filter
from rumormill.daemon.control_messages import BATCH_BYTES, BATCH_EVENTS, Begun, Events, Subscribe
from rumormill.wire.envelope import encode_envelope

_CHUNK = 64 * 1024
_MAX_LINE = 4 << 20
_QUEUED_CHUNKS = 4


def run_pub(options: argparse.Namespace) -> int:
    """Publish what was typed or piped in."""
    return run_async(_publish(options, begin(options)))


async def _publish(options: argparse.Namespace, resolved: Resolved) -> int:
    resolved.check_topic(options.topic)
    count = whole("--count", options.count)
    rate = seconds("--rate", options.rate)
    pause = seconds("--sleep", options.sleep)
    wait = seconds("--wait", options.wait)
    if rate is not None and pause is not None:
        raise CommandError("choose one of --rate and --sleep", USAGE)
    if pause is not None:
        rate = 1 / pause
    head = _head(options)
    if count is not None and options.data is None:
        raise CommandError("--count repeats DATA, and there is none", USAGE)
    async with open_session(resolved) as session:
        if session.ephemeral and not (session.joined or session.looks):
            what_to_do = " and no `rumormill sub` waits there; start one, or give --join TICKET"
            raise no_node(resolved, what_to_do, "nobody to publish to: ")
        if session.ephemeral or wait is not None:
            await session.service.wait(options.topic, 1, wait or 5.0)
        if options.data is None:
            source = _lines_of_stdin(whole_input=options.send_on == "eof")
        else:
            source = _repeated(options.data.encode(errors="surrogateescape"), count or 1)
        return await _send(options, session, _batches(source, rate), head)


def _head(options: argparse.Namespace) -> Head | None:
    """What was typed about the messages, checked before anything is started."""
    if options.key is None and options.header is None and options.content_type is None:
        return None
    key = None if options.key is None else options.key.encode(errors="surrogateescape")
    headers = dict(pairs("--header", options.header))
    head = Head(key, headers, options.content_type or "")
    encode_envelope(b"", key=head.key, headers=head.headers, content_type=head.content_type)
    return head


async def _send(
    options: argparse.Namespace,
    session: Session,
    batches: AsyncIterator[list[bytes]],
    head: Head | None,
) -> int:
    published = unheard = 0
    last = note = ""
    parents = options.parent or ()
    async for batch in batches:
        for receipt in await session.service.publish(options.topic, batch, head, parents):
            published += 1
            if not receipt.peers:
                unheard += 1
                note = receipt.note
            peers = "1 peer" if receipt.peers == 1 else f"{receipt.peers} peers"
            last = f"last offset {receipt.offset}, sent to {peers}"
            if receipt.requested:
                last = receipt.note
            if options.json:
                print(json.dumps(receipt_json(receipt)))
        sys.stdout.flush()
    if unheard and session.ephemeral:
        raise CommandError(
            f"{unheard} of {published} messages reached nobody ({note}), and a node for one"
            " command keeps nothing",
            DATA_LOSS,
        )
    if not options.quiet and not options.json:
        what = "1 message" if published == 1 else f"{published} messages"
        print(f"published {what} to {options.topic} ({last or 'stdin was empty'})", file=sys.stderr)
        if unheard:
            print(f"in the log only, {unheard} of {published}: {note}", file=sys.stderr)
    return 0


async def _repeated(data: bytes, count: int) -> AsyncIterator[list[bytes]]:
    for start in range(0, count, BATCH_EVENTS):
        yield [data] * min(count - start, BATCH_EVENTS)


async def _batches(
    source: AsyncIterator[list[bytes]], rate: float | None
) -> AsyncIterator[list[bytes]]:
    """Cut what comes into batches; with a rate, each message has its time."""
    start = time.monotonic()
    sent = 0
    async for messages in source:
        while messages:
            take = len(messages)
            if rate is not None:
                delay = start + sent / rate - time.monotonic()
                if delay > 0:
                    await asyncio.sleep(delay)
                take = max(1, int((time.monotonic() - start) * rate) + 1 - sent)
            batch = _cut(messages, take)
            yield batch
            sent += len(batch)


def _cut(messages: list[bytes], most: int) -> list[bytes]:
    """Take messages from the front, as many as fit a batch."""
    size = taken = 0
    for message in messages[: min(most, BATCH_EVENTS)]:
        size += len(message)
        if taken and size > BATCH_BYTES:
            break
        taken += 1
    batch = messages[:taken]
    del messages[:taken]
    return batch


async def _lines_of_stdin(*, whole_input: bool) -> AsyncIterator[list[bytes]]:
    """The lines of stdin in lists, as they come; or all of it as one message."""
    rest = b""
    async for chunk in _chunks_of_stdin():
        lines = [] if whole_input else (rest + chunk).split(b"\n")
        rest = rest + chunk if whole_input else lines.pop()
        if len(rest) > _MAX_LINE:
            raise LimitError(f"a message of stdin is longer than {_MAX_LINE} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunks_of_stdin() -> AsyncIterator[bytes]:
    """What stdin has, read by a thread that ends with the program: a terminal cannot be polled."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(_QUEUED_CHUNKS)

    def read() -> None:
        chunk = b"-"
        while chunk:
            chunk = sys.stdin.buffer.read1(_CHUNK)  # type: ignore[union-attr]
            room.acquire()
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:
                return  # the loop has ended

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while chunk := await queue.get():
        room.release()
        yield chunk


def run_sub(options: argparse.Namespace) -> int:
    """Print events until told to stop."""
    return run_async(_subscribe(options, begin(options)))


async def _subscribe(options: argparse.Namespace, resolved: Resolved) -> int:
    resolved.check_topic(options.topic, pattern=True)
    if options.where is not None:
        Filter(options.where)  # what is wrong with it is said before anything is started
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
            if options.name is not None or (offset, since) != (None, None):
                raise CommandError(
                    "--name, --all, --offset and --since need the log of a node, and none runs in"
                    f" {resolved.home}; start `rumormill node`, or use `rumormill history`",
                    USAGE,
                )
            tickets = (await session.service.welcome()).tickets
            stack.enter_context(announced(resolved.home, tickets))
        batches = _batches_of(options, session, offset, since, count)
        try:
            async with asyncio.timeout(wait), contextlib.aclosing(batches):  # type: ignore[type-var]
                async for batch in batches:
                    if isinstance(batch, Begun):
                        if not options.quiet:
                            await _introduce(options.topic, session)
                        continue
                    lost += batch.lost
                    news = [event for event in batch.events if event.via != VERSION]
                    if len(news) < len(batch.events):
                        _tell_versions(event for event in batch.events if event.via == VERSION)
                    events = news[: None if count is None else count - printed]
                    await asyncio.to_thread(write_events, events, printer)
                    printed += len(events)
                    if printed == count and options.name is None:
                        break
        except TimeoutError:
            if count is not None and printed < count:
                text = f"{printed} of {count} events came within {wait:g} seconds"
                raise CommandError(text, TIMEOUT) from None
    if lost:
        raise CommandError(f"{lost} events were deleted before they were read", DATA_LOSS)
    return 0


def _batches_of(
    options: argparse.Namespace,
    session: Session,
    offset: int | None,
    since: float | None,
    count: int | None,
) -> AsyncIterator[Begun | Events]:
    """What was asked for, from the node."""
    reach = Reach(
        recursive=options.recursive,
        tell_versions=options.tell_versions,
        follow_versions=options.follow_versions,
        subscribe_to_meta=False if options.no_meta else None,
        unsubscribe_from_meta=False if options.keep_meta else None,
    )
    wish = Subscribe(options.topic, offset, since, options.history, options.where, reach)
    if options.name is not None:
        return consumed(session.service, replace(wish, name=options.name), count)
    return session.service.subscribe(wish)


def _tell_versions(announcements: Iterable[Event]) -> None:
    """Say on stderr that there are later versions."""
    from rumormill.protocols.pulsarcast.tree.sub_topics import announced

    for event in announcements:
        version = announced(event)
        if version is not None:
            told = f"new version of {plain(version.name)}: {version.topic}"
            print(told, file=sys.stderr, flush=True)


async def _introduce(topic: str, session: Session) -> None:
    """Say on stderr that the subscription holds, and how others reach it."""
    print(f"listening to {topic}", file=sys.stderr)
    if session.ephemeral:
        for ticket in (await session.service.welcome()).tickets:
            print(f"join from elsewhere: --join {ticket}", file=sys.stderr)
