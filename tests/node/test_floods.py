"""One bad peer is felt by nobody: floods, crowds, half-open sockets, slow readers."""

import asyncio
import contextlib
import importlib.util
import secrets
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_peer import MESHSUB, HostilePeer, WebSocketPeer, yamux_frame

from live_nodes import HonestPair, honest_pair, run, take, until
from rumormill import Node
from rumormill.core.errors import LocalError
from rumormill.libp2p import turns
from rumormill.libp2p.admission import origin_of
from rumormill.libp2p.autonat import (
    DIAL_BACK,
    DIAL_REQUEST,
    DialBack,
    DialRequest,
    encode_message,
)
from rumormill.libp2p.circuit import HOP, STOP, Hop, HopMessage, Named, Stop, StopMessage
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dcutr import DCUTR, Punch, PunchMessage
from rumormill.libp2p.identify import IDENTIFY
from rumormill.libp2p.services import PING
from rumormill.node import serving
from rumormill.node.config import NodeConfig
from rumormill.node.peer_clocks import CLOCK
from rumormill.node.readers import SLOW_PEER, STUCK_PEER
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey


def _floods() -> Any:
    """The floods of `bench/floods.py`, which measures what they cost."""
    path = Path(__file__).parents[2] / "bench" / "flood_frames.py"
    spec = importlib.util.spec_from_file_location("flood_frames", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FLOODS = _floods()


async def pour(mallory: HostilePeer, chunk: bytes) -> None:
    """Send a chunk of frames again and again, on a new stream when one is reset."""
    stream, rest = mallory.hello(), b""
    while not mallory.closed:
        if stream not in mallory.session._streams:
            stream, rest = mallory.hello(), b""
        rest = rest or chunk
        rest = rest[mallory.session.send(stream, rest) :]
        mallory.flush()
        await mallory.drain()
        await asyncio.sleep(0)


async def pour_frames(mallory: HostilePeer, chunks: Iterator[bytes]) -> None:
    mallory.hello("honest")
    for chunk in chunks:
        if mallory.closed:
            return
        mallory.frames(chunk)
        await mallory.drain()
        await asyncio.sleep(0)


async def attack(key: PrivateKey, node: Node, flood: str) -> None:
    """Flood, and come back whenever the node hangs up."""
    while True:
        mallory = HostilePeer(key)
        await mallory.call(node)
        async with mallory:
            with contextlib.suppress(ConnectionError, AssertionError, LocalError):
                await mallory.shake_hands()
                if flood in FLOODS.YAMUX_FLOODS:
                    await pour_frames(mallory, FLOODS.YAMUX_FLOODS[flood]())
                else:
                    await pour(mallory, FLOODS.PUBSUB_FLOODS[flood](key))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("flood", [*FLOODS.PUBSUB_FLOODS, *FLOODS.YAMUX_FLOODS])
def test_a_flood_is_cut_off_and_kept_out_and_an_honest_pair_goes_on(flood: str) -> None:
    """No turn of the loop is long meanwhile: every test is watched for that."""

    async def story() -> None:
        key = PrivateKey(secrets.token_bytes(32))
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair:
            alice = pair.alice
            await alice.subscribe(FLOODS.TOPIC)
            attacking = asyncio.ensure_future(attack(key, alice, flood))
            while not any(reason.startswith("cut-off-") for reason in alice.refusals):
                await pair.more(1)
            await until(lambda: alice.refusals.get("banned", 0) > 2, "it is kept out")
            attacking.cancel()
            await asyncio.gather(attacking, return_exceptions=True)
            await pair.more()

    run(story)


@pytest.mark.parametrize("flood", FLOODS.TRUNK_FLOODS)
def test_a_flood_of_our_extension_is_cut_off_where_it_is_spoken(flood: str) -> None:
    """The test before has it where nobody has asked for it."""

    async def story() -> None:
        key, config = PrivateKey(secrets.token_bytes(32)), NodeConfig(close_timeout=0.2)
        async with honest_pair(config, parameters={"trunk": True}) as pair:
            await pair.alice.subscribe(FLOODS.TOPIC)
            attacking = asyncio.ensure_future(attack(key, pair.alice, flood))
            while not any(reason.startswith("cut-off-") for reason in pair.alice.refusals):
                await pair.more(1)
            attacking.cancel()
            await asyncio.gather(attacking, return_exceptions=True)

    run(story)


async def ask(mallory: HostilePeer, flood: str) -> None:
    """Put question after question, all as they should be."""
    protocol, made = FLOODS.QUESTION_FLOODS[flood]
    chunk, rest, stream = made(mallory.key), b"", 0
    with contextlib.suppress(LocalError):  # the node hangs up
        while not mallory.closed:
            if stream not in mallory.session._streams:
                stream, rest = mallory.open(protocol), b""
            rest = rest or chunk
            rest = rest[mallory.session.send(stream, rest) :]
            mallory.flush()
            await mallory.drain()
            await asyncio.sleep(0)


OF_SYNC = [flood for flood in FLOODS.QUESTION_FLOODS if flood.startswith("sync")]
OF_THE_DHT = [flood for flood in FLOODS.QUESTION_FLOODS if flood.startswith("DHT")]


@pytest.mark.parametrize("flood", OF_SYNC)
def test_a_flood_of_questions_about_histories_is_cut_off_and_an_honest_pair_goes_on(
    flood: str,
) -> None:
    """They cost what they take to work out: a fraction of the questions that one may ask in all."""

    async def story() -> None:
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair, HostilePeer() as mallory:
            await pair.alice.subscribe(FLOODS.TOPIC)
            await mallory.connect(pair.alice)
            asking = asyncio.ensure_future(ask(mallory, flood))
            while not asking.done():
                await pair.more(1)
            await asking
            assert pair.alice.refusals["cut-off-sync-too-often"] == 1

    run(story)


@pytest.mark.parametrize("flood", OF_THE_DHT)
def test_a_flood_of_questions_to_the_dht_is_cut_off(
    flood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_PRICE", 0.5)  # a flood is 2,000 then, and not 20,000

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2)
        async with Node(None, protocol="pulsarcast", config=config) as alice:
            async with HostilePeer() as mallory:
                await mallory.connect(alice)
                await ask(mallory, flood)
            assert alice.refusals["cut-off-questions"] == 1

    run(story)


STRANGER = bytes(PrivateKey(bytes(32)).peer_id)
TALKS = {
    "identify": (IDENTIFY, b""),
    "ping": (PING, bytes(32)),
    "clock": (CLOCK, b""),
    "RPC streams": (MESHSUB, b""),
    "reservations": (HOP, HopMessage(Hop.RESERVE).encode()),
    "circuits": (HOP, HopMessage(Hop.CONNECT, Named(STRANGER)).encode()),
    "relays' calls": (STOP, StopMessage(Stop.CONNECT, Named(STRANGER)).encode()),
    "dial requests": (DIAL_REQUEST, encode_message(DialRequest((), 1))),
    "dial-backs": (DIAL_BACK, DialBack(1).encode()),
    "hole punches": (DCUTR, PunchMessage(Punch.CONNECT).encode()),
}
"""What each stream of such a flood is for, and the one message on it."""


async def talk(mallory: HostilePeer, protocol: str, said: bytes) -> None:
    """Open stream after stream, by all rules: few at a time, each of them ended in order."""
    data = said if protocol == PING else frame(said) if said else b""
    under_way: deque[int] = deque()
    while not mallory.closed:
        if len(under_way) < 8:
            with contextlib.suppress(LocalError):  # the node hangs up
                under_way.append(mallory.open(protocol, data))
                mallory.session.end(under_way[-1])
                mallory.flush()
        elif under_way[0] not in mallory.session._streams or mallory.heard.get(under_way[0]):
            under_way.popleft()
        await mallory.drain()
        await asyncio.sleep(0)


@pytest.mark.parametrize("flood", TALKS)
def test_a_flood_of_short_talks_is_cut_off_and_an_honest_pair_goes_on(flood: str) -> None:
    """Whatever for, and however politely: streams are not for nothing."""

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2)
        async with Node(None, be_relay=True, config=config) as alice, Node(None) as bob:
            pair = HonestPair(alice, bob)
            await pair.start()
            async with HostilePeer() as mallory:
                await mallory.connect(alice)
                mallory.hello("from bob")
                talking = asyncio.ensure_future(talk(mallory, *TALKS[flood]))
                while not any(reason.startswith("cut-off-") for reason in alice.refusals):
                    await pair.more(1)
                await until(lambda: mallory.closed, "it is cut off")
                await talking
            await pair.more()
            await pair.stop()

    run(story)


