"""Nodes on one link find each other without any ticket (mDNS), and only those that should."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lan_lab import Lan, lan
from live_nodes import run
from processes import Program
from rumormill.node.identity import create_network
from rumormill.node.node import Node

EVERYWHERE = ("--listen", "/ip4/0.0.0.0/tcp/0")

FLOOD = """
import socket, sys
from rumormill.libp2p.mdns import GROUP, PORT, Mdns, service_of
from rumormill.wire import keys
from rumormill.wire.multiaddr import Multiaddr
from ipaddress import IPv4Interface
link = IPv4Interface(sys.argv[1] + "/24")
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, link.ip.packed)
for number in range(int(sys.argv[2])):
    peer = bytes(keys.PrivateKey(number.to_bytes(32)).peer_id)
    liar = Mdns(peer, "liar", service_of(None), link, print)
    sock.sendto(liar.answer([Multiaddr.tcp(str(link.ip), 1)], 0.0), (GROUP, PORT))
print("flooded", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def network() -> Iterator[Lan]:
    with lan() as made:
        yield made


def daemon(network: Lan, host: int, home: Path, *more: object) -> Program:
    """A node of its own host that has said where it can be reached."""
    program = network.rumormill(host, "node", "--home", home, "--until-eof", *EVERYWHERE, *more)
    said = program.says("reachable")
    assert f"/ip4/10.1.0.{host}/tcp/" in said
    return program


def peers_of(network: Lan, host: int, home: Path) -> list[str]:
    asked = network.rumormill(host, "peers", "--home", home, "--json")
    assert asked.ends() == 0
    return [json.loads(line)["address"] for line in asked.output]


def wait_for_peers(network: Lan, *nodes: tuple[int, Path]) -> None:
    """Wait until each of these nodes is connected to somebody."""
    for host, home in nodes:
        assert any(peers_of(network, host, home) for _ in range(100)), f"host {host} finds nobody"


def refusals(network: Lan, host: int) -> str:
    """What the node's page of metrics says."""
    page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read())"
    asked = network.python(host, page)
    assert asked.ends() == 0
    return asked.output[0]


def test_two_hosts_find_each_other_and_talk(network: Lan, tmp_path: Path) -> None:
    """A subscriber and a publisher, each for itself, and nobody names the other."""
    first, second = network.host(), network.host()
    listener = network.rumormill(
        first, "sub", "news", "--home", tmp_path / "a", "--count", "1", *EVERYWHERE
    )
    listener.says("listening to news")
    publisher = network.rumormill(
        second, "pub", "news", "hello", "--home", tmp_path / "b", "--wait", "60", *EVERYWHERE
    )
    assert publisher.ends() == 0, publisher.errors
    assert listener.prints() == ["hello"]
    assert listener.ends() == 0


@pytest.mark.slow
def test_who_turned_it_off_or_listens_to_its_own_machine_is_not_found(
    network: Lan, tmp_path: Path
) -> None:
    """Nor does it find the others, who find each other meanwhile."""
    hosts = [network.host() for _ in range(4)]
    homes = [tmp_path / str(host) for host in hosts]
    silent = daemon(network, hosts[0], homes[0], "--mdns", "off")
    assert "without a ticket" not in silent.says("reachable")
    alone = network.rumormill(hosts[1], "node", "--home", homes[1], "--until-eof")
    assert "from this machine only" in alone.says("reachable")
    for host, home in zip(hosts[2:], homes[2:], strict=True):
        found = daemon(network, host, home)
        assert "without a ticket in 10.1.0.0/24" in found.says("reachable")
    wait_for_peers(network, (hosts[2], homes[2]), (hosts[3], homes[3]))
    assert not peers_of(network, hosts[0], homes[0])
    assert not peers_of(network, hosts[1], homes[1])


def test_a_private_networks_nodes_do_not_answer_strangers(network: Lan, tmp_path: Path) -> None:
    """Two members and two strangers on one link: each finds its own and nobody else."""
    key = tmp_path / "swarm.key"
    create_network(key)
    hosts = [network.host() for _ in range(4)]
    homes = [tmp_path / str(host) for host in hosts]
    member, other, stranger, second = zip(hosts, homes, strict=True)
    for host, home in (member, other):
        daemon(network, host, home, "--network", key, "--metrics", "127.0.0.1:9464")
    for host, home in (stranger, second):
        daemon(network, host, home)
    wait_for_peers(network, member, other, stranger, second)
    for host, home, theirs in ((*member, other[0]), (*stranger, second[0])):
        assert [each.split("/")[2] for each in peers_of(network, host, home)] == [
            f"10.1.0.{theirs}"
        ]
    assert "wrong-network" not in refusals(network, member[0])  # nobody even tried


def test_a_flood_of_answers_is_bounded_and_counted(network: Lan, tmp_path: Path) -> None:
    """2,000 peers that one host makes up: few are learnt, and a true neighbour is found as ever."""
    victim, liar, friend = network.host(), network.host(), network.host()
    homes = [tmp_path / str(host) for host in (victim, friend)]
    daemon(network, victim, homes[0], "--metrics", "127.0.0.1:9464")
    network.python(liar, FLOOD, f"10.1.0.{liar}", 2000).prints()
    daemon(network, friend, homes[1])
    wait_for_peers(network, (friend, homes[1]))
    counted = refusals(network, victim)
    assert "mdns-too-many-peers" in counted
    assert "mdns-flood" in counted
    (failed,) = [line for line in counted.split("\\n") if 'reason="dial-failed"' in line]
    assert float(failed.split()[-1]) <= 16


def test_the_library_says_nothing_on_any_link_unless_it_is_told_to() -> None:
    """And a node of the loopback does not, told to or not."""

    async def story() -> None:
        async with Node(None, listen="/ip4/0.0.0.0/tcp/0") as silent, Node(None, mdns=True) as own:
            assert silent.links == own.links == []

    run(story)
