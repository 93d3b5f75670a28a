"""The journal of a real node: appending, barriers, reading, notes; and a protocol's commands."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from parlour import PARLOUR, act, guest

from live_nodes import run, until
from rumormill.core.effects import (
    Append,
    ById,
    Computation,
    Disregard,
    FromOffset,
    KeepNote,
    Load,
    Notes,
)
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.event import UNASSIGNED, Event, Note
from rumormill.core.inputs import Loaded, NotStored, Stored
from rumormill.log.errors import EventRefusedError
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoreConfig
from rumormill.node.config import NodeConfig
from rumormill.node.log_reader import LogReader
from rumormill.node.node import Node
from rumormill.node.sync import SyncNode
from rumormill.node.taken import EVENT_REFUSED

TOPIC = "t"


def event(number: int, topic: str = TOPIC) -> Event:
    """An event of somebody else, with everything that an event may have."""
    return Event(
        topic,
        b"data %d" % number,
        b"author",
        b"id %d" % number,
        (b"parent a", b"parent b"),
        1234.5,
        b"proof",
    )


async def loaded(node: Node, topic: str, query: ById | FromOffset | Notes) -> Loaded:
    """What a machine's read of the log brings."""
    numbers = [answer.number for answer in guest(node).heard(Loaded)]
    number = max(numbers, default=0) + 1
    act(node, Load(number, topic, query))
    await until(lambda: len(guest(node).heard(Loaded)) > len(numbers), "the answer comes")
    answer = guest(node).heard(Loaded)[-1]
    assert answer.number == number
    return answer


def ids(answer: Loaded) -> list[bytes]:
    return [each.id for each in answer.events]


# Appending and reading.


def test_a_reader_that_is_closed_reads_nothing_more(tmp_path: Path) -> None:
    """Not even for a machine that is answered in the moment of closing, and asks on."""

    async def story() -> None:
        answers: list[Loaded] = []
        with EventLog(tmp_path) as log:
            reader = LogReader(log)

            def ask_on(answer: Loaded) -> None:
                answers.append(answer)
                reader.load(Load(2, TOPIC, FromOffset()), answers.append, behind=0)
                reader.know(Disregard(TOPIC, (0, b"unwanted")))

            reader.load(Load(1, TOPIC, FromOffset()), ask_on, behind=0)
            reader.go_on(0)
            reader._thread.submit(lambda: None).result()  # The answer waits for its turn.
            reader.close()
            await until(lambda: bool(answers), "the answer comes")
            await asyncio.sleep(0)
            assert answers == [Loaded(1)]

    run(story)


class _Meets(Computation, frozen=True):
    """Work that ends when another such work has begun, unless it is the other."""

    begun: threading.Event
    awaits: threading.Event

    def work_out(self) -> bool:
        """Whether the other came."""
        self.begun.set()
        return self.awaits.wait(10)


def test_computations_go_on_side_by_side_and_are_answered_in_their_order(tmp_path: Path) -> None:
    """The first ends only when the second has begun, and is answered first all the same."""

    async def story() -> None:
        answers: list[Loaded] = []
        first, second, nothing = threading.Event(), threading.Event(), threading.Event()
        nothing.set()
        with EventLog(tmp_path) as log:
            reader = LogReader(log)
            for number, work in enumerate((_Meets(first, second), _Meets(second, nothing))):
                reader.load(Load(number, "", work), answers.append, behind=0)
            await until(lambda: len(answers) == 2, "both are answered")
            assert answers == [Loaded(0, answer=True), Loaded(1, answer=True)]
            reader.close()
            reader.join()

    run(story)


@pytest.mark.parametrize("deliver", [True, False])
def test_what_is_appended_is_read_back_with_all_that_belongs_to_it(deliver: bool) -> None:
    """A read sees what was appended before it, safe by then or not; others find nothing."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            act(node, Append(event(1), deliver))
            (found,) = (await loaded(node, TOPIC, ById((b"id 2", b"id 1")))).events
            assert (found.offset, found.protocol) == (0, "parlour")
            assert found.received > 0
            known = {"offset": UNASSIGNED, "received": 0.0, "protocol": ""}
            assert msgspec.structs.replace(found, **known) == event(1)
            assert (await loaded(node, "another topic", ById((b"id 1",)))).events == ()
            assert (await loaded(node, "another topic", FromOffset())).events == ()

    run(story)


def test_a_history_is_read_in_pieces_each_event_once_in_order() -> None:
    """Also what arrives meanwhile, behind all the rest."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            act(node, *(Append(event(number)) for number in range(600)))
            seen: list[bytes] = []
            answer = await loaded(node, TOPIC, FromOffset())
            act(node, *(Append(event(number)) for number in range(600, 900)))
            while True:
                assert len(answer.events) <= 256
                seen += ids(answer)
                if not answer.more:
                    break
                answer = await loaded(node, TOPIC, FromOffset(answer.events[-1].offset + 1))
            assert seen == [b"id %d" % number for number in range(900)]

    run(story)


