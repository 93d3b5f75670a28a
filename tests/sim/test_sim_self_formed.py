"""Networks that form themselves from one ticket: what membership promises, for every protocol."""

import random
from typing import Any

import pytest

from rumormill.core.effects import Answer, Ask, Connect, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Asked, Input, Start, Subscribe, TimerFired
from rumormill.core.machine import View
from rumormill.core.trace import DeliverMessage, PublishMessage
from rumormill.members.config import MembersConfig
from rumormill.members.links import Link
from rumormill.members.peer import topic_key, with_members
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType
from rumormill.overlay.kademlia.operations import LookupKind, LookupResult
from rumormill.protocols.registry import PROTOCOL_NAMES, Hooks, protocol
from rumormill.sim.host import Host
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.network import Network, peer_id
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.metrics import Metrics
from rumormill.wire.multiaddr import Multiaddr
from trace_log import TraceLog

CONFIG = MembersConfig()


def scenario(name: str, peers: int, **more: Any) -> Scenario:
    preset = {"pulsarcast": "open", "radius": "few"}.get(name, "default")
    table: dict[str, Any] = {
        "protocol": name,
        "preset": preset,
        "peers": peers,
        "topology": {"kind": "self-formed"},
        "warm_up": "40s",
        "cool_down": "30s",
        "check_codec": peers <= 20,
        "workload": {"messages": 20, "rate": 2.0},
        "sync": {"enabled": protocol(name).recovers},
    }
    return Scenario.from_dict({**table, **more})


def components(network: Network) -> list[int]:
    """The sizes of the parts of a network, the largest first."""
    left = {host.id: host for host in network.hosts if host.up}
    sizes = []
    while left:
        waiting = [left.popitem()[1]]
        size = 0
        while waiting:
            host = waiting.pop()
            size += 1
            waiting += [left.pop(peer) for peer in [*host.links] if peer in left]
        sizes.append(size)
    return sorted(sizes, reverse=True)


VICTIMS = ((0,), (0, 1, 2), (3, 6, 9))


@pytest.mark.parametrize("victims", VICTIMS)
@pytest.mark.parametrize("name", PROTOCOL_NAMES)
def test_whoever_of_ten_is_killed_the_rest_gets_everything_in_thirty_seconds(
    name: str, victims: tuple[int, ...]
) -> None:
    """Killed before the first event; whoever is up publishes, and the run ends 30 s after."""
    log = TraceLog()
    wanted = scenario(name, 10, faults=[{"kind": "crash", "at": "-5s", "peers": list(victims)}])
    simulation = Simulation(wanted, [log])
    simulation.run()
    start = simulation.plan.start
    published = {
        payload.message_id
        for at, _, payload in log.entries
        if isinstance(payload, PublishMessage) and at >= start
    }
    survivors = [host for host in simulation.network.hosts[:10] if host.up]
    assert published
    assert len(survivors) == 10 - len(victims)
    for host in survivors:
        delivered = {payload.message_id for payload in log.of(DeliverMessage, host.id)}
        assert published <= delivered, f"peer {host.index} lacks {len(published - delivered)}"


@pytest.mark.parametrize("name", ["gossipsub", "floodsub"])
def test_sixty_from_one_ticket_are_one_network_with_bounded_degrees(name: str) -> None:
    metrics = Metrics()
    simulation = Simulation(scenario(name, 60, cool_down="5s"), [metrics])
    simulation.run()
    assert metrics.summary()["delivery_ratio"] == 1.0
    degrees = [len(host.links) for host in simulation.network.hosts]
    assert components(simulation.network) == [60]
    assert min(degrees) >= CONFIG.wanted
    assert max(degrees) <= CONFIG.most


@pytest.mark.parametrize("name", PROTOCOL_NAMES)
def test_the_figures_of_a_run_say_how_long_it_took_to_form_and_what_that_cost(name: str) -> None:
    figures = run_scenario(scenario(name, 10, workload={"messages": 1}, cool_down="1s"))
    assert 0 < figures["formed_after"] < 40
    assert 0 < figures["formed_bytes_per_peer"] < 100_000


