"""The end of a server of this package: nobody stays connected to it."""

import asyncio
from collections.abc import Iterable


async def close_server(server: asyncio.Server, clients: Iterable[asyncio.Task[None]]) -> None:
    """Listen no more, end what serves each client, and wait until all of it is over."""
    server.close()
    served = list(clients)
    for client in served:
        client.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    await server.wait_closed()
