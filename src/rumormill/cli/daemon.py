"""`rumormill node`, `supervisor` and `serve-store`: what runs until it is told to stop.

A node holds the lock of its home's log, so there is one daemon of a home; it opens its doors
(`Node.serve`), the control socket always, the others where they were asked for. SIGINT and SIGTERM
end it in order: the doors are closed, queues are sent, the log is closed. SIGHUP has it read its
settings again (`reloading`), and a supervisor is told what it does (`notify`).
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import LogObserver, begin
from rumormill.cli.notify import READY, STOPPING, keep_alive, notify
from rumormill.cli.reaching import reach
from rumormill.cli.reloading import Reloader
from rumormill.cli.session import find_tickets, run_async, set_by
from rumormill.cli.settings import Resolved
from rumormill.core.errors import ConfigError, LocalError
from rumormill.daemon.doors import Doors
from rumormill.daemon.endpoint import FLIGHT_ENDPOINT, flight_endpoint
from rumormill.daemon.flight_messages import TOKEN_FILE
from rumormill.libp2p.own_addresses import expanded
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoreConfig
from rumormill.node.identity import KEY_FILE, load_or_create_key
from rumormill.node.node import Node
from rumormill.trace.writers import LiveWriter
from rumormill.wire.keys import PeerId
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.tickets import read_ticket

_log = logging.getLogger("rumormill.node")

_STOP = (signal.SIGINT, signal.SIGTERM)
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 60.0


def run_node(options: argparse.Namespace) -> int:
    """Run a node until SIGINT or SIGTERM."""
    resolved = begin(options, "info")
    for topic in resolved.texts("topics"):
        resolved.check_topic(topic)
    return run_async(_run(resolved, options))


def run_supervisor(options: argparse.Namespace) -> int:
    """Run a node that supervises topics until SIGINT or SIGTERM, or tell its ticket."""
    options.protocol = options.protocol or "skipring"
    resolved = begin(options, "info")
    anywhere = [each for each in resolved.texts("listen") if each.endswith("/tcp/0")]
    if options.ticket:
        if anywhere:
            raise CommandError(
                f"--ticket: the system has not chosen a port for {anywhere[0]} yet;"
                " give --listen with a port",
                USAGE,
            )
        peer = load_or_create_key(resolved.home / KEY_FILE).peer_id
        told = resolved.texts("announce") or resolved.texts("listen")
        addresses = expanded([Multiaddr.parse(each) for each in told])
        print("\n".join(f"{address}/p2p/{peer}" for address in addresses))
        return 0
    if anywhere:
        _log.warning(
            "%s: every start gets another port, and with it another ticket; give --listen with"
            " a port",
            anywhere[0],
        )
    return run_async(_run(resolved, options, supervises=True))


def run_serve_store(options: argparse.Namespace) -> int:
    """Serve a bare store by Flight until SIGINT or SIGTERM."""
    if bool(options.flight_cert) != bool(options.flight_key):
        raise ConfigError("--flight-cert, --flight-key: TLS needs both")
    return run_async(_serve_store(options))


async def _serve_store(options: argparse.Namespace) -> int:
    from rumormill.daemon.flight_door import flight_door
    from rumormill.daemon.flight_service import FlightService

    _allow_most_files()
    stop, _ = set_by(*_STOP), set_by(signal.SIGHUP)  # which ends nothing
    home = Path(options.home).expanduser().absolute()  # noqa: ASYNC240 (nothing else runs)
    tls = (options.flight_cert, options.flight_key) if options.flight_cert else None
    with EventLog(home, StoreConfig(open_verify_bytes=1), read_only=True) as log:
        endpoint = flight_endpoint(options.flight or "") or FLIGHT_ENDPOINT
        with flight_door(FlightService(log), endpoint, home, tls) as (address, _):
            token = str(home / TOKEN_FILE)
            shown = json.dumps({"flight": address, "token_file": token})
            print(shown if options.json else f"{address}\ntoken: {token}", flush=True)
            await stop.wait()
    return 0


async def _run(resolved: Resolved, options: argparse.Namespace, *, supervises: bool = False) -> int:
    _allow_most_files()
    stop, told = set_by(*_STOP), set_by(signal.SIGHUP)
    if options.until_eof:
        _stop_with_stdin(stop)
    trace = os.path.expanduser(resolved.text("trace"))  # noqa: ASYNC240 (reads no disk)
    writers = [LiveWriter(Path(trace))] if trace else []
    home = None if resolved.text("durability") == "memory" else resolved.home
    node = resolved.node(
        home, [LogObserver(), *writers], supervises=supervises, resume=home is not None
    )
    tls = (resolved.text("flight_cert"), resolved.text("flight_key"))
    tasks: dict[asyncio.Task[None], None] = {}

    def join(ticket: str) -> None:
        tasks[asyncio.ensure_future(_keep_joining(node, ticket))] = None

    async with node:
        for topic in resolved.texts("topics"):
            (await node.subscribe(topic)).close()
        reloader = Reloader(options, resolved, node, join)
        async with node.serve(
            control=True,
            metrics=resolved.text("metrics"),
            flight=resolved.text("flight"),
            tls=tls if all(tls) else None,
            home=resolved.home,
            on_reload=reloader,
        ) as doors:
            _announce(node, resolved, doors, as_json=options.json)
            for each in [*resolved.texts("join"), *find_tickets(resolved.home)]:
                join(each)
            tasks[asyncio.ensure_future(reloader.on_signals(told))] = None
            tasks[asyncio.ensure_future(keep_alive())] = None
            notify(READY, f"STATUS=peer {PeerId(node.id)}")
            await stop.wait()
            _log.info("stopping")
            notify(STOPPING)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    _log.info("stopped")
    return 0


def _allow_most_files() -> None:
    """Have as many files open as may be: every peer, reader and client needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS says "unlimited" and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _stop_with_stdin(stop: asyncio.Event) -> None:
    """Stop when the other end of stdin is closed; what is written there is read and ignored."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def look() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stop.set()

    try:
        loop.add_reader(stdin, look)
    except OSError:
        raise CommandError("--until-eof: stdin is no pipe", USAGE) from None


def _announce(node: Node, resolved: Resolved, doors: Doors, *, as_json: bool) -> None:
    port = None if doors.metrics is None else int(doors.metrics.rpartition(":")[2])
    fields = {"home": str(resolved.home), "protocol": resolved.text("protocol")}
    if as_json:
        shown = {"tickets": node.tickets, **fields, "metrics_port": port, "flight": doors.flight}
        print(json.dumps(shown), flush=True)
    else:
        print("\n".join(node.tickets), flush=True)
    fields["network"] = str(resolved.network or "open")
    if port is not None:
        fields["metrics_port"] = str(port)
    if doors.flight is not None:
        fields |= {"flight": doors.flight, "token": str(resolved.home / TOKEN_FILE)}
    _log.info("running", extra={"fields": fields})
    told = [address for ticket in node.tickets for address in read_ticket(ticket)]
    _log.info("reachable %s", reach(told, node.links))


async def _keep_joining(node: Node, ticket: str) -> None:
    """Connect once; what is lost later, the node dials again by itself."""
    delay = _FIRST_RETRY
    while True:
        try:
            await node.connect(ticket)
        except LocalError as error:
            _log.warning("cannot join, trying again in %g s: %s", delay, error)
        else:
            return
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LONGEST_RETRY)
