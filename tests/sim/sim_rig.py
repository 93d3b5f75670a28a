"""A network of probes: machines that remember what happens to them and send what a test says.

`Net` is for stories about links, hosts and connections, where every message is a `Note`. Peers are
named by their number, and the latency is 50 ms unless told otherwise. `played` runs a whole
scenario and keeps what a test wants to look at.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rumormill.core.effects import Effect, Effects, Mail, Send
from rumormill.core.inputs import Input, Received
from rumormill.core.trace import MessageMeta, RpcMeta, TracePayload
from rumormill.sim.host import Host
from rumormill.sim.latency import LatencyModel, constant
from rumormill.sim.link import LinkFaults
from rumormill.sim.network import Network
from rumormill.sim.replay import how_to_repeat
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Recorder
from rumormill.trace.metrics import Metrics
from trace_log import TraceLog

LATENCY = 0.05


class Note(msgspec.Struct, frozen=True):
    """A message between probes, of a chosen size in bytes."""

    text: str
    size: int = 100
    urgent: bool = False
    cached_meta: RpcMeta | None = None

    @property
    def meta(self) -> RpcMeta:
        """The text stands for a message id, so that a trace shows which note it was."""
        return RpcMeta((MessageMeta(self.text.encode(), "notes"),), size=self.size)


def _note(note: Note | str) -> Note:
    return Note(note) if isinstance(note, str) else note


class Probe:
    """Remembers every input with its time; answers with effects where a test prepared some."""

    def __init__(self) -> None:
        self.inputs: list[tuple[float, Input]] = []
        self.answers: dict[type, list[Effect]] = {}

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        self.inputs.append((round(now, 9), event))
        effects.extend(self.answers.pop(type(event), []))


class PairLatency(msgspec.Struct):
    """A latency for each ordered pair of peers; 50 ms where none is given."""

    pairs: Mapping[tuple[int, int], float]

    def __call__(self, source: int, target: int) -> float:
        return self.pairs.get((source, target), LATENCY)


class Net:
    """A network of probes."""

    def __init__(
        self,
        peers: int = 0,
        *,
        seed: int = 1,
        latency: LatencyModel | None = None,
        processing_delay: float = 0.0,
        upload: float = float("inf"),
        download: float = float("inf"),
        **faults: Any,
    ) -> None:
        self.log = TraceLog()
        self.network = Network(
            seed,
            Recorder([self.log]),
            latency or constant(LATENCY),
            LinkFaults(**faults),
            processing_delay=processing_delay,
        )
        self.engine = self.network.engine
        for _ in range(peers):
            host = self.add()
            host.upload, host.download = upload, download

    def add(self, *protocols: str) -> Host:
        """Add and start a probe that speaks some protocols; one and the same unless told."""
        host = self.network.add_host(protocols or ("/probe",), lambda _peer, _rng: Probe())
        self.network.start(host)
        return host

    def host(self, index: int) -> Host:
        return self.network.hosts[index]

    def probe(self, index: int) -> Probe:
        machine: Any = self.host(index).machine
        assert isinstance(machine, Probe)
        return machine

    def connect(self, dialler: int, listener: int) -> None:
        """Connect two peers and forget how it came about."""
        self.network.dial(self.host(dialler), self.host(listener).id)
        self.run(2 * LATENCY)
        assert self.linked(dialler, listener)
        for index in (dialler, listener):
            self.probe(index).inputs.clear()

    def linked(self, one: int, other: int) -> bool:
        here = self.host(other).id in self.host(one).links
        assert here == (self.host(one).id in self.host(other).links)
        return here

    def send(self, source: int, target: int, *notes: Note | str) -> None:
        """Let a probe send notes, all at once."""
        peer = self.host(target).id
        self.act(source, *(Send(peer, _note(note)) for note in notes))

    def mail(self, source: int, target: int, *notes: Note | str) -> None:
        """Let a probe send notes as letters, all at once."""
        peer = self.host(target).id
        self.act(source, *(Mail(peer, _note(note)) for note in notes))

    def act(self, index: int, *effects: Effect) -> None:
        """Let a probe ask its runtime for something."""
        self.host(index).effects.extend(effects)
        self.host(index).carry_out()

    def run(self, seconds: float) -> None:
        self.engine.run_until(self.engine.now + seconds)

    def inputs(self, index: int, kind: type[Any] | None = None) -> list[Any]:
        """The inputs of a peer, of one kind or all."""
        inputs = [event for _, event in self.probe(index).inputs]
        return [event for event in inputs if kind is None or isinstance(event, kind)]

    def arrivals(self, index: int) -> list[tuple[float, str]]:
        """When which note arrived at a peer, in order."""
        return [
            (now, event.message.text)  # type: ignore[attr-defined]
            for now, event in self.probe(index).inputs
            if isinstance(event, Received)
        ]

    def texts(self, index: int) -> list[str]:
        """The notes that arrived at a peer, in order."""
        return [text for _, text in self.arrivals(index)]

    def trace(self, kind: type[TracePayload], peer: int | None = None) -> list[Any]:
        """The trace payloads of one kind, at one peer or all."""
        self.engine.recorder.flush()
        wanted = None if peer is None else self.host(peer).id
        return self.log.of(kind, wanted)


class Run:
    """A scenario that was run: its figures, its books, its trace, and what applications got."""

    def __init__(self, scenario: Scenario, *, keep_trace: bool = False) -> None:
        scenario.validate()
        self.scenario = scenario
        self.metrics, self.log = Metrics(), TraceLog()
        observers = [self.metrics, self.log] if keep_trace else [self.metrics]
        self.simulation = Simulation(scenario, observers)
        self.delivered: list[list[tuple[float, bytes]]] = [[] for _ in range(scenario.peers)]
        engine = self.simulation.network.engine
        subscribers = self.simulation.network.hosts[: scenario.peers]
        for host, mine in zip(subscribers, self.delivered, strict=True):
            host.on_event = lambda event, mine=mine: mine.append((engine.now, event.id))
        self.simulation.run()
        self.summary = self.metrics.summary()

    def __repr__(self) -> str:
        """What a failing assertion shows."""
        return how_to_repeat(self.scenario)

    def check_books(self) -> None:
        """Every pair of an event and a subscriber is in exactly one state, topic by topic."""
        for topic, sums in self.metrics.ledger.sums().items():
            settled = sums.delivered + sums.pending + sum(sums.dropped.values())
            assert sums.expected == settled, f"{topic}: {sums}\n{self}"

    def check_single_deliveries(self) -> None:
        """No application got the same event twice."""
        for peer, mine in enumerate(self.delivered):
            ids = [message_id for _, message_id in mine]
            assert len(ids) == len(dict.fromkeys(ids)), f"peer {peer} got one twice\n{self}"

    def trace(self, kind: type[TracePayload]) -> list[tuple[float, int, Any]]:
        """The trace entries of one kind, with peers by their number."""
        return [
            (now, int.from_bytes(peer, "big"), payload)
            for now, peer, payload in self.log.entries
            if isinstance(payload, kind)
        ]
