"""Sends to peers that cannot be sent to yet: kept until a channel opens, or given back.

The rule: every message is sent, in its order, or the machine is told why not. What waits is bounded
by peer and in all, in messages and in bytes, and in time: a peer that cannot be reached within
`pending_timeout` gives back all that waits for it at once.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from rumormill.core import trace
from rumormill.core.ids import PeerId
from rumormill.core.inputs import SendDropped
from rumormill.core.messages import WireMessage
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialler import Dialler
from rumormill.libp2p.swarm import until
from rumormill.node.channel import Channel, MachineSide
from rumormill.node.config import NodeConfig

TOO_MANY_PENDING: Final = "too many messages wait for peers out of reach"
NOT_REACHED: Final = "not reached in time"
OURSELVES: Final = "that is this peer itself"


class Sender(MachineSide, Protocol):
    """What is needed of the driver."""

    @property
    def channels(self) -> Mapping[PeerId, Channel]:
        """The peers that are connected."""

    def send(self, peer: PeerId, message: WireMessage, framed: bytes, now: float) -> None:
        """Send a message to a peer that is connected."""


class _Queue:
    """What waits for one peer."""

    __slots__ = ("messages", "size", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.messages: list[tuple[WireMessage, bytes]] = []
        self.size = 0
        self.timer = timer


class PendingSends:
    """All messages of a node that wait for their peers."""

    def __init__(self, driver: Sender, dialler: Dialler, config: NodeConfig) -> None:
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
            self._driver.send(channel.peer, message, framed, now)

    def fail(self, peer: PeerId, reason: str) -> None:
        """A peer cannot be sent to: give back what waits for it."""
        for message, _ in self._take(peer):
            self._give_back(peer, message, reason)

    def _give_back(self, peer: PeerId, message: WireMessage, reason: str) -> None:
        self._driver.record(trace.DropRPC(peer, message.meta, reason))
        self._loop.call_soon(self._driver.feed, SendDropped(peer, message, reason))

    async def drain(self, seconds: float) -> None:
        """Wait until nothing waits any more, but not longer than so many seconds."""
        await until(lambda: not self._queues, seconds)

    def close(self) -> None:
        """Forget everything."""
        for peer in list(self._queues):
            self._take(peer)
