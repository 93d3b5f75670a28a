"""A whole peer: topics, roles, what the application hears, and what is refused."""

import random
from typing import Any

import pytest

from rumormill.core.config import override
from rumormill.core.effects import Append, Effects, Load, Mail, Outcome, Published, SetTimer
from rumormill.core.errors import ConfigError, LimitError, LocalError
from rumormill.core.inputs import (
    Command,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Stored,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from rumormill.core.machine import View
from rumormill.core.trace import Join, Leave, Refuse
from rumormill.node.driver import QUEUE_FULL as NODE_QUEUE_FULL
from rumormill.node.pending_sends import TOO_MANY_PENDING
from rumormill.protocols.registry import NO_HOOKS
from rumormill.protocols.skipring import messages, reasons
from rumormill.protocols.skipring.config import PublicationConfig, SkipRingConfig
from rumormill.protocols.skipring.labels import label_of
from rumormill.protocols.skipring.peer import ENTERED, TIMEOUT, SetSupervisors, SkipRing
from rumormill.protocols.skipring.supervisor import Supervisors
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.journal import Journal
from rumormill.sim.link import QUEUE_FULL as SIM_QUEUE_FULL

BOSS, ANNE, BOB = b"boss", b"anne", b"bob!"
CONFIG = SkipRingConfig(supervisors=(BOSS.hex(),), max_subscriptions=3, max_topics=2)


class Village:
    """Peers whose letters arrive in the order of sending, when a test says so."""

    def __init__(self, *names: bytes, config: SkipRingConfig = CONFIG) -> None:
        self.peers = {
            name: SkipRing(SimulatedIdentity(name), random.Random(0), config, NO_HOOKS)
            for name in names
        }
        self.journals = {name: Journal() for name in names}
        self.letters: list[tuple[bytes, Mail]] = []
        self.heard: dict[bytes, list[Any]] = {name: [] for name in names}
        for name in names:
            self.tell(name, Start())

    def tell(self, name: bytes, event: Any) -> Effects:
        effects: Effects = []
        self.peers[name].handle(event, 0.0, effects)
        self.letters += [(name, effect) for effect in effects if isinstance(effect, Mail)]
        self.heard[name] += [effect for effect in effects if not isinstance(effect, Mail)]
        for effect in tuple(effects):
            if isinstance(effect, Append):
                self.journals[name].keep(effect.event, 0.0)
                effects += self.tell(name, Stored((effect.barrier,)))
            elif isinstance(effect, Load):
                effects += self.tell(name, self.journals[name].load(effect))
        return effects

    def deliver(self) -> None:
        while self.letters:
            sender, mail = self.letters.pop(0)
            if mail.peer in self.peers:
                self.tell(mail.peer, Received(sender, mail.message))
            else:
                self.tell(sender, SendDropped(mail.peer, mail.message, "peer down"))

    def intervals(self, number: int) -> None:
        for _ in range(number):
            for name in self.peers:
                self.tell(name, TimerFired(TIMEOUT))
                self.deliver()

    def subscribe(self, name: bytes, topic: str) -> None:
        self.tell(name, Subscribe(topic))
        self.tell(name, TimerFired(ENTERED))
        self.deliver()

    def delivered(self, name: bytes) -> list[bytes]:
        return [each.event.data for each in self.told(name, Append) if each.deliver]

    def told(self, name: bytes, kind: type) -> list[Any]:
        return [effect for effect in self.heard[name] if isinstance(effect, kind)]


def ring_of_two() -> Village:
    village = Village(BOSS, ANNE, BOB)
    village.subscribe(ANNE, "news")
    village.subscribe(BOB, "news")
    village.intervals(3)
    return village


def test_a_newcomer_has_a_label_and_neighbours_after_one_exchange() -> None:
    """Subscribing does not wait for the first TIMEOUT."""
    village = Village(BOSS, ANNE)
    assert village.told(ANNE, SetTimer)
    village.subscribe(ANNE, "news")
    assert village.peers[ANNE].members["news"].subscriber.label == 0
    assert village.told(ANNE, Join) == [Join("news")]


def test_the_view_shows_neighbours_by_topic_and_kind() -> None:
    """Ring neighbours and shortcuts; whoever only publishes shows a place, and no subscription."""
    names = [b"p%03d" % number for number in range(5)]
    village = Village(BOSS, *names)
    for name in names[:4]:
        village.subscribe(name, "news")
    village.tell(names[4], Subscribe("news", publish_only=True))
    village.intervals(6)
    views = {name: village.peers[name].view() for name in names}
    assert [views[name].subscriptions for name in names] == [("news",)] * 4 + [()]
    for name, view in views.items():
        subscriber = village.peers[name].members["news"].subscriber
        ring, shortcuts = view.links["ring"]["news"], view.links["shortcut"]["news"]
        assert set(ring) == set(subscriber.ring_neighbours)
        assert {*ring, *shortcuts} == set(view.peers["news"]) == set(subscriber.neighbours)
    assert any(view.links["shortcut"]["news"] for view in views.values())
    assert village.peers[BOSS].view() == View(links={"ring": {}, "shortcut": {}})


def test_what_one_publishes_the_other_hears_and_late_comers_hear_it_all() -> None:
    """Section 4: "Every subscriber of a topic eventually gets all publications"."""
    village = Village(BOSS, ANNE, BOB)
    village.subscribe(ANNE, "news")
    village.tell(ANNE, Publish("news", b"first"))
    (receipt,) = village.told(ANNE, Published)
    assert receipt.peers == 0
    assert receipt.note
    village.subscribe(BOB, "news")
    village.intervals(1)
    village.tell(BOB, Publish("news", b"second"))
    village.deliver()
    assert village.delivered(ANNE) == [b"first", b"second"]
    assert village.delivered(BOB) == [b"first", b"second"]
    assert village.told(BOB, Published)[0].peers == 1


def test_who_unsubscribes_hears_nothing_more_and_is_forgotten() -> None:
    """Section 4: the subscriber may remove the protocol "once it gets the permission"."""
    village = ring_of_two()
    village.tell(BOB, Unsubscribe("news"))
    assert village.told(BOB, Leave) == [Leave("news")]
    village.tell(ANNE, Publish("news", b"after"))
    village.deliver()
    assert not village.delivered(BOB)
    assert "news" not in village.peers[BOB].members
    village.intervals(3)
    assert not village.peers[ANNE].members["news"].subscriber.neighbours
    assert len(village.peers[BOSS].supervised["news"].database) == 1


def test_who_subscribes_again_before_it_is_gone_stays() -> None:
    """UNSUBSCRIBE may already be on its way."""
    village = ring_of_two()
    village.tell(BOB, Unsubscribe("news"))
    village.tell(BOB, Subscribe("news"))
    village.deliver()
    village.intervals(4)
    assert len(village.peers[BOSS].supervised["news"].database) == 2
    assert village.told(BOB, Join) == [Join("news"), Join("news")]
    village.tell(ANNE, Publish("news", b"hello"))
    village.deliver()
    assert village.delivered(BOB) == [b"hello"]


def test_a_late_subscribe_after_unsubscribe_is_taken_back() -> None:
    """Messages are not FIFO: who is recorded by a stale SUBSCRIBE asks to be forgotten again."""
    village = ring_of_two()
    village.tell(BOB, Unsubscribe("news"))
    village.deliver()
    village.tell(BOSS, Received(BOB, messages.Subscribe("news")))
    assert len(village.peers[BOSS].supervised["news"].database) == 2
    village.deliver()
    assert len(village.peers[BOSS].supervised["news"].database) == 1


def test_publishing_makes_a_member_that_hears_nothing() -> None:
    """There is no way into a ring but to be part of it."""
    village = Village(BOSS, ANNE, BOB)
    village.subscribe(ANNE, "news")
    village.tell(BOB, Publish("news", b"from outside"))
    village.tell(BOB, TimerFired(ENTERED))
    village.deliver()
    village.intervals(1)
    village.tell(ANNE, Publish("news", b"from inside"))
    village.deliver()
    assert not village.delivered(BOB)
    assert [each.event.data for each in village.told(BOB, Append)] == [
        b"from outside",
        b"from inside",
    ]
    village.tell(BOB, Subscribe("news"))
    assert village.told(BOB, Join) == [Join("news")]


def test_what_is_published_before_there_is_a_neighbour_is_flooded_to_the_first() -> None:
    """Else it would wait for the tries: who enters a ring in order to publish has nobody yet, and
    may be gone before it has told anybody."""
    village = Village(BOSS, ANNE, BOB)
    village.subscribe(ANNE, "news")
    village.tell(BOB, Publish("news", b"from outside"))
    assert [each.peers for each in village.told(BOB, Published)] == [0]
    village.tell(BOB, TimerFired(ENTERED))
    village.deliver()
    assert village.delivered(ANNE) == [b"from outside"]


def test_publish_only_hears_its_own() -> None:
    """As for the other protocols."""
    village = Village(BOSS, ANNE)
    village.tell(ANNE, Subscribe("news", publish_only=True))
    assert not village.told(ANNE, Join)
    village.tell(ANNE, Publish("news", b"mine"))
    assert village.delivered(ANNE) == [b"mine"]
    with pytest.raises(LocalError, match="either subscribed to or publish-only"):
        village.tell(ANNE, Subscribe("news"))
    village.tell(ANNE, Subscribe("news", publish_only=True))


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Subscribe(""), "needs a name"),
        (Subscribe("\ud800"), "UTF-8"),
        (Publish("x" * 2000, b""), "max_topic_length"),
        (Publish("x", bytes(1 << 20)), "max_data"),
    ],
)
def test_impossible_requests_are_refused(event: Any, error: str) -> None:
    village = Village(BOSS, ANNE)
    with pytest.raises(LocalError, match=error):
        village.tell(ANNE, event)