def test_five_hundred_who_start_in_the_same_moment_are_one_network_soon() -> None:
    """Everybody is told of its neighbours by one who knows few: they must look farther."""
    figures = run_scenario(
        scenario(
            "floodsub",
            500,
            seed=2,
            links={"latency": "planetlab"},
            warm_up="10s",
            cool_down="2s",
            workload={"messages": 2, "rate": 2.0},
            sync={"enabled": False},
        )
    )
    assert figures["formed_after"] < 5.0
    assert figures["delivery_ratio"] == 1.0


@pytest.mark.parametrize("name", [each for each in PROTOCOL_NAMES if each != "skipring"])
def test_a_partition_that_heals_is_one_network_within_thirty_seconds(name: str) -> None:
    """Long enough that everybody has given up the other half."""
    groups = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    fault = {"kind": "partition", "at": "0s", "groups": groups, "duration": "120s"}
    wanted = scenario(name, 10, faults=[fault], workload={"messages": 0}, cool_down="150s")
    simulation = Simulation(wanted)
    start = simulation.plan.start
    simulation.run(until=start + 119.0)
    assert components(simulation.network) == [5, 5]
    simulation.run(until=start + 150.0)
    assert components(simulation.network) == [10]


def test_three_subscribers_among_fifty_find_each_other() -> None:
    """Nobody between them subscribes, and their links are to others."""
    simulation = Simulation(scenario("gossipsub", 50, workload={"messages": 0, "topics": 1}))
    simulation.plan.subscriptions[:] = [() for _ in simulation.plan.subscriptions]
    simulation.run(until=20.0)
    hosts = simulation.network.hosts
    chosen = [hosts[number] for number in (7, 23, 41)]
    for host in chosen:
        host.handle(Subscribe("rare"))
    simulation.run(until=40.0)
    for host in chosen:
        found = host.machine.view().peers["rare"]
        assert sorted(found) == sorted(other.id for other in chosen if other is not host)
        assert len(host.links) <= CONFIG.most


def test_who_comes_back_rejoins_from_memory_when_its_ticket_leads_nowhere() -> None:
    """The first peer, whose ticket everybody had, is gone for good."""
    faults = [
        {"kind": "crash", "at": "-10s", "peers": [0]},
        {"kind": "crash", "at": "0s", "peers": [4, 5], "duration": "10s"},
    ]
    wanted = scenario("gossipsub", 10, faults=faults, cool_down="60s", workload={"messages": 0})
    simulation = Simulation(wanted)
    simulation.run()
    assert [host.up for host in simulation.network.hosts].count(True) == 9
    assert components(simulation.network) == [9]


class Sybil:
    """One of an attacker's many ids: it answers like a member, names its fellows, says that it
    subscribes to the topic, and comes back whenever it is let go."""

    def __init__(self, peer: PeerId, victims: list[PeerId], fellows: tuple[KadPeer, ...]) -> None:
        self._claim = KadMessage(KadType.ADD_PROVIDER, topic_key("t"), providers=(KadPeer(peer),))
        self._victims = victims
        self._fellows = fellows

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        if isinstance(event, Start | TimerFired):
            effects += [Connect(peer) for peer in self._victims]
            effects += [Ask(peer, 1, self._claim, 5.0, one_way=True) for peer in self._victims]
            effects.append(SetTimer("again", now + 5.0))
        elif isinstance(event, Asked) and isinstance(event.message, KadMessage):
            question = event.message
            answer = KadMessage(question.type, question.key, closer=self._fellows)
            effects.append(Answer(event.number, answer))

    def view(self) -> View:
        return View()


def _add_honest(network: Network, address: str) -> Host:
    spec = protocol("gossipsub")
    settings = spec.configure()

    def build(peer: PeerId, randomness: random.Random) -> Any:
        hooks = Hooks(addresses=lambda each: _addresses(network, each))
        machine = spec.build(SimulatedIdentity(peer), randomness, settings, hooks)
        draws = random.Random(f"members {peer.hex()}")
        return with_members(spec, machine, peer, draws, CONFIG, hooks)

    return network.add_host(spec.protocol_ids, build, address)


def _addresses(network: Network, peer: PeerId) -> list[bytes]:
    host = network.by_id.get(peer)
    return [] if host is None else [Multiaddr.tcp(host.address, 4001).encode()]


