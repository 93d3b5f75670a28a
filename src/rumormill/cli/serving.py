"""`rumormill serve-store`: the Flight door of a bare store, until it is told to stop."""

import argparse
import json
import signal
import threading
from pathlib import Path

from rumormill.cli.grammar import FAILURE, USAGE, CommandError
from rumormill.core.errors import ConfigError, RumormillError
from rumormill.daemon.endpoint import FLIGHT_ENDPOINT, flight_endpoint
from rumormill.daemon.flight_door import flight_door
from rumormill.daemon.flight_messages import TOKEN_FILE
from rumormill.daemon.flight_service import FlightService
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoreConfig


def run_serve_store(options: argparse.Namespace) -> int:
    """Serve a store until SIGINT or SIGTERM."""
    home = Path(options.home).expanduser().absolute()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        if bool(options.flight_cert) != bool(options.flight_key):
            raise ConfigError("--flight-cert, --flight-key: TLS needs both")
        tls = (options.flight_cert, options.flight_key) if options.flight_cert else None
        with EventLog(home, StoreConfig(open_verify_bytes=1), read_only=True) as log:
            endpoint = flight_endpoint(options.flight or "") or FLIGHT_ENDPOINT
            with flight_door(FlightService(log), endpoint, home, tls) as (address, _):
                _announce(home, address, as_json=options.json)
                stop.wait()
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from None
    except RumormillError as error:
        raise CommandError(str(error), FAILURE) from None
    return 0


def _announce(home: Path, address: str, *, as_json: bool) -> None:
    shown = {"flight": address, "token_file": str(home / TOKEN_FILE)}
    if as_json:
        print(json.dumps(shown), flush=True)
    else:
        print(f"{address}\ntoken: {shown['token_file']}", flush=True)
