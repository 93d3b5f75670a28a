"""Whole networks of Kademlia peers: they find each other, keep values, and withstand liars."""

from collections.abc import Sequence
from itertools import count, islice
from random import Random
from typing import Any

import pytest
from kad_attackers import Eclipser, Forger
from kad_net import KadNet, cid, key_of

from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.operations import NO_PEERS, NOT_FOUND
from rumormill.overlay.kademlia.peer import (
    FindClosest,
    FindPeer,
    FindProviders,
    GetValue,
    KademliaPeer,
    Provide,
    PutValue,
)
from rumormill.overlay.kademlia.table import distance, position, shared_bits
from rumormill.overlay.kademlia.validators import WRONG_HASH
from rumormill.sim.network import peer_id

HOUR = 3600.0


def grown(peers: int, **options: Any) -> KadNet:
    """A network in which everybody has joined."""
    net = KadNet(peers, **options)
    net.start()
    net.run(20.0)
    return net


def values(number: int) -> list[bytes]:
    return [b"value %d" % each for each in range(number)]


def store(net: KadNet, publishers: Sequence[int], how_many: int) -> None:
    """Let publishers store values, in turn."""
    for number, value in enumerate(values(how_many)):
        result = net.result(publishers[number % len(publishers)], PutValue(key_of(value), value))
        assert result.stored > 0


def found(net: KadNet, searchers: Sequence[int], how_many: int) -> int:
    """How many values peers find that did not publish them."""
    return sum(
        net.result(searchers[number % len(searchers)], GetValue(key_of(value))).value == value
        for number, value in enumerate(values(how_many))
    )


def everybody_joins_and_finds(net: KadNet) -> None:
    """Values stored anywhere are held by the closest peers and found from anywhere."""
    peers = len(net.network.hosts)
    k = net.config.k
    for number, value in enumerate(values(10)):
        key = key_of(value)
        put = net.result(number, PutValue(key, value))
        assert put.reason == ""
        assert put.stored >= k
        closest = net.truly_closest(key, k)
        holders = [peer for peer in closest if peer in put.peers]
        assert len(holders) >= k - 3
        got = net.result(peers - 1 - number, GetValue(key))
        assert got.value == value
    assert not net.tally.refused
    assert net.tally.operations["PING"] == 0


def test_60_peers_join_and_find_what_others_stored() -> None:
    """Every message passes through the codec."""
    net = grown(60, check_codec=True)
    assert min(len(net.overlay(index).contacts.table) for index in net.up()) > 35
    everybody_joins_and_finds(net)