def test_data_beyond_the_limit_is_refused_to_the_caller() -> None:
    """Nothing is stored or sent."""
    short = SkipRingConfig(supervisors=(BOSS.hex(),), publications=PublicationConfig(max_data=10))
    village = Village(BOSS, ANNE, config=short)
    village.subscribe(ANNE, "news")
    with pytest.raises(LimitError, match="max_data"):
        village.tell(ANNE, Publish("news", bytes(11)))
    assert not village.told(ANNE, Append)
    assert not village.letters


def test_topics_are_limited() -> None:
    """At a subscriber by an error, at a supervisor by a counted refusal."""
    village = Village(BOSS, ANNE, BOB)
    for topic in "abc":
        village.subscribe(ANNE, topic)
    with pytest.raises(LimitError, match="max_subscriptions"):
        village.tell(ANNE, Subscribe("d"))
    assert village.told(BOSS, Refuse) == [Refuse(ANNE, reasons.TOO_MANY_TOPICS, "c")]


def test_the_supervisor_decides_which_topics_there_are() -> None:
    """One that is not on its list gets no ring, whoever asks; who asked for it may still leave. A
    peer that knows the list does not even ask."""
    village = Village(BOSS, config=override(CONFIG, {"topics": ("news", "chat")}))
    stranger = SkipRing(SimulatedIdentity(ANNE), random.Random(0), CONFIG, NO_HOOKS)
    village.peers[ANNE], village.journals[ANNE], village.heard[ANNE] = stranger, Journal(), []
    for topic in ("news", "else"):
        village.tell(ANNE, Subscribe(topic))
    village.tell(ANNE, TimerFired(ENTERED))
    village.deliver()
    assert village.peers[BOSS].supervised.keys() == {"news"}
    refused = [each for each in village.heard[BOSS] if isinstance(each, Refuse)]
    assert refused == [Refuse(ANNE, reasons.NOT_OFFERED, "else")]
    assert [member.subscriber.own is None for member in stranger.members.values()] == [False, True]
    village.tell(ANNE, Unsubscribe("else"))
    village.deliver()
    assert stranger.members.keys() == {"news"}
    with pytest.raises(LocalError, match=r"there is no topic 'newz'; did you mean news\?"):
        village.tell(BOSS, Subscribe("newz"))
    with pytest.raises(LocalError, match="there is no topic 'else'; known names: news, chat"):
        village.tell(BOSS, Publish("else", b"x"))
    with pytest.raises(ConfigError, match="topics: must be at most 2"):
        override(CONFIG, {"topics": ("a", "b", "c")})


