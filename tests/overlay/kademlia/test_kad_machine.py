"""Kademlia as a machine: each rule of asking, answering, believing and forgetting by itself."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kad_net import cid, key_of
from kad_rig import KEY, OWN, VALUE, Newest, Rig

from rumormill.core import trace
from rumormill.core.effects import (
    Ask,
    CancelTimer,
    Decline,
    Disconnect,
    Effect,
    Learn,
    Outcome,
    SetTimer,
)
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.inputs import (
    Answered,
    Asked,
    AskFailed,
    Command,
    ConnectFailed,
    PeerConnected,
    PeerDisconnected,
    Start,
    Subscribe,
    TimerFired,
)
from rumormill.core.machine import View
from rumormill.overlay.kademlia import rfc3339
from rumormill.overlay.kademlia.answers import WRONG_ANSWER
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.contacts import CLIENT_MEMORY
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType, Record
from rumormill.overlay.kademlia.operations import (
    BUSY,
    NO_PEERS,
    NOT_FOUND,
    NOT_STORED,
    TIMED_OUT,
    KadTimer,
    LookupKind,
    LookupResult,
)
from rumormill.overlay.kademlia.peer import KademliaPeer
from rumormill.overlay.kademlia.server import (
    BANNED,
    CLIENT,
    EXPIRED,
    FOREIGN_PROVIDER,
    NO_RECORD,
    NOT_A_QUESTION,
    WORSE_VALUE,
)
from rumormill.overlay.kademlia.table import CROWDED
from rumormill.overlay.kademlia.validators import (
    BAD_KEY,
    NO_VALIDATOR,
    WRONG_HASH,
)


def record(value: bytes = VALUE, key: bytes = KEY, date: str = "") -> Record:
    return Record(key, value, date)


class TestWhoIsAContact:
    """Only who answered a question of ours is in the table."""

    def test_whoever_connects_is_asked_for_our_own_id(self) -> None:
        """And is a contact when it answers; the old PING is never sent."""
        rig = Rig()
        rig.give(PeerConnected(b"a", "/p"))
        (ask,) = rig.all(Ask)
        assert ask.message == KadMessage(KadType.FIND_NODE, OWN, brief=True)
        assert rig.kad.closest(b"a") == []
        rig.give(Answered(b"a", ask.number, KadMessage(KadType.FIND_NODE)))
        assert rig.kad.closest(b"a") == [b"a"]

    def test_whoever_asks_is_asked_back_before_it_is_named(self) -> None:
        """A client asks too, and must not get into tables by that."""
        rig = Rig()
        rig.ask(b"client", KadMessage(KadType.FIND_NODE, b"x"))
        (ask,) = rig.all(Ask)
        rig.give(AskFailed(b"client", ask.number, "protocol not spoken"))
        assert rig.kad.closest(b"client") == []
        rig.ask(b"client", KadMessage(KadType.FIND_NODE, b"x"))
        assert rig.all(Ask) == []
        rig.now += CLIENT_MEMORY
        rig.ask(b"client", KadMessage(KadType.FIND_NODE, b"x"))
        assert len(rig.all(Ask)) == 1

    def test_peers_that_others_name_are_not_contacts(self) -> None:
        """They become contacts by answering."""
        rig = Rig()
        rig.befriend(b"a")
        rig.do("find_closest", b"x")
        (follow_up,) = rig.answer(rig.all(Ask), closer=(KadPeer(b"b"),))
        assert follow_up.peer == b"b"
        assert b"b" not in rig.kad.contacts.table
        rig.answer([follow_up])
        assert b"b" in rig.kad.contacts.table

    def test_the_silent_contact_is_asked_before_it_loses_its_place(self) -> None:
        """It keeps the place when it answers, and the newcomer gets it when it does not."""
        for alive in (True, False):
            rig = Rig(k=1, recheck_after=60.0)
            rig.befriend(b"a")
            same = next(
                peer
                for peer in (b"n%d" % number for number in range(100))
                if rig.kad.contacts.table.bucket_of(peer) == rig.kad.contacts.table.bucket_of(b"a")
            )
            rig.now += 61.0
            rig.effects = []
            rig.kad.contacts.answered(same, rig.now, rig.effects)
            (check,) = rig.all(Ask)
            assert check.peer == b"a"
            if alive:
                rig.give(Answered(b"a", check.number, KadMessage(KadType.FIND_NODE)))
            else:
                rig.give(AskFailed(b"a", check.number, "gone"))
            assert rig.kad.closest(b"x") == [b"a" if alive else same]

    def test_a_contact_that_fails_twice_is_gone(self) -> None:
        """After the first failure it is named to nobody."""
        rig = Rig()
        rig.befriend(b"a")
        rig.give(ConnectFailed(b"a", "refused"))
        assert rig.kad.closest(b"a") == []
        assert b"a" in rig.kad.contacts.table
        rig.give(ConnectFailed(b"a", "refused"))
        assert b"a" not in rig.kad.contacts.table

    def test_a_contact_that_died_is_one_again_when_it_asks(self) -> None:
        """Only who never answered may be a client: a peer that comes back is heard at once, not
        after ten minutes, and whoever hears of contacts hears of it."""
        rig = Rig()
        rig.befriend(b"a")
        for _ in range(2):
            rig.give(ConnectFailed(b"a", "refused"))
        assert b"a" not in rig.kad.contacts.table
        rig.now += rig.kad.config.ask_timeout
        rig.ask(b"a", KadMessage(KadType.FIND_NODE, b"a"))
        heard = len(rig.met)
        rig.answer(rig.all(Ask))
        assert b"a" in rig.kad.contacts.table
        assert rig.met[heard:] == [b"a"]

    def test_a_disconnected_contact_stays(self) -> None:
        """Contacts need no connection: they are dialled when they are asked."""
        rig = Rig()
        rig.befriend(b"a")
        rig.give(PeerDisconnected(b"a"))
        assert rig.kad.closest(b"a") == [b"a"]

    def test_many_peers_of_one_network_are_refused_and_of_loopback_are_not(self) -> None:
        """Ten public neighbours of one /24 at most; fifty peers on 127.0.0.1 all get in."""
        rig = Rig(per_subnet_table=10, per_subnet_bucket=20)
        rig.befriend(*(b"local-%d" % number for number in range(20)), address="127.0.0.1")
        rig.befriend(*(b"public-%d" % number for number in range(10)), address="8.8.8.8")
        rig.give(PeerConnected(b"public-10", "/p", address="8.8.8.9"))
        (ask,) = rig.all(Ask)
        rig.give(Answered(b"public-10", ask.number, KadMessage(KadType.FIND_NODE)))
        assert rig.refused == [CROWDED]
        assert b"public-10" not in rig.kad.contacts.table

    def test_checks_in_flight_are_bounded(self) -> None:
        """A crowd that connects at once is asked a few at a time, the rest at the next upkeep."""
        rig = Rig(checks=3)
        asked = []
        for number in range(10):
            rig.give(PeerConnected(b"p%d" % number, "/p"))
            asked += rig.all(Ask)
        assert len(asked) == 3
        rig.answer(asked)
        rig.fire("tick")
        assert len(rig.all(Ask)) == 3


class TestAnswers:
    """What a server says."""

    def test_find_node_names_the_closest_contacts_with_their_addresses(self) -> None:
        """The asker itself is left out, and at most k are named."""
        where = {b"a": tuple(b"%d" % number for number in range(30))}
        rig = Rig(k=3, addresses=where)
        rig.befriend(b"a", b"b", b"c", b"d")
        answer = rig.ask(b"d", KadMessage(KadType.FIND_NODE, b"a"))
        assert answer is not None
        assert answer.closer[0].peer == b"a"
        assert len(answer.closer) == 3
        assert b"d" not in [peer.peer for peer in answer.closer]
        assert answer.closer[0].addresses == where[b"a"][:16]

    def test_whoever_looks_for_us_finds_us(self) -> None:
        """Our own addresses come with our own id."""
        rig = Rig(addresses={OWN: (b"here",)})
        answer = rig.ask(b"a", KadMessage(KadType.FIND_NODE, OWN))
        assert answer is not None
        assert answer.closer == (KadPeer(OWN, (b"here",)),)

    def test_a_stored_value_is_echoed_and_given_back(self) -> None:
        """With the date from which it ages, and with closer peers."""
        rig = Rig()
        rig.befriend(b"b")
        put = KadMessage(KadType.PUT_VALUE, KEY, record())
        echo = rig.ask(b"a", put)
        assert echo == msgspec.structs.replace(put, cached_meta=None)
        answer = rig.ask(b"a", KadMessage(KadType.GET_VALUE, KEY))
        assert answer is not None
        assert answer.record == record(date=rfc3339.write(rig.now))
        assert [peer.peer for peer in answer.closer] == [b"b"]

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            (KadMessage(KadType.PUT_VALUE, KEY), NO_RECORD),
            (KadMessage(KadType.PUT_VALUE, b"x", record()), NO_RECORD),
            (KadMessage(KadType.PUT_VALUE, b"x", record(key=b"x")), NO_VALIDATOR),
            (
                KadMessage(KadType.PUT_VALUE, b"/pulsarcast/x", record(key=b"/pulsarcast/x")),
                BAD_KEY,
            ),
            (KadMessage(KadType.PUT_VALUE, KEY, record(b"false")), WRONG_HASH),
            (KadMessage(KadType.PUT_VALUE, KEY, record(date="1970-01-10T00:00:00Z")), EXPIRED),
            (KadMessage(KadType.ADD_PROVIDER, b"x"), BAD_KEY),
        ],
    )
    def test_what_cannot_be_stored_is_refused(self, message: KadMessage, reason: str) -> None:
        """Declined, so that nobody waits; nothing stored, and the reason in the trace."""
        rig = Rig()
        assert rig.ask(b"a", message) is None
        assert rig.refused == [reason]
        wants_answer = message.type is not KadType.ADD_PROVIDER
        assert rig.all(Decline) == ([Decline(77)] if wants_answer else [])
        assert len(rig.kad.records) == len(rig.kad.providers) == 0

    def test_who_stores_false_values_is_banned_then_cut_off(self) -> None:
        """Penalised each time; not answered any more; the third time the connection goes."""
        rig = Rig(ban_time=10.0, offences_before_disconnect=2)
        rig.befriend(b"liar")
        false = KadMessage(KadType.PUT_VALUE, KEY, record(b"false"))
        rig.ask(b"liar", false)
        assert [penalty.peer for penalty in rig.all(trace.Penalise)] == [b"liar"]
        assert rig.all(Disconnect) == []
        assert b"liar" not in rig.kad.contacts.table
        assert rig.ask(b"liar", KadMessage(KadType.FIND_NODE, b"x")) is None
        assert rig.refused == [BANNED]
        assert rig.all(Decline) == [Decline(77)]
        assert rig.all(Ask) == []
        rig.now += 11.0
        rig.ask(b"liar", false)
        assert rig.all(Disconnect) == [Disconnect(b"liar", WRONG_HASH, keep_out=True)]

    def test_bans_are_bounded(self) -> None:
        """However many liars come, the memory of them does not grow."""
        rig = Rig(bans=5)
        for number in range(50):
            rig.ask(b"liar-%d" % number, KadMessage(KadType.PUT_VALUE, KEY, record(b"false")))
        banned = [
            number
            for number in range(50)
            if rig.kad.contacts.is_banned(b"liar-%d" % number, rig.now)
        ]
        assert banned == [45, 46, 47, 48, 49]

    def test_values_that_change_are_replaced_by_better_ones_only(self) -> None:
        """As the namespace's validator says."""
        rig = Rig(validators={"counter": Newest()})
        key = b"/counter/x"

        def put(value: bytes) -> KadMessage | None:
            return rig.ask(b"a", KadMessage(KadType.PUT_VALUE, key, Record(key, value)))

        assert put(b"2") is not None
        assert put(b"1") is None
        assert rig.refused == [WORSE_VALUE]
        assert put(b"3") is not None
        assert put(b"bad") is None
        held = rig.kad.records.get(key, rig.now)
        assert held is not None
        assert held.value == b"3"

    def test_a_date_can_make_a_new_record_older_but_not_one_that_we_hold(self) -> None:
        """Otherwise anybody could make us forget a value by storing it again."""
        rig = Rig()
        old, older = rig.now - 1000.0, rig.now - 100_000.0
        for date, expected in ((old, old), (older, old), (rig.now + 50.0, rig.now)):
            message = KadMessage(KadType.PUT_VALUE, KEY, record(date=rfc3339.write(date)))
            rig.ask(b"a", message)
            held = rig.kad.records.get(KEY, rig.now)
            assert held is not None
            assert held.received == expected

    def test_providers_speak_for_themselves_only(self) -> None:
        """Others in the same message are refused and counted; addresses are learned."""
        rig = Rig()
        key = cid(b"content")
        providers = (KadPeer(b"a", (b"where",)), KadPeer(b"b"), KadPeer(b"c"))
        assert rig.ask(b"a", KadMessage(KadType.ADD_PROVIDER, key, providers=providers)) is None
        assert rig.all(Learn) == [Learn(b"a", (b"where",))]
        (refuse,) = rig.all(trace.Refuse)
        assert (refuse.reason, refuse.count) == (FOREIGN_PROVIDER, 2)
        answer = rig.ask(b"x", KadMessage(KadType.GET_PROVIDERS, key))
        assert answer is not None
        assert [peer.peer for peer in answer.providers] == [b"a"]

    def test_the_old_ping_is_answered(self) -> None:
        """js-libp2p still sends it."""
        assert Rig().ask(b"a", KadMessage(KadType.PING)) == KadMessage(KadType.PING)

    def test_a_client_answers_nobody(self) -> None:
        """It declines, and says so in the trace."""
        rig = Rig(server=False)
        assert rig.ask(b"a", KadMessage(KadType.FIND_NODE, b"x")) is None
        assert rig.refused == [CLIENT]
        assert rig.all(Decline) == [Decline(77)]

    def test_what_is_no_question_of_ours_is_refused(self) -> None:
        """A machine may be handed anything."""
        rig = Rig()
        rig.give(Asked(b"a", 1, "what?"))  # type: ignore[arg-type]
        assert rig.refused == [NOT_A_QUESTION]
        assert rig.all(Decline) == [Decline(1)]


