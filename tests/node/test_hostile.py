"""Hostile peers against a live node, while an honest pair talks on without losing a message.

Every attack ends the attacker's stream or connection at most, is counted under a reason, and
leaves nothing behind.
"""

import asyncio
import contextlib
import random
import secrets
from typing import Any

import pytest
from hostile_peer import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    MESHSUB,
    PING_FRAME,
    RST,
    SYN,
    WINDOW,
    HostilePeer,
    yamux_frame,
)

from live_nodes import HonestPair, honest_pair, only_bob_is_left, run, until
from rumormill.core.errors import LocalError
from rumormill.core.trace import Penalise
from rumormill.libp2p import services
from rumormill.libp2p.address_book import MAX_ADDRESSES
from rumormill.libp2p.envelope import seal_peer_record
from rumormill.libp2p.identify import IDENTIFY, IDENTIFY_PUSH, Identify
from rumormill.libp2p.multistream import Initiator
from rumormill.libp2p.noise import NOISE
from rumormill.libp2p.services import PING
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.readers import SLOW_PEER
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.messages import Control, IHave, Prune, Rpc, SubOpts
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey, PublicKey
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.protobuf import varint
from trace_log import TraceLog

WINDOW_BYTES = 256 * 1024


async def refused(pair: HonestPair, reason: str, times: int = 1) -> None:
    """Wait until Alice has counted a reason."""
    await until(
        lambda: pair.alice.refusals.get(reason, 0) >= times,
        f"{reason} is counted {times} times, in {pair.alice.refusals}",
    )


async def nothing_is_left(pair: HonestPair) -> None:
    """Wait until Alice has forgotten all attackers."""
    await until(lambda: only_bob_is_left(pair), "only the honest connection is left")


# Frames.


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (yamux_frame(DATA, SYN, 1, WINDOW_BYTES + 1), "window-exceeded"),
        (yamux_frame(DATA, SYN | FIN, 1, 2**32 - 1), "window-exceeded"),
        (yamux_frame(DATA, SYN | RST, 1, 0), "contradicting-flags"),
        (yamux_frame(DATA, SYN | ACK, 1, 0), "contradicting-flags"),
        (yamux_frame(DATA, 0x10, 1, 0), "unknown-flags"),
        (yamux_frame(DATA, SYN, 2, 0), "bad-stream"),
        (yamux_frame(DATA, SYN, 0, 0), "bad-stream"),
        (yamux_frame(WINDOW, SYN, 1, 0) * 2, "duplicate-stream"),
        (
            yamux_frame(WINDOW, SYN, 1, 0)
            + yamux_frame(WINDOW, RST, 1, 0)
            + yamux_frame(WINDOW, SYN, 1, 0),
            "duplicate-stream",
        ),
        (
            yamux_frame(WINDOW, SYN, 1, 2**32 - 1) + yamux_frame(WINDOW, 0, 1, 2**32 - 1),
            "window-overflow",
        ),
        (
            yamux_frame(DATA, SYN | FIN, 1, 0) + yamux_frame(DATA, 0, 1, 1, b"x"),
            "data-after-fin",
        ),
        (yamux_frame(7, 0, 0, 0), "unknown-type"),
        (b"\x01" + yamux_frame(DATA, SYN, 1, 0)[1:], "bad-version"),
        (yamux_frame(PING_FRAME, SYN, 1, 0), "bad-stream"),
        (yamux_frame(GO_AWAY, 0, 3, 0), "bad-stream"),
    ],
)
def test_a_broken_yamux_frame_ends_that_connection_and_no_other(attack: bytes, reason: str) -> None:
    """CVE-2026-32314 (a first frame beyond the credit) and its relatives."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            mallory.frames(attack)
            await refused(pair, reason)
            await until(lambda: mallory.closed, "the attacker is cut off")
            await nothing_is_left(pair)

    run(story)


def test_a_stream_that_is_reset_in_the_packet_that_opened_it_is_no_error() -> None:
    """SYN, negotiation and RST in one packet: nothing escapes, and the connection lives."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            for protocol in (IDENTIFY, PING, MESHSUB):
                opening = Initiator((protocol,)).data_to_send() + bytes(64)
                stream_id = mallory.session.open_stream()
                mallory.session.send(stream_id, opening)
                packet = mallory.session.data_to_send()
                mallory.frames(packet + yamux_frame(WINDOW, RST, stream_id, 0))
            await pair.more()
            assert not mallory.closed
            assert "duplicate-stream" not in pair.alice.refusals

    run(story)


