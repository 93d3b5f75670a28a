"""Durable before told: nobody hears of an event, a grant or a receipt that a crash could take back.

First by hand, on one machine whose log answers when the test says so; then in a network, where
everything that leaves a peer is held against its disk at that moment.
"""

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pulsarcast_rig import Lone, World, additions, delivered, event_by, publication, sent

from rumormill.core.effects import (
    Answer,
    Append,
    Ask,
    Effects,
    Mail,
    Outcome,
    Published,
    Send,
    SendAll,
    SetTimer,
)
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Command, Input, Publish, Subscribe, TimerFired
from rumormill.core.trace import DeliverMessage, FailPublish, PublishMessage
from rumormill.overlay.kademlia.messages import encode_kad
from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import CreateTopic
from rumormill.protocols.pulsarcast.context import HoldTimer, RefetchTimer
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates, rpc
from rumormill.protocols.pulsarcast.format.additions import (
    Events,
    Fetch,
    RequestReply,
    RequestStatus,
    Terms,
)
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.format.rpc import Rpc, addition, join
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, publish_request, sign_request
from rumormill.protocols.pulsarcast.peer import PulsarcastPeer
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.journal import Journal
from rumormill.sim.network import peer_id

ANYONE = {"allowed_publishers": None}
FULL = "the disk is full"
CHILD = peer_id(1)


def author_of(**options: Any) -> tuple[Lone, bytes]:
    """The author of a topic with one child, whose log answers only when asked to."""
    lone = Lone(0)
    topic = lone.create(**options).cid
    lone.meet(CHILD)
    lone.receive(CHILD, join(topic, Terms(topic), lone.now))
    lone.slow = True
    return lone, topic


def outcomes(effects: Effects) -> list[Published]:
    """What publishers are told."""
    return [each for each in effects if isinstance(each, Published)]


def published_to(effects: Effects) -> list[bytes]:
    """The payloads of the events that were sent."""
    messages = [message for _, rpc_ in sent(effects) for message in rpc_.messages]
    return [each.event.event.payload for each in messages if each.event is not None]


def appended(effects: Effects) -> list[Event]:
    """What the log is given."""
    return [each.event for each in effects if isinstance(each, Append)]


# Our own events.


def test_an_event_is_appended_and_nothing_else_happens_until_it_is_stored() -> None:
    """No copy, no trace, no receipt; then all of them, and the application has it by its log."""
    lone, topic = author_of()
    (append,) = lone.feed(Publish(cids.text(topic), b"x", 7))
    assert isinstance(append, Append)
    assert append.deliver
    effects = lone.commit()
    assert [each.event.id for each in outcomes(effects) if each.event] == [append.event.id]
    assert [(each.number, each.peers) for each in outcomes(effects)] == [(7, 1)]
    assert published_to(effects) == [b"x"]
    kinds = [type(each) for each in effects]
    assert kinds.index(PublishMessage) < kinds.index(DeliverMessage) < kinds.index(SendAll)


def test_an_event_that_cannot_be_stored_has_never_been() -> None:
    """Its publisher is told why; no link, no comparison and no answer knows of it."""
    lone, topic = author_of()
    lone.feed(Publish(cids.text(topic), b"first"))
    lone.commit()
    feed = lone.machine.feeds.open[topic]
    first, known = feed.last, len(feed.timeline)
    (lost,) = appended(lone.feed(Publish(cids.text(topic), b"lost", 8)))
    effects = lone.lose()
    assert outcomes(effects) == [Published(8, None, error=FULL)]
    assert [each.reason for each in effects if isinstance(each, FailPublish)] == [FULL]
    assert published_to(effects) == []
    assert (feed.last, len(feed.timeline), feed.at_hand(lost.id)) == (first, known, None)
    (following,) = appended(lone.feed(Publish(cids.text(topic), b"next")))
    assert following.parents == (first,)