class TestOperations:
    """What the application asks for."""

    def test_results_never_come_during_the_call(self) -> None:
        """Even what is known already is reported by a timer that fires at once."""
        rig = Rig()
        rig.ask(b"a", KadMessage(KadType.PUT_VALUE, KEY, record()))
        number = rig.do("get_value", KEY)
        assert rig.results == []
        assert rig.effects == [SetTimer(KadTimer("local", number), rig.now)]
        rig.fire("local", number)
        (result,) = rig.results
        assert (result.number, result.value, result.peers) == (number, VALUE, (OWN,))
        rig.fire("local", number)
        assert len(rig.results) == 1

    @pytest.mark.parametrize(
        ("operation", "argument"),
        [
            ("get_value", KEY),
            ("find_closest", b"x"),
            ("find_peer", b"x"),
            ("provide", cid(VALUE)),
            ("find_providers", cid(VALUE)),
        ],
    )
    def test_without_contacts_there_is_nobody_to_ask(self, operation: str, argument: bytes) -> None:
        """The result says so."""
        rig = Rig()
        rig.fire("local", rig.do(operation, argument))
        assert rig.results[0].reason == NO_PEERS

    def test_a_search_ends_with_the_first_true_value(self) -> None:
        """And gives it to the closest that had none."""
        rig = Rig(corrections=1)
        rig.befriend(b"a", b"b", b"c")
        number = rig.do("get_value", KEY)
        first, second, _ = asked = rig.all(Ask)
        assert [ask.message.type for ask in asked] == [KadType.GET_VALUE] * 3
        rig.give(Answered(first.peer, first.number, KadMessage(KadType.GET_VALUE, KEY)))
        rig.give(Answered(second.peer, second.number, KadMessage(KadType.GET_VALUE, KEY, record())))
        (result,) = rig.results
        assert (result.value, result.peers, result.reason) == (VALUE, (second.peer,), "")
        (correction,) = rig.all(Ask)
        assert correction.peer == first.peer
        assert correction.message.type is KadType.PUT_VALUE
        assert CancelTimer(KadTimer("lookup", number)) in rig.effects

    def test_a_false_value_ends_nothing_and_bans_who_gave_it(self) -> None:
        """Neither is any of the closer peers believed that come with it."""
        rig = Rig()
        rig.befriend(b"liar", b"honest")
        rig.do("get_value", KEY)
        liar, honest = sorted(rig.all(Ask), key=lambda ask: ask.peer, reverse=True)
        false = KadMessage(KadType.GET_VALUE, KEY, record(b"false"), (KadPeer(b"accomplice"),))
        rig.give(Answered(liar.peer, liar.number, false))
        assert rig.refused == [WRONG_HASH]
        assert rig.all(Ask) == []
        assert b"liar" not in rig.kad.contacts.table
        rig.give(Answered(honest.peer, honest.number, KadMessage(KadType.GET_VALUE, KEY, record())))
        assert rig.results[0].value == VALUE
        assert rig.results[0].failed == 1

    def test_a_quorum_takes_the_best_value_and_corrects_the_others(self) -> None:
        """For values that change."""
        rig = Rig(quorum=3, corrections=0, validators={"counter": Newest()})
        rig.befriend(b"a", b"b", b"c")
        key = b"/counter/x"
        rig.do("get_value", key)
        for ask, value in zip(rig.all(Ask), (b"2", b"3", b"1"), strict=True):
            found = KadMessage(KadType.GET_VALUE, key, Record(key, value))
            rig.give(Answered(ask.peer, ask.number, found))
            if value != b"1":
                assert rig.results == []
        (result,) = rig.results
        assert result.value == b"3"
        corrected = [ask.peer for ask in rig.all(Ask)]
        assert len(corrected) == 2
        assert not set(result.peers) & set(corrected)

    def test_a_value_is_stored_when_holders_echo_it(self) -> None:
        """Failures and false echoes count as failures; refusing to store costs no place."""
        rig = Rig()
        rig.befriend(b"a", b"b", b"c")
        rig.do("put_value", KEY, VALUE)
        puts = rig.answer(rig.all(Ask))
        assert {ask.message.type for ask in puts} == {KadType.PUT_VALUE}
        echo, wrong, failing = puts
        rig.give(Answered(echo.peer, echo.number, KadMessage(KadType.PUT_VALUE, KEY, record())))
        rig.give(Answered(wrong.peer, wrong.number, KadMessage(KadType.PUT_VALUE, KEY)))
        assert rig.refused == [WRONG_ANSWER]
        rig.give(AskFailed(failing.peer, failing.number, "reset"))
        (result,) = rig.results
        assert (result.stored, result.peers, result.failed) == (1, (echo.peer,), 2)
        assert rig.kad.closest(failing.peer) == [failing.peer]

    def test_nobody_who_echoes_is_nobody_who_stores(self) -> None:
        """The reason says so."""
        rig = Rig()
        rig.befriend(b"a")
        rig.do("put_value", KEY, VALUE)
        (put,) = rig.answer(rig.all(Ask))
        rig.give(AskFailed(put.peer, put.number, "reset"))
        assert rig.results[0].reason == NOT_STORED

    def test_providing_tells_and_does_not_wait(self) -> None:
        """ADD_PROVIDER has no answer; our own addresses go with it."""
        rig = Rig(addresses={OWN: (b"here",)})
        rig.befriend(b"a", b"b")
        rig.do("provide", cid(VALUE))
        told = rig.answer(rig.all(Ask))
        assert [ask.one_way for ask in told] == [True, True]
        own = (KadPeer(OWN, (b"here",)),)
        assert told[0].message == KadMessage(KadType.ADD_PROVIDER, cid(VALUE), providers=own)
        assert rig.results[0].stored == 2
        rig.give(AskFailed(told[0].peer, told[0].number, "reset"))

    def test_found_providers_and_peers_can_be_reached(self) -> None:
        """Their addresses are learned; a search for a peer ends as soon as it is named."""
        rig = Rig()
        rig.befriend(b"a", b"b")
        rig.do("find_peer", b"wanted")
        first = rig.all(Ask)[0]
        named = KadMessage(KadType.FIND_NODE, closer=(KadPeer(b"wanted", (b"there",)),))
        rig.give(Answered(first.peer, first.number, named))
        assert rig.results[0].peers == (b"wanted",)
        assert Learn(b"wanted", (b"there",)) in rig.effects
        rig.do("find_providers", cid(VALUE))
        rig.answer(rig.all(Ask), providers=(KadPeer(b"p", (b"there",)),))
        assert rig.results[1].peers == (b"p",)

    def test_a_lookup_that_takes_too_long_ends_with_what_it_has(self) -> None:
        """Late answers then change nothing but the table."""
        rig = Rig()
        rig.befriend(b"a", b"b")
        number = rig.do("get_value", KEY)
        asked = rig.all(Ask)
        rig.fire("lookup", number)
        assert rig.results[0].reason == TIMED_OUT
        rig.answer(asked, record=record())
        assert len(rig.results) == 1
        put = rig.do("put_value", KEY, VALUE)
        first, second = rig.all(Ask)
        rig.answer([first])
        rig.fire("lookup", put)
        (store,) = rig.all(Ask)
        assert store.peer == first.peer
        assert rig.answer([second]) == []
        rig.give(Answered(first.peer, store.number, KadMessage(KadType.PUT_VALUE, KEY, record())))
        assert rig.results[1].stored == 1

    def test_an_answer_of_the_wrong_kind_is_a_failure(self) -> None:
        """And refused by name."""
        rig = Rig()
        rig.befriend(b"a")
        rig.do("get_value", KEY)
        (ask,) = rig.all(Ask)
        rig.give(Answered(b"a", ask.number, KadMessage(KadType.FIND_NODE, KEY)))
        assert rig.refused == [WRONG_ANSWER]
        assert rig.results[0].reason == NOT_FOUND
        assert rig.results[0].failed == 1

    def test_answers_to_questions_of_others_are_none_of_our_business(self) -> None:
        """Wrong numbers, wrong peers, second answers: nothing happens."""
        rig = Rig()
        rig.befriend(b"a")
        rig.do("get_value", KEY)
        (ask,) = rig.all(Ask)
        right = KadMessage(KadType.GET_VALUE, KEY, record())
        assert rig.give(Answered(b"b", ask.number, right)) == []
        assert rig.give(Answered(b"a", ask.number + 1, right)) == []
        assert rig.give(AskFailed(b"b", ask.number, "x")) == []
        assert rig.give(Subscribe("t")) == []
        assert rig.give(TimerFired("foreign")) == []
        assert not rig.kad.owns("foreign")
        assert rig.kad.owns(KadTimer("tick"))
        rig.give(Answered(b"a", ask.number, right))
        assert rig.give(Answered(b"a", ask.number, right)) == []
        assert len(rig.results) == 1

    def test_cancelled_operations_report_nothing(self) -> None:
        """Whether under way, waiting, or done but not reported."""
        rig = Rig(lookups=1)
        rig.befriend(b"a")
        under_way = rig.do("get_value", KEY)
        asked = rig.all(Ask)
        waiting = rig.do("find_closest", b"x")
        assert rig.all(Ask) == []
        done = rig.do("find_peer", b"a")
        for number in (under_way, waiting, done, 999):
            rig.kad.cancel(number)
        rig.answer(asked, record=record())
        rig.fire("local", done)
        rig.fire("lookup", under_way)
        assert rig.results == []

    def test_lookups_wait_for_their_turn_and_too_many_are_refused(self) -> None:
        """At most so many at once, so many waiting; cancelling makes room at the next upkeep."""
        rig = Rig(lookups=1, waiting_lookups=2)
        rig.befriend(b"a")
        first = rig.do("find_closest", b"1")
        asked = rig.all(Ask)
        second, third = rig.do("find_closest", b"2"), rig.do("find_closest", b"3")
        refused = rig.do("find_closest", b"4")
        rig.fire("local", refused)
        assert [result.reason for result in rig.results] == [BUSY]
        asked = rig.answer(asked)
        assert rig.results[-1].number == first
        assert [ask.message.key for ask in asked] == [b"2"]
        rig.kad.cancel(second)
        rig.fire("tick")
        (last,) = [ask for ask in rig.all(Ask) if ask.message.key == b"3"]
        rig.answer([last])
        assert rig.results[-1].number == third

    def test_impossible_requests_are_the_callers_mistake(self) -> None:
        """False values, long values, keys that nothing can stand under."""
        rig = Rig()
        with pytest.raises(LocalError, match=WRONG_HASH):
            rig.do("put_value", KEY, b"false")
        with pytest.raises(LimitError):
            rig.do("put_value", KEY, bytes(1 << 21))
        with pytest.raises(LocalError, match="validator"):
            rig.do("get_value", b"plain")
        with pytest.raises(LocalError, match="multihash"):
            rig.do("provide", b"plain")

    def test_a_result_may_start_the_next_operation(self) -> None:
        """`on_result` may call Kademlia again."""
        rig = Rig(lookups=1)
        rig.befriend(b"a")
        numbers = []

        def again(result: LookupResult, now: float, effects: list[Effect]) -> None:
            rig.results.append(result)
            if result.kind is LookupKind.FIND_CLOSEST:
                numbers.append(rig.kad.get_value(KEY, now, effects))

        rig.kad._on_result = again
        rig.do("find_closest", b"x")
        (ask,) = rig.answer(rig.all(Ask))
        assert ask.message.type is KadType.GET_VALUE
        rig.answer([ask], record=record())
        assert [result.number for result in rig.results][1:] == numbers


