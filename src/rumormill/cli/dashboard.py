"""`rumormill dashboard`: a page for a browser that shows running nodes or recorded traces.

What is named is told apart by what it is: a home, in which a node runs, the address of a dashboard
elsewhere, or a trace. The page is served from here until Ctrl-C; nodes are asked over their control
sockets, and compute nothing for it while nobody looks.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.session import run_async, set_by
from rumormill.core.errors import LocalError
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import socket_path
from rumormill.daemon.endpoint import DASHBOARD_ENDPOINT, Endpoint, dashboard_endpoint
from rumormill.daemon.homes import MAX_HOMES, HomeSource, HomesSource
from rumormill.dashboard.http import server_context
from rumormill.dashboard.lake import WithLake
from rumormill.dashboard.remote_source import SCHEMES, Address, RemoteSource, parse_address
from rumormill.dashboard.server import Dashboard
from rumormill.dashboard.source import VIEWS, Look, NotHere, Source, wanted_sections
from rumormill.dashboard.static_files import still_page
from rumormill.dashboard.trace_source import TraceSource, is_trace

_JOURNEYS = 16
"""Events whose journeys a still picture has."""
ADDRESS_FILE = ".url"
"""How the file is called that has the address of a dashboard elsewhere in it."""


def run_dashboard(options: argparse.Namespace) -> int:
    """Serve the page until SIGINT or SIGTERM, or write it to a file."""
    where, options.listen = options.listen, None  # the page's, and no node's
    resolved = begin(options)
    options.listen = where
    endpoint_of(options)
    if bool(options.cert) != bool(options.key):
        raise CommandError("--cert, --key: TLS needs both", USAGE)
    if options.export:
        return _export(Path(options.export), resolved.home, options)
    return run_async(_run(resolved.home, options))


def _export(path: Path, home: Path, options: argparse.Namespace) -> int:
    """Write one picture of everything into a file that needs nothing else."""
    if not path.parent.is_dir() or path.is_dir():
        raise CommandError(f"--export: {path} cannot be written", USAGE)
    page = still_page(run_async(_pictured(home, options)))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--export: cannot write {path}: {error.strerror}") from None
    print(path)
    return 0


async def _run(home: Path, options: argparse.Namespace) -> int:
    source = _with_lake(await chosen_source(_named(home, options), options.ca), options)
    stop = set_by(signal.SIGINT, signal.SIGTERM)  # before anybody is told that it runs
    async with served(source, options) as (url, _):
        announce(url, options)
        await stop.wait()
    return 0


def _named(home: Path, options: argparse.Namespace) -> list[str | Path]:
    """What was typed: addresses as they are, all else as paths."""
    return [
        each if _is_address(each) else Path(each).expanduser().absolute()
        for each in options.what or [str(home)]
    ]


async def chosen_source(what: Sequence[str | Path], roots: str | None) -> Source:
    """What is to be watched: traces; or homes, and dashboards elsewhere, by their addresses."""
    paths = [each for each in what if isinstance(each, Path)]
    traces = [await asyncio.to_thread(is_trace, path) for path in paths]
    if len(paths) == len(what) and all(traces):
        for path in paths:
            if not path.exists():
                raise CommandError(f"there is no trace {path}")
        return await asyncio.to_thread(TraceSource, paths)
    if any(traces):
        raise CommandError("name homes or traces, not both", USAGE)
    if len(what) > MAX_HOMES:
        raise CommandError(f"at most {MAX_HOMES} nodes are shown at a time", USAGE)
    names = Counter(path.name for path in paths)
    members: dict[str, Source] = {}
    for each in what:
        if isinstance(each, Path):  # where nobody is there, it is said now
            await (await ControlClient.connect(socket_path(each))).close()
            members[each.name if names[each.name] == 1 else str(each)] = HomeSource(each)
        else:
            name, member = _elsewhere(each, roots)
            await member.look(Look(sections=("source",)))
            members[each if name in members and each.endswith(ADDRESS_FILE) else name] = member
    return next(iter(members.values())) if len(members) == 1 else HomesSource(members)


def _is_address(what: str) -> bool:
    return what.startswith(SCHEMES) or what.endswith(ADDRESS_FILE)


def _elsewhere(what: str, roots: str | None) -> tuple[str, Source]:
    """A dashboard elsewhere, and how it is called: by its place, or as the file of its address."""
    path = Path(what)
    text = what
    if not what.startswith(SCHEMES):
        try:
            text = path.expanduser().read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
    address = parse_address(text)
    if not address.is_private:
        print(f"{address.place} is asked without TLS: its token can be read along", file=sys.stderr)
    name = address.place if text is what else path.name.removesuffix(ADDRESS_FILE)
    return name, RemoteSource(address, roots)


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
        if not Address(*endpoint, prefix="/", token="", tls=tls is not None).is_private:
            told = "others reach this page without TLS, so its token and all it shows can be read"
            print(f"{told} along; --cert and --key prevent it", file=sys.stderr)
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


async def _pictured(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    source = _with_lake(await chosen_source(_named(home, options), options.ca), options)
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
