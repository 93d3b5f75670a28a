"""`rumormill doctor`: looks at everything that commonly goes wrong, and says what to do.

It changes nothing. Every check gives ok, a warning or a failure; a failure is exit code 1.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rumormill.cli.grammar import FAILURE
from rumormill.cli.settings import Resolved, metrics_endpoint, resolve
from rumormill.core.errors import LocalError
from rumormill.node.control import socket_path
from rumormill.node.identity import KEY_FILE, load_or_create_key
from rumormill.store.errors import NotAStoreError, StoreError
from rumormill.store.log import EventLog
from rumormill.version import __version__
from rumormill.wire.multiaddr import Multiaddr

OK, WARNING, FAILED = "ok", "warning", "failure"
_LOW_BYTES: Final = 1 << 30
_NO_BYTES: Final = 64 << 20
_RELEASED: Final = 1_767_225_600
"""The start of 2026: no clock that is right shows less."""
_DEPENDENCIES: Final = ("cryptography", "msgspec", "protobuf", "pynacl", "rich")
_EXTRAS: Final = ("pyarrow", "uvloop")


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: str
    text: str
    advice: str = ""


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
    yield _check_python()
    yield _check_packages()
    yield Check("sqlite", OK, sqlite3.sqlite_version)
    yield _check_clock()
    yield _check_home(resolved.home)
    yield _check_key(resolved.home)
    yield _check_disk(resolved.home)
    running = _is_running(resolved.home)
    yield _check_daemon(resolved.home, running)
    yield _check_store(resolved.home)
    if running:
        return  # the addresses are taken by the node itself
    for address in resolved.texts("listen"):
        endpoint = Multiaddr.parse(address).tcp_endpoint
        assert endpoint is not None
        yield _check_port("listen", *endpoint)
    metrics = metrics_endpoint(resolved.text("metrics"))
    if metrics is not None:
        yield _check_port("metrics", *metrics)


def _check_python() -> Check:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("python", OK, text)


def _check_packages() -> Check:
    found, missing = [], []
    for name in (*_DEPENDENCIES, *_EXTRAS):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            if name in _DEPENDENCIES:
                missing.append(name)
    if missing:
        advice = "install rumormill again"
        return Check("packages", FAILED, f"{', '.join(missing)} missing", advice)
    return Check("packages", OK, ", ".join(found))


def _check_clock() -> Check:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _RELEASED:
        return Check("clock", FAILED, f"{shown} is in the past", "set the clock of this machine")
    return Check("clock", OK, shown)


def _check_home(home: Path) -> Check:
    existing = home
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        advice = "choose another home with --home or RUMORMILL_HOME"
        return Check("home", FAILED, f"{existing} is not a directory", advice)
    if not _writable(existing):
        advice = f"chmod u+rwx {existing}, or choose another home with --home"
        return Check("home", FAILED, f"{existing} cannot be written", advice)
    if existing != home:
        return Check("home", OK, f"{home} will be made")
    if home.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Check("home", WARNING, f"others may write in {home}", f"chmod 700 {home}")
    return Check("home", OK, str(home))


def _writable(directory: Path) -> bool:
    """Whether files can be made there: also root cannot on a file system that is read-only."""
    read_only = bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    return os.access(directory, os.R_OK | os.W_OK | os.X_OK) and not read_only


def _check_key(home: Path) -> Check:
    path = home / KEY_FILE
    try:
        if not path.exists():
            return Check("key", OK, "will be made on first start")
        key = load_or_create_key(path)
    except (LocalError, OSError) as error:
        return Check("key", FAILED, str(error), f"chmod 600 {path}, or move it away")
    return Check("key", OK, f"private, peer {key.peer_id}")


def _check_disk(home: Path) -> Check:
    existing = home
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:,.1f} GB free for {home}"
    if free < _NO_BYTES:
        return Check("disk", FAILED, text, "free some space, or choose another home")
    if free < _LOW_BYTES:
        return Check("disk", WARNING, text, "free some space before the log fills it")
    return Check("disk", OK, text)


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
        advice = "see docs/store.md: restore a good copy or repair it with rumormill.store.repair"
        more = f", and {len(report.findings) - 1} more" if len(report.findings) > 1 else ""
        return Check("log", FAILED, report.findings[0].sentence() + more, advice)
    return Check("log", OK, f"{report.events} events, {report.size} bytes, all verified")


def _check_port(name: str, host: str, port: int) -> Check:
    shown = f"{host} port {port or 'any'}"
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        advice = f"stop what uses it, or choose another address with --{name}"
        return Check(name, FAILED, f"{shown}: {error.strerror or error}", advice)
    return Check(name, OK, f"{shown} is free")
