"""Settings of a node that are not the protocol's: limits, times, queues; and choices, checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.config import ConnectionConfig
from rumormill.log.model import Durability, StoreConfig
from rumormill.protocols.registry import ProtocolSpec, protocol
from rumormill.wire.multiaddr import Endpoint, Multiaddr
from rumormill.wire.tickets import read_ticket

_KindT = TypeVar("_KindT", bound=msgspec.Struct)

AUTO: Final = "auto"
"""In place of a relay's ticket: any peer that offers to be one."""
_LISTENING: Final = "/ip4/127.0.0.1/tcp/4001"


class NodeConfig(ConnectionConfig, frozen=True, kw_only=True):
    """Limits and times of the runtime, those of its connections among them.

    Where no source is named, the value is our choice.
    """

    queue_messages: int = 8192
    """RPCs that wait for one peer. At go's 32, bursts lose messages; at a mebibyte each,
    `queue_bytes` is the limit that counts."""

    queue_bytes: int = 16 << 20
    """Bytes that wait for one peer."""

    queue_bytes_total: int = 128 << 20
    """Bytes that wait for all peers together, answers and what connections hold included: over it,
    whoever has most of them is disconnected."""

    stored_bytes_at_once: int = 64 << 20
    """Bytes that one peer may have this node store in a burst: all that a lively topic says while
    a peer was away for a minute."""

    stored_bytes_per_second: int = 8 << 20
    """Bytes that it may have stored all the time: as much as 8,000 messages of a kibibyte, which is
    more than a node verifies. Beyond, the peer is not read from until it has bytes again."""

    slow_peer_after: float = 5.0
    """Seconds without reading, or with hardly any, before publishing stops waiting for a peer."""

    slow_peer_limit: float = 60.0
    """Seconds that a message may wait for a slow peer before the peer is disconnected: until then
    it holds up to `queue_bytes`. Twice `keep_alive_timeout`, which finds a peer that is dead; this
    one lives, and answers pings, and does not read."""

    pending_per_peer: int = 256
    """Messages that wait for one peer to be reached: what a protocol says within a few round
    trips, not more."""

    pending_bytes_per_peer: int = 4 << 20
    """Bytes of those: a quarter of what may wait for a peer that is connected."""

    pending_total: int = 8192
    """Messages that wait in all."""

    pending_bytes_total: int = 16 << 20
    """Bytes of those: no more for all peers out of reach than for one that is connected."""

    pending_timeout: float = 20.0
    """Seconds that they wait: for a TCP connection, then for a stream."""

    questions_open: int = 4096
    """Questions of our own that wait for an answer or for their turn."""

    questions_served: int = 1024
    """Questions of peers that wait for our answer; over it, whoever has most of them loses one."""

    questions_served_per_peer: int = 64
    """Questions of one peer that do: a node asks eight at a time."""

    answer_timeout: float = 30.0
    """Seconds after which a question that a peer has ended is not answered any more."""

    max_commands: int = 1024
    """Commands of the application that wait for their outcome."""

    pattern_topics: int = 512
    """Topics that a subscription to a pattern enters: half of the subscriptions that peers heed
    of one peer (`max_subscriptions_per_peer`). Names come from peers, and so would their number."""

    stream_retry_first: float = 1.0
    """Seconds before a lost RPC stream is opened again while its connection lives; the delay
    doubles, up to a minute."""

    trace_interval: float = 1.0
    """Seconds after which observers are shown what was recorded: what a kill can take from a trace
    that is written to a file. Short intervals cost a wake-up each."""


CHECKED_BELOW: Final = (
    *("data", "key", "items", "ticket", "listen", "announce", "where", "validator"),
    *("config", "store", "sync", "members", "durability", "retain", "rules", "overflow", "linking"),
)
"""Arguments of a node's calls about which there is more to say than their kind."""


