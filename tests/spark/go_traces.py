"""Traces of a small go-libp2p network, put together by hand.

Every file is made field by field from the published schema (`pb/trace.proto` of go-libp2p-pubsub):
protobuf as its PBTracer and its RemoteTracer write it, JSON as its JSONTracer does. Nothing of
rumormill's own encoders is used, and what they should come to is computed here in plain loops.
"""

import base64
import gzip
import json
import math
from pathlib import Path
from typing import Any, NamedTuple


class GoEvent(NamedTuple):
    """One event of a go node's trace: the schema's type, and the payload's fields by name."""

    time: int
    node: bytes
    kind: int
    fields: dict[str, Any]


NODES = tuple(bytes([0, 36, 8, 1, 18, 32, *[number] * 32]) for number in range(4))
"""Peer ids as go writes them: identity multihashes of Ed25519 keys."""

TOPIC = "blocks"
START = 1_700_000_000_000_000_000
PROTO = "/meshsub/1.3.0"

_KEYS = (
    "publishMessage", "rejectMessage", "duplicateMessage", "deliverMessage", "addPeer",
    "removePeer", "recvRPC", "sendRPC", "dropRPC", "join", "leave", "graft", "prune",
)  # fmt: skip
_NEWER_KEYS = {"addPeer": "onNewOutboundStream", "removePeer": "onClosedOutboundStream"}
"""What newer releases call two payloads; their numbers stayed."""

_NUMBERS = (
    {"messageID": 1, "topic": 2},
    {"messageID": 1, "receivedFrom": 2, "reason": 3, "topic": 4},
    {"messageID": 1, "receivedFrom": 2, "topic": 3},
    {"messageID": 1, "topic": 2, "receivedFrom": 3},
    {"peerID": 1, "proto": 2},
    {"peerID": 1},
    {"receivedFrom": 1, "meta": 2},
    {"sendTo": 1, "meta": 2},
    {"sendTo": 1, "meta": 2},
    {"topic": 1},
    {"topic": 2},
    {"peerID": 1, "topic": 2},
    {"peerID": 1, "topic": 2},
)
"""The field numbers of each payload, as `trace.proto` has them; LEAVE's topic is number 2 there."""

_META = {"messages": 1, "subscription": 2, "control": 3}
_CONTROL = {"ihave": 1, "iwant": 2, "graft": 3, "prune": 4, "idontwant": 5}
_INSIDE = {
    "messages": {"messageID": 1, "topic": 2},
    "subscription": {"subscribe": 1, "topic": 2},
    "ihave": {"topic": 1, "messageIDs": 2},
    "iwant": {"messageIDs": 1},
    "graft": {"topic": 1},
    "prune": {"topic": 1, "peers": 2},
    "idontwant": {"messageIDs": 1},
}
"""The field numbers of an RPC's parts."""


def go_events() -> list[GoEvent]:
    """Three subscribers in a line and one that leaves early; ten messages of the first one.

    Node 1 relays, node 2 gets some from node 1 and others first from node 0, and rejects one. Every
    message comes to node 1 twice. Node 3 leaves before the sixth message and got none.
    """
    first, second, third, fourth = NODES
    events = [GoEvent(START + number, node, 9, {"topic": TOPIC}) for number, node in
              enumerate(NODES)]  # fmt: skip
    events += _around()
    for number in range(10):
        at = START + 1_000_000_000 * (number + 1)
        message = first + number.to_bytes(8, "big")
        if number == 5:
            events.append(GoEvent(at - 1_000_000, fourth, 10, {"topic": TOPIC}))
        carried = {"messages": [{"messageID": message, "topic": TOPIC}]}
        named = {"messageID": message, "topic": TOPIC}

        def hop(
            left: int, came: int, sender: bytes, receiver: bytes, *, meta: Any = carried
        ) -> list[GoEvent]:
            return [
                GoEvent(left, sender, 7, {"sendTo": receiver, "meta": meta}),
                GoEvent(came, receiver, 6, {"receivedFrom": sender, "meta": meta}),
            ]

        slow = 3_000_000 * number
        events += [
            GoEvent(at, first, 0, named),
            GoEvent(at + 1, first, 3, {**named, "receivedFrom": first}),
            *hop(at + 2, at + 20_000_000 + slow, first, second),
            GoEvent(at + 20_000_001 + slow, second, 3, {**named, "receivedFrom": first}),
        ]
        sender = second if number % 2 == 0 else first
        events += hop(at + 25_000_000 + slow, at + 60_000_000 + slow, sender, third)
        told = {**named, "receivedFrom": sender}
        if number == 7:
            told["reason"] = "validation failed"
        kind = 1 if number == 7 else 3
        events.append(GoEvent(at + 60_000_001 + slow, third, kind, told))
        events += hop(at + 70_000_000, at + 90_000_000, third, second)
        events.append(
            GoEvent(at + 90_000_001, second, 2, {**named, "receivedFrom": third}),
        )
    return sorted(events, key=lambda event: event.time)


