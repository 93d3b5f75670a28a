"""The supervisor by itself: Algorithm 3, its database under corruption, and what it costs."""

import random
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.effects import Effects, Mail
from rumormill.core.trace import Refuse
from rumormill.protocols.skipring import reasons
from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.labels import CIRCLE, label_of, ring_neighbours
from rumormill.protocols.skipring.messages import (
    Acknowledge,
    GetConfiguration,
    Reference,
    SetData,
    Subscribe,
    Unsubscribe,
)
from rumormill.protocols.skipring.supervisor import Supervisor

QUIET = SkipRingConfig(patience=0)


def peer(number: int) -> bytes:
    return number.to_bytes(4, "big")


def supervisor_of(n: int, config: SkipRingConfig = QUIET) -> Supervisor:
    supervisor = Supervisor("t", config)
    for number in range(n):
        supervisor.record(label_of(number), peer(number))
    return supervisor


def sound(supervisor: Supervisor) -> bool:
    """None of the four conditions of section 3.1 holds, and the index is right."""
    database = supervisor.database
    return (
        set(database) == {label_of(number) for number in range(len(database))}
        and None not in database.values()
        and len(set(database.values())) == len(database)
        and dict(supervisor.index) == {who: label for label, who in database.items()}
    )


def answers(supervisor: Supervisor, sender: bytes, message: Any) -> list[Any]:
    effects: Effects = []
    supervisor.receive(sender, message, effects)
    return effects


def test_subscribe_gives_the_next_label_and_the_configuration() -> None:
    """Section 4.1: insert (l(n), v), send v its configuration (pred_v, l(n), succ_v)."""
    supervisor = supervisor_of(4)
    (mail,) = answers(supervisor, peer(9), Subscribe("t"))
    pred, succ = Reference(0, peer(0)), Reference(label_of(2), peer(2))
    assert mail == Mail(peer(9), SetData("t", pred, label_of(4), succ))
    assert supervisor.database[label_of(4)] == peer(9)
    assert answers(supervisor, peer(9), Subscribe("t")) == [mail]
    assert len(supervisor.database) == 5


def test_the_only_subscriber_has_no_neighbours() -> None:
    """The ring of one: pred and succ would be itself."""
    (mail,) = answers(supervisor_of(0), peer(9), Subscribe("t"))
    assert mail == Mail(peer(9), SetData("t", None, 0, None))


def test_unsubscribe_lets_the_last_one_inherit_the_label() -> None:
    """Section 4.1: replace label_w = l(n-1) with v's label, send w its new configuration, and
    permit v to delete its connections."""
    supervisor = supervisor_of(6)
    to_heir, *others, to_leaver = answers(supervisor, peer(2), Unsubscribe("t"))
    assert to_heir.peer == peer(5)
    assert to_heir.message.label == label_of(2)
    assert to_leaver == Mail(peer(2), SetData("t", None, None, None))
    # l(2) = 1/4 had the neighbours l(4) = 1/8 and l(5) = 3/8; l(5) had 1/4 and l(1) = 1/2.
    assert [mail.peer for mail in others] == [peer(4), peer(1)]
    assert sound(supervisor)
    *others, to_leaver = answers(supervisor, peer(4), Unsubscribe("t"))
    assert to_leaver.peer == peer(4)
    assert [mail.peer for mail in others] == [peer(0), peer(5)]
    assert sound(supervisor)


def test_permission_to_leave_is_given_to_who_is_not_known() -> None:
    """Algorithm 3 as printed would leave it waiting for ever after the database was lost."""
    (mail,) = answers(supervisor_of(3), peer(9), Unsubscribe("t"))
    assert mail == Mail(peer(9), SetData("t", None, None, None))


def test_configurations_go_round_robin() -> None:
    """Section 3.1: "the supervisor chooses a subscriber v in a round-robin fashion"."""
    supervisor = supervisor_of(5)
    effects: Effects = []
    for _ in range(10):
        supervisor.timeout(effects)
    assert [mail.peer for mail in effects] == [peer(n % 5) for n in range(1, 11)]
    for mail in effects:
        label = mail.message.label
        before, behind = ring_neighbours(label, 5)
        assert (mail.message.pred.label, mail.message.succ.label) == (before, behind)


