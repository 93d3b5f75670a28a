"""The house's HTTP server: small questions, answers of a known length, and streams.

Nothing is unbounded. The head of a request has at most 8 KiB, a body as much as the owner allows,
and both have to be there in time; so many clients are answered at a time, and one too many takes
the place of the one that has dawdled longest where most come from, so that whoever is silent keeps
nobody out; every answer closes its connection. What a client is slow to read waits in the socket's
buffers alone: a stream goes on when they have room. A question whose answer fails ends itself and
nothing else: it is counted, logged the first time that it fails in that place, and is a 500.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from rumormill.core.errors import LocalError
from rumormill.libp2p.admission import Origin, Places, origin_of
from rumormill.libp2p.listening import PLAIN as PLAIN_LAYER
from rumormill.libp2p.listening import Listening

MAX_HEAD: Final = 8192
MAX_CLIENTS: Final = 16
TIMEOUT: Final = 5.0
MAX_FIELDS: Final = 64
"""Headers of a request, and fields of its query. Our choice: browsers send less than twenty."""

STALLED: Final = 60.0
"""Seconds after which a client that reads nothing of a stream is let go."""

PLAIN: Final = "text/plain; charset=utf-8"

FAILED: Final = "error"
"""Under what an answer that nobody foresaw is counted."""
_MOST_PLACES: Final = 64
"""Places of which failures are logged; those beyond are counted only."""
_log = logging.getLogger("rumormill.dashboard")


class Request(NamedTuple):
    """What a client asks: the path as it was typed, percent signs and all, the query as text, and
    headers by their names in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    """What it is told; with a `stream`, that follows the head until its end or the client's.

    A `refusal` is counted under its reason.
    """

    status: HTTPStatus
    body: bytes = b""
    kind: str = PLAIN
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = None
    refusal: str = ""


