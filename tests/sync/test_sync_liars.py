"""Whatever a partner answers: work, memory and time of a session are bounded, and nothing enters
but by the protocol's own checks."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sync_rig import NOW, SALT, Cost, answer, carried, dated, ids_of, reconcile, store_of

from rumormill.core.errors import PeerError
from rumormill.core.history import END, HistoryQuery, Key
from rumormill.sim.journal import Journal
from rumormill.sync.messages import (
    MAX_EVENTS,
    Body,
    Compare,
    Compared,
    Difference,
    Events,
    Fetch,
    Probe,
    SentEvent,
    Span,
    Verdict,
)
from rumormill.sync.session import (
    BAD_ANSWER,
    COMPLETE,
    EQUAL,
    FALSE_EQUAL,
    FORGED,
    MAX_IN_VAIN,
    MAX_INVALID,
    MAX_LEFT,
    Arrived,
    Session,
)
from rumormill.sync.under_way import MAX_ASKED

stamps = st.integers(int((NOW - 5000) * 1e6), int((NOW + 5000) * 1e6))
keys = st.builds(Key, stamps, st.binary(max_size=3))
spans = st.lists(st.tuples(keys, st.sampled_from((b"", b"hash66"))), max_size=20).map(
    lambda found: tuple(
        Span(key, hashed)
        for key, hashed in {key: (key, hashed) for key, hashed in sorted(found)}.values()
    )
)
events = st.lists(
    st.builds(
        SentEvent, st.just(b"a"), st.binary(min_size=1, max_size=9), st.binary(), st.binary()
    ),
    max_size=5,
).map(tuple)
verdicts = st.builds(
    Verdict,
    st.lists(st.builds(Difference, st.integers(0, 3), st.integers(0, 99), spans), max_size=3).map(
        tuple
    ),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
answers = {
    Probe: verdicts,
    Compare: st.builds(Compared, spans, st.none() | keys),
    Fetch: st.builds(Events, events, st.none() | keys, st.integers(0, 31)),
}


def differs(*spans: Span) -> Verdict:
    """Something differs in the news; the weather is not known."""
    return Verdict((Difference(0, 10**6, spans),), (1,))


def played(
    asker: Journal, draw, audit: int = -1, choose: Callable[[list[int]], int] = min
) -> tuple[int, int, str]:
    """A session with a partner that answers as it likes, in the order that it chooses, when nothing
    else is left to do: questions, events offered, its end.

    It is about news, of which the asker has something, and about the weather, of which it has not.
    """
    topics = (("news", 0), ("weather", 0))
    waiting: dict[int, Body] = {}
    session = Session(b"liar", topics, SALT, 0.0, offered=False, audit=audit)
    asked = offered = number = 0
    cost = Cost()
    try:
        while (step := session.next(NOW, number)) is not None or waiting:
            assert len(session._cuts) + sum(map(len, session._wanted.values())) <= 2 * MAX_LEFT
            assert len(session._arrived) <= (1 + MAX_ASKED) * MAX_EVENTS
            assert len(waiting) <= MAX_ASKED
            if isinstance(step, Arrived):
                offered += len(step.events)
                session.note_stored({}, len(step.events), NOW)
                session.storing -= 1
            elif isinstance(step, HistoryQuery):
                session.on_worked_out(step.work_out(asker))
            elif step is not None:
                asked += 1
                waiting[number] = step
            else:
                chosen = choose(list(waiting))
                body = carried(draw(waiting.pop(chosen)), cost)
                session.on_answered(chosen, body, NOW)
            number += 1
    except PeerError as error:
        return asked, offered, error.reason
    return asked, offered, session.outcome


@settings(max_examples=200)
@given(st.data())
def test_an_arbitrary_partner_is_bounded(data: st.DataObject) -> None:
    """It cannot keep a session going, nor fill its memory."""
    one = store_of(dated(NOW - 5000 + n) for n in range(200))
    before = ids_of(one)
    asked, offered, _ = played(
        one,
        lambda body: data.draw(answers[type(body)]),
        choose=lambda waiting: data.draw(st.sampled_from(waiting)),
    )
    assert asked <= MAX_IN_VAIN + MAX_ASKED
    assert offered <= MAX_INVALID + 256
    assert ids_of(one) == before


def test_endless_recursion_ends() -> None:
    """Every range differs, whatever was compared before."""
    one = store_of(dated(NOW - 5000 + n) for n in range(3000))

    def recurses(body: Body) -> Body:
        if isinstance(body, Probe):
            return differs(Span(END, b"differ"))
        if isinstance(body, Compare):
            return Compared(tuple(Span(each.high, each.hash and b"differ") for each in body.spans))
        return Events()

    asked, _, outcome = played(one, recurses)
    assert asked <= MAX_IN_VAIN + MAX_ASKED
    assert outcome == "in vain"


def test_ids_that_do_not_exist_are_asked_for_once() -> None:
    """Ranges that hold nothing when they are fetched."""
    one = store_of([])

    def promises(body: Body) -> Body:
        if isinstance(body, Probe):
            ends = [Key(int((NOW - 5000 + n) * 1e6), b"") for n in range(500)]
            return differs(*[Span(end, b"differ") for end in ends])
        return Events()

    asked, offered, outcome = played(one, promises)
    assert (asked, offered, outcome) == (2, 0, "in vain")


def test_forgers_are_sent_away() -> None:
    """After so many events that the protocol refuses."""
    one = store_of([])

    def forges(body: Body) -> Body:
        if isinstance(body, Probe):
            return differs(Span(END, b"differ"))
        assert isinstance(body, Fetch)
        low = body.wanted[0].low
        forged = tuple(SentEvent(b"a", b"%d" % n, b"", b"") for n in range(256))
        return Events(forged, Key(low.stamp + 1, b""))

    _, offered, outcome = played(one, forges)
    assert outcome == FORGED
    assert offered <= MAX_INVALID + 256


def test_an_answer_outside_its_question_is_none() -> None:
    """Of each kind."""
    one = store_of(dated(NOW - 5000 + n) for n in range(200))
    whole = differs(Span(END, b"differ"))
    for wrong in (
        lambda body: Compared() if isinstance(body, Probe) else Events(),
        lambda body: Verdict((Difference(3, 9, ()),)),
        lambda body: Verdict((Difference(0, 9, ()), Difference(0, 9, ()))),
        lambda body: whole if isinstance(body, Probe) else Compared((), Key(1, b"")),
        lambda body: whole if isinstance(body, Probe) else Compared((Span(END, b"differ"),)),
    ):
        assert played(one, wrong)[2] == BAD_ANSWER


def test_who_withholds_gives_nothing_and_others_are_asked() -> None:
    """It has nothing of a topic, or so it says."""
    full = store_of(dated(NOW - 5000 + n) for n in range(200))
    one = store_of([])
    assert reconcile(one, lambda _: Verdict((), (0,))).events == 0
    assert reconcile(one, lambda body: answer(full, body)).events == 200


def test_nobody_is_equal_to_who_has_nothing() -> None:
    """An answerer that has something differs, and one that has nothing does not know the topic."""
    cost = reconcile(store_of([]), lambda _: Verdict())
    assert (cost.refused, cost.asked) == (FALSE_EQUAL, 1)


@given(st.integers(0, (1 << 32) - 1), st.integers(1, 300))
def test_who_calls_everything_equal_is_found_out(audit: int, count: int) -> None:
    """An audit says a wrong hash, of a range that depends on chance."""
    one = store_of(dated(NOW - 5000 + n) for n in range(count))

    def says_equal(body: Body) -> Body:
        if isinstance(body, Probe):
            return Verdict((), (1,))
        return Compared() if isinstance(body, Compare) else Events()

    asked, _, outcome = played(one, says_equal, audit)
    assert outcome == FALSE_EQUAL
    assert asked == 4, "a probe, two questions of the audit, and the probe again"
    assert played(one, says_equal)[2] == EQUAL, "without an audit it is believed"


@given(st.integers(0, (1 << 32) - 1), st.integers(1, 300))
def test_an_honest_partner_passes_every_audit(audit: int, count: int) -> None:
    """For two questions and some hundred bytes, and nothing is fetched."""
    events = [dated(NOW - 5000 + n) for n in range(count)]
    one, other = store_of(events), store_of(events)
    cost = reconcile(one, lambda body: answer(other, body), audit=audit)
    assert (cost.outcome, cost.refused, cost.asked, cost.events) == (EQUAL, "", 3, 0)
    assert cost.control < 700


@given(st.integers(0, (1 << 32) - 1), st.integers(1, 300))
def test_who_deletes_in_the_middle_of_an_audit_has_not_lied(audit: int, count: int) -> None:
    """Everything is gone between the verdict and the next question, and something new is there."""
    events = [dated(NOW - 5000 + n) for n in range(count)]
    one, full = store_of(events), store_of(events)
    bare = store_of([*events, dated(NOW - 4000)], limit=1)
    partners = iter([full])
    cost = reconcile(one, lambda body: answer(next(partners, bare), body), audit=audit)
    assert (cost.outcome, cost.refused) == (COMPLETE, "")


@pytest.mark.parametrize("count", [3, 60, 500])
def test_audits_find_what_collisions_hide(count: int) -> None:
    """Two sets with the same sums, of no bits: no comparison finds it, one of some audits does."""
    shared = [dated(NOW - 5000 + n) for n in range(count)]
    one = store_of([*shared, dated(NOW - 4999.5, author=b"mallory")], sum_bits=0)
    other = store_of([*shared, dated(NOW - 4999.5, author=b"malware")], sum_bits=0)
    partner = lambda body: answer(other, body)  # noqa: E731
    hidden = ids_of(other) - ids_of(one)
    sessions = 20 * (1 + count // 32)
    for _ in range(sessions):
        assert reconcile(one, partner).outcome == EQUAL
    assert not hidden & ids_of(one)
    for number in range(sessions):
        reconcile(one, partner, audit=number * 0x9E3779B9 % (1 << 32))
    assert hidden <= ids_of(one)
