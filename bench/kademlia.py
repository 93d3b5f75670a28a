"""What Kademlia costs in messages: joining, storing, finding, and finding when peers are gone.

    python bench/kademlia.py --peers 100 300 1000

Counts come from the simulator and do not depend on the machine: the same seed gives the same table.
"""

import argparse
import random
import statistics
from hashlib import sha256

from rumormill.core.effects import Outcome
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.operations import LookupResult
from rumormill.overlay.kademlia.peer import GetValue, KademliaPeer, PutValue, Request
from rumormill.overlay.kademlia.validators import CID_PREFIX, content_key
from rumormill.sim.host import Host
from rumormill.sim.network import Network
from rumormill.trace.entries import Batch, Recorder

VALUES = 100


class Sent:
    """Counts messages."""

    count = 0

    def observe(self, batch: Batch) -> None:
        self.count += sum(type(payload).__name__ == "SendRPC" for _, _, payload in batch)

    def close(self) -> None:
        """Nothing is held open."""


def build(peer: PeerId, randomness: random.Random) -> KademliaPeer:
    return KademliaPeer(peer, randomness, KademliaConfig())


def result(network: Network, host: Host, request: Request) -> tuple[LookupResult, float]:
    """Put a request to a peer and wait; return the result and the seconds it took."""
    results: list[tuple[LookupResult, float]] = []

    def then(outcome: Outcome) -> None:
        assert isinstance(outcome.result, LookupResult)
        results.append((outcome.result, network.engine.now - begun))

    begun = network.engine.now
    host.command(request, then)
    while not results:
        network.engine.run_until(network.engine.now + 0.25)
    return results[0]


def key_of(value: bytes) -> bytes:
    return content_key(CID_PREFIX + sha256(value).digest())


def measure(peers: int, seed: int) -> None:
    sent = Sent()
    network = Network(seed, Recorder([sent]))
    rng = random.Random(seed)
    for index in range(peers):
        host = network.add_host(("/bench",), build)
        network.start(host)
        for other in rng.sample(range(index), min(3, index)):
            network.dial(host, network.hosts[other].id)
        network.engine.run_until(network.engine.now + 0.05)
    network.engine.run_until(network.engine.now + 30.0)
    network.engine.recorder.flush()
    tables = [len(host.machine.overlay.contacts.table) for host in network.hosts]  # type: ignore[attr-defined]
    print(
        f"{peers} peers: {sent.count / peers:.0f} messages per peer to join,"
        f" {statistics.mean(tables):.0f} contacts"
    )
    values = [b"value %d" % number for number in range(VALUES)]
    puts = [result(network, rng.choice(network.hosts), PutValue(key_of(v), v)) for v in values]
    report("store", [put for put, _ in puts], [seconds for _, seconds in puts])
    search(network, rng, values, "find")
    for host in rng.sample(network.hosts, peers * 3 // 10):
        network.crash(host)
    search(network, rng, values, "find, 30 % gone")


def search(network: Network, rng: random.Random, values: list[bytes], title: str) -> None:
    alive = [host for host in network.hosts if host.up]
    gets = [result(network, rng.choice(alive), GetValue(key_of(value))) for value in values]
    found = sum(got.value == value for (got, _), value in zip(gets, values, strict=True))
    report(title, [got for got, _ in gets], [seconds for _, seconds in gets])
    print(f"  {'':16} {found} of {len(values)} found")


def report(title: str, results: list[LookupResult], seconds: list[float]) -> None:
    asked = [each.asked for each in results]
    failed = statistics.mean(each.failed for each in results)
    print(
        f"  {title:16} {statistics.mean(asked):5.1f} questions ({max(asked)} at most),"
        f" {failed:.1f} of them in vain, {statistics.mean(seconds):.2f} s"
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--peers", type=int, nargs="+", default=[100])
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    for size in options.peers:
        measure(size, options.seed)
