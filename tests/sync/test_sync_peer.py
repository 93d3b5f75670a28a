"""A peer with sync: what it follows, from when on, and whom it asks how often."""

import math
from typing import Any

import pytest
from sync_stage import Stage

from rumormill.core.effects import Outcome
from rumormill.core.errors import LocalError
from rumormill.core.inputs import Publish, Subscribe, TimerFired, Unsubscribe
from rumormill.protocols.registry import Hooks
from rumormill.sim.sync_liar import SyncLiar
from rumormill.sync.partner import TICK, Partner
from rumormill.sync.peer import NOT_KEPT
from rumormill.sync.session import COMPLETE, EQUAL, PROMISED
from rumormill.sync.wishes import SyncNow

WORDS = ("one", "two", "three", "four", "five")
MINUTE = 60.0


def publisher() -> Stage:
    """Somebody has said five words, in the first five seconds, a while ago."""
    stage = Stage(1)
    stage.subscribe(0)
    stage.publish(0, *WORDS)
    stage.run(20)
    return stage


@pytest.mark.parametrize(
    ("wishes", "heard"),
    [
        ((3.5, 1.5), WORDS[1:]),
        ((1.5, 3.5), WORDS[1:]),
        ((None, 0.0), WORDS),
        ((0.0, None), WORDS),
        ((0.0, math.inf), WORDS),
        ((math.inf, 3.5), WORDS[3:]),
        ((math.inf,), ()),
        ((None,), ()),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_of_several_subscriptions_the_one_that_wants_most_counts(
    wishes: tuple[float | None, ...], heard: tuple[str, ...], at_once: bool
) -> None:
    """In whatever order they come: all is there from the earliest date on."""
    stage = publisher()
    late = stage.add()
    for since in wishes:
        stage.subscribe(late, since=since)
        stage.run(0 if at_once else 1)
    stage.connect(late, 0)
    stage.run(MINUTE)
    assert tuple(stage.words(late)) == heard


def test_who_has_left_and_comes_again_wants_what_the_new_subscription_says() -> None:
    """The earlier wish went with the subscription."""
    stage = publisher()
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.host(late).handle(Unsubscribe("news"))
    stage.subscribe(late, since=3.5)
    stage.connect(late, 0)
    stage.run(MINUTE)
    assert tuple(stage.words(late)) == WORDS[3:]


def test_a_subscription_that_the_protocol_refuses_is_none() -> None:
    """Nothing is asked about it."""
    stage = publisher()
    late = stage.add(Hooks(subscription_filter=lambda _: False))
    with pytest.raises(LocalError):
        stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    stage.run(5 * MINUTE)
    assert stage.sessions(late) == []
    assert len(stage.journal(late)) == 0


def test_who_comes_back_gets_soon_what_was_published_up_to_that_moment() -> None:
    """No protocol brings that any more, so it is not left to one for ten seconds."""
    stage = Stage(2)
    for peer in (0, 1):
        stage.subscribe(peer)
    stage.connect(1, 0)
    stage.run(MINUTE)
    stage.network.disconnect(stage.host(1), stage.host(0).id)
    stage.run(5)
    stage.publish(0, *WORDS, every=0.1)
    stage.connect(1, 0)
    stage.run(2)
    assert tuple(stage.words(1)) == WORDS


def test_who_subscribes_gets_soon_what_was_published_up_to_that_moment() -> None:
    """Likewise: it was connected, and nobody sent it events of this topic."""
    stage = Stage(2)
    stage.subscribe(0)
    stage.connect(1, 0)
    stage.run(MINUTE)
    stage.publish(0, *WORDS, every=0.1)
    stage.subscribe(1, since=0.0)
    stage.run(2)
    assert tuple(stage.words(1)) == WORDS


def test_a_good_partner_is_asked_at_every_interval() -> None:
    """Who has nobody else to ask does not wait longer for that: every 20 seconds on average."""
    stage = publisher()
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    stage.run(20 * MINUTE)
    ended = stage.sessions(late)
    assert [each.outcome for each in ended] == [COMPLETE] + [EQUAL] * (len(ended) - 1)
    assert 50 <= len(ended) <= 70


def test_a_partner_that_gives_nothing_is_left_alone_ever_longer() -> None:
    """However often it offers, and though it goes and comes back."""
    stage = Stage(1)
    stage.subscribe(0)
    stage.run(MINUTE)
    liar = stage.add(build=lambda _, rng: SyncLiar("phantoms", ["news"], [], 1.0, rng))
    stage.connect(0, liar)
    stage.run(30 * MINUTE)
    stage.network.disconnect(stage.host(0), stage.host(liar).id)
    stage.run(1)
    stage.connect(0, liar)
    stage.run(30 * MINUTE)
    ended = stage.sessions(0)
    assert {each.outcome for each in ended} == {PROMISED}
    assert stage.refused(0) == {PROMISED: len(ended)}
    assert 8 <= len(ended) <= 10, "after 10 seconds, 20, 40, ..., an hour at most"


def test_a_peer_knows_what_it_lacks_and_since_when() -> None:
    """While it fetches, and until it has compared everything; what a liar promises is no gap."""
    stage = publisher()
    stage.publish(0, *[f"more {number}" for number in range(300)], every=0.1)
    stage.run(20)
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.connect(late, 0)
    view, backlog = stage.host(late).machine.view, []
    began = stage.network.engine.now
    while not view().compared:
        stage.run(0.01)
        backlog += view().backlog.values()
        assert all(began <= since for since in view().lacking.values())
    assert backlog[0] == 305
    assert backlog == sorted(backlog, reverse=True)
    assert view().lacking == view().backlog == {}
    liar = stage.add(build=lambda _, rng: SyncLiar("phantoms", ["news"], [], 1.0, rng))
    stage.connect(late, liar)
    stage.run(MINUTE)
    assert stage.refused(late)[PROMISED] >= 1
    assert view().backlog == {}


def test_who_asks_to_be_synced_gets_what_each_partner_alone_has() -> None:
    """Sessions leave a topic to the one that looks after it already; a wish waits for them all."""
    stage = Stage(3)
    for peer in range(3):
        stage.subscribe(peer)
        stage.publish(peer, f"only {peer}")
    late = stage.add()
    stage.subscribe(late, since=0.0)
    outcomes: list[object] = []
    for peer in range(3):
        stage.connect(late, peer)
    stage.run(0.1)
    stage.host(late).command(SyncNow(("news",)), outcomes.append)
    while not outcomes:
        stage.run(0.1)
    assert sorted(stage.words(late)) == ["only 0", "only 1", "only 2"]


def test_a_full_disk_is_no_complete_history() -> None:
    """What could not be kept is missing, and fetched when there is room; not again and again."""
    stage = publisher()
    late = stage.add()
    stage.subscribe(late, since=0.0)
    stage.run(1.0)
    stage.journal(late).trouble = "the disk is full"
    stage.connect(late, 0)
    view = stage.host(late).machine.view
    for _ in range(4):
        stage.run(MINUTE)
        assert {each.outcome for each in stage.sessions(late)} == {NOT_KEPT}
        assert (view().compared, view().backlog) == ({}, {"news": 5})
        assert "news" in view().lacking
    assert len(stage.sessions(late)) < 4 * 6
    stage.journal(late).trouble = ""
    stage.run(MINUTE)
    assert stage.words(late) == list(WORDS)
    assert (list(view().compared), view().lacking) == (["news"], {})


def test_who_asks_twice_at_once_gets_both() -> None:
    """Two wishes for two topics, and one for more topics than a session compares."""
    stage = Stage(1)
    topics = [f"topic {number}" for number in range(300)]
    for topic in topics:
        stage.host(0).handle(Subscribe(topic))
        stage.host(0).handle(Publish(topic, topic.encode()))
    late = stage.add()
    for topic in topics:
        stage.subscribe(late, topic, since=0.0)
    stage.connect(late, 0)
    stage.run(0.1)
    said: dict[tuple[str, ...], list[Outcome]] = {}
    for wanted in (("topic 1",), ("topic 2", "topic 3"), tuple(topics)):
        stage.host(late).command(SyncNow(wanted), said.setdefault(wanted, []).append)
    for wanted, reports in said.items():
        while not reports:
            stage.run(0.01)
        assert set(stage.words(late)) >= set(wanted)
        assert [report.result.answered for report in reports] == [1]


def test_a_few_partners_who_are_always_due_do_not_keep_others_waiting() -> None:
    """Three sessions at a time are all, and who offers all the time and answers late could have
    them for ever: whose last one is the longest ago is first."""
    stage = publisher()
    peer: Any = stage.host(0).machine
    now = stage.network.engine.now
    peer._partners = {
        bytes([number]): Partner(False, due=now, ended=now - 60.0 + number) for number in range(5)
    }
    peer._partners[b"new"] = Partner(False, due=now)
    peer.handle(TimerFired(TICK), now, [])
    assert [*peer._sessions] == [b"new", b"\0", b"\1"]
