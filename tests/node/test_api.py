"""The public API of a node: what each call promises."""

import asyncio
import inspect
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rumormill
from live_nodes import pair, run, take, take_events, until
from rumormill import (
    Durability,
    LocalError,
    Node,
    Overflow,
    Receipt,
    RumormillError,
    StoreConfig,
    Verdict,
)
from rumormill.core import trace
from rumormill.core.event import Event as JudgedEvent
from rumormill.core.ids import PeerId
from rumormill.log.errors import OffsetAheadError
from trace_log import TraceLog

ROOT = Path(__file__).resolve().parents[2]


# Life.


def test_a_node_runs_inside_its_context_and_not_outside(tmp_path: Path) -> None:
    """Calls before and after the context raise one sentence; a second start does too."""

    async def main() -> None:
        node = Node(tmp_path)
        with pytest.raises(LocalError, match="not running"):
            await node.publish("news", b"early")
        async with node:
            await node.publish("news", b"in time")
            with pytest.raises(LocalError, match="running already"):
                await node.start()
        with pytest.raises(LocalError, match="not running"):
            await node.publish("news", b"late")
        await node.close()

    run(main)


def test_the_same_home_keeps_identity_and_continues_offsets(tmp_path: Path) -> None:
    """A node that is started again is the same peer, and its topics go on where they stopped."""

    async def main() -> None:
        async with Node(tmp_path) as first:
            who = first.id
            receipts = [await first.publish("news", b"%d" % number) for number in range(3)]
        async with Node(tmp_path) as again:
            assert again.id == who
            receipts.append(await again.publish("news", b"3"))
            history = await again.history("news")
        assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3]
        assert [event.data for event in history] == [b"0", b"1", b"2", b"3"]
        assert len({event.id for event in history}) == 4
        assert all(event.author == who for event in history)

    run(main)


def test_without_a_home_every_start_is_a_new_peer_with_an_empty_log() -> None:
    """`home=None` keeps nothing, and receipts do not claim to be durable."""

    async def main() -> None:
        ids = []
        for _ in range(2):
            async with Node(None) as node:
                ids.append(node.id)
                receipt = await node.publish("news", b"gone tomorrow")
                assert (receipt.offset, receipt.durable_at) == (0, None)
        assert ids[0] != ids[1]

    run(main)


def test_two_nodes_cannot_share_a_home(tmp_path: Path) -> None:
    """The second one is told so, and the first is not disturbed."""

    async def main() -> None:
        async with Node(tmp_path) as first:
            with pytest.raises(RumormillError, match=r"another process|already") as refused:
                await Node(tmp_path).start()
            assert str(tmp_path) in str(refused.value)
            await first.publish("news", b"still here")

    run(main)


def test_the_key_file_is_private_and_a_public_one_is_refused(tmp_path: Path) -> None:
    """Only its owner may read the key; a file that others can read is no identity."""
    key = tmp_path / "identity.key"

    async def main() -> None:
        async with Node(tmp_path):
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
        key.chmod(0o644)
        with pytest.raises(LocalError, match="chmod 600"):
            await Node(tmp_path).start()

    run(main)


@pytest.mark.parametrize(("mode", "on_disk"), [("fsync", True), ("os", False)])
def test_durability_modes(tmp_path: Path, mode: str, on_disk: bool) -> None:
    """A receipt says since when the event is on disk, in the one mode that waits for it."""

    async def main() -> None:
        before = time.time()
        async with Node(tmp_path, durability=mode) as node:
            receipt = await node.publish("news", b"kept")
        if on_disk:
            assert receipt.durable_at is not None
            assert before <= receipt.durable_at <= time.time()
        else:
            assert receipt.durable_at is None
        async with Node(tmp_path, durability=Durability(mode)) as node:
            assert [event.data for event in await node.history("news")] == [b"kept"]

    run(main)


def test_impossible_durabilities_are_refused(tmp_path: Path) -> None:
    """An unknown mode is named with the choices; memory and a directory exclude each other."""
    with pytest.raises(LocalError, match="'forever' is not one of fsync, os, memory"):
        Node(tmp_path, durability="forever")
    with pytest.raises(LocalError, match="durability must be memory"):
        run(Node(None, durability="fsync").start)
    with pytest.raises(LocalError, match="durability must be memory"):
        run(Node(tmp_path, durability="memory").start)


