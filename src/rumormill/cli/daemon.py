"""`rumormill node` and `rumormill supervisor`: a node that runs until it is told to stop.

It holds the lock of its home's log, so there is one daemon of a home; it serves the control socket,
and metrics where they were asked for. SIGINT and SIGTERM end it in order: commands are hung up on,
queues are sent, the log is closed.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import LogObserver, set_up_logs
from rumormill.cli.meeting import find_tickets
from rumormill.cli.session import run_async
from rumormill.cli.settings import Resolved, metrics_endpoint, resolve
from rumormill.core.errors import LocalError
from rumormill.daemon.control import ControlServer, socket_path
from rumormill.daemon.control_service import NodeService
from rumormill.daemon.flight_protocol import TOKEN_FILE
from rumormill.daemon.metrics_http import MetricsServer
from rumormill.node.identity import KEY_FILE, load_or_create_key
from rumormill.node.metrics import render_metrics
from rumormill.node.node import Node
from rumormill.trace.entries import Observer
from rumormill.trace.writers import LiveWriter
from rumormill.wire.multiaddr import Multiaddr

_log = logging.getLogger("rumormill.node")

_FIRST_RETRY = 1.0
_LONGEST_RETRY = 60.0


def run_node(options: argparse.Namespace) -> int:
    """Run a node until SIGINT or SIGTERM."""
    resolved = resolve(options)
    set_up_logs(resolved, "info")
    for topic in resolved.texts("topics"):
        resolved.check_topic(topic)
    return run_async(_run(resolved, options))


def run_supervisor(options: argparse.Namespace) -> int:
    """Run a node that supervises topics until SIGINT or SIGTERM, or tell its ticket."""
    options.protocol = options.protocol or "skipring"
    resolved = resolve(options)
    set_up_logs(resolved, "info")
    anywhere = [each for each in resolved.texts("listen") if each.endswith("/tcp/0")]
    if options.ticket:
        if anywhere:
            raise CommandError(
                f"--ticket: the system has not chosen a port for {anywhere[0]} yet;"
                " give --listen with a port",
                USAGE,
            )
        print("\n".join(_future_tickets(resolved)))
        return 0
    if anywhere:
        _log.warning(
            "%s: every start gets another port, and with it another ticket; give --listen with"
            " a port",
            anywhere[0],
        )
    return run_async(_run(resolved, options, supervises=True))


def _future_tickets(resolved: Resolved) -> list[str]:
    """What the tickets of this home will be; its key is made if there is none."""
    resolved.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    peer = load_or_create_key(resolved.home / KEY_FILE).peer_id
    return reachable([f"{address}/p2p/{peer}" for address in resolved.texts("listen")])


async def _run(resolved: Resolved, options: argparse.Namespace, *, supervises: bool = False) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.until_eof:
        _stop_with_stdin(stop)
    in_memory = resolved.text("durability") == "memory"
    node = Node(
        None if in_memory else resolved.home,
        listen=resolved.texts("listen"),
        protocol=resolved.text("protocol"),
        preset=resolved.text("preset"),
        parameters=resolved.parameters,
        supervisors=resolved.texts("supervisors"),
        supervises=supervises,
        durability=resolved.text("durability"),
        config=resolved.node_config,
        store=resolved.store_config,
        observers=_observers(resolved),
    )
    async with node:
        tickets = reachable(node.tickets)
        service = NodeService(node, resolved.text("protocol"), tickets=tickets)
        for topic in resolved.texts("topics"):
            await service.follow(topic)
        async with (
            _served(service, resolved),
            _metrics(node, resolved) as port,
            _flight(node, resolved) as flight,
        ):
            _announce(tickets, resolved, port, flight, as_json=options.json)
            wanted = [*resolved.texts("join"), *find_tickets(resolved.home)]
            joining = [asyncio.ensure_future(_keep_joining(node, each)) for each in wanted]
            await stop.wait()
            _log.info("stopping")
            for task in joining:
                task.cancel()
            await asyncio.gather(*joining, return_exceptions=True)
    _log.info("stopped")
    return 0


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


def _observers(resolved: Resolved) -> list[Observer]:
    """Who sees the trace: the log, and a file where one was asked for."""
    path = resolved.text("trace")
    return [LogObserver(), LiveWriter(Path(path).expanduser())] if path else [LogObserver()]


@contextlib.asynccontextmanager
async def _served(service: NodeService, resolved: Resolved) -> AsyncIterator[None]:
    resolved.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    server = ControlServer(service, socket_path(resolved.home))
    await server.start()
    try:
        yield
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def _metrics(node: Node, resolved: Resolved) -> AsyncIterator[int | None]:
    endpoint = metrics_endpoint(resolved.text("metrics"))
    if endpoint is None:
        yield None
        return
    server = MetricsServer(lambda: render_metrics(node.metrics()))
    await server.start(*endpoint)
    try:
        yield server.port
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def _flight(node: Node, resolved: Resolved) -> AsyncIterator[str | None]:
    if not resolved.text("flight"):
        yield None
        return
    # Imported here, because Arrow takes a while and most nodes do not need it.
    from rumormill.cli.serving import door_of, publisher_of
    from rumormill.daemon.flight import Shelf

    door = contextlib.ExitStack()
    shelf = Shelf(node.log, publisher_of(node, asyncio.get_running_loop()))
    settings = [resolved.text(key) for key in ("flight", "flight_cert", "flight_key")]
    address = door.enter_context(door_of(shelf, resolved.home, *settings))
    try:
        yield address
    finally:
        # Whoever is publishing through the door needs the loop to finish.
        await asyncio.to_thread(door.close)


def _announce(
    tickets: list[str],
    resolved: Resolved,
    metrics_port: int | None,
    flight: str | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        shown = {
            "tickets": tickets,
            "home": str(resolved.home),
            "protocol": resolved.text("protocol"),
            "metrics_port": metrics_port,
            "flight": flight,
        }
        print(json.dumps(shown), flush=True)
    else:
        print("\n".join(tickets), flush=True)
    fields = {"home": str(resolved.home), "protocol": resolved.text("protocol")}
    if metrics_port is not None:
        fields["metrics_port"] = str(metrics_port)
    if flight is not None:
        fields |= {"flight": flight, "token": str(resolved.home / TOKEN_FILE)}
    _log.info("running", extra={"fields": fields})


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


def reachable(tickets: list[str]) -> list[str]:
    """Tickets that another machine can use: a wildcard address becomes this machine's."""
    found: dict[str, None] = {}
    for ticket in tickets:
        address = Multiaddr.parse(ticket)
        endpoint = address.tcp_endpoint
        assert endpoint is not None
        host, port = endpoint
        hosts = [host]
        if ipaddress.ip_address(host).is_unspecified:
            hosts = _own_addresses(":" in host)
        for each in hosts:
            found[str(Multiaddr.tcp(each, port, address.peer_id))] = None
    return list(found)


def _own_addresses(six: bool) -> list[str]:
    """The address that this machine has towards others, if it has one, and the loopback."""
    family, other, loopback = (
        (socket.AF_INET6, "2001:db8::1", "::1")
        if six
        else (socket.AF_INET, "192.0.2.1", "127.0.0.1")
    )
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # a datagram socket sends nothing for this
        return [probe.getsockname()[0], loopback]
    return [loopback]