WEBSOCKET_REASONS = {"tiny-websocket-frames", "bad-websocket-frame", "useless-frames"}


async def pour_bare(mallory: WebSocketPeer, chunk: bytes) -> None:
    while not mallory.closed and not mallory._socket.at_eof():
        mallory.bare(chunk)
        await mallory.drain()
        await asyncio.sleep(0)


@pytest.mark.parametrize("known", [True, False], ids=["peer", "stranger"])
@pytest.mark.parametrize("flood", FLOODS.WEBSOCKET_FLOODS)
def test_a_flood_of_websocket_frames_is_cut_off_and_an_honest_pair_goes_on(
    flood: str, known: bool
) -> None:
    """A crowd of frames is refused before all of it is parsed; a peer that comes back is kept out,
    a stranger may send no more than a handshake takes."""

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2)
        listen = "/ip4/127.0.0.1/tcp/0/ws"
        async with Node(None, listen=listen, config=config) as alice, Node(None) as bob:
            pair, key = HonestPair(alice, bob), PrivateKey(secrets.token_bytes(32))
            peer = bytes(key.peer_id)
            await pair.start()

            def refusals() -> int:
                if known:
                    return alice.refusals.get("banned", 0)
                return sum(alice.refusals.get(reason, 0) for reason in WEBSOCKET_REASONS)

            while refusals() < 3:
                mallory = WebSocketPeer(key)
                with contextlib.suppress(ConnectionError, AssertionError):
                    await mallory.call(alice)
                    if known:
                        await mallory.shake_hands()
                        await until(
                            lambda one=mallory: one.closed or peer in alice._swarm.connections,
                            "it is let in, or kept out",
                        )
                    await pour_bare(mallory, FLOODS.WEBSOCKET_FLOODS[flood])
                await mallory.hang_up()
                await pair.more(1)
            cut_off = {reason for reason in alice.refusals if reason.startswith("cut-off-")}
            assert {each.removeprefix("cut-off-") for each in cut_off} <= WEBSOCKET_REASONS
            assert bool(cut_off) == known
            await pair.more()
            await pair.stop()

    run(story)


