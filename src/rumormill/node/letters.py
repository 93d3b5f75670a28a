"""Letters to peers that cannot be sent to yet: kept until a channel opens, or given back.

The rule: every letter is sent, in its order, or the machine is told why not. What waits is bounded
by peer and in all, in letters and in bytes, and in time: a peer that cannot be reached within
`letter_timeout` gives back all its letters at once.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from rumormill.core import trace
from rumormill.core.ids import PeerId
from rumormill.core.inputs import SendDropped
from rumormill.core.messages import WireMessage
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialler import Dialler
from rumormill.node.channel import Channel
from rumormill.node.config import NodeConfig

if TYPE_CHECKING:
    from rumormill.node.driver import Driver

TOO_MANY_LETTERS: Final = "too many letters wait"
NOT_REACHED: Final = "not reached in time"
OURSELVES: Final = "that is this peer itself"
_POLL: Final = 0.01


class _Box:
    """The letters that wait for one peer."""

    __slots__ = ("letters", "size", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.letters: list[tuple[WireMessage, bytes]] = []
        self.size = 0
        self.timer = timer


class Letters:
    """All letters of a node that wait."""

    def __init__(self, driver: "Driver", dialler: Dialler, config: NodeConfig) -> None:
        self._driver = driver
        self._dialler = dialler
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._boxes: dict[PeerId, _Box] = {}
        self._count = self._size = 0

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._boxes

    def __len__(self) -> int:
        return self._count

    def add(self, peer: PeerId, message: WireMessage, framed: bytes) -> None:
        """Keep a letter until its peer can be sent to, and see to it that it can."""
        config, driver, size = self._config, self._driver, len(framed)
        box = self._boxes.get(peer)
        waiting, bytes_waiting = (0, 0) if box is None else (len(box.letters), box.size)
        channel = driver.channels.get(peer)
        if peer == driver.id:
            self._give_back(peer, message, OURSELVES)
        elif channel is not None and channel.refused:
            self._give_back(peer, message, channel.refused)
        elif (
            waiting >= config.letters_per_peer
            or bytes_waiting + size > config.letter_bytes_per_peer
            or self._count >= config.letters_waiting
            or self._size + size > config.letter_bytes_waiting
        ):
            driver.count("too-many-letters")
            self._give_back(peer, message, TOO_MANY_LETTERS)
        else:
            if box is None:
                box = self._open_box(peer)
            box.letters.append((message, framed))
            box.size += size
            self._count += 1
            self._size += size

    def _open_box(self, peer: PeerId) -> _Box:
        timeout = self._config.letter_timeout
        timer = self._loop.call_later(timeout, self.fail, peer, NOT_REACHED)
        box = self._boxes[peer] = _Box(timer)
        if peer not in self._driver.channels:
            self._dialler.reach(peer, self._on_reached)
        return box

    def _on_reached(self, peer: PeerId, connection: Connection | None, reason: str) -> None:
        if connection is None:
            self.fail(peer, reason)

    def _take_box(self, peer: PeerId) -> list[tuple[WireMessage, bytes]]:
        box = self._boxes.pop(peer, None)
        if box is None:
            return []
        box.timer.cancel()
        self._count -= len(box.letters)
        self._size -= box.size
        return box.letters

    def send(self, channel: Channel) -> None:
        """A peer can be sent to: send what waits for it."""
        now = self._driver.now()
        for message, framed in self._take_box(channel.peer):
            self._driver.send(channel.peer, message, framed, now)

    def fail(self, peer: PeerId, reason: str) -> None:
        """A peer cannot be sent to: give its letters back."""
        for message, _ in self._take_box(peer):
            self._give_back(peer, message, reason)

    def _give_back(self, peer: PeerId, message: WireMessage, reason: str) -> None:
        self._driver.record(trace.DropRPC(peer, message.meta, reason))
        self._loop.call_soon(self._driver.feed, SendDropped(peer, message, reason))

    async def drain(self, seconds: float) -> None:
        """Wait until no letter waits any more, but not longer than so many seconds."""
        deadline = self._loop.time() + seconds
        while self._boxes and self._loop.time() < deadline:  # noqa: ASYNC110 (each box ends alone)
            await asyncio.sleep(_POLL)

    def close(self) -> None:
        """Forget everything."""
        for peer in list(self._boxes):
            self._take_box(peer)