@pytest.mark.parametrize("address", ["127.0.0.1:4001", "/ip4/127.0.0.1", "/ip4/1.2.3/tcp/1"])
def test_a_wrong_listen_address_is_one_sentence(address: str) -> None:
    """The sentence holds the address."""
    with pytest.raises(LocalError) as refused:
        run(Node(None, listen=address).start)
    assert repr(address) in str(refused.value)


def test_a_taken_port_is_one_sentence_and_leaves_the_home_free(tmp_path: Path) -> None:
    """A start that fails lets go of everything it had opened."""

    async def main() -> None:
        async with Node(None) as other:
            taken = other.tickets[0].partition("/p2p/")[0]
            with pytest.raises(LocalError, match="cannot listen on"):
                await Node(tmp_path, listen=taken).start()
        async with Node(tmp_path) as node:
            await node.publish("news", b"the home is free")

    run(main)


@pytest.mark.parametrize("ticket", ["", "nonsense", "/ip4/127.0.0.1/tcp/4001"])
def test_a_wrong_ticket_is_one_sentence(ticket: str) -> None:
    """Neither garbage nor an address without a peer can be joined."""

    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError):
                await node.connect(ticket)

    run(main)


# Publishing.


def test_a_receipt_tells_where_the_event_is_and_how_far_it_went(tmp_path: Path) -> None:
    """Id, dense offset, time on disk, and the peers it was sent to."""

    async def main() -> None:
        async with pair(home=tmp_path) as (alice, bob), await bob.subscribe("news") as events:
            receipts = await asyncio.gather(
                *(alice.publish("news", b"%d" % number) for number in range(50))
            )
            received = await take_events(events, 50)
        assert [receipt.offset for receipt in receipts] == list(range(50))
        assert all(receipt.peers == 1 and not receipt.note for receipt in receipts)
        assert all(receipt.durable_at is not None for receipt in receipts)
        assert [event.id for event in received] == [receipt.id for receipt in receipts]
        assert [event.offset for event in received] == list(range(50))
        assert {event.author for event in received} == {alice.id}

    run(main)


def test_offsets_are_dense_in_each_topic_by_itself() -> None:
    """Another topic's events leave no holes."""

    async def main() -> None:
        async with Node(None) as node:
            receipts = [await node.publish(name, b"") for name in ("a", "b", "a", "b", "a")]
        assert [(each.topic, each.offset) for each in receipts] == [
            ("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2),
        ]  # fmt: skip

    run(main)


def test_publishing_where_nobody_listens_is_neither_an_error_nor_silent() -> None:
    """The receipt says 0 and why; the event is in the log."""

    async def main() -> None:
        async with Node(None) as node:
            receipt = await node.publish("void", b"anybody?")
            assert isinstance(receipt, Receipt)
            assert (receipt.peers, receipt.offset) == (0, 0)
            assert "no connected peer subscribes" in receipt.note
            assert [event.data for event in await node.history("void")] == [b"anybody?"]

    run(main)


@pytest.mark.parametrize("topic", ["", "a\0b", "x" * 2000, "\ud800"])
def test_an_impossible_topic_name_is_refused_and_the_node_lives(topic: str) -> None:
    """Publishing, subscribing, creating and naming all refuse it; the next call works."""

    async def main() -> None:
        async with Node(None) as node:
            for call in (node.subscribe, node.create_topic, node.history):
                with pytest.raises(LocalError):
                    await call(topic)
            with pytest.raises(LocalError):
                await node.publish(topic, b"")
            with pytest.raises(LocalError):
                node.topic(topic)
            assert (await node.publish("good", b"")).offset == 0

    run(main)


def test_data_that_does_not_fit_is_refused_and_the_node_lives() -> None:
    """The limit is in the sentence."""

    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError, match="do not fit"):
                await node.publish("news", bytes(2**22))
            assert (await node.publish("news", b"")).offset == 0

    run(main)


def test_a_burst_under_back_pressure_loses_nothing() -> None:
    """Publishers wait for a peer that is slower than they are."""

    async def main() -> None:
        async with pair() as (alice, bob), await bob.subscribe("news", buffer=10) as events:
            sending = asyncio.gather(*(alice.publish("news", b"%d" % n) for n in range(1000)))
            received = await take(events, 1000)
            await sending
            assert received == [b"%d" % n for n in range(1000)]
            assert events.dropped == 0

    run(main)


