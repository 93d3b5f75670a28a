"""Reading the parts of an RPC that the JavaScript original does not know.

Everything in them was chosen by their sender, so whatever is wrong is a `DecodeError`; except for
old events inside `Events`, whose faults are their authors' and are reported one by one.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias, TypeVar

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast.fields import (
    FIELD_1,
    FIELD_2,
    FIELD_3,
    FIELD_4,
    FIELD_5,
    split,
    text_of,
)
from rumormill.protocols.pulsarcast.limits import RpcLimits
from rumormill.protocols.pulsarcast.rpc import (
    BLOCK,
    EVENTS,
    FETCH,
    HAVE,
    JOIN_REPLY,
    REQUEST_REPLY,
    TERMS,
    Addition,
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    JoinStatus,
    PeerAddress,
    RequestReply,
    RequestStatus,
    Terms,
)
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.wire.protobuf import read_varint

EventReader: TypeAlias = Callable[[bytes, RpcLimits], SignedEvent | str]

_NUMBER_2, _NUMBER_3, _NUMBER_4, _NUMBER_5 = 0x10, 0x18, 0x20, 0x28
_MAX_NUMBER = 2**32 - 1
_LATEST = 253_402_300_800_000
"""The end of the year 9999 in milliseconds: no date is written with more digits."""


def read_addition(
    number: int, data: bytes, limits: RpcLimits, read_event: EventReader
) -> tuple[Addition, list[str]]:
    """Read the addition with a field number, and the faults of events in it."""
    faults: list[str] = []
    if number == EVENTS:
        return _read_events(data, limits, read_event, faults), faults
    return _READERS[number](data, limits), faults


def read_peers(
    data: bytes, before: tuple[PeerAddress, ...], limits: RpcLimits
) -> tuple[PeerAddress, ...]:
    """Read a recommended peer and put it behind those that came before."""
    if len(before) == limits.peers:
        raise DecodeError("too-many-peers", f"more than {limits.peers} recommended")
    peer = b""
    addresses: list[bytes] = []
    for tag, start, stop in split(data, limits.addresses + limits.other_fields):
        if tag == FIELD_1:
            peer = _peer(data[start:stop], limits)
        elif tag == FIELD_2:
            if len(addresses) == limits.addresses or stop - start > limits.address_bytes:
                raise DecodeError("bad-address", "too many addresses, or too long ones")
            addresses.append(data[start:stop])
    return (*before, PeerAddress(_peer(peer, limits), tuple(addresses)))


def _peer(data: bytes, limits: RpcLimits) -> bytes:
    if not 0 < len(data) <= limits.peer_id_bytes:
        raise DecodeError("bad-peer-id", f"a peer id has 1 to {limits.peer_id_bytes} bytes")
    return data


def _append_cid(found: list[bytes], data: bytes, limits: RpcLimits) -> None:
    if len(found) == limits.cids:
        raise DecodeError("too-many-cids", f"more than {limits.cids} in one list")
    found.append(cids.check(data))


def _number(data: bytes, start: int, stop: int) -> int:
    value = read_varint(data, start, stop)[0]
    if value > _MAX_NUMBER:
        raise DecodeError("bad-number", "a count of more than 32 bits")
    return value


_Status = TypeVar("_Status", bound=IntEnum)


def _status(kind: type[_Status], value: int) -> _Status:
    try:
        return kind(value)
    except ValueError:
        raise DecodeError("bad-status", f"there is no status {value}") from None


def _read_join_reply(data: bytes, limits: RpcLimits) -> JoinReply:
    topic, status, reason = b"", 0, ""
    peers: tuple[PeerAddress, ...] = ()
    for tag, start, stop in split(data, limits.peers + limits.other_fields):
        if tag == FIELD_1:
            topic = data[start:stop]
        elif tag == _NUMBER_2:
            status = _number(data, start, stop)
        elif tag == FIELD_3:
            peers = read_peers(data[start:stop], peers, limits)
        elif tag == FIELD_4:
            reason = text_of(data[start:stop], limits.reason_bytes)
    return JoinReply(cids.check(topic), _status(JoinStatus, status), peers, reason)


def _read_terms(data: bytes, limits: RpcLimits) -> Terms:
    topic = b""
    numbers = [0, 0, 0, 0, 0]
    for tag, start, stop in split(data, limits.other_fields + 6):
        if tag == FIELD_1:
            topic = data[start:stop]
        elif tag & 7 == 0 and 2 <= tag >> 3 <= 6:
            numbers[(tag >> 3) - 2] = read_varint(data, start, stop)[0]
    silent, first, end, count, checksum = numbers
    _check_range(first, end)
    return Terms(cids.check(topic), silent != 0, first, end, count, checksum)


def _check_range(start: int, end: int) -> None:
    if not 0 <= start <= end <= _LATEST:
        raise DecodeError("bad-range", "a range of dates begins before it ends, and ends in time")


def _read_request_reply(data: bytes, limits: RpcLimits) -> RequestReply:
    topic = request = b""
    event: bytes | None = None
    status, reason = 0, ""
    for tag, start, stop in split(data, limits.other_fields + 5):
        if tag == FIELD_1:
            topic = data[start:stop]
        elif tag == FIELD_2:
            request = data[start:stop]
        elif tag == _NUMBER_3:
            status = _number(data, start, stop)
        elif tag == FIELD_4:
            event = cids.check(data[start:stop])
        elif tag == FIELD_5:
            reason = text_of(data[start:stop], limits.reason_bytes)
    known = _status(RequestStatus, status)
    return RequestReply(cids.check(topic), cids.check(request), known, event, reason)


def _read_fetch(data: bytes, limits: RpcLimits) -> Fetch:
    topic, ancestors = b"", 0
    known: bytes | None = None
    wanted: list[bytes] = []
    for tag, start, stop in split(data, limits.cids + limits.other_fields):
        if tag == FIELD_2:
            _append_cid(wanted, data[start:stop], limits)
        elif tag == FIELD_1:
            topic = data[start:stop]
        elif tag == _NUMBER_3:
            ancestors = _number(data, start, stop)
        elif tag == FIELD_4:
            known = cids.check(data[start:stop])
    return Fetch(cids.check(topic), tuple(wanted), ancestors, known)


def _read_have(data: bytes, limits: RpcLimits) -> Have:
    topic = b""
    first = end = 0
    found: list[bytes] = []
    for tag, start, stop in split(data, limits.cids + limits.other_fields):
        if tag == FIELD_4:
            _append_cid(found, data[start:stop], limits)
        elif tag == FIELD_1:
            topic = data[start:stop]
        elif tag == _NUMBER_2:
            first = read_varint(data, start, stop)[0]
        elif tag == _NUMBER_3:
            end = read_varint(data, start, stop)[0]
    _check_range(first, end)
    return Have(cids.check(topic), first, end, tuple(found))


def _read_block(data: bytes, limits: RpcLimits) -> Block:
    topic = content = b""
    for tag, start, stop in split(data, limits.other_fields):
        if tag == FIELD_1:
            topic = data[start:stop]
        elif tag == FIELD_2:
            content = data[start:stop]
    return Block(cids.check(topic), content)


def _read_events(
    data: bytes, limits: RpcLimits, read_event: EventReader, faults: list[str]
) -> Events:
    topic = b""
    events: list[SignedEvent] = []
    missing: list[bytes] = []
    first = end = 0
    for tag, start, stop in split(data, limits.events + limits.cids + limits.other_fields):
        if tag == FIELD_2:
            if len(events) + len(faults) == limits.events:
                raise DecodeError("too-many-events", f"more than {limits.events} in one answer")
            event = read_event(data[start:stop], limits)
            if isinstance(event, str):
                faults.append(event)
            else:
                events.append(event)
        elif tag == FIELD_3:
            _append_cid(missing, data[start:stop], limits)
        elif tag == FIELD_1:
            topic = data[start:stop]
        elif tag == _NUMBER_4:
            first = read_varint(data, start, stop)[0]
        elif tag == _NUMBER_5:
            end = read_varint(data, start, stop)[0]
    _check_range(first, end)
    return Events(cids.check(topic), tuple(events), tuple(missing), first, end)


_READERS: dict[int, Callable[[bytes, RpcLimits], Addition]] = {
    JOIN_REPLY: _read_join_reply,
    REQUEST_REPLY: _read_request_reply,
    FETCH: _read_fetch,
    TERMS: _read_terms,
    HAVE: _read_have,
    BLOCK: _read_block,
}