def test_a_read_is_bounded_in_bytes_too() -> None:
    """At least one event comes, and `more` says that others are there."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            large = [Event(TOPIC, bytes(700_000), b"author", b"%d" % n) for n in range(5)]
            act(node, *map(Append, large))
            answer = await loaded(node, TOPIC, ById((b"0", b"1", b"2")))
            assert (ids(answer), answer.more) == ([b"0"], True)
            answer = await loaded(node, TOPIC, FromOffset(1))
            assert (ids(answer)[0], answer.more) == (b"1", True)
            assert not (await loaded(node, TOPIC, FromOffset(4))).more

    run(story)


def test_an_event_that_is_kept_for_others_is_not_handed_out() -> None:
    """Subscribers get what is delivered, in the order of the log."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node, await node.subscribe(TOPIC) as events:
            act(node, Append(event(1)), Append(event(2), deliver=True))
            receipt = await node.publish(TOPIC, b"published")
            got = [(await anext(events)).data for _ in range(2)]
            assert got == [b"data 2", b"published"]
            assert (receipt.offset, receipt.note) == (2, "told nobody")
            assert [each.data for each in await node.history(TOPIC)] == [b"data 1", *got]

    run(story)


def test_events_and_notes_survive_a_restart(tmp_path: Path) -> None:
    """They are in the log; of two notes under one key the later one."""

    async def story() -> None:
        async with Node(tmp_path, protocol=PARLOUR) as node:
            act(node, Append(event(1)), KeepNote(Note("parlour/a", b"1")))
            act(node, KeepNote(Note("parlour/b", b"2")), KeepNote(Note("other/c", b"3")))
            act(node, KeepNote(Note("parlour/a", b"4")))
            await node.publish(TOPIC, b"mine")
        async with Node(tmp_path, protocol=PARLOUR) as node:
            answer = await loaded(node, TOPIC, FromOffset())
            assert [each.data for each in answer.events] == [b"data 1", b"mine"]
            answer = await loaded(node, "", Notes("parlour/"))
            assert answer.notes == (Note("parlour/a", b"4"), Note("parlour/b", b"2"))
            answer = await loaded(node, "", Notes("parlour/", after="parlour/a"))
            assert answer.notes == (Note("parlour/b", b"2"),)

    run(story)


# Barriers.


def test_a_barrier_is_answered_when_its_event_is_in_the_log(tmp_path: Path) -> None:
    """Not before: a writer that is held up holds the answer up. One commit, one answer."""

    async def story() -> None:
        gate = threading.Event()
        async with Node(tmp_path, protocol=PARLOUR) as node:
            node.log.writer().run(gate.wait)
            act(node, Append(event(1), barrier=(7, event(1))), Append(event(2)))
            act(node, Append(event(3), barrier=(8, event(3))))
            act(node, Load(1, TOPIC, FromOffset()))
            await asyncio.sleep(0.05)
            assert not guest(node).heard(Stored)
            assert not guest(node).heard(Loaded)
            gate.set()
            await until(lambda: guest(node).heard(Stored), "it is safe")
            (stored,) = guest(node).heard(Stored)
            assert stored == Stored(((7, event(1)), (8, event(3))))
            assert node.log.find(TOPIC, b"id 3") is not None
            await until(lambda: guest(node).heard(Loaded), "and then it is read")

    run(story)


def test_an_event_that_the_log_refuses_is_lost_and_its_barrier_says_so() -> None:
    """The others of its batch are kept; what a peer brought is counted, and the machine does not
    get it again, because the log will never take it."""

    async def story() -> None:
        store = StoreConfig(max_event_bytes=300)
        async with Node(None, protocol=PARLOUR, store=store) as node:
            long = Event(TOPIC, bytes(400), b"author", b"long")
            own = Event(TOPIC, bytes(400), node.id, b"own")
            act(
                node,
                Append(long, deliver=True, if_lost=(2, long)),
                Append(event(1)),
                Append(own, barrier=(1, own)),
            )
            answer = await loaded(node, TOPIC, FromOffset())
            assert ids(answer) == [b"id 1"]
            assert node._journal.lost == 1
            assert guest(node).heard(NotStored) == [NotStored(((1, own),), EVENT_REFUSED)]

    run(story)