# Subscribing.


def test_a_subscription_gets_what_comes_after_it() -> None:
    """Events of before are history, and a subscriber hears its own node's events too."""

    async def main() -> None:
        async with Node(None) as node:
            await node.publish("news", b"before")
            async with await node.subscribe("news") as events:
                await node.publish("news", b"after")
                event = await anext(events)
        assert (event.data, event.offset, event.author) == (b"after", 1, node.id)

    run(main)


def test_a_subscription_ends_with_its_context_and_with_its_node() -> None:
    """What has arrived can be read to the end, then the iteration stops."""

    async def main() -> None:
        async with Node(None) as node:
            async with await node.subscribe("news") as events:
                await node.publish("news", b"1")
            assert [event.data async for event in events] == [b"1"]
            more = await node.subscribe("news")
            waiting = asyncio.ensure_future(anext(more))
            await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await waiting

    run(main)


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [
        (Overflow.CATCH_UP, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("drop-oldest", [7, 8, 9]),
        ("drop-newest", [0, 1, 2]),
    ],
)
def test_a_full_buffer_does_what_was_chosen(overflow: Overflow | str, kept: list[int]) -> None:
    """Catch up from the log, or drop the oldest or the newest; every drop is counted and traced."""

    async def main() -> None:
        log = TraceLog()
        async with Node(None, observers=[log]) as node:
            events = await node.subscribe("news", buffer=3, overflow=overflow)
            for number in range(10):
                await node.publish("news", b"%d" % number)
            assert events.waiting == 3
            received = await take_events(events, len(kept))
            assert [event.offset for event in received] == kept
            assert events.dropped == 10 - len(kept)
            await node.publish("news", b"next")
            assert (await anext(events)).offset == 10
        assert len(log.of(trace.UndeliverableMessage)) == 10 - len(kept)

    run(main)


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [
        (Overflow.CATCH_UP, [*range(20)]),
        (Overflow.DROP_OLDEST, [*range(12, 20)]),
        (Overflow.DROP_NEWEST, [*range(8)]),
    ],
)
def test_a_buffer_is_full_of_bytes_too(overflow: Overflow, kept: list[int]) -> None:
    """Eight MiB of large events are all that waits, though 1,024 events might."""

    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("news", overflow=overflow)
            for _ in range(20):
                await node.publish("news", bytes(1_000_000))
            assert events.waiting == 8
            assert [event.offset for event in await take_events(events, len(kept))] == kept
            assert events.dropped == 20 - len(kept)
            for _ in range(8):  # what was taken takes no room any more
                await node.publish("news", bytes(1_000_000))
            assert [event.offset for event in await take_events(events, 8)] == [*range(20, 28)]
            assert events.dropped == 20 - len(kept)

    run(main)


def test_impossible_subscriptions_are_refused() -> None:
    """A buffer of nothing, an unknown policy, an offset that the log never gave."""

    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError, match="at least one event"):
                await node.subscribe("news", buffer=0)
            with pytest.raises(LocalError, match="'never' is not one of catch-up, drop-oldest"):
                await node.subscribe("news", overflow="never")
            with pytest.raises(RumormillError, match="offset 1"):
                await node.subscribe("news", since_offset=1)

    run(main)


@pytest.mark.parametrize("buffer", [1, 7, 1024])
def test_replay_joins_the_present_without_gap_or_repetition(buffer: int) -> None:
    """Events arrive all the while a subscriber replays: it sees each offset once, in order."""

    async def main() -> None:
        async with Node(None) as node:
            for number in range(40):
                await node.publish("news", b"%d" % number)
            events = await node.subscribe("news", since_offset=5, buffer=buffer)

            async def publish_more() -> None:
                for number in range(40, 140):
                    await node.publish("news", b"%d" % number)

            publishing = asyncio.ensure_future(publish_more())
            received = await take_events(events, 135)
            await publishing
            assert [event.offset for event in received] == list(range(5, 140))
            assert [event.data for event in received] == [b"%d" % n for n in range(5, 140)]
            assert (events.waiting, events.dropped) == (0, 0)

    run(main)


def test_a_batch_takes_what_is_there_and_no_more_than_asked() -> None:
    """`batch` waits for the first event only; an empty batch means the end."""

    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("news")
            await asyncio.gather(*(node.publish("news", b"%d" % n) for n in range(10)))
            sizes = [len(await events.batch(4)) for _ in range(3)]
            assert sizes == [4, 4, 2]
            events.close()
            assert await events.batch() == []

    run(main)