def test_who_breaks_the_rules_of_a_connection_again_and_again_is_kept_out() -> None:
    """Each such connection ends by itself; five of them are one too many."""

    async def story() -> None:
        key = PrivateKey(secrets.token_bytes(32))
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair:
            for _ in range(5):
                async with HostilePeer(key) as mallory:
                    await mallory.connect(pair.alice)
                    mallory.frames(yamux_frame(99, 0, 1, 0))
                    await until(lambda one=mallory: one.closed, "the node hangs up")
            assert [each for each in pair.alice.refusals if each.startswith("cut-off-")]
            async with HostilePeer(key) as mallory:
                with contextlib.suppress(ConnectionError, AssertionError):
                    await mallory.connect(pair.alice)
                await until(lambda: pair.alice.refusals.get("banned", 0), "it is kept out")
            await pair.more()

    run(story)


def test_half_open_sockets_do_not_keep_newcomers_out() -> None:
    """Seventy that say nothing, more than there are places; whoever does speak comes in."""

    async def story() -> None:
        config = NodeConfig(max_pending_upgrades=64, close_timeout=0.2)
        async with honest_pair(config) as pair:
            silent = [await HostilePeer().call(pair.alice) for _ in range(70)]
            for number in range(25):
                async with Node(None) as newcomer:
                    await newcomer.connect(pair.alice.tickets[0], keep=False)
                    assert newcomer.peers, f"newcomer {number}"
            for one in silent:
                await one.hang_up()

    run(story)


