"""The metrics page: GET of one page, bounded in bytes, time and clients."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from live_nodes import run
from rumormill.core.api import Health
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.metrics_server import MAX_CLIENTS, MAX_REQUEST, MetricsServer, Pages

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
    "too long": (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * MAX_REQUEST, 431),
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


def test_too_many_clients_are_turned_away() -> None:
    async def story() -> None:
        async with served() as (refused, endpoint), contextlib.AsyncExitStack() as stack:
            for _ in range(MAX_CLIENTS):
                _, writer = await asyncio.open_connection(*endpoint)
                stack.callback(writer.close)
            answer = await exchange(endpoint, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (answer, refused) == (b"", {"busy": 1})

    run(story)
