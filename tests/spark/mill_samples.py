"""Runs to mill, of every protocol; the command; and a connection that dies."""

import contextlib
import random
import socket
import threading
from pathlib import Path
from typing import Any, Self

from rumormill.core.event import Event
from rumormill.core.trace import (
    DeliverMessage,
    FailPublish,
    Join,
    Leave,
    NodeDown,
    NodeUp,
    PublishMessage,
    SkipPublish,
    TracePayload,
    UndeliverableMessage,
)
from rumormill.log import EventLog
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.trace.entries import Batch, Recorder
from rumormill.trace.files import open_writer
from rumormill.trace.metrics import Metrics

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
    "away": {
        "protocol": "floodsub",
        "links": {"loss": 0.3},
        "topology": {"degree": 4},
        "workload": {"messages": 30, "topics": 2, "rate": 5},
        "faults": [{**CRASH, "duration": "5s"}, {**CRASH, "at": 2.0, "duration": "8s"}],
        "sync": {"enabled": True, "interval": 4, "settle": 1},
    },
}
"""One run of each protocol, with faults, so that pairs end in every way; and one with sync."""


ODD = "odd"
"""A run that no protocol would make."""


def simulate(folder: Path, peers: int = 16) -> dict[str, dict[str, Any]]:
    """Run every protocol; write the traces, each in another format, and return the figures."""
    suffixes = (".ndjson", ".pb", ".pb.gz", ".parquet", ".ndjson", ".parquet")
    figures = {}
    for (name, keys), suffix in zip(SCENARIOS.items(), suffixes, strict=True):
        scenario = Scenario.from_dict({"protocol": name, "peers": peers, **keys})
        figures[name] = run_scenario(scenario, trace=folder / f"{name}{suffix}")
    metrics = Metrics()
    recorder = Recorder([metrics, open_writer(folder / f"{ODD}.ndjson")])
    for entry in odd_trace():
        recorder.record(entry)
    recorder.close()
    figures[ODD] = metrics.summary()
    return figures


def odd_trace(entries: int = 3000) -> Batch:
    """Peers of two topics that come, go, fall and rise as dice say, and get what they may not.

    In the last third nobody falls any more, and all but two are up.
    """
    dice = random.Random(7)
    peers, topics = [b"%d" % number for number in range(6)], ("news", "old")
    published: list[tuple[bytes, str]] = [(b"never", "news")]
    trace: Batch = []
    payload: TracePayload
    for number in range(entries):
        peer, topic = dice.choice(peers), dice.choice(topics)
        message, about = dice.choice(published[-9:])
        wild = number < 2 * entries // 3
        falls = (3, 3) if wild else (0, 0)
        kind = dice.choices(range(9), (4, 1, *falls, 4, 90, 3, 1, 1))[0]
        if kind == 0:
            payload = Join(topic)
        elif kind == 1:
            payload = Leave(topic)
        elif kind == 2:
            payload = NodeUp()
        elif kind == 3:
            payload = NodeDown("crash")
        elif kind == 4:
            payload = PublishMessage(b"m%d" % number, topic)
            published.append((payload.message_id, topic))
            for _ in range(dice.randrange(4)):  # clocks differ
                early = DeliverMessage(
                    payload.message_id, topic, dice.choice(peers), dice.choice(("", "sync"))
                )
                trace.append((number / 8, dice.choice(peers), early))
        elif kind == 5:
            payload = DeliverMessage(message, about, dice.choice(peers), dice.choice(("", "sync")))
        elif kind == 6:
            payload = UndeliverableMessage(message, about, "queue-full")
        elif kind == 7:
            payload = FailPublish(topic, "refused")
        else:
            payload = SkipPublish(topic, "publisher down")
        trace.append((number / 8, peer, payload))
        if number == 2 * entries // 3:
            trace += [(number / 8, peer, NodeUp()) for peer in peers[:4]]
    return trace


def append(home: Path, events: list[Event]) -> None:
    """Put events into a store."""
    with EventLog(home) as log:
        log.append(events).result()


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
