"""What peers bring into the log: how much of it, and whose streams are not read for a while.

Every peer has an account of bytes, and one for each topic: so many at once, and so many back with
each second. What it sends beyond is not refused, because nobody sends it again: it waits, with the
peer, until there are bytes for it. In the same way everybody waits while the log does not keep up.

RPCs that have come in part are held up to a total for all peers. Beyond it the one that has been
coming for longest is given up with its stream: those of honest peers take a moment.
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
UNFINISHED: Final = "unfinished-rpcs"

UNFINISHED_BYTES: Final = 64 << 20
"""Of RPCs that have come in part, of all peers. Our choice: half of what all queues may hold."""

_MAX_ACCOUNTS: Final = 4096
_OF_ONE_TOPIC: Final = 0.75
"""The share of what a peer may have stored that may be of one topic: whoever floods a topic waits
while the peer's account still has bytes for others, and no topic fills the disk on its own."""
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
        self._accounts: dict[PeerId | tuple[PeerId, str], _Account] = {}
        """Who sent something last stands last."""
        self._latest: tuple[PeerId, str] | None = None
        self._both: tuple[_Account, _Account]
        """The accounts of the latest peer, in all and in its topic: most events follow another."""
        self._until: dict[PeerId, float] = {}
        """When peers that are over their quota have bytes again, in every account."""

    def charge(self, peer: PeerId, topic: str, size: int, now: float) -> bool:
        """Charge a peer for an event; return whether it is in debt as deep as its quota is high,
        which nobody reaches who waits when made to wait."""
        if (peer, topic) != self._latest:
            self._latest = (peer, topic)
            self._both = self._open(peer, 1.0, now), self._open((peer, topic), _OF_ONE_TOPIC, now)
        whole, part = self._both
        if not whole.since == part.since == now:  # most events came in one message with others
            self._refill(whole, 1.0, now)
            self._refill(part, _OF_ONE_TOPIC, now)
        whole.left = left = whole.left - size - _ROW_BYTES
        part.left = of_topic = part.left - size - _ROW_BYTES
        if left >= 0 and of_topic >= 0:
            return False
        pause = max(-left, -of_topic / _OF_ONE_TOPIC) / self._per_second
        self._until[peer] = max(self._until.pop(peer, 0.0), now + pause)
        if len(self._until) > _MAX_ACCOUNTS:
            del self._until[next(iter(self._until))]
        return left < -self._at_once or of_topic < -self._at_once * _OF_ONE_TOPIC

    def _open(self, key: PeerId | tuple[PeerId, str], share: float, now: float) -> _Account:
        """An account, as that of the latest."""
        accounts = self._accounts
        account = accounts.pop(key, None) or _Account(self._at_once * share, now)
        accounts[key] = account
        if len(accounts) > _MAX_ACCOUNTS:  # who has sent nothing for longest
            del accounts[next(iter(accounts))]
        return account

    def _refill(self, account: _Account, share: float, now: float) -> None:
        left = account.left + (now - account.since) * self._per_second * share
        account.left, account.since = min(left, self._at_once * share), now

    def pause(self, peer: PeerId, now: float) -> float:
        """Seconds until a peer has bytes left; 0 if it has."""
        if peer not in self._until:
            return 0.0
        pause = self._until[peer] - now
        if pause > 0:
            return pause
        del self._until[peer]
        return 0.0


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
        self._parts: dict[Stream, int] = {}
        """Bytes of the RPC that each stream is in the middle of; which began first stands first."""
        self.unfinished = 0
        """The sum of these."""
        journal.on_room = self._release_all
        journal.more_comes = lambda: swarm.turns.fruitful > 0
        swarm.turns.others_work = lambda: journal.in_flight > 0

    def charge(self, peer: PeerId, event: Event, now: float) -> None:
        """Charge a peer for what it has us store."""
        if self._quota.charge(peer, event.topic, len(event.data), now):
            self._swarm.blame(peer, STORAGE_QUOTA, _IN_DEBT)

    def note_part(self, stream: Stream, size: int, *, anew: bool) -> None:
        """So many bytes of an unfinished RPC have come, which is another than before, or not."""
        before = self._parts.pop(stream, 0) if anew else self._parts.get(stream, 0)
        self.unfinished += size - before
        if size:
            self._parts[stream] = size
        else:
            self._parts.pop(stream, None)
        while self.unfinished > UNFINISHED_BYTES:
            oldest = next(iter(self._parts))
            self._swarm.count(UNFINISHED)
            self._record(trace.Refuse(oldest.connection.remote_peer, UNFINISHED))
            oldest.reset()
            self.forget(oldest)

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
        self._stop_holding(stream)
        if pause := self._quota.pause(stream.connection.remote_peer, self._now()):
            self._hold(stream, pause)
        else:
            stream.release()

    def forget(self, stream: Stream) -> None:
        """A stream is gone."""
        self.unfinished -= self._parts.pop(stream, 0)
        self._stop_holding(stream)

    def _stop_holding(self, stream: Stream) -> None:
        timer = self._held.pop(stream, None)
        if timer is not None:
            timer.cancel()
