"""What this peer keeps for others, and what it published itself: values, and providers of keys.

Values held for others are bounded in number and bytes. When they are full, the record farthest from
us makes room: its other holders are closer to it than we are, and whoever wants to flush a table
has to find keys that are ever closer to us. No peer may fill them alone. Our own records are apart,
and the oldest makes room. `changed` names the records that the disk does not have as they are.

Providers are remembered as they said themselves, bounded in keys and in providers of a key. When
the keys are full, the key farthest from us makes room; among the providers of a key, the one that
was silent longest. One group of addresses has an eighth of a key's providers, so that who is many
does not hide the others.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

import msgspec

from rumormill.core.bounded import remember
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.config import HOUR, KademliaConfig
from rumormill.overlay.kademlia.table import position

RECORD_AGE: Final = 36 * HOUR
"""Seconds for which a record is held (go and js: 36 h)."""

_RENEWED: Final = 6 * HOUR
"""How much younger a record must be than the disk says to be written again. Our choice."""
_SHARE: Final = 8
"""One group of addresses has so much of a key's providers: an eighth."""

STORE_FULL = "kad-store-full"
PEER_FULL = "kad-peer-records-full"
OWN_FULL = "kad-own-records-full"
PROVIDERS_FULL = "kad-providers-full"


class Held(msgspec.Struct):
    """A value, when it was published as far as we know, when it is to be passed on, what vouches
    for it, and who gave it to us."""

    key: bytes
    value: bytes
    received: float
    due: float
    proof: bytes = b""
    source: PeerId = b""
    written: float = 0.0
    """When it was published, as far as the disk knows."""

    @property
    def size(self) -> int:
        """The bytes that count against the bound."""
        return len(self.key) + len(self.value) + len(self.proof)


class RecordStore:
    """Values by key."""

    __slots__ = (
        "_by_distance",
        "_bytes",
        "_config",
        "_given",
        "_held",
        "_own",
        "_position",
        "changed",
    )

    def __init__(self, own_position: int, config: KademliaConfig) -> None:
        self._position = own_position
        self._config = config
        self._held: dict[bytes, Held] = {}
        self._own: dict[bytes, Held] = {}
        self._by_distance: list[tuple[int, bytes]] = []
        self._bytes = 0
        self._given: dict[PeerId, list[int]] = {}
        """How many records, and bytes, each peer gave us."""
        self.changed: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes, now: float) -> Held | None:
        """Return a record that has not expired, our own ones first."""
        own = self._own.get(key)
        if own is not None:
            return own
        held = self._held.get(key)
        if held is not None and now - held.received > RECORD_AGE:
            self._drop(key)
            return None
        return held

    @property
    def counts(self) -> dict[str, int]:
        """How many records are held for others, and bytes of them; how many are our own."""
        return {"held": len(self._held), "bytes": self._bytes, "own": len(self._own)}

    def own(self, key: bytes) -> Held | None:
        """Return a record that this peer published."""
        return self._own.get(key)

    def publish(self, record: Held) -> bytes | None:
        """Keep a record of our own; return the key of the one that made room, if one did."""
        gone = remember(self._own, record.key, record, self._config.own_records)
        self.changed[record.key] = None
        if gone is not None:
            self.changed[gone] = None
        return gone

    def withdraw(self, key: bytes) -> bool:
        """Publish a record of ours no longer; others forget it when it expires."""
        self.changed[key] = None
        return self._own.pop(key, None) is not None

    def held(self, key: bytes) -> Held | None:
        """Return a record that is held for others, expired or not."""
        return self._held.get(key)

    def renew(self, record: Held, now: float) -> None:
        """Let a record's age begin anew."""
        record.received = now
        if now - record.written >= _RENEWED:
            self.changed[record.key] = None

    def hold(self, record: Held) -> str:
        """Hold a record for others; return why not, or an empty string."""
        key, size, config = record.key, record.size, self._config
        old = self._held.get(key)
        if old is not None:
            record.source = old.source
            if old.value == record.value and old.proof == record.proof:
                old.due = record.due
                self.renew(old, record.received)
                return ""
            self._drop(key)
        entry = (position(key) ^ self._position, key)
        count, given = self._given.get(record.source, (0, 0))
        if count >= config.records_per_peer or given + size > config.records_per_peer_bytes:
            return PEER_FULL
        while len(self._held) >= config.records or self._bytes + size > config.records_bytes:
            if not self._by_distance or self._by_distance[-1] <= entry:
                return STORE_FULL
            self._drop(self._by_distance[-1][1])
        insort(self._by_distance, entry)
        self._held[key] = record
        self._count(record, 1)
        self.changed[key] = None
        return ""

    def _count(self, record: Held, change: int) -> None:
        size = change * record.size
        self._bytes += size
        given = self._given.setdefault(record.source, [0, 0])
        given[0] += change
        given[1] += size
        if not given[0]:
            del self._given[record.source]

    def _drop(self, key: bytes) -> None:
        held = self._held.pop(key)
        self._count(held, -1)
        self.changed[key] = None
        entry = (position(key) ^ self._position, key)
        del self._by_distance[bisect_left(self._by_distance, entry)]

    def expire(self, now: float) -> int:
        """Drop what is too old; return how many records that were."""
        oldest = now - RECORD_AGE
        old = [key for key, held in self._held.items() if held.received < oldest]
        for key in old:
            self._drop(key)
        return len(old)

    def due(self, now: float) -> Iterator[Held]:
        """The records that are to be passed on by now, our own ones first."""
        for held in self._own.values():
            if held.due <= now:
                yield held
        if self._config.replicate_interval:
            oldest = now - RECORD_AGE
            for held in self._held.values():
                if held.due <= now and held.received >= oldest:
                    yield held


