"""Who may come in: private networks and lists of peers, seen by those who are kept out.

The stranger is a socket that records everything, or a whole node. What a wiretap records is
compared with its record of an open network, so that one that is deaf does not pass for secrecy.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hostile_peer import HostilePeer

from live_nodes import run, take, until
from rumormill.core.errors import ConfigError, LocalError
from rumormill.core.trace import Refuse
from rumormill.libp2p.config import DENIED, NOT_ALLOWED
from rumormill.libp2p.multistream import MULTISTREAM, Initiator, encode_line
from rumormill.libp2p.noise import NOISE
from rumormill.libp2p.pnet import NONCE_BYTES, WRONG_NETWORK, PrivateNetwork
from rumormill.node.config import NodeConfig
from rumormill.node.identity import create_network, load_network
from rumormill.node.node import Node
from rumormill.wire.keys import PeerId, PrivateKey
from rumormill.wire.multiaddr import Multiaddr
from trace_log import TraceLog

SECRET = b"the content that strangers must not see"
PLAIN = Initiator((NOISE,)).data_to_send() + bytes(34)
"""How a dialler of an open network begins."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "swarm.key"
    create_network(path)
    return path


def endpoint_of(node: Node) -> tuple[str, int]:
    endpoint = Multiaddr.parse(node.tickets[0]).endpoint
    assert endpoint is not None
    return endpoint.host, endpoint.port


def name_of(node: Node) -> str:
    return str(PeerId(node.id))


def impatient(seconds: float = 0.5, **more: int) -> NodeConfig:
    """A node that gives a handshake little time; more of it where others must be done before."""
    return NodeConfig(upgrade_timeout=seconds, **more)  # type: ignore[arg-type]


def forgotten(node: Node) -> bool:
    """Whether nothing is left of any connection."""
    swarm = node._swarm
    return not (swarm._all or len(swarm._upgrading) or len(swarm._places) or swarm.connections)


async def said_to(node: Node, *said: bytes) -> bytes:
    """Say some bytes to a node; return everything that it answers until it hangs up."""
    reader, writer = await asyncio.open_connection(*endpoint_of(node))
    heard = bytearray()
    with contextlib.suppress(ConnectionError):
        for data in said:
            writer.write(data)
            await writer.drain()
        while data := await reader.read(65536):
            heard += data
    writer.transport.abort()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return bytes(heard)


def shared_pieces(records: Sequence[bytes]) -> list[bytes]:
    """Eight bytes that stand in the first 64 of several records, or twice in one."""
    pieces = Counter(each[place : place + 8] for each in records for place in range(0, 64, 8))
    return [piece for piece, times in pieces.items() if times > 1]


class Wiretap:
    """A proxy in front of a node that records both directions of what passes."""

    def __init__(self) -> None:
        self.there = bytearray()
        self.back = bytearray()

    @contextlib.asynccontextmanager
    async def before(self, node: Node) -> AsyncIterator[str]:
        """Stand before a node; the ticket is the node's, with the wiretap's port."""
        ends: list[asyncio.StreamWriter] = []
        copying: list[asyncio.Task[None]] = []

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(*endpoint_of(node))
            ends.extend((writer, far_writer))
            copying.append(asyncio.ensure_future(self._copy(reader, far_writer, self.there)))
            copying.append(asyncio.ensure_future(self._copy(far_reader, writer, self.back)))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            yield f"/ip4/127.0.0.1/tcp/{port}/p2p/{name_of(node)}"
        finally:
            server.close()
            for end in ends:
                end.transport.abort()
            await asyncio.gather(*copying, return_exceptions=True)

    @staticmethod
    async def _copy(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
    ) -> None:
        while data := await reader.read(65536):
            record += data
            writer.write(data)
            await writer.drain()


async def overheard(network: Path | None) -> tuple[Wiretap, bytes, bytes]:
    """Record two nodes that exchange an event; return the record and who they are."""
    wiretap = Wiretap()
    async with (
        Node(None, network=network) as alice,
        Node(None, network=network) as bob,
        wiretap.before(bob) as ticket,
    ):
        events = await bob.subscribe("news")
        await alice.connect(ticket, keep=False)
        await alice.wait_until_ready("news")
        await alice.publish("news", SECRET)
        assert await take(events, 1) == [SECRET]
        assert not alice.refusals
        assert not bob.refusals
        return wiretap, alice.id, bob.id


# Private networks.


