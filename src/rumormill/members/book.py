"""The peers that a node remembers, in this life and the next.

Whoever was connected and can be dialled stands here, with when it was last there and how often it
was tried in vain since. Bounded: when the book is full, the one that was tried in vain most often,
and of those the one that was not seen for longest, makes room. One group of addresses has a bounded
share: a newcomer from a group that has its share takes the place of one of its own.

The rule: what is here was told by nobody else. Every peer in it has proved who it is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from rumormill.core.ids import PeerId

MEMBERS_NOTE: Final = "members"
"""The key under which the log keeps it."""

_FIRST_REST: Final = 0.5
_LONGEST_REST: Final = 15.0
"""Seconds for which a peer that could not be reached is left alone: they double up to this, so that
who is back is found within half a minute."""
_LET_GO_REST: Final = 20.0
"""Seconds for which one that has parted from us in order is not sought again: it had its reason."""
_FORGOTTEN_AFTER: Final = 7 * 86400.0
"""Seconds without a sign of life after which a peer is forgotten."""
_MAX_ADDRESSES: Final = 4
_SHARE: Final = 8
"""One group of addresses has so much of the book: an eighth."""


class Known(msgspec.Struct, array_like=True, gc=False):
    """A peer that is remembered."""

    peer: PeerId
    addresses: tuple[bytes, ...]
    group: str
    seen: float
    """When it was last connected."""
    failures: int = 0
    """How often it was tried in vain since."""
    lost: bool = False
    """Whether it has vanished, or could not be reached: who is back shall be noticed."""
    tried: float = 0.0
    rests: float = 0.0
    """Until when it is left alone."""


class Book:
    """Remembered peers."""

    __slots__ = ("_known", "_share", "_size", "changed")

    def __init__(self, size: int) -> None:
        self._size = size
        self._share = max(1, size // _SHARE)
        self._known: dict[PeerId, Known] = {}
        self.changed = False
        """Whether something is to be written down."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._known

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def group_of(self, peer: PeerId) -> str:
        """The group of addresses that a peer was last seen in."""
        known = self._known.get(peer)
        return "" if known is None else known.group

    def is_lost(self, peer: PeerId) -> bool:
        """Whether a peer is missed."""
        known = self._known.get(peer)
        return known is not None and known.lost

    @property
    def lost(self) -> int:
        """How many are missed."""
        return sum(each.lost for each in self._known.values())

    # What happens to them.

    def meet(self, peer: PeerId, group: str, now: float) -> None:
        """A peer is connected, and can be dialled another time."""
        known = self._known.get(peer)
        if known is not None:
            self.changed |= known.lost or known.group != group
            known.group, known.seen, known.failures, known.lost = group, now, 0, False
            return
        self._make_room(group)
        self._known[peer] = Known(peer, (), group, now)
        self.changed = True

    def _make_room(self, group: str) -> None:
        same = [each for each in self._known.values() if group and each.group == group]
        crowd = same if len(same) >= self._share else list(self._known.values())
        if crowd is same or len(crowd) >= self._size:
            worst = max(crowd, key=lambda each: (each.failures, -each.seen))
            del self._known[worst.peer]

    def part(self, peer: PeerId, lost: bool, now: float) -> None:
        """A connection has ended: because one side wanted it, or because the peer was lost."""
        known = self._known.get(peer)
        if known is not None:
            known.seen = now
            known.lost = lost
            known.rests = now + (_FIRST_REST if lost else _LET_GO_REST)

    def fail(self, peer: PeerId, now: float) -> None:
        """A peer could not be reached."""
        known = self._known.get(peer)
        if known is not None:
            known.failures += 1
            known.lost = True
            known.rests = now + min(_FIRST_REST * 2 ** min(known.failures, 16), _LONGEST_REST)
            if now - known.seen > _FORGOTTEN_AFTER:
                del self._known[peer]
                self.changed = True

    # Whom to try.

    def rested(self, now: float) -> list[PeerId]:
        """Those who may be sought."""
        return [each.peer for each in self._known.values() if each.rests <= now]

    def missed(self, now: float) -> PeerId | None:
        """Of the lost ones that may be sought, the one that was not tried for longest."""
        able = [each for each in self._known.values() if each.lost and each.rests <= now]
        return min(able, key=lambda each: each.tried).peer if able else None

    def note_tried(self, peer: PeerId, now: float) -> None:
        """A peer is being tried."""
        known = self._known.get(peer)
        if known is not None:
            known.tried = now

    # On disk.

    def written(self, addresses: Callable[[PeerId], Sequence[bytes]]) -> bytes:
        """The book as bytes, with where everybody can be reached now."""
        self.changed = False
        for each in self._known.values():
            each.addresses = tuple(addresses(each.peer)[:_MAX_ADDRESSES]) or each.addresses
        return msgspec.msgpack.encode(list(self._known.values()))

    def read(self, written: bytes, now: float) -> list[Known]:
        """Take in what was written down in an earlier life; return those who are new here."""
        try:
            found = msgspec.msgpack.decode(written, type=list[Known])
        except msgspec.MsgspecError:
            return []  # of another version: what is not remembered is met again
        new = [each for each in found[: self._size] if each.peer not in self._known]
        for each in new:
            if 0 <= now - each.seen <= _FORGOTTEN_AFTER and len(self._known) < self._size:
                each.tried = each.rests = 0.0
                self._known[each.peer] = each
        return new