class TestUpkeep:
    """What happens by itself."""

    def test_the_first_contact_leads_to_a_lookup_of_our_own_id(self) -> None:
        """A second after it came."""
        rig = Rig()
        rig.befriend(b"a")
        (timer,) = [each for each in rig.all(SetTimer) if each.timer == KadTimer("refresh")]
        assert rig.now < timer.at <= rig.now + 1.0
        rig.fire("refresh")
        (ask,) = rig.all(Ask)
        assert ask.message == KadMessage(KadType.FIND_NODE, OWN)

    @pytest.mark.parametrize("pause", [0.0, 100.0])
    def test_other_distances_are_looked_at_after_a_pause(self, pause: float) -> None:
        """At once where there is none; each lookup after one where there is."""
        rig = Rig(k=2, refresh_pause=pause)
        for number in range(40):
            if rig.kad.contacts.table.has_room(b"%d" % number):
                rig.befriend(b"%d" % number)
        rig.fire("refresh")
        asked = rig.all(Ask)
        while asked and {ask.message.key for ask in asked} == {OWN}:
            asked = rig.answer(asked)
        assert bool(asked) == (not pause)
        if pause:
            for _ in range(2):
                (timer,) = [each for each in rig.all(SetTimer) if each.timer == KadTimer("next")]
                assert rig.now + 0.9 * pause <= timer.at <= rig.now + pause
                rig.fire("next")
                (key,) = {ask.message.key for ask in rig.all(Ask)}
                assert key != OWN
                asked = rig.all(Ask)
                while asked:
                    asked = rig.answer(asked)

    def test_own_values_are_republished_when_due(self) -> None:
        """Before 22 hours are over, and again and again; nobody is told of it."""
        rig = Rig()
        rig.befriend(b"a")
        rig.do("put_value", KEY, VALUE)
        (put,) = rig.answer(rig.all(Ask))
        rig.answer([put], record=record())
        assert len(rig.results) == 1
        for _ in range(3):
            rig.now += 19 * 3600.0
            rig.fire("tick")
            assert rig.all(Ask) == []
            rig.now += 3 * 3600.0
            rig.fire("tick")
            (put,) = rig.answer(rig.all(Ask))
            assert put.message.type is KadType.PUT_VALUE
            rig.answer([put], record=record())
        assert len(rig.results) == 1

    def test_a_value_put_without_republishing_is_put_once(self) -> None:
        """And is not kept here."""
        rig = Rig()
        rig.befriend(b"a")
        rig.do("put_value", KEY, VALUE, republish=False)
        assert rig.kad.records.get(KEY, rig.now) is None
        assert rig.kad.records.own(KEY) is None

    def test_republishing_goes_a_few_at_a_time(self) -> None:
        """And the next begins when one is done."""
        rig = Rig(republish_at_once=2)
        rig.befriend(b"a")
        for number in range(5):
            value = b"%d" % number
            rig.do("put_value", key_of(value), value)
        rig.give(Start())
        rig.now += 30 * 3600.0
        rig.fire("tick")
        keys = {ask.message.key for ask in rig.all(Ask)}
        assert len(keys) == 2