def test_without_a_supervisor_nothing_can_be_subscribed_to() -> None:
    village = Village(ANNE, config=SkipRingConfig())
    with pytest.raises(LocalError, match="no supervisor"):
        village.tell(ANNE, Subscribe("news"))


def test_an_empty_topic_costs_the_supervisor_nothing() -> None:
    """Its database is dropped, and requests about unknown topics leave nothing behind."""
    village = ring_of_two()
    village.tell(BOSS, Received(ANNE, messages.GetConfiguration("nowhere", BOB)))
    for name in (ANNE, BOB):
        village.tell(name, Unsubscribe("news"))
        village.deliver()
    village.intervals(1)
    assert not village.peers[BOSS].supervised


# Malice.


@pytest.mark.parametrize(
    ("receiver", "sender", "message", "reason"),
    [
        (ANNE, BOB, messages.SetData("news", None, label_of(7), None), reasons.NOT_SUPERVISOR),
        (
            ANNE,
            BOB,
            messages.Check("news", messages.Reference(3, b"eve"), 0, messages.Flag.LIN),
            reasons.FOREIGN_SENDER,
        ),
        (ANNE, BOB, messages.Subscribe("news"), reasons.NOT_RESPONSIBLE),
        (
            ANNE,
            BOB,
            messages.Linearize("other", messages.Reference(3, b"eve")),
            reasons.NOT_SUBSCRIBED,
        ),
    ],
)
def test_false_messages_are_refused_and_counted(
    receiver: bytes, sender: bytes, message: Any, reason: str
) -> None:
    """A configuration from nobody's supervisor, a foreign id, a request to the wrong peer."""
    village = ring_of_two()
    subscriber = village.peers[receiver].members["news"].subscriber
    before = (subscriber.own, subscriber.left, subscriber.right, subscriber.ring)
    effects = village.tell(receiver, Received(sender, message))
    assert Refuse(sender, reason, message.topic) in effects
    assert (subscriber.own, subscriber.left, subscriber.right, subscriber.ring) == before


