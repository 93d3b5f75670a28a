"""Waiting for something to change: peers that come, go or read."""

import asyncio
from typing import Final

_LOOK_AGAIN: Final = 0.05
"""Seconds after which a waiter looks even if nobody has said that anything changed: our choice,
because a clock that runs on is a change too."""


class Change:
    """Wakes everybody who waits, whatever it was that changed."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    async def wait(self) -> None:
        """Wait until something has changed, or a moment has passed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait_for(waiter, _LOOK_AGAIN)
        except TimeoutError:
            return
        finally:
            self._waiters.pop(waiter, None)

    def happened(self) -> None:
        """Something has changed."""
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)
