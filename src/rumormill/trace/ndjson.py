"""Traces as NDJSON, one entry a line in the shape that go-libp2p-pubsub writes; and their hash.

go's `JSONTracer` writes its protobuf struct with Go's `encoding/json`: `type` is a number, bytes
are base64, keys are those of `trace.proto`. Each kind gets a struct here whose tag is that number
and whose only payload field has that key, so that msgspec encodes a whole batch in one call and
tells the kinds apart while it decodes.

The rule: writing is canonical (one entry has exactly one line: the trace hash rests on that),
reading is lenient in what go may do: fields left out because they are empty, the newer names of
ADD_PEER and REMOVE_PEER, the type as a name, unknown fields.

The hash is one short text that two equal runs share: SHA-256 over exactly the bytes of the NDJSON
file, so that `sha256sum` of a written trace gives the same text as the run that wrote it.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final, Union

import msgspec

from rumormill.core.ids import PeerId
from rumormill.core.trace import TRACE_PAYLOADS, TracePayload
from rumormill.trace.entries import EXACT_PRODUCT_SECONDS, Batch, Entry, to_nanoseconds, to_seconds
from rumormill.trace.shapes import SHAPES

PAYLOAD_KEYS: dict[int, str] = {
    payload.kind: payload.__name__[0].lower() + payload.__name__[1:] for payload in TRACE_PAYLOADS
}
"""The key under which an event of each kind carries its payload: `publishMessage`, `recvRPC`."""

_NEWER_KEYS = {"onNewOutboundStream": "addPeer", "onClosedOutboundStream": "removePeer"}

TYPE_NAMES: dict[str, int] = {
    re.sub("([a-z])([A-Z])", r"\1_\2", payload.__name__).upper(): payload.kind
    for payload in TRACE_PAYLOADS
} | {"ON_NEW_OUTBOUND_STREAM": 4, "ON_CLOSED_OUTBOUND_STREAM": 5}
"""The names of the kinds, such as `RECV_RPC`; two of them have an older and a newer one."""


class Envelope(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """Who, when and what; the subclass of each kind gives the payload its type and its key."""

    peer: PeerId = msgspec.field(name="peerID")
    timestamp: int


def _envelope_type(payload: type[TracePayload]) -> type[msgspec.Struct]:
    key = PAYLOAD_KEYS[payload.kind]
    return msgspec.defstruct(
        f"{payload.__name__}Envelope",
        [("payload", payload, msgspec.field(name=key))],
        bases=(Envelope,),
        frozen=True,
        gc=False,
        tag=payload.kind,
    )


PAYLOAD_TYPES: dict[int, type[TracePayload]] = {payload.kind: payload for payload in TRACE_PAYLOADS}
ENVELOPES: dict[type[TracePayload], Any] = {
    payload: _envelope_type(payload) for payload in TRACE_PAYLOADS
}

_encode_lines = msgspec.json.Encoder().encode_lines
_decode: Any = msgspec.json.Decoder(Union[tuple(ENVELOPES.values())]).decode  # noqa: UP007
_decode_any = msgspec.json.Decoder().decode
NOT_AN_EVENT: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a line: not JSON or of another shape, not UTF-8, nested too deep."""


def envelopes(batch: Iterable[Entry]) -> list[Envelope]:
    """Wrap entries; their times become whole nanoseconds."""
    kinds, limit = ENVELOPES, EXACT_PRODUCT_SECONDS
    return [
        # What `to_nanoseconds` does for small times, without the call.
        kinds[type(payload)](
            peer, round(now * 1e9) if now < limit else to_nanoseconds(now), payload
        )
        for now, peer, payload in batch
    ]


def encode_lines(batch: Batch) -> bytes:
    """Encode entries as NDJSON, one line each, the last line ended too."""
    return _encode_lines(envelopes(batch))


def decode_line(line: bytes | memoryview) -> Entry:
    """Decode one line; one of `NOT_AN_EVENT` when it is not an event of a known kind."""
    try:
        envelope = _decode(line)
    except msgspec.ValidationError:
        envelope = _decode_leniently(line)
    return to_seconds(envelope.timestamp), envelope.peer, envelope.payload


def _decode_leniently(line: bytes | memoryview) -> Any:
    event = _decode_any(line)
    if not isinstance(event, dict):
        raise msgspec.ValidationError("an event is a JSON object")
    kind = event.get("type", 0)
    if isinstance(kind, str):
        kind = TYPE_NAMES.get(kind, kind)
    payload_type = PAYLOAD_TYPES.get(kind) if isinstance(kind, int) else None
    if payload_type is None:
        raise msgspec.ValidationError(f"unknown event type {kind!r}")
    event["type"] = kind
    event.setdefault("peerID", "")
    event.setdefault("timestamp", 0)
    for newer, key in _NEWER_KEYS.items():
        if newer in event:
            event[key] = event.pop(newer)
    key = PAYLOAD_KEYS[kind]
    event[key] = _with_empty_fields(payload_type, event.get(key))
    return msgspec.convert(event, ENVELOPES[payload_type])


def _with_empty_fields(kind: Any, value: Any) -> Any:
    """Put in what go leaves out: every field of its schema is optional, and absent when empty."""
    value = {} if value is None else value
    if not isinstance(value, dict):
        return value
    for field in SHAPES[kind]:
        inside = value.get(field.name)
        if inside is None:
            if not field.required:
                value.pop(field.name, None)
            elif field.nested:
                value[field.name] = _with_empty_fields(field.holds, {})
            else:
                value[field.name] = _EMPTY_VALUES[field.holds]
        elif field.nested and field.repeated and isinstance(inside, list):
            value[field.name] = [_with_empty_fields(field.holds, item) for item in inside]
        elif field.nested:
            value[field.name] = _with_empty_fields(field.holds, inside)
    return value


_EMPTY_VALUES: dict[Any, Any] = {bytes: "", str: "", bool: False, int: 0, float: 0.0}


class LineEncoder:
    """Encodes a batch as NDJSON once, however many observers ask for it.

    It remembers the last batch by identity, which is why nobody may change a batch.
    """

    __slots__ = ("_batch", "_lines")

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._lines = b""

    def encode(self, batch: Batch) -> bytes:
        """Return the NDJSON lines of a batch."""
        if batch is not self._batch:
            self._lines = encode_lines(batch)
            self._batch = batch
        return self._lines


class TraceHash:
    """An observer that hashes the trace."""

    __slots__ = ("_lines", "_sha256")

    def __init__(self, lines: LineEncoder | None = None) -> None:
        self._lines = lines or LineEncoder()
        self._sha256 = hashlib.sha256()

    def observe(self, batch: Batch) -> None:
        """Add entries."""
        self._sha256.update(self._lines.encode(batch))

    def close(self) -> None:
        """Nothing is held open."""

    def hexdigest(self) -> str:
        """Return the hash of everything observed so far, in hexadecimal."""
        return self._sha256.hexdigest()
