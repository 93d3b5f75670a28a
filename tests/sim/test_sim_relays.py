"""Peers behind NATs: who can be dialled, over what, at which cost, and what ends it."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from sim_rig import LATENCY, Net, Note, PairLatency, Run

from rumormill.core.effects import Connect
from rumormill.core.errors import ConfigError
from rumormill.core.inputs import ConnectFailed, PeerConnected, PeerDisconnected, SendDropped
from rumormill.core.trace import DropRPC, Refuse
from rumormill.sim.link import NO_RELAY, LinkFaults
from rumormill.sim.mail import IDLE_AFTER
from rumormill.sim.network import REDIAL_AFTER
from rumormill.sim.reach import Reach, ReachClass
from rumormill.sim.relays import RELAY_FULL, RELAY_GONE, RESERVE_AFTER, SPENT, TIME_OVER, Relays
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

WILD = Scenario.load(Path(__file__).resolve().parents[2] / "scenarios" / "wild.toml")
PROTOCOLS = ("floodsub", "gossipsub", "pulsarcast", "skipring", "radius")
PUBLIC, PUNCHABLE, RELAY_ONLY = "public", "punchable", "relay-only"
ALL = {"relay_only": 1.0}


def net_of(*classes: ReachClass, latency: Any = None, **reach: Any) -> Net:
    """A network of probes in these classes, after they have found relays."""
    net = Net(latency=latency)
    config = Reach(**{**ALL, **reach})
    net.network.relays = Relays(net.network, config, classes, Random(1))
    for _ in classes:
        net.add()
    net.run(RESERVE_AFTER)
    return net


def figures(net: Net) -> dict[str, Any]:
    assert net.network.relays is not None
    found: dict[str, Any] = net.network.relays.figures()["reach"]
    return found


def connections(net: Net) -> dict[str, int]:
    return {kind: count for kind, count in figures(net)["connections"].items() if count}


def linked_at(net: Net, index: int) -> list[float]:
    return [now for now, event in net.probe(index).inputs if isinstance(event, PeerConnected)]


def dial(net: Net, dialler: int, listener: int) -> None:
    net.network.dial(net.host(dialler), net.host(listener).id)


# Dialling.


def test_nobody_reaches_a_peer_behind_a_nat_without_a_relay() -> None:
    """A connection and a letter fail after a round trip, with the reason, traced and counted."""
    net = net_of(RELAY_ONLY, PUNCHABLE)
    net.act(0, Connect(net.host(1).id))
    net.mail(0, 1, "letter")
    net.run(1.0)
    assert net.inputs(0, ConnectFailed) == [ConnectFailed(net.host(1).id, NO_RELAY)]
    assert [dropped.reason for dropped in net.inputs(0, SendDropped)] == [NO_RELAY]
    assert [each.reason for each in net.trace(Refuse, 0)] == [NO_RELAY, NO_RELAY]
    assert [each.reason for each in net.trace(DropRPC, 0)] == [NO_RELAY]
    assert net.inputs(1, PeerConnected) == net.texts(1) == []
    assert (connections(net), figures(net)["dials_without_relay"]) == ({}, 2)


def test_who_is_behind_a_nat_dials_public_peers_as_everybody_does() -> None:
    """One way, and nothing is relayed."""
    net = net_of(PUBLIC, PUBLIC, RELAY_ONLY)
    dial(net, 2, 0)
    net.run(1.0)
    assert linked_at(net, 0) == [RESERVE_AFTER + LATENCY]
    assert (connections(net), figures(net)["relayed_bytes"]) == ({"direct": 1}, 0)


def test_a_relay_reaches_whoever_has_a_reservation_with_it() -> None:
    """Over the connection that the reservation keeps."""
    net = net_of(PUBLIC, RELAY_ONLY)
    dial(net, 0, 1)
    net.run(1.0)
    assert net.linked(0, 1)
    assert connections(net) == {"direct": 1}


def test_a_relayed_connection_has_two_hops() -> None:
    """Dialling, messages and answers take both, through the nearer of two relays."""
    ways = {(1, 0): 0.1, (0, 2): 0.3, (2, 0): 0.2, (0, 1): 0.4, (1, 3): 1.0, (3, 2): 1.0}
    net = net_of(PUBLIC, RELAY_ONLY, RELAY_ONLY, PUBLIC, latency=PairLatency(ways))
    dial(net, 1, 2)
    net.run(1.0)
    assert linked_at(net, 1) == linked_at(net, 2) == [1.4]
    net.send(1, 2, "there")
    net.send(2, 1, "back")
    net.run(1.0)
    assert net.arrivals(2) == [(2.4, "there")]
    assert net.arrivals(1) == [(2.6, "back")]
    assert connections(net) == {"relayed": 1}
    assert figures(net)["relayed_bytes"] == figures(net)["busiest_relay_bytes"] == 200


def test_a_letter_and_its_answer_travel_through_a_relay() -> None:
    """The handshake there and back, then the way: three times two hops; the answer two more."""
    net = net_of(PUBLIC, RELAY_ONLY, RELAY_ONLY)
    net.mail(1, 2, "letter")
    net.run(7 * LATENCY)
    net.mail(2, 1, "answer")
    net.run(1.0)
    assert net.arrivals(2) == [(pytest.approx(RESERVE_AFTER + 6 * LATENCY), "letter")]
    assert net.arrivals(1) == [(pytest.approx(RESERVE_AFTER + 9 * LATENCY), "answer")]
    assert (connections(net), figures(net)["relayed_bytes"]) == ({"relayed": 1}, 200)


def test_what_a_relay_carries_takes_its_upload() -> None:
    """Two streams of others share it."""
    net = net_of(PUBLIC, *[RELAY_ONLY] * 4)
    net.host(0).upload = 1000.0
    for dialler, listener in ((1, 2), (3, 4)):
        dial(net, dialler, listener)
    net.run(1.0)
    for source, target in ((1, 2), (3, 4)):
        net.send(source, target, Note("heavy", size=500))
    net.run(2.0)
    arrived = [now for index in (2, 4) for now, _ in net.arrivals(index)]
    assert arrived == pytest.approx([2.5 + 2 * LATENCY, 3.0 + 2 * LATENCY])


def test_each_hop_may_lose_a_message_and_delays_it() -> None:
    """A quarter passes two hops that lose half; jitter is drawn twice."""
    net = net_of(PUBLIC, RELAY_ONLY, RELAY_ONLY)
    net.network.faults = LinkFaults(loss=0.5, jitter=0.1)
    dial(net, 1, 2)
    net.run(1.0)
    net.send(1, 2, *(Note(str(number), size=10) for number in range(400)))
    net.run(1.0)
    times = [now for now, _ in net.arrivals(2)]
    assert 70 < len(times) < 130
    assert 2.0 + 2 * LATENCY + 0.1 < max(times) < 2.0 + 2 * LATENCY + 0.2


# Direct connections in the place of relayed ones.


def test_a_listener_behind_a_nat_dials_a_public_peer_back() -> None:
    """The connection is relayed for one way of it; letters share what links have."""
    net = net_of(PUBLIC, PUBLIC, RELAY_ONLY, relays=1)
    relay = next(i for i in (0, 1) if net.network.relays._granted[i])  # type: ignore[union-attr]
    stranger = 1 - relay
    dial(net, stranger, 2)
    net.run(2 * LATENCY)
    net.send(stranger, 2, "relayed")
    net.run(1.0)
    net.send(stranger, 2, "direct")
    net.mail(2, stranger, "letter")
    net.run(1.0)
    first, second = (now for now, _ in net.arrivals(2))
    assert (first, second) == pytest.approx((RESERVE_AFTER + 4 * LATENCY, 2.1 + LATENCY))
    assert connections(net) == {"reversed": 1}
    assert figures(net)["relayed_bytes"] == 100


def test_a_punched_hole_makes_a_connection_direct_and_keeps_the_order() -> None:
    """After four ways over the relay and one directly; nothing overtakes what went the long way."""
    ways = {(1, 0): 0.2, (0, 2): 0.2, (2, 0): 0.2, (0, 1): 0.2, (1, 2): 0.01, (2, 1): 0.01}
    net = net_of(PUBLIC, PUNCHABLE, PUNCHABLE, latency=PairLatency(ways), punch_success=1.0)
    dial(net, 1, 2)
    for number in range(20):
        net.run(0.1)
        if net.linked(1, 2):
            net.send(1, 2, str(number))
    net.run(1.0)
    assert net.texts(2) == [str(number) for number in range(3, 20)]
    assert connections(net) == {"punched": 1}
    assert figures(net)["relayed_bytes"] == 100 * (16 - 3)
    net.send(1, 2, "direct")
    sent = net.engine.now
    net.run(1.0)
    assert net.arrivals(2)[-1] == (pytest.approx(sent + 0.01), "direct")


def test_whether_a_hole_can_be_punched_is_decided_once_for_two_peers() -> None:
    """About so many pairs as the share says, and each again as the last time."""
    net = net_of(PUBLIC, *[PUNCHABLE] * 40, punch_success=0.7)
    pairs = [(one, other) for one in range(1, 41) for other in range(1, one)]
    for _ in range(2):
        for one, other in pairs:
            net.mail(one, other, "letter")
        net.run(IDLE_AFTER + 1.0)
    found = connections(net)
    assert found["punched"] + found["relayed"] == 2 * len(pairs)
    assert found["punched"] % 2 == 0
    assert 0.65 < found["punched"] / (2 * len(pairs)) < 0.75


def test_no_hole_is_punched_through_the_nat_of_a_relay_only_peer() -> None:
    """Whoever is on the other side."""
    net = net_of(PUBLIC, PUNCHABLE, RELAY_ONLY, punch_success=1.0)
    dial(net, 1, 2)
    net.run(10.0)
    assert connections(net) == {"relayed": 1}


# What ends a relayed connection.


def test_a_spent_budget_ends_a_circuit_and_the_link_is_dialled_again() -> None:
    """What did not fit is dropped and counted, both ends are told, a new circuit can do more."""
    net = net_of(PUBLIC, RELAY_ONLY, RELAY_ONLY, circuit_bytes=1024)
    dial(net, 1, 2)
    net.run(1.0)
    net.send(1, 2, *(Note(str(number), size=300) for number in range(4)))
    net.send(2, 1, Note("other way", size=1000))
    net.run(0.5)
    assert net.texts(2) == []  # the relay has reset both ways before anything arrived
    assert {each.reason for each in net.trace(DropRPC)} == {SPENT, "connection closed"}
    assert [each.reason for each in net.trace(Refuse, 0)] == [SPENT]
    for index, other in ((1, 2), (2, 1)):
        assert net.inputs(index, PeerDisconnected) == [PeerDisconnected(net.host(other).id, True)]
    assert figures(net)["circuits_ended"] == {SPENT: 1}
    net.run(REDIAL_AFTER)
    net.send(1, 2, Note("again", size=1000))
    net.run(0.5)
    assert net.texts(2) == ["again"]
    assert connections(net) == {"relayed": 2}


def test_a_circuit_ends_with_its_time_unless_it_has_become_direct() -> None:
    """The relayed link is reset, the punched one stays."""
    for success, kind in ((0.0, "relayed"), (1.0, "punched")):
        net = net_of(PUBLIC, PUNCHABLE, PUNCHABLE, punch_success=success, circuit_time=5.0)
        dial(net, 1, 2)
        net.run(5.0 + 3 * LATENCY)
        ended = {TIME_OVER: 1} if kind == "relayed" else {}
        assert (connections(net), figures(net)["circuits_ended"]) == ({kind: 1}, ended)
        assert net.linked(1, 2) == (kind == "punched")


def test_a_relay_that_dies_takes_its_circuits_along_and_another_takes_its_place() -> None:
    """Links and letters over it end; peers find another relay, and what was cut is dialled."""
    net = net_of(PUBLIC, RELAY_ONLY, RELAY_ONLY, PUBLIC, relays=1)
    granted = net.network.relays._reserved[2]  # type: ignore[union-attr]
    (relay,) = granted
    dial(net, 1, 2)
    net.run(1.0)
    net.send(1, 2, "under way")
    net.network.crash(net.host(relay))
    net.run(0.5)
    assert net.texts(2) == []
    assert not net.linked(1, 2)
    assert figures(net)["circuits_ended"] == {RELAY_GONE: 1}
    net.run(RESERVE_AFTER + REDIAL_AFTER)
    assert net.linked(1, 2)
    assert list(granted) == [3 - relay]


def test_a_partition_between_a_peer_and_its_relay_ends_the_circuit() -> None:
    """Though it does not separate the two ends."""
    net = net_of(PUBLIC, RELAY_ONLY, RELAY_ONLY)
    dial(net, 1, 2)
    net.run(1.0)
    net.network.partition([[0], [1, 2]])
    net.run(5.0)
    assert not net.linked(1, 2)
    net.network.heal()
    net.run(5.0)
    assert net.linked(1, 2)
    assert figures(net)["circuits_ended"] == {RELAY_GONE: 1}


def test_a_relay_grants_so_many_reservations_and_counts_what_it_refuses() -> None:
    """Whoever gets none cannot be dialled until a place is free."""
    net = net_of(PUBLIC, *[RELAY_ONLY] * 3, reservations=2)
    net.act(0, *(Connect(net.host(index).id) for index in (1, 2, 3)))
    net.run(1.0)
    (left_out,) = (each.peer for each in net.inputs(0, ConnectFailed))
    assert {each.reason for each in net.trace(Refuse, 0)} == {RELAY_FULL, NO_RELAY}
    lucky = next(index for index in (1, 2) if net.linked(0, index))
    net.network.crash(net.host(lucky))
    net.run(RESERVE_AFTER)
    net.act(0, Connect(left_out))
    net.run(1.0)
    assert left_out in net.host(0).links


# Whole runs.


def small(protocol: str, **changes: Any) -> Scenario:
    """The wild's scenario with few peers."""
    less = {
        "peers": 30,
        "cool_down": 40.0,
        "workload.messages": 16,
        "workload.rate": 2.0,
        "seed": 5,
    }
    return WILD.under(protocol).changed({**less, **changes})