def test_a_publication_that_the_log_refuses_raises_the_logs_own_error(tmp_path: Path) -> None:
    """Who publishes is told what is wrong, in the log's words; the next one works."""

    async def story() -> None:
        store = StoreConfig(max_event_bytes=300)
        async with Node(tmp_path, protocol=PARLOUR, store=store) as node:
            with pytest.raises(EventRefusedError, match="above the limit of 300"):
                await node.publish(TOPIC, bytes(400))
            assert (await node.publish(TOPIC, b"short")).offset == 0

    run(story)


def test_what_is_linked_to_an_event_that_cannot_be_stored_falls_with_it() -> None:
    """No event names a parent of ours that does not exist; what is not linked stays."""

    async def story() -> None:
        store = StoreConfig(max_event_bytes=300)
        async with Node(None, protocol=PARLOUR, store=store) as node:
            own = [
                Event(TOPIC, b"", node.id, b"first"),
                Event(TOPIC, bytes(400), node.id, b"second", (b"first",)),
                Event(TOPIC, b"", node.id, b"third", (b"second",)),
            ]
            act(node, *(Append(each, barrier=(1, each)) for each in own), Append(event(1)))
            answer = await loaded(node, TOPIC, FromOffset())
            assert ids(answer) == [b"first", b"id 1"]
            assert guest(node).heard(Stored) == [Stored(((1, own[0]),))]
            lost = [barrier for each in guest(node).heard(NotStored) for barrier in each.barriers]
            assert lost == [(1, own[1]), (1, own[2])]
            again = msgspec.structs.replace(own[2], parents=(b"first",))
            act(node, Append(again, barrier=(2, again)))
            await until(lambda: len(guest(node).heard(Stored)) == 2, "what comes later is stored")

    run(story)


# Commands.


def test_a_command_returns_what_the_protocol_says() -> None:
    """A result, or an error of the caller's own."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            assert await node.command("shout") == "SHOUT"
            with pytest.raises(LocalError, match="no such thing"):
                await node.command("fail no such thing")
            assert not node._driver._commands

    run(story)


def test_commands_are_bounded_and_end_with_the_node() -> None:
    """One too many is refused; those that wait fail when the node closes, or are given up."""

    async def story() -> None:
        node = Node(None, protocol=PARLOUR, config=NodeConfig(max_commands=2))
        await node.start()
        waiting = [asyncio.ensure_future(node.command(b"never")) for _ in range(2)]
        await until(lambda: len(node._driver._commands) == 2, "both wait")
        with pytest.raises(LimitError, match="2 commands wait"):
            await node.command("shout")
        waiting[0].cancel()
        await until(lambda: len(node._driver._commands) == 1, "one gave up")
        assert await node.command("shout") == "SHOUT"
        await node.close()
        with pytest.raises(LocalError, match="the node is closed"):
            await waiting[1]
        with pytest.raises(LocalError, match="not running"):
            await node.command("shout")

    run(story)


def test_scripts_have_commands_too() -> None:
    """`SyncNode.command` is `Node.command`."""
    with SyncNode(None, protocol=PARLOUR) as node:
        assert node.command("shout") == "SHOUT"


def test_a_burst_of_peers_is_stored_in_few_commits_and_waits_for_few_turns() -> None:
    """While there is more to be read, what a peer has brought is put off; not for ever, and what
    somebody waits for is not."""

    async def main() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            journal, asked = node._journal, 0

            def more() -> bool:
                nonlocal asked
                asked += 1
                return True

            journal.more_comes = more
            commits = node.log.counters.commits
            for number in range(4):  # as many turns, with an event each
                act(node, Append(event(number)))
                await asyncio.sleep(0)
            await until(lambda: node.log.counters.appended == 4, "all are stored")
            assert node.log.counters.commits == commits + 1
            assert asked == 3
            await node.publish(TOPIC, b"own")
            assert asked == 3

    run(main)


def test_publications_of_one_turn_are_answered_one_by_one() -> None:
    """They keep their order, also before a batch; one that the machine refuses is its own
    publisher's trouble, and is not remembered."""

    async def main() -> None:
        async with Node(None) as node:
            long = bytes(2 << 20)
            calls = [
                asyncio.ensure_future(node.publish(TOPIC, each)) for each in (b"0", long, b"1")
            ]
            await asyncio.sleep(0)
            batch = await node.publish_many(TOPIC, [b"2", b"3"])
            first, refused, second = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(refused, LimitError)
            assert [each.offset for each in (first, second, *batch)] == [0, 1, 2, 3]
            assert [each.data for each in await node.history(TOPIC)] == [b"0", b"1", b"2", b"3"]
            assert not node._journal._orders

    run(main)