def test_a_flood_of_streams_is_reset_beyond_a_limit() -> None:
    """CVE-2022-23492 and -23486: 5,000 SYNs on one connection hold at most a thousand streams."""

    async def story() -> None:
        config = NodeConfig(negotiation_timeout=0.3)
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            for start in range(1, 10_000, 500):
                numbers = range(start, start + 500, 2)
                mallory.frames(b"".join(yamux_frame(WINDOW, SYN, n, 0) for n in numbers))
                await mallory.drain()
                await pair.more(1)
                connections = pair.alice._swarm.connections
                assert all(each.session.streams <= 1002 for each in connections.values())
            await refused(pair, "too-many-streams", 1000)
            await refused(pair, "negotiation-timeout", 500)
            await until(
                lambda: all(len(each._streams) <= 2 for each in connections.values()),
                "streams that negotiate nothing are given up",
            )

    run(story)


def test_who_opens_streams_and_never_says_what_for_is_cut_off() -> None:
    """All that it may have, again and again: within the limits, and a burden all the same."""

    async def story() -> None:
        config = NodeConfig(negotiation_timeout=0.2)
        cut_off = "cut-off-negotiation-timeout"
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            while not mallory.closed and not mallory.told_to_go:
                for _ in range(200):
                    mallory.open_in_silence()
                await until(
                    lambda: mallory.closed or mallory.session.streams < 50, "they are given up"
                )
            await refused(pair, cut_off)
            await nothing_is_left(pair)
            await pair.more()

    run(story)


def test_a_syn_flood_of_a_peer_that_does_not_read_ends_its_connection() -> None:
    """Refusals wait in a bounded queue, and a peer that provokes many is cut off before that."""

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2)
        cut_off = "cut-off-useless-frames"
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice, reads=False)
            number = 1
            while not mallory.closed and cut_off not in pair.alice.refusals:
                syns = [yamux_frame(WINDOW, SYN, number + 2 * n, 0) for n in range(5000)]
                number += 2 * len(syns)
                mallory.frames(b"".join(syns))
                await mallory.drain()
                await pair.more(1)
            await refused(pair, cut_off)
            await nothing_is_left(pair)

    run(story)


def test_streams_of_one_protocol_are_limited() -> None:
    """Sixteen pings at a time are enough for anybody."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            for _ in range(40):
                mallory.open(PING)
            await refused(pair, "too-many-streams", 24)
            await pair.more()

    run(story)


# Before the handshake is over.


def test_garbage_at_any_point_of_the_handshake_ends_the_connection() -> None:
    """One flipped or random byte at sampled offsets of what a dialler says, cut at random."""
    rng = random.Random(7)

    async def story() -> None:
        config = NodeConfig(upgrade_timeout=1.0, close_timeout=0.2)
        async with honest_pair(config) as pair:
            opening = len(Initiator((NOISE,)).data_to_send()) + 34
            for offset in [*range(0, opening, 3), *rng.sample(range(opening, opening + 200), 20)]:
                async with HostilePeer() as mallory:
                    await mallory.call(pair.alice)
                    first = Initiator((NOISE,)).data_to_send() + mallory.handshake().data_to_send()
                    said = bytearray(first + rng.randbytes(200))
                    said[offset] ^= rng.randrange(1, 256)
                    cut = rng.randrange(len(said))
                    mallory.raw(bytes(said[:cut]))
                    await mallory.drain()
                    mallory.raw(bytes(said[cut:]))
                    await mallory.drain()
                    swarm = pair.alice._swarm
                    await until(lambda s=swarm: not len(s._upgrading), "the upgrade has ended")
            await nothing_is_left(pair)
            assert sum(pair.alice.refusals.values()) > 20

    run(story)


def test_a_damaged_last_handshake_message_is_refused() -> None:
    """One byte changed, at sampled places of what proves the dialler's identity."""
    rng = random.Random(11)

    async def story() -> None:
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair:
            for damage in range(25):
                async with HostilePeer() as mallory:
                    mallory.damage = rng.randrange(2, 200)
                    await mallory.connect(pair.alice)
                    await refused(pair, "bad-handshake", damage + 1)
            await nothing_is_left(pair)

    run(story)


