"""`rumormill inspect`: a descriptor, an RPC or a CID in all its forms.

What is given is recognised by itself: JSON, hexadecimal or raw bytes, from a file, from stdin or on
the command line. A descriptor may be its readable JSON (also inside a whole test vector), its
dag-cbor block or, for an event, its protobuf; an RPC its bytes, framed or not, or its JSON.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rumormill.cli.grammar import FAILURE, USAGE, CommandError
from rumormill.core.errors import DecodeError, RumormillError
from rumormill.protocols.pulsarcast.config import DEFAULT_LIMITS
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import descriptors, readable
from rumormill.protocols.pulsarcast.format.codec import encode_event, encode_topic, read_event
from rumormill.protocols.pulsarcast.format.rpc import decode_rpc
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire.protobuf import read_varint

MAX_INPUT_BYTES: Final = 16 << 20
"""Our choice: the largest RPC in hexadecimal, several times over."""

_MAP_HEAD: Final = 5  # CBOR's major type of a map; no protobuf of ours begins with it


def run_inspect(options: argparse.Namespace) -> int:
    """Read something, and print it in every form."""
    given = _parsed(_given(options.input))
    name, read = _KINDS[options.kind]
    try:
        shown = read(given)
    except RumormillError as error:
        raise CommandError(f"not {name}: {error}", FAILURE) from None
    if options.json:
        print(json.dumps(shown, ensure_ascii=False))
        return 0
    for key, value in shown.items():
        if isinstance(value, dict):
            print(f"{key}:\n{json.dumps(value, ensure_ascii=False, indent=2)}")
        else:
            print(f"{key + ':':15}{value}")
    return 0


def _given(source: str) -> bytes:
    """The bytes that are meant: of stdin, of a file, or the argument itself."""
    try:
        is_file = Path(source).is_file()
    except (OSError, ValueError):
        is_file = False  # too long for a name, or with a NUL: not a file's name in any case
    if source == "-":
        data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    elif is_file:
        with Path(source).open("rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    elif "/" in source or source.endswith((".json", ".hex", ".cbor", ".bin")):
        raise CommandError(f"there is no file {source}", USAGE)
    else:
        return source.encode("utf-8", "surrogateescape")
    if len(data) > MAX_INPUT_BYTES:
        raise CommandError(f"more than {MAX_INPUT_BYTES} bytes to inspect", FAILURE)
    return data


def _parsed(given: bytes) -> object:
    """JSON as its value, hexadecimal as its bytes, a CID as text, anything else as it is."""
    stripped = given.removeprefix(b"\xef\xbb\xbf").strip()
    if not stripped:
        raise CommandError("there is nothing to inspect: the input is empty", FAILURE)
    if stripped[:1] in (b"{", b"["):
        try:
            return json.loads(stripped)
        except (ValueError, RecursionError) as error:
            raise CommandError(f"not JSON: {error}", FAILURE) from None
    if not stripped.isascii():
        return given
    text = stripped.decode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text if text.isalnum() else given


def _item(value: object, *inner: str) -> object:
    """What a whole test vector is about, by its first key that is there; else the value itself."""
    if not isinstance(value, dict):
        return value
    for key in inner:
        taken = value.get(key)
        if key.endswith("_hex") and isinstance(taken, str):
            return readable.hex_bytes(taken, key)
        if isinstance(taken, dict):
            beside = {name: value[name] for name in ("payload_hex",) if name in value}
            return {**beside, **taken}
    return value


def _names(kind: str, cid: bytes) -> dict[str, Any]:
    names = {"cid": cids.text(cid), "cid_base32": cids.text32(cid), "cid_hex": cid.hex()}
    return {"kind": kind, **names}


def _topic(value: object) -> dict[str, Any]:
    value = _item(value, "readable", "dag_cbor_hex")
    topic = (
        descriptors.read_topic(value)
        if isinstance(value, bytes)
        else readable.topic_from_readable(_object(value))
    )
    return {
        **_names("topic", topic.cid),
        "dag_cbor_hex": topic.dag().hex(),
        "protobuf_hex": encode_topic(topic).hex(),
        "readable": readable.readable_topic(topic),
    }


def _event(value: object) -> dict[str, Any]:
    value = _item(value, "readable", "dag_cbor_hex", "protobuf_hex")
    signed = (
        _event_of(value)
        if isinstance(value, bytes)
        else SignedEvent(readable.event_from_readable(_object(value)))
    )
    event = signed.event
    return {
        **_names("event", event.cid),
        "dag_cbor_hex": event.dag().hex(),
        "protobuf_hex": encode_event(signed).hex(),
        "readable": readable.readable_event(event),
    }


def _event_of(data: bytes) -> SignedEvent:
    """An event in any of its binary forms: a block, a protobuf, or alone in an RPC."""
    if data[:1] and data[0] >> 5 == _MAP_HEAD:
        return SignedEvent(descriptors.read_event(data))
    signed = read_event(data, DEFAULT_LIMITS)
    if isinstance(signed, SignedEvent):
        return signed
    events = [message.event for message in decode_rpc(_unframed(data)).messages if message.event]
    if len(events) != 1:
        raise DecodeError("bad-event", signed)
    return events[0]


def _rpc(value: object) -> dict[str, Any]:
    value = _item(value, "protobuf_hex", "framed_hex")
    if isinstance(value, dict):
        data = readable.rpc_from_readable(value).encode()
    else:
        data = _unframed(
            value if isinstance(value, bytes) else readable.hex_bytes(value, "the RPC")
        )
    return {"kind": "rpc", "protobuf_hex": data.hex(), "readable": readable.readable_rpc(data)}


def _unframed(data: bytes) -> bytes:
    """An RPC without the length that precedes it on a stream."""
    try:
        length, start = read_varint(data, 0, len(data))
    except DecodeError:
        return data
    return data[start:] if length == len(data) - start else data


def _cid(value: object) -> dict[str, Any]:
    if isinstance(value, bytes):
        cid = cids.check(value)
    elif isinstance(value, str):
        cid = cids.parse(value)
    else:
        raise DecodeError("bad-cid", "a CID is a text or 36 bytes in hexadecimal")
    return {
        **_names("cid", cid),
        "version": 1,
        "codec": "dag-cbor",
        "hash": "sha2-256",
        "digest_hex": cid[len(cids.PREFIX) :].hex(),
        "dht_key_hex": cid.hex(),
        "kademlia_hex": hashlib.sha256(cid).hexdigest(),
    }


def _object(value: object) -> object:
    if isinstance(value, str):
        raise DecodeError("bad-input", "neither JSON nor hexadecimal, and no file of that name")
    return value


_KINDS: Final[dict[str, tuple[str, Callable[[object], dict[str, Any]]]]] = {
    "topic": ("a topic descriptor", _topic),
    "event": ("an event descriptor", _event),
    "rpc": ("a Pulsarcast RPC", _rpc),
    "cid": ("a Pulsarcast CID", _cid),
}
