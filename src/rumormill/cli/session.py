"""A node to work with: the one that runs in the home, or one for this command only.

Commands see a `Service` in both cases. A node of one's own lives in memory, has a new identity, and
is of use only with somebody to talk to: `--join`, or a `sub` that waits in the same home.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from rumormill.cli.grammar import DATA_LOSS, FAILURE, TIMEOUT, USAGE, CommandError
from rumormill.cli.meeting import find_tickets
from rumormill.cli.settings import Resolved
from rumormill.core.errors import ConfigError, LocalError, RumormillError
from rumormill.daemon.control_client import ControlClient, NoDaemonError
from rumormill.daemon.control_messages import ControlError, socket_path
from rumormill.daemon.control_service import NodeService, Service
from rumormill.log.errors import CorruptLogError

_log = logging.getLogger("rumormill.cli")

_CODES = {"timeout": TIMEOUT, "damaged": DATA_LOSS, "usage": USAGE}

_DECIDED_BY_THE_NODE = ("listen", "protocol", "preset", "supervisors")


class Session(msgspec.Struct):
    """A node to work with."""

    service: Service
    ephemeral: bool
    """Whether the node ends with this command, and its log with it."""
    joined: int
    """To how many nodes this command has connected it."""


def run_async(work: Coroutine[Any, Any, int]) -> int:
    """Run a verb; what went wrong becomes one sentence and an exit code."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(work)
    except RumormillError as error:
        raise CommandError(_one_line(str(error)), _code_of(error)) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandError(str(error), FAILURE) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop where that extra is installed, else asyncio itself."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop]
    factory = importlib.import_module("uvloop").new_event_loop
    return factory


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _code_of(error: RumormillError) -> int:
    if isinstance(error, ControlError):
        return _CODES.get(error.code, FAILURE)
    if isinstance(error, CorruptLogError):
        return DATA_LOSS
    return USAGE if isinstance(error, ConfigError) else FAILURE


@contextlib.asynccontextmanager
async def open_session(resolved: Resolved) -> AsyncIterator[Session]:
    """Use the node of the home, or start one; `--join` is carried out by either."""
    try:
        client = await ControlClient.connect(socket_path(resolved.home))
    except NoDaemonError:
        async with _own_node(resolved) as session:
            yield session
        return
    try:
        refuse_what_is_decided(resolved)
        for ticket in resolved.texts("join"):
            await client.join(ticket)
        yield Session(client, False, len(resolved.texts("join")))
    finally:
        await client.close()


def refuse_what_is_decided(resolved: Resolved) -> None:
    """A running node has its own settings: what was typed against them is refused."""
    typed = [key for key in _DECIDED_BY_THE_NODE if resolved.origins[key].startswith("--")]
    typed += [key for key in resolved.changes if resolved.origins[key] == "--set"]
    if typed:
        flag = resolved.origins[typed[0]]
        raise CommandError(
            f"{flag}: the node that runs in {resolved.home} has decided this;"
            " leave it out, or choose another --home",
            USAGE,
        )


@contextlib.asynccontextmanager
async def _own_node(resolved: Resolved) -> AsyncIterator[Session]:
    from rumormill.node.node import Node

    node = Node(
        None,
        listen=resolved.texts("listen"),
        protocol=resolved.text("protocol"),
        preset=resolved.text("preset"),
        parameters=resolved.parameters,
        supervisors=resolved.texts("supervisors"),
        config=resolved.node_config,
        store=resolved.store_config,
    )
    async with node:
        service = NodeService(node, resolved.text("protocol"))
        joined = await _join_given(service, resolved.texts("join"))
        if not resolved.texts("join"):
            joined += await _join_found(service, await asyncio.to_thread(_find, resolved))
        joined += len(resolved.texts("supervisors"))  # they introduce us to all others
        yield Session(service, True, joined)


def _find(resolved: Resolved) -> list[str]:
    return find_tickets(resolved.home)


async def _join_given(service: Service, tickets: list[str]) -> int:
    """Connect to the nodes that were named; one of them must answer."""
    failures = []
    for ticket in tickets:
        try:
            await service.join(ticket)
        except LocalError as error:
            failures.append(str(error))
            _log.warning("%s", error)
    if tickets and len(failures) == len(tickets):
        raise LocalError("; ".join(failures))
    return len(tickets) - len(failures)


async def _join_found(service: Service, tickets: list[str]) -> int:
    joined = 0
    for ticket in tickets:
        try:
            await service.join(ticket)
            joined += 1
        except LocalError as error:
            _log.info("%s", error)
    return joined
