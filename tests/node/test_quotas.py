"""What peers may have a node hold for them: bytes in its log, bytes in its queues, questions."""

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest
from hostile_peer import MESHSUB, HostilePeer
from parlour import MAX_MESSAGE, PARLOUR, QUERY, ask, guest, tell_where

from live_nodes import HonestPair, honest_pair, run, take, until
from rumormill.core.errors import LocalError
from rumormill.core.inputs import Answered, Asked
from rumormill.libp2p import turns
from rumormill.libp2p.circuit import HOP, Hop, HopMessage
from rumormill.libp2p.dialogue import Dialogue
from rumormill.node import intake, serving
from rumormill.node.config import NodeConfig
from rumormill.node.intake import StorageQuota
from rumormill.node.node import Node
from rumormill.node.readers import QUEUES_FULL
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.messages import Rpc
from rumormill.wire.frames import frame

KIB = 1 << 10
MIB = 1 << 20
DATA = 32 * KIB


def test_an_account_is_used_up_and_comes_back() -> None:
    quota = StorageQuota(at_once=1000, per_second=100)
    assert not quota.charge(b"a", "x", 444, now=0.0), "an event costs 256 bytes beside its data"
    assert not quota.charge(b"a", "y", 44, now=0.0)
    assert quota.pause(b"a", now=0.0) == 0.0
    assert not quota.charge(b"a", "z", 44, now=0.0)
    assert quota.pause(b"a", now=0.0) == 3.0
    assert quota.pause(b"b", now=0.0) == 0.0, "each peer has its own"
    assert quota.pause(b"a", now=3.0) == 0.0
    assert not quota.charge(b"a", "x", 444, now=1e6)
    assert not quota.charge(b"a", "y", 244, now=1e6), "never more than at once"
    assert quota.pause(b"a", now=1e6) == 2.0
    assert quota.charge(b"a", "y", 1000, now=1e6), "who goes on has not waited"


def test_one_topic_does_not_take_all_of_a_peers_account() -> None:
    """Three quarters of it, at once and per second."""
    quota = StorageQuota(at_once=1000, per_second=100)
    assert not quota.charge(b"a", "x", 644, now=0.0)
    assert quota.pause(b"a", now=0.0) == 2.0, "150 bytes over 750, 75 a second"
    other = StorageQuota(at_once=1000, per_second=100)
    assert not other.charge(b"a", "x", 388, now=0.0)
    assert not other.charge(b"a", "y", 100, now=0.0)
    assert other.pause(b"a", now=0.0) == 0.0, "the same bytes in two topics are within it"


def test_accounts_of_many_peers_and_topics_are_bounded() -> None:
    quota = StorageQuota(at_once=1, per_second=1)
    for number in range(5000):
        quota.charge(b"%d" % number, "x", 0, now=0.0)
    assert len(quota._accounts) == len(quota._until) == 4096


async def pushing(mallory: HostilePeer, pair: HonestPair) -> int:
    """Connect, and be a peer of the honest topic; return the stream."""
    await pair.alice.subscribe("bulk")
    await mallory.connect(pair.alice)
    stream = mallory.hello("bulk")
    await until(lambda: len([p for p in pair.alice.peers if p.protocol]) == 2, "it is a peer")
    return stream


def rpcs(mallory: HostilePeer, first: int, count: int) -> bytes:
    """Messages that are as they should be."""
    return b"".join(
        frame(encode_rpc(Rpc(publish=(mallory.message("bulk", bytes(DATA), number),))))
        for number in range(first, first + count)
    )


async def push(mallory: HostilePeer, stream: int, data: bytes) -> None:
    """Send all of it, as the node takes it."""
    while data and not mallory.closed and stream in mallory.session._streams:
        data = data[mallory.session.send(stream, data) :]
        mallory.flush()
        await mallory.drain()
        await asyncio.sleep(0.002)