def test_what_waits_for_the_disk_is_not_told_to_those_who_ask() -> None:
    """Neither when a child compares, nor when it asks for the event by its name."""
    lone, topic = author_of()
    (event,) = appended(lone.feed(Publish(cids.text(topic), b"x")))
    start, end = int(lone.now * 1000) - 5000, int(lone.now * 1000) + 5000
    effects = lone.receive(CHILD, join(topic, Terms(topic, False, start, end), lone.now))
    (told,) = [each for each in additions(effects, Terms) if isinstance(each, Terms)]
    assert (told.count, told.checksum) == (0, 0)
    (answer,) = additions(lone.receive(CHILD, addition(Fetch(topic, (event.id,)))), Events)
    assert answer == Events(topic, missing=(event.id,))


def test_events_that_wait_together_are_one_chain() -> None:
    """Each is linked to the one appended before it, and they are said in that order."""
    lone, topic = author_of()
    waiting = [appended(lone.feed(Publish(cids.text(topic), b"%d" % n, n)))[0] for n in range(4)]
    assert all(after.parents == (before.id,) for before, after in pairwise(waiting))
    effects = lone.commit()
    assert published_to(effects) == [b"0", b"1", b"2", b"3"]
    assert [each.number for each in outcomes(effects)] == [0, 1, 2, 3]


def test_when_one_is_lost_those_behind_it_are_and_the_chain_goes_on_before_them() -> None:
    """Nothing is ever linked to an event that does not exist."""
    lone, topic = author_of()
    lone.feed(Publish(cids.text(topic), b"kept"))
    (kept,) = appended(lone.effects[-10:])
    lone.commit()
    for number in range(3):
        lone.feed(Publish(cids.text(topic), b"lost", number))
    assert [each.error for each in outcomes(lone.lose())] == [FULL] * 3
    (following,) = appended(lone.feed(Publish(cids.text(topic), b"after")))
    assert following.parents == (kept.id,)
    assert published_to(lone.commit()) == [b"after"]


def test_an_event_of_another_comes_between() -> None:
    """What is seen while one of ours waits for the disk is what the next one follows."""
    lone, topic = author_of(**ANYONE)
    lone.feed(Publish(cids.text(topic), b"ours"))
    theirs = event_by(1, topic, b"theirs", dates.iso_at(lone.now))
    lone.receive(CHILD, publication(theirs))
    (following,) = appended(lone.feed(Publish(cids.text(topic), b"next")))
    assert following.parents == (theirs.cid,)


def test_at_once_means_in_answer_to_this_input_or_not_at_all() -> None:
    """Where the topic has to be found or entered, or somebody asked, the answer is no."""
    lone, topic = author_of()
    (append,) = lone.feed(Publish(cids.text(topic), b"x", at_once=True))
    assert isinstance(append, Append)
    unknown = cids.text(Lone(3).create().cid)
    (reply,) = outcomes(lone.feed(Publish(unknown, b"x", 4, at_once=True)))
    assert reply.error.endswith("(must-wait)")
    assert not appended(lone.commit())[1:]
    other = Lone(5)
    other.machine.topics.add(lone.machine.topics.get(topic))  # type: ignore[arg-type]
    for _ in range(2):
        (reply,) = outcomes(other.feed(Publish(cids.text(topic), b"x", 4, at_once=True)))
        assert reply.error.endswith("(must-wait)")
        other.feed(Subscribe(cids.text(topic)))


def test_a_topic_that_cannot_be_kept_is_not_created() -> None:
    """Its author would have forgotten it after a restart."""
    lone = Lone(0)
    lone.slow = True
    lone.feed(Command(1, CreateTopic(name="news")))
    while not appended(lone.effects):
        lone.answer_one()
    (outcome,) = [each for each in lone.lose() if isinstance(each, Outcome)]
    assert (outcome.result, outcome.error) == (None, FULL)


# Requests.