class BadRequest(Exception):  # noqa: N818 (that is what the status is called)
    """What came is no request that is served; the status says why."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


Answering = Callable[[Request | BadRequest], Awaitable[Answer]]
"""Answers a request, or says what is wrong with what came."""


class HttpServer:
    """Serves one `Answering` at one address."""

    def __init__(
        self,
        answer: Answering,
        count: Callable[[str], None],
        *,
        methods: tuple[str, ...] = ("GET",),
        max_body: int = 0,
        max_clients: int = MAX_CLIENTS,
        timeout: float = TIMEOUT,
    ) -> None:
        self._answer = answer
        self._count = count
        """Told the reason of each refusal."""
        self._methods = methods
        self._max_body = max_body
        self._places: Places[asyncio.Task[None]] = Places(max_clients)
        self._awaited: dict[asyncio.Task[None], None] = {}
        """Clients that are to send their requests or to read their answers: these make room."""
        self._timeout = timeout
        self._listening = Listening(self._protocol, count)
        self._clients: dict[asyncio.Task[None], None] = {}
        self._failed_at: dict[tuple[str, int], None] = {}

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(MAX_HEAD), self._serve)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; return the port, also when the system chose it."""
        layer = PLAIN_LAYER if tls is None else PLAIN_LAYER._replace(tls=tls)
        await self._listening.listen(host, port, layer)
        found = self._listening.addresses[0].endpoint
        assert found is not None
        return found.port

    async def close(self) -> None:
        """Stop listening and drop whoever is still connected."""
        await close_server(self._listening, self._clients)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        host, *_ = writer.get_extra_info("peername") or ("",)
        if not self._has_room(origin := origin_of(host)):
            self._count("busy")
            writer.transport.abort()
            return
        self._clients[task] = self._awaited[task] = None
        self._places.add(task, origin)
        try:
            async with asyncio.timeout(self._timeout):
                request = await self._request(reader)
                del self._awaited[task]
                answer = await self._answered(request)
                self._awaited[task] = None
                if answer.refusal:
                    self._count(answer.refusal)
                writer.write(self._head(answer) + answer.body)
                await writer.drain()
                if answer.refusal:
                    # Bytes that were not read would turn the close into a reset, which takes the
                    # answer with it.
                    if writer.can_write_eof():  # which TLS cannot
                        writer.write_eof()
                    while await reader.read(MAX_HEAD):
                        pass
            if answer.stream is not None:
                del self._awaited[task]
                await until_either(_send(answer.stream, writer), _hung_up(reader))
        except OSError:  # of which a timeout is one
            self._count("cut-off")
            writer.transport.abort()  # whoever does not read must not be waited for
        except Exception as error:  # noqa: BLE001 (of a stream: its head has been sent)
            self._fail(error)
        except asyncio.CancelledError:
            # By `close`, or to make room; asyncio's streams report a cancelled handler as an error.
            writer.transport.abort()
        finally:
            self._leave(task)
            await self._closed(writer)
            del self._clients[task]

    async def _closed(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection when its client has read the rest, or at the end of its time."""
        writer.close()
        try:
            async with asyncio.timeout(self._timeout):
                await writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()

    def _has_room(self, origin: Origin) -> bool:
        """Whether there is a place for one more client, if need be that of another."""
        if not self._places.full:
            return True
        for other in self._places.candidates(origin, ties=True):
            if other in self._awaited:
                self._count("made-room")
                self._leave(other)
                other.cancel()
                return True
        return False

    def _leave(self, task: asyncio.Task[None]) -> None:
        self._places.remove(task)
        self._awaited.pop(task, None)

    def _head(self, answer: Answer) -> bytes:
        lines = [
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"Content-Type: {answer.kind}",
            *([] if answer.stream is not None else [f"Content-Length: {len(answer.body)}"]),
            "Connection: close",
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append(f"Allow: {', '.join(self._methods)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _request(self, reader: asyncio.StreamReader) -> Request | BadRequest:
        try:
            return await self._read(reader)
        except BadRequest as error:
            return error

    async def _answered(self, found: Request | BadRequest) -> Answer:
        try:
            return await self._answer(found)
        except Exception as error:  # noqa: BLE001 (whatever it is, the client is told)
            self._fail(error)
            text = b"this went wrong here; the program's log has it\n"
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _fail(self, error: Exception) -> None:
        """Count what nobody foresaw; log it once for each place, so that clients cannot fill it."""
        self._count(FAILED)
        step = error.__traceback__
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        place = ("", 0) if step is None else (step.tb_frame.f_code.co_qualname, step.tb_lineno)
        if place not in self._failed_at and len(self._failed_at) < _MOST_PLACES:
            self._failed_at[place] = None
            _log.error("an answer failed", exc_info=error)

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            raise BadRequest(HTTPStatus.BAD_REQUEST) from None
        except asyncio.LimitOverrunError:
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        request = parse_head(head)
        if request.method not in self._methods:
            raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or "transfer-encoding" in request.headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        size = int(length[:12])
        if not size or request.method == "GET":
            return request
        if size > self._max_body:
            raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            return request._replace(body=await reader.readexactly(size))
        except asyncio.IncompleteReadError:
            raise BadRequest(HTTPStatus.BAD_REQUEST) from None


def parse_head(head: bytes) -> Request:
    """What the head of a request says; `BadRequest` where it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines[:MAX_FIELDS]:
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = words[1].partition("?")
    try:
        found = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise BadRequest(HTTPStatus.BAD_REQUEST) from None
    return Request(words[0], path, found, headers)


async def until_either(work: Coroutine[Any, Any, None], end: Coroutine[Any, Any, object]) -> None:
    """Do some work for a client until it is done, or the client has come to its end."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        ending.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


async def _send(pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
    """Piece by piece: the next one is made when this one has left; who reads nothing is let go."""
    writer.transport.set_write_buffer_limits(high=0)
    try:
        async for piece in pieces:
            writer.write(piece)
            async with asyncio.timeout(STALLED):
                await writer.drain()
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]


async def _hung_up(reader: asyncio.StreamReader) -> None:
    while await reader.read(MAX_HEAD):
        pass


async def close_server(listening: Listening, clients: Iterable[asyncio.Task[None]]) -> None:
    """Listen no more, end what serves each client, and wait until all of it is over."""
    try:
        await listening.close()
    finally:
        served = list(clients)
        for client in served:
            client.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def listening_at(
    server: HttpServer, what: str, host: str, port: int, tls: ssl.SSLContext | None = None
) -> int:
    """Have a server listen; what goes wrong says for what."""
    try:
        return await server.start(host, port, tls)
    except LocalError as error:
        raise LocalError(f"{what}: {error}") from error


def server_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """What a server needs to speak TLS: a certificate and its key, as files in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl's errors are such too
        raise LocalError(f"{certificate}, {key}: {error.strerror or error}") from error
    return context