def test_a_peer_over_its_quota_is_not_read_from_and_nobody_else_is_held() -> None:
    """It has stored what it may at once, and what was on its way; the rest stays with it."""

    async def story() -> None:
        config = NodeConfig(stored_bytes_at_once=MIB, stored_bytes_per_second=1)
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            stream = await pushing(mallory, pair)
            pushed = asyncio.ensure_future(push(mallory, stream, rpcs(mallory, 0, 128)))
            await until(lambda: "storage-quota" in pair.alice.refusals, "it is over its quota")
            await pair.more(50)
            stored = pair.alice.log.topic("bulk")
            assert stored is not None
            window = mallory.session.config.receive_window
            assert MIB // (2 * DATA) < stored.next_offset < (MIB + 2 * window) // DATA
            assert pair.alice.refusals["storage-quota"] == 1
            assert not pushed.done()
            pushed.cancel()

    run(story)


def test_nothing_is_lost_of_a_burst_over_the_quota() -> None:
    async def story() -> None:
        config = NodeConfig(stored_bytes_at_once=128 * KIB, stored_bytes_per_second=512 * KIB)
        async with Node(None, config=config) as alice, Node(None) as carol:
            events = await alice.subscribe("bulk")
            await carol.connect(alice.tickets[0])
            await carol.wait_until_ready("bulk")
            for number in range(32):
                await carol.publish("bulk", (b"%d" % number).ljust(DATA))
            assert [int(each) for each in await take(events, 32)] == [*range(32)]
            assert alice.refusals["storage-quota"] >= 1

    run(story)


def test_who_goes_around_its_quota_is_cut_off() -> None:
    """A new stream has a new window: what comes by it is held against the peer."""

    async def story() -> None:
        config = NodeConfig(
            stored_bytes_at_once=512 * KIB, stored_bytes_per_second=1, close_timeout=0.2
        )
        async with honest_pair(config) as pair, HostilePeer() as mallory:
            await pushing(mallory, pair)
            number = 0
            with contextlib.suppress(LocalError):  # the node hangs up
                while not mallory.closed:
                    await push(mallory, mallory.open(MESHSUB), rpcs(mallory, number, 6))
                    number += 6
            assert pair.alice.refusals["cut-off-storage-quota"] == 1

    run(story)


# What waits for peers.


def waiting(node: Node) -> int:
    """Bytes that wait for all peers, wherever they wait."""
    driver: Any = node._driver
    return sum(driver._unsent().values())


def test_peers_that_subscribe_and_do_not_read_stay_within_the_cap() -> None:
    """Two dozen of them; what is beyond the cap is taken from whoever has most."""

    async def story() -> None:
        cap = 4 * MIB
        config = NodeConfig(
            queue_bytes=MIB, queue_bytes_total=cap, trace_interval=0.1, close_timeout=0.2
        )
        async with honest_pair(config) as pair:
            alice, driver = pair.alice, pair.alice._driver
            deaf = []
            for _ in range(24):
                peer = HostilePeer()
                deaf.append(await peer.connect(alice))
                peer.hello("bulk")
            await until(lambda: alice.subscribers("bulk") == 24, "all subscribe")
            for peer in deaf:
                peer.gives_window = False
            for _ in range(400):
                await alice.publish("bulk", bytes(16 * KIB))
                assert driver.queued_bytes <= cap
            await until(lambda: waiting(alice) <= cap, "all of it is within the cap")
            assert alice.refusals[QUEUES_FULL] >= 1
            for peer in deaf:
                await peer.hang_up()

    run(story)


