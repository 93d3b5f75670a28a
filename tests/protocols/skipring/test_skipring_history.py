"""The log behind a ring: histories and answers come in pieces, and nobody hears of half a history.

A machine reads no disk. What it asks for may take long, and here it takes until the test says so.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from publication_rig import TOPIC, Log, Subscriber

from rumormill.core.effects import Append, Effects, Load, Mail, Published, SetTimer
from rumormill.core.inputs import (
    Command,
    Loaded,
    LogChanged,
    NotStored,
    Publish,
    Received,
    Start,
    Stored,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from rumormill.core.trace import Refuse, UndeliverableMessage
from rumormill.overlay import patricia
from rumormill.overlay.patricia import EVERYTHING, HASH_BYTES, PatriciaTrie, Prefix, Summary
from rumormill.protocols.registry import NO_HOOKS
from rumormill.protocols.skipring import envelope, messages, reasons
from rumormill.protocols.skipring.config import PublicationConfig, SkipRingConfig
from rumormill.protocols.skipring.envelope import Author, Publication
from rumormill.protocols.skipring.messages import (
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    PublishNew,
    Want,
)
from rumormill.protocols.skipring.peer import TIMEOUT, LookAt, SkipRing
from rumormill.protocols.skipring.publications import HASHES_PER_STEP, Hash
from rumormill.protocols.skipring.reads import MAX_READS, READS_PER_PEER
from rumormill.sim.identity import SimulatedIdentity

BOSS, ANNE, BOB = b"boss", b"anne", b"bob!"
SILENT = PublicationConfig(flooding=False)
EVERYTHING_WANTED = CheckAndPublish(TOPIC, (), (Want(EVERYTHING),))
UNLIKE = CheckTrie(TOPIC, (Summary(EVERYTHING, b"\x01" * HASH_BYTES),))


def composed(count: int, author: bytes = b"eve!") -> list[Publication]:
    pen = Author(SimulatedIdentity(author))
    return [pen.compose(TOPIC, b"%d" % number, 1.0) for number in range(count)]


class Peer:
    """A whole peer, Anne, whose log answers when it is told to."""

    def __init__(self, stored: list[Publication], **settings: Any) -> None:
        self.log = Log()
        self.log.events = {each.id: each.to_event() for each in stored}
        config = SkipRingConfig(supervisors=(BOSS.hex(),), **settings)
        self.machine = SkipRing(SimulatedIdentity(ANNE), random.Random(0), config, NO_HOOKS)
        self.open: list[Append | Load] = []
        self.timers: list[Any] = []
        self.letters: list[Mail] = []
        self.other: list[Any] = []
        self.tell(Start())

    def tell(self, event: Any) -> None:
        effects: Effects = []
        self.machine.handle(event, 0.0, effects)
        for effect in effects:
            if isinstance(effect, Append | Load):
                self.open.append(effect)
            elif isinstance(effect, SetTimer):
                self.timers.append(effect.timer)
            elif isinstance(effect, Mail):
                self.letters.append(effect)
            else:
                self.other.append(effect)

    def hear(self, message: Any, sender: bytes = BOB) -> None:
        self.tell(Received(sender, message))

    def answer_one(self) -> None:
        """Let the log do the first thing that it was asked for."""
        first = self.open.pop(0)
        if isinstance(first, Load):
            self.tell(self.log.read(first))
        else:
            self.log.events[first.event.id] = first.event
            self.tell(Stored((first.barrier,)))

    def settle(self) -> None:
        """Let the log answer everything, and hashing timers fire."""
        while self.open or any(isinstance(timer, Hash) for timer in self.timers):
            while self.open:
                self.answer_one()
            timers, self.timers = self.timers, []
            for timer in timers:
                if isinstance(timer, Hash):
                    self.tell(TimerFired(timer))
                else:
                    self.timers.append(timer)

    def enter(self) -> None:
        """Subscribe, with Bob for the only neighbour."""
        self.tell(Subscribe(TOPIC))
        bob = messages.Reference(1 << 61, BOB)
        self.hear(messages.SetData(TOPIC, bob, 0, bob), BOSS)
        self.letters.clear()

    def sent(self, kind: type) -> list[Any]:
        return [mail.message for mail in self.letters if isinstance(mail.message, kind)]

    @property
    def refusals(self) -> list[str]:
        return [each.reason for each in self.other if isinstance(each, Refuse)]

    @property
    def keys(self) -> list[bytes]:
        return list(self.machine.members[TOPIC].publications.trie.keys())


# Reading a history.


class Work:
    """How much of each kind of work was done since the last look."""

    def __init__(self) -> None:
        self.done = {"insertions": 0, "decodings": 0, "hashes": 0}

    def taken(self) -> dict[str, int]:
        done, self.done = self.done, dict.fromkeys(self.done, 0)
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    counted = Work()

    def counting(name: str, call: Any) -> Any:
        def counter(*arguments: Any) -> Any:
            counted.done[name] += 1
            return call(*arguments)

        return counter

    monkeypatch.setattr(PatriciaTrie, "insert", counting("insertions", PatriciaTrie.insert))
    monkeypatch.setattr(envelope, "from_event", counting("decodings", envelope.from_event))
    monkeypatch.setattr(patricia, "inner_hash", counting("hashes", patricia.inner_hash))
    return counted


def test_however_much_is_stored_no_input_is_much_work(work: Work) -> None:
    """50,000 events, and a peer that asks for all of them, again and again, from the beginning."""
    count = 50_000
    anne = Peer(composed(count))
    anne.enter()
    total = dict.fromkeys(work.taken(), 0)
    steps = 0
    while anne.open or any(isinstance(timer, Hash) for timer in anne.timers):
        for message in (UNLIKE, EVERYTHING_WANTED):
            anne.hear(message)
            assert not any(work.taken().values())
        if anne.open:
            anne.answer_one()
        else:
            anne.timers = [timer for timer in anne.timers if not isinstance(timer, Hash)]
            anne.tell(TimerFired(Hash(TOPIC)))
        done = work.taken()
        assert done["insertions"] <= anne.log.piece
        assert done["decodings"] <= anne.log.piece
        assert done["hashes"] <= HASHES_PER_STEP
        total = {name: total[name] + done[name] for name in done}
        steps += 1
    assert total == {"insertions": count, "decodings": count, "hashes": count - 1}
    assert steps <= count // anne.log.piece + count // HASHES_PER_STEP + 2
    assert anne.refusals == [reasons.HISTORY_UNREAD] * 2 * steps
    assert anne.letters == []
    for message in (UNLIKE, EVERYTHING_WANTED):
        anne.hear(message)
        anne.settle()
        done = work.taken()
        assert done["decodings"] <= 256
        assert not done["insertions"]
        assert not done["hashes"]
    assert anne.sent(CheckTrie)
    (bundle,) = anne.sent(PublishBundle)
    assert len(bundle.publications) == 256


def test_nobody_is_told_of_half_a_history() -> None:
    """A hash of what has been read so far would say that we lack all the rest."""
    anne = Peer(composed(300))
    anne.enter()
    for whole in (False, False, True):
        anne.letters.clear()
        anne.tell(TimerFired(TIMEOUT))
        anne.tell(Command(1, LookAt(TOPIC)))
        hashes = [each.nodes[0].hash for each in anne.sent(CheckTrie)]
        view = anne.other[-1].result
        assert hashes == ([view.root_hash] if whole else [])
        assert bool(view.root_hash) == whole
        if anne.open:
            anne.answer_one()
    assert len(anne.keys) == 300


def test_publishing_and_hearing_go_on_while_a_history_is_read() -> None:
    """Ours and others': stored, passed on, and in the trie beside what was there before."""
    stored, (new,) = composed(300), composed(1, author=BOB)
    anne = Peer(stored)
    anne.enter()
    (history,) = anne.open
    anne.open.clear()
    anne.hear(PublishNew(TOPIC, new), sender=b"carl")
    anne.tell(Publish(TOPIC, b"mine", 7))
    anne.answer_one()
    anne.answer_one()
    assert [mail.peer for mail in anne.letters] == [BOB, BOB]
    assert [each.publication.data for each in anne.sent(PublishNew)] == [b"0", b"mine"]
    (receipt,) = [each for each in anne.other if isinstance(each, Published)]
    assert receipt.number == 7
    anne.open.append(history)
    anne.settle()
    mine = receipt.event.id
    assert anne.keys == sorted([*(each.id for each in stored), new.id, mine])