def test_nobody_can_have_another_one_forgotten() -> None:
    """REMOVECONNECTIONS is about its sender."""
    village = ring_of_two()
    village.tell(ANNE, Received(b"eve", messages.RemoveConnections("news")))
    assert list(village.peers[ANNE].members["news"].subscriber.neighbours) == [BOB]


def test_a_full_queue_is_no_sign_of_death() -> None:
    """Only what says that the receiver is out of reach makes us forget it."""
    village = ring_of_two()
    lost = messages.RemoveConnections("news")
    for full in (SIM_QUEUE_FULL, NODE_QUEUE_FULL, TOO_MANY_PENDING):
        village.tell(ANNE, SendDropped(BOB, lost, full))
        assert village.peers[ANNE].members["news"].subscriber.neighbours
    effects = village.tell(ANNE, SendDropped(BOB, lost, "peer down"))
    assert not village.peers[ANNE].members["news"].subscriber.neighbours
    assert effects == [Mail(BOSS, messages.GetConfiguration("news", BOB))]


def test_connections_mean_nothing() -> None:
    """Letters find their way without them."""
    village = ring_of_two()
    village.tell(ANNE, PeerConnected(BOB, "/rumormill/skipring/1.0.0"))
    village.tell(ANNE, PeerDisconnected(BOB))
    assert village.peers[ANNE].members["news"].subscriber.neighbours


# Several supervisors.


def test_a_supervisor_that_joins_or_leaves_moves_only_its_share() -> None:
    """Section 1.3: "a sub-interval of [0, 1) is assigned to each supervisor"."""
    topics = [f"topic-{number}" for number in range(3000)]
    some = [b"s%d" % number for number in range(5)]
    before, after = Supervisors(some), Supervisors([*some, b"new"])
    moved = [topic for topic in topics if before.of(topic) != after.of(topic)]
    assert {after.of(topic) for topic in moved} == {b"new"}
    assert 0.5 / 6 < len(moved) / len(topics) < 1.7 / 6
    for supervisor in some:
        share = sum(before.of(topic) == supervisor for topic in topics) / len(topics)
        assert 0.5 / 5 < share < 1.7 / 5
    reordered = Supervisors(reversed(some))
    assert all(reordered.of(topic) == before.of(topic) for topic in topics)