def chosen_store(
    given: StoreConfig | None, durability: Durability | str | None, home: Path | None
) -> StoreConfig:
    """The log's settings with the durability that was named; in memory where there is no home."""
    store = chosen_settings("store", given, StoreConfig)
    if durability is None:
        durability = store.durability if home is not None else Durability.MEMORY
    try:
        return msgspec.structs.replace(store, durability=Durability(durability))
    except ValueError:
        choices = ", ".join(mode.value for mode in Durability)
        raise LocalError(f"durability: {durability!r} is not one of {choices}") from None


def chosen_protocol(chosen: str | ProtocolSpec, offered: Sequence[str] | None) -> ProtocolSpec:
    """The protocol, with the versions that are offered to peers; all unless given."""
    spec = protocol(chosen) if isinstance(chosen, str) else chosen
    if offered is None:
        return spec
    unknown = [each for each in offered if each not in spec.protocol_ids]
    if unknown or not offered:
        raise LocalError(
            f"protocol_ids: {', '.join(unknown) or 'none'} given;"
            f" {spec.name} speaks {', '.join(spec.protocol_ids)}"
        )
    return msgspec.structs.replace(spec, protocol_ids=tuple(offered))


def chosen_settings(what: str, given: object, kind: type[_KindT]) -> _KindT:
    """Settings of a kind, the defaults unless given; true and false say whether they are enabled,
    where they have that."""
    if given is None:
        return kind()
    if isinstance(given, bool) and "enabled" in kind.__struct_fields__:
        return kind(enabled=given)
    if not isinstance(given, kind):
        raise LocalError(f"{what}: give a {kind.__name__}, not {type(given).__name__}")
    return given


def chosen_reach(given: Sequence[str], *, be_relay: bool, map_port: bool) -> dict[str, Any]:
    """How a node is reached: the relays that are named, whether others are to be found, ..."""
    if isinstance(given, str):
        raise LocalError(f"relays: a list of tickets, or of {AUTO!r}, not the text {given!r}")
    named = [each for each in given if each != AUTO]
    addresses = [address for ticket in named for address in parsed_ticket(ticket)]
    if any(address.endpoint is None or address.endpoint.relay for address in addresses):
        raise LocalError("relays: the ticket of a relay has TCP addresses of its own")
    return {
        "relays": addresses,
        "auto": AUTO in given,
        "be_relay": be_relay,
        "map_port": map_port,
    }


def listened(listen: str | Sequence[str]) -> list[str]:
    """The addresses to listen at, at least one."""
    several = listen if isinstance(listen, list | tuple) else ()
    found = [listen] if isinstance(listen, str) else [*several]
    if not found:
        raise LocalError(f"listen: name at least one TCP address, such as {_LISTENING}")
    return found


def announced(addresses: Sequence[str]) -> list[Multiaddr]:
    """The addresses that others are told."""
    if not isinstance(addresses, list | tuple):
        raise LocalError(f"announce: give a list of TCP addresses, not {addresses!r}")
    return [tcp_address(each) for each in addresses]


def listen_endpoint(address: str) -> Endpoint:
    """Where a TCP multiaddr says to listen."""
    endpoint = tcp_address(address).endpoint
    assert endpoint is not None
    if endpoint.relay:
        raise LocalError(f"{address!r} is at a relay, and not here; --relay asks it for a place")
    return endpoint


def tcp_address(text: str) -> Multiaddr:
    """Read the address of a TCP port that somebody typed."""
    if not isinstance(text, str):
        raise LocalError(f"a TCP address is text such as {_LISTENING}, not {text!r}")
    try:
        address = Multiaddr.parse(text)
        detail = "" if address.endpoint else "no host with a TCP port"
    except PeerError as error:
        detail = error.detail
    if detail:
        raise LocalError(f"{text!r} is not a TCP address such as {_LISTENING} ({detail})")
    return address


def parsed_ticket(text: str) -> tuple[Multiaddr, ...]:
    """Read a ticket that somebody typed."""
    if not isinstance(text, str):
        raise LocalError(f"a ticket is text such as {_LISTENING}/p2p/12D3KooW..., not {text!r}")
    try:
        return read_ticket(text)
    except PeerError as error:
        raise LocalError(
            f"{text!r} is not a ticket such as {_LISTENING}/p2p/12D3KooW... ({error.detail})"
        ) from None