@pytest.mark.skipif(sys.platform != "linux", reason="needs more addresses than 127.0.0.1")
def test_sybils_of_other_addresses_make_room_for_a_newcomer() -> None:
    """All places are taken by two addresses; each newcomer takes one from the larger crowd."""

    async def story() -> None:
        config = NodeConfig(max_connections=16, close_timeout=0.2)
        async with honest_pair(config) as pair:
            sybils = []
            for number in range(15):
                sybil = HostilePeer()
                sybil.address = f"127.0.0.{2 + number % 2}"
                sybils.append(await sybil.connect(pair.alice))
            swarm = pair.alice._swarm
            await until(lambda: len(swarm._places) == 16, "all places are taken")
            for _ in range(5):
                async with Node(None) as newcomer:
                    await newcomer.connect(pair.alice.tickets[0], keep=False)
                    await until(lambda n=newcomer: bool(n.peers), "the newcomer is in")
            assert pair.alice.refusals["crowded-out"] >= 1
            assert pair.bob.id in swarm.connections, "who was there first stays"
            for one in sybils:
                await one.hang_up()

    run(story)


def test_a_reader_that_trickles_holds_nobody_up_and_is_given_up() -> None:
    """Whoever moves at all does not count as moving: the age of the queue and its speed do."""

    async def story() -> None:
        config = NodeConfig(
            queue_messages=64,
            queue_bytes=1 << 20,
            slow_peer_after=60.0,
            slow_peer_limit=2.0,
            trace_interval=0.2,
            close_timeout=0.2,
        )
        async with honest_pair(config) as pair, HostilePeer() as slow:
            await slow.connect(pair.alice)
            slow.hello("bulk")
            peer = slow.key.peer_id
            machine: Any = pair.alice._driver.protocol
            reads = await pair.bob.subscribe("bulk")
            await until(lambda: len(machine.topics.get("bulk", ())) == 2, "both subscribe")
            slow.gives_window = False
            published = received = 0

            async def read() -> None:
                nonlocal received
                async for _ in reads:
                    received += 1

            async def trickle() -> None:
                """Let a kibibyte through now and then, so that the queue always moves."""
                session = slow.session
                while not slow.closed:
                    for stream_id, stream in list(session._streams.items()):
                        if stream.unconsumed > 1024:
                            stream.unconsumed -= 1024
                            session._unconsumed -= 1024
                            stream.credit += 1024
                            slow.frames(FLOODS.yamux(1, 0, stream_id, 1024))
                    await asyncio.sleep(0.1)

            async def publish() -> None:
                nonlocal published
                while True:
                    await pair.alice.publish("bulk", bytes(16 * 1024))
                    published += 1

            tasks = [asyncio.ensure_future(each()) for each in (read, trickle, publish)]
            await until(lambda: SLOW_PEER in pair.alice.refusals, "it is found slow")
            before = published
            await until(lambda: received > before + 100, "publishing goes on")
            await until(lambda: STUCK_PEER in pair.alice.refusals, "it is given up")
            await until(lambda: bytes(peer) not in pair.alice._swarm.connections, "it is gone")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(story)


