"""Runs and traces to mill: simulations of every protocol, and go-libp2p traces written by hand.

The go traces are put together field by field from the published schema (`pb/trace.proto` of
go-libp2p-pubsub): protobuf as its PBTracer writes it, JSON as its JSONTracer does. Nothing of
rumormill's own encoders is used, and what they should come to is computed here in plain loops.
"""

import base64
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

from spark_samples import SOURCES

from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

CRASH = {"kind": "crash", "at": 0.32, "fraction": 0.2, "duration": "2s"}
SCENARIOS: dict[str, dict[str, Any]] = {
    "floodsub": {
        "links": {"loss": 0.4},
        "topology": {"degree": 2},
        "workload": {"messages": 15, "topics": 2},
    },
    "gossipsub": {
        "links": {"loss": 0.1, "latency": "uniform:10ms-90ms"},
        "topology": {"degree": 6},
        "workload": {"messages": 20, "topics": 3, "subscriptions_per_peer": 2, "kind": "zipf"},
        "faults": [CRASH],
    },
    "pulsarcast": {"workload": {"messages": 12}, "faults": [CRASH], "topology": {"degree": 6}},
    "radius": {"workload": {"messages": 8}, "topology": {"degree": 4}, "faults": [CRASH]},
    "skipring": {"workload": {"messages": 8}, "start": "arbitrary", "faults": [CRASH]},
}
"""One run of each protocol, with faults, so that pairs end in every way."""


def simulate(folder: Path, peers: int = 16) -> dict[str, dict[str, Any]]:
    """Run every protocol; write the traces, each in another format, and return the figures."""
    suffixes = (".ndjson", ".pb", ".pb.gz", ".parquet", ".ndjson")
    figures = {}
    for (name, keys), suffix in zip(SCENARIOS.items(), suffixes, strict=True):
        scenario = Scenario.from_dict({"protocol": name, "peers": peers, **keys})
        figures[name] = run_scenario(scenario, trace=folder / f"{name}{suffix}")
    return figures


def rumormill(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rumormill", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )


class DyingRoad:
    """A way to a port of this machine that ends for ever when it has carried some bytes back."""

    def __init__(self, port: int, after: int) -> None:
        self._to, self._left = port, after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.died = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for pair in ((near, far, 0), (far, near, 1)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, cost: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._left -= cost * len(data)
                if self._left < 0:
                    self.died = True
                    self._end()
                    return
                target.sendall(data)

    def _end(self) -> None:
        for each in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


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

_KEYS = {
    0: "publishMessage", 1: "rejectMessage", 2: "duplicateMessage", 3: "deliverMessage",
    4: "addPeer", 6: "recvRPC", 7: "sendRPC", 9: "join", 10: "leave",
}  # fmt: skip
_NUMBERS = {
    0: {"messageID": 1, "topic": 2},
    1: {"messageID": 1, "receivedFrom": 2, "reason": 3, "topic": 4},
    2: {"messageID": 1, "receivedFrom": 2, "topic": 3},
    3: {"messageID": 1, "topic": 2, "receivedFrom": 3},
    4: {"peerID": 1, "proto": 2},
    6: {"receivedFrom": 1, "meta": 2},
    7: {"sendTo": 1, "meta": 2},
    9: {"topic": 1},
    10: {"topic": 2},
}
"""The field numbers of each payload, as `trace.proto` has them; LEAVE's topic is number 2 there."""


def go_events() -> list[GoEvent]:
    """Three subscribers in a line and one that leaves early; ten messages of the first one.

    Node 1 relays, node 2 gets some from node 1 and others first from node 0, and rejects one. Every
    message comes to node 1 twice. Node 3 leaves before the sixth message and got none.
    """
    first, second, third, fourth = NODES
    events = [GoEvent(START + number, node, 9, {"topic": TOPIC}) for number, node in
              enumerate(NODES)]  # fmt: skip
    events.append(GoEvent(START + 10, first, 4, {"peerID": second, "proto": PROTO}))
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


def expected_of_go() -> dict[str, Any]:
    """What the go traces come to, by counting in plain loops."""
    events = go_events()
    published = {e.fields["messageID"]: e.time for e in events if e.kind == 0}
    delivered = {}
    hops: dict[tuple[bytes, bytes], int] = {(message, NODES[0]): 0 for message in published}
    for event in events:
        if event.kind == 6:
            for carried in event.fields["meta"]["messages"]:
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
    sent = sum(len(e.fields["meta"]["messages"]) for e in events if e.kind == 7)

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
    """One file per node, a line per event: Go's JSON of the schema's struct, bytes as base64."""
    paths = []
    for number, node in enumerate(NODES):
        path = folder / f"node{number}.json"
        lines = [
            json.dumps(
                {
                    "type": event.kind,
                    "peerID": base64.b64encode(node).decode(),
                    "timestamp": event.time,
                    _KEYS[event.kind]: _json(event.fields),
                }
            )
            for event in go_events()
            if event.node == node
        ]
        path.write_text("".join(f"{line}\n" for line in lines))
        paths.append(path)
    return paths


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, list) else value


def write_go_protobuf(path: Path) -> Path:
    """All events in one file, each behind its length as a varint."""
    records = []
    for event in go_events():
        payload = b"".join(
            _field(_NUMBERS[event.kind][name], _proto(value))
            for name, value in event.fields.items()
        )
        record = (
            _varint(1 << 3) + _varint(event.kind)
            + _field(2, event.node)
            + _varint(3 << 3) + _varint(event.time)
            + _field(event.kind + 4, payload)
        )  # fmt: skip
        records.append(_varint(len(record)) + record)
    path.write_bytes(b"".join(records))
    return path


def _proto(value: Any) -> bytes:
    if isinstance(value, dict):  # an RPCMeta, which holds messages here
        return b"".join(
            _field(1, _field(1, each["messageID"]) + _field(2, each["topic"].encode()))
            for each in value["messages"]
        )
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