def test_histories_are_read_one_piece_at_a_time_and_each_in_its_turn() -> None:
    """A long one does not keep short ones waiting, and however many there are one read is open."""
    anne = Peer(composed(600))
    for topic in (TOPIC, "a", "b"):
        anne.tell(Subscribe(topic))
    asked = []
    while anne.open:
        (load,) = anne.open
        assert isinstance(load, Load)
        asked.append((load.topic, load.query.offset))
        anne.open.clear()
        anne.tell(anne.log.read(load) if load.topic == TOPIC else Loaded(load.number))
    assert asked == [(TOPIC, 0), ("a", 0), ("b", 0), (TOPIC, 256), (TOPIC, 512)]


def test_who_leaves_reads_no_further_and_who_comes_back_reads_it_all() -> None:
    """What was asked for the membership that has ended fills no gap in the next one."""
    stored = composed(600)
    anne = Peer(stored)
    anne.enter()
    anne.answer_one()
    (second_piece,) = anne.open
    anne.tell(Unsubscribe(TOPIC))
    anne.hear(messages.SetData(TOPIC, None, None, None), BOSS)
    assert TOPIC not in anne.machine.members
    anne.enter()
    assert anne.open == [second_piece]
    anne.settle()
    assert anne.keys == sorted(each.id for each in stored)
    anne.tell(Unsubscribe(TOPIC))
    anne.hear(messages.SetData(TOPIC, None, None, None), BOSS)
    anne.tell(anne.log.read(second_piece))
    assert not anne.open