def test_topics_change_hands_and_rings_stay() -> None:
    """A second supervisor takes over its share; the subscribers' edges remain meanwhile."""
    second = b"head"
    village = Village(BOSS, second, ANNE, BOB, config=SkipRingConfig(supervisors=(BOSS.hex(),)))
    shared = Supervisors([BOSS, second])
    topics = {shared.of(f"t{number}"): f"t{number}" for number in range(50)}
    for topic in topics.values():
        village.subscribe(ANNE, topic)
        village.subscribe(BOB, topic)
    village.intervals(2)
    for name in village.peers:
        effects = village.tell(name, Command(7, SetSupervisors((BOSS, second))))
        assert Outcome(7) in effects
    moved, stayed = topics[second], topics[BOSS]
    assert village.peers[ANNE].members[moved].subscriber.neighbours
    assert list(village.peers[BOSS].supervised) == [stayed]
    village.deliver()
    village.intervals(3)
    assert len(village.peers[second].supervised[moved].database) == 2
    assert len(village.peers[BOSS].supervised[stayed].database) == 2
    assert village.peers[ANNE].members[moved].subscriber.confirmed


@pytest.mark.parametrize(("between", "each"), [("", 6), ("/", 2)])
def test_topics_of_one_branch_take_turns(between: str, each: int) -> None:
    """Section 1.3: the supervisor's overhead is linear in the number of topics, or of branches
    where topics are organised in a hierarchy. Each topic has its turn all the same."""
    topics = ("news/a", "news/b", "news/c", "chat/a", "chat/b", "chat/c")
    config = override(CONFIG, {"hierarchy": between, "max_subscriptions": 6, "max_topics": 6})
    village = Village(BOSS, ANNE, BOB, config=config)
    for topic in topics:
        village.subscribe(ANNE, topic)
        village.subscribe(BOB, topic)
    served: dict[str, int] = {}
    for _ in range(12):
        effects = village.tell(BOSS, TimerFired(TIMEOUT))
        sent = [mail.message.topic for mail in effects if isinstance(mail, Mail)]
        assert len(sent) == each
        served |= {topic: served.get(topic, 0) + 1 for topic in sent}
        village.deliver()
    assert served == dict.fromkeys(topics, 2 * each)


def test_a_branch_is_watched_in_every_interval() -> None:
    """Who is silent is asked again whether or not its topic has the turn."""
    config = override(CONFIG, {"hierarchy": "/", "max_topics": 9, "max_subscriptions": 9})
    village = Village(BOSS, ANNE, BOB, config=override(config, {"patience": 1}))
    for number in range(8):
        village.subscribe(ANNE, f"news/{number}")
        village.subscribe(BOB, f"news/{number}")
    village.peers.pop(BOB)
    village.intervals(20)
    databases = village.peers[BOSS].supervised.values()
    assert [len(each.database) for each in databases] == [1] * 8


def test_a_supervisor_that_counts_is_told_that_its_contact_is_gone() -> None:
    """By any letter of its own that comes back."""
    village = Village(BOSS, ANNE, config=override(CONFIG, {"supervision": "token"}))
    village.subscribe(ANNE, "news")
    counter: Any = village.peers[BOSS].supervised["news"]
    assert (counter.first, counter.count) == (ANNE, 1)
    letter = messages.Introduce("news", messages.Reference(0, ANNE), messages.Flag.LIN)
    village.tell(BOSS, SendDropped(ANNE, letter, "peer down"))
    assert counter.first is None


def test_an_unknown_command_is_answered_with_an_error() -> None:
    village = Village(ANNE)
    (outcome,) = village.tell(ANNE, Command(3, "dance"))
    assert outcome.number == 3
    assert outcome.error