def test_subscribers_of_one_topic_do_not_disturb_each_other() -> None:
    """A subscriber that never reads does not slow, or take events from, another."""

    async def main() -> None:
        async with Node(None) as node:
            lazy = await node.subscribe("news", buffer=1)
            eager = await node.subscribe("news")
            for number in range(20):
                await node.publish("news", b"%d" % number)
            assert [event.offset for event in await take_events(eager, 20)] == list(range(20))
            assert [event.offset for event in await take_events(lazy, 20)] == list(range(20))

    run(main)


def test_unsubscribing_ends_subscriptions_and_tells_peers() -> None:
    """Iterations end; peers no longer count this node as a subscriber."""

    async def main() -> None:
        async with pair() as (alice, bob):
            events = await bob.subscribe("news")
            await bob.unsubscribe("news")
            assert [event async for event in events] == []
            await until(lambda: not alice.subscribers("news"), "Alice knows nobody who subscribes")
            assert (await alice.publish("news", b"nobody")).peers == 0

    run(main)


# Topics as objects.


def test_a_topic_handle_has_the_calls_of_its_node() -> None:
    """Naming joins nothing; creating joins; the rest is the node's own calls."""

    async def main() -> None:
        async with Node(None) as alice, Node(None) as bob:
            await alice.connect(bob.tickets[0])
            news = bob.topic("news")
            await alice.wait_until_ready("other", peers=0)
            assert alice.subscribers("news") == 0
            await bob.create_topic("news")
            await alice.topic("news").wait_until_ready()
            assert alice.topic("news").subscribers == 1
            async with await news.subscribe() as events:
                receipt = await alice.topic("news").publish(b"hello")
                assert (await anext(events)).id == receipt.id
            assert [event.data for event in await news.history()] == [b"hello"]
            await news.unsubscribe()
            assert repr(news) == "Topic('news')"

    run(main)


def test_a_created_topic_is_kept_while_nobody_reads() -> None:
    """Joining fills the log; a later subscriber can begin at its first event."""

    async def main() -> None:
        async with pair() as (alice, bob):
            for number in range(5):
                await alice.publish("news", b"%d" % number)
            events = await bob.subscribe("news", since_offset=0)
            assert [event.offset for event in await take_events(events, 5)] == list(range(5))

    run(main)


# History.


def test_history_by_offset_by_time_and_by_number() -> None:
    """Everything by default; parts of it by where to begin and how much to read."""

    async def main() -> None:
        async with Node(None) as node:
            assert await node.history("news") == []
            for number in range(1200):
                await node.publish("news", b"%d" % number)
            everything = await node.history("news")
            assert [event.offset for event in everything] == list(range(1200))
            middle = await node.history("news", since_offset=600, limit=10)
            assert [event.offset for event in middle] == list(range(600, 610))
            late = await node.history("news", since=everything[700].received)
            assert late == [each for each in everything if each.received >= late[0].received]
            assert late[0].offset <= 700
            assert await node.history("news", since=time.time() + 1e6) == []
            assert await node.history("news", since_offset=1200) == []
            with pytest.raises(OffsetAheadError, match="whose next offset is 1200"):
                await node.history("news", since_offset=1201)
            assert await node.history("news", limit=0) == []

    run(main)


# Waiting for peers.


def test_waiting_in_vain_says_what_is_missing() -> None:
    """The error is a sentence with the numbers, not a bare timeout."""

    async def main() -> None:
        async with pair() as (alice, _):
            with pytest.raises(LocalError) as waited:
                await alice.wait_until_ready("news", peers=2, timeout=0.01)
        assert str(waited.value) == (
            "topic 'news' has 1 of 2 wanted subscribers after 0.01 seconds; 1 peers are connected"
        )

    run(main)


def test_waiting_ends_when_the_node_closes() -> None:
    """Nobody waits for a node that is gone."""

    async def main() -> None:
        async with Node(None) as node:
            waiting = asyncio.ensure_future(node.wait_until_ready("news"))
            await asyncio.sleep(0)
        with pytest.raises(LocalError, match="not running"):
            await waiting

    run(main)


