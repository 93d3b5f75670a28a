"""Judges how peers read: whom publishing waits for, and who is given up.

A publisher is made to wait while a peer that reads has half a queue of messages before it: so a
burst loses nothing. That must not let one peer hold up all others, so nobody is waited for who

  - has let a message wait in its queue for `slow_peer_after` seconds, or
  - reads less than half as fast as another has been seen to read lately.

Such a peer is slow until its queue is empty: what does not fit its queue meanwhile is lost to it,
counted, and told to the protocol. Whoever lets a message wait for `slow_peer_limit` seconds is
disconnected, however slowly its queue moves; and so is the one with the longest queue when all
queues together have no room left. The rule: a slow reader costs itself, and nobody else.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rumormill.core.ids import PeerId
from rumormill.libp2p.connection import Connection
from rumormill.node.channel import Channel
from rumormill.node.config import NodeConfig

SLOW_PEER: Final = "slow-peer"
STUCK_PEER: Final = "stuck-peer"
QUEUES_FULL: Final = "queues-full"

_LOOK: Final = 0.5
"""Seconds for which a peer is watched that makes publishers wait: what that costs at most."""
_SHARE: Final = 0.5
_FADING: Final = 0.98
"""By which the best speed seen counts less with each second: it is half after half a minute."""


class _Reader(msgspec.Struct):
    """What was seen of one channel."""

    taken: int = 0
    seen_at: float = 0.0
    best: float = 0.0
    """The most bytes per second that it read lately."""


class Readers:
    """All channels of a node as readers."""

    def __init__(
        self,
        channels: Mapping[PeerId, Channel],
        config: NodeConfig,
        now: Callable[[], float],
        on_slow: Callable[[PeerId, str], None],
        unsent: Callable[[], dict[Connection, int]],
    ) -> None:
        self._channels = channels
        self._config = config
        self._now = now
        self._on_slow = on_slow
        """Told of peers that are not waited for any more."""
        self._unsent = unsent
        """What waits for each peer, wherever it waits."""
        self._seen: dict[Channel, _Reader] = {}
        self._look: asyncio.TimerHandle | None = None

    def hold_up(self) -> bool:
        """Whether publishing has to wait for a peer."""
        behind = any(each.behind and not each.slow for each in self._channels.values())
        if behind and self._look is None:
            self._note(self._now())
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(_LOOK, self._judge)
        return behind

    def inspect(self, seconds: float) -> None:
        """Once in a while: note how fast peers read, and give up those that do not."""
        now = self._now()
        for reader in self._seen.values():
            reader.best *= _FADING**seconds
        if self._look is None:
            self._note(now)
        for channel in list(self._channels.values()):
            since = channel.waits_since
            if since is not None and now - since > self._config.slow_peer_limit:
                self._on_slow(channel.peer, STUCK_PEER)
                channel.connection.close(STUCK_PEER)
        self._shrink(self._config.queue_bytes_total)

    def make_room(self) -> None:
        """All queues together are full: give up whoever has the most in its own."""
        self._shrink(sum(self._unsent().values()) - 1)

    def _shrink(self, most: int) -> None:
        """Give up those with the most, until no more than so many bytes wait in all."""
        unsent = self._unsent()
        total = sum(unsent.values())
        for connection in sorted(unsent, key=unsent.__getitem__, reverse=True):
            if total <= most:
                return
            total -= unsent[connection]
            self._on_slow(connection.remote_peer, QUEUES_FULL)
            connection.close(QUEUES_FULL)

    def close(self) -> None:
        """Judge nobody any more."""
        if self._look is not None:
            self._look.cancel()

    def _note(self, now: float) -> dict[Channel, float]:
        """How fast each channel has read since the last time, in bytes per second."""
        speeds = {}
        seen, self._seen = self._seen, {}
        for channel in self._channels.values():
            reader = self._seen[channel] = seen.get(channel) or _Reader(0, channel.since)
            if now > reader.seen_at:
                speed = speeds[channel] = (channel.taken - reader.taken) / (now - reader.seen_at)
                reader.best = max(reader.best, speed)
            reader.taken, reader.seen_at = channel.taken, now
        return speeds

    def _judge(self) -> None:
        """Stop waiting for those that have been behind and hold up others."""
        self._look = None
        now = self._now()
        speeds = self._note(now)
        for channel in self._channels.values():
            if channel.slow or not channel.behind:
                continue
            best = max((self._seen[each].best for each in speeds if each is not channel), default=0)
            since = channel.waits_since or now
            late = now - since > self._config.slow_peer_after
            if late or speeds.get(channel, 0.0) < _SHARE * best:
                channel.slow = True
                self._on_slow(channel.peer, SLOW_PEER)
        if not self.hold_up():
            for channel in self._channels.values():
                channel.driver.on_change()
                break
