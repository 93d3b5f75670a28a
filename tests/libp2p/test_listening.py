"""Where connections come in: whoever knocks while we close is not left with an open socket."""

import asyncio
import socket

import pytest

from live_nodes import run
from rumormill.libp2p.listening import Listening


@pytest.mark.parametrize("turns", range(6))
def test_whoever_knocks_while_we_close_is_let_go(turns: int) -> None:
    """In whichever turn of the loop, no socket is left open: a warning would fail the test."""

    async def story() -> None:
        listening = Listening(asyncio.Protocol, lambda _: None)
        await listening.listen("127.0.0.1", 0)
        endpoint = listening.addresses[0].endpoint
        assert endpoint is not None
        await asyncio.sleep(0)
        with socket.create_connection((endpoint.host, endpoint.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await listening.close()

    run(story)