def test_a_wiretap_on_a_private_network_records_nothing_that_can_be_recognised(key: Path) -> None:
    """No greeting, no protocol, no peer, no content; on an open network the first two are there."""

    async def story() -> None:
        for network in (None, key):
            wiretap, alice, bob = await overheard(network)
            for record in (wiretap.there, wiretap.back):
                assert len(record) > 500
                assert (encode_line(MULTISTREAM) in record) is (network is None)
                assert (NOISE.encode() in record) is (network is None)
                for hidden in (SECRET, alice, bob):
                    assert hidden not in record

    run(story)


def test_two_connections_of_one_network_share_no_bytes(key: Path) -> None:
    """Each has nonces of its own, so that the same greeting is never the same bytes."""

    async def story() -> None:
        first, second = [(await overheard(key))[0] for _ in range(2)]
        begins = [bytes(each[:64]) for tap in (first, second) for each in (tap.there, tap.back)]
        assert not shared_pieces(begins)

    run(story)


@pytest.mark.parametrize(
    "said",
    [PLAIN, secrets.token_bytes(2000), bytes(100_000), b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"],
    ids=["libp2p", "noise", "zeros", "http"],
)
def test_a_stranger_gets_a_nonce_and_is_cut_off(key: Path, said: bytes) -> None:
    """24 random bytes, whatever it says and however much; it is counted, and nothing is left."""

    async def story() -> None:
        async with Node(None, network=key) as node:
            answers = [await said_to(node, said) for _ in range(3)]
            assert node.refusals == {WRONG_NETWORK: 3}
            assert all(len(answer) in {0, NONCE_BYTES} for answer in answers)
            assert len({answer for answer in answers if answer}) == len([*filter(None, answers)])
            await until(lambda: forgotten(node), "nothing is left of the strangers")

    run(story)


@pytest.mark.parametrize("size", [0, 1, NONCE_BYTES])
def test_a_stranger_that_stops_in_time_is_cut_off_at_the_deadline(key: Path, size: int) -> None:
    """Who says no more than a nonce cannot be told from a slow member, but not for long."""

    async def story() -> None:
        async with Node(None, network=key, config=impatient()) as node:
            assert len(await said_to(node, bytes(size))) == NONCE_BYTES
            assert node.refusals == {"upgrade-timeout": 1}
            await until(lambda: forgotten(node), "nothing is left of the stranger")

    run(story)


def test_silent_strangers_take_no_more_places_than_handshakes_have(key: Path) -> None:
    """Half-open connections are bounded in number and in time; the oldest make room."""

    async def story() -> None:
        config = impatient(2.0, max_pending_upgrades=4)
        async with (
            Node(None, network=key, config=config) as node,
            Node(None, network=key) as member,
        ):
            heard = await asyncio.gather(*(said_to(node) for _ in range(12)))
            assert {len(each) for each in heard} <= {0, NONCE_BYTES}
            assert node.refusals == {"upgrade-timeout": 4, "too-many-upgrades": 8}
            await until(lambda: forgotten(node), "nothing is left of the strangers")
            await member.connect(node.tickets[0])

    run(story)


def test_a_recorded_member_cannot_be_replayed(key: Path) -> None:
    """The greeting passes, being a member's; noise is not fooled, and its answer is unreadable."""

    async def story() -> None:
        wiretap, _, bob_id = await overheard(key)
        async with Node(None, network=key) as bob:
            answer = await said_to(bob, bytes(wiretap.there))
            assert bob.refusals == {"bad-handshake": 1}
            assert len(answer) < 500
            for hidden in (encode_line(MULTISTREAM), bob.id, bob_id):
                assert hidden not in answer
            await until(lambda: forgotten(bob), "nothing is left of the replay")

    run(story)


def test_a_stranger_that_a_member_dials_records_nothing_that_can_be_recognised(key: Path) -> None:
    """Whoever sits at a member's old address gets an opening, other bytes each time, no more."""

    async def story() -> None:
        recorded: list[bytes] = []

        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            recorded.append(await reader.read(-1))
            writer.close()

        server = await asyncio.start_server(record, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Node(None, network=key, config=impatient()) as member:
            somebody = PrivateKey(bytes(32)).peer_id
            for _ in range(2):
                with pytest.raises(LocalError, match="key of this private network"):
                    await member.connect(f"/ip4/127.0.0.1/tcp/{port}/p2p/{somebody}", keep=False)
            await until(lambda: len(recorded) == 2 and forgotten(member), "the dials are over")
            assert [len(each) for each in recorded] == [NONCE_BYTES + len(PLAIN)] * 2
            for opening in recorded:
                for hidden in (encode_line(MULTISTREAM), NOISE.encode(), member.id):
                    assert hidden not in opening
            assert not shared_pieces(recorded)
        server.close()

    run(story)


@pytest.mark.parametrize("other", ["another network", "no network"])
def test_nodes_of_different_networks_do_not_meet(key: Path, tmp_path: Path, other: str) -> None:
    """Whoever dials whom: it is told, the private side counts, and neither keeps anything."""

    async def story() -> None:
        network = None
        if other == "another network":
            create_network(network := tmp_path / "other.key")
        async with (
            Node(None, network=key, config=impatient(2.0)) as member,
            Node(None, network=network) as stranger,
        ):
            with pytest.raises(LocalError, match="cannot reach"):
                await stranger.connect(member.tickets[0], keep=False)
            assert member.refusals == {WRONG_NETWORK: 1}
            with pytest.raises(LocalError, match="key of this private network"):
                await member.connect(stranger.tickets[0], keep=False)
            await until(lambda: forgotten(member) and forgotten(stranger), "nothing is left")

    run(story)


def test_members_talk_on_while_strangers_knock(key: Path) -> None:
    async def story() -> None:
        async with Node(None, network=key) as alice, Node(None, network=key) as bob:
            events = await bob.subscribe("news")
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news")
            for number in range(20):
                knocks = [said_to(bob, secrets.token_bytes(60)) for _ in range(5)]
                publishing = alice.publish("news", b"%d" % number)
                await asyncio.gather(publishing, *knocks)
                assert await take(events, 1) == [b"%d" % number]
            assert bob.refusals == {WRONG_NETWORK: 100}

    run(story)


def test_refusals_are_metrics_and_traced(key: Path) -> None:
    """Who it was is not known: it has said nothing that could be read."""

    async def story() -> None:
        trace = TraceLog()
        async with Node(None, network=key, observers=[trace]) as node:
            await said_to(node, PLAIN)
            assert node.metrics()["rumormill_connections_refused"] == {WRONG_NETWORK: 1}
        assert trace.of(Refuse) == [Refuse(b"", WRONG_NETWORK)]

    run(story)


def test_a_key_file_is_made_once_and_read_by_its_owner_only(tmp_path: Path) -> None:
    """Whatever the file is that stands there, it is not overwritten."""
    path = tmp_path / "new" / "swarm.key"
    network = create_network(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["swarm.key"]
    with pytest.raises(LocalError, match="exists; a network's key is not overwritten"):
        create_network(path)
    loaded = load_network(path)
    assert loaded is not None
    assert loaded.encode() == network.encode() == path.read_bytes()
    path.chmod(0o640)
    with pytest.raises(LocalError, match="chmod 600"):
        load_network(path)


@pytest.mark.parametrize("content", [None, b"", b"nonsense", PrivateKey(bytes(32)).encode()])
def test_a_node_does_not_start_without_the_key_that_it_was_told(
    tmp_path: Path, content: bytes | None
) -> None:
    """It must not fall back to the open network; the home stays free for the next try."""

    async def story() -> None:
        path = tmp_path / "swarm.key"
        if content is not None:
            path.touch(0o600)
            path.write_bytes(content)
        for _ in range(2):
            with pytest.raises(LocalError, match="network's key file"):
                await Node(tmp_path / "home", network=path).start()

    run(story)


def test_libp2ps_own_safeguard_is_kept(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`LIBP2P_FORCE_PNET=1`: no node of this program is ever in the open network."""
    monkeypatch.setenv("LIBP2P_FORCE_PNET", "1")

    async def story() -> None:
        with pytest.raises(LocalError, match="LIBP2P_FORCE_PNET"):
            await Node(None).start()
        async with Node(None, network=key) as node:
            assert node.tickets

    run(story)


def test_the_key_is_in_no_representation() -> None:
    network = PrivateNetwork(secret := secrets.token_bytes(32))
    session = network.session(bytes(NONCE_BYTES), outbound=True)
    assert secret.hex() not in f"{network!r}{session!r}"
    assert repr(secret) not in f"{network!r}{session!r}"


def test_whoever_has_the_key_reads_a_record_as_far_as_noise(key: Path) -> None:
    """The key keeps strangers out and hides who talks; it is noise that hides what is said."""

    async def story() -> None:
        network = load_network(key)
        assert network is not None
        wiretap, alice, bob = await overheard(key)
        for record in (wiretap.there, wiretap.back):
            read = network.session(bytes(NONCE_BYTES), outbound=True).decrypt(bytes(record))
            assert read.startswith(encode_line(MULTISTREAM) + encode_line(NOISE))
            for hidden in (SECRET, alice, bob):
                assert hidden not in read

    run(story)


# Lists of peers.


async def knock(node: Node, stranger: HostilePeer) -> None:
    """Shake hands by all rules, speak, and wait until the node has hung up."""
    await stranger.connect(node)
    stranger.hello("news")
    await until(lambda: stranger.closed, "the stranger is cut off")


@pytest.mark.parametrize("reason", [DENIED, NOT_ALLOWED])
def test_a_peer_that_the_lists_exclude_is_cut_off_as_soon_as_it_is_known(reason: str) -> None:
    """It proves who it is and hears nothing more; counted, traced, and in the metrics."""

    async def story() -> None:
        log = TraceLog()
        async with HostilePeer() as mallory:
            name = str(mallory.key.peer_id)
            friend = str(PrivateKey(bytes(32)).peer_id)
            lists = {DENIED: {"deny_peers": (name,)}, NOT_ALLOWED: {"allow_peers": (friend,)}}
            config = NodeConfig(**lists[reason])  # type: ignore[arg-type]
            async with Node(None, config=config, observers=[log]) as node:
                await node.subscribe("news")
                await knock(node, mallory)
                assert mallory.received == 0
                assert not node.peers
                assert node.refusals == {reason: 1}
                assert node.metrics()["rumormill_connections_refused"] == {reason: 1}
                assert node.metrics()["rumormill_refused"] == {reason: 1}
                await until(lambda: forgotten(node), "nothing is left of the stranger")
            assert log.of(Refuse) == [Refuse(bytes(mallory.key.peer_id), reason)]

    run(story)


@pytest.mark.parametrize("reason", [DENIED, NOT_ALLOWED])
def test_a_peer_that_the_lists_exclude_is_not_dialled(reason: str) -> None:
    """Not even a socket is opened to it; the caller is told why."""

    async def story() -> None:
        async with Node(None) as bob:
            friend = str(PrivateKey(bytes(32)).peer_id)
            lists = {
                DENIED: {"deny_peers": (name_of(bob),)},
                NOT_ALLOWED: {"allow_peers": (friend,)},
            }
            config = NodeConfig(**lists[reason])  # type: ignore[arg-type]
            async with Node(None, config=config) as alice, Wiretap().before(bob) as ticket:
                with pytest.raises(LocalError, match=f"is not dialled: {reason}"):
                    await alice.connect(ticket)
                assert alice.refusals == {reason: 1}
                assert forgotten(alice)
                assert forgotten(bob)

    run(story)


def test_a_peer_that_is_excluded_dials_less_and_less_often() -> None:
    """From its side each connection is made, and lost at once: that is no success."""

    async def story() -> None:
        dialler = NodeConfig(redial_delay_first=0.01, redial_delay_longest=1000.0)
        async with Node(None, config=dialler, members=False) as carol:
            config = NodeConfig(deny_peers=(name_of(carol),))
            clock = asyncio.get_running_loop().time
            async with Node(None, config=config) as alice:
                kept = False
                while not kept:
                    with contextlib.suppress(LocalError):  # it may be cut off before it is ready
                        kept = bool(await carol.connect(alice.tickets[0]))
                began, enough = clock(), alice.refusals[DENIED] + 7
                await until(lambda: alice.refusals[DENIED] >= enough, "carol comes again")
                assert clock() - began > sum(0.01 * 2**number for number in range(6))

    run(story)


def test_allowed_peers_talk_and_denied_ones_do_not_though_they_are_allowed(tmp_path: Path) -> None:
    """The deny-list is the stronger one."""

    async def story() -> None:
        homes = [tmp_path / name for name in ("bob", "carol")]
        for home in homes:
            async with Node(home):
                pass  # its identity is made
        async with Node(homes[0]) as bob, Node(homes[1]) as carol:
            config = NodeConfig(
                allow_peers=(name_of(bob), name_of(carol)), deny_peers=(name_of(carol),)
            )
            async with Node(None, config=config) as alice:
                events = await alice.subscribe("news")
                await bob.connect(alice.tickets[0])
                await bob.wait_until_ready("news")
                await bob.publish("news", b"from bob")
                assert await take(events, 1) == [b"from bob"]
                with contextlib.suppress(LocalError):  # it may be cut off before it is ready
                    await carol.connect(alice.tickets[0], keep=False)
                await until(lambda: not carol.peers, "carol is cut off")
                assert alice.refusals == {DENIED: 1}
                assert [peer.id for peer in alice.peers] == [bob.id]

    run(story)


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        ({"allow_peers": ()}, "allow_peers: names nobody; leave it out to allow everybody"),
        ({"allow_peers": ("nobody",)}, "allow_peers: not a peer id"),
        ({"deny_peers": ("12D3KooW",)}, "deny_peers: not a peer id"),
    ],
)
def test_lists_that_name_nobody_are_refused(lists: dict[str, object], sentence: str) -> None:
    """An allow-list that came out empty must not let everybody in."""
    with pytest.raises(ConfigError, match=sentence):
        Node(None, config=NodeConfig(**lists))  # type: ignore[arg-type]