def test_an_identity_whose_key_did_not_sign_is_refused() -> None:
    """RUSTSEC-2019-0004: somebody else's public key does not make one somebody else."""

    class Impostor(PrivateKey):
        """Signs with its own key, and shows another."""

        @property
        def public_key(self) -> PublicKey:
            return Impostor.victim

        victim: PublicKey

    async def story() -> None:
        async with honest_pair() as pair:
            Impostor.victim = PrivateKey(secrets.token_bytes(32)).public_key
            async with HostilePeer(Impostor(secrets.token_bytes(32))) as mallory:
                await mallory.connect(pair.alice)
                await refused(pair, "bad-signature")
                await until(lambda: mallory.closed, "the impostor is cut off")
            await nothing_is_left(pair)

    run(story)


@pytest.mark.parametrize("said", [b"", b"\x13", b"\x13/multistream/1.0.0\n"])
def test_a_peer_that_says_nothing_holds_a_place_for_a_moment_only(said: bytes) -> None:
    """Slowloris: silent, or silent after the first words; the upgrade has a deadline."""

    async def story() -> None:
        config = NodeConfig(upgrade_timeout=0.3, close_timeout=0.2)
        async with honest_pair(config) as pair:
            crowd = [await HostilePeer().call(pair.alice) for _ in range(10)]
            for silent in crowd:
                silent.raw(said)
            await refused(pair, "upgrade-timeout", 10)
            await nothing_is_left(pair)
            for silent in crowd:
                await silent.hang_up()

    run(story)


def test_a_flood_of_connections_is_refused_beyond_the_limits() -> None:
    """300 dials at once hold no more than the limit of pending upgrades; Bob stays."""

    async def story() -> None:
        config = NodeConfig(max_pending_upgrades=8, upgrade_timeout=0.5, close_timeout=0.2)
        async with honest_pair(config) as pair:
            crowd = await asyncio.gather(*(HostilePeer().call(pair.alice) for _ in range(300)))
            await refused(pair, "too-many-upgrades", 200)
            await until(lambda: len(pair.alice._swarm._all) <= 9, "the others are gone")
            await nothing_is_left(pair)
            for one in crowd:
                await one.hang_up()

    run(story)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("max_connections", "too-many-connections"),
     ("max_connections_per_address", "too-many-from-address")],
)  # fmt: skip
def test_finished_connections_are_limited_in_all_and_by_address(limit: str, reason: str) -> None:
    """Sybils that shake hands properly are refused when the places are taken."""

    async def story() -> None:
        config = NodeConfig(**{limit: 5})
        async with honest_pair(config) as pair:
            sybils = [await HostilePeer().connect(pair.alice) for _ in range(4)]
            for _ in range(10):
                async with HostilePeer() as refused_one:
                    with contextlib.suppress(ConnectionError, AssertionError):
                        await refused_one.connect(pair.alice)
                        await until(lambda one=refused_one: one.closed, "the node hangs up")
            await refused(pair, reason, 10)
            for sybil in sybils:
                await sybil.hang_up()
            await nothing_is_left(pair)

    run(story)


def test_a_node_that_is_not_who_was_dialled_is_refused() -> None:
    """A ticket names an identity; whoever else answers is not connected to."""

    async def story() -> None:
        async with honest_pair() as pair, Node(None) as other:
            address = other.tickets[0].rpartition("/p2p/")[0]
            stranger = PrivateKey(secrets.token_bytes(32)).peer_id
            with pytest.raises(LocalError, match="wrong-peer"):
                await pair.alice.connect(f"{address}/p2p/{stranger}", keep=False)
            await refused(pair, "wrong-peer")
            await nothing_is_left(pair)

    run(story)


