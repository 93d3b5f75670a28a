"""Questions on real sockets: asked, served, bounded, and whatever a bad peer makes of them."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hostile_peer import HostilePeer
from parlour import MAX_MESSAGE, PARLOUR, QUERY, Saying, act, ask, guest, tell_where

from live_nodes import run, until
from rumormill.core.effects import Answer, Ask, Decline
from rumormill.core.errors import LocalError
from rumormill.core.inputs import NO_ANSWER, Answered, Asked, AskFailed, PeerDisconnected
from rumormill.core.trace import DropRPC, RecvRPC, SendRPC
from rumormill.libp2p.stream import REFUSED
from rumormill.node import queries
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.pending_sends import OURSELVES
from rumormill.node.queries import TOO_MANY_QUESTIONS, UNANSWERED
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey
from rumormill.wire.protobuf import varint
from trace_log import TraceLog


def parlour(**options: Any) -> Node:
    return Node(None, protocol=PARLOUR, **options)


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[Node, Node]]:
    """Ann, who knows where Bob is, and Bob; they are not connected."""
    async with parlour(**options) as ann, parlour() as bob:
        tell_where(ann, bob)
        yield ann, bob


def answers(node: Node) -> list[bytes]:
    """What a node's questions were answered with."""
    found = []
    for item in guest(node).heard(Answered):
        assert isinstance(item.message, Saying)
        found.append(item.message.data)
    return found


def failures(node: Node) -> list[str]:
    """Why a node's questions failed."""
    return [failed.reason for failed in guest(node).heard(AskFailed)]


def open_questions(queries: Any) -> tuple[int, int]:
    """How many questions are open: ours, and those of peers."""
    return len(queries._open), len(queries.serving._asked)


def nothing_is_open(*nodes: Node) -> bool:
    """Whether no question is left anywhere, nor a stream of one."""
    for node in nodes:
        driver: Any = node._driver
        queries, swarm = driver.queries, driver._swarm
        streams = [
            stream
            for connection in swarm._all
            for stream in connection._streams.values()
            if stream.protocol == QUERY
        ]
        if (
            open_questions(queries) != (0, 0)
            or queries._partners
            or queries.serving._lingering
            or streams
        ):
            return False
    return True


# By the rules.


def test_a_question_dials_its_peer_and_is_answered() -> None:
    """The number comes back; both messages are traced at both ends; nothing stays open."""

    async def story() -> None:
        trace = TraceLog()
        async with pair(observers=[trace]) as (ann, bob):
            ask(ann, bob.id, b"echo one", first=7)
            await until(lambda: answers(ann), "it was answered")
            assert guest(ann).heard(Answered) == [Answered(bob.id, 7, Saying(b"echo one"))]
            (asked,) = guest(bob).heard(Asked)
            assert (asked.peer, asked.message) == (ann.id, Saying(b"echo one"))
            await until(lambda: nothing_is_open(ann, bob), "nothing is open")
        for kind in (SendRPC, RecvRPC):
            assert [each.meta.size for each in trace.of(kind)] == [8]

    run(story)


def test_thousands_of_questions_are_answered_a_few_at_a_time() -> None:
    """They wait for their turn; no peer is given more streams than it takes."""

    async def story() -> None:
        async with pair() as (ann, bob):
            questions = [b"echo %d" % number for number in range(3000)]
            ask(ann, bob.id, *questions)
            await until(lambda: len(answers(ann)) == 3000, "all were answered")
            assert sorted(answers(ann)) == sorted(questions)
            assert failures(ann) == []
            assert bob.refusals.get("too-many-streams", 0) == 0
            await until(lambda: nothing_is_open(ann, bob), "nothing is open")

    run(story)


def test_a_machine_may_answer_later_and_in_any_order() -> None:
    """An answer goes to its question; a second one and one to nobody go nowhere."""

    async def story() -> None:
        async with pair() as (ann, bob):
            ask(ann, bob.id, b"late a", b"late b")
            await until(lambda: len(guest(bob).heard(Asked)) == 2, "both were put")
            for asked in reversed(guest(bob).heard(Asked)):
                assert isinstance(asked.message, Saying)
                reply = Answer(asked.number, Saying(b"re: " + asked.message.data))
                act(bob, reply, reply)
            act(bob, Answer(999_999, Saying(b"who asked?")))
            await until(lambda: len(answers(ann)) == 2, "both were answered")
            by_number = {item.number: item.message for item in guest(ann).heard(Answered)}
            assert by_number == {0: Saying(b"re: late a"), 1: Saying(b"re: late b")}
            await until(lambda: nothing_is_open(ann, bob), "nothing is open")

    run(story)


