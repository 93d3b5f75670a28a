"""Trace entries as protobuf events, byte for byte what go-libp2p-pubsub's tracers write.

The rule: one plan per struct, built once from `core.trace`; what the schema numbers differently
from the order of the fields there is listed below, and nothing else is. The schema itself is
`trace/trace.proto`. Unknown fields are skipped, absent ones are empty, and a length is
checked against the record before anything is cut out of it.
"""

import struct
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from rumormill.core import trace
from rumormill.core.errors import DecodeError
from rumormill.trace.entries import Entry, to_nanoseconds, to_seconds
from rumormill.trace.shapes import SHAPES, FieldShape
from rumormill.wire.protobuf import (
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    read_length,
    read_varint,
    skip_value,
    varint,
)

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Our choice: an event names what one RPC carried, and an RPC has at most a mebibyte."""

_NUMBERS = {
    (trace.Leave, "topic"): 2,
    (trace.DropRPC, "reason"): 1000,
    (trace.RpcMeta, "size"): 1000,
    (trace.RpcMeta, "data_size"): 1001,
    (trace.RpcMeta, "operations"): 1002,
    (trace.RpcMeta, "cause"): 1003,
    (trace.DuplicateMessage, "cause"): 1000,
    (trace.DeliverMessage, "via"): 1000,
}
"""The field numbers that are not simply the place of the field in its struct."""

_OURS = 1000
_FIRST_PAYLOAD = 4
_UINT64 = 2**64
_INT64_MAX = 2**63 - 1
_TYPE, _PEER, _TIME = 1 << 3 | VARINT, 2 << 3 | LENGTH_DELIMITED, 3 << 3 | VARINT
_TYPE_TAG, _PEER_TAG, _TIME_TAG = map(varint, (_TYPE, _PEER, _TIME))
_BATCH_ITEM = 1 << 3 | LENGTH_DELIMITED
BATCH_TAG = varint(_BATCH_ITEM)
"""What stands before the length of each event inside a batch."""

_WIRE_TYPES: dict[Any, int] = {int: VARINT, bool: VARINT, float: FIXED64}
_EMPTY: dict[Any, Any] = {bytes: b"", str: "", bool: False, int: 0, float: 0.0}

_Encoder = Callable[[Any], bytes]
_Decoder = Callable[[bytes, int, int], Any]


class EventError(ValueError):
    """Bytes are not a trace event."""


def payload_number(kind: int) -> int:
    """Return the number of the field that carries a kind: libp2p's begin at 4, ours are equal."""
    return kind if kind >= _OURS else kind + _FIRST_PAYLOAD


def field_number(kind: Any, place: int, field: FieldShape) -> int:
    """Return the number of a struct's field."""
    return _NUMBERS.get((kind, field.attribute), place + 1)


def _tag(kind: Any, place: int, field: FieldShape) -> int:
    wire_type = _WIRE_TYPES.get(field.holds, LENGTH_DELIMITED)
    return field_number(kind, place, field) << 3 | wire_type


def _value_encoder(field: FieldShape, tag: bytes) -> _Encoder:
    if field.nested:
        encode = _struct_encoder(field.holds)

        def nested(value: Any) -> bytes:
            body = encode(value)
            return tag + varint(len(body)) + body

        return nested
    if field.holds is bytes:
        return lambda value: tag + varint(len(value)) + value
    if field.holds is str:

        def text(value: str) -> bytes:
            body = value.encode()
            return tag + varint(len(body)) + body

        return text
    if field.holds is float:
        return lambda value: tag + struct.pack("<d", value)
    return lambda value: tag + varint(value)


def _struct_encoder(kind: Any) -> _Encoder:
    plan: list[tuple[Callable[[Any], Any], bool, bool, Any, _Encoder]] = [
        (
            attrgetter(field.attribute),
            field.repeated,
            field.required,
            field.default,
            _value_encoder(field, varint(_tag(kind, place, field))),
        )
        for place, field in enumerate(SHAPES[kind])
    ]

    def encode(value: Any) -> bytes:
        encoded = b""
        for get, repeated, required, default, encode_value in plan:
            item = get(value)
            if repeated:
                for single in item:
                    encoded += encode_value(single)
            elif required or item != default:
                encoded += encode_value(item)
        return encoded

    return encode


def _value_decoder(field: FieldShape) -> _Decoder | None:
    """Return what decodes a length-delimited value of a field; `None` for numbers."""
    if field.nested:
        return _struct_decoder(field.holds)
    if field.holds is bytes:
        return lambda data, start, end: data[start:end]
    return (lambda data, start, end: data[start:end].decode()) if field.holds is str else None