def request_by(index: int, topic: bytes, data: bytes, created: str) -> SignedEvent:
    """A request to publish."""
    peer = peer_id(index)
    draft = EventDescriptor(topic, peer, data, created)
    return sign_request(draft, SimulatedIdentity(peer))


def ask(lone: Lone, request: SignedEvent, peer: bytes = CHILD) -> Effects:
    """Let a request arrive."""
    return lone.receive(peer, rpc.request_to_publish(request, lone.now))


def replies(effects: Effects) -> list[tuple[bytes, RequestReply]]:
    """Who is told what about a request."""
    return [
        (peer, each)
        for peer, message in sent(effects)
        for each in message.additions
        if isinstance(each, RequestReply)
    ]


def test_a_request_is_granted_when_its_event_is_on_the_disk() -> None:
    """However often it is repeated meanwhile, by whom: one event, and whoever asked last hears."""
    lone, topic = author_of()
    lone.meet(peer_id(2))
    request = request_by(2, topic, b"please", dates.iso_at(lone.now))
    (append,) = ask(lone, request)
    assert isinstance(append, Append)
    assert ask(lone, request, peer_id(2)) == []
    effects = lone.commit()
    reply = RequestReply(topic, request.cid, RequestStatus.ACCEPTED, append.event.id)
    assert replies(effects) == [(peer_id(2), reply)]
    assert published_to(effects) == [b"please"]
    assert replies(ask(lone, request)) == [(CHILD, reply)]


def test_a_request_whose_event_cannot_be_stored_is_refused_and_not_remembered() -> None:
    """With the disk's own reason; asked again when there is room, it is granted."""
    lone, topic = author_of()
    request = request_by(2, topic, b"please", dates.iso_at(lone.now))
    ask(lone, request)
    effects = lone.lose()
    refusal = RequestReply(topic, request.cid, RequestStatus.REFUSED, reason=FULL)
    assert replies(effects) == [(CHILD, refusal)]
    assert published_to(effects) == []
    assert len(appended(ask(lone, request))) == 1
    assert [reply.status for _, reply in replies(lone.commit())] == [RequestStatus.ACCEPTED]


def next_life(lone: Lone, topic: bytes) -> Lone:
    """The same peer with the same disk, killed and started again; its child has joined."""
    again = Lone(0)
    again.journal = lone.journal
    again.feed(Subscribe(cids.text(topic)))
    again.meet(CHILD)
    again.receive(CHILD, join(topic, Terms(topic), again.now))
    return again


@pytest.mark.parametrize("options", [{}, {"event_linking": EventLinking.CUSTOM}])
def test_a_request_that_was_granted_before_the_publisher_died_is_not_granted_again(
    options: dict[str, EventLinking],
) -> None:
    """Its disk has the event and nobody was told: the repetition is answered with that event."""
    lone, topic = author_of(**options)
    request = request_by(2, topic, b"please", dates.iso_at(lone.now))
    (event,) = appended(ask(lone, request))
    lone.journal.commit(lone.now)
    again = next_life(lone, topic)
    effects = ask(again, request)
    reply = RequestReply(topic, request.cid, RequestStatus.ACCEPTED, event.id)
    assert replies(effects) == [(CHILD, reply)]
    assert appended(effects) == []


def test_a_request_that_another_publisher_granted_is_answered_with_its_event() -> None:
    """Whoever asked it may have lost it, and asks the next one."""
    lone, topic = author_of(allowed_publishers=(peer_id(0), peer_id(3)))
    lone.slow = False
    request = request_by(2, topic, b"please", dates.iso_at(lone.now))
    granted = publish_request(request, SimulatedIdentity(peer_id(3)), None)
    lone.receive(CHILD, publication(granted))
    effects = ask(lone, request)
    reply = RequestReply(topic, request.cid, RequestStatus.ACCEPTED, granted.cid)
    assert replies(effects) == [(CHILD, reply)]
    assert appended(effects) == []