@pytest.mark.parametrize("topology", ["self-formed", "random-regular"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_complete_on_a_network_as_it_is(protocol: str, topology: str) -> None:
    """Half of the peers behind NATs, and relays that end what they carry twice a minute."""
    scenario = small(protocol, **{"topology.kind": topology, "reach.circuit_time": 15.0})
    run = Run(scenario)
    assert run.simulation.network.relays is not None
    found = run.simulation.network.relays.figures()["reach"]
    assert found["peers"] == {PUBLIC: 14, PUNCHABLE: 15, RELAY_ONLY: 1}
    assert found["connections"]["punched"] > 0
    assert found["connections"]["relayed"] > 0
    assert found["circuits_ended"][TIME_OVER] > 0
    assert found["relayed_bytes"] >= found["busiest_relay_bytes"] > 0
    assert run.summary["complete_ratio"] == 1.0, run
    run.check_books()
    run.check_single_deliveries()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_complete_though_relays_die_and_budgets_are_small(protocol: str) -> None:
    """A third of all peers goes down for ten seconds, circuits carry twelve kilobytes, and most
    connections stay relayed."""
    crash = {"kind": "crash", "at": 3.0, "fraction": 0.3, "duration": 10.0}
    classes = {"reach.punchable": 0.2, "reach.relay_only": 0.3}
    load = {"peers": 40, "faults": [crash], "workload.size": 1000, "reach.circuit_bytes": 12288}
    scenario = small(protocol, **load, **classes)
    run = Run(scenario)
    assert run.simulation.network.relays is not None
    ended = run.simulation.network.relays.figures()["reach"]["circuits_ended"]
    assert ended[RELAY_GONE] > 0
    assert ended[SPENT] > 0
    assert run.summary["complete_ratio"] == 1.0, run
    run.check_books()


def test_the_seed_decides_who_is_where_and_everything_else() -> None:
    """The same figures, reach's among them, and the same trace; another seed, another network."""
    one, again = (run_scenario(small("gossipsub")) for _ in range(2))
    assert one == again
    other = run_scenario(small("gossipsub", seed=6))
    assert one["reach"]["connections"] != other["reach"]["connections"]


def test_what_no_relay_could_do_is_refused() -> None:
    """By the key's full name."""
    for changes, key in (
        ({"reach.punchable": 0.7, "reach.relay_only": 0.4}, "reach.relay_only"),
        ({"reach.relays": 0}, "reach.relays"),
        ({"reach.circuit_bytes": 10}, "reach.circuit_bytes"),
        ({"reach.punchable": 0, "reach.relay_only": 0, "reach.relays": 3}, "reach.relays"),
    ):
        with pytest.raises(ConfigError, match=f"^{key}: "):
            WILD.changed(changes)
