"""The metrics page: GET of one page, bounded in bytes, time and clients."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from live_nodes import run, until
from rumormill.core.api import Health
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.metrics_server import MetricsServer, Pages
from rumormill.dashboard.http import MAX_CLIENTS, MAX_HEAD, Answer, BadRequest, HttpServer, Request

ASK = b"GET /metrics HTTP/1.1\r\n\r\n"
WELL = Health(healthy=True, ready=True, why="ok")


@contextlib.asynccontextmanager
async def served(
    page: str = "up 1\n", health: Health = WELL, **options: float
) -> AsyncIterator[tuple[Counter[str], Endpoint]]:
    """A server of a page: whom it refuses and why, and where it listens."""
    refused: Counter[str] = Counter()
    pages = Pages(lambda openmetrics: f"{page}# EOF\n" if openmetrics else page, lambda: health)
    server = MetricsServer(pages, lambda reason: refused.update([reason]), **options)
    endpoint = await server.start(Endpoint("127.0.0.1", 0))
    try:
        yield refused, endpoint
    finally:
        await server.close()


async def exchange(endpoint: Endpoint, request: bytes) -> bytes:
    """Send bytes, and return everything that comes back."""
    reader, writer = await asyncio.open_connection(*endpoint)
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        writer.write(request)
        await writer.drain()
        return await reader.read()
    return b""


REQUESTS = {
    "the page": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    "with a query": (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
    "another page": (b"GET / HTTP/1.1\r\n\r\n", 404),
    "another method": (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
    "no request": (b"hello\r\n\r\n", 400),
    "another protocol": (b"GET /metrics SPDY/9\r\n\r\n", 400),
    "too long": (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD, 431),
}


@pytest.mark.parametrize(("request_", "status"), REQUESTS.values(), ids=REQUESTS.keys())
def test_get_of_one_page_and_nothing_else(request_: bytes, status: int) -> None:
    async def story() -> None:
        async with served() as (_, endpoint):
            answer = await exchange(endpoint, request_)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            body = answer.partition(b"\r\n\r\n")[2]
            assert f"Content-Length: {len(body)}\r\n".encode() in answer
            assert (body == b"up 1\n") == (status == 200)

    run(story)


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_the_page_comes_in_the_format_that_is_asked_for(accept: str, openmetrics: bool) -> None:
    """And says which it is."""
    request = f"GET /metrics HTTP/1.1\r\nHost: x\r\naccept: {accept}\r\n\r\n"

    async def story() -> None:
        async with served() as (_, endpoint):
            answer = (await exchange(endpoint, request.encode())).decode()
            kind = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain"
            assert f"Content-Type: {kind}" in answer
            assert answer.endswith("up 1\n# EOF\n" if openmetrics else "\n\r\nup 1\n")

    run(story)


@pytest.mark.parametrize(
    ("health", "healthz", "readyz"),
    [
        (WELL, 200, 200),
        (Health(healthy=True, ready=False, why="the log has no room for events"), 200, 503),
        (Health(healthy=False, ready=False, why="the disk has failed"), 503, 503),
    ],
)
def test_how_the_node_is_has_two_pages(health: Health, healthz: int, readyz: int) -> None:
    async def story() -> None:
        async with served(health=health) as (refused, endpoint):
            for page, status in (("healthz", healthz), ("readyz", readyz)):
                answer = await exchange(endpoint, f"GET /{page} HTTP/1.1\r\n\r\n".encode())
                assert answer.startswith(f"HTTP/1.1 {status} ".encode())
                assert answer.endswith(f"\r\n\r\n{health.why}\n".encode())
            assert not refused

    run(story)


def test_whoever_says_nothing_is_cut_off() -> None:
    """A silent client holds its place for a bounded time."""

    async def story() -> None:
        async with served(timeout=0.05) as (refused, endpoint):
            assert await exchange(endpoint, b"GET /metrics") == b""
            assert refused == {"cut-off": 1}

    run(story)


def test_silent_clients_keep_nobody_out() -> None:
    """They come again and again, and whoever asks is answered: a probe must not take a node for
    dead because somebody holds all places. The one that was silent for longest goes."""

    async def story() -> None:
        async with served(timeout=60) as (refused, endpoint), contextlib.AsyncExitStack() as stack:
            first = None
            for _ in range(3 * MAX_CLIENTS):
                reader, writer = await asyncio.open_connection(*endpoint)
                stack.callback(writer.close)
                first = first or reader
            assert (await exchange(endpoint, ASK)).endswith(b"up 1\n")
            assert set(refused) == {"made-room"}
            with contextlib.suppress(ConnectionError):
                assert await first.read() == b""

    run(story)


def test_too_many_clients_that_are_being_answered_are_turned_away() -> None:
    """What was asked in time is answered, and nobody else takes the place."""

    async def story() -> None:
        refused: Counter[str] = Counter()
        asked, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def answer(request: Request | BadRequest) -> Answer:
            asked.release()
            await go_on.wait()
            return Answer(HTTPStatus.OK, b"answered")

        server = HttpServer(answer, lambda reason: refused.update([reason]), max_clients=2)
        endpoint = Endpoint("127.0.0.1", await server.start("127.0.0.1", 0))
        both = [asyncio.ensure_future(exchange(endpoint, ASK)) for _ in range(2)]
        for _ in both:
            await asked.acquire()
        assert await exchange(endpoint, ASK) == b""
        assert refused == {"busy": 1}
        go_on.set()
        assert all(each.endswith(b"answered") for each in await asyncio.gather(*both))
        await server.close()

    run(story)


def test_whoever_does_not_read_its_answer_is_cut_off() -> None:
    """The connection is gone on our side too: nothing of it waits for somebody who never reads."""

    async def story() -> None:
        async def answer(request: Request | BadRequest) -> Answer:
            return Answer(HTTPStatus.OK, bytes(32 << 20))

        refused: Counter[str] = Counter()
        server = HttpServer(answer, lambda reason: refused.update([reason]), timeout=0.05)
        endpoint = Endpoint("127.0.0.1", await server.start("127.0.0.1", 0))
        before = asyncio.all_tasks()
        with socket.create_connection(endpoint) as deaf:
            deaf.sendall(ASK)
            await until(lambda: refused, "it was given up")
            await until(lambda: asyncio.all_tasks() == before, "nothing of it is left")
        await server.close()

    run(story)
