"""The metrics page: GET of one page, bounded in bytes, time and clients."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from live_nodes import run
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.metrics_server import MAX_CLIENTS, MAX_REQUEST, MetricsServer


@contextlib.asynccontextmanager
async def served(
    page: str = "up 1\n", **options: float
) -> AsyncIterator[tuple[Counter[str], Endpoint]]:
    """A server of a page: whom it refuses and why, and where it listens."""
    refused: Counter[str] = Counter()
    server = MetricsServer(lambda: page, lambda reason: refused.update([reason]), **options)
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
