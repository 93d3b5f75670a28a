"""mDNS on one link: who asks is answered, who answers is learnt, and nobody can make us do much."""

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Interface

from hypothesis import given
from hypothesis import strategies as some

from rumormill.core.errors import DecodeError
from rumormill.libp2p import mdns
from rumormill.libp2p.mdns import Found, Mdns, service_of
from rumormill.libp2p.pnet import PrivateNetwork
from rumormill.wire import dns
from rumormill.wire.dns import DnsMessage, Record
from rumormill.wire.keys import PeerId, PrivateKey
from rumormill.wire.multiaddr import Multiaddr

ALICE, BOB = (PrivateKey(bytes([number] * 32)).peer_id for number in (1, 2))
EVERYWHERE = [Multiaddr.parse("/ip4/0.0.0.0/tcp/4001")]

QUESTION = bytes.fromhex(
    "0000 0000 0001 0000 0000 0000  04 5f703270 04 5f756470 05 6c6f63616c 00  000c 0001"
)
"""As libp2p's specification has it: PTR of _p2p._udp.local."""

SERVICE = "04 5f703270 04 5f756470 05 6c6f63616c 00 "
ANSWER = (
    bytes.fromhex(
        "0000 8400 0000 0001 0000 0003"
        f"{SERVICE} 000c 0001 00000078 0015 03 626f62 {SERVICE}"
        f"03 626f62 {SERVICE} 0010 0001 00000078 0058 57"
    )
    + f"dnsaddr=/ip4/10.1.0.2/tcp/4001/p2p/{BOB}".encode()
    + bytes.fromhex(
        f"03 626f62 {SERVICE} 0021 0001 00000078 0011 0000 0000 0fa1 03 626f62 05 6c6f63616c 00"
        "03 626f62 05 6c6f63616c 00 0001 0001 00000078 0004 0a010002"
    )
)
"""Its PTR leads to "bob", of which TXT, SRV and A tell where it is."""


