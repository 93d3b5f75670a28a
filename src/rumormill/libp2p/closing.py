"""The end of a socket: what waits in it still leaves, and nobody waits for ever.

Closing a socket that has unread bytes makes the kernel throw away what the peer has not read yet.
So an orderly end closes our half only, and waits for the peer's, until a deadline.
"""

import asyncio
from collections.abc import Callable

_POLL = 0.005


def let_go(transport: asyncio.Transport, *, orderly: bool, within: float) -> asyncio.TimerHandle:
    """Close a socket; return the timer that ends it by force."""
    deadline = asyncio.get_running_loop().call_later(within, transport.abort)
    if orderly and transport.can_write_eof():
        _close_our_half(transport)
    else:
        transport.close()
    return deadline


def _close_our_half(transport: asyncio.Transport) -> None:
    """Close our half when nothing waits in it.

    Asyncio would wait as well, but what fails then is raised in a callback of its own: a line in
    the log of every peer that was quicker, which peers must not be able to write at will.
    """
    if transport.is_closing():
        return
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(_POLL, _close_our_half, transport)
        return
    try:
        transport.write_eof()
    except OSError:  # the peer was quicker, and the socket is no longer connected
        transport.close()


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition that nobody announces, but not longer than so many seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition() and loop.time() < deadline:  # noqa: ASYNC110 (nobody announces it)
        await asyncio.sleep(_POLL)
