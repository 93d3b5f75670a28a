"""What peers bring into the log: how much of it, and whose streams are not read for a while.

Every peer has an account of bytes: so many at once, and so many back with each second. What it
sends beyond is not refused, because nobody sends it again: it waits, with the peer, until there are
bytes for it. In the same way everybody waits while the log does not keep up.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.libp2p.stream import Stream
from rumormill.libp2p.swarm import Swarm
from rumormill.node.config import NodeConfig
from rumormill.node.journal import Journal

STORAGE_QUOTA: Final = "storage-quota"

_MAX_ACCOUNTS: Final = 4096
_ROW_BYTES: Final = 256
"""What an event takes in the log beside its data: ids, signature, hashes, index."""
_IN_DEBT: Final = 50.0
"""What is held against a peer (`libp2p.admission`) for an event of who has found a way around."""


class _Account(msgspec.Struct):
    left: float
    since: float


class StorageQuota:
    """The accounts of all peers that sent something to store lately."""

    def __init__(self, at_once: float, per_second: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._accounts: dict[PeerId, _Account] = {}

    def charge(self, peer: PeerId, size: int, now: float) -> bool:
        """Charge a peer for an event; return whether it is in debt as deep as its quota is high,
        which nobody reaches who waits when made to wait."""
        accounts, most = self._accounts, self._at_once
        account = accounts.pop(peer, None) or _Account(most, now)
        left = account.left + (now - account.since) * self._per_second
        account.left = left = min(left, most) - size - _ROW_BYTES
        account.since = now
        accounts[peer] = account
        if len(accounts) > _MAX_ACCOUNTS:  # who has sent nothing for longest
            del accounts[next(iter(accounts))]
        return left < -most

    def pause(self, peer: PeerId, now: float) -> float:
        """Seconds until a peer has bytes left; 0 if it has."""
        account = self._accounts.get(peer)
        if account is None or account.left >= 0:
            return 0.0
        return max(0.0, account.since - account.left / self._per_second - now)


class Intake:
    """Decides when the streams of peers are read."""

    def __init__(
        self,
        swarm: Swarm,
        journal: Journal,
        config: NodeConfig,
        now: Callable[[], float],
        record: Callable[[trace.TracePayload], None],
    ) -> None:
        self._swarm = swarm
        self._journal = journal
        self._now = now
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._quota = StorageQuota(config.stored_bytes_at_once, config.stored_bytes_per_second)
        self._held: dict[Stream, asyncio.TimerHandle | None] = {}
        """Streams that are not read, and the timer of those whose peers are over their quota."""
        journal.on_room = self._release_all

    def charge(self, peer: PeerId, event: Event, now: float) -> None:
        """Charge a peer for what it has us store."""
        if self._quota.charge(peer, len(event.data), now):
            self._swarm.blame(peer, STORAGE_QUOTA, _IN_DEBT)

    def hold_if_busy(self, stream: Stream) -> None:
        """Stop reading from a stream while the log does not keep up, or its peer is over quota."""
        if stream in self._held:
            return
        peer = stream.connection.remote_peer
        if pause := self._quota.pause(peer, self._now()):
            self._swarm.count(STORAGE_QUOTA)
            self._record(trace.Refuse(peer, STORAGE_QUOTA))
        if pause or self._journal.is_full():
            stream.hold()
            self._hold(stream, pause)

    def _hold(self, stream: Stream, pause: float) -> None:
        timer = self._loop.call_later(pause, self._release, stream) if pause else None
        self._held[stream] = timer

    def _release_all(self) -> None:
        """The log keeps up: go on reading."""
        for stream in [*self._held]:
            self._release(stream)

    def _release(self, stream: Stream) -> None:
        """Go on reading from a stream, unless there is still a reason not to."""
        if self._journal.is_full():
            return
        self.forget(stream)
        if pause := self._quota.pause(stream.connection.remote_peer, self._now()):
            self._hold(stream, pause)
        else:
            stream.release()

    def forget(self, stream: Stream) -> None:
        """A stream is gone."""
        timer = self._held.pop(stream, None)
        if timer is not None:
            timer.cancel()