@pytest.mark.slow
def test_500_peers_join_and_find_what_others_stored() -> None:
    """Lookups stay short: about k questions and a few steps more."""
    net = grown(500)
    everybody_joins_and_finds(net)
    asked = [net.result(index, FindClosest(b"key %d" % index)).asked for index in range(20)]
    assert sum(asked) / len(asked) < 40


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "peers", [100, pytest.param(300, marks=SLOW), pytest.param(500, marks=SLOW)]
)
def test_values_are_found_when_30_percent_of_all_peers_are_gone(peers: int) -> None:
    """A third of the holders, and of everybody's contacts, die without a word: all are found."""
    net = grown(peers)
    store(net, range(10), 20)
    for index in Random(3).sample(range(10, peers), peers * 3 // 10):
        net.network.crash(net.network.hosts[index])
    assert found(net, net.up()[10:], 20) == 20


def test_values_survive_peers_that_come_and_go() -> None:
    """Every peer but the publishers is replaced, 30 % at a time: republishing keeps all alive."""
    net = grown(40, republish_interval=600.0, refresh_interval=300.0)
    store(net, range(4), 8)
    order = Random(4).sample(range(4, 40), 36)
    for start in range(0, 36, 12):
        for index in order[start : start + 12]:
            net.network.crash(net.network.hosts[index])
        for _ in range(12):
            host = net.add()
            net.network.start(host)
            for other in net.randomness.sample(net.up(), 3):
                net.network.dial(host, net.network.hosts[other].id)
        net.run(700.0)
    newcomers = [index for index in net.up() if index >= 40]
    assert len(newcomers) == 36
    assert found(net, newcomers, 8) == 8


def test_dead_contacts_leave_the_tables() -> None:
    """After a refresh nobody names a peer that is gone."""
    net = grown(50)
    dead = [net.network.hosts[index] for index in range(30, 45)]
    for host in dead:
        net.network.crash(host)
    net.run(3 * net.config.refresh_interval)
    for index in net.up():
        named = net.overlay(index).closest(b"anything", 1000)
        assert not {host.id for host in dead} & set(named)


def test_closest_is_local() -> None:
    """It knows the closest of its contacts without a single message."""
    net = grown(60)
    before = net.tally.sent
    for index in net.up():
        overlay = net.overlay(index)
        known = [contact.peer for contact in overlay.contacts.table]
        assert overlay.closest(b"author") == [min(known, key=lambda p: distance(p, b"author"))]
    assert net.tally.sent == before


def test_a_peer_is_found_by_its_id() -> None:
    """And one that does not exist is not."""
    net = grown(60)
    for index in (5, 25, 45):
        wanted = net.network.hosts[59 - index].id
        result = net.result(index, FindPeer(wanted))
        assert result.peers == (wanted,)
        assert result.reason == ""
    missing = net.result(0, FindPeer(b"nobody"))
    assert missing.peers == ()
    assert missing.reason == NOT_FOUND


def test_find_closest_returns_the_closest_peers() -> None:
    """Nearly the true k, the searcher itself left out, and in order."""
    net = grown(80)
    result = net.result(7, FindClosest(b"key"))
    true = [peer for peer in net.truly_closest(b"key", 21) if peer != net.overlay(7).peer][:20]
    assert len(result.peers) == 20
    assert len(set(result.peers) & set(true)) >= 18


def test_providers_are_found() -> None:
    """Those that announced themselves and nobody else; announcing has no answer."""
    net = grown(60)
    key = cid(b"content")[2:]
    for index in (3, 33):
        told = net.result(index, Provide(key))
        assert told.stored >= 20
    net.run(1.0)
    result = net.result(50, FindProviders(key))
    assert sorted(result.peers) == sorted(net.network.hosts[index].id for index in (3, 33))
    assert net.result(50, FindProviders(cid(b"other")[2:])).reason == NOT_FOUND


def test_clients_use_the_table_and_are_not_in_it() -> None:
    """A peer that answers nobody is nobody's contact, yet stores and finds values."""
    clients = range(40, 50)

    def build(index: int, peer: PeerId, randomness: Random) -> KademliaPeer | None:
        if index not in clients:
            return None
        return KademliaPeer(peer, randomness, KademliaConfig(server=False))

    net = grown(50, build=build)
    names = {net.network.hosts[index].id for index in clients}
    for index in net.up():
        assert not names & {contact.peer for contact in net.overlay(index).contacts.table}
    store(net, clients, 5)
    assert found(net, clients[5:], 5) == 5
    assert all(not len(net.overlay(index).records) for index in clients)


def test_a_refresh_content_with_some_contacts_asks_less_and_everybody_is_found() -> None:
    """`refresh_contacts`: whoever joins walks to its neighbours, and elsewhere meets a few."""
    asked = {}
    for enough in (0, 4):
        net = grown(80, k=8, refresh_contacts=enough)
        asked[enough] = net.tally.operations["FIND_NODE"]
        for index in (1, 20, 79):
            wanted = net.network.hosts[(index + 37) % 80].id
            assert net.result(index, FindPeer(wanted)).peers == (wanted,)
    assert asked[4] < 0.8 * asked[0]


@pytest.mark.parametrize("share", [10, 30])
def test_false_values_are_refused_and_those_who_give_them_suffer(share: int) -> None:
    """With forgers among the holders every true value is found, and no false one is believed."""
    forgers = Random(share).sample(range(10, 60), share * 60 // 100)
    gang = [index.to_bytes(4) for index in forgers]
    net = grown(60, build=lambda index, peer, _: Forger(peer, gang) if index in forgers else None)
    honest = [index for index in net.up() if index not in forgers]
    store(net, honest[:5], 10)
    results = [net.result(honest[-1 - n], GetValue(key_of(v))) for n, v in enumerate(values(10))]
    assert [result.value for result in results] == values(10)
    assert net.tally.refused[WRONG_HASH] == sum(net.tally.penalised.values()) > 0
    assert set(net.tally.penalised) <= set(gang)
    for index, result in zip(reversed(honest), results, strict=False):
        known = {contact.peer for contact in net.overlay(index).contacts.table}
        punished = {peer for peer in gang if net.overlay(index).contacts.is_banned(peer, 60.0)}
        assert not known & punished
        assert not set(result.peers) & set(gang)


@pytest.mark.parametrize("share", [20, pytest.param(40, marks=SLOW), pytest.param(60, marks=SLOW)])
def test_values_are_found_among_peers_that_name_only_accomplices(share: int) -> None:
    """Disjoint paths: so many of 100 peers swallow values and lead astray, and all are found.

    Everybody meets one honest peer when it joins; who meets attackers only is lost in any table.
    """
    attackers = Random(share).sample(range(10, 100), share)
    gang = [index.to_bytes(4) for index in attackers]
    net = KadNet(
        100, build=lambda index, peer, _: Eclipser(peer, gang) if index in attackers else None
    )
    for index, host in enumerate(net.network.hosts):
        net.network.start(host)
        for other in {*net.randomness.sample(range(index), min(2, index)), index % 10}:
            net.network.dial(host, net.network.hosts[other].id)
        net.run(0.05)
    net.run(20.0)
    honest = [index for index in net.up() if index not in attackers]
    store(net, honest[:10], 20)
    assert found(net, honest[10:], 20) == 20


@pytest.mark.parametrize(("region", "successes"), [(1.0, 10), pytest.param(0.0, 0, marks=SLOW)])
def test_40_made_up_ids_around_a_key_do_not_hide_it(region: float, successes: int) -> None:
    """CVE-2023-26248: they are closer to the key than anybody, swallow its value and name only
    each other. Who asks everybody in the region where k peers belong finds it all the same; who
    asks the k closest, as usual, never does.
    """
    net = grown(80, region=region)
    value = b"censored"
    key = key_of(value)
    candidates = (b"sybil" + number.to_bytes(4) for number in count())
    close = (peer for peer in candidates if shared_bits(position(peer), position(key)) >= 8)
    gang = list(islice(close, 40))
    for peer in gang:
        net.join_as(peer, Eclipser(peer, gang), meet=8)
    net.run(1.1 * net.config.refresh_interval)
    put = net.result(0, PutValue(key, value))
    assert set(put.peers) & set(gang)
    found_by = [net.result(index, GetValue(key)).value == value for index in range(20, 40, 2)]
    assert sum(found_by) == successes


def test_values_outlive_their_age_while_published_and_not_after() -> None:
    """Republished after 22 hours, gone 36 hours after the last time."""
    net = grown(12, refresh_interval=8 * HOUR, upkeep_interval=0.5 * HOUR)
    (value,) = values(1)
    net.result(0, PutValue(key_of(value), value))
    net.run(60 * HOUR)
    assert net.result(10, GetValue(key_of(value))).value == value
    assert net.overlay(0).withdraw_value(key_of(value))
    net.run(61 * HOUR)
    for index in net.up():
        assert net.overlay(index).records.get(key_of(value), net.network.engine.now) is None
    assert net.result(10, GetValue(key_of(value))).reason == NOT_FOUND


def test_holders_keep_a_value_alive_without_its_publisher_as_long_as_one_of_them_is_there() -> None:
    """With replication values move to those who are closest now, and live on beyond their age; who
    is no longer among those lets its copy grow old."""
    net = grown(
        40,
        refresh_interval=6 * HOUR,
        upkeep_interval=0.25 * HOUR,
        replicate_interval=HOUR,
        k=8,
        corrections=0,
    )
    (value,) = values(1)
    net.result(0, PutValue(key_of(value), value))
    net.network.crash(net.network.hosts[0])
    for round_number in range(3):
        holders = [
            index
            for index in net.up()
            if net.overlay(index).records.get(key_of(value), net.network.engine.now)
        ]
        assert len(holders) >= 6, round_number
        for index in holders[:5]:
            net.network.crash(net.network.hosts[index])
        net.run(3 * HOUR)
    assert net.result(net.up()[-1], GetValue(key_of(value))).value == value
    net.run(3 * 36 * HOUR)
    assert net.result(net.up()[-1], GetValue(key_of(value))).value == value
    now, position_of_it = net.network.engine.now, position(key_of(value))
    left = sorted(net.up(), key=lambda index: position(peer_id(index)) ^ position_of_it)
    holding = [index for index in left if net.overlay(index).records.get(key_of(value), now)]
    assert holding[:8] == left[:8]
    assert len(holding) <= 2 * 8


def test_a_value_that_nobody_took_is_offered_again() -> None:
    """Published while alone; stored within minutes of the first company."""
    net = KadNet(12)
    first = net.network.hosts[0]
    net.network.start(first)
    (value,) = values(1)
    assert net.result(0, PutValue(key_of(value), value)).reason == NO_PEERS
    for host in net.network.hosts[1:]:
        net.network.start(host)
        net.network.dial(host, first.id)
    net.run(200.0)
    net.network.crash(first)
    assert net.result(7, GetValue(key_of(value))).value == value


def test_two_halves_find_each_other_again() -> None:
    """A partition empties the tables of the other half; lost contacts are asked again."""
    net = grown(24)
    halves = [list(range(12)), list(range(12, 24))]
    net.network.partition(halves)
    net.run(3 * net.config.refresh_interval)
    assert not set(net.overlay(0).closest(b"x", 100)) & {
        net.network.hosts[index].id for index in halves[1]
    }
    net.network.heal()
    net.run(3 * net.config.refresh_interval)
    for index in net.up():
        known = net.overlay(index).closest(b"x", 100)
        assert len(known) >= net.config.k
        others = halves[index < 12]
        assert len({net.network.hosts[other].id for other in others} & set(known)) >= 8


def test_a_peer_that_comes_back_with_its_state_goes_on() -> None:
    """What was under way is begun again; the table and the records are still there."""
    net = grown(40)
    store(net, [1], 3)
    host = net.network.hosts[5]
    results = net.ask(5, GetValue(key_of(values(3)[0])))
    overlay = net.overlay(5)
    finished: list[Any] = []
    overlay._on_result = lambda result, now, effects: finished.append(result)
    net.network.crash(host)
    net.run(5.0)
    net.network.start(host, keep_state=True)
    net.run(20.0)
    assert len(overlay.contacts.table) > 10
    assert [result.value for result in finished] == values(1)
    assert not results


def test_the_same_seed_gives_the_same_messages() -> None:
    """Nothing depends on the order of a set or on time."""
    counts = []
    for _ in range(2):
        net = grown(30, seed=9)
        store(net, [2], 3)
        counts.append((net.tally.sent, dict(net.tally.operations)))
    assert counts[0] == counts[1]
