"""Partners that go away, or do not say a word, in the middle of something: others are asked, nobody
waits for them longer than is said, and what is waited for has an end."""

import pytest
from sync_rig import NOW, SALT, dated, store_of
from sync_stage import Stage

from rumormill.core.effects import Answer, Effects, Outcome
from rumormill.core.history import END, HistoryQuery, Key
from rumormill.core.inputs import Input
from rumormill.core.machine import Machine
from rumormill.sync.copies import CountCopies
from rumormill.sync.messages import Difference, Events, Fetch, Span, Verdict
from rumormill.sync.session import GAVE_UP, HOPE, PATIENCE, Session
from rumormill.sync.wishes import SyncNow, SyncReport

TOPICS = tuple(f"topic {number}" for number in range(100))
WORDS = ("one", "two", "three", "four", "five")


class Silent:
    """An honest peer whose runtime does not send the events that it is asked for."""

    def __init__(self, honest: Machine) -> None:
        self._honest = honest
        self.view = honest.view

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        wanted: Effects = []
        self._honest.handle(event, now, wanted)
        for effect in wanted:
            if not isinstance(effect, Answer) or not isinstance(
                getattr(effect.message, "body", None), Events
            ):
                effects.append(effect)


def two_who_have_all(topics: tuple[str, ...]) -> Stage:
    """Two peers have heard five words in each topic, a while ago."""
    stage = Stage(2)
    stage.connect(1, 0)
    for topic in topics:
        stage.subscribe(0, topic)
        stage.subscribe(1, topic)
    stage.run(10)
    for topic in topics:
        stage.publish(0, *WORDS, topic=topic, every=0.01)
    stage.run(20)
    return stage


@pytest.mark.parametrize("after", [1.0, 1.2, 1.5, 2.0])
def test_what_a_partner_did_not_give_before_it_went_another_gives(after: float) -> None:
    """With several questions under way in many topics; nothing comes twice, and it is soon."""
    stage = two_who_have_all(TOPICS)
    late = stage.add()
    for topic in TOPICS:
        stage.subscribe(late, topic, since=0.0)
    stage.connect(late, 0)
    stage.connect(late, 1)
    stage.run(after)
    stage.network.crash(stage.host(0))
    stage.run(10)
    assert len(stage.words(late)) == len(stage.journal(late)) == len(TOPICS) * len(WORDS)


def test_nobody_keeps_a_topic_to_himself() -> None:
    """Who says that it has what is missing, and gives nothing, is waited for ten seconds by the
    others; not until it is given up."""
    stage = two_who_have_all(("news",))
    host = stage.host(0)
    stage.network.replace_machine(host, Silent(host.machine))
    stage.subscribe(0)
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    stage.run(2)
    stage.connect(late, 1)
    stage.run(HOPE - 2)
    assert stage.words(late) == []
    stage.run(8)
    assert sorted(stage.words(late)) == sorted(WORDS)
    assert stage.sessions(late)[-1].events == len(WORDS), "and the silent one's is not over"


def test_a_session_that_gets_nothing_for_a_minute_is_over() -> None:
    """Though its partner answers every question in time, and says that there is more."""
    ours = store_of(dated(NOW - 500 + n) for n in range(10))
    session = Session(b"liar", (("news", 0), ("weather", 0)), SALT, 0.0, offered=False)
    now, number, asked = NOW, 0, 0
    while (step := session.next(now, number)) is not None:
        if isinstance(step, HistoryQuery):
            session.on_worked_out(step.work_out(ours))
        else:
            now, asked = now + 9.0, asked + 1
            more = Verdict((Difference(0, 99, (Span(END, b"differ"),)),), (1,))
            if isinstance(step, Fetch):
                low = step.wanted[0].low
                session.on_answered(number, Events((), Key(low.stamp + 1, b"")), now)
            else:
                session.on_answered(number, more, now)
        number += 1
    assert not session.is_waiting
    assert session.outcome == GAVE_UP
    assert asked <= 1 + PATIENCE / 9.0 + 1


def test_copies_are_counted_with_who_is_left_and_who_comes() -> None:
    """Of two who should have an event one goes before it has it; a third comes, and counts."""
    stage = Stage(3)
    for peer in range(3):
        stage.subscribe(peer)
    stage.connect(1, 0)
    stage.connect(2, 0)
    stage.run(10)
    stage.network.crash(stage.host(2))
    stage.publish(0, "word", every=0.0)
    event_id = next(iter(stage.journal(0)._order))[1]
    found: list[Outcome] = []
    stage.host(0).command(CountCopies("news", event_id, 2, 60.0), found.append)
    stage.run(20)
    assert found == [], "one has it, and the other is away"
    third = stage.add()
    stage.subscribe(third, since=0.0)
    stage.connect(third, 0)
    stage.run(10)
    assert [each.result for each in found] == [2]
    stage.host(0).command(CountCopies("news", event_id, 3, 5.0), found.append)
    for peer in (1, third):
        stage.network.crash(stage.host(peer))
    stage.run(5.1)
    assert [each.result for each in found] == [2, 0], "nobody is left to ask"


def test_who_waits_for_a_comparison_does_not_wait_for_who_has_gone() -> None:
    """With a hundred topics: the report comes when the last partner that is left has answered."""
    stage = two_who_have_all(TOPICS)
    host = stage.host(0)
    stage.network.replace_machine(host, Silent(host.machine))
    for topic in TOPICS:
        stage.subscribe(0, topic)
    late = stage.add()
    for topic in TOPICS:
        stage.subscribe(late, topic, since=0.0)
    stage.connect(late, 0)
    stage.connect(late, 1)
    stage.run(0.1)
    reports: list[Outcome] = []
    stage.host(late).command(SyncNow(), reports.append)
    stage.run(3)
    assert reports == []
    stage.network.crash(host)
    stage.run(12)
    assert [each.result for each in reports] == [SyncReport(2, 1, len(stage.words(late)))]
    assert len(stage.words(late)) == len(TOPICS) * len(WORDS)
