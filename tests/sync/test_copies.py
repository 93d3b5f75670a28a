"""Counting copies: who has an event on the disk, whoever else does not answer."""

import random

from rumormill.core.effects import Ask, Effects, Outcome, SetTimer
from rumormill.sync.copies import Copies, CountCopies, Recount
from rumormill.sync.messages import Confirmed

PEERS = [b"one", b"two", b"silent"]


def test_who_does_not_answer_keeps_nobody_waiting_for_the_others() -> None:
    """A stopped process is found out after seconds; the others have the event after a moment."""
    copies = Copies(random.Random(1), timeout=10.0)
    effects: Effects = []
    copies.begin(1, CountCopies("news", b"id", 2, 30.0), 0.0, effects)
    effects.clear()
    copies.recount(Recount(1), PEERS, 100, effects)
    asked = {each.peer: each.number for each in effects if isinstance(each, Ask)}
    assert sorted(asked) == sorted(PEERS)
    effects.clear()
    for peer in PEERS[:2]:
        copies.on_answer(peer, asked[peer], Confirmed(()), 0.1, effects)
    (again,) = [each for each in effects if isinstance(each, SetTimer)]
    assert again.timer == Recount(1)
    assert again.at < 1.0
    effects.clear()
    copies.recount(Recount(1), PEERS, 200, effects)
    asked = {each.peer: each.number for each in effects if isinstance(each, Ask)}
    assert sorted(asked) == sorted(PEERS[:2])
    effects.clear()
    for peer in asked:
        copies.on_answer(peer, asked[peer], Confirmed((0,)), 0.2, effects)
    assert effects[-1] == Outcome(1, 2)