@given(st.data())
def test_any_database_becomes_sound(data: st.DataObject) -> None:
    """Lemma 9: "Eventually the supervisor's database will not be corrupted anymore": whatever is in
    it and in the index, it holds those whom it held, once each, under l(0) to l(n-1)."""
    labels = st.one_of(st.integers(0, CIRCLE - 1), st.integers(0, 12).map(label_of))
    peers = st.integers(0, 9).map(peer)
    checks = data.draw(st.sampled_from((1, 3, 64)))
    supervisor = Supervisor("t", SkipRingConfig(patience=0, tuples_per_timeout=checks))
    supervisor.database.update(data.draw(st.dictionaries(labels, st.none() | peers)))
    supervisor.index.update(data.draw(st.dictionaries(peers, labels)))
    supervisor.next = data.draw(st.integers(0, 100))
    held = {who for who in supervisor.database.values() if who is not None}
    for _ in range(600):
        supervisor.timeout([])
    assert sound(supervisor)
    assert set(supervisor.database.values()) == held


def test_the_lower_of_two_labels_is_kept() -> None:
    """Section 3.1 (ii): "It then removes all duplicates except the tuple with lowest label"."""
    supervisor = supervisor_of(4)
    supervisor.record(label_of(9), peer(1))
    for _ in range(3):
        supervisor.timeout([])
    assert sound(supervisor)
    assert supervisor.label(peer(1)) == label_of(1)


def test_while_a_neighbour_is_missing_no_configuration_is_sent() -> None:
    """A subscriber would have to take the gap for the truth."""
    supervisor = supervisor_of(4, SkipRingConfig(patience=0, tuples_per_timeout=1))
    del supervisor.database[label_of(2)]
    supervisor.database[12345] = peer(2)
    assert answers(supervisor, peer(0), GetConfiguration("t", peer(0))) == []
    for _ in range(20):
        supervisor.timeout([])
    assert len(answers(supervisor, peer(0), GetConfiguration("t", peer(0)))) == 1


class CountingDict(OrderedDict[Any, Any]):
    """Counts how often it is touched."""

    touched = 0

    def __getitem__(self, key: Any) -> Any:
        self.touched += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.touched += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.touched += 1
            yield key

    def items(self) -> Any:
        return ((key, super(CountingDict, self).__getitem__(key)) for key in self)

    def move_to_end(self, key: Any, last: bool = True) -> None:
        self.touched += 1
        super().move_to_end(key, last)


