"""What is lost is soon found: joins that nobody answers, authors that come back, events that were
passed on and did not arrive, neighbours that only believe that they have the same."""

import pytest
from msgspec.structs import replace
from pulsarcast_rig import (
    Lone,
    World,
    additions,
    delivered,
    event_by,
    penalties,
    publication,
    sent,
)

from rumormill.core.answer_times import AnswerTimes
from rumormill.core.effects import Ask, Connect, SetTimer
from rumormill.core.inputs import Answered, Asked, Publish, Subscribe, TimerFired, Verdict
from rumormill.overlay.kademlia.messages import KadMessage, KadType
from rumormill.protocols.pulsarcast.context import (
    BranchTimer,
    FetchTimer,
    NewsTimer,
    RangeTimer,
    RequestTimer,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import (
    Events,
    Fetch,
    Have,
    RequestReply,
    RequestStatus,
    Terms,
)
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import (
    Operation,
    Rpc,
    accepted,
    addition,
    decode_rpc,
    join,
)
from rumormill.protocols.pulsarcast.tree.trees import Branch, gap
from rumormill.sim.link import LinkFaults
from rumormill.sim.network import peer_id

AUTHOR = 0
ANYONE = TopicDescriptor("t", peer_id(AUTHOR), "2020-01-01T00:00:00.000Z")
ORDERED = TopicDescriptor(
    "t",
    peer_id(AUTHOR),
    "2020-01-01T00:00:00.000Z",
    allowed_publishers=(peer_id(AUTHOR),),
    request_to_publish=(),
)


class Subscriber(Lone):
    """A subscriber whose neighbours are whatever a test claims."""

    def __init__(self, topic: TopicDescriptor = ANYONE, **changes: float) -> None:
        super().__init__(5, **changes)
        self.topic = topic
        self.machine.topics.add(topic)
        self.feed(Subscribe(cids.text(topic.cid)))
        peers = [peer_id(number) for number in range(1, 99) if number != 5]
        self.closer = next(
            peer for peer in peers if gap(peer, peer_id(AUTHOR)) < self.branch.own_gap
        )
        self.farther = next(
            peer for peer in peers if gap(peer, peer_id(AUTHOR)) > self.branch.own_gap
        )

    @property
    def branch(self) -> Branch:
        """Its place in the tree."""
        return self.machine.trees.branches[self.topic.cid]

    def try_closer(self) -> list[tuple[bytes, Rpc]]:
        """Let it ask the closer peer to be its parent."""
        self.meet(self.closer)
        effects = list(self.effects)
        self.machine._parents.try_parent(self.branch, self.closer, self.now, effects)
        return sent(effects)

    def have_parent(self) -> None:
        """Let the closer peer take it in."""
        self.try_closer()
        self.receive(self.closer, accepted(self.topic.cid, None))
        assert self.branch.parent == self.closer

    def due(self) -> list[tuple[bytes, Rpc]]:
        """Let what is next due in the tree happen."""
        self.now = max(self.now, self.branch.due)
        return sent(self.feed(TimerFired(BranchTimer(self.topic.cid))))

    def terms(self, count: int = 0, checksum: int = 0, *, since: float = 60.0) -> Terms:
        """What a neighbour says of the last while."""
        end = int(self.now) * 1000 + 1000
        return Terms(self.topic.cid, False, end - int(since) * 1000, end, count, checksum)


def joins(out: list[tuple[bytes, Rpc]]) -> list[bytes]:
    """Who was sent a JOIN."""
    return [
        peer
        for peer, message in out
        for each in message.messages
        if each.op == Operation.JOIN_TOPIC
    ]


def test_a_join_that_nobody_answers_is_sent_again_before_it_has_failed() -> None:
    """One lost message must not bar the only peer that is closer for half a minute."""
    lone = Subscriber(connect_retries=2)
    lone.try_closer()
    for _ in range(2):
        assert joins(lone.due()) == [lone.closer]
        assert lone.branch.candidate == lone.closer
    lone.due()
    assert lone.branch.candidate is None
    assert lone.closer in lone.branch.failed


def test_a_renewal_that_nobody_answers_is_sent_again_soon() -> None:
    """As soon as the answer is probably lost, then after twice that time, and it counts as missed
    once; the answer sets the clock back to the usual interval."""
    lone = Subscriber(connect_retries=2, join_timeout=2.0, refresh_interval=30.0)
    lone.have_parent()
    lone.machine._context.answer_times = AnswerTimes(0.1, 0.05)
    assert joins(lone.due()) == [lone.closer]
    for wait in (0.3, 0.6):
        assert lone.branch.due == pytest.approx(lone.now + wait)
        assert joins(lone.due()) == [lone.closer]
    assert lone.branch.due == lone.now + 30.0
    assert lone.branch.unanswered == 1
    lone.receive(lone.closer, accepted(lone.topic.cid, None))
    assert (lone.branch.unanswered, lone.branch.joins) == (0, 0)
    lone.due()
    assert lone.branch.unanswered == 1


def test_a_stand_in_hears_of_an_author_that_looks_for_itself() -> None:
    """A returning author asks whoever is closest to it in the DHT. It is asked back, and joined as
    soon as it has answered, without a connection and long before the next look."""
    lone = Subscriber(rendezvous_interval=3600.0, max_rendezvous_interval=3600.0)
    lone.machine._parents.on_found(peer_id(AUTHOR), (), lone.now, [])
    lone.machine._parents._stand_in(lone.branch, lone.now, [])
    assert lone.branch.rendezvous
    author = peer_id(AUTHOR)
    effects = lone.feed(Asked(author, 7, KadMessage(KadType.FIND_NODE, author)))
    (ask,) = [each for each in effects if isinstance(each, Ask)]
    effects = lone.feed(Answered(author, ask.number, KadMessage(KadType.FIND_NODE, brief=True)))
    assert [each.peer for each in effects if isinstance(each, Connect)] == [author]
    assert lone.branch.candidate == author


@pytest.mark.parametrize("lost", [False, True])
def test_an_author_that_was_away_has_its_tree_again_within_seconds(lost: bool) -> None:
    """Everybody has noticed that it was gone, and it comes back connected to two peers that do not
    stand in for it; on links that lose messages, too."""
    faults = LinkFaults(loss=0.05) if lost else None
    world = World(30, seed=2, faults=faults, fan_out=3, rendezvous_interval=300.0,
                  max_rendezvous_interval=300.0)  # fmt: skip
    topic = world.create(0, allowed_publishers=None)
    world.subscribe(topic, *range(1, 30), wait=30.0)
    world.crash(0)
    world.run(40.0)
    world.network.start(world.host(0))
    stand_in = min(range(1, 30), key=lambda index: gap(peer_id(index), peer_id(0)))
    friends = [index for index in (9, 17, 23) if index != stand_in][:2]
    for index in friends:
        world.network.dial(world.host(0), peer_id(index))
    world.subscribe(topic, 0, wait=20.0)
    roots = [peer for peer, branch in world.members(topic).items() if branch.parent is None]
    assert roots == [peer_id(0)]


def test_neighbours_agree_when_both_have_the_same_and_not_before() -> None:
    """What the parent lacks may be lost on its way there: they compare again, soon."""
    lone = Subscriber()
    lone.have_parent()
    feed = lone.machine.feeds.open[lone.topic.cid]
    lone.now += 40.0
    own = event_by(5, lone.topic.cid, b"x", dates.iso_at(lone.now - 10.0))
    lone.receive(lone.farther, publication(own, lone.now))
    lone.due()
    agreed = feed.synced
    theirs = lone.terms(since=30.0)
    (have,) = additions(lone.receive(lone.closer, accepted(lone.topic.cid, theirs)), Have)
    assert isinstance(have, Have)
    assert have.tails == (own.cid[-8:],)
    lone.receive(lone.closer, addition(Events(lone.topic.cid, start=have.start, end=have.end)))
    assert feed.synced == agreed, "the parent may not have got what it lacks"
    assert lone.branch.due <= lone.now + 5.0
    lone.due()
    same = lone.terms(*feed.timeline.digest(theirs.start, theirs.end), since=40.0)
    lone.receive(lone.closer, accepted(lone.topic.cid, same))
    assert feed.synced == same.end


def test_neighbours_that_never_agree_go_on() -> None:
    """One of them refuses what the other has: they do not list it to each other for ever."""
    lone = Subscriber()
    lone.have_parent()
    feed = lone.machine.feeds.open[lone.topic.cid]
    for _ in range(8):
        lone.due()
        theirs = lone.terms(1, 1)
        (have,) = additions(lone.receive(lone.closer, accepted(lone.topic.cid, theirs)), Have)
        assert isinstance(have, Have)
        lone.receive(lone.closer, addition(Events(lone.topic.cid, start=have.start, end=have.end)))
    assert feed.synced == theirs.end


def test_a_list_that_nobody_answers_is_sent_again() -> None:
    """A few times; then the next comparison finds what is missing."""
    lone = Subscriber(connect_retries=2)
    lone.have_parent()
    lone.due()
    effects = lone.receive(lone.closer, accepted(lone.topic.cid, lone.terms(1, 1)))
    for _ in range(3):
        assert len(additions(effects, Have)) == 1
        lone.now += 2.0
        effects = lone.feed(TimerFired(RangeTimer(lone.topic.cid)))
    assert additions(effects, Have) == []


def test_what_comes_late_is_compared_once_more() -> None:
    """Above and below: a child that agreed without it is told of a range that begins there."""
    lone = Subscriber()
    lone.have_parent()
    feed = lone.machine.feeds.open[lone.topic.cid]
    lone.meet(lone.farther)
    lone.receive(lone.farther, join(lone.topic.cid, Terms(lone.topic.cid), lone.now))
    lone.now += 300.0
    feed.agree(int(lone.now - 10.0) * 1000)
    late = event_by(7, lone.topic.cid, b"late", dates.iso_at(lone.now - 250.0))
    lone.receive(lone.closer, publication(late, lone.now))
    assert feed.synced <= (lone.now - 250.0) * 1000
    recent = lone.terms(since=30.0)
    effects = lone.receive(lone.farther, join(lone.topic.cid, recent, lone.now))
    (ours,) = additions(effects, Terms)
    assert isinstance(ours, Terms)
    assert ours.start <= (lone.now - 250.0) * 1000 < ours.end
    assert ours.count == 1


def test_who_passed_something_on_asks_soon_whether_it_came() -> None:
    """The last event before silence has no successor whose link would tell that it was lost. Who
    lacks it fetches it; who has it says nothing."""
    author = Lone(AUTHOR)
    topic = author.create(allowed_publishers=(peer_id(AUTHOR),))
    lone = Subscriber(topic)
    child = peer_id(5)
    author.meet(child)
    author.receive(child, join(topic.cid, Terms(topic.cid), author.now))
    effects = author.feed(Publish(cids.text(topic.cid), b"one"))
    (event,) = [message for peer, message in sent(effects) if peer == child]
    assert any(
        isinstance(each, SetTimer) and each.timer == NewsTimer(topic.cid) for each in effects
    )
    for _ in range(2):
        author.now += 1.0
        ((peer, told),) = sent(author.feed(TimerFired(NewsTimer(topic.cid))))
        assert peer == child
        assert not told.urgent, "it must not overtake what it is about"
    author.now += 1.0
    assert sent(author.feed(TimerFired(NewsTimer(topic.cid)))) == [], "twice is enough"

    lone.meet(peer_id(AUTHOR))
    lone.machine._parents.try_parent(lone.branch, peer_id(AUTHOR), lone.now, [])
    lone.receive(peer_id(AUTHOR), accepted(topic.cid, None))
    effects = lone.receive(peer_id(AUTHOR), told)
    ((asked, question),) = sent(effects)
    assert asked == peer_id(AUTHOR)
    (answer,) = [message for _, message in sent(author.receive(child, question))]
    assert delivered(lone.receive(peer_id(AUTHOR), answer)) == [b"one"]
    lone.receive(peer_id(AUTHOR), event)
    assert sent(lone.receive(peer_id(AUTHOR), told)) == []


def test_strangers_cannot_make_us_list_what_we_have() -> None:
    """Nor can a neighbour for all that there ever was."""
    lone = Subscriber()
    lone.have_parent()
    stranger = peer_id(77)
    lone.meet(stranger)
    assert additions(lone.receive(stranger, addition(lone.terms(1, 1))), Have) == []
    long_ago = lone.terms(1, 1, since=900.0)
    assert additions(lone.receive(lone.closer, addition(long_ago)), Have) == []
    assert (
        len(additions(lone.receive(lone.closer, addition(lone.terms(1, 1, since=1.0))), Have)) == 1
    )


def test_requests_are_repeated_as_soon_as_answers_usually_come() -> None:
    """Twice the usual time, then twice as long each time, at most `request_retry`."""
    lone = Subscriber(ORDERED, request_retry=10.0, request_timeout=90.0)
    lone.have_parent()
    effects = lone.feed(Publish(cids.text(lone.topic.cid), b"please", 1))
    waits = []
    for _ in range(5):
        (timer,) = [
            each
            for each in effects
            if isinstance(each, SetTimer) and isinstance(each.timer, RequestTimer)
        ]
        waits.append(timer.at - lone.now)
        lone.now = timer.at
        effects = lone.feed(TimerFired(timer.timer))
    assert waits == [2.0, 4.0, 8.0, 10.0, 10.0]
    assert isinstance(timer.timer, RequestTimer)
    reply = RequestReply(
        lone.topic.cid, timer.timer.about, RequestStatus.ACCEPTED, event=lone.topic.cid
    )
    lone.receive(lone.closer, addition(reply))
    assert lone.machine._requests._usual > 1.0


def test_a_renewal_interval_shorter_than_what_must_settle_loses_nobody() -> None:
    """A parent drops a child that has not renewed its edge for four intervals. So it must, however
    long the two have to wait before they compare; else it joins anew for ever and gets nothing."""
    world = World(6, refresh_interval=1.0, sync_settle=5.0, move_linger=2.0)
    topic = world.create(0, allowed_publishers=None)
    world.subscribe(topic, *range(1, 6), wait=10.0)
    world.publish(topic, 1, b"before")
    world.crash(4)
    for number in range(5):
        world.publish(topic, 1, b"%d" % number)
    world.network.start(world.host(4))
    world.wire(range(6))
    world.subscribe(topic, 4, wait=12.0)
    assert world.data(4, topic) == [b"before", *(b"%d" % number for number in range(5))]
    children = {peer: branch.parent for peer, branch in world.members(topic).items()}
    world.run(15.0)
    assert {peer: branch.parent for peer, branch in world.members(topic).items()} == children


def test_a_missing_event_is_asked_for_again_at_the_peer_that_should_have_it() -> None:
    """One lost message is no reason to ask others, who know less; a few are."""
    lone = Subscriber(ORDERED, connect_retries=2)
    lone.have_parent()
    lone.meet(lone.farther)
    lone.machine._context.answer_times = AnswerTimes(0.1, 0.05)
    missing = event_by(AUTHOR, lone.topic.cid, b"one", dates.iso_at(lone.now))
    found = event_by(AUTHOR, lone.topic.cid, b"two", dates.iso_at(lone.now), missing.cid)
    effects = lone.receive(lone.closer, publication(found, lone.now))
    waits = []
    for _ in range(3):
        ((asked, question),) = sent(effects)
        assert asked == lone.closer
        assert [each.wanted for each in question.additions] == [(missing.cid,)]  # type: ignore[union-attr]
        (timer,) = [
            each
            for each in effects
            if isinstance(each, SetTimer) and isinstance(each.timer, FetchTimer)
        ]
        waits.append(timer.at - lone.now)
        lone.now = timer.at
        effects = lone.feed(TimerFired(timer.timer))
    assert waits[:2] == pytest.approx([0.3, 0.6])
    assert waits[2] == lone.machine._context.config.fetch_timeout
    assert sent(effects) == [], "nobody else stands in the tree: the DHT is next"


def test_a_parent_gets_from_its_child_what_it_lacks() -> None:
    """The child lists what it has by a part of each CID; who lacks one lists its own, and is sent
    the rest."""
    lone = Subscriber()
    lone.have_parent()
    lone.meet(lone.farther)
    lone.receive(lone.farther, join(lone.topic.cid, Terms(lone.topic.cid), lone.now))
    missing = event_by(5, lone.topic.cid, b"x", dates.iso_at(lone.now))
    terms = lone.terms(since=10.0)
    have = Have(lone.topic.cid, terms.start, terms.end, (cids.tail(missing.cid),))
    (answer,) = additions(lone.receive(lone.farther, addition(have)), Have)
    assert answer == Have(lone.topic.cid, terms.start, terms.end)
    given = Events(lone.topic.cid, (missing,), start=terms.start, end=terms.end)
    assert delivered(lone.receive(lone.farther, addition(given))) == [b"x"]
    assert additions(lone.receive(lone.farther, addition(have)), Have) == [], "it lacks nothing"


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [(Verdict.ACCEPT, "given"), (Verdict.REJECT, "lacking"), (Verdict.IGNORE, "lacking")],
)
def test_a_child_is_given_nothing_that_our_own_rules_refuse(verdict: Verdict, answer: str) -> None:
    """It misses an event that we miss too: what our parent gives for it is judged first, and who
    gave it has done no wrong."""
    lone = Subscriber()
    lone.machine._events._validator = lambda _event, _peer: verdict
    lone.have_parent()
    lone.meet(lone.farther)
    topic = lone.topic.cid
    lone.receive(lone.farther, join(topic, Terms(topic), lone.now))
    missing = event_by(AUTHOR, topic, b"x", dates.iso_at(lone.now))
    ((asked, _),) = sent(lone.receive(lone.farther, addition(Fetch(topic, (missing.cid,)))))
    assert asked == lone.closer
    effects = lone.receive(lone.closer, addition(Events(topic, (missing,))))
    assert penalties(effects) == []
    assert [peer for peer, _ in sent(effects)] == [lone.farther]
    assert additions(effects, Events) == [
        Events(topic, (missing,)) if answer == "given" else Events(topic, missing=(missing.cid,))
    ]
    effects = lone.receive(lone.closer, addition(Events(topic, (missing,))))
    assert penalties(effects) == []
    assert delivered(effects) == ([b"x"] if answer == "given" else [])