def test_so_many_granted_requests_are_remembered_the_newest() -> None:
    """By a publisher that goes on, and by one that reads its log."""
    lone, topic = author_of()
    lone.slow = False
    most = lone.machine._context.config.max_requests
    created = dates.iso_at(lone.now)
    *earlier, last = [request_by(2, topic, b"%d" % n, created) for n in range(most + 1)]
    first = earlier[0]
    for each in earlier:
        ask(lone, each)
    assert appended(ask(lone, first)) == []
    assert len(appended(ask(lone, last))) == 1
    again = next_life(lone, topic)
    for life in (lone, again):
        assert appended(ask(life, last)) == []
        assert len(appended(ask(life, first))) == 1


def test_a_request_cannot_name_a_parent_where_the_topic_links_by_itself() -> None:
    """Linked to another event, it is not what its author signed: everybody would refuse it."""
    lone, topic = author_of()
    lone.slow = False
    lone.feed(Publish(cids.text(topic), b"last"))
    draft = EventDescriptor(
        topic, CHILD, b"x", dates.iso_at(lone.now), parent=cids.of(b"another event")
    )
    effects = ask(lone, sign_request(draft, SimulatedIdentity(CHILD)))
    assert [reply.reason for _, reply in replies(effects)] == [reasons.LINKS_BY_ITSELF]
    assert appended(effects) == []


def test_who_asked_has_a_receipt_when_the_answer_comes() -> None:
    """With the event's name, which the publisher gave it; or with the publisher's reason."""
    world = World(6)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 6))
    receipts: list[Published] = []
    world.host(3).receipts = receipts
    world.publish(topic, 3, b"granted")
    (event,) = [each for each in world.events[0] if each.topic == topic]
    assert [(each.event.id, each.error) for each in receipts if each.event] == [(event.id, "")]
    world.journal(0).trouble = FULL
    world.publish(topic, 3, b"refused")
    assert receipts[1].event is None
    assert receipts[1].error == FULL
    assert [world.data(index, topic) for index in range(6)] == [[b"granted"]] * 6
    world.journal(0).trouble = ""
    assert world.say(3, topic, b"again").error == ""


# What peers bring.


def reader_of(**changes: int) -> tuple[Lone, bytes, list[SignedEvent]]:
    """A subscriber below CHILD, whose log answers only when asked to, and events for it."""
    lone = Lone(5, **changes)
    topic = TopicDescriptor("t", peer_id(0), dates.iso(0))
    lone.machine.topics.add(topic)
    lone.feed(Subscribe(cids.text(topic.cid)))
    lone.meet(CHILD)
    branch = lone.machine.trees.branches[topic.cid]
    branch.parent, branch.candidate, branch.rendezvous = CHILD, None, False
    branch.targets = None
    lone.slow = True
    created = [dates.iso_at(lone.now + number / 1000) for number in range(300)]
    events = [event_by(1, topic.cid, b"%d" % n, date) for n, date in enumerate(created)]
    return lone, topic.cid, events


def bring(lone: Lone, *events: SignedEvent) -> Effects:
    """Let the parent send events."""
    return [each for event in events for each in lone.receive(CHILD, publication(event))]


def asked_for(effects: Effects) -> list[bytes]:
    """The events that the parent is asked for."""
    return [cid for each in additions(effects, Fetch) for cid in each.wanted]  # type: ignore[union-attr]


def tick(lone: Lone, topic: bytes, seconds: float = 60.0) -> Effects:
    """Let the time come at which what was lost is asked for."""
    lone.now += seconds
    return lone.feed(TimerFired(RefetchTimer(topic)))


