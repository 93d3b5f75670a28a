"""A page of metrics over HTTP, for Prometheus, and two for whoever watches processes.

GET of three pages, nothing else, and nothing unbounded. `/metrics` is in the format that was asked
for; `/healthz` and `/readyz` say in one line how the node is, with status 200 or 503.

A request has at most 8 KiB and 5 seconds, a few are answered at a time and the others cut off, and
every answer closes its connection: what scrapes a page every 15 seconds needs no more.
"""

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from rumormill.core.api import Health
from rumormill.core.errors import LocalError
from rumormill.daemon.endpoint import Endpoint, close_server
from rumormill.libp2p.listening import Listening

MAX_REQUEST: Final = 8192
MAX_CLIENTS: Final = 16
TIMEOUT: Final = 5.0

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"
_OPENMETRICS_TYPE: Final = f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"
_PLAIN: Final = "text/plain; charset=utf-8"
_OK: Final = HTTPStatus.OK


class Pages(NamedTuple):
    """What is served: the metrics, in OpenMetrics or not, and how the node is."""

    metrics: Callable[[bool], str]
    health: Callable[[], Health]


class _Answer(NamedTuple):
    status: HTTPStatus
    body: str
    kind: str = _PLAIN


class MetricsServer:
    """Serves the pages of a node."""

    def __init__(
        self, pages: Pages, count: Callable[[str], None], *, timeout: float = TIMEOUT
    ) -> None:
        self._pages = pages
        self._count = count
        """Told the reason of each refusal."""
        self._timeout = timeout
        self._listening = Listening(self._protocol, count)
        self._clients: dict[asyncio.Task[None], None] = {}

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(MAX_REQUEST), self._serve)

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listen; return where, also when the system chose the port."""
        try:
            await self._listening.listen(*endpoint)
        except LocalError as error:
            raise LocalError(f"metrics: {error}") from error
        found = self._listening.addresses[0].endpoint
        assert found is not None
        return endpoint._replace(port=found.port)

    async def close(self) -> None:
        """Stop listening and drop whoever is still connected."""
        await close_server(self._listening, self._clients)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= MAX_CLIENTS:
            self._count("busy")
            writer.transport.abort()
            return
        self._clients[task] = None
        try:
            async with asyncio.timeout(self._timeout):
                status, text, kind = await self._answer(reader)
                body = text.encode()
                allow = "Allow: GET\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
                head = (
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n{allow}\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
                if status != _OK:
                    # Bytes that were not read would turn the close into a reset, which takes the
                    # answer with it.
                    writer.write_eof()
                    while await reader.read(MAX_REQUEST):
                        pass
        except OSError:  # of which a timeout is one
            self._count("cut-off")
        except asyncio.CancelledError:
            pass  # by `close`; asyncio's streams report a cancelled handler as an error
        finally:
            del self._clients[task]
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> _Answer:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, page = _asked(head.partition(b"\r\n")[0])
        except asyncio.IncompleteReadError:
            status, page = HTTPStatus.BAD_REQUEST, b""
        except asyncio.LimitOverrunError:
            status, page = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b""
        if status != _OK:
            self._count("not-the-page")
            return _Answer(status, f"{status.phrase}: GET {', '.join(_PAGES)}\n")
        if page == b"/metrics":
            wanted = wants_openmetrics(head)
            return _Answer(_OK, self._pages.metrics(wanted), _OPENMETRICS_TYPE if wanted else _TEXT)
        found = self._pages.health()
        is_well = found.healthy if page == b"/healthz" else found.ready
        return _Answer(_OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE, f"{found.why}\n")


_PAGES: Final = ("/metrics", "/healthz", "/readyz")


def _asked(line: bytes) -> tuple[HTTPStatus, bytes]:
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return HTTPStatus.BAD_REQUEST, b""
    if words[0] != b"GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, b""
    page = words[1].partition(b"?")[0]
    known = page.decode(errors="replace") in _PAGES
    return (_OK if known else HTTPStatus.NOT_FOUND), page


def wants_openmetrics(head: bytes) -> bool:
    """Whether the headers of a request prefer OpenMetrics 1.0.0 to the older format."""
    best = {_OPENMETRICS: 0.0, "text/plain": 0.0}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() != "accept":
            continue
        for wish in value.split(","):
            kind, *options = (part.strip().lower() for part in wish.split(";"))
            chosen = dict(option.split("=", 1) for option in options if "=" in option)
            if kind in best and chosen.get("version", "1.0.0") in ("1.0.0", "0.0.4"):
                best[kind] = max(best[kind], _weight(chosen.get("q", "1")))
    return best[_OPENMETRICS] > 0 and best[_OPENMETRICS] >= best["text/plain"]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
