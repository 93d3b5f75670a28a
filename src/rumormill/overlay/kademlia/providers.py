"""Who provides what: providers by key, as they said themselves.

Bounded in keys and in providers of a key. When the keys are full, the key farthest from us makes
room; among the providers of a key, the one that was silent longest.
"""

from bisect import bisect_left, insort
from typing import Final

from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.config import HOUR, KademliaConfig
from rumormill.overlay.kademlia.space import position

PROVIDER_AGE: Final = 48 * HOUR
"""Seconds for which a provider is remembered (specification: 48 hours)."""

PROVIDERS_FULL = "kad-providers-full"


class ProviderStore:
    """Providers of keys, and the keys that this peer provides."""

    __slots__ = ("_by_distance", "_config", "_keys", "_position", "own")

    def __init__(self, own_position: int, config: KademliaConfig) -> None:
        self._position = own_position
        self._config = config
        self._keys: dict[bytes, dict[PeerId, float]] = {}
        self._by_distance: list[tuple[int, bytes]] = []
        self.own: dict[bytes, float] = {}
        """The keys that this peer provides, and when it has to say so again."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes, provider: PeerId, now: float) -> str:
        """Remember a provider; return why not, or an empty string."""
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
        providers.pop(provider, None)
        if len(providers) >= self._config.providers_per_key:
            del providers[next(iter(providers))]
        providers[provider] = now + PROVIDER_AGE
        return ""

    def get(self, key: bytes, now: float) -> list[PeerId]:
        """The providers of a key, those that were heard of last first."""
        providers = self._keys.get(key, {})
        return [peer for peer, until in reversed(providers.items()) if until > now]

    def provide(self, key: bytes, due: float) -> bytes | None:
        """Provide a key ourselves; return the key that made room, if one did."""
        self.own.pop(key, None)
        evicted = None
        if len(self.own) >= self._config.provider_keys:
            evicted = next(iter(self.own))
            del self.own[evicted]
        self.own[key] = due
        return evicted

    def expire(self, now: float) -> int:
        """Forget what is too old; return how many providers that were."""
        dropped = 0
        for key, providers in list(self._keys.items()):
            old = [peer for peer, until in providers.items() if until <= now]
            for peer in old:
                del providers[peer]
            dropped += len(old)
            if not providers:
                del self._keys[key]
                entry = (position(key) ^ self._position, key)
                del self._by_distance[bisect_left(self._by_distance, entry)]
        return dropped