@pytest.mark.parametrize("corrupt", [False, True])
def test_a_timeout_costs_the_same_for_any_n(corrupt: bool) -> None:
    """Section 3.1 checks the whole database in each TIMEOUT; ours touches as many tuples of 100,000
    as of 1,000."""
    costs = {}
    for n in (1_000, 100_000):
        supervisor = supervisor_of(n, QUIET)
        if corrupt:
            rng = random.Random(n)
            for label in rng.sample(list(supervisor.database), n // 10):
                del supervisor.database[label]
                supervisor.database[rng.randrange(CIRCLE)] = rng.choice((None, peer(n), peer(5)))
        supervisor.database = CountingDict(supervisor.database)
        supervisor.index = CountingDict(supervisor.index)
        most = 0
        for _ in range(50):
            before = supervisor.database.touched + supervisor.index.touched
            supervisor.timeout([])
            most = max(most, supervisor.database.touched + supervisor.index.touched - before)
        costs[n] = most
    assert costs[100_000] <= (80 if corrupt else 10) * QUIET.tuples_per_timeout
    if not corrupt:
        assert costs[100_000] == costs[1_000]


# The failure detector.


def test_who_does_not_acknowledge_is_asked_again_and_then_removed() -> None:
    """Section 3.3: "if the supervisor notices that subscriber v has crashed, it just has to remove
    v from its database". The others answer."""
    supervisor = supervisor_of(4, SkipRingConfig(patience=2, misses=3))
    asked = 0
    for _ in range(40):
        effects: Effects = []
        supervisor.timeout(effects)
        for mail in effects:
            assert isinstance(mail, Mail)
            if mail.peer == peer(1):
                asked += 1
            else:
                supervisor.receive(mail.peer, Acknowledge("t"), [])
        if supervisor.label(peer(1)) is None:
            break
    assert supervisor.label(peer(1)) is None
    assert asked >= 3
    assert len(supervisor.database) == 3
    assert sound(supervisor)


def test_who_cannot_be_reached_is_removed_within_a_few_intervals() -> None:
    """The runtime's word that a letter could not be delivered counts as a miss at once."""
    supervisor = supervisor_of(100, SkipRingConfig(patience=50, misses=3))
    answers(supervisor, peer(5), GetConfiguration("t", peer(7)))
    for _ in range(4):
        supervisor.unreachable(peer(7))
        supervisor.timeout([])
    assert supervisor.label(peer(7)) is None
    assert len(supervisor.database) == 99


def test_a_sign_of_life_ends_all_suspicion() -> None:
    """Any message will do."""
    supervisor = supervisor_of(10, SkipRingConfig(patience=1, misses=3))
    answers(supervisor, peer(5), GetConfiguration("t", peer(7)))
    for _ in range(30):
        supervisor.timeout([])
        for number in range(10):
            supervisor.receive(peer(number), Acknowledge("t"), [])
    assert len(supervisor.database) == 10
    assert supervisor.patience == 1


def test_a_mistake_makes_the_detector_more_patient() -> None:
    """Eventually correct: a subscriber that was removed for its silence proves to be alive."""
    supervisor = supervisor_of(3, SkipRingConfig(patience=1, misses=1))
    for _ in range(20):
        supervisor.timeout([])
    assert not supervisor.database
    answers(supervisor, peer(1), Acknowledge("t"))
    assert supervisor.patience == 2


def test_who_comes_back_was_rightly_removed() -> None:
    """A peer that crashes and starts again has no label and subscribes: nothing was mistaken. If
    it made the detector more patient, twenty restarts would make it blind."""
    supervisor = supervisor_of(3, SkipRingConfig(patience=1, misses=1))
    for _ in range(20):
        for _ in range(10):
            supervisor.timeout([])
        assert not supervisor.database
        answers(supervisor, peer(1), Subscribe("t"))
        answers(supervisor, peer(1), Acknowledge("t"))
    assert supervisor.patience == 1


# Limits.


def test_requests_of_one_peer_are_limited_per_interval() -> None:
    """Work per peer is bounded, refusals are counted, and others are served."""
    supervisor = supervisor_of(4, SkipRingConfig(patience=0, requests_per_interval=3))
    effects: Effects = []
    for _ in range(10):
        supervisor.receive(peer(1), GetConfiguration("t", peer(2)), effects)
    refused = [effect for effect in effects if isinstance(effect, Refuse)]
    assert len(effects) == 10
    assert len(refused) == 7
    assert {effect.reason for effect in refused} == {reasons.TOO_MANY_REQUESTS}
    assert isinstance(answers(supervisor, peer(3), Subscribe("t"))[0], Mail)
    supervisor.timeout([])
    assert isinstance(answers(supervisor, peer(1), Subscribe("t"))[0], Mail)


def test_a_full_database_refuses_newcomers_and_serves_its_own() -> None:
    """A topic has a bounded number of subscribers."""
    supervisor = supervisor_of(3, SkipRingConfig(patience=0, max_subscribers=3))
    (refusal,) = answers(supervisor, peer(9), Subscribe("t"))
    assert refusal == Refuse(peer(9), reasons.TOO_MANY_SUBSCRIBERS, "t")
    assert isinstance(answers(supervisor, peer(1), Subscribe("t"))[0], Mail)


def test_a_foreign_unsubscribe_is_impossible() -> None:
    """UNSUBSCRIBE is for its sender: nobody can sign off another one."""
    supervisor = supervisor_of(3)
    answers(supervisor, peer(9), Unsubscribe("t"))
    assert len(supervisor.database) == 3