def test_terms_with_a_join_or_its_answer_need_no_name() -> None:
    """They are about the topic of what they come with, also in the trace."""
    lone = Subscriber()
    terms = lone.terms()
    for message in (join(lone.topic.cid, terms, lone.now), accepted(lone.topic.cid, terms)):
        (unnamed,) = [each for each in message.additions if isinstance(each, Terms)]
        assert unnamed.topic is None
        assert message.topic_of(unnamed) == lone.topic.cid
        text = cids.text(lone.topic.cid)
        assert [each.topic for each in message.meta.operations] == [text, text]
        decoded = decode_rpc(message.encode())
        assert [decoded.topic_of(each) for each in decoded.additions][-1] == lone.topic.cid
    lone.have_parent()
    effects = lone.receive(lone.closer, addition(replace(terms, topic=None)))
    assert sent(effects) == [], "alone they are about nothing"


def test_an_author_that_answers_a_request_is_asked_to_be_the_parent() -> None:
    """Whoever stands in for it was not told that it is back, and bars it since it failed; but it
    asks it to publish, and is answered."""
    lone = Subscriber(ORDERED)
    lone.try_closer()
    lone.machine._parents._give_up(lone.branch, lone.now, [])
    lone.machine._parents._stand_in(lone.branch, lone.now, [])
    assert lone.branch.rendezvous
    assert lone.closer in lone.branch.failed
    reply = RequestReply(lone.topic.cid, lone.topic.cid, RequestStatus.TIMED_OUT)
    assert joins(sent(lone.receive(lone.closer, addition(reply)))) == [lone.closer]
    assert lone.branch.candidate == lone.closer
