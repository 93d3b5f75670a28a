"""What sync promises, whatever happens: nothing enters but by validation, a crash at any point
loses nothing, clocks may step, and an answerer's work is bounded whatever it is asked."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sync_rig import NOW, SALT, answer, dated, ids_of, reconcile, store_of
from sync_stage import Stage

from rumormill.core.effects import Answer, Ask, Effects
from rumormill.core.event import Event
from rumormill.core.history import END, Key, Window, topic_tag
from rumormill.core.inputs import Input
from rumormill.core.inputs import Verdict as Judgement
from rumormill.core.machine import Machine, View
from rumormill.protocols.registry import Hooks
from rumormill.sync.answering import TOO_OFTEN
from rumormill.sync.messages import (
    MAX_EVENTS,
    MAX_SPANS,
    MAX_TOPICS,
    Compare,
    Compared,
    Events,
    Fetch,
    Probe,
    ProbedTopic,
    SentEvent,
    Span,
    SyncMessage,
    Verdict,
    Wanted,
    encode_sync,
)
from rumormill.sync.session import COMPLETE, EQUAL, FORGED

MINUTE = 60.0
SYNCED = ("gossipsub", "floodsub", "radius")
WORDS = tuple(f"word {number}" for number in range(40))


def speaker(name: str = "floodsub", **journal: Any) -> Stage:
    """Somebody has said forty words."""
    stage = Stage(0, name=name)
    stage.add(**journal)
    stage.subscribe(0)
    stage.publish(0, *WORDS, every=0.1)
    stage.run(20)
    return stage


class Altering:
    """An honest peer whose runtime changes the events that it gives."""

    def __init__(self, honest: Machine, change: Any) -> None:
        self._honest, self._change = honest, change
        self.view = honest.view

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        wanted: Effects = []
        self._honest.handle(event, now, wanted)
        for effect in wanted:
            message: Any = effect.message if isinstance(effect, Answer) else None
            if message is not None and isinstance(message.body, Events):
                body = message.body
                changed = tuple([self._change(each) for each in body.events])
                altered = Events(changed, body.next, body.place)
                effects.append(Answer(effect.number, SyncMessage(altered)))  # type: ignore[attr-defined]
            else:
                effects.append(effect)


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:] if data else b"x"


CHANGES = {
    "data": lambda e: SentEvent(e.author, e.id, flipped(e.data), e.proof),
    "author": lambda e: SentEvent(flipped(e.author), e.id, e.data, e.proof),
    "id": lambda e: SentEvent(e.author, flipped(e.id), e.data, e.proof),
    "proof": lambda e: SentEvent(e.author, e.id, e.data, flipped(e.proof)),
    "no proof": lambda e: SentEvent(e.author, e.id, e.data, b""),
}


@pytest.mark.parametrize("name", SYNCED)
@pytest.mark.parametrize("what", CHANGES)
def test_nothing_enters_that_its_author_has_not_signed(name: str, what: str) -> None:
    """One who has everything changes what it gives; another, who does not, comes later."""
    stage = speaker(name)
    host = stage.host(0)
    stage.network.replace_machine(host, Altering(host.machine, CHANGES[what]))
    stage.subscribe(0)
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    stage.run(2 * MINUTE)
    assert stage.words(late) == []
    assert len(stage.journal(late)) == 0
    assert stage.refused(late)[FORGED] >= 1
    assert len(stage.sessions(late)) <= 8, "and it is not asked for ever"


@pytest.mark.parametrize("name", SYNCED)
def test_nobody_is_blamed_for_what_our_own_rules_refuse(name: str) -> None:
    """More of it than a forger is forgiven: all else is fetched, and what was refused once is not
    asked for again."""
    stage = speaker(name)
    stage.subscribe(0)
    judged: list[bytes] = []

    def judge(event: Event, _: bytes) -> Judgement:
        judged.append(event.data)
        return Judgement.ACCEPT if event.data.endswith(b"9") else Judgement.REJECT

    late = stage.add(Hooks(validator=judge))
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    stage.run(2 * MINUTE)
    assert stage.words(late) == [word for word in WORDS if word.endswith("9")]
    assert sorted(judged) == sorted(word.encode() for word in WORDS)
    assert stage.refused(late) == {}
    assert {each.outcome for each in stage.sessions(late)} == {COMPLETE, EQUAL}


@settings(max_examples=25, deadline=None)
@given(
    crashes=st.lists(st.tuples(st.sampled_from([0, 1]), st.floats(0, 4)), min_size=1, max_size=4),
    delay=st.sampled_from([0.0, 0.03]),
    keep=st.booleans(),
)
def test_a_crash_at_any_point_loses_and_repeats_nothing(
    crashes: list[tuple[int, float]], delay: float, keep: bool
) -> None:
    """Asker or answerer go down in the middle of a session, with what was not on the disk yet."""
    stage = speaker(commit_delay=delay)
    late = stage.add(commit_delay=delay)
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    for who, after in crashes:
        stage.run(after)
        stage.network.crash(stage.host(who))
        stage.run(1)
        stage.network.start(stage.host(who), keep_state=keep)
        stage.subscribe(who, since=0.0)
        stage.connect(late, 0)
    stage.run(2 * MINUTE)
    assert sorted(stage.words(late)) == sorted(WORDS)
    assert ids_of(stage.journal(late)) == ids_of(stage.journal(0))


@given(
    st.lists(
        st.tuples(st.integers(-4000, 4000), st.booleans()), max_size=40, unique_by=lambda d: d[0]
    ),
    st.lists(st.integers(-5000, 5000), max_size=5),
)
def test_clocks_may_step(dates: list[tuple[int, bool]], steps: list[int]) -> None:
    """Authors' clocks were wrong by an hour, and the asker's goes forth and back between sessions.
    When it is later than what anybody has dated, everything is here; nothing comes twice."""
    events = [dated(NOW + skew) for skew, _ in dates]
    one = store_of(event for event, (_, known) in zip(events, dates, strict=True) if known)
    other, had = store_of(events), len(ids_of(one))
    costs = [reconcile(one, lambda body: answer(other, body), now=NOW + step) for step in steps]
    costs.append(reconcile(one, lambda body: answer(other, body), now=NOW + 5000))
    assert ids_of(one) == ids_of(other)
    assert sum(cost.events for cost in costs) == len(events) - had
    assert {cost.refused for cost in costs} == {""}


def named_by_content(_topic: str, data: bytes, _author: bytes, _number: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_events_without_a_date_come_too() -> None:
    """Their ids say nothing of time; when somebody deletes one, such are compared no more."""
    stage = Stage(0)
    hooks = Hooks(message_id=named_by_content)
    for _ in range(2):
        stage.subscribe(stage.add(hooks))
    stage.publish(0, *WORDS[:20])
    stage.connect(1, 0)
    stage.run(MINUTE)
    assert sorted(stage.words(1)) == sorted(WORDS[:20])
    few = stage.add(hooks, limit=5)
    stage.subscribe(few, since=0.0)
    stage.connect(few, 0)
    stage.run(10 * MINUTE)
    assert len(stage.words(few)) == len(set(stage.words(few))) >= 5
    assert len(stage.journal(few)) == 5
    assert stage.sessions(few)[-1].outcome == "equal", "nothing is left to be asked for"


# The answerer.

TAG = topic_tag("news")
stamps = st.integers(0, 2**63 - 1) | st.integers(int((NOW - 6000) * 1e6), int(NOW * 1e6))
keys = st.builds(Key, stamps, st.binary(max_size=9))
hashes = st.sampled_from([b"", b"hash66"])
spans = st.lists(st.tuples(keys, hashes), max_size=60, unique_by=lambda each: each[0]).map(
    lambda found: tuple(Span(key, hashed) for key, hashed in sorted(found))
)
wanted = st.tuples(keys, keys, st.integers(0, 64)).map(
    lambda drawn: Wanted(min(drawn[:2]), max(drawn[:2]), bytes(6 * drawn[2]))
)
windows = st.builds(Window, stamps, st.booleans(), st.booleans())
questions = st.one_of(
    st.builds(
        Probe,
        st.just(SALT),
        stamps,
        stamps,
        st.lists(st.builds(ProbedTopic, st.just(TAG), st.just(b"hash66"), windows)).map(tuple),
    ),
    st.builds(Compare, st.just(SALT), st.just(TAG), keys, spans),
    st.builds(Fetch, st.just(SALT), st.just(TAG), st.lists(wanted, max_size=32).map(tuple)),
)
FULL = store_of(dated(NOW - 5000 + n) for n in range(3000))


@settings(max_examples=200)
@given(questions)
def test_whatever_is_asked_the_answer_is_short(question: Any) -> None:
    """Never more ranges, events or bytes than a message may hold."""
    told = answer(FULL, question)
    if isinstance(told, Events):
        assert len(told.events) <= MAX_EVENTS
        assert len(encode_sync(SyncMessage(told))) <= 512 << 10
    elif isinstance(told, Compared):
        assert len(told.spans) <= MAX_SPANS
    else:
        assert isinstance(told, Verdict)
        assert sum(len(each.spans) for each in told.differences) <= MAX_SPANS * MAX_TOPICS
    assert len(FULL) == 3000


class Nagging:
    """A peer that asks for everything, a thousand times a second."""

    def __init__(self, peer: bytes) -> None:
        self._peer = peer
        self.answers = self.failures = self.number = 0

    def view(self) -> View:
        return View()

    def ask(self, effects: Effects) -> None:
        self.number += 1
        body = Fetch(SALT, TAG, (Wanted(Key(0, b""), END),))
        effects.append(Ask(self._peer, self.number, SyncMessage(body), 5.0))

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        self.answers += type(event).__name__ == "Answered"
        self.failures += type(event).__name__ == "AskFailed"


def test_who_asks_too_much_is_declined_and_counted() -> None:
    """A peer has so much of an answerer's work to spend; others are served as before."""
    stage = speaker()
    nag = Nagging(stage.host(0).id)
    at = stage.add(build=lambda _peer, _rng: nag)
    stage.connect(at, 0)
    stage.run(1)
    for _ in range(4000):
        nag.ask(stage.host(at).effects)
        stage.host(at).carry_out()
        stage.run(0.001)
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    stage.run(MINUTE)
    assert nag.answers + nag.failures == 4000
    assert nag.answers <= (8192 + 1024 * 5) / 8, "eight and more for each fetch, in five seconds"
    assert stage.refused(0)[TOO_OFTEN] == nag.failures
    assert sorted(stage.words(late)) == sorted(WORDS)
