"""The Flight door, opened and closed: of a node, or of a bare store.

While it is open, whole ranges of the log are sealed ahead of the first bulk read, and the home says
where rows can be published (`flight.json`); a bare store's door does not, since readers have the
store itself. It is closed in the opposite order: nobody new finds it, and those who are being
served are waited for.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.event import Note
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.flight_messages import (
    ENDPOINT_FILE,
    Door,
    flight_library,
    load_or_create_token,
    new_token,
)
from rumormill.daemon.flight_service import FlightService, Publish
from rumormill.daemon.sealing import sealing_ahead
from rumormill.daemon.served_node import ServedNode

PemFiles: TypeAlias = tuple[str | Path, str | Path]
"""A certificate and its key, both in PEM."""

_PUBLISH_SECONDS: Final = 300.0
"""Our choice: a node that does not keep 256 rows in so long is stuck."""


@contextlib.contextmanager
def flight_door(
    service: FlightService, endpoint: Endpoint, home: Path | None, tls: PemFiles | None = None
) -> Iterator[tuple[str, str]]:
    """Keep a door open; its address and its token. Without a home, both are known here alone."""
    flight_library()
    from rumormill.daemon.flight_server import open_server  # noqa: PLC0415 (it needs pyarrow)

    token = new_token() if home is None else load_or_create_token(home)
    pem = None if tls is None else (_read(tls[0]), _read(tls[1]))
    server = open_server(service, endpoint, token, tls=pem)
    address = str(endpoint._replace(port=server.port))
    try:
        with contextlib.ExitStack() as opened:
            if home is not None and service.publish is not None:
                opened.enter_context(_announced(home, Door(address, tls is not None)))
            opened.enter_context(sealing_ahead(service.log))
            yield address, token
    finally:
        server.shutdown()


@contextlib.contextmanager
def _announced(home: Path, door: Door) -> Iterator[None]:
    """Tell programs of the same user where they can publish, while the door is open."""
    path = home / ENDPOINT_FILE
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(msgspec.json.encode(door))
    draft.replace(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def publisher_of(node: ServedNode, loop: asyncio.AbstractEventLoop) -> Publish:
    """Publish through a node whose loop runs in another thread."""

    def publish(rows: Sequence[tuple[str, bytes, Note]]) -> None:
        waiting = asyncio.run_coroutine_threadsafe(node.publish_noted(rows), loop)
        try:
            waiting.result(_PUBLISH_SECONDS)
        except TimeoutError:
            raise LocalError("the node does not publish: its log or its peers are stuck") from None

    return publish


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise LocalError(f"tls: cannot read {path}: {error.strerror}") from None