def test_peers_are_shown_with_direction_and_protocol() -> None:
    """Both sides see each other."""

    async def main() -> None:
        async with pair() as (alice, bob):
            (seen_by_alice,), (seen_by_bob,) = alice.peers, bob.peers
            assert (seen_by_alice.outbound, seen_by_bob.outbound) == (True, False)
            assert seen_by_alice.protocol.startswith("/meshsub/")
            assert bob.tickets[0].endswith(f"/p2p/{seen_by_alice.id}")

    run(main)


# Validators.


def judge_by_content(event: JudgedEvent, peer: PeerId) -> Verdict:
    """The event's data names the verdict."""
    return Verdict(event.data.decode())


async def judge_by_content_later(event: JudgedEvent, peer: PeerId) -> Verdict:
    """The same as a coroutine function."""
    await asyncio.sleep(0)
    return judge_by_content(event, peer)


class AsyncJudge:
    """The same as an object with a coroutine function for a call."""

    async def __call__(self, event: JudgedEvent, peer: PeerId) -> Verdict:
        return judge_by_content(event, peer)


@pytest.mark.parametrize("validator", [judge_by_content, judge_by_content_later, AsyncJudge()])
def test_a_validator_decides_what_is_delivered(
    validator: rumormill.node.node.TopicValidator,
) -> None:
    """Accepted events come through; ignored and rejected ones leave no trace in the log."""

    async def main() -> None:
        async with pair() as (alice, bob), await bob.subscribe("news") as events:
            bob.set_validator("news", validator)
            for verdict in (b"ignore", b"accept", b"reject", b"accept"):
                await alice.publish("news", verdict)
            received = await take_events(events, 2)
            assert [event.data for event in received] == [b"accept"] * 2
            assert [event.offset for event in received] == [0, 1]
            assert bob.callback_failures == 0

    run(main)


@pytest.mark.parametrize("validator", [judge_by_content, judge_by_content_later])
@pytest.mark.parametrize("poison", [b"no such verdict", b"defer"])
def test_a_validator_that_fails_has_rejected_and_the_node_lives(
    validator: rumormill.node.node.TopicValidator, poison: bytes
) -> None:
    """An exception or a non-verdict rejects the event, is counted, and stops nothing."""

    async def main() -> None:
        async with pair() as (alice, bob), await bob.subscribe("news") as events:
            bob.set_validator("news", validator)
            for data in (poison, b"accept", poison, b"accept"):
                await alice.publish("news", data)
            assert await take(events, 2) == [b"accept"] * 2
            await until(lambda: bob.callback_failures == 2, "two failures are counted")
            assert len(bob.peers) == 1

    run(main)


def test_a_validator_can_be_removed() -> None:
    """None lets everything through again."""

    async def main() -> None:
        async with pair() as (alice, bob), await bob.subscribe("news") as events:
            bob.set_validator("news", lambda event, peer: Verdict.REJECT)
            await alice.publish("news", b"refused")
            await alice.publish("news", b"refused")
            bob.set_validator("news", judge_by_content)
            bob.topic("news").set_validator(None)
            await alice.publish("news", b"let in")
            while (event := await anext(events)).data != b"let in":
                pass
            assert event.author == alice.id

    run(main)


# What is exported.


def test_every_exported_name_can_be_imported() -> None:
    """`__all__` tells the truth, and a wrong name gets the usual error."""
    for name in rumormill.__all__:
        assert getattr(rumormill, name) is not None
    assert inspect.isclass(rumormill.Event)
    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        rumormill.Broker  # noqa: B018


def test_importing_the_package_imports_no_node() -> None:
    """Names are imported when they are used, so that a command line starts at once."""
    script = "import rumormill, sys; assert 'rumormill.node.node' not in sys.modules, 'early'"
    subprocess.run(
        [sys.executable, "-c", script], check=True, env={"PYTHONPATH": str(ROOT / "src")}
    )