class Rig(Mdns):
    """A machine at 10.1.0.HOST that counts what it refuses."""

    def __init__(
        self, peer: PeerId, name: str, host: int, network: PrivateNetwork | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        link = IPv4Interface(f"10.1.0.{host}/24")
        super().__init__(bytes(peer), name, service_of(network), link, self._add)

    def _add(self, reason: str) -> None:
        self.counts[reason] += 1


def alice(network: PrivateNetwork | None = None) -> Rig:
    return Rig(ALICE, "alice", 1, network)


def bob(network: PrivateNetwork | None = None) -> Rig:
    return Rig(BOB, "bob", 2, network)


def answer_of(
    texts: Sequence[str], *, name: str = "someone", service: str = "_p2p._udp.local"
) -> bytes:
    """An answer as other implementations make it, with a record for each text."""
    whole = dns.name_of(f"{name}.{service}")
    pointer = Record(dns.name_of(service), dns.PTR, 120, dns.encode_name(whole))
    records = [Record(whole, dns.TXT, 120, dns.encode_texts([text.encode()])) for text in texts]
    return DnsMessage(0, dns.IS_ANSWER, (), (pointer,), tuple(records)).encode()


def test_question_and_answer_are_these_bytes() -> None:
    assert alice().question == QUESTION
    assert bob().answer(EVERYWHERE, 0.0) == ANSWER


def test_who_asks_is_answered_and_learns_who_is_there() -> None:
    asking, there = alice(), bob()
    assert there.receive(asking.question, "10.1.0.1", 5.0) == []
    assert there.answer_at == 5.0
    found = asking.receive(there.answer(EVERYWHERE, 5.0), "10.1.0.2", 5.0)
    assert found == [Found(bytes(BOB), (Multiaddr.tcp("10.1.0.2", 4001).encode(),))]
    assert there.answer_at is None
    assert not asking.counts + there.counts


def test_only_addresses_of_the_link_are_told() -> None:
    """What the machine has elsewhere is nobody's business here."""
    elsewhere = [Multiaddr.parse(f"/ip4/{host}/tcp/1") for host in ("127.0.0.1", "10.2.0.2")]
    assert bob().answer(elsewhere, 0.0) == b""
    told = bob().answer([*elsewhere, Multiaddr.parse("/ip4/10.1.0.2/tcp/7")], 0.0)
    assert b"127.0.0.1" not in told
    assert b"10.2.0.2" not in told
    assert b"/ip4/10.1.0.2/tcp/7/p2p/" in told


def test_we_answer_once_a_second_however_often_we_are_asked() -> None:
    there = bob()
    times = []
    for asked in range(300):
        now = asked / 100
        there.receive(QUESTION, "10.1.0.1", now)
        if there.answer_at is not None and there.answer_at <= now:
            times.append(now)
            there.answer(EVERYWHERE, now)
    assert times == [0.0, 1.0, 2.0]


def test_a_private_network_hears_and_answers_its_own_alone() -> None:
    network, other = PrivateNetwork(bytes(32)), PrivateNetwork(b"\1" * 32)
    for asking in (alice(), alice(other)):
        there = bob(network)
        there.receive(asking.question, "10.1.0.1", 0.0)
        assert there.answer_at is None
        assert asking.receive(there.answer(EVERYWHERE, 0.0), "10.1.0.2", 0.0) == []
    assert alice(network).receive(bob(network).answer(EVERYWHERE, 0.0), "10.1.0.2", 0.0)
    assert network.fingerprint.encode() in alice(network).question


def test_we_do_not_find_ourselves() -> None:
    own = bob()
    assert own.receive(own.answer(EVERYWHERE, 0.0), "10.1.0.2", 0.0) == []
    assert not own.counts


def test_who_is_not_on_the_link_is_not_heard() -> None:
    there = bob()
    for sender in ("10.1.1.1", "8.8.8.8", "fe80::1", ""):
        there.receive(QUESTION, sender, 0.0)
    assert there.answer_at is None
    assert there.counts == {mdns.OFF_LINK: 4}


def test_a_sender_is_believed_about_itself_alone() -> None:
    """So nobody has us dial somebody else."""
    asking, said = alice(), f"dnsaddr=/ip4/10.1.0.9/tcp/22/p2p/{BOB}"
    assert asking.receive(answer_of([said]), "10.1.0.2", 0.0) == []
    assert asking.counts == {mdns.ELSEWHERE: 1}
    own = f"dnsaddr=/ip4/10.1.0.2/tcp/22/p2p/{BOB}"
    (found,) = asking.receive(answer_of([said, own]), "10.1.0.2", 0.0)
    assert found.addresses == (Multiaddr.tcp("10.1.0.2", 22).encode(),)


def test_what_others_say_besides_is_left_out() -> None:
    """go lists what it listens on, most of which we cannot dial, and other services speak too."""
    asking = alice()
    texts = [
        f"dnsaddr=/ip4/10.1.0.2/udp/4001/quic-v1/p2p/{BOB}",
        f"dnsaddr=/ip6/fe80::1/tcp/4001/p2p/{BOB}",
        f"dnsaddr=/ip4/10.1.0.2/tcp/4001/p2p/{BOB}",
        "dnsaddr=/ip4/10.1.0.2/tcp/4001",
        "dnsaddr=\N{SNOWMAN}",
        "note=hello",
    ]
    assert len(asking.receive(answer_of(texts), "10.1.0.2", 0.0)) == 1
    assert asking.receive(answer_of(texts, service="_printer._tcp.local"), "10.1.0.2", 0.0) == []
    assert not asking.counts


def made_up(number: int) -> bytes:
    peer = PrivateKey(number.to_bytes(32)).peer_id
    return answer_of([f"dnsaddr=/ip4/10.1.0.2/tcp/1/p2p/{peer}"])


def test_a_sender_has_so_many_peers_learnt_and_no_more() -> None:
    """Those that are known stay so, and another sender is not held up."""
    asking = alice()
    found = [asking.receive(made_up(number), "10.1.0.2", 0.0) for number in range(1, 41)]
    assert sum(map(len, found)) == mdns.PEERS_OF_A_SENDER[1]
    assert asking.counts == {mdns.TOO_MANY: 24}
    assert asking.receive(made_up(1), "10.1.0.2", 0.0)
    other = answer_of([f"dnsaddr=/ip4/10.1.0.3/tcp/1/p2p/{BOB}"])
    assert asking.receive(other, "10.1.0.3", 0.0)


def test_all_senders_together_have_so_many() -> None:
    asking, learnt = alice(), 0
    for host in range(2, 12):
        for number in range(16):
            peer = PrivateKey((host * 100 + number).to_bytes(32)).peer_id
            said = answer_of([f"dnsaddr=/ip4/10.1.0.{host}/tcp/1/p2p/{peer}"])
            learnt += len(asking.receive(said, f"10.1.0.{host}", 0.0))
    assert learnt == mdns.PEERS[1]
    assert asking.counts == {mdns.TOO_MANY: 160 - learnt}


def test_what_floods_is_not_even_looked_at() -> None:
    there = bob()
    for _ in range(1000):
        there.receive(b"junk", "10.1.0.9", 0.0)
    assert there.counts == {mdns.MALFORMED: 100, mdns.FLOOD: 900}
    for host in range(1, 10):
        for _ in range(100):
            there.receive(b"junk", f"10.1.0.{host}", 0.0)
    assert there.counts[mdns.MALFORMED] == mdns.DATAGRAMS[1]


def test_a_datagram_has_its_size() -> None:
    there = bob()
    there.receive(QUESTION + bytes(mdns.MAX_DATAGRAM_BYTES), "10.1.0.1", 0.0)
    assert there.counts == {mdns.MALFORMED: 1}


@given(some.binary(max_size=300), some.integers(0, len(ANSWER)), some.floats(0, 1e9))
def test_whatever_comes_is_learnt_answered_or_counted(junk: bytes, at: int, now: float) -> None:
    """Nothing is raised, and what is found is at its sender."""
    for data in (junk, ANSWER[:at] + junk, ANSWER[:at] + junk + ANSWER[at:]):
        there = Rig(ALICE, "alice", 1)
        for found in there.receive(data, "10.1.0.2", now):
            for address in found.addresses:
                endpoint = Multiaddr.decode(address).endpoint
                assert endpoint is not None
                assert endpoint.host == "10.1.0.2"
        try:
            DnsMessage.decode(data)
        except DecodeError:
            assert there.counts == {mdns.MALFORMED: 1}


@given(some.lists(some.tuples(some.integers(0, 9), some.floats(0, 5)), max_size=60))
def test_answers_keep_their_distance_whoever_asks(asked: list[tuple[int, float]]) -> None:
    there, now, last = bob(), 0.0, float("-inf")
    for host, pause in asked:
        now += pause
        there.receive(QUESTION, f"10.1.0.{host}", now)
        if there.answer_at is not None and there.answer_at <= now:
            assert now - last >= mdns.ANSWER_PAUSE
            there.answer(EVERYWHERE, now)
            last = now
