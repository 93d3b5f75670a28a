"""`rumormill dashboard`: a page for a browser that shows running nodes or recorded traces.

What is named is told apart by what it is: a home, in which a node runs, or a trace. The page is
served from here until Ctrl-C; nodes are asked over their control sockets, and compute nothing for
it while nobody looks.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.session import run_async
from rumormill.core.errors import LocalError
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import socket_path
from rumormill.daemon.endpoint import DASHBOARD_ENDPOINT, Endpoint, dashboard_endpoint
from rumormill.daemon.homes import MAX_HOMES, HomeSource, HomesSource
from rumormill.dashboard.http import server_context
from rumormill.dashboard.lake import WithLake
from rumormill.dashboard.server import Dashboard
from rumormill.dashboard.source import VIEWS, Look, NotHere, Source, wanted_sections
from rumormill.dashboard.trace_source import TraceSource, is_trace

_JOURNEYS = 16
"""Events whose journeys a still picture has."""


def run_dashboard(options: argparse.Namespace) -> int:
    """Serve the page until SIGINT or SIGTERM, or write it to a file."""
    where, options.listen = options.listen, None  # the page's, and no node's
    resolved = begin(options)
    options.listen = where
    endpoint_of(options)
    if bool(options.cert) != bool(options.key):
        raise CommandError("--cert, --key: TLS needs both", USAGE)
    paths = [Path(each).expanduser().absolute() for each in options.what or [resolved.home]]
    if options.export:
        return _export(paths, Path(options.export), options)
    return run_async(_run(paths, options))


def _export(paths: Sequence[Path], path: Path, options: argparse.Namespace) -> int:
    """Write one picture of everything into a file that needs nothing else."""
    from rumormill.dashboard.still import still_page

    if not path.parent.is_dir() or path.is_dir():
        raise CommandError(f"--export: {path} cannot be written", USAGE)
    page = still_page(run_async(_pictured(paths, options)))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--export: cannot write {path}: {error.strerror}") from None
    print(path)
    return 0


async def _run(paths: Sequence[Path], options: argparse.Namespace) -> int:
    source = _with_lake(await chosen_source(paths), options)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # before anybody is told that it runs
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with served(source, options) as (url, _):
        announce(url, options)
        await stop.wait()
    return 0


async def chosen_source(paths: Sequence[Path]) -> Source:
    """What is to be watched."""
    traces = [await asyncio.to_thread(is_trace, path) for path in paths]
    if all(traces):
        for path in paths:
            if not path.exists():
                raise CommandError(f"there is no trace {path}")
        return await asyncio.to_thread(TraceSource, paths)
    if any(traces):
        raise CommandError("name homes or traces, not both", USAGE)
    if len(paths) > MAX_HOMES:
        raise CommandError(f"at most {MAX_HOMES} homes are shown together", USAGE)
    for path in paths:
        await (
            await ControlClient.connect(socket_path(path))
        ).close()  # or say that nobody is there
    if len(paths) == 1:
        return HomeSource(paths[0])
    names = Counter(path.name for path in paths)
    return HomesSource({p.name if names[p.name] == 1 else str(p): p for p in paths})


def endpoint_of(options: argparse.Namespace) -> Endpoint:
    """Where the page is served: as typed, or the usual place."""
    return dashboard_endpoint(options.listen or "") or DASHBOARD_ENDPOINT


@contextlib.asynccontextmanager
async def served(
    source: Source, options: argparse.Namespace
) -> AsyncIterator[tuple[str, Counter[str]]]:
    """Serve a source's page; its address, and who was turned away and why."""
    refused: Counter[str] = Counter()
    tls = server_context(options.cert, options.key) if options.cert else None
    endpoint = endpoint_of(options)
    door = Dashboard(
        source,
        lambda reason: refused.update([reason]),
        allow_publish=options.allow_publish,
        hosts=options.allow_host or (),
        tls=tls,
    )
    try:
        url = await (door.start(*endpoint) if options.listen else started(door, endpoint))
        yield url, refused
    finally:
        await door.close()


async def started(door: Dashboard, endpoint: Endpoint) -> str:
    """Serve at the usual place, or at any other port if that one is taken; the address."""
    try:
        return await door.start(*endpoint)
    except LocalError:
        return await door.start(endpoint.host, 0)


def announce(url: str, options: argparse.Namespace) -> None:
    """Tell where the page is, and open it if that was asked for."""
    print(json.dumps({"dashboard": url}) if options.json else url, flush=True)
    if options.open:
        webbrowser.open(url)


def _with_lake(source: Source, options: argparse.Namespace) -> Source:
    """The source, and the lake beside it if one was named."""
    if options.lake is None:
        return source
    lake = Path(options.lake).expanduser().absolute()
    if not lake.is_dir():
        raise CommandError(f"--lake: there is no directory {lake}", USAGE)
    return WithLake(source, lake)


async def _pictured(paths: Sequence[Path], options: argparse.Namespace) -> dict[str, Any]:
    source = _with_lake(await chosen_source(paths), options)
    try:
        return await still_snapshot(source)
    finally:
        await source.close()


async def still_snapshot(source: Source) -> dict[str, Any]:
    """All sections at once, with the journeys of the last events and the largest topic's tail."""
    look = Look(sections=wanted_sections(VIEWS))
    found = await source.look(look)
    rows = found.get("topics", {}).get("rows", [])
    if rows:
        found |= await source.look(Look(sections=wanted_sections(["tail"]), topic=rows[0]["name"]))
    journeys = []
    for row in found.get("recent", {}).get("rows", [])[:_JOURNEYS]:
        with contextlib.suppress(NotHere):
            journeys.append(await source.journey(row["id"]))
    return found | {"journeys": journeys}
