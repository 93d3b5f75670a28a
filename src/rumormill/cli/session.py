"""A node to work with: the one that runs in the home, or one for this command only.

Commands see a `Service` in both cases. A node of one's own lives in memory, has a new identity, and
is of use only with somebody to talk to: `--join`, or a `sub` that waits in the same home. So that
two terminals need no ticket and no configuration, a `sub` that runs a node of its own leaves its
ticket in `HOME/meet`, in a file that it keeps locked while it lives. A command that finds the file
unlocked removes it: its owner is dead.
"""

import asyncio
import contextlib
import fcntl
import importlib
import importlib.util
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.settings import Resolved
from rumormill.core.errors import LocalError
from rumormill.daemon.control_client import ControlClient, NoDaemonError, held_without_control
from rumormill.daemon.control_messages import socket_path
from rumormill.daemon.control_service import NodeService, Service
from rumormill.log import files
from rumormill.log.event_log import EventLog
from rumormill.node.identity import load_topic_keys

_log = logging.getLogger("rumormill.cli")
_Found = TypeVar("_Found")

MEETING_PLACE: Final = "meet"
MAX_TICKETS: Final = 16
_MAX_BYTES: Final = 2048

_DECIDED_BY_THE_NODE = (
    "listen",
    "announce",
    "mdns",
    "relays",
    "be_relay",
    "map_port",
    "protocol",
    "preset",
    "supervisors",
    "network",
    "topic_keys",
    "policies",
)


class Session(msgspec.Struct):
    """A node to work with."""

    service: Service
    ephemeral: bool
    """Whether the node ends with this command, and its log with it."""
    joined: int
    """To how many nodes this command has connected it."""
    looks: bool = False
    """Whether it looks for nodes by itself."""


def run_async(work: Coroutine[Any, Any, _Found]) -> _Found:
    """Run what a verb does: on uvloop where that extra is installed, else on asyncio's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if importlib.util.find_spec("uvloop") is not None:
        factory = importlib.import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def set_by(*signals: signal.Signals) -> asyncio.Event:
    """What signals set; by the loop, which hears of a signal in whatever thread it lands (a
    library's own threads take them too, and wake nobody who waits for a lock)."""
    event = asyncio.Event()
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


def log_to_change(resolved: Resolved) -> EventLog:
    """The log of a home in which no node runs; one that is not there is not made."""
    EventLog(resolved.home, read_only=True).close()
    return EventLog(resolved.home, resolved.store_config)


def no_node(resolved: Resolved, what_to_do: str, lack: str = "") -> CommandError:
    """No node runs in a home; or a program has one there and lets nobody in."""
    told = f"{lack}no node runs in {resolved.home}{what_to_do}"
    return CommandError(held_without_control(resolved.home) or told)


@contextlib.asynccontextmanager
async def running_node(
    resolved: Resolved, *, joins: bool = False
) -> AsyncIterator[ControlClient | None]:
    """The node that runs in the home, if one does; with `joins` it carries out `--join`."""
    client: ControlClient | None = None
    with contextlib.suppress(NoDaemonError):
        client = await ControlClient.connect(socket_path(resolved.home))
    try:
        if client is not None and joins:
            _refuse_what_is_decided(resolved)
            await _check_keys(resolved, client)
            for ticket in resolved.texts("join"):
                await client.join(ticket)
        yield client
    finally:
        if client is not None:
            await client.close()


def by_the_node(
    resolved: Resolved,
    ask: Callable[[ControlClient], Awaitable[_Found]],
    alone: Callable[[], _Found],
) -> _Found:
    """What the node of a home is asked to do, or this command does alone where none runs.

    That is work that waits for nothing, so it is done outside an event loop: there an interrupt
    would wait until it is done.
    """

    async def asked() -> tuple[_Found] | None:
        async with running_node(resolved) as client:
            return None if client is None else (await ask(client),)

    answer = run_async(asked())
    return alone() if answer is None else answer[0]


@contextlib.asynccontextmanager
async def open_session(resolved: Resolved) -> AsyncIterator[Session]:
    """Use the node of the home, or start one; `--join` is carried out by either."""
    async with running_node(resolved, joins=True) as client:
        if client is not None:
            yield Session(client, False, len(resolved.texts("join")))
            return
    async with _own_node(resolved) as session:
        yield session


def _refuse_what_is_decided(resolved: Resolved) -> None:
    """A running node has its own settings: what was typed against them is refused."""
    typed = [key for key in _DECIDED_BY_THE_NODE if resolved.origins[key].startswith("--")]
    typed += [key for key in resolved.changes if resolved.origins[key].startswith("--")]
    if typed:
        flag = resolved.origins[typed[0]]
        raise CommandError(
            f"{flag}: the node that runs in {resolved.home} has decided this;"
            " leave it out, or choose another --home",
            USAGE,
        )


async def _check_keys(resolved: Resolved, client: ControlClient) -> None:
    """A key that is set for commands, where the node that encrypts does not have it, would have
    people think that what they say is secret."""
    if not resolved.topic_keys:
        return
    known = (await client.welcome()).key_ids
    for topic, file in resolved.topic_keys.items():
        if not set(known.get(topic, ())[:1]) & set(load_topic_keys(file).ids):
            raise CommandError(
                f"topic_keys: the node that runs in {resolved.home} does not encrypt {topic!r} with"
                f" a key of {file} (set in {resolved.origins['topic_keys']}); start it with that"
                " key, `rumormill reload` it, or leave the key out",
                USAGE,
            )


@contextlib.asynccontextmanager
async def _own_node(resolved: Resolved) -> AsyncIterator[Session]:
    async with resolved.node(None) as node:
        service = NodeService(node, resolved.text("protocol"))
        given = resolved.texts("join")
        tickets = given or await asyncio.to_thread(find_tickets, resolved.home)
        failures = []
        for ticket in tickets:
            try:
                await service.join(ticket)
            except LocalError as error:
                failures.append(str(error))
                _log.log(logging.WARNING if given else logging.INFO, "%s", error)
        if given and len(failures) == len(given):  # of those that were named, one must answer
            raise LocalError("; ".join(failures))
        joined = len(tickets) - len(failures)
        joined += len(resolved.texts("supervisors"))  # they introduce us to all others
        yield Session(service, True, joined, bool(node.links))


@contextlib.contextmanager
def announced(home: Path, tickets: Sequence[str]) -> Iterator[None]:
    """Let other commands of this home find us."""
    place = home / MEETING_PLACE
    path = place / f"{os.getpid()}-{secrets.token_hex(4)}"
    try:
        files.make_folder(home)
        files.make_folder(place)
        descriptor = files.create(path)
    except OSError as error:
        raise LocalError(
            f"the home {home} cannot be written: {error.strerror}; choose another with --home"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, "\n".join(tickets).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def find_tickets(home: Path) -> list[str]:
    """The tickets of commands that wait in this home; those of the dead are removed."""
    found: list[str] = []
    try:
        paths = sorted((home / MEETING_PLACE).iterdir())
    except OSError:
        return found
    for path in paths:
        if len(found) >= MAX_TICKETS:
            break
        with contextlib.suppress(OSError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read(_MAX_BYTES).decode(errors="replace")
                found += text.split()[:1]
            else:
                path.unlink()
    return found