def test_the_longest_message_fits_both_ways() -> None:
    """More than a stream's window holds at once."""

    async def story() -> None:
        async with pair() as (ann, bob):
            question = b"echo".ljust(MAX_MESSAGE, b".")
            ask(ann, bob.id, *[question] * 20)
            await until(lambda: len(answers(ann)) == 20, "it was answered")
            assert set(answers(ann)) == {question}

    run(story)


def test_questions_that_want_no_answer() -> None:
    """Nothing comes back, not even when the answer never comes; the next ones are not held up."""

    async def story() -> None:
        async with pair() as (ann, bob):
            act(ann, *(Ask(bob.id, n, Saying(b"note %d" % n), 5.0, True) for n in range(200)))
            await until(lambda: len(guest(bob).heard(Asked)) == 200, "all came")
            ask(ann, bob.id, b"echo", first=1000)
            await until(lambda: answers(ann), "questions are answered beside them")
            assert failures(ann) == []

    run(story)


# What fails.


def test_questions_to_a_dead_peer_and_to_ourselves_fail() -> None:
    """Each is told why, and traced as dropped."""

    async def story() -> None:
        trace = TraceLog()
        async with parlour(observers=[trace]) as ann:
            nobody = bytes(PrivateKey(secrets.token_bytes(32)).peer_id)
            ask(ann, nobody, b"echo a", b"echo b")
            ask(ann, ann.id, b"echo c", first=5)
            await until(lambda: len(failures(ann)) == 3, "all failed")
            assert OURSELVES in failures(ann)
            assert sum("no address is known" in reason for reason in failures(ann)) == 2
            assert nothing_is_open(ann)
        assert len(trace.of(DropRPC)) == 3

    run(story)


def test_a_silent_peer_costs_no_more_than_the_timeout() -> None:
    """Those behind it have their own; the answer that comes too late goes nowhere."""

    async def story() -> None:
        async with pair() as (ann, bob):
            ask(ann, bob.id, *[b"late"] * 20, timeout=0.3)
            await until(lambda: len(failures(ann)) == 20, "all failed")
            assert set(failures(ann)) == {NO_ANSWER}
            await until(lambda: nothing_is_open(ann, bob), "nothing is open")
            for asked in guest(bob).heard(Asked):
                act(bob, Answer(asked.number, Saying(b"too late")))
            ask(ann, bob.id, b"echo", first=100)
            await until(lambda: answers(ann) == [b"echo"], "others are answered")

    run(story)


def test_a_peer_that_does_not_know_the_questions_refuses_them() -> None:
    """The stream's protocol is not agreed on."""

    async def story() -> None:
        async with parlour() as ann, Node(None) as gossip:
            tell_where(ann, gossip)
            ask(ann, gossip.id, b"echo")
            await until(lambda: failures(ann), "it failed")
            assert failures(ann) == [REFUSED]

    run(story)


def test_a_declined_question_fails_at_once() -> None:
    """Not at its timeout; what else is asked on other streams is answered, nothing stays open."""

    async def story() -> None:
        async with pair() as (ann, bob):
            ask(ann, bob.id, b"late", b"decline", b"echo", timeout=600.0)
            await until(lambda: failures(ann) and answers(ann), "one failed, one was answered")
            (failed,) = guest(ann).heard(AskFailed)
            assert failed.number == 1
            assert failed.reason != NO_ANSWER
            assert answers(ann) == [b"echo"]
            (late,) = [each for each in guest(bob).heard(Asked) if each.message == Saying(b"late")]
            act(bob, Answer(late.number, Saying(b"here")), Decline(late.number))
            await until(lambda: len(answers(ann)) == 2, "the third is answered")
            await until(lambda: nothing_is_open(ann, bob), "nothing is open")

    run(story)


def test_a_stream_is_declined_behind_its_answers() -> None:
    """Of several questions on one stream, those that have answers get them before it ends."""

    async def story() -> None:
        async with visited() as (ann, peer, stream):
            peer.say(stream, frame(b"late") + frame(b"decline") + frame(b"echo"))
            peer.session.end(stream)
            peer.flush()
            await until(lambda: peer.heard.get(stream, b"") == frame(b"echo"), "one was answered")
            (late,) = [each for each in guest(ann).heard(Asked) if each.message == Saying(b"late")]
            act(ann, Answer(late.number, Saying(b"here")))
            await until(lambda: nothing_is_open(ann), "the stream is gone")
            both = frame(b"echo") + frame(b"here")
            await until(lambda: peer.heard[stream] == both, "both were answered")

    run(story)


