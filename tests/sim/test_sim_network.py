"""The network: dialling, negotiation, disconnection, partitions and look-ups."""

import pytest
from sim_rig import LATENCY, Net, PairLatency

from rumormill.core.effects import Connect, Disconnect
from rumormill.core.inputs import PeerConnected, PeerDisconnected


def dial(net: Net, dialler: int, listener: int) -> None:
    net.network.dial(net.host(dialler), net.host(listener).id)


def connections(net: Net, index: int) -> list[tuple[str, int]]:
    """What a peer heard of connections, with the others by their number."""
    kinds = {PeerConnected: "up", PeerDisconnected: "down"}
    return [
        (kinds[type(event)], int.from_bytes(event.peer, "big"))
        for event in net.inputs(index)
        if type(event) in kinds
    ]


# Dialling.


def test_a_connection_takes_the_diallers_latency_and_both_learn_of_it() -> None:
    """Who dialled knows that it did, and both know the other's address."""
    net = Net(2)
    dial(net, 0, 1)
    net.run(LATENCY - 0.001)
    assert not net.linked(0, 1)
    net.run(0.002)
    assert net.linked(0, 1)
    here, there = net.host(0), net.host(1)
    assert net.inputs(0, PeerConnected) == [PeerConnected(there.id, "/probe", True, there.address)]
    assert net.inputs(1, PeerConnected) == [PeerConnected(here.id, "/probe", False, here.address)]
    assert here.address != there.address


def test_dialling_twice_or_from_both_sides_makes_one_connection() -> None:
    """Also when the second attempt comes while the first is under way."""
    net = Net(2)
    dial(net, 0, 1)
    dial(net, 1, 0)
    net.run(1.0)
    dial(net, 1, 0)
    net.run(1.0)
    assert (connections(net, 0), connections(net, 1)) == ([("up", 1)], [("up", 0)])


def test_who_cannot_be_dialled() -> None:
    """Oneself, somebody unknown, and a peer that is down: nothing happens."""
    net = Net(3)
    net.network.crash(net.host(2))
    dial(net, 0, 0)
    dial(net, 0, 2)
    net.network.dial(net.host(0), b"nobody")
    net.run(1.0)
    assert connections(net, 0) == []


def test_a_peer_that_crashes_while_it_is_dialled_is_not_reached() -> None:
    """Neither side hears of a connection."""
    net = Net(2)
    dial(net, 0, 1)
    net.run(0.01)
    net.network.crash(net.host(1))
    net.run(1.0)
    assert connections(net, 0) == []


def test_machines_connect_and_disconnect() -> None:
    """The effects do what the network's methods do; the own side is told at once."""
    net = Net(2)
    host, peer = net.host(0), net.host(1).id
    host.effects.append(Connect(peer))
    host.carry_out()
    net.run(1.0)
    assert net.linked(0, 1)
    host.effects.append(Disconnect(peer, "enough"))
    host.carry_out()
    net.run(0.0)
    assert connections(net, 0) == [("up", 1), ("down", 1)]
    assert connections(net, 1) == [("up", 0)]
    net.run(LATENCY)
    assert connections(net, 1) == [("up", 0), ("down", 0)]


def test_disconnecting_from_a_stranger_is_nothing() -> None:
    """There is nothing to close."""
    net = Net(2)
    net.network.disconnect(net.host(0), net.host(1).id)
    net.run(1.0)
    assert connections(net, 0) == connections(net, 1) == []


# Negotiation.


@pytest.mark.parametrize(
    ("dialler", "listener", "spoken"),
    [
        (("/b", "/a"), ("/a", "/b"), "/b"),
        (("/c", "/a"), ("/a", "/b"), "/a"),
        (("/a",), ("/a",), "/a"),
    ],
)
def test_the_diallers_best_common_protocol_is_spoken(
    dialler: tuple[str, ...], listener: tuple[str, ...], spoken: str
) -> None:
    """As multistream-select does: the dialler proposes in its order, the listener agrees."""
    net = Net()
    net.add(*dialler)
    net.add(*listener)
    dial(net, 0, 1)
    net.run(1.0)
    assert [event.protocol for event in net.inputs(0, PeerConnected)] == [spoken]
    assert [event.protocol for event in net.inputs(1, PeerConnected)] == [spoken]


def test_without_a_common_protocol_there_is_no_connection() -> None:
    """Nobody is told anything, and a later attempt is possible."""
    net = Net()
    net.add("/a")
    net.add("/b")
    for _ in range(2):
        dial(net, 0, 1)
        net.run(1.0)
        assert not net.linked(0, 1)
    assert connections(net, 0) == connections(net, 1) == []