def _around() -> list[GoEvent]:
    """What is no message: peers that come and go, meshes, and RPCs of control alone."""
    first, second, third, _ = NODES
    lost, ids = first + b"lost----", [first + bytes(8), first + bytes(7) + b"\x01"]
    told = {"subscription": [{"subscribe": True, "topic": TOPIC}]}
    left = {"subscription": [{"subscribe": False, "topic": "old"}]}
    control = {
        "ihave": [{"topic": TOPIC, "messageIDs": ids}, {"topic": "old", "messageIDs": []}],
        "iwant": [{"messageIDs": ids[:1]}],
        "graft": [{"topic": TOPIC}],
        "prune": [{"topic": "old", "peers": [third]}],
        "idontwant": [{"messageIDs": ids}],
    }
    dropped = {"messages": [{"messageID": lost, "topic": TOPIC}]}
    happened = [
        (first, 4, {"peerID": second, "proto": PROTO}),
        (first, 4, {"peerID": third, "proto": "/meshsub/1.1.0"}),
        (first, 7, {"sendTo": second, "meta": told}),
        (second, 6, {"receivedFrom": first, "meta": told}),
        (first, 7, {"sendTo": third, "meta": {**left, "control": control}}),
        (third, 6, {"receivedFrom": first, "meta": {**left, "control": control}}),
        (second, 11, {"peerID": first, "topic": TOPIC}),
        (third, 12, {"peerID": first, "topic": "old"}),
        (first, 8, {"sendTo": third, "meta": dropped}),
        (first, 5, {"peerID": third}),
    ]
    return [GoEvent(START + 10 + at, *each) for at, each in enumerate(happened)]


def overhead_of_go() -> dict[str, int]:
    """How many of each kind were sent, by counting in plain loops."""
    counts = {"rpc": 0, "message": 0, "control": 0}
    for event in go_events():
        if event.kind != 7:
            continue
        meta = event.fields["meta"]
        counts["rpc"] += 1
        counts["message"] += len(meta.get("messages", []))
        named = ["subscribe" if each["subscribe"] else "unsubscribe"
                 for each in meta.get("subscription", [])]  # fmt: skip
        for name, items in meta.get("control", {}).items():
            named += [name] * len(items)
        for name in named:
            counts[name] = counts.get(name, 0) + 1
            counts["control"] += 1
    return counts


def load_of_go() -> dict[bytes, tuple[int, int, int]]:
    """Of every node: RPCs sent, messages sent, duplicates received."""
    found = {}
    for node in NODES:
        own = [event for event in go_events() if event.node == node]
        sent = [event.fields["meta"] for event in own if event.kind == 7]
        copies = sum(len(meta.get("messages", [])) for meta in sent)
        found[node] = (len(sent), copies, sum(event.kind == 2 for event in own))
    return found


