"""How fast a session goes: within what the partner works out, and within what the disk takes."""

import math
import random
from heapq import heappop, heappush

import pytest
from msgspec.structs import replace
from sync_rig import NOW, SALT, answer, dated, store_of

from rumormill.core.effects import Decline, Effects
from rumormill.core.history import BEGIN, HistoryQuery, Key
from rumormill.core.inputs import Asked, Loaded
from rumormill.core.trace import Refuse
from rumormill.sync.answering import Answering
from rumormill.sync.messages import (
    MAX_EVENTS,
    MAX_SPANS,
    Compare,
    Compared,
    Events,
    Fetch,
    SentEvent,
    Span,
    SyncMessage,
)
from rumormill.sync.partner import Partner
from rumormill.sync.session import MAX_STORING, SLICE, Arrived, Session
from rumormill.sync.under_way import MAX_ASKED

SPANS = tuple(Span(Key(number, b""), b"123456") for number in range(1, MAX_SPANS + 1))
LONGEST = Compare(SALT, b"12345678", BEGIN, SPANS)


def declined(answering: Answering, number: int, now: float) -> bool:
    """Whether the longest question of all is declined; if not, it is answered at once."""
    effects: Effects = []
    asked = Asked(b"asker", number, SyncMessage(LONGEST))
    if answering.take(asked, number, now, {}, effects):
        assert answering.on_loaded(Loaded(number, answer=Compared()), effects)
    return any(isinstance(effect, Decline) for effect in effects)


def test_who_asks_more_than_is_worked_out_for_it_is_declined() -> None:
    """At once a peer gets as much as a thousand losses take, or nearly; not more."""
    answering = Answering()
    fates = [declined(answering, number, NOW) for number in range(40)]
    assert not any(fates[:15])
    assert all(fates[20:])


def test_a_long_question_that_is_declined_counts_as_several() -> None:
    """To read it costs something too: who goes on asking for ranges is cut off as others are."""
    answering, number = Answering(), 0
    while not declined(answering, number, NOW):
        number += 1
    counts = []
    for body in (LONGEST, replace(LONGEST, spans=SPANS[:1])):
        effects: Effects = []
        asked = Asked(b"asker", number, SyncMessage(body))
        assert not answering.take(asked, number, NOW, {}, effects)
        counts += [each.count for each in effects if isinstance(each, Refuse)]
    assert counts == [1 + MAX_SPANS // 64, 1]


@pytest.mark.parametrize(("late", "later"), [(0.2, 0.2), (3.0, 0.0), (3.0, 3.0)])
def test_who_keeps_the_account_is_never_declined(late: float, later: float) -> None:
    """The asker waits as long as it must, however late its questions arrive."""
    chance = random.Random(1)
    partner, answering, now = Partner(outbound=True), Answering(), NOW
    coming: list[tuple[float, int, bool]] = []
    asked = under_way = waited = 0
    while asked < 200 or coming:
        free = asked < 200 and under_way < MAX_ASKED
        wait = partner.wait(LONGEST, now) if free else math.inf
        if not wait:
            asked, under_way = asked + 1, under_way + 1
            there = now + (late if asked <= MAX_ASKED else chance.uniform(0.0, later))
            heappush(coming, (there, asked, False))
            heappush(coming, (there + chance.uniform(0.0, 0.1), asked, True))
        elif coming and coming[0][0] <= now + wait:
            now, number, answered = heappop(coming)
            if answered:
                partner.let_go(LONGEST, now)
                under_way -= 1
            else:
                assert not declined(answering, number, now)
        else:
            now, waited = now + wait, waited + 1
    assert waited or later


def test_more_is_asked_for_while_events_wait_for_the_disk() -> None:
    """Few slices wait, and the next question does not wait for them."""
    empty, full = store_of(()), store_of(dated(NOW - 5000 + n) for n in range(1200))
    session = Session(b"partner", (("news", 0),), SALT, 0.0, offered=False)
    handed: list[tuple[str, SentEvent]] = []
    fetches = number = 0
    while (step := session.next(NOW, number)) is not None:
        if isinstance(step, Arrived):
            assert len(step.events) <= SLICE
            handed += step.events  # and the disk says nothing
        elif isinstance(step, HistoryQuery):
            session.on_worked_out(step.work_out(empty))
        else:
            fetches += isinstance(step, Fetch)
            session.on_answered(number, answer(full, step), NOW)
        number += 1
    assert session.storing == MAX_STORING
    assert session.is_waiting
    assert fetches == 1 + math.ceil(MAX_STORING * SLICE / MAX_EVENTS), "one is ahead"
    assert len(handed) == MAX_STORING * SLICE
    session.storing -= 1
    assert isinstance(session.next(NOW, number), Arrived)


def test_large_events_wait_for_the_disk_by_their_bytes() -> None:
    """Of a mebibyte each, a few are held, and not as many as of two hundred bytes."""
    mebibyte = bytes(1 << 20)
    large = [replace(dated(NOW - 5000 + n), data=mebibyte) for n in range(100)]
    empty, full = store_of(()), store_of(large)
    session = Session(b"partner", (("news", 0),), SALT, 0.0, offered=False)
    came = handed = number = 0
    while (step := session.next(NOW, number)) is not None:
        if isinstance(step, Arrived):
            assert len(step.events) == 1
            handed += 1
        elif isinstance(step, HistoryQuery):
            session.on_worked_out(step.work_out(empty))
        else:
            found = answer(full, step)
            came += len(found.events) if isinstance(found, Events) else 0
            session.on_answered(number, found, NOW)
        number += 1
    assert (came, handed) == (MAX_STORING + 1, MAX_STORING)