def test_identify_with_another_peers_key_or_record_is_refused() -> None:
    """RUSTSEC-2022-0009: what is signed by somebody else says nothing about the speaker."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            victim = PrivateKey(secrets.token_bytes(32))
            lies = [
                Identify(public_key=victim.public_key.encoded),
                Identify(signed_peer_record=seal_peer_record(victim, 1, ())),
            ]
            for lie in lies:
                stream_id = mallory.open(IDENTIFY_PUSH, lie.encode())
                mallory.session.end(stream_id)
                mallory.flush()
            await refused(pair, "wrong-peer", 2)
            assert bytes(victim.peer_id) not in pair.alice._swarm.book.records

    run(story)


# Services.


def test_endless_identify_pushes_leave_one_bounded_entry() -> None:
    """CVE-2023-40583: 500 pushes with ever new addresses and records."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            for number in range(500):
                addresses = tuple(
                    Multiaddr.tcp("192.0.2.1", 1 + (number * 64 + n) % 65535).encode()
                    for n in range(64)
                )
                record = seal_peer_record(mallory.key, number, addresses[:8])
                said = Identify(listen_addresses=addresses, signed_peer_record=record)
                # Who floods waits longer than others until its streams are taken.
                session = mallory.session
                await until(lambda: session._outbound_backlog < 200, "streams are taken")  # noqa: B023
                stream_id = mallory.open(IDENTIFY_PUSH, said.encode())
                mallory.session.end(stream_id)
                mallory.flush()
                await mallory.drain()
                if number % 10 == 0:
                    await pair.more(1)
            book = pair.alice._swarm.book
            peer = bytes(mallory.key.peer_id)
            await until(lambda: book.records.get(peer) == record, "the last push has arrived")
            assert len(book.endpoints(peer)) <= MAX_ADDRESSES
            assert len(book.records) <= 2

    run(story)


def test_an_identify_push_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come of it is not kept for as long as the connection."""
    monkeypatch.setattr(services, "IDENTIFY_SECONDS", 0.2)

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            said = Identify(protocols=("/never/done",) * 20).encode()
            for _ in range(8):
                mallory.open(IDENTIFY_PUSH, said)
            await until(
                lambda: pair.alice.refusals.get("identify-timeout", 0) == 8, "all are given up"
            )
            (connection,) = [
                each
                for each in pair.alice._swarm.connections.values()
                if each.remote_peer == bytes(mallory.key.peer_id)
            ]
            assert not connection.streams_of(IDENTIFY_PUSH)
            await pair.more()

    run(story)


def test_a_ping_flood_is_answered_or_cut_off() -> None:
    """Pings of a peer that reads are echoed; one that does not read loses its stream."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory, HostilePeer() as deaf:
            await mallory.connect(pair.alice)
            stream_id = mallory.open(PING)
            for _ in range(200):
                mallory.say(stream_id, bytes(32 * 100))
                await mallory.drain()
                await asyncio.sleep(0)
            await until(lambda: mallory.received > 200 * 3200, "every ping is echoed")
            deaf.gives_window = False
            await deaf.connect(pair.alice)
            stream_id = deaf.open(PING)
            while "unread-pongs" not in pair.alice.refusals:
                if stream_id in deaf.session._streams:
                    deaf.say(stream_id, bytes(32 * 1000))
                await deaf.drain()
                await pair.more(1)
            await pair.more()

    run(story)


def test_a_flood_of_yamux_pings_without_reading_ends_the_connection() -> None:
    """Answers to pings wait in a bounded queue, and a peer that pings on is cut off before that."""

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2)
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice, reads=False)
            pings = yamux_frame(PING_FRAME, SYN, 0, 1) * 20_000
            while not mallory.closed and "cut-off-useless-frames" not in pair.alice.refusals:
                mallory.frames(pings)
                await mallory.drain()
                await pair.more(1)
            await refused(pair, "cut-off-useless-frames")
            await nothing_is_left(pair)

    run(story)