def test_what_the_disk_did_not_take_is_unknown_again_and_asked_for() -> None:
    """Once, and until it is stored; then neighbours compare again."""
    lone, topic, (first, second, *_) = reader_of()
    feed = lone.machine.feeds.open[topic]
    assert delivered(bring(lone, first, second)) == [b"0", b"1"]
    assert first.cid in feed.timeline
    (timer,) = [each for each in lone.lose() if isinstance(each, SetTimer)]
    assert isinstance(timer.timer, RefetchTimer)
    assert first.cid not in feed.timeline
    assert feed.timeline.digest(0, 10**9) == (0, 0)
    assert asked_for(tick(lone, topic)) == [first.cid, second.cid]
    effects = lone.receive(CHILD, addition(Events(topic, (first, second))))
    assert delivered(effects) == [b"0", b"1"]
    lone.commit()
    assert asked_for(tick(lone, topic)) == []
    assert (feed.retries, len(feed.timeline)) == (0, 2)


def test_a_disk_that_stays_full_is_tried_less_and_less_often_with_little() -> None:
    """However much is lost; a batch is asked for at a time."""
    lone, topic, events = reader_of()
    bring(lone, *events)
    lone.lose()
    batch = lone.machine._context.config.fetch_batch
    waits = []
    for _ in range(9):
        effects = tick(lone, topic)
        wanted = asked_for(effects)
        assert len(wanted) == batch
        (timer,) = [
            each
            for each in effects
            if isinstance(each, SetTimer) and isinstance(each.timer, RefetchTimer)
        ]
        waits.append(timer.at - lone.now)
        lone.receive(CHILD, addition(Events(topic, tuple(e for e in events if e.cid in wanted))))
        lone.lose()
    assert waits[-1] > 20 * waits[0]
    assert len(lone.machine.feeds.open[topic].lost) == len(events)


def test_nothing_is_compared_while_something_is_lost() -> None:
    """Neither with the parent nor with a child; the range that is named later has it."""
    lone, topic, events = reader_of()
    lone.receive(peer_id(13), join(topic, Terms(topic), lone.now))
    bring(lone, events[0])
    lone.lose()
    feed, branch = lone.machine.feeds.open[topic], lone.machine.trees.branches[topic]
    lone.now += 100.0
    whole_range = Terms(topic, False, 0, int(lone.now * 1000))
    exchange = lone.machine._reconciliation
    assert exchange.answer_child(branch, whole_range, lone.now, []) is None
    assert exchange._terms(branch, lone.now) == Terms(topic)
    tick(lone, topic)
    bring(lone, events[0])
    lone.commit()
    tick(lone, topic)
    terms = exchange._terms(branch, lone.now)
    assert terms.start <= feed.timeline.dates[events[0].cid] < terms.end


def test_so_much_of_what_is_lost_is_remembered() -> None:
    """The rest is found by comparing, from the first on that was lost."""
    lone, topic, events = reader_of(max_fetches=100)
    bring(lone, *events)
    lone.lose()
    feed = lone.machine.feeds.open[topic]
    assert list(feed.lost) == [event.cid for event in events[-100:]]
    assert feed.synced <= int(lone.now * 1000)


@pytest.mark.parametrize("options", [{}, ANYONE], ids=["ordered", "open"])
@pytest.mark.parametrize("index", [0, 3], ids=["root", "subscriber"])
def test_what_a_full_disk_refused_comes_when_there_is_room(
    index: int, options: dict[str, None]
) -> None:
    """Without a new start, in a network, also at its root."""
    world = World(6, fan_out=2)
    topic = world.create(1, **(options or {"allowed_publishers": (peer_id(1),)}))
    world.subscribe(topic, 0, 2, 3, 4, 5, wait=5.0)
    world.publish(topic, 1, b"before")
    world.journal(index).trouble = FULL
    for number in range(40):
        world.publish(topic, 1, b"%d" % number, wait=0.5)
    world.run(60.0)
    assert world.data(index, topic) == [b"before"]
    world.journal(index).trouble = ""
    world.run(90.0)
    everything = sorted([b"before", *(b"%d" % number for number in range(40))])
    assert [sorted(world.data(each, topic)) for each in range(6)] == [everything] * 6


# What is held back.


