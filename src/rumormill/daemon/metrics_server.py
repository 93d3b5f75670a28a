"""A page of metrics over HTTP, for Prometheus: GET, nothing else, and nothing unbounded.

A request has at most 8 KiB and 5 seconds, a few are answered at a time and the others cut off, and
every answer closes its connection: what scrapes a page every 15 seconds needs no more.
"""

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from rumormill.core.errors import LocalError
from rumormill.daemon.endpoint import Endpoint, close_server
from rumormill.libp2p.listening import Listening

MAX_REQUEST: Final = 8192
MAX_CLIENTS: Final = 16
TIMEOUT: Final = 5.0

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves what `page` returns at `/metrics`."""

    def __init__(
        self, page: Callable[[], str], count: Callable[[str], None], *, timeout: float = TIMEOUT
    ) -> None:
        self._page = page
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
                status, body = await self._answer(reader)
                allow = "Allow: GET\r\n" if status == 405 else ""
                head = (
                    f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {_TEXT}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n{allow}\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
                if status != 200:
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

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status = _status_of(head.partition(b"\r\n")[0])
        except asyncio.IncompleteReadError:
            status = 400
        except asyncio.LimitOverrunError:
            status = 431
        if status == 200:
            return status, self._page().encode()
        self._count("not-the-page")
        return status, f"{HTTPStatus(status).phrase}: GET /metrics\n".encode()


def _status_of(line: bytes) -> int:
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return 400
    if words[0] != b"GET":
        return 405
    return 200 if words[1].partition(b"?")[0] == b"/metrics" else 404
