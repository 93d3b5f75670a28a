"""Questions that are lost are put again, and nothing is asked that nobody needs."""

import pytest
from kad_rig import KEY, VALUE, Rig

from rumormill.core.effects import Ask, SetTimer
from rumormill.core.inputs import NO_ANSWER, Answered, AskFailed
from rumormill.overlay.kademlia.messages import KadMessage, KadType, Record
from rumormill.overlay.kademlia.operations import KadTimer


def test_a_question_without_an_answer_is_put_again_within_its_time() -> None:
    """Soon, then after twice as long, then until its time is over; and only then has it failed."""
    rig = Rig(ask_timeout=5.0)
    rig.befriend(b"a")
    rig.do("find_closest", b"target")
    waits = []
    for _ in range(3):
        (ask,) = rig.all(Ask)
        assert ask.peer == b"a"
        waits.append(ask.timeout)
        assert not rig.results
        rig.now += ask.timeout
        rig.give(AskFailed(b"a", ask.number, NO_ANSWER))
    assert sum(waits) == pytest.approx(5.0)
    assert waits[0] <= 1.0
    assert waits[1] == pytest.approx(2 * waits[0])
    assert not rig.all(Ask)
    assert [result.failed for result in rig.results] == [1]
    assert rig.kad.closest(b"target") == [], "it has failed once"


def test_one_answer_to_any_of_them_is_enough() -> None:
    """The contact has not failed, and the walk goes on."""
    rig = Rig()
    rig.befriend(b"a")
    rig.do("find_closest", b"target")
    (ask,) = rig.all(Ask)
    rig.give(AskFailed(b"a", ask.number, NO_ANSWER))
    (again,) = rig.all(Ask)
    assert again.message is ask.message
    rig.answer([again])
    assert [result.peers for result in rig.results] == [(b"a",)]
    assert rig.kad.closest(b"target") == [b"a"]


def test_whoever_cannot_be_reached_is_not_asked_again() -> None:
    """That is an answer of a kind."""
    rig = Rig()
    rig.befriend(b"a")
    rig.do("find_closest", b"target")
    (ask,) = rig.all(Ask)
    rig.give(AskFailed(b"a", ask.number, "refused"))
    assert not rig.all(Ask)
    assert [result.failed for result in rig.results] == [1]


def test_a_store_that_is_lost_is_put_again() -> None:
    """A record is not a holder short because one message was."""
    rig = Rig()
    rig.befriend(b"a")
    rig.do("put_value", KEY, VALUE)
    (put,) = rig.answer(rig.all(Ask))
    assert put.message.type is KadType.PUT_VALUE  # type: ignore[attr-defined]
    rig.give(AskFailed(b"a", put.number, NO_ANSWER))
    (again,) = rig.all(Ask)
    rig.give(Answered(b"a", again.number, KadMessage(KadType.PUT_VALUE, KEY, brief=True)))
    assert [result.stored for result in rig.results] == [1]


def test_a_small_table_that_has_grown_is_not_refreshed_again() -> None:
    """Who joins among the first repeats its lookups soon, but only while it knows few."""
    for grown in (False, True):
        rig = Rig(k=4)
        rig.befriend(b"a")
        rig.fire("refresh")
        while asked := rig.all(Ask):
            rig.answer(asked)
        if grown:
            rig.befriend(b"b", b"c", b"d", b"e")
        rig.fire("refresh")
        assert bool(rig.all(Ask)) is not grown
        (timer,) = [each for each in rig.all(SetTimer) if each.timer == KadTimer("refresh")]
        assert (timer.at - rig.now > 500.0) is grown
        if grown:
            rig.fire("refresh")
            assert rig.all(Ask), "the usual one takes place"


def test_a_search_for_a_value_asks_more_only_when_each_path_has_been_disappointed() -> None:
    """Most searches end with the first questions: whatever else is asked meanwhile is for nothing.
    Each answer without the value makes room for one more question, the third for all."""
    rig = Rig(k=20, alpha=3, paths=3)
    rig.befriend(*(b"peer-%d" % number for number in range(20)))
    rig.do("get_value", KEY)
    first = rig.all(Ask)
    assert len(first) == 3
    counts = [len(rig.answer([ask])) for ask in first]
    assert counts[:2] == [1, 1]
    assert counts[2] > 1
    rig = Rig(k=20, alpha=3, paths=3)
    rig.befriend(*(b"peer-%d" % number for number in range(20)))
    rig.do("get_value", KEY)
    (holder, *_) = rig.all(Ask)
    assert not rig.answer([holder], record=Record(KEY, VALUE))
    assert [result.value for result in rig.results] == [VALUE]