def test_a_timer_of_the_membership_before_makes_no_history_whole() -> None:
    """Left while the hashes were computed, and entered again before the timer came."""
    anne = Peer(composed(HASHES_PER_STEP + 300))
    anne.enter()
    while anne.open:
        anne.answer_one()
    assert Hash(TOPIC) in anne.timers
    anne.tell(Unsubscribe(TOPIC))
    anne.hear(messages.SetData(TOPIC, None, None, None), BOSS)
    anne.enter()
    anne.answer_one()
    anne.tell(TimerFired(Hash(TOPIC)))
    anne.hear(UNLIKE)
    assert anne.refusals == [reasons.HISTORY_UNREAD]


def test_own_publications_are_nobody_s_before_they_are_stored() -> None:
    """Neither flooded nor in the trie; what cannot be stored is answered with the reason."""
    anne = Peer([])
    anne.enter()
    anne.settle()
    for number in (1, 2):
        anne.tell(Publish(TOPIC, b"mine", number))
    stored, lost = anne.open
    assert (anne.letters, anne.keys) == ([], [])
    anne.open.clear()
    anne.tell(NotStored((lost.barrier,), "the disk is full"))
    anne.tell(Stored((stored.barrier,)))
    assert anne.keys == [stored.event.id]
    assert [each.publication.id for each in anne.sent(PublishNew)] == anne.keys
    receipts = [each for each in anne.other if isinstance(each, Published)]
    assert [(each.number, each.error) for each in receipts] == [(2, "the disk is full"), (1, "")]


def test_who_is_started_again_reads_again() -> None:
    """A runtime that stops forgets what it was asked for, and may answer it with nothing."""
    stored = composed(300)
    anne = Peer(stored)
    anne.enter()
    anne.answer_one()
    (second_piece,) = anne.open
    anne.open.clear()
    anne.tell(Loaded(second_piece.number))
    anne.tell(Start())
    anne.settle()
    assert anne.keys == sorted(each.id for each in stored)


# Answers that wait for the log.


def test_answers_that_wait_for_the_log_are_bounded() -> None:
    """Per peer and in all; those beyond are refused, counted, and may ask again."""
    anne = Peer(composed(10))
    anne.enter()
    anne.settle()
    for _ in range(READS_PER_PEER + 3):
        anne.hear(EVERYTHING_WANTED)
    assert len(anne.open) == READS_PER_PEER
    assert anne.refusals == [reasons.TOO_MANY_READS] * 3
    for number in range(MAX_READS):
        anne.hear(EVERYTHING_WANTED, b"peer %d" % number)
    assert len(anne.open) == MAX_READS
    assert anne.refusals == [reasons.TOO_MANY_READS] * (3 + READS_PER_PEER)
    anne.settle()
    assert len(anne.sent(PublishBundle)) == MAX_READS
    anne.hear(EVERYTHING_WANTED)
    assert len(anne.open) == 1