def test_a_socket_that_is_gone_when_it_is_to_be_closed_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ENOTCONN when our half is closed: everything is cleaned up, and the peer dialled again."""

    async def story() -> None:
        async with Node(None, members=False) as alice, Node(None) as bob:
            await alice.connect(bob.tickets[0])
            connection = alice._swarm.connections[bob.id]
            transport: Any = connection._transport

            def not_connected() -> None:
                raise OSError(107, "Transport endpoint is not connected")

            monkeypatch.setattr(transport, "write_eof", not_connected, raising=False)
            connection.close("test")
            await until(lambda: connection not in alice._swarm._all, "its place is free")
            await until(
                lambda: alice._swarm.connections.get(bob.id) not in (None, connection),
                "the kept peer is dialled again",
            )

    run(story)


def test_a_message_of_many_small_frames_does_not_end_with_the_stream() -> None:
    """Whatever a peer sent before it went is handled, however many turns that takes."""

    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as quick:
            events = await alice.subscribe("news")
            await quick.connect(alice)
            stream = quick.hello("news")
            await until(lambda: any(each.protocol for each in alice.peers), "it is a peer")
            for number in range(300):
                said = FLOODS.rpcs(FLOODS.Rpc(publish=(quick.message("news", b"x", number),)))
                quick.session.send(stream, said)
            quick.session.end(stream)
            quick.flush()
            # To close while there is something to be read would be a reset, which ends it at once.
            quick._writer.write_eof()
            assert len(await take(events, 300)) == 300

    run(story)


def test_windows_open_whichever_turn_used_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every frame has a turn of its own, so most are handled long after they were read."""
    monkeypatch.setattr(turns, "TURN", -1.0)

    async def story() -> None:
        async with Node(None) as alice, Node(None) as bob:
            events = await bob.subscribe("news")
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news")
            data = [b"%d" % number + bytes(10_000) for number in range(300)]
            await alice.publish_many("news", data)
            assert await take(events, 300) == data

    run(story)


class Turnstile:
    """Counts the turns of a connection of Alice's."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection = connection
        self.count = 0
        monkeypatch.setattr(connection, "_take_turn", self._pass)

    def _pass(self) -> None:
        self.count += 1
        Connection._take_turn(self.connection)


def test_turns_are_short_and_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one connection has before it does not keep another waiting for more than a turn."""

    async def story() -> None:
        async with honest_pair() as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            peer, connections = bytes(mallory.key.peer_id), pair.alice._swarm.connections
            await until(lambda: peer in connections, "it is connected")
            turnstile = Turnstile(connections[peer], monkeypatch)
            mallory.frames(FLOODS.yamux(0, 0, 1, 0) * 9_000)
            await until(lambda: turnstile.count > 3, "it takes several turns")
            await pair.more()

    run(story)