def test_answers_that_nobody_reads_stay_within_the_cap() -> None:
    """Many streams of many peers, each with an answer before it; an honest peer is answered."""

    async def story() -> None:
        cap = 2 * MIB
        config = NodeConfig(queue_bytes_total=cap, trace_interval=0.1, close_timeout=0.2)
        async with Node(None, protocol=PARLOUR, config=config) as ann:
            driver: Any = ann._driver
            question = frame(b"echo".ljust(MAX_MESSAGE, b"."))
            deaf = []
            for _ in range(3):
                peer = HostilePeer()
                deaf.append(await peer.connect(ann))
                peer.gives_window = False
                with contextlib.suppress(LocalError):  # the node hangs up
                    for _ in range(12):
                        await push(peer, peer.open(QUERY), question * 6)
                        assert driver.queued_bytes <= cap
            await until(lambda: QUEUES_FULL in ann.refusals, "one of them was given up")
            await until(lambda: waiting(ann) <= cap, "all of it is within the cap")
            async with Node(None, protocol=PARLOUR) as bob:
                tell_where(bob, ann)
                ask(bob, ann.id, b"echo one")
                await until(lambda: guest(bob).heard(Answered), "bob is answered")
            for peer in deaf:
                await peer.hang_up()
            await until(lambda: driver.queued_bytes == 0, "nothing of theirs is left")
            assert driver.queries.serving.unsent == {}

    run(story)


def test_questions_that_come_in_part_stay_within_the_cap() -> None:
    """Many streams of many peers, each with all of a long question but its end."""

    async def story() -> None:
        each, cap = 2 * MAX_MESSAGE, 5 * MAX_MESSAGE
        config = NodeConfig(queue_bytes=each, queue_bytes_total=cap, trace_interval=0.1)
        async with Node(None, protocol=PARLOUR, config=config) as ann:
            driver: Any = ann._driver
            slow = []
            for number in range(4):
                peer = HostilePeer()
                slow.append(await peer.connect(ann))
                for _ in range(12):
                    with contextlib.suppress(LocalError):  # the node resets it, or hangs up
                        await push(peer, peer.open(QUERY), frame(b"echo".ljust(MAX_MESSAGE))[:-1])
                    assert max(driver.queries.serving.unsent.values(), default=0) <= each
                    assert driver.queued_bytes <= cap
                assert ann.refusals["unfinished-questions"] > number
            async with Node(None, protocol=PARLOUR) as bob:
                tell_where(bob, ann)
                ask(bob, ann.id, b"echo one")
                await until(lambda: guest(bob).heard(Answered), "bob is answered")
            for peer in slow:
                await peer.hang_up()
            await until(lambda: driver.queued_bytes == 0, "nothing of theirs is left")
            assert driver.queries.serving.unsent == {}

    run(story)


def test_what_is_said_behind_the_end_of_a_talk_is_not_kept() -> None:
    """A peer asks a relay for places, and says ever so much more on streams that it leaves open."""

    async def story() -> None:
        async with Node(None, be_relay=True) as ann, HostilePeer() as peer:
            await peer.connect(ann)
            for _ in range(20):
                stream = peer.open(HOP, frame(HopMessage(Hop.RESERVE).encode()))
                await until(lambda s=stream: peer.heard.get(s), "it was answered")
                await push(peer, stream, bytes(DATA))
            swarm: Any = ann._swarm
            (connection,) = swarm.connections.values()
            await until(lambda: connection.session._unconsumed >= 20 * DATA, "all of it has come")
            talks = [each.handler for each in connection._streams.values()]
            talks = [each for each in talks if isinstance(each, Dialogue)]
            assert len(talks) == 20
            assert not any(each._came for each in talks)

    run(story)