def test_questions_fail_with_the_connection() -> None:
    """At once, not at their timeout."""

    async def story() -> None:
        async with pair() as (ann, bob):
            ask(ann, bob.id, b"late", timeout=600.0)
            await until(lambda: guest(bob).heard(Asked), "it was put")
            await bob.close()
            await until(lambda: failures(ann), "it failed")
            assert nothing_is_open(ann)

    run(story)


def test_our_own_questions_are_bounded() -> None:
    """What does not fit fails at once and is counted."""

    async def story() -> None:
        async with pair(config=NodeConfig(questions_open=10)) as (ann, bob):
            ask(ann, bob.id, *[b"echo"] * 15)
            await until(lambda: len(answers(ann)) == 10, "those that fit were answered")
            assert failures(ann) == [TOO_MANY_QUESTIONS] * 5
            assert ann.refusals["too-many-questions"] == 5

    run(story)


def test_a_node_closes_with_questions_open() -> None:
    """Nothing is left behind: `run` looks for tasks and errors."""

    async def story() -> None:
        async with pair() as (ann, bob):
            ask(ann, bob.id, *[b"late"] * 50, timeout=600.0)
            await until(lambda: guest(bob).heard(Asked), "some were put")

    run(story)


def test_a_protocol_without_questions_answers_none() -> None:
    """Its machine is told so."""

    async def story() -> None:
        mute = msgspec.structs.replace(PARLOUR, queries=None)
        async with Node(None, protocol=mute, members=False) as ann:
            ask(ann, b"anybody", b"echo")
            await until(lambda: failures(ann), "it failed")

    run(story)


# Peers that keep the rules of libp2p and not ours.


@asynccontextmanager
async def visited(**options: Any) -> AsyncIterator[tuple[Node, HostilePeer, int]]:
    """A node, a peer that is connected to it, and the stream that it opened for questions."""
    async with parlour(**options) as ann, HostilePeer() as peer:
        await peer.connect(ann)
        yield ann, peer, peer.open(QUERY)


class Slow(HostilePeer):
    """Answers a question piece by piece, as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.protocols = (*self.protocols, QUERY)
        self.asked: list[int] = []

    def _on_data(self, stream_id: int, data: bytes) -> None:
        super()._on_data(stream_id, data)
        if self._negotiations[stream_id].protocol == QUERY:
            self.asked.append(stream_id)


async def in_pieces(ann: Node, slow: Slow, *pieces: int) -> list[bool]:
    """Whether a question is open still after each so long piece of its answer, which takes as long
    as an answer may."""
    await slow.connect(ann)
    await until(lambda: ann.peers, "it is known")
    ask(ann, bytes(slow.key.peer_id), b"say something long")
    await until(lambda: slow.asked, "it was put")
    asking: Any = ann._driver.queries
    ((_, question),) = asking._open.items()
    answer, fates = frame(b"a" * 90_000), []
    for piece in pieces:
        slow.say(slow.asked[0], answer[:piece])
        answer = answer[piece:]
        await until(lambda: question._came == piece or not question.open, "it came")  # noqa: B023
        question.stop_timer()
        if question.open:
            asking._time_out(question)
        fates.append(question.open)
    return fates


@pytest.mark.parametrize(
    ("pieces", "open_after", "said"),
    [
        ([16 << 10] * 5 + [90_000], [True] * 5 + [False], [b"a" * 90_000]),
        ([16 << 10, 16 << 10, 16_000], [True, True, False], []),
    ],
)
def test_a_long_answer_that_goes_on_has_more_time(
    pieces: list[int], open_after: list[bool], said: list[bytes]
) -> None:
    """A large event over a slow line; who only drips is given up as one that says nothing."""

    async def story() -> None:
        async with parlour() as ann, Slow() as slow:
            assert await in_pieces(ann, slow, *pieces) == open_after
            assert (answers(ann), failures(ann)) == (said, [] if said else [NO_ANSWER])

    run(story)


def test_nobody_holds_a_question_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much comes each time."""
    monkeypatch.setattr(queries, "_GOES_ON", 1000)

    async def story() -> None:
        async with parlour() as ann, Slow() as slow:
            assert await in_pieces(ann, slow, *[1000] * 6) == [True] * 5 + [False]
            assert failures(ann) == [NO_ANSWER]

    run(story)


