"""A simulated network of Kademlia peers, and what tests ask of it."""

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any

from rumormill.core import trace
from rumormill.core.config import override
from rumormill.core.effects import Outcome
from rumormill.core.ids import PeerId
from rumormill.core.machine import Machine
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.messages import decode_kad, encode_kad
from rumormill.overlay.kademlia.operations import LookupResult
from rumormill.overlay.kademlia.peer import KademliaPeer, Request
from rumormill.overlay.kademlia.table import distance
from rumormill.overlay.kademlia.validators import CID_PREFIX, content_key
from rumormill.sim.host import Host
from rumormill.sim.network import CRASHED, Network
from rumormill.trace.entries import Batch, Recorder

PROTOCOL = "/kademlia-test"


def cid(value: bytes) -> bytes:
    """The CID under which a value may be stored."""
    return CID_PREFIX + sha256(value).digest()


def key_of(value: bytes) -> bytes:
    """The key under which a value may be stored."""
    return content_key(cid(value))


class Tally:
    """Counts what the trace says."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.penalised: Counter[PeerId] = Counter()
        self.sent = 0
        self.operations: Counter[str] = Counter()

    def observe(self, batch: Batch) -> None:
        for _, _, payload in batch:
            if isinstance(payload, trace.SendRPC):
                self.sent += 1
                for operation in payload.meta.operations:
                    self.operations[operation.name] += 1
            elif isinstance(payload, trace.Refuse):
                self.refused[payload.reason] += payload.count
            elif isinstance(payload, trace.Penalise):
                self.penalised[payload.peer] += 1

    def close(self) -> None:
        """Nothing is held open."""


class KadNet:
    """Peers that are nothing but Kademlia, each of which first meets a few others."""

    def __init__(
        self,
        peers: int,
        *,
        seed: int = 1,
        check_codec: bool = False,
        build: Callable[[int, PeerId, Random], Machine | None] = lambda *_: None,
        **changes: Any,
    ) -> None:
        self.config = override(KademliaConfig(), changes)
        self.tally = Tally()
        self.randomness = Random(f"{seed}/test")
        self._build = build
        self.network = Network(
            seed,
            Recorder([self.tally]),
            query_round_trip=(lambda message: decode_kad(encode_kad(message)))  # type: ignore[arg-type]
            if check_codec
            else None,
        )
        for _ in range(peers):
            self.add()

    def add(self) -> Host:
        """Add a peer, down as yet."""
        index = len(self.network.hosts)

        def build(peer: PeerId, randomness: Random) -> Machine:
            other = self._build(index, peer, randomness)
            return KademliaPeer(peer, randomness, self.config) if other is None else other

        return self.network.add_host((PROTOCOL,), build)

    def join_as(self, peer: PeerId, machine: Machine, meet: int) -> None:
        """Add a peer under an id of its choice and let it meet some others."""
        host = self.network.add_host((PROTOCOL,), lambda _peer, _randomness: machine)
        others = self.randomness.sample(self.up(), meet)
        del self.network.by_id[host.id]
        host.id = peer
        self.network.by_id[peer] = host
        self.network.start(host)
        for other in others:
            self.network.dial(host, self.network.hosts[other].id)

    def start(self, *, meet: int = 3, every: float = 0.05) -> None:
        """Bring everybody up, one after the other; each dials a few that are up already."""
        for index, host in enumerate(self.network.hosts):
            self.network.start(host)
            for other in self.randomness.sample(range(index), min(meet, index)):
                self.network.dial(host, self.network.hosts[other].id)
            self.run(every)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.network.engine.run_until(self.network.engine.now + seconds)
        self.network.engine.recorder.flush()

    def overlay(self, index: int) -> Kademlia:
        """A peer's overlay."""
        machine = self.network.hosts[index].machine
        assert isinstance(machine, KademliaPeer)
        return machine.overlay

    def ask(self, index: int, request: Request) -> list[LookupResult]:
        """Put a request to a peer; the list holds its result once there is one."""
        results: list[LookupResult] = []

        def then(outcome: Outcome) -> None:
            if outcome.error != CRASHED:
                assert isinstance(outcome.result, LookupResult), outcome.error
                results.append(outcome.result)

        self.network.hosts[index].command(request, then)
        return results

    def result(self, index: int, request: Request, within: float = 90.0) -> LookupResult:
        """Put a request to a peer and wait for its result."""
        results = self.ask(index, request)
        end = self.network.engine.now + within
        while not results and self.network.engine.now < end:
            self.run(0.5)
        (result,) = results
        return result

    def up(self) -> list[int]:
        """The peers that are up."""
        return [host.index for host in self.network.hosts if host.up]

    def truly_closest(self, key: bytes, count: int) -> list[PeerId]:
        """The living peers closest to a key, as only a test can know."""
        alive = [host.id for host in self.network.hosts if host.up]
        return sorted(alive, key=lambda peer: distance(peer, key))[:count]