# The end of a connection is told before the next one begins.


@pytest.mark.parametrize(
    "options",
    [
        {"processing_delay": 0.02},
        {"latency": PairLatency({(0, 1): 0.2, (1, 0): 0.01})},
        {"latency": PairLatency({(0, 1): 0.01, (1, 0): 0.2})},
        {},
    ],
    ids=["processing", "slow news", "fast news", "even"],
)
@pytest.mark.parametrize("dialler", [0, 1])
def test_a_quick_restart_is_heard_as_an_end_and_a_beginning(
    options: dict[str, object], dialler: int
) -> None:
    """However uneven the delays, the other side hears of the end, once, and first."""
    net = Net(2, **options)  # type: ignore[arg-type]
    dial(net, 0, 1)
    net.run(1.0)
    net.network.crash(net.host(0))
    net.network.start(net.host(0))
    dial(net, dialler, 1 - dialler)
    net.run(1.0)
    assert connections(net, 1) == [("up", 0), ("down", 0), ("up", 0)]
    assert connections(net, 0) == [("up", 1)]


# Partitions.


def test_a_partition_cuts_what_crosses_it_and_nothing_else() -> None:
    """Both sides are told, the dialler's at once."""
    net = Net(4)
    for pair in ((0, 1), (2, 3), (0, 2), (3, 1)):
        net.connect(*pair)
    cut = net.network.partition([[0, 1], [2, 3]])
    assert sorted(cut) == [(0, 2), (3, 1)]
    net.run(1.0)
    assert net.linked(0, 1)
    assert net.linked(2, 3)
    assert connections(net, 2) == [("down", 0)]
    assert connections(net, 1) == [("down", 3)]


def test_healing_dials_what_was_cut_in_the_old_direction() -> None:
    """After a latency the connections are there again."""
    net = Net(2)
    net.connect(1, 0)
    net.network.partition([[0], [1]])
    net.run(1.0)
    net.network.heal()
    net.run(1.0)
    assert net.linked(0, 1)
    assert [event.outbound for event in net.inputs(1, PeerConnected)] == [True]


def test_no_dial_crosses_a_partition_until_it_heals() -> None:
    """What was tried meanwhile is tried again then."""
    net = Net(2)
    net.network.partition([[0], [1]])
    dial(net, 0, 1)
    net.run(1.0)
    assert not net.linked(0, 1)
    net.network.heal()
    net.run(1.0)
    assert net.linked(0, 1)


def test_a_dial_that_a_partition_interrupts_is_repeated_when_it_heals() -> None:
    """It was under way when the partition came."""
    net = Net(2)
    dial(net, 0, 1)
    net.run(0.01)
    net.network.partition([[0], [1]])
    net.run(1.0)
    assert not net.linked(0, 1)
    net.network.heal()
    net.run(1.0)
    assert net.linked(0, 1)


def test_a_peer_that_joins_during_a_partition_is_connected_when_it_heals() -> None:
    """It knows its side only, until then."""
    net = Net(3)
    net.network.crash(net.host(2))
    net.network.partition([[0], [1, 2]])
    net.run(1.0)
    net.network.start(net.host(2))
    dial(net, 2, 0)
    dial(net, 2, 1)
    net.run(1.0)
    assert (net.linked(2, 0), net.linked(2, 1)) == (False, True)
    net.network.heal()
    net.run(1.0)
    assert net.linked(2, 0)


def test_a_new_partition_replaces_the_old_one() -> None:
    """Who is together again is connected again; who no longer is, is cut; healing mends all."""
    net = Net(3)
    for pair in ((0, 1), (1, 2), (0, 2)):
        net.connect(*pair)
    net.network.partition([[0], [1, 2]])
    net.run(1.0)
    net.network.partition([[0, 1], [2]])
    net.run(1.0)
    assert (net.linked(0, 1), net.linked(1, 2), net.linked(0, 2)) == (True, False, False)
    net.network.heal()
    net.run(1.0)
    assert net.linked(1, 2)
    assert net.linked(0, 2)


def test_messages_under_way_do_not_cross_a_partition() -> None:
    """The link is closed when they would arrive."""
    net = Net(2)
    net.connect(0, 1)
    net.send(0, 1, "a")
    net.network.partition([[0], [1]])
    net.run(1.0)
    assert net.texts(1) == []
