"""Limits and times of connections: how many, how long, how often; and with whom."""

from collections.abc import Iterable
from typing import Final

from rumormill.core.config import Config, require
from rumormill.core.errors import ConfigError, DecodeError
from rumormill.core.ids import PeerId
from rumormill.wire import keys

DENIED: Final = "peer-denied"
NOT_ALLOWED: Final = "peer-not-allowed"


class ConnectionConfig(Config, frozen=True, kw_only=True):
    """Limits and times of connections. Where no source is named, the value is our choice."""

    allow_peers: tuple[str, ...] | None = None
    """The ids of the only peers that may be connected; None: everybody who is not denied."""

    deny_peers: tuple[str, ...] = ()
    """The ids of peers that may not be connected, allowed or not."""

    tls_certificate: str = ""
    """The file of a certificate that browsers accept, in PEM, to listen on `/tls/ws`."""

    tls_key: str = ""
    """The file of its key."""

    max_connections: int = 512
    """Connections at most, both directions. go's connection manager starts to trim at 192."""

    max_connections_per_address: int = 256
    """Connections from one network address. High, because whole test networks and NATs share
    one address; the scores of a protocol judge such crowds better."""

    max_pending_upgrades: int = 64
    """Connections that have not finished their handshake: what a flood of dials can hold."""

    upgrade_timeout: float = 10.0
    """Seconds for security and multiplexer, so that a silent dialler cannot hold a place."""

    dial_timeout: float = 10.0
    """Seconds for a TCP connection."""

    negotiation_timeout: float = 10.0
    """Seconds for a new stream to agree on its protocol. go: 10."""

    redial_delay_first: float = 0.5
    """Seconds before a lost or failed peer that was asked for is dialled again."""

    redial_delay_longest: float = 60.0
    """The delay doubles up to this."""

    keep_alive_interval: float = 15.0
    """Seconds of silence after which the peer of a connection is pinged."""

    keep_alive_timeout: float = 30.0
    """Seconds without an answer after which a connection is dead."""

    idle_timeout: float = 60.0
    """Seconds after which a connection that no protocol uses is closed."""

    retire_timeout: float = 2.0
    """Seconds that a connection stays open when the peer has made another in its place, so that
    what is on its way arrives."""

    close_timeout: float = 2.0
    """Seconds that a closed connection waits for its peer to read and close too."""

    max_pending_dials: int = 64
    """Dials under way that the network asked for: what a liar's addresses can hold."""

    max_waiting_dials: int = 1024
    """Peers that wait to be dialled because messages or questions for them do."""

    relay_places: int = 128
    """Reservations that a relay gives at most. go: 128."""

    relay_places_per_group: int = 8
    """Of those, to one group of addresses (an IPv4 /24, an IPv6 /48). go: 8 to an address."""

    relay_place_seconds: float = 3600.0
    """Seconds for which a reservation holds, unless it is renewed. go: an hour."""

    relay_circuits_per_peer: int = 32
    """Circuits that one peer may have through a relay. go: 16; a node of ours has a dozen links."""

    relay_circuit_bytes: int = 128 << 10
    """Bytes that strangers' circuits carry in each direction. go and js: 128 KiB."""

    relay_circuit_seconds: float = 120.0
    """Seconds after which strangers' circuits end. go and js: 2 minutes."""

    relay_friends: tuple[str, ...] = ()
    """The ids of peers whose circuits a relay does not limit; `*` for everybody. Those of a private
    network and of `allow_peers` are never strangers."""

    shutdown_timeout: float = 5.0
    """Seconds that a graceful shutdown spends on emptying queues."""

    def validate(self) -> None:
        """Refuse values under which nothing can work."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float):
                require(value > 0, name, "must be positive")
        nobody = self.allow_peers is not None and not self.allow_peers
        require(not nobody, "allow_peers", "names nobody; leave it out to allow everybody")
        peer_ids("allow_peers", self.allow_peers or ())
        peer_ids("deny_peers", self.deny_peers)
        Friends(self, private=False)


def peer_ids(key: str, texts: Iterable[str]) -> frozenset[PeerId]:
    """Read a list of peer ids."""
    try:
        return frozenset(bytes(keys.PeerId.parse(text)) for text in texts)
    except DecodeError as error:
        raise ConfigError(f"{key}: not a peer id such as 12D3KooW...: {error.detail}") from None


class PeerLists:
    """Whom the configuration excludes; who is denied is excluded also when it is allowed."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._denied = peer_ids("deny_peers", config.deny_peers)
        self._allowed = None
        if config.allow_peers is not None:
            self._allowed = peer_ids("allow_peers", config.allow_peers)

    def exclude(self, peer: PeerId) -> str:
        """Why a peer is excluded; nothing when it is not."""
        if peer in self._denied:
            return DENIED
        return NOT_ALLOWED if self._allowed is not None and peer not in self._allowed else ""


class Friends:
    """Whom a relay does not limit."""

    def __init__(self, config: ConnectionConfig, private: bool) -> None:
        self._all = private or config.allow_peers is not None or "*" in config.relay_friends
        named = [each for each in config.relay_friends if each != "*"]
        self._named = peer_ids("relay_friends", named)

    def has(self, peer: PeerId) -> bool:
        """Whether a peer is one."""
        return self._all or peer in self._named
