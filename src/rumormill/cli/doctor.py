"""`rumormill doctor`: looks at everything that commonly goes wrong, and says what to do.

It changes nothing. Every check gives ok, a warning or a failure; a failure is exit code 1.
"""

import argparse
import errno
import json
import socket
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rumormill.cli.doctor_machine import (
    FAILED,
    OK,
    WARNING,
    Check,
    check_space,
    examine_machine,
    existing,
    writable,
)
from rumormill.cli.grammar import FAILURE
from rumormill.cli.settings import Resolved, resolve
from rumormill.core.errors import LocalError
from rumormill.daemon.control_messages import MAX_SOCKET_PATH, socket_path
from rumormill.daemon.endpoint import Endpoint, flight_endpoint, metrics_endpoint
from rumormill.log.errors import NotAStoreError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.node.identity import KEY_FILE, load_or_create_key
from rumormill.version import __version__
from rumormill.wire.multiaddr import Multiaddr

_PORT_ADVICE: Final = {
    errno.EACCES: "choose a port above 1023 with --{}",
    errno.EADDRNOTAVAIL: "this machine has no such address: choose another with --{}",
}


def run_doctor(options: argparse.Namespace) -> int:
    """Check everything; exit code 1 when something is broken."""
    resolved = resolve(options)
    checks = list(examine(resolved))
    healthy = all(check.state != FAILED for check in checks)
    if options.json:
        print(json.dumps({"healthy": healthy, "checks": msgspec.to_builtins(checks)}))
    else:
        for check in checks:
            print(f"{check.state:<8} {check.name}: {check.text}")
            if check.advice:
                print(f"         {check.advice}")
    return 0 if healthy else FAILURE


def examine(resolved: Resolved) -> Iterator[Check]:
    """Look at everything."""
    yield Check("rumormill", OK, __version__)
    yield from examine_machine(resolved.home)
    yield Check("sqlite", OK, sqlite3.sqlite_version)
    yield _check_home(resolved.home)
    yield _check_key(resolved.home)
    yield check_space("disk", resolved.home, "--home")
    running = _is_running(resolved.home)
    yield _check_daemon(resolved.home, running)
    yield _check_store(resolved.home)
    if running:
        return  # the addresses are taken by the node itself
    for address in resolved.texts("listen"):
        endpoint = Multiaddr.parse(address).tcp_endpoint
        assert endpoint is not None
        yield _check_port("listen", Endpoint(*endpoint))
    for name, endpoint_of in (("metrics", metrics_endpoint), ("flight", flight_endpoint)):
        wanted = endpoint_of(resolved.text(name))
        if wanted is not None:
            yield _check_port(name, wanted)


def _check_home(home: Path) -> Check:
    there = existing(home)
    elsewhere = "choose another home with --home or RUMORMILL_HOME"
    if not there.is_dir():
        return Check("home", FAILED, f"{there} is not a directory", elsewhere)
    if not writable(there):
        advice = f"chmod u+rwx {there}, or choose another home with --home"
        return Check("home", FAILED, f"{there} cannot be written", advice)
    if len(bytes(socket_path(home))) > MAX_SOCKET_PATH:
        text = f"{home} is too long a path for the control socket"
        return Check("home", FAILED, text, elsewhere)
    if there != home:
        return Check("home", OK, f"{home} will be made")
    if home.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Check("home", WARNING, f"others may write in {home}", f"chmod 700 {home}")
    return Check("home", OK, str(home))


def _check_key(home: Path) -> Check:
    path = home / KEY_FILE
    try:
        if not path.exists():
            return Check("key", OK, "will be made on first start")
        key = load_or_create_key(path)
    except (LocalError, OSError) as error:
        return Check("key", FAILED, str(error), f"chmod 600 {path}, or move it away")
    return Check("key", OK, f"private, peer {key.peer_id}")


def _is_running(home: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(socket_path(home)))
        except OSError:
            return False
    return True


def _check_daemon(home: Path, running: bool) -> Check:
    path = socket_path(home)
    if running:
        return Check("node", OK, f"runs in {home}")
    if path.exists():
        advice = f"start it again with `rumormill node --home {home}`, or rm {path}"
        return Check("node", FAILED, f"died and left its socket {path}", advice)
    return Check("node", OK, f"none runs in {home}")


def _check_store(home: Path) -> Check:
    try:
        with EventLog(home, read_only=True) as log:
            report = log.verify()
    except NotAStoreError:
        return Check("log", OK, "will be made on first start")
    except (StoreError, OSError) as error:
        return Check("log", FAILED, str(error), "see docs/store.md: restore a good copy or repair")
    if not report.ok:
        advice = "see docs/store.md: restore a good copy or repair it with rumormill.log.repair"
        more = f", and {len(report.findings) - 1} more" if len(report.findings) > 1 else ""
        return Check("log", FAILED, report.findings[0].sentence() + more, advice)
    return Check("log", OK, f"{report.events} events, {report.size} bytes, all verified")


def _check_port(name: str, endpoint: Endpoint) -> Check:
    shown = f"{endpoint.host} port {endpoint.port or 'any'}"
    try:
        endpoint.try_to_listen()
    except OSError as error:
        usual = "stop what uses it, or choose another address with --{}"
        advice = _PORT_ADVICE.get(error.errno or 0, usual).format(name)
        return Check(name, FAILED, f"{shown}: {error.strerror or error}", advice)
    return Check(name, OK, f"{shown} is free")