# RPCs.


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        (varint(2**62), "frame-too-long"),
        (varint(2**20 + 1), "frame-too-long"),
        (b"\x80" * 20, "bad-varint"),
        (b"\x81\x80\x00", "bad-varint"),
        (frame(b"\xff" * 50), "bad-varint"),
        (frame(b"\x0a" + varint(2**62)), "truncated"),
    ],
)
def test_a_length_bomb_resets_the_stream_before_anything_is_allocated(
    bomb: bytes, reason: str
) -> None:
    """GHSA-xqvc-92cf-94j4: a length is judged before it is believed."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            mallory.open(MESHSUB, bomb)
            await refused(pair, reason)
            await pair.more()
            assert not mallory.closed

    run(story)


def test_a_newer_rpc_stream_replaces_the_oldest_one() -> None:
    """However many streams a peer opens, two unfinished frames of it are kept."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            connections = pair.alice._swarm.connections
            peer = bytes(mallory.key.peer_id)
            for _ in range(30):
                mallory.open(MESHSUB, varint(2**20) + bytes(100_000))
                await mallory.drain()
                await pair.more(1)
                assert connections[peer].streams_of(MESHSUB) <= 3, "ours too"
            await refused(pair, "replaced-stream", 28)

    run(story)


def test_two_rpc_streams_of_a_peer_are_both_read() -> None:
    """Who dials at the same moment as we do may open two and use either; none is reset."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            topics = ["first", "second", "first again"]
            hellos = [frame(encode_rpc(Rpc(subscriptions=(SubOpts(True, t),)))) for t in topics]
            first = mallory.open(MESHSUB, hellos[0])
            mallory.open(MESHSUB, hellos[1])
            mallory.say(first, hellos[2])
            await mallory.drain()
            machine: Any = pair.alice._driver.protocol
            peer = bytes(mallory.key.peer_id)
            await until(
                lambda: all(peer in machine.topics.get(topic, ()) for topic in topics),
                "what came on both streams is known",
            )
            assert "replaced-stream" not in pair.alice.refusals

    run(story)


def flood_rpcs(mallory: HostilePeer, number: int) -> list[Rpc]:
    """RPCs that are well-formed and abusive: one of each kind of protocol spam."""
    base = number * 1000
    ids = tuple((base + n).to_bytes(20) for n in range(1000))
    forged = mallory.message("from bob", b"forged", base)
    forged.signature = bytes(64)
    return [
        Rpc(subscriptions=tuple(SubOpts(True, f"topic {base + n}") for n in range(1000))),
        Rpc(control=Control(ihave=(IHave("from bob", ids),))),
        Rpc(control=Control(iwant=ids)),
        Rpc(control=Control(idontwant=ids)),
        Rpc(control=Control(graft=tuple(f"unknown {base + n}" for n in range(500)))),
        Rpc(control=Control(prune=(Prune("from bob", (), 2**64 - 1),))),
        Rpc(publish=(forged,)),
        Rpc(publish=(mallory.message("nobody wants this", b"x", base),)),
    ]


def test_a_flood_of_rpcs_leaves_bounded_tables_and_nothing_after_it() -> None:
    """Subscriptions, IHAVE, IWANT, IDONTWANT, GRAFT, PRUNE and forged messages by the thousand."""

    async def story() -> None:
        async with honest_pair() as pair:
            machine: Any = pair.alice._driver.protocol
            async with HostilePeer() as mallory:
                await mallory.connect(pair.alice)
                stream_id = mallory.hello("from bob", "from alice")
                peer = bytes(mallory.key.peer_id)
                await until(lambda: peer in machine.peers, "the attacker is a peer")
                for number in range(25):
                    for rpc in flood_rpcs(mallory, number):
                        mallory.say(stream_id, frame(encode_rpc(rpc)))
                        await mallory.drain()
                    await pair.more(1)
                    if peer in machine.peers:
                        assert len(machine.peers[peer].topics) <= 1024
                    assert len(machine.topics) <= 1030
                await pair.more()
            await nothing_is_left(pair)
            assert len(machine.topics) <= 2
            assert peer not in machine.peers

    run(story)


def test_rpcs_before_our_stream_is_open_wait_in_a_bounded_place() -> None:
    """A peer that never accepts our stream cannot make us keep what it sends."""

    async def story() -> None:
        config = NodeConfig(negotiation_timeout=1.0, stream_retry_first=0.05)
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            mallory.accepts = False
            await mallory.connect(pair.alice)
            stream_id = mallory.hello("from alice")
            rpc = frame(encode_rpc(Rpc(subscriptions=(SubOpts(True, "t"),))))
            while "too-early" not in pair.alice.refusals:
                if stream_id not in mallory.session._streams:
                    break
                mallory.say(stream_id, rpc * 100)
                await mallory.drain()
                await pair.more(1)
            await refused(pair, "too-early")
            assert bytes(mallory.key.peer_id) not in pair.alice._driver.protocol.peers
            assert not pair.alice._driver.intake.unfinished

    run(story)


def test_what_comes_before_our_stream_is_open_is_kept_as_it_came_and_counts() -> None:
    """Read, it would take ten times as much; it counts with what has come in part, of all peers."""

    async def story() -> None:
        config = NodeConfig(negotiation_timeout=0.3, stream_retry_first=0.05)
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            driver: Any = pair.alice._driver
            mallory.accepts = False
            await mallory.connect(pair.alice)
            stream, peer = mallory.open(MESHSUB), bytes(mallory.key.peer_id)
            topics = tuple(SubOpts(True, f"t{number}") for number in range(3000))
            rpc = encode_rpc(Rpc(subscriptions=topics))
            mallory.say(stream, frame(rpc))
            await until(lambda: driver.intake.unfinished == len(rpc), "all of it has come")
            assert peer not in driver.protocol.peers
            mallory.accepts = True
            await until(lambda: peer in driver.protocol.peers, "our stream is open")
            await until(lambda: len(driver.protocol.peers[peer].topics) == 1024, "it is read")
            assert driver.intake.unfinished == 0
            mallory.say(stream, frame(encode_rpc(Rpc(subscriptions=(SubOpts(False, "t7"),)))))
            await until(lambda: len(driver.protocol.peers[peer].topics) == 1023, "and what follows")
            await pair.more()

    run(story)


# Slow readers.


@pytest.mark.parametrize("reads", [True, False], ids=["gives-no-window", "reads-nothing"])
def test_a_peer_that_does_not_read_costs_a_bounded_queue_and_nobody_else(reads: bool) -> None:
    """It is found slow, counted and traced; publishing goes on, and Bob gets everything."""

    async def story() -> None:
        config = NodeConfig(
            queue_bytes=1 << 20, slow_peer_after=0.3, shutdown_timeout=0.3, close_timeout=0.2
        )
        log = TraceLog()
        async with honest_pair(config, observers=[log]) as pair, HostilePeer() as deaf:
            await deaf.connect(pair.alice)
            deaf.hello("from alice", "bulk")
            peer = bytes(deaf.key.peer_id)
            machine: Any = pair.alice._driver.protocol
            await until(lambda: peer in machine.topics.get("bulk", ()), "the deaf peer subscribes")
            deaf.gives_window = False
            if not reads and deaf._reading is not None:
                deaf._reading.cancel()
            for _ in range(300):
                await pair.alice.publish("bulk", bytes(32 * 1024))
            channel = pair.alice._driver.channels[peer]
            assert channel.queued_bytes <= config.queue_bytes
            assert pair.alice.refusals["slow-peer"] == 1
            await refused(pair, "queue-full")
            pair.alice._recorder.flush()
            slow = [each.peer for each in log.of(Penalise) if each.reason == SLOW_PEER]
            assert slow == [peer]
            await pair.more()
        assert pair.alice._driver.channels == {}

    run(story)


def test_a_closed_connection_of_a_peer_that_does_not_read_gives_its_socket_back() -> None:
    """What it was to be sent is thrown away after a while; its place is free again."""

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2, keep_alive_interval=0.1, keep_alive_timeout=0.2)
        async with honest_pair(config) as pair, HostilePeer() as deaf:
            await deaf.connect(pair.alice)
            deaf.hello("bulk")
            peer = bytes(deaf.key.peer_id)
            machine: Any = pair.alice._driver.protocol
            await until(lambda: peer in machine.topics.get("bulk", ()), "the deaf peer subscribes")
            assert deaf._reading is not None
            deaf._reading.cancel()
            await asyncio.gather(*(pair.alice.publish("bulk", bytes(100_000)) for _ in range(100)))
            await refused(pair, "keep-alive-timeout")
            await nothing_is_left(pair)

    run(story)