class TestPeer:
    """The machine with nothing else in it."""

    def test_commands_that_cannot_be_are_answered_with_their_error(self) -> None:
        """Once, at once."""
        peer = KademliaPeer(OWN, Random(1), KademliaConfig())
        effects: list[Effect] = []
        peer.handle(Command(5, "nonsense"), 0.0, effects)
        (outcome,) = effects
        assert isinstance(outcome, Outcome)
        assert outcome.number == 5
        assert "str" in outcome.error

    def test_the_view_is_the_routing_table(self) -> None:
        """Contacts alone: who connects is shown when it has answered."""
        peer = KademliaPeer(OWN, Random(1), KademliaConfig())
        effects: list[Effect] = []
        peer.handle(PeerConnected(b"a", "/p"), 0.0, effects)
        assert peer.view() == View(links={"contact": {"": ()}})
        (ask,) = [effect for effect in effects if isinstance(effect, Ask)]
        peer.handle(Answered(b"a", ask.number, KadMessage(KadType.FIND_NODE)), 0.0, effects)
        assert peer.view() == View(links={"contact": {"": (b"a",)}})


messages = st.builds(
    KadMessage,
    st.sampled_from(KadType),
    st.sampled_from([b"", KEY, OWN, b"x", cid(VALUE), b"/pulsarcast/", b"/pk/\x12\x20"]),
    st.none()
    | st.builds(
        Record, st.sampled_from([KEY, b"x"]), st.sampled_from([VALUE, b"false"]), st.text()
    ),
    st.lists(st.builds(KadPeer, st.sampled_from([b"a", b"b", OWN, b"new"])), max_size=5).map(tuple),
    st.lists(st.builds(KadPeer, st.sampled_from([b"a", b"b", OWN])), max_size=3).map(tuple),
)
peer_names = st.sampled_from([b"a", b"b", b"c", OWN])
inputs = st.one_of(
    st.builds(Asked, peer_names, st.integers(1, 5), messages),
    st.builds(Answered, peer_names, st.integers(1, 30), messages),
    st.builds(AskFailed, peer_names, st.integers(1, 30), st.just("x")),
    st.builds(
        PeerConnected, peer_names, st.just("/p"), st.booleans(), st.sampled_from(["", "8.8.8.8"])
    ),
    st.builds(PeerDisconnected, peer_names),
    st.builds(ConnectFailed, peer_names, st.just("x")),
    st.builds(
        TimerFired,
        st.builds(
            KadTimer,
            st.sampled_from(["tick", "refresh", "next", "lookup", "local"]),
            st.integers(0, 9),
        ),
    ),
    st.just(Start()),
)


@given(st.lists(inputs | st.sampled_from(["get", "put", "find", "provide"]), max_size=60))
def test_no_order_of_inputs_breaks_it(events: list[Any]) -> None:
    """Whatever peers send and whenever, nothing is raised and every table stays bounded."""
    rig = Rig(k=2, lookups=2, waiting_lookups=2, checks=2, records=2, bans=2)
    operations = {
        "get": ("get_value", KEY),
        "put": ("put_value", KEY, VALUE),
        "find": ("find_peer", b"z"),
        "provide": ("provide", cid(VALUE)),
    }
    for event in events:
        rig.now += 7.0
        if isinstance(event, str):
            rig.do(*operations[event])
        else:
            rig.give(event)
        kad = rig.kad
        assert len(kad._operations) <= 2 + 1 + kad.config.republish_at_once
        assert len(kad._waiting) <= 2
        assert len(kad.records) <= 2
        assert len(kad.contacts._checking) <= 2
        assert OWN not in kad.closest(b"x", 100)