def test_several_questions_on_one_stream_are_answered_one_after_the_other() -> None:
    """As go asks: the stream stays open, and what wants no answer does not block it."""

    async def story() -> None:
        async with visited() as (_, peer, stream):
            expected = b""
            for said in (b"echo 1", b"note", b"echo 2", b"echo 3"):
                peer.say(stream, frame(said))
                expected += b"" if said == b"note" else frame(said)
                await until(lambda: peer.heard.get(stream, b"") == expected, "it was answered")  # noqa: B023

    run(story)


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (frame(b"\xff not a saying"), "bad-saying"),
        (varint(MAX_MESSAGE + 1), "frame-too-long"),
        (b"\xff" * 12, "frame-too-long"),
        (b"\x80\x00", "bad-varint"),
    ],
)
def test_bad_questions_cost_their_stream_and_nothing_else(bytes_sent: bytes, reason: str) -> None:
    """Counted by reason; the same peer may ask again on another stream, and others too."""

    async def story() -> None:
        async with visited() as (ann, peer, stream):
            peer.say(stream, bytes_sent)
            await until(lambda: ann.refusals.get(reason), "it was counted")
            another = peer.open(QUERY, frame(b"echo"))
            await until(lambda: peer.heard.get(another) == frame(b"echo"), "it is answered")
            async with parlour() as bob:
                tell_where(bob, ann)
                ask(bob, ann.id, b"echo")
                await until(lambda: answers(bob), "bob is answered")

    run(story)


def test_peers_questions_are_bounded() -> None:
    """Over the limit the stream is reset; on one stream the oldest is forgotten."""

    async def story() -> None:
        async with visited(config=NodeConfig(questions_served=20)) as (ann, peer, stream):
            peer.say(stream, b"".join(frame(b"late %d" % n) for n in range(100)))
            await until(lambda: len(guest(ann).heard(Asked)) == 100, "all were put")
            driver: Any = ann._driver
            assert open_questions(driver.queries) == (0, 16)
            peer.open(QUERY, b"".join(frame(b"late") for _ in range(16)))
            await until(lambda: ann.refusals.get("too-many-questions"), "it was counted")
            assert open_questions(driver.queries) == (0, 16)

    run(story)


def test_a_peer_that_reads_no_answers_is_cut_off() -> None:
    """What waits for it is bounded."""

    async def story() -> None:
        async with visited() as (ann, peer, stream):
            peer.gives_window = False
            while not ann.refusals.get("unread-answers"):
                with contextlib.suppress(LocalError):  # the stream is reset
                    peer.say(stream, frame(b"echo".ljust(MAX_MESSAGE, b".")))
                await asyncio.sleep(0.001)
            assert nothing_is_open(ann)

    run(story)


def test_streams_that_ended_without_an_answer_do_not_pile_up() -> None:
    """Eight may wait; the oldest is reset when a newer one ends, and its question is forgotten."""

    async def story() -> None:
        async with visited() as (ann, peer, _):
            for number in range(40):
                stream = peer.open(QUERY, frame(b"late %d" % number))
                peer.session.end(stream)
                peer.flush()
                await until(lambda: len(guest(ann).heard(Asked)) == number + 1, "it was put")  # noqa: B023
            driver: Any = ann._driver
            await until(lambda: open_questions(driver.queries) == (0, 8), "eight wait")
            assert ann.refusals.get("too-many-streams") is None
            oldest = guest(ann).heard(Asked)[-8]
            act(ann, Answer(oldest.number, Saying(b"here")))
            await until(lambda: open_questions(driver.queries) == (0, 7), "one is answered")

    run(story)


def test_an_answer_that_cannot_be_read_fails_its_question_only() -> None:
    """Garbage, and an end without an answer."""

    async def story() -> None:
        async with pair() as (ann, bob):
            ask(ann, bob.id, b"late garbage", b"late fine")
            await until(lambda: len(guest(bob).heard(Asked)) == 2, "both were put")
            first, second = guest(bob).heard(Asked)
            act(bob, Answer(first.number, Saying(b"\xff")), Answer(second.number, Saying(b"ok")))
            await until(lambda: answers(ann) and failures(ann), "both ended")
            assert failures(ann) == ["bad-saying"]
            assert ann.refusals["bad-saying"] == 1
            assert guest(ann).heard(PeerDisconnected) == []

    run(story)


def test_a_peer_that_ends_without_an_answer_fails_the_question() -> None:
    """After `answer_timeout` the one who was asked gives the stream up."""

    async def story() -> None:
        quick = NodeConfig(answer_timeout=0.1)
        async with parlour() as ann, parlour(config=quick) as bob:
            tell_where(ann, bob)
            ask(ann, bob.id, b"late", timeout=600.0)
            await until(lambda: failures(ann), "it failed")
            assert failures(ann)[0] not in {NO_ANSWER, UNANSWERED}
            await until(lambda: nothing_is_open(ann, bob), "nothing is open")

    run(story)