def test_a_turn_is_over_when_its_peer_is_found_to_misbehave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two that send as many RPCs, the one that sends empty ones has to wait after each."""
    monkeypatch.setattr(turns, "TURN", 1e9)
    monkeypatch.setattr(turns, "LONG_TURN", 1e9)
    monkeypatch.setattr(turns, "SHORT_TURN", -1.0)

    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as good, HostilePeer() as bad:
            events = await alice.subscribe("news")

            async def turns_of(peer: HostilePeer, said: bytes) -> Turnstile:
                await peer.connect(alice)
                stream, known = peer.hello("news"), bytes(peer.key.peer_id)
                view = alice._driver.machine.view
                await until(lambda: known in view().peers.get("news", ()), "it is a peer")
                turnstile = Turnstile(alice._swarm.connections[known], monkeypatch)
                peer.session.send(stream, said)
                peer.flush()
                return turnstile

            said = [FLOODS.Rpc(publish=(good.message("news", b"x", n),)) for n in range(100)]
            well = await turns_of(good, FLOODS.rpcs(*said))
            await take(events, 100)
            assert well.count < 20
            badly = await turns_of(bad, b"\0" * 100)
            await until(lambda: badly.count > 80, "there is a turn for nearly each")

    run(story)


def test_those_that_are_behind_share_one_turn_of_the_loop() -> None:
    """Whoever lines up works on when all before it have, one each time the loop comes round."""

    async def story() -> None:
        line, rounds = turns.Turns(), []
        loop = asyncio.get_running_loop()
        left = {"a": 2, "b": 1, "c": 3}

        def take_turn(name: str) -> None:
            rounds.append(name)
            left[name] -= 1
            if left[name]:
                line.line_up(lambda: take_turn(name), fruitful=False)

        def come_round() -> None:
            rounds.append("|")
            if any(left.values()):
                loop.call_soon(come_round)

        for name in left:
            line.line_up(lambda name=name: take_turn(name), fruitful=False)
        loop.call_soon(come_round)
        await until(lambda: not any(left.values()), "all are done")
        assert "".join(rounds).strip("|") == "a|b|c|a|c|c"

    run(story)


def test_streams_that_are_opened_to_be_reset_are_held_against_a_peer() -> None:
    async def story() -> None:
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            for chunk in FLOODS.YAMUX_FLOODS["yamux SYN and RST"]():
                if mallory.closed or "cut-off-unused-streams" in pair.alice.refusals:
                    break
                mallory.frames(chunk)
                await mallory.drain()
                await pair.more(1)
            assert pair.alice.refusals["cut-off-unused-streams"] == 1

    run(story)


def test_who_is_behind_and_brings_nothing_new_has_ever_shorter_turns() -> None:
    """Down to a bound, with which newcomers begin; who has caught up has longer ones step by step,
    and who brings what is new has a whole one at once."""
    turn = turns.Turn()

    def lengths(count: int, *, behind: bool) -> list[float]:
        found = []
        for _ in range(count):
            turn.begin(100.0, behind=behind)
            found.append(turn.ends - 100.0)
        return found

    assert lengths(2, behind=True) == pytest.approx([0.001, 0.001])
    assert lengths(4, behind=False) == pytest.approx([0.002, 0.004, 0.008, 0.008])
    assert lengths(5, behind=True) == pytest.approx([0.004, 0.002, 0.001, 0.001, 0.001])
    turn.extend()
    assert lengths(2, behind=True) == pytest.approx([turns.TURN, turns.TURN / 2])


@pytest.mark.parametrize("fruitful", [False, True])
def test_those_that_bring_nothing_new_make_room_for_the_log(
    fruitful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is at work in its thread, the line rests so often before each turn, and no more
    often; who brings what is new does not wait, because the log is at work for him."""
    monkeypatch.setattr(turns, "REST", 0.01)

    async def story() -> None:
        line, asked = turns.Turns(), 0
        done = asyncio.Event()

        def log_is_at_work() -> bool:
            nonlocal asked
            asked += 1
            return True

        line.others_work = log_is_at_work
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for last in (False, True):
            line.line_up(done.set if last else int, fruitful=fruitful)
        await done.wait()
        rested = loop.time() - begun
        if fruitful:
            assert asked == 0
        else:
            assert asked == 2 * turns.RESTS
            assert rested > 2 * turns.RESTS * 0.009

    run(story)


def test_no_commit_is_put_off_for_those_that_bring_nothing_new() -> None:
    """A burst of events is worth waiting for, junk is not."""

    async def story() -> None:
        async with Node(None) as node:
            line, more_comes = node._swarm.turns, node._journal.more_comes
            line.line_up(int, fruitful=False)
            assert not more_comes()
            line.line_up(int, fruitful=True)
            assert more_comes()
            await until(lambda: not more_comes(), "both have had their turn")

    run(story)


def test_nobody_rests_when_the_log_does() -> None:
    """The line asks before each turn whether the log is at work, and goes on if it is not."""

    async def story() -> None:
        line, done = turns.Turns(), asyncio.Event()
        at_work = iter([True, False])
        line.others_work = lambda: next(at_work)
        line.line_up(done.set, fruitful=False)
        await done.wait()
        assert list(at_work) == []

    run(story)


class CountedTurn(turns.Turn):
    """A turn that counts how many before it were fruitful: between two reads that a test waits for
    there may be others."""

    __slots__ = ("fruits",)

    def __init__(self) -> None:
        super().__init__()
        self.fruits = 0

    def begin(self, now: float, *, behind: bool) -> None:
        self.fruits += self.fruitful
        super().begin(now, behind=behind)


