"""Judges how peers read: whom publishing waits for, and who is given up.

A publisher is made to wait while a peer that reads has half a queue of messages before it: so a
burst loses nothing. That must not let one peer hold up all others, so nobody is waited for who

  - reads less than half as fast as another has been seen to read lately, or
  - has not taken a byte for `slow_peer_after` seconds, or hardly any while messages waited so long.

Such a peer is slow until its queue is empty: what does not fit its queue meanwhile is lost to it,
counted, and told to the protocol. A slow peer that has let a message wait for `slow_peer_limit`
seconds is disconnected, whether or not its queue moves; and so is the one with the longest queue
when all queues together have no room left. The rule: a slow reader costs itself, and nobody else.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from rumormill.core.ids import PeerId
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.swarm import Swarm
from rumormill.node.channel import Channel
from rumormill.node.config import NodeConfig

SLOW_PEER: Final = "slow-peer"
STUCK_PEER: Final = "stuck-peer"
QUEUES_FULL: Final = "queues-full"

_LOOK: Final = 0.5
"""Seconds for which a peer is watched that makes publishers wait: what that costs at most."""
_SHARE: Final = 0.5
_HARDLY: Final = 64 << 10
"""Bytes per second under which nobody is waited for, even where there is nobody to compare with."""
_FADING: Final = 0.98
"""By which the best speed seen counts less with each second: it is half after half a minute."""


class _Reader(msgspec.Struct):
    """What was seen of one channel."""

    taken: int = 0
    seen_at: float = 0.0
    moved_at: float = 0.0
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
        on_room: Callable[[], None],
        unsent: Callable[[], dict[Connection, int]],
    ) -> None:
        self._channels = channels
        self._config = config
        self._now = now
        self._on_slow = on_slow
        """Told of peers that are not waited for any more."""
        self._on_room = on_room
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
            self._look = loop.call_later(_LOOK, self._end_look)
        return behind

    def inspect(self, seconds: float) -> None:
        """Once in a while: note how fast peers read, and give up those that do not."""
        now = self._now()
        for reader in self._seen.values():
            reader.best *= _FADING**seconds
        if self._look is None:
            self._judge(now)
        for channel in list(self._channels.values()):
            since = channel.waits_since
            if channel.slow and since is not None and now - since > self._config.slow_peer_limit:
                self._on_slow(channel.peer, STUCK_PEER)
                channel.connection.close(STUCK_PEER)
        self._shrink(self._config.queue_bytes_total)

    def make_room(self) -> None:
        """All queues together are full: give up whoever has the most, until a quarter is free.

        Until then, and no further: everything that finds no room in a turn asks for it.
        """
        self._shrink(self._config.queue_bytes_total * 3 // 4)

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
            reader = seen.get(channel) or _Reader(0, channel.since, channel.since)
            self._seen[channel] = reader
            if now > reader.seen_at:
                speed = speeds[channel] = (channel.taken - reader.taken) / (now - reader.seen_at)
                reader.best = max(reader.best, speed)
            if channel.taken > reader.taken or channel.waits_since is None:
                reader.moved_at = now
            reader.taken, reader.seen_at = channel.taken, now
        return speeds

    def _judge(self, now: float) -> None:
        """Find those slow that have something before them and do not read it as they should."""
        patience = self._config.slow_peer_after
        speeds = self._note(now)
        for channel, speed in speeds.items():
            since = channel.waits_since
            if channel.slow or since is None:
                continue
            others = (self._seen[each].best for each in speeds if each is not channel)
            if (
                (channel.behind and speed < _SHARE * max(others, default=0.0))
                or now - self._seen[channel].moved_at > patience
                or (now - since > patience and speed < _HARDLY)
            ):
                channel.slow = True
                self._on_slow(channel.peer, SLOW_PEER)

    def _end_look(self) -> None:
        """Publishers have waited for a while: need they wait longer?"""
        self._look = None
        self._judge(self._now())
        if not self.hold_up():
            self._on_room()


def unsent(
    swarm: Swarm, channels: Mapping[PeerId, Channel], answers: Sequence[Mapping[PeerId, int]]
) -> dict[Connection, int]:
    """What waits for each peer: in the queue of its channel, as answers, in its connections."""
    found = {each: each.unsent for each in swarm.spares.values()}
    for peer, connection in swarm.connections.items():
        found[connection] = connection.unsent + sum(each.get(peer, 0) for each in answers)
        if (channel := channels.get(peer)) is not None:
            found[connection] += channel.queued_bytes
    return found