def expected_of_go() -> dict[str, Any]:
    """What the go traces come to, by counting in plain loops."""
    events = go_events()
    published = {e.fields["messageID"]: e.time for e in events if e.kind == 0}
    delivered = {}
    hops: dict[tuple[bytes, bytes], int] = {(message, NODES[0]): 0 for message in published}
    for event in events:
        if event.kind == 6:
            for carried in event.fields["meta"].get("messages", []):
                key = (carried["messageID"], event.node)
                if key not in hops:
                    hops[key] = hops[carried["messageID"], event.fields["receivedFrom"]] + 1
        if event.kind == 3:
            delivered[event.fields["messageID"], event.node] = event.time
    late = sorted(
        (time - published[message]) / 1e9
        for (message, node), time in delivered.items()
        if node != NODES[0]
    )
    counted = [hops[key] for key in delivered if key[1] != NODES[0]]
    sent = sum(len(e.fields["meta"].get("messages", [])) for e in events if e.kind == 7)

    def rank(percent: int) -> float:
        return late[math.ceil(percent * len(late) / 100) - 1]

    return {
        "published": 10,
        "expected": 10 * 3 + 5,
        "delivered": len(delivered),
        "pending": 0,
        "dropped": 1 + 5,
        "remote_deliveries": len(late),
        "duplicates": sum(e.kind == 2 for e in events),
        "messages_sent": sent,
        "messages_per_delivery": sent / len(late),
        "latency_p50": rank(50),
        "latency_p90": rank(90),
        "latency_p99": rank(99),
        "latency_max": late[-1],
        "hops_max": max(counted),
        "hops_mean": sum(counted) / len(counted),
    }


def write_go_json(folder: Path) -> list[Path]:
    """One file per node, a line per event: Go's JSON of the schema's struct, bytes as base64.

    Every other node is of a release that calls two payloads otherwise.
    """
    paths = []
    for number, node in enumerate(NODES):
        path = folder / f"node{number}.json"
        lines = [
            json.dumps(
                {
                    "type": event.kind,
                    "peerID": base64.b64encode(node).decode(),
                    "timestamp": event.time,
                    _json_key(event.kind, newer=number % 2 == 1): _json(event.fields),
                }
            )
            for event in go_events()
            if event.node == node
        ]
        path.write_text("".join(f"{line}\n" for line in lines))
        paths.append(path)
    return paths


def _json_key(kind: int, *, newer: bool) -> str:
    key = _KEYS[kind]
    return _NEWER_KEYS.get(key, key) if newer else key


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, list) else value


def write_go_protobuf(path: Path) -> Path:
    """All events in one file, each behind its length as a varint, as PBTracer writes."""
    records = [_record(event) for event in go_events()]
    path.write_bytes(b"".join(_varint(len(record)) + record for record in records))
    return path


def write_go_batches(path: Path) -> Path:
    """All events in compressed batches of seven, as RemoteTracer sends."""
    records = [_record(event) for event in go_events()]
    batches = [
        b"".join(_field(1, record) for record in records[start : start + 7])
        for start in range(0, len(records), 7)
    ]
    path.write_bytes(gzip.compress(b"".join(_varint(len(each)) + each for each in batches)))
    return path


def _record(event: GoEvent) -> bytes:
    """A TraceEvent: type, peer, time, and the payload under its type's number and 4."""
    payload = b"".join(
        _field(_NUMBERS[event.kind][name], _rpc(value) if name == "meta" else _bytes(value))
        for name, value in event.fields.items()
    )
    return (
        _varint(1 << 3) + _varint(event.kind)
        + _field(2, event.node)
        + _varint(3 << 3) + _varint(event.time)
        + _field(event.kind + 4, payload)
    )  # fmt: skip


def _rpc(meta: dict[str, Any]) -> bytes:
    """An RPCMeta."""
    plain = [(name, item) for name in ("messages", "subscription") for item in meta.get(name, [])]
    data = b"".join(_field(_META[name], _part(name, item)) for name, item in plain)
    if "control" in meta:
        parts = [
            _field(_CONTROL[name], _part(name, item))
            for name, items in meta["control"].items()
            for item in items
        ]
        data += _field(_META["control"], b"".join(parts))
    return data


def _part(name: str, item: dict[str, Any]) -> bytes:
    data = b""
    for key, value in item.items():
        number = _INSIDE[name][key]
        if isinstance(value, bool):
            data += _varint(number << 3) + _varint(value)
        else:
            several = value if isinstance(value, list) else [value]
            data += b"".join(_field(number, _bytes(each)) for each in several)
    return data


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
