"""Many topics at once: who was away from a hundred is back in all of them soon, whatever a round
trip takes, and no line or memory has to bear more than a few answers for that."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sync_rig import NOW, SALT, answer, dated, ids_of, reconcile, store_of
from sync_stage import Stage

from rumormill.core.event import Event
from rumormill.core.history import END, HistoryQuery
from rumormill.sim.journal import Journal
from rumormill.sim.latency import parse_latency
from rumormill.sync.messages import (
    Body,
    Compare,
    Compared,
    Difference,
    Events,
    Fetch,
    Probe,
    Span,
    Verdict,
)
from rumormill.sync.session import COMPLETE, Arrived, Session
from rumormill.sync.under_way import LONG, MAX_ASKED, MAX_FAILURES, QUICK

TOPICS = tuple(f"topic {number}" for number in range(100))


@pytest.mark.parametrize(("latency", "within"), [("planetlab", 10.0), ("constant:500ms", 40.0)])
def test_a_hundred_topics_are_back_soon_after_half_of_the_peers_were_killed(
    latency: str, within: float
) -> None:
    """Two of four: each lacks something of every topic, and gets it from the others."""
    stage = Stage(4, name="gossipsub")
    stage.network.latency = parse_latency(latency, 4, random.Random(1))
    stage.connect(1, 0)
    for peer in (0, 1, 2, 3):
        for topic in TOPICS:
            stage.subscribe(peer, topic)
    for peer in (2, 3):
        stage.connect(peer, 0)
        stage.connect(peer, 1)
    stage.run(30)
    for peer in (2, 3):
        stage.network.crash(stage.host(peer))
    stage.run(2)
    for number, topic in enumerate(TOPICS):
        stage.publish(number % 2, f"{topic} once", f"{topic} twice", topic=topic, every=0.02)
    stage.run(15)
    for peer in (2, 3):
        stage.network.start(stage.host(peer))
        for topic in TOPICS:
            stage.subscribe(peer, topic)
        stage.connect(peer, 0)
        stage.connect(peer, 1)
    stage.run(within)
    assert [len(stage.journal(peer)) for peer in range(4)] == [2 * len(TOPICS)] * 4


class Drive:
    """A session whose questions wait until somebody answers them; loads are worked out at once."""

    def __init__(self, asker: Journal, partner: Journal, topics: tuple[str, ...]) -> None:
        self.session = Session(
            b"partner", tuple((topic, 0) for topic in topics), SALT, 0.0, offered=False
        )
        self.now = NOW
        self.asked: dict[int, Body] = {}
        self.came: list[tuple[str, bytes]] = []
        self._asker, self._partner, self._number = asker, partner, 0
        self.go_on()

    def go_on(self) -> None:
        while (step := self.session.next(self.now, self._number)) is not None:
            if isinstance(step, Arrived):
                for topic, sent in step.events:
                    self.came.append((topic, sent.id))
                    self._asker.keep(Event(topic, sent.data, sent.author, sent.id), self.now)
                self.session.note_stored(dict(Counter(of for of, _ in step.events)), 0, self.now)
                self.session.storing -= 1
            elif isinstance(step, HistoryQuery):
                self.session.on_worked_out(step.work_out(self._asker))
            else:
                self.asked[self._number] = step
            self._number += 1

    def answer(self, after: float, *numbers: int) -> None:
        """Answer some questions, or all, the latest first."""
        self.now += after
        for number in numbers or sorted(self.asked, reverse=True):
            told = answer(self._partner, self.asked.pop(number))
            self.session.on_answered(number, told, self.now)
        self.go_on()


def test_questions_go_side_by_side_and_no_more_than_a_few() -> None:
    """Of a hundred topics; and all that was missing comes."""
    events = [dated(NOW - 500 + n, topic) for topic in TOPICS for n in range(3)]
    drive = Drive(store_of([]), store_of(events), TOPICS)
    peak = rounds = 0
    while drive.asked:
        peak, rounds = max(peak, len(drive.asked)), rounds + 1
        drive.answer(0.5)
    assert peak == MAX_ASKED
    assert rounds <= 6 + len(TOPICS) / MAX_ASKED
    assert sorted(drive.came) == sorted((each.topic, each.id) for each in events)
    assert drive.session.outcome == COMPLETE


kept = st.lists(st.tuples(st.sampled_from(TOPICS[:8]), st.integers(0, 400)), unique=True)


@settings(max_examples=100)
@given(kept, kept, st.booleans(), st.data())
def test_in_whatever_order_answers_come_everything_comes_once(
    ours: list[tuple[str, int]], its: list[tuple[str, int]], many: bool, data: st.DataObject
) -> None:
    """Of any two histories of some topics, also where they are too long to be listed."""
    shared = [dated(NOW - 900 + n / 2, topic) for topic in TOPICS[6:8] for n in range(500 * many)]
    one, other = (
        store_of([*shared, *[dated(NOW - 5000 + n, topic) for topic, n in drawn]])
        for drawn in (ours, its)
    )
    drive = Drive(one, other, TOPICS[:8])
    while drive.asked:
        assert len(drive.asked) <= MAX_ASKED
        drive.answer(0.5, data.draw(st.sampled_from(sorted(drive.asked))))
    for topic in TOPICS[:8]:
        assert ids_of(one, topic) >= ids_of(other, topic)
    assert len(drive.came) == len({*its} - {*ours})


def test_a_stretch_comes_in_the_order_of_its_dates() -> None:
    """Side by side are topics, and not the pieces of one."""
    events = [dated(NOW - 5000 + n, topic) for topic in TOPICS[:3] for n in range(800)]
    drive = Drive(store_of([]), store_of(events), TOPICS[:3])
    peak = 0
    while drive.asked:
        peak = max(peak, len(drive.asked))
        drive.answer(0.5)
    assert peak == 3
    for topic in TOPICS[:3]:
        came = [event_id for of, event_id in drive.came if of == topic]
        assert came == [each.id for each in events if each.topic == topic]


@pytest.mark.parametrize("lost", [False, True])
def test_slow_and_lost_answers_leave_one_question_at_a_time(lost: bool) -> None:
    """A line that bears no more is not asked for more, until an answer was quick again."""
    events = [dated(NOW - 500 + n, topic) for topic in TOPICS for n in range(3)]
    drive = Drive(store_of([]), store_of(events), TOPICS)
    for _ in range(5):
        drive.answer(0.5)
    assert len(drive.asked) == MAX_ASKED
    if lost:
        assert all(map(drive.session.under_way.unanswered, list(drive.asked)))
        drive.asked.clear()
        drive.go_on()
    else:
        drive.answer(QUICK + 1)
    assert len(drive.asked) == 1
    drive.answer(0.5)
    assert len(drive.asked) == 2
    while drive.asked:
        drive.answer(0.5)
    assert drive.session.outcome == COMPLETE
    assert len(drive.came) == len(events)


def test_a_long_answer_leaves_one_question_at_a_time() -> None:
    """Of events of half a mebibyte not six answers are waited for and held, but one."""
    events = [replace(dated(NOW - 500, topic), data=bytes(LONG + 1)) for topic in TOPICS]
    drive = Drive(store_of([]), store_of(events), TOPICS)
    most = 0
    while drive.asked:
        drive.answer(0.5)
        most = max(most, len(drive.asked))
    assert most == 2, "after the probe, which was answered quickly"
    assert len(drive.came) == len(events)


def test_who_gives_all_there_is_promises_no_more() -> None:
    """Each topic has one event that fills an answer; that there is nothing behind it is no lie."""
    events = [replace(dated(NOW - 500, topic), data=bytes(256 << 10)) for topic in TOPICS]
    full = store_of(events)
    cost = reconcile(store_of([]), lambda body: answer(full, body), topics=TOPICS)
    assert (cost.refused, cost.outcome, cost.events) == ("", COMPLETE, len(TOPICS))
    assert cost.asked == 1 + len(TOPICS)


def test_who_does_not_answer_is_given_up_as_soon_as_before() -> None:
    """Six questions are lost; one of them is put again, twice, and not each of the six."""
    events = [dated(NOW - 500 + n, topic) for topic in TOPICS for n in range(3)]
    drive = Drive(store_of([]), store_of(events), TOPICS)
    for _ in range(5):
        drive.answer(0.5)
    tries = 0
    while True:
        fates = [drive.session.under_way.unanswered(number) for number in list(drive.asked)]
        drive.asked.clear()
        if not all(fates):
            break
        tries += 1
        drive.go_on()
    assert tries == MAX_FAILURES


def test_a_topic_that_a_second_verdict_does_not_know_may_be_left_to_another() -> None:
    """The probe is asked again when a wrong hash was called equal, and who lies says other things
    then. Whatever it says, leaving the topic out fails nobody."""
    session = Session(b"liar", (("news", 0), ("weather", 0)), SALT, 0.0, offered=False, audit=0)
    ours = store_of([dated(NOW - 500), dated(NOW - 500, "weather")])
    verdicts = [
        Verdict((Difference(0, 1, (Span(END, b"differ"),)),)),
        Verdict((Difference(1, 1, (Span(END, b"differ"),)),), (0,)),
    ]
    number = 0
    while verdicts:
        step = session.next(NOW, number)
        assert step is not None
        if isinstance(step, HistoryQuery):
            session.on_worked_out(step.work_out(ours))
        elif isinstance(step, Probe):
            session.on_answered(number, verdicts.pop(0), NOW)
        elif isinstance(step, Compare):
            session.on_answered(number, Compared(), NOW)
        else:
            assert isinstance(step, Fetch)
            session.on_answered(number, Events(), NOW)
        number += 1
    assert set(session.doubtful) == {"news", "weather"}
    for topic in list(session.doubtful):
        session.leave_out(topic)
    assert (session.doubtful, session.compared) == ({}, [])
