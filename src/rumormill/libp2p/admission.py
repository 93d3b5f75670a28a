"""Admission: who has a place among a node's connections, and who makes room.

Places are few, and whoever floods takes those that are free. So a node that is full does not refuse
a newcomer: it lets go of one from where most come from. Origins are compared twice, by group (an
IPv4 /24, an IPv6 /48: what one party usually holds) and inside a group by address. The rule: no
origin has more places than another that asks for one, except those that nobody asks for. A crowd
of sybils in one group competes with itself, and a newcomer from elsewhere always gets in.

Connections whose handshake is not done have places of their own, and the oldest of the most crowded
origin goes first: an honest handshake takes some round trips, a half-open socket waits for ever.

Conduct is an account: every refusal, whatever for, costs a point or more, and points come back with
time. An honest peer is refused something now and then; one that floods has used up its points in
a moment, and is cut off. It is not let in again for a while, which doubles each time; when that
happens to several peers of one group, to the group.
"""

from collections.abc import Hashable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Generic, TypeVar

import msgspec

from rumormill.core.ids import PeerId
from rumormill.wire import keys

Key = TypeVar("Key", bound=Hashable)

_POINTS: Final = 1000.0
_POINTS_PER_SECOND: Final = 50.0
"""Our choice: what an honest peer may be refused at once, as when we have left a topic in which it
still sends, and what it may be refused all the time."""
_MAX_REASONS: Final = 32
_MAX_ACCOUNTS: Final = 4096
_FIRST_BAN: Final = 60.0
_LONGEST_BAN: Final = 3600.0
_GROUP_OFFENDERS: Final = 4
"""Our choice: one NAT may hold a bad peer or two beside good ones, four are a campaign."""
_MAX_BANS: Final = 4096


class Origin(msgspec.Struct, frozen=True):
    """Where a connection comes from."""

    group: str
    address: str


def origin_of(host: str) -> Origin:
    """The origin of a network address in text; one that is no IP address stands for itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return Origin(host, host)
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    text = str(address)
    if address.is_loopback:
        return Origin(text, text)
    if isinstance(address, IPv6Address):
        return Origin(f"{IPv6Address(int(address) >> 80 << 80)}/48", text)
    return Origin(f"{IPv4Address(int(address) >> 8 << 8)}/24", text)


def relayed(relay: PeerId) -> Origin:
    """The origin of all that comes through a relay: they share places, and nobody else's faults."""
    name = f"by {keys.PeerId(relay)}"
    return Origin(name, name)


class Places(Generic[Key]):
    """A bounded number of places, shared out fairly among origins."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._origins: dict[Key, Origin] = {}
        self._held: dict[str, dict[str, dict[Key, None]]] = {}
        """By group and address, who holds places there, the oldest first."""

    def __len__(self) -> int:
        return len(self._origins)

    def __contains__(self, key: Key) -> bool:
        return key in self._origins

    @property
    def full(self) -> bool:
        """Whether the next one needs somebody else's place."""
        return len(self._origins) >= self._most

    def add(self, key: Key, origin: Origin) -> None:
        """Give a place to somebody; whoever calls has made room."""
        self._origins[key] = origin
        self._held.setdefault(origin.group, {}).setdefault(origin.address, {})[key] = None

    def remove(self, key: Key) -> None:
        """Free a place, if it is held."""
        origin = self._origins.pop(key, None)
        if origin is None:
            return
        group = self._held[origin.group]
        del group[origin.address][key]
        if not group[origin.address]:
            del group[origin.address]
            if not group:
                del self._held[origin.group]

    def count(self, origin: Origin) -> int:
        """How many places one address holds."""
        return len(self._held.get(origin.group, {}).get(origin.address, ()))

    def candidates(self, newcomer: Origin, *, ties: bool) -> list[Key]:
        """Whose place a newcomer may have: those of the most crowded origin, the oldest first.

        None when the newcomer would be no better off than they are: its own origin is the most
        crowded one. With `ties` one of its own origin may go, for places where the newer is worth
        more than the older.
        """
        own = self._held.get(newcomer.group, {})
        crowd = max(self._held.values(), key=_size, default=own)
        if _size(crowd) < _size(own) + 2:
            crowd = own
            crowded = max(len(each) for each in own.values()) if own else 0
            if crowded < len(own.get(newcomer.address, ())) + 2:
                if not ties:
                    return []
                crowd = own or max(self._held.values(), key=_size, default=own)
        return max((list(held) for held in crowd.values()), key=len, default=[])


def _size(group: dict[str, dict[Key, None]]) -> int:
    return sum(map(len, group.values()))


class Conduct:
    """The accounts of peers: what they were refused lately."""

    def __init__(self) -> None:
        self._accounts: dict[PeerId, _Account] = {}

    def blame(self, peer: PeerId, reason: str, points: float, now: float) -> str | None:
        """Charge a peer; return for what most of all when it has no points left."""
        account = self._accounts.get(peer)
        if account is None:
            account = self._accounts[peer] = _Account(_POINTS, now, {})
            if len(self._accounts) > _MAX_ACCOUNTS:  # the oldest has long been whole again
                del self._accounts[next(iter(self._accounts))]
        regained = (now - account.since) * _POINTS_PER_SECOND
        account.left = min(account.left + regained, _POINTS) - points
        account.since = now
        if len(account.reasons) < _MAX_REASONS or reason in account.reasons:
            account.reasons[reason] = account.reasons.get(reason, 0.0) + points
        if account.left >= 0:
            return None
        del self._accounts[peer]
        return max(account.reasons, key=account.reasons.__getitem__)


class _Account(msgspec.Struct):
    left: float
    since: float
    reasons: dict[str, float]


class Bans:
    """Who is not let in for a while: peers, and groups of addresses with several such peers."""

    def __init__(self) -> None:
        self._until: dict[PeerId | str, tuple[float, float]] = {}
        """Until when somebody is kept out, and for how long that was."""
        self._offenders: dict[str, dict[PeerId, float]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def ban(self, peer: PeerId, origin: Origin | None, now: float) -> float:
        """Keep a peer out, wherever it comes from; return for how many seconds."""
        # Processes of this machine are no conspiracy: each of its addresses is its own group.
        if origin is None or origin.group == origin.address:
            return self._ban(peer, now)
        offenders = self._offenders.setdefault(origin.group, {})
        offenders[peer] = now
        for older in [each for each, at in offenders.items() if now - at > _LONGEST_BAN]:
            del offenders[older]
        if len(offenders) >= _GROUP_OFFENDERS:
            self._ban(origin.group, now)
            offenders.clear()
        while len(self._offenders) > _MAX_BANS:
            del self._offenders[next(iter(self._offenders))]
        return self._ban(peer, now)

    def _ban(self, who: PeerId | str, now: float) -> float:
        _, before = self._until.pop(who, (0.0, _FIRST_BAN / 2))
        self._until[who] = now + (length := min(2 * before, _LONGEST_BAN)), length
        while len(self._until) > _MAX_BANS:  # whoever has waited longest is let in
            del self._until[next(iter(self._until))]
        return length

    def is_banned(self, who: PeerId | str, now: float) -> bool:
        """Whether a peer, or a group of addresses, is kept out.

        One whose time is over is remembered for as long again: then it begins anew.
        """
        until, length = self._until.get(who, (0.0, 0.0))
        if until and now > until + length:
            del self._until[who]
        return now < until
