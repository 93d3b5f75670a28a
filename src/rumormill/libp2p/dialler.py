"""Dials for those who cannot wait: letters and questions ask for a peer and are called back.

So many peers are dialled at a time (`max_pending_dials`), so many more wait for their turn
(`max_waiting_dials`), and beyond that a peer is refused at once. One task dials one peer, however
many want it. Such connections are transient: the swarm closes them when nothing passes over them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.swarm import Swarm

TOO_MANY_DIALS: Final = "too many dials"

Reached: TypeAlias = Callable[[PeerId, Connection | None, str], None]
"""Called with the peer and its connection, or with None and the reason why there is none."""


class Dialler:
    """Brings peers within reach, in the order of asking."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._config = swarm.config
        self._loop = asyncio.get_running_loop()
        self._wanted: dict[PeerId, list[Reached]] = {}
        self._queue: deque[PeerId] = deque()
        self._dialling = 0

    def reach(self, peer: PeerId, then: Reached) -> None:
        """Dial a peer; `then` is called once, and never before this returns."""
        waiting = self._wanted.get(peer)
        if waiting is not None:
            waiting.append(then)
        elif len(self._queue) >= self._config.max_waiting_dials:
            self._swarm.count("too-many-dials")
            self._loop.call_soon(then, peer, None, TOO_MANY_DIALS)
        else:
            self._wanted[peer] = [then]
            self._queue.append(peer)
            self._dial_next()

    def _dial_next(self) -> None:
        while self._queue and self._dialling < self._config.max_pending_dials:
            self._dialling += 1
            self._swarm.spawn(self._dial(self._queue.popleft()))

    async def _dial(self, peer: PeerId) -> None:
        connection, reason = None, ""
        try:
            connection = await self._swarm.dial(peer, transient=True)
        except LocalError as error:
            self._swarm.count("dial-failed")
            reason = str(error)
        finally:
            self._dialling -= 1
            waiting = self._wanted.pop(peer)
        for then in waiting:
            then(peer, connection, reason)
        self._dial_next()