SAMPLE = """
import asyncio

import rumormill
from rumormill import Client, Event, Node, PeerId, Receipt, SyncNode, TopicLine, Verdict


def judge(event: Event, peer: bytes) -> Verdict:
    return Verdict.ACCEPT if event.key else Verdict.REJECT


async def work(node: Node | Client) -> Receipt:
    async with await node.subscribe("work", name="w", auto_ack=False, since_offset=-5) as events:
        async for event in events:
            await events.ack(event)
            if event.reply_to:
                await node.reply(event, event.data, headers=dict(event.headers))
            break
    reply: Event = await node.request("sums", "2+2", timeout=5)
    async for other in node.request("sums", b"2+2"):
        reply = other
    return await node.publish("news", reply.data, key="k", content_type="text/plain")


async def main(node: Node) -> list[TopicLine]:
    node.set_validator("news", judge)
    who: PeerId = await node.connect("ticket")
    events: list[Event] = await node.history("news", where="has key")
    reveal_type(events[0].data)
    await node.topic("news").publish(events[0].data)
    async with rumormill.connect("home") as client:
        await work(client)
        return await client.topics() if client.id == who else node.topics()


def script() -> Receipt:
    with SyncNode(None, listen="/ip4/127.0.0.1/tcp/0") as node:
        for event in node.subscribe("news", name="w", timeout=1.0):
            node.reply(event, b"")
        print(node.topics(), node.groups(), node.request("sums", b"").data)
        return node.publish("news", b"")


SyncNode(None, nonsense=1)
asyncio.run(main(Node(None)))
"""


def test_a_users_program_passes_mypy_strict(tmp_path: Path) -> None:
    """A type checker knows what `from rumormill import ...` gives, and finds the one mistake."""
    program = tmp_path / "program.py"
    program.write_text(SAMPLE)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src")},
        check=False,
    )
    lines = checked.stdout.splitlines()
    errors = [line for line in lines if ": error:" in line]
    assert any('Revealed type is "' in line and "bytes" in line for line in lines), checked.stdout
    assert len(errors) == 1, checked.stdout
    assert "nonsense" in errors[0]


def test_dir_lists_every_public_name() -> None:
    """Also those that nobody has asked for yet, and nothing else; and each is there."""
    program = (
        "import rumormill; import rumormill.log;"
        "listed = [name for name in dir(rumormill) if name[:2] != '__'];"
        "print(listed == sorted({*rumormill.__all__} - {'__version__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert all(getattr(rumormill, name) for name in rumormill.__all__)


def test_offsets_below_0_count_from_the_end() -> None:
    async def main() -> None:
        async with Node(None) as node:
            await node.publish_many("news", [b"%d" % number for number in range(5)])
            assert [each.offset for each in await node.history("news", since_offset=-2)] == [3, 4]
            assert len(await node.history("news", since_offset=-9)) == 5
            assert await take(await node.subscribe("news", since_offset=-2), 2) == [b"3", b"4"]
            named = await node.subscribe("news", name="w", since_offset=-1)
            assert await take(named, 1) == [b"4"]
            assert (await node.subscribe("empty", since_offset=-3)).waiting == 0

    run(main)


def test_ids_are_bytes_whose_text_is_that_of_tickets() -> None:
    """Of nodes, peers, authors and those who are connected to: they compare as they are."""

    async def main() -> None:
        async with pair() as (alice, bob):
            who = await alice.connect(bob.tickets[0])
            (peer,) = alice.peers
            assert who == peer.id == bob.id
            assert bob.tickets[0].endswith(f"/p2p/{who}")
            assert isinstance(bob.id, bytes)
            assert rumormill.PeerId.parse(str(bob.id)) == bob.id
            receipt = await bob.publish("news", b"x")
            (event,) = await bob.history("news", since_offset=-1)
            assert (event.author, event.id) == (bob.id, receipt.id)
            assert str(rumormill.PeerId(event.author)) == str(bob.id)

    run(main)


def test_topics_of_the_log_and_of_the_network() -> None:
    async def main() -> None:
        async with pair("joined") as (alice, bob):
            await alice.publish("mine", b"x")
            found = {line.name: line for line in alice.topics()}
            assert (found["mine"].next_offset, found["mine"].subscribed) == (1, False)
            assert (found["joined"].peers, found["joined"].subscribed) == (1, False)
            assert {line.name: line for line in bob.topics()}["joined"].subscribed

    run(main)


def test_a_small_store_limit_does_not_stop_a_node() -> None:
    """An event that the log refuses is its publisher's problem alone."""

    async def main() -> None:
        async with Node(None, store=StoreConfig(max_event_bytes=2000)) as node:
            results = await asyncio.gather(
                *(node.publish("news", bytes(size)) for size in (10, 3000, 20)),
                return_exceptions=True,
            )
            assert isinstance(results[1], LocalError)
            offsets = [each.offset for each in results if isinstance(each, Receipt)]
            assert offsets == [0, 1]

    run(main)