def _struct_decoder(kind: Any) -> _Decoder:
    """Return what decodes a struct that lies between two positions of a record."""
    slots = {
        _tag(kind, place, field): (place, field.holds, field.repeated, _value_decoder(field))
        for place, field in enumerate(SHAPES[kind])
    }
    empty: list[Any] = []
    for field in SHAPES[kind]:
        if not field.required:
            empty.append(field.default)
        else:
            empty.append(field.holds() if field.nested else _EMPTY[field.holds])

    def decode(data: bytes, position: int, end: int) -> Any:
        values = empty.copy()
        while position < end:
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = read_varint(data, position - 1, end)
            slot = slots.get(tag)
            if slot is None:
                position = skip_value(data, position, end, tag & 7)
                continue
            place, holds, repeated, decode_value = slot
            if decode_value is None:
                values[place], position = _number(data, position, end, holds)
                continue
            # `read_length` without the call for what nearly every length is: one byte.
            start = position + 1
            position = start + data[position]
            if position - start >= 0x80:
                start, position = read_length(data, start - 1, end)
            elif position > end:
                raise DecodeError("truncated", "a field claims more bytes than there are")
            value = decode_value(data, start, position)
            if not repeated:
                values[place] = value
            elif values[place]:
                values[place].append(value)
            else:
                values[place] = [value]
        for place in lists:
            values[place] = tuple(values[place])
        return kind(*values)

    lists = [place for place, field in enumerate(SHAPES[kind]) if field.repeated]
    return decode


def _number(data: bytes, position: int, end: int, holds: Any) -> tuple[Any, int]:
    if holds is float:
        stop = skip_value(data, position, end, FIXED64)
        return struct.unpack("<d", data[position:stop])[0], stop
    value, position = read_varint(data, position, end)
    return holds(value), position


_ENCODERS: dict[type, tuple[bytes, bytes, _Encoder]] = {
    payload: (
        _TYPE_TAG + varint(payload.kind),
        varint(payload_number(payload.kind) << 3 | LENGTH_DELIMITED),
        _struct_encoder(payload),
    )
    for payload in trace.TRACE_PAYLOADS
}
_DECODERS: dict[int, tuple[int, _Decoder]] = {
    payload.kind: (payload_number(payload.kind) << 3 | LENGTH_DELIMITED, _struct_decoder(payload))
    for payload in trace.TRACE_PAYLOADS
}
_PAYLOAD_TAGS = {tag for tag, _decoder in _DECODERS.values()}


def encode_event(entry: Entry) -> bytes:
    """Encode an entry as a `TraceEvent`."""
    now, peer, payload = entry
    type_field, tag, encode = _ENCODERS[type(payload)]
    body = encode(payload)
    stamp = varint(to_nanoseconds(now) % _UINT64)
    head = (type_field, _PEER_TAG, varint(len(peer)), peer, _TIME_TAG, stamp)
    return b"".join((*head, tag, varint(len(body)), body))


def decode_event(record: bytes) -> Entry:
    """Decode a `TraceEvent`; raise `EventError` when it is none of a known type."""
    try:
        return _decode_event(record, 0, len(record))
    except (DecodeError, UnicodeDecodeError, IndexError) as error:
        raise EventError(f"a damaged event ({error})") from error


def decode_batch(record: bytes) -> Iterator[Entry]:
    """Decode a `TraceEventBatch` event by event; raise `EventError` when it is none."""
    try:
        position, end = 0, len(record)
        while position < end:
            tag, position = read_varint(record, position, end)
            if tag != _BATCH_ITEM:
                position = skip_value(record, position, end, tag & 7)
                continue
            start, position = read_length(record, position, end)
            if position - start > MAX_EVENT_BYTES:
                raise EventError(f"an event of more than {MAX_EVENT_BYTES} bytes")
            yield _decode_event(record, start, position)
    except (DecodeError, UnicodeDecodeError, IndexError) as error:
        raise EventError(f"a damaged batch ({error})") from error


def _decode_event(data: bytes, position: int, end: int) -> Entry:
    kind, peer, stamp = -1, b"", 0
    payloads: dict[int, tuple[int, int]] = {}
    while position < end:
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = read_varint(data, position - 1, end)
        if tag == _TYPE:
            kind, position = read_varint(data, position, end)
        elif tag == _PEER:
            start, position = read_length(data, position, end)
            peer = data[start:position]
        elif tag == _TIME:
            stamp, position = read_varint(data, position, end)
        elif tag in _PAYLOAD_TAGS:
            start, position = read_length(data, position, end)
            payloads[tag] = (start, position)
        else:
            position = skip_value(data, position, end, tag & 7)
    if kind not in _DECODERS:
        raise EventError("the event has no type" if kind < 0 else f"unknown event type {kind}")
    tag, decode = _DECODERS[kind]
    if stamp > _INT64_MAX:
        stamp -= _UINT64
    return to_seconds(stamp), peer, decode(data, *payloads.get(tag, (0, 0)))