def test_five_hundred_ids_in_one_group_hold_no_more_than_their_share() -> None:
    """They all come to one honest peer of thirty, and to its friends, and stay."""
    network = Network(1)
    honest = [_add_honest(network, f"{20 + number}.7.0.1") for number in range(30)]
    fellows = tuple(KadPeer(peer_id(30 + number)) for number in range(8))
    protocols = protocol("gossipsub").protocol_ids
    sybils = []
    for number in range(500):
        sybil = Sybil(peer_id(30 + number), [honest[0].id, honest[number % 30].id], fellows)
        address = f"45.67.89.{number % 250}"
        sybils.append(network.add_host(protocols, lambda *_, sybil=sybil: sybil, address))
    evil = {host.id for host in sybils}
    for host in honest:
        network.start(host)
        network.dial(host, honest[0].id)
    network.engine.run_until(20.0)
    for host in sybils:
        network.start(host)
    network.engine.run_until(60.0)
    for host in honest:
        members = host.machine.view().links["member"][""]
        assert len([peer for peer in members if peer in evil]) <= CONFIG.per_group
        assert len([peer for peer in members if peer not in evil]) >= CONFIG.dialled
        machine: Any = host.machine
        remembered = [known for known in machine._book if known.peer in evil]
        assert len(remembered) <= CONFIG.remembered // 8
        providers = machine._table.providers.get(topic_key("t"), network.engine.now)
        assert 0 < len(evil & {*providers}) <= 64 // 8
    # Without the attacker, the honest ones are still one network.
    for host in sybils:
        network.crash(host)
    network.engine.run_until(61.0)
    assert components(network) == [30]


def test_whose_ticket_everybody_has_is_not_overrun_by_those_who_start() -> None:
    """Ten come in a second, and go to others when they have been told of some."""
    wanted = scenario("gossipsub", 100, join_interval="0.1s", workload={"messages": 0})
    simulation = Simulation(wanted)
    first = simulation.network.hosts[0]
    for look in range(1, 70):
        simulation.run(until=look / 5)
        assert len(first.machine.view().links["member"][""]) <= 2 * CONFIG.most
        assert len(first.links) <= 3 * CONFIG.most  # some are about to be turned away
    assert components(simulation.network) == [100]


def test_whoever_is_full_dials_no_subscriber_of_its_topic_either() -> None:
    """Twice the most links is the wall, for what is sought as for what comes."""
    wanted = scenario("gossipsub", 3, workload={"messages": 0}, sync={"enabled": False})
    simulation = Simulation(wanted)
    simulation.run(until=20.0)
    machine: Any = simulation.network.hosts[0].machine
    (search,) = machine._searches.values()
    found = LookupResult(1, LookupKind.FIND_PROVIDERS, search.key, peers=(peer_id(77),))

    def dialled() -> list[PeerId]:
        effects: Effects = []
        machine._on_result(found, 20.0, effects)
        machine._dialling.clear()
        return [each.peer for each in effects if isinstance(each, Connect)]

    assert dialled() == [peer_id(77)]
    while len(machine._links.members()) < 2 * CONFIG.most:
        assert dialled() == [peer_id(77)]
        other = peer_id(100 + len(machine._links.all))
        machine._links.all[other] = Link(False, False, "", 0.0, member=True)
    assert dialled() == []


@pytest.mark.slow
def test_two_thousand_with_churn_are_one_network_with_bounded_degrees() -> None:
    """30 % of all leave in every minute, and come back after half a minute."""
    metrics = Metrics()
    wanted = scenario(
        "gossipsub",
        2000,
        warm_up="60s",
        join_interval="0.01s",
        sync={"enabled": False},
        churn={"fraction": "30%", "downtime": "30s"},
        workload={"messages": 12, "rate": 0.1, "publishers": 20},
    )
    simulation = Simulation(wanted, [metrics])
    network = simulation.network
    start = simulation.plan.start
    for at in (0.0, 30.0, 60.0, 90.0, 120.0):
        simulation.run(until=start + at)
        parts, up = components(network), [host for host in network.hosts if host.up]
        # Who has come up in this moment is not linked yet.
        assert parts[0] >= 0.995 * len(up), parts
        degrees = sorted(len(host.links) for host in up)
        assert degrees[len(degrees) // 2] >= CONFIG.wanted
        assert degrees[len(degrees) * 95 // 100] <= CONFIG.most + 2
        # Ten come back in a second; who comes to one that has enough is turned away a little later.
        assert degrees[-1] <= 2 * CONFIG.most + 2 * 10
    simulation.run()
    assert metrics.summary()["delivery_ratio"] > 0.99
