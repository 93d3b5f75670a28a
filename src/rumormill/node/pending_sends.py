"""Sends to peers that cannot be sent to yet: kept until a channel opens, or given back.

The rule: every message is sent, in its order, or the machine is told why not. What waits is bounded
by peer and in all, in messages and in bytes, and in time: a peer that cannot be reached within
`pending_timeout` gives back all that waits for it at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId
from rumormill.core.inputs import SendDropped
from rumormill.core.messages import WireMessage
from rumormill.libp2p.closing import until
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.swarm import Swarm
from rumormill.node.channel import Channel, MachineSide
from rumormill.node.config import NodeConfig

TOO_MANY_PENDING: Final = "too many messages wait for peers out of reach"
NOT_REACHED: Final = "not reached in time"
OURSELVES: Final = "that is this peer itself"
TOO_MANY_DIALS: Final = "too many dials"

Reached: TypeAlias = Callable[[PeerId, Connection | None, str], None]
"""Called with the peer and its connection, or with None and the reason why there is none."""


class _Sender(MachineSide, Protocol):
    """What is needed of the driver."""

    @property
    def channels(self) -> Mapping[PeerId, Channel]: ...

    def send(
        self, peers: tuple[PeerId, ...], message: WireMessage, framed: bytes, now: float
    ) -> None: ...


class _Queue(msgspec.Struct):
    """What waits for one peer."""

    timer: asyncio.TimerHandle
    messages: list[tuple[WireMessage, bytes]] = []
    size: int = 0


class Dialler:
    """Dials for those who cannot wait: mail and questions ask for a peer and are called back.

    So many peers are dialled at a time (`max_pending_dials`), so many more wait for their turn
    (`max_waiting_dials`), and beyond that a peer is refused at once. One task dials one peer,
    however many want it. Such connections are transient: the swarm closes them when nothing passes
    over them.
    """

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


class PendingSends:
    """All messages of a node that wait for their peers."""

    def __init__(self, driver: _Sender, dialler: Dialler, config: NodeConfig) -> None:
        self._driver = driver
        self._dialler = dialler
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._queues: dict[PeerId, _Queue] = {}
        self._count = self._size = 0

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._queues

    def __len__(self) -> int:
        return self._count

    def add(self, peer: PeerId, message: WireMessage, framed: bytes) -> None:
        """Keep a message until its peer can be sent to, and see to it that it can."""
        config, driver, size = self._config, self._driver, len(framed)
        queue = self._queues.get(peer)
        waiting, bytes_waiting = (0, 0) if queue is None else (len(queue.messages), queue.size)
        channel = driver.channels.get(peer)
        if peer == driver.id:
            self._give_back(peer, message, OURSELVES)
        elif channel is not None and channel.refused:
            self._give_back(peer, message, channel.refused)
        elif (
            waiting >= config.pending_per_peer
            or bytes_waiting + size > config.pending_bytes_per_peer
            or self._count >= config.pending_total
            or self._size + size > config.pending_bytes_total
        ):
            driver.count("too-many-pending-sends")
            self._give_back(peer, message, TOO_MANY_PENDING)
        else:
            if queue is None:
                queue = self._begin(peer)
            queue.messages.append((message, framed))
            queue.size += size
            self._count += 1
            self._size += size

    def _begin(self, peer: PeerId) -> _Queue:
        timeout = self._config.pending_timeout
        timer = self._loop.call_later(timeout, self.fail, peer, NOT_REACHED)
        queue = self._queues[peer] = _Queue(timer)
        if peer not in self._driver.channels:
            self._dialler.reach(peer, self._on_reached)
        return queue

    def _on_reached(self, peer: PeerId, connection: Connection | None, reason: str) -> None:
        if connection is None:
            self.fail(peer, reason)

    def _take(self, peer: PeerId) -> list[tuple[WireMessage, bytes]]:
        queue = self._queues.pop(peer, None)
        if queue is None:
            return []
        queue.timer.cancel()
        self._count -= len(queue.messages)
        self._size -= queue.size
        return queue.messages

    def send(self, channel: Channel) -> None:
        """A peer can be sent to: send what waits for it."""
        now = self._driver.now()
        for message, framed in self._take(channel.peer):
            self._driver.send((channel.peer,), message, framed, now)

    def fail(self, peer: PeerId, reason: str) -> None:
        """A peer cannot be sent to: give back what waits for it."""
        for message, _ in self._take(peer):
            self._give_back(peer, message, reason)

    def _give_back(self, peer: PeerId, message: WireMessage, reason: str) -> None:
        self._driver.drop(peer, message.meta, reason)
        self._loop.call_soon(self._driver.feed, SendDropped(peer, message, reason))

    async def drain(self, seconds: float) -> None:
        """Wait until nothing waits any more, but not longer than so many seconds."""
        await until(lambda: not self._queues, seconds)

    def close(self) -> None:
        """Forget everything."""
        for peer in list(self._queues):
            self._take(peer)