def test_what_the_log_cuts_off_is_named_as_the_rest() -> None:
    """A log that gives back less than it was asked for: the peer asks on behind the last one."""
    one = Subscriber(1, SILENT)
    published = sorted(one.publish(b"%d" % number).id for number in range(25))
    one.log.piece = 10
    halves = (Want(Prefix.parse("0")), Want(Prefix.parse("1")))
    received: list[bytes] = []
    wants: tuple[Want, ...] = halves
    while wants:
        bundle, *_ = one.receive(b"late", CheckAndPublish(TOPIC, (), wants))
        assert len(bundle.publications) <= 10
        received += [each.id for each in bundle.publications]
        wants = bundle.rest
    assert received == published
    assert one.refusals == {}


def test_a_chain_ends_when_its_answer_is_sent_and_not_before() -> None:
    """Where much was missing another begins, behind the publications and not in front of them."""
    one = Subscriber(1, SILENT)
    for number in range(20):
        one.publish(b"%d" % number)
    one.waiting = []
    assert one.receive(b"late", EVERYTHING_WANTED) == []
    (load,) = one.waiting
    one.waiting = None
    one.answer(load)
    assert [type(message) for _, message in one.outbox] == [PublishBundle, CheckTrie]


# What others bring counts when it is stored.


def test_what_is_not_stored_is_brought_again() -> None:
    """Nobody is told that we have it, and the next copy is not a duplicate."""
    (news,) = composed(1)
    anne = Peer([])
    anne.enter()
    anne.settle()
    anne.hear(PublishNew(TOPIC, news))
    (append,) = anne.open
    assert append.deliver
    assert anne.keys == []
    anne.hear(PublishNew(TOPIC, news), sender=b"carl")
    assert anne.open == [append], "it is on its way to the log"
    anne.open.clear()
    anne.tell(NotStored((append.barrier,), "the disk is full"))
    assert UndeliverableMessage(news.id, TOPIC, "the disk is full") in anne.other
    assert anne.keys == []
    anne.hear(PublishNew(TOPIC, news))
    anne.settle()
    assert anne.keys == [news.id]


def test_what_is_not_stored_is_passed_on_once() -> None:
    """Else two neighbours with full disks would send each other a publication for ever."""
    (news,) = composed(1)
    anne = Peer([])
    anne.enter()
    anne.settle()
    for _ in range(3):
        anne.hear(PublishNew(TOPIC, news), sender=b"carl")
        (append,) = anne.open
        anne.open.clear()
        anne.tell(NotStored((append.barrier,), "the disk is full"))
    assert anne.sent(PublishNew) == [PublishNew(TOPIC, news)]


def test_what_is_stored_for_a_topic_that_was_left_changes_nothing() -> None:
    """The log's word may come late."""
    (news,) = composed(1)
    anne = Peer([])
    anne.enter()
    anne.settle()
    anne.hear(PublishNew(TOPIC, news))
    anne.tell(Unsubscribe(TOPIC))
    anne.hear(messages.SetData(TOPIC, None, None, None), BOSS)
    anne.settle()
    assert anne.machine.view().peers == {}


def test_when_the_log_has_changed_it_is_read_again_and_what_is_gone_is_asked_for() -> None:
    """Also when it changes while it is read; a read of the log as it was counts no more."""
    said = composed(300)
    anne = Peer(said)
    anne.enter()
    anne.answer_one()  # the first piece
    anne.open.clear()  # the second is never answered
    for gone in said[:2]:
        del anne.log.events[gone.id]
    anne.tell(LogChanged())
    (stale,) = anne.open
    for gone in said[2:4]:
        del anne.log.events[gone.id]
    anne.tell(LogChanged())
    anne.tell(Loaded(stale.number, (said[2].to_event(),)))
    anne.hear(PublishNew(TOPIC, said[0]))
    anne.settle()
    assert sorted(anne.keys) == sorted(each.id for each in (said[0], *said[4:]))
    lacked = PatriciaTrie(PublicationConfig().key_bits)
    for each in said:
        lacked.insert(each.id)
    anne.letters.clear()
    anne.hear(CheckTrie(TOPIC, (lacked.root_summary(),)))
    assert anne.sent(CheckTrie) or anne.sent(CheckAndPublish)
