"""The Flight door of a node or of a bare store, as commands open it."""

import argparse
import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rumormill.cli.grammar import FAILURE, USAGE, CommandError
from rumormill.cli.node_verbs import FLIGHT_ENDPOINT
from rumormill.cli.settings import flight_endpoint
from rumormill.core.errors import ConfigError, LocalError, RumormillError
from rumormill.core.event import Note
from rumormill.daemon.flight import Publish, Shelf, announced, open_door
from rumormill.daemon.flight_protocol import TOKEN_FILE, Door, load_or_create_token
from rumormill.daemon.sealing import sealing_ahead
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoreConfig
from rumormill.node.node import Node

_PUBLISH_SECONDS = 300.0
"""Our choice: a node that does not keep 256 rows in so long is stuck."""


@contextlib.contextmanager
def door_of(
    shelf: Shelf, home: Path, endpoint: str, cert: str = "", key: str = ""
) -> Iterator[str | None]:
    """Keep a door open; its address, or None where none was asked for."""
    where = flight_endpoint(endpoint)
    if where is None:
        yield None
        return
    tls = (_pem(cert), _pem(key)) if cert else None
    server = open_door(shelf, where, load_or_create_token(home), tls=tls)
    host = f"[{where[0]}]" if ":" in where[0] else where[0]
    address = f"{host}:{server.port}"
    try:
        door = Door(address, tls is not None, shelf.publish is not None)
        with announced(home, door), sealing_ahead(shelf.log):
            yield address
    finally:
        server.shutdown()


def publisher_of(node: Node, loop: asyncio.AbstractEventLoop) -> Publish:
    """Publish through a node whose loop runs in another thread."""

    def publish(rows: Sequence[tuple[str, bytes, Note]]) -> None:
        waiting = asyncio.run_coroutine_threadsafe(node.publish_noted(rows), loop)
        try:
            waiting.result(_PUBLISH_SECONDS)
        except TimeoutError:
            raise LocalError("the node does not publish: its log or its peers are stuck") from None

    return publish


def run_serve_store(options: argparse.Namespace) -> int:
    """Serve a store until SIGINT or SIGTERM."""
    home = Path(options.home).expanduser().absolute()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        if bool(options.flight_cert) != bool(options.flight_key):
            raise ConfigError("--flight-cert, --flight-key: TLS needs both")
        with (
            EventLog(home, StoreConfig(open_verify_bytes=1), read_only=True) as log,
            door_of(
                Shelf(log),
                home,
                options.flight or FLIGHT_ENDPOINT,
                options.flight_cert or "",
                options.flight_key or "",
            ) as address,
        ):
            _announce(home, address, as_json=options.json)
            stop.wait()
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from None
    except RumormillError as error:
        raise CommandError(str(error), FAILURE) from None
    return 0


def _announce(home: Path, address: str | None, *, as_json: bool) -> None:
    shown: dict[str, Any] = {"flight": address, "token_file": str(home / TOKEN_FILE)}
    if as_json:
        print(json.dumps(shown), flush=True)
    else:
        print(f"{address}\ntoken: {shown['token_file']}", flush=True)


def _pem(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from None