def test_new_events_make_a_turn_fruitful_and_duplicates_do_not() -> None:
    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as bob:
            events = await alice.subscribe("news")
            await bob.connect(alice)
            stream, known = bob.hello("news"), bytes(bob.key.peer_id)
            view = alice._driver.machine.view
            await until(lambda: known in view().peers.get("news", ()), "it is a peer")
            turn = alice._swarm.connections[known].turn = CountedTurn()
            said = FLOODS.rpcs(FLOODS.Rpc(publish=(bob.message("news", b"x", 1),)))
            bob.session.send(stream, said)
            bob.flush()
            assert await take(events, 1) == [b"x"]
            assert turn.fruits + turn.fruitful == 1
            bob.session.send(stream, said)
            bob.flush()
            channel = alice._driver.channels[bob.key.peer_id]
            await until(lambda: channel.duplicates == 1, "it is known")
            assert turn.fruits + turn.fruitful == 1

    run(story)


def test_strangers_wait_for_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many begin a handshake at once, the loop sees to one step of one each time round."""
    rounds: list[int] = [0]

    def take_turn(connection: Connection) -> None:
        rounds[-1] += not connection.ready
        taken(connection)

    taken = Connection._take_turn
    monkeypatch.setattr(Connection, "_take_turn", take_turn)

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def come_round() -> None:
            rounds.append(0)
            loop.call_soon(come_round)

        async with Node(None) as alice:
            strangers = [await HostilePeer().call(alice) for _ in range(20)]
            loop.call_soon(come_round)
            await asyncio.gather(*[each.shake_hands() for each in strangers])
            for each in strangers:
                await each.hang_up()

    run(story)
    assert sum(rounds) >= 40, "two messages of each"
    assert max(rounds) == 1


def test_who_is_cut_off_is_not_read_from_any_more() -> None:
    """Its connection is gone, though it goes on sending and does not close its side."""

    async def story() -> None:
        config = NodeConfig(close_timeout=1000.0)
        async with Node(None, config=config) as alice, HostilePeer() as mallory:
            await mallory.connect(alice, reads=False)
            mallory.frames(FLOODS.yamux(2, 1, 0, 7) * 20_000)
            await until(lambda: "cut-off-useless-frames" in alice.refusals, "it is cut off")
            await until(lambda: not alice._swarm._all, "its connection is gone")

    run(story)


def test_who_says_one_thing_again_and_again_is_cut_off_sooner_than_who_is_late() -> None:
    """What others had brought before is nobody's fault, a few times; then it is a refusal."""

    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as mallory, HostilePeer() as late:
            events = await alice.subscribe("news")
            view = alice._driver.machine.view
            said = [FLOODS.Rpc(publish=(mallory.message("news", b"x", n),)) for n in range(1200)]

            async def say(peer: HostilePeer, rpcs: list[Any]) -> None:
                await peer.connect(alice)
                stream, known = peer.hello("news"), bytes(peer.key.peer_id)
                await until(lambda: known in view().peers.get("news", ()), "it is a peer")
                peer.session.send(stream, FLOODS.rpcs(*rpcs))
                peer.flush()

            await say(mallory, said)
            await take(events, 1200)
            await say(late, said)
            channel = alice._driver.channels[late.key.peer_id]
            await until(lambda: channel.duplicates == 1200, "all of it is known")
            assert not any(reason.startswith("cut-off") for reason in alice.refusals)
            stream = mallory.open(MESHSUB)
            mallory.session.send(stream, FLOODS.rpcs(said[0]) * 1200)
            mallory.flush()
            await until(lambda: "cut-off-repetitions" in alice.refusals, "it is cut off")

    run(story)


def test_a_group_that_is_kept_out_is_not_dialled_either() -> None:
    """Four of its peers were cut off: neither a fifth nor anybody else there is called."""

    async def story() -> None:
        async with Node(None, members=False) as alice:
            swarm, now = alice._swarm, asyncio.get_running_loop().time()
            for number in range(4):
                swarm._bans.ban(secrets.token_bytes(38), origin_of(f"192.0.2.{number}"), now)
            fifth = PrivateKey(secrets.token_bytes(32)).peer_id
            with pytest.raises(LocalError, match="was cut off, and is not dialled"):
                await alice.connect(f"/ip4/192.0.2.9/tcp/4001/p2p/{fifth}", keep=False)

    run(story)
