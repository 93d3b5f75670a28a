"""What a record costs: brief answers, holders that are known, one question where one is enough."""

import pytest
from kad_rig import KEY, OWN, VALUE, Rig

from rumormill.core.effects import Ask
from rumormill.core.inputs import Answered, AskFailed
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType, Record
from rumormill.overlay.kademlia.table import position

RECORD = Record(KEY, VALUE)
PEERS = tuple(b"p%d" % number for number in range(40))


def know(rig: Rig, *peers: bytes) -> None:
    """Let peers be contacts, as far as buckets have room."""
    for peer in peers:
        rig.kad.contacts.answered(peer, rig.now, [])


def types(asked: list[Ask]) -> list[KadType]:
    """What was asked."""
    return [ask.message.type for ask in asked]  # type: ignore[attr-defined]


def closest(count: int) -> set[bytes]:
    """The peers closest to the key, of all."""
    target = position(KEY)
    return set(sorted(PEERS, key=lambda peer: position(peer) ^ target)[:count])


class TestBriefAnswers:
    """A server tells a brief asker no more than it needs, and everybody else what it always did."""

    def test_a_stored_value_is_confirmed_without_a_copy(self) -> None:
        """The answer names the key."""
        rig = Rig()
        put = KadMessage(KadType.PUT_VALUE, KEY, RECORD, brief=True)
        assert rig.ask(b"a", put) == KadMessage(KadType.PUT_VALUE, KEY, brief=True)
        assert rig.ask(b"b", KadMessage(KadType.PUT_VALUE, KEY, RECORD)) is not None
        (answer,) = rig.effects[:1]
        assert answer.message.record == RECORD  # type: ignore[attr-defined]

    def test_a_value_comes_without_closer_peers_and_nothing_with_them(self) -> None:
        """Who has no value sends the asker on."""
        rig = Rig()
        rig.befriend(b"b", b"c")
        question = KadMessage(KadType.GET_VALUE, KEY, brief=True)
        answer = rig.ask(b"a", question)
        assert answer is not None
        assert (answer.record, len(answer.closer)) == (None, 2)
        rig.ask(b"b", KadMessage(KadType.PUT_VALUE, KEY, RECORD))
        answer = rig.ask(b"a", question)
        assert answer is not None
        assert answer.record is not None
        assert (answer.record.value, answer.closer) == (VALUE, ())
        answer = rig.ask(b"a", KadMessage(KadType.GET_VALUE, KEY))
        assert answer is not None
        assert len(answer.closer) == 2

    def test_who_only_sees_whether_we_are_there_is_told_of_nobody(self) -> None:
        """It asks for its own id; others who are brief are answered as ever."""
        rig = Rig()
        rig.befriend(b"b", b"c")
        answer = rig.ask(b"a", KadMessage(KadType.FIND_NODE, b"a", brief=True))
        assert answer is not None
        assert answer.closer == ()
        answer = rig.ask(b"a", KadMessage(KadType.FIND_NODE, b"x", brief=True))
        assert answer is not None
        assert len(answer.closer) == 2

    def test_a_brief_answer_for_another_key_stores_nothing(self) -> None:
        """A holder must say what it holds."""
        rig = Rig(holders=2, k=4)
        know(rig, *PEERS)
        rig.do("put_value", KEY, VALUE)
        one, other = rig.all(Ask)
        rig.give(Answered(one.peer, one.number, KadMessage(KadType.PUT_VALUE, KEY, brief=True)))
        rig.give(Answered(other.peer, other.number, KadMessage(KadType.PUT_VALUE, b"", brief=True)))
        (result,) = rig.results
        assert (result.stored, result.failed) == (1, 1)


class TestHolders:
    """Fewer holders than k, put there without a walk where they are known."""

    def test_who_knows_the_neighbourhood_of_a_key_puts_a_record_there_at_once(self) -> None:
        """At peers that everybody who looks for it asks."""
        rig = Rig(holders=3, k=8)
        know(rig, *PEERS)
        rig.do("put_value", KEY, VALUE)
        asked = rig.all(Ask)
        assert types(asked) == [KadType.PUT_VALUE] * 3
        assert {ask.peer for ask in asked} <= closest(8)

    def test_who_knows_too_few_walks(self) -> None:
        """And puts the record at the closest that it has found."""
        rig = Rig(holders=3, k=8, alpha=8)
        know(rig, *PEERS[:2])
        rig.do("put_value", KEY, VALUE)
        asked = rig.all(Ask)
        assert types(asked) == [KadType.FIND_NODE] * 2
        puts = []
        while asked and types(asked)[0] is KadType.FIND_NODE:
            named = tuple(map(KadPeer, closest(8)))
            asked = rig.answer(asked, closer=named)
            puts = asked
        assert types(puts) == [KadType.PUT_VALUE] * 3
        assert {ask.peer for ask in puts} <= closest(8)

    @pytest.mark.parametrize("gone", [1, 2])
    def test_a_walk_follows_when_most_of_them_are_gone(self, gone: int) -> None:
        """With three holders, two that have it are enough."""
        rig = Rig(holders=3, k=8)
        know(rig, *PEERS)
        rig.do("put_value", KEY, VALUE)
        asked = rig.all(Ask)
        for ask in asked[:gone]:
            rig.give(AskFailed(ask.peer, ask.number, "gone"))
        for ask in asked[gone:]:
            stored = KadMessage(KadType.PUT_VALUE, KEY, brief=True)
            rig.give(Answered(ask.peer, ask.number, stored))
        if gone == 1:
            assert [result.stored for result in rig.results] == [2]
        else:
            assert rig.results == []
            assert KadType.FIND_NODE in types(rig.all(Ask))

    def test_by_default_a_record_has_k_holders_and_is_put_after_a_walk(self) -> None:
        """As in the paper."""
        rig = Rig(k=8)
        know(rig, *PEERS)
        rig.do("put_value", KEY, VALUE)
        assert set(types(rig.all(Ask))) == {KadType.FIND_NODE}


class TestOneValue:
    """A search for a value that proves itself."""

    def test_it_asks_one_peer_a_path_and_one_more_each_second(self) -> None:
        """So a lost question does not hold it up, and little is asked in vain."""
        rig = Rig(paths=3, alpha=3)
        know(rig, *PEERS)
        number = rig.do("get_value", KEY)
        assert len(rig.all(Ask)) == 3
        for _ in range(2):
            rig.fire("slow", number)
            assert len(rig.all(Ask)) == 3
        (first, *_) = rig.all(Ask)
        answer = KadMessage(KadType.GET_VALUE, KEY, RECORD, brief=True)
        rig.give(Answered(first.peer, first.number, answer))
        assert [result.value for result in rig.results] == [VALUE]
        rig.fire("slow", number)
        assert rig.all(Ask) == []

    def test_where_several_values_are_wanted_it_asks_as_ever(self) -> None:
        """Each answer may lead to better ones."""
        rig = Rig(paths=3, alpha=3, quorum=2)
        know(rig, *PEERS)
        rig.do("get_value", KEY)
        asked = rig.all(Ask)
        assert len(asked) == 9
        assert not any(ask.message.brief for ask in asked)  # type: ignore[attr-defined]
        assert OWN not in {ask.peer for ask in asked}