def test_a_held_event_goes_into_the_log_when_it_is_released() -> None:
    """The log hands an event out when it gets it: so it gets it in its turn, and once."""
    lone = Lone(5)
    topic = TopicDescriptor("t", peer_id(0), dates.iso(0), allowed_publishers=(peer_id(0),))
    lone.machine.topics.add(topic)
    lone.feed(Subscribe(cids.text(topic.cid)))
    lone.meet(CHILD)
    chain = [event_by(0, topic.cid, b"0", dates.iso_at(lone.now))]
    for number in range(1, 5):
        created = dates.iso_at(lone.now + number)
        chain.append(event_by(0, topic.cid, b"%d" % number, created, chain[-1].cid))
    for each in chain[:0:-1]:
        effects = lone.receive(CHILD, publication(each))
        assert appended(effects) == []
    (answer,) = additions(lone.receive(CHILD, addition(Fetch(topic.cid, (chain[3].cid,)))), Events)
    assert isinstance(answer, Events)
    assert answer.events == (chain[3],), "who asks for it gets it all the same"
    effects = lone.receive(CHILD, publication(chain[0]))
    assert delivered(effects) == [b"0", b"1", b"2", b"3", b"4"]
    stored = lone.journal._topics[cids.text(topic.cid)].events
    assert [event.data for event in stored.values()] == [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_held_when_the_subscription_ends_is_kept_and_not_delivered() -> None:
    """We still stand in the tree for our child."""
    lone, topic = author_of(allowed_publishers=(peer_id(0),))
    lone.slow = False
    held = event_by(0, topic, b"held", dates.iso_at(lone.now), cids.of(b"lost"))
    lone.receive(CHILD, publication(held))
    lone.machine.handle(Command(9, None), lone.now, [])
    lone.machine._subscriptions.unsubscribe(topic, lone.now, [])
    lone.now += 100.0
    effects = lone.feed(TimerFired(HoldTimer(topic)))
    assert delivered(effects) == []
    assert [event.id for event in appended(effects)] == [held.cid]


# In a network.


class Discreet(PulsarcastPeer):
    """A peer that sees to it that nothing leaves which its disk does not have."""

    disk: Journal
    checked = 0

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Hold whatever is said against the disk."""
        first = len(effects)
        super().handle(event, now, effects)
        said = b"".join([bytes_of(each) for each in effects[first:]])
        for each in (*self.disk._waiting, *effects[first:]):
            if isinstance(each, Append) and each.barrier is not None:
                secret = each.event
                assert secret.id not in said
                assert content_key(secret.id) not in said
                assert not secret.data.startswith(b"event") or secret.data not in said
                Discreet.checked += 1


def bytes_of(effect: object) -> bytes:
    """What others learn of an effect."""
    if isinstance(effect, Send | SendAll | Mail):
        return Rpc.encode(effect.message)  # type: ignore[arg-type]
    if isinstance(effect, Ask | Answer):
        return encode_kad(effect.message)  # type: ignore[arg-type]
    if isinstance(effect, Published) and effect.event is not None:
        return effect.event.id
    return b""


class DiscreetWorld(World):
    """A world of such peers."""

    def build(self, peer: PeerId, rng: Random, journal: Journal) -> PulsarcastPeer:
        """Make a peer that knows its disk."""
        machine = Discreet(SimulatedIdentity(peer), rng, self.config)
        machine.disk = journal
        return machine


COUNT = 7
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["publish"] * 6 + ["burst", "crash", "return", "forget", "full", "freed"]),
        st.integers(0, COUNT - 1),
        st.sampled_from([0.0, 0.0, 0.05, 0.4, 2.0]),
    ),
    min_size=10,
    max_size=40,
)
QUICK = {
    "store_events": True,
    "fan_out": 2,
    "refresh_interval": 4.0,
    "sync_settle": 2.0,
    "request_retry": 2.0,
    "request_timeout": 6.0,
    "hold_timeout": 20.0,
}


class Story:
    """A world with slow disks, an ordered topic, and one in which everybody publishes."""

    def __init__(self, commit_delay: float) -> None:
        self.world = DiscreetWorld(COUNT, commit_delay=commit_delay, **QUICK)
        self.topics = [self.world.create(0), self.world.create(1, **ANYONE)]
        for topic in self.topics:
            self.world.subscribe(topic, *range(COUNT), wait=5.0)
        self.receipts: list[list[Published]] = [[] for _ in range(COUNT)]
        for index in range(COUNT):
            self.world.host(index).receipts = self.receipts[index]
        self.said = 0
        self.troubled: set[int] = set()

    def act(self, deed: str, index: int, pause: float) -> None:
        """Let one thing happen, and a moment pass."""
        world, host = self.world, self.world.host(index)
        if deed == "crash":
            world.crash(index)
        elif deed in ("return", "forget") and not host.up:
            world.network.start(host, keep_state=deed == "return")
            for topic in self.topics:
                host.handle(Subscribe(topic))
            for other in range(COUNT):
                world.network.dial(host, peer_id(other))
        elif deed in ("full", "freed"):
            self.troubled |= {index} if deed == "full" else set()
            world.journal(index).trouble = FULL if deed == "full" else ""
        elif deed in ("publish", "burst") and host.up:
            for _ in range(5 if deed == "burst" else 1):
                self.said += 1
                topic = self.topics[self.said % 2]
                host.handle(Publish(topic, b"event %d." % self.said, self.said))
        world.run(pause)

    def check(self) -> None:
        """Hold what everybody has against the disks of those who published it."""
        world, (ordered, everybody) = self.world, self.topics
        chain = [event.id for event in stored(world, 0, ordered)]
        places = {name: place for place, name in enumerate(chain)}
        assert [event.parents for event in stored(world, 0, ordered)] == [
            (),
            *[(name,) for name in chain[:-1]],
        ][: len(chain)], "the author's log is one chain"
        for index in range(COUNT):
            for event in stored(world, index, ordered):
                assert event.id in places, "nobody has what its publisher has not"
            given_out = [
                places[event.id] for event in world.events[index] if event.topic == ordered
            ]
            assert len(given_out) == len(set(given_out)), "once"
            if index not in self.troubled:  # what a full disk lost comes again, and late
                assert given_out == sorted(given_out), "in the order of the chain"
            for event in stored(world, index, everybody):
                author = int.from_bytes(event.author)
                assert event.id in {each.id for each in stored(world, author, everybody)}
            for receipt in self.receipts[index]:
                if receipt.event is not None:
                    by = 0 if receipt.event.topic == ordered else index
                    kept = {each.id for each in stored(world, by, receipt.event.topic)}
                    assert receipt.event.id in kept


def stored(world: World, index: int, topic: str) -> list[Event]:
    """What a peer's disk has of a topic, in order."""
    kept = world.journal(index)._topics.get(topic)
    return [] if kept is None else list(kept.events.values())


@settings(
    max_examples=25,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(DEEDS, st.sampled_from([0.0, 0.02, 0.3, 1.5]))
def test_whenever_somebody_crashes_nobody_knows_more_than_the_disks(
    deeds: list[tuple[str, int, float]], commit_delay: float
) -> None:
    """Slow disks, full disks, crashes with and without the state: at no moment has anybody heard of
    an event, a grant or a receipt that the disk of whoever published it does not have."""
    story = Story(commit_delay)
    for deed in deeds:
        story.act(*deed)
    for index in range(COUNT):
        story.act("freed", index, 0.0)
        story.act("return", index, 0.0)
    story.world.run(60.0)
    story.check()


def test_there_are_secrets_to_keep() -> None:
    """The check above sees events that are on their way to a disk while others are talked to."""
    Discreet.checked = 0
    story = Story(0.3)
    for number in range(30):
        story.act("publish", number % COUNT, 0.1)
    story.check()
    assert Discreet.checked > 100
    assert all(len(story.world.data(index, story.topics[1])) > 10 for index in range(COUNT))