def test_rpcs_that_come_in_part_stay_within_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many peers with all of a long RPC but its end; who finishes his own is felt by nobody."""
    cap = 3 << 20
    monkeypatch.setattr(intake, "UNFINISHED_BYTES", cap)

    async def story() -> None:
        size = 900_000
        part = frame(bytes(size))[:-1]
        async with honest_pair() as pair:
            held: Any = pair.alice._driver.intake
            slow = []
            for number in range(6):
                peer = HostilePeer()
                slow.append(await peer.connect(pair.alice))
                await push(peer, peer.open(MESHSUB), part)
                least = min(number + 1, 3) * (size - 1)
                await until(lambda least=least: held.unfinished >= least, "it has come")
                assert held.unfinished <= cap
            assert pair.alice.refusals["unfinished-rpcs"] == 3, "those that began first"
            await pair.more()
            for peer in slow:
                await peer.hang_up()
            await until(lambda: held.unfinished == 0, "nothing of theirs is left")
            assert not held._parts

    run(story)


# Questions in flight.


def test_one_peers_questions_are_bounded() -> None:
    """Over its own limit its stream is reset, and that is held against it."""

    async def story() -> None:
        config = NodeConfig(questions_served_per_peer=20)
        async with Node(None, protocol=PARLOUR, config=config) as ann, HostilePeer() as peer:
            await peer.connect(ann)
            for _ in range(2):
                peer.open(QUERY, frame(b"late") * 16)
            await until(lambda: ann.refusals.get("too-many-questions"), "it was counted")
            driver: Any = ann._driver
            assert len(driver.queries.serving._asked) <= 20

    run(story)


@pytest.mark.parametrize("after", [5, 16])
def test_what_waits_for_a_turn_goes_with_its_stream(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The stream of who has most is given up while others have their turn: its questions are put no
    more, and nothing of the one that has come in part is counted for ever."""
    for length in ("TURN", "LONG_TURN", "LEAST_TURN"):
        monkeypatch.setattr(turns, length, -1.0)

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as ann, HostilePeer() as peer:
            await peer.connect(ann)
            part = frame(b"echo".ljust(DATA))[: DATA // 2]
            peer.open(QUERY, frame(b"echo") * 16 + part)
            asked = partial(guest(ann).heard, Asked)
            while len(asked()) < after:  # noqa: ASYNC110
                await asyncio.sleep(0)
            swarm: Any = ann._swarm
            (connection,) = swarm.connections.values()
            assert connection._late is not None, "it waits for its next turn"
            connection._late.reset()
            for _ in range(100):
                await asyncio.sleep(0)
            assert connection._late is None
            assert len(asked()) == after
            driver: Any = ann._driver
            assert (driver.queued_bytes, driver.queries.serving.unsent) == (0, {})

    run(story)


def test_when_there_are_too_many_questions_whoever_has_most_loses_one() -> None:
    """An honest peer asks among those who ask without end, and is answered later."""

    async def story() -> None:
        config = NodeConfig(questions_served=24, questions_served_per_peer=16)
        async with Node(None, protocol=PARLOUR, config=config) as ann, HostilePeer() as mallory:
            await mallory.connect(ann)
            async with Node(None, protocol=PARLOUR) as bob, HostilePeer() as other:
                tell_where(bob, ann)
                ask(bob, ann.id, b"late bob")
                await until(lambda: len(guest(ann).heard(Asked)) == 1, "bob has asked")
                await other.connect(ann)
                for peer in (mallory, other):
                    for _ in range(4):
                        peer.open(QUERY, frame(b"late") * 4)
                await until(lambda: ann.refusals.get("too-many-questions"), "there are too many")
                driver: Any = ann._driver
                assert driver.queries.serving._askers[bob.id], (
                    "bob's question is not among those that go"
                )

    run(story)


def test_questions_are_not_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks more than anybody needs to, and is answered each time, is cut off all the same."""
    monkeypatch.setattr(serving, "_PRICE", 40.0)  # a flood is 25 then, and not 20,000

    async def story() -> None:
        config = NodeConfig(close_timeout=0.2)
        async with Node(None, protocol=PARLOUR, config=config) as ann, HostilePeer() as peer:
            await peer.connect(ann)
            stream = peer.open(QUERY)
            for _ in range(30):
                with contextlib.suppress(LocalError):  # the node hangs up
                    peer.say(stream, frame(b"echo"))
            await until(lambda: peer.closed, "it is cut off")
            assert ann.refusals["cut-off-questions"] == 1

    run(story)