class _Provider(msgspec.Struct, frozen=True, gc=False):
    """Until when a provider is remembered, and its group of addresses."""

    until: float
    group: str


class ProviderStore:
    """Providers of keys, and the keys that this peer provides."""

    __slots__ = ("_by_distance", "_config", "_keys", "_position", "own")

    def __init__(self, own_position: int, config: KademliaConfig) -> None:
        self._position = own_position
        self._config = config
        self._keys: dict[bytes, dict[PeerId, _Provider]] = {}
        self._by_distance: list[tuple[int, bytes]] = []
        self.own: dict[bytes, float] = {}
        """The keys that this peer provides, and when it has to say so again."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes, provider: PeerId, now: float, group: str = "") -> str:
        """Remember a provider from a group of addresses; return why not, or an empty string."""
        providers = self._keys.get(key)
        if providers is None:
            entry = (position(key) ^ self._position, key)
            if len(self._keys) >= self._config.provider_keys:
                farthest = self._by_distance[-1]
                if farthest <= entry:
                    return PROVIDERS_FULL
                self._by_distance.pop()
                del self._keys[farthest[1]]
            insort(self._by_distance, entry)
            providers = self._keys[key] = {}
        most = self._config.providers_per_key
        same = [peer for peer, each in providers.items() if group and each.group == group]
        if len(same) >= max(1, most // _SHARE) and provider not in same:
            del providers[same[0]]
        remember(providers, provider, _Provider(now + self._config.provider_age, group), most)
        return ""

    def get(self, key: bytes, now: float) -> list[PeerId]:
        """The providers of a key, those that were heard of last first."""
        providers = self._keys.get(key, {})
        return [peer for peer, each in reversed(providers.items()) if each.until > now]

    def provide(self, key: bytes, due: float) -> bytes | None:
        """Provide a key ourselves; return the key that made room, if one did."""
        return remember(self.own, key, due, self._config.provider_keys)

    def expire(self, now: float) -> int:
        """Forget what is too old; return how many providers that were."""
        dropped = 0
        for key, providers in list(self._keys.items()):
            old = [peer for peer, each in providers.items() if each.until <= now]
            for peer in old:
                del providers[peer]
            dropped += len(old)
            if not providers:
                del self._keys[key]
                entry = (position(key) ^ self._position, key)
                del self._by_distance[bisect_left(self._by_distance, entry)]
        return dropped
