"""Waiting for something to change: peers that come, go or read."""

import asyncio
from typing import Final

_LOOK_AGAIN: Final = 0.05
"""Seconds after which a waiter looks even if nobody has said that anything changed: our choice,
because a clock that runs on is a change too."""


class Change:
    """Wakes everybody who waits, whatever it was that changed."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until something has changed, or a moment has passed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._next], timeout=_LOOK_AGAIN)

    def happened(self) -> None:
        """Something has changed."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
