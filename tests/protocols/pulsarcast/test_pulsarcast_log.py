"""No disk in the machine: the log is read in bounded pieces, after it was decided who is taken in.

The topic here has 50,000 stored events. What one input may cost is counted in events that come out
of the log or are decoded, not in time.
"""

from collections.abc import Iterator
from functools import cache

import pytest
from pulsarcast_rig import Lone, World, additions, delivered, event_by, publication, refusals, sent

from rumormill.core.effects import Append, ById, Effects, FromOffset, Load, Outcome, Published
from rumormill.core.event import Event
from rumormill.core.inputs import (
    Command,
    Loaded,
    PeerDisconnected,
    Publish,
    Start,
    Subscribe,
    Unsubscribe,
)
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import History, ReadHistory
from rumormill.protocols.pulsarcast.context import MOST_PER_PEER
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import codec, dates, rpc
from rumormill.protocols.pulsarcast.format.additions import Events, Fetch, Have, JoinReply, Terms
from rumormill.protocols.pulsarcast.format.codec import stored
from rumormill.protocols.pulsarcast.format.descriptors import PROTOCOL, TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import addition, join
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.tree.known_topics import note_of
from rumormill.protocols.pulsarcast.tree.trees import gap
from rumormill.sim.journal import PIECE
from rumormill.sim.network import peer_id

STORED = 50_000
SOUND = 400
"""How many of the last of them can be decoded; the others are ids and dates, which is all that
entering a tree looks at."""
AUTHOR = 0
NOW = 1_000_000.0
TOPIC = TopicDescriptor("t", peer_id(AUTHOR), dates.iso(0), allowed_publishers=(peer_id(AUTHOR),))
NAME = cids.text(TOPIC.cid)


@cache
def history() -> tuple[tuple[Event, ...], tuple[SignedEvent, ...]]:
    """The topic's events, one per second, and the last of them as they were signed."""
    begin = NOW - STORED - 100.0
    events = [
        Event(NAME, b"", peer_id(AUTHOR), cids.of(b"%d" % number), (), begin + number)
        for number in range(STORED - SOUND)
    ]
    chain: list[SignedEvent] = []
    for number in range(STORED - SOUND, STORED):
        parent = chain[-1].cid if chain else events[-1].id
        created = dates.iso_at(begin + number)
        chain.append(event_by(AUTHOR, TOPIC.cid, b"%d" % number, created, parent))
    return (*events, *map(stored, chain)), tuple(chain)


class Counted(Lone):
    """A machine with the topic in its log, whose every input is weighed."""

    def __init__(self, index: int, events: tuple[Event, ...]) -> None:
        self.decoded = self.heaviest = 0
        super().__init__(index, NOW)
        for event in events:
            self.journal.keep(event, 1.0)
        self.journal._notes[note_of(TOPIC, 1.0).key] = note_of(TOPIC, 1.0)
        self.slow = True

    def handle(self, event) -> Effects:  # type: ignore[no-untyped-def]
        before = self.decoded
        effects = super().handle(event)
        if not isinstance(event, Start):
            weight = self.decoded - before + len(getattr(event, "events", ()))
            self.heaviest = max(self.heaviest, weight)
        return effects


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """A peer that knows the topic and its events by its log alone."""
    lone = Counted(5, history()[0])
    decode = codec.from_stored

    def counted(*arguments: object) -> SignedEvent:
        lone.decoded += 1
        return decode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(codec, "from_stored", counted)
    yield lone
    assert lone.heaviest <= PIECE


def farther(lone: Lone) -> bytes:
    """A peer that may join below the machine."""
    own = gap(lone.machine.id, peer_id(AUTHOR))
    return next(peer_id(n) for n in range(6, 500) if gap(peer_id(n), peer_id(AUTHOR)) > own)


def nearer(lone: Lone) -> bytes:
    """A peer that may not."""
    own = gap(lone.machine.id, peer_id(AUTHOR))
    return next(peer_id(n) for n in range(6, 500) if gap(peer_id(n), peer_id(AUTHOR)) < own)


def loads(effects: Effects) -> list[Load]:
    """What the log is asked."""
    return [each for each in effects if isinstance(each, Load)]


def of_events(lone: Lone) -> list[Load]:
    """The questions for events so far."""
    return [each for each in loads(lone.effects) if isinstance(each.query, ById | FromOffset)]


def replies(effects: Effects) -> list[str]:
    """What joiners are told."""
    found = additions(effects, JoinReply)
    return [each.reason or each.status.name for each in found if isinstance(each, JoinReply)]


def knock(lone: Lone, peer: bytes, terms: Terms | None = None) -> Effects:
    """Let a peer ask to be taken in."""
    return lone.receive(peer, join(TOPIC.cid, terms or Terms(TOPIC.cid), lone.now))


# Joining.


def test_a_join_reads_a_long_history_piece_by_piece(relay: Counted) -> None:
    """The joiner waits; it is taken in when all is read, and told what we have of its range."""
    child = farther(relay)
    relay.meet(child)
    start, end = int(NOW - 1000) * 1000, int(NOW) * 1000
    assert replies(knock(relay, child, Terms(TOPIC.cid, False, start, end))) == []
    relay.answer_one()
    pieces = 0
    while not (effects := relay.answer_one()) or loads(effects):
        assert replies(effects) == []
        assert TOPIC.cid not in relay.machine.trees.branches
        pieces += 1
    assert pieces == STORED // PIECE
    assert replies(effects) == ["ACCEPTED"]
    (told,) = [each for each in additions(effects, Terms) if isinstance(each, Terms)]
    assert told.count == 900
    assert relay.machine.feeds.open[TOPIC.cid].last == history()[1][-1].cid


def test_whoever_is_not_taken_in_costs_no_reading(relay: Counted) -> None:
    """A peer that is not farther from the author, and one too many: refused first."""
    peer = nearer(relay)
    relay.meet(peer)
    knock(relay, peer)
    assert replies(relay.commit()) == [reasons.NOT_FARTHER]
    assert of_events(relay) == []


class Nowhere:
    """A machine in whose DHT nobody has anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searched = 0
        self.lone = Lone(5, NOW)
        self.fetcher = self.lone.machine._fetcher
        monkeypatch.setattr(Kademlia, "get_value", self._get_value)

    def _get_value(self, key: bytes, now: float, effects: Effects) -> None:
        self.searched += 1
        (search,) = self.fetcher._searches.values()
        self.fetcher._finish(search, None, b"", now, effects)

    def knock(self, peer: bytes, first: int, count: int) -> None:
        """Let a peer want to join so many topics that do not exist."""
        for number in range(first, first + count):
            cid = cids.of(b"no topic %d" % number)
            told = replies(self.lone.receive(peer, join(cid, Terms(cid), NOW)))
            assert told == [reasons.NO_SUCH_TOPIC]


def test_the_dht_is_searched_so_often_for_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who joins has the topic and is asked for it; who makes names up has us ask others in vain."""
    there, mallory, other = Nowhere(monkeypatch), peer_id(7), peer_id(8)
    there.lone.meet(mallory, other, protocol=PROTOCOL)
    there.knock(mallory, 0, 400)
    assert there.searched == 256
    there.knock(other, 400, 1)
    assert there.searched == 257, "others are served"
    there.lone.now += 10.0
    there.knock(mallory, 500, 100)
    assert there.searched == 277


def test_who_wants_a_topic_itself_searches_everywhere_whoever_else_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search that leaves the DHT out is widened."""
    there, mallory = Nowhere(monkeypatch), peer_id(7)
    there.lone.meet(mallory, protocol=PROTOCOL)
    there.knock(mallory, 0, 300)
    there.lone.feed(PeerDisconnected(mallory))
    there.lone.meet(mallory)  # it speaks our dialect now, and is asked itself
    cid = cids.of(b"wanted")
    there.lone.receive(mallory, join(cid, Terms(cid), NOW))
    assert not there.fetcher._searches[cid].everywhere
    there.lone.feed(Subscribe(cids.text(cid)))
    assert there.fetcher._searches[cid].everywhere


def test_a_full_peer_reads_nothing() -> None:
    """It stands in as many trees as it may."""
    lone = Counted(5, ())
    lone.slow = False
    small = Lone(5, NOW, max_topics=2)
    small.create()
    for each in (lone, small):
        each.machine.topics.add(TOPIC)
        each.meet(farther(each))
    assert replies(knock(lone, farther(lone))) == ["ACCEPTED"]
    before = len(of_events(small))
    assert replies(knock(small, farther(small))) == [reasons.BRANCHES_FULL]
    assert len(of_events(small)) == before


def test_joiners_wait_together_and_are_bounded(relay: Counted) -> None:
    """One reading for all; who says LEAVE or goes away meanwhile is not taken in; beyond the limit
    they are turned away."""
    own = gap(relay.machine.id, peer_id(AUTHOR))
    peers = [peer_id(n) for n in range(6, 30_000) if gap(peer_id(n), peer_id(AUTHOR)) > own][:300]
    relay.meet(*peers)
    for peer in peers:
        effects = knock(relay, peer)
    assert replies(effects) == [reasons.WAITING_FULL]
    relay.receive(peers[0], rpc.leave(TOPIC.cid, relay.now))
    relay.feed(PeerDisconnected(peers[1]))
    told = [
        (peer, each.status.name)
        for peer, message in sent(relay.commit())
        for each in message.additions
        if isinstance(each, JoinReply)
    ]
    assert len([load for load in of_events(relay) if load.query == FromOffset(0)]) == 1
    assert [peer for peer, status in told if status == "ACCEPTED"][:2] == peers[2:4]
    assert {peers[0], peers[1]}.isdisjoint(peer for peer, _ in told)


# While a feed is being read.


def test_what_arrives_meanwhile_is_neither_lost_nor_handed_out_twice(relay: Counted) -> None:
    """New events wait for their turn; one that the log has is known when its turn comes."""
    relay.feed(Subscribe(NAME))
    relay.answer_one()
    relay.answer_one()
    known = history()[1][-1]
    new = event_by(AUTHOR, TOPIC.cid, b"new", dates.iso_at(NOW), known.cid)
    relay.meet(peer_id(9))
    for each in (new, known):
        assert relay.receive(peer_id(9), publication(each)) == []
    assert delivered(relay.commit()) == [b"new"]
    assert delivered(relay.feed(Start())) == []


def test_only_so_much_may_wait_for_a_feed(relay: Counted) -> None:
    """A flood before the feed is open is refused, and counted."""
    relay.feed(Subscribe(NAME))
    relay.answer_one()
    relay.meet(peer_id(9))
    reasons_given = []
    for number in range(20):
        big = event_by(AUTHOR, TOPIC.cid, bytes(100_000) + b"%d" % number, dates.iso_at(NOW))
        reasons_given += refusals(relay.receive(peer_id(9), publication(big)))
    assert reasons_given == [reasons.WAITING_FULL] * 9


def test_an_event_is_linked_when_all_is_read() -> None:
    """Who comes back goes on behind the last event of his log, and not behind what he has read."""
    author = Counted(AUTHOR, history()[0])
    assert author.feed(Publish(NAME, b"next", 3)) != []
    while author._loads:
        assert not any(isinstance(each, Append) for each in author.effects)
        author.answer_one()
    (append,) = [each for each in author.effects if isinstance(each, Append)]
    assert append.event.parents == (history()[1][-1].cid,)
    assert [each.number for each in author.commit() if isinstance(each, Published)] == [3]
    assert author.heaviest <= PIECE


def test_who_no_longer_wants_a_topic_does_not_enter_it(relay: Counted) -> None:
    """The subscription ended before the log was read."""
    relay.feed(Subscribe(NAME))
    relay.answer_one()
    relay.feed(Unsubscribe(NAME))
    relay.commit()
    assert TOPIC.cid not in relay.machine.trees.branches
    assert TOPIC.cid not in relay.machine.feeds.open


# Answering.


def entered(relay: Counted) -> bytes:
    """Let the machine enter the tree, with a child."""
    child = farther(relay)
    relay.meet(child)
    knock(relay, child)
    relay.commit()
    relay.effects.clear()
    return child


def answers(effects: Effects) -> list[Events]:
    """What neighbours are sent."""
    return [each for each in additions(effects, Events) if isinstance(each, Events)]


def test_a_question_for_a_chain_is_answered_with_one_look_into_the_log(relay: Counted) -> None:
    """The events before one by date are probably its ancestors, and are read along with it."""
    child, chain = entered(relay), history()[1]
    relay.receive(child, addition(Fetch(TOPIC.cid, (chain[-1].cid,), 1000, chain[-60].cid)))
    (answer,) = answers(relay.commit())
    assert answer.events == chain[-59:]
    assert len(of_events(relay)) == 1
    relay.receive(child, addition(Fetch(TOPIC.cid, (chain[-1].cid,), 1000)))
    (answer,) = answers(relay.commit())
    assert answer.events == chain[-128:]


def test_a_chain_that_dates_do_not_tell_is_followed_by_its_links() -> None:
    """Events that others asked for are dated by them: the log is asked again, a few times."""
    events: list[SignedEvent] = []
    for number in range(40):
        parent = events[-1].cid if events else None
        created = dates.iso_at(NOW - 1000.0 * ((number * 7) % 40) - 100.0)
        events.append(event_by(AUTHOR, TOPIC.cid, b"%d" % number, created, parent))
    lone = Counted(5, tuple(map(stored, events)))
    child = entered(lone)
    lone.receive(child, addition(Fetch(TOPIC.cid, (events[-1].cid,), 1000)))
    (answer,) = answers(lone.commit())
    assert answer.events == tuple(events)


def test_a_comparison_over_everything_is_answered_in_bounded_steps(relay: Counted) -> None:
    """A peer that has nothing gets a batch, and is told up to which date it is complete."""
    child, chain = entered(relay), history()[1]
    start = int((NOW - 100.0 - SOUND) * 1000)
    relay.receive(child, addition(Have(TOPIC.cid, start, int(NOW * 1000))))
    (answer,) = answers(relay.commit())
    assert answer.events == chain[:128]
    assert answer.end == start + 128_000


def test_what_the_log_has_lost_is_passed_over() -> None:
    """Retention has deleted most of a busy second: the answer goes on behind that."""
    created = dates.iso_at(NOW - 500.0)
    events = [event_by(AUTHOR, TOPIC.cid, b"%d" % number, created) for number in range(300)]
    lone = Counted(5, tuple(map(stored, events)))
    child = entered(lone)
    kept = lone.journal._topics[NAME]
    for each in events[:290]:
        del kept.events[kept.offsets.pop(each.cid)]
    lone.receive(child, addition(Have(TOPIC.cid, int(NOW - 600) * 1000, int(NOW) * 1000)))
    (answer,) = answers(lone.commit())
    assert answer.events == tuple(events[290:])
    assert answer.end == int(NOW) * 1000
    lone.receive(child, addition(Fetch(TOPIC.cid, (events[0].cid, events[295].cid))))
    (answer,) = answers(lone.commit())
    assert (answer.events, answer.missing) == ((events[295],), (events[0].cid,))


def test_one_peer_may_ask_only_so_much_at_a_time(relay: Counted) -> None:
    """Beyond that it is refused; others are answered as before."""
    child, chain = entered(relay), history()[1]
    other = peer_id(9)
    relay.meet(other)
    refused = []
    for number in range(MOST_PER_PEER + 10):
        question = Fetch(TOPIC.cid, (chain[number].cid,))
        refused += refusals(relay.receive(child, addition(question)))
    assert refused == [reasons.WAITING_FULL] * 10
    relay.receive(other, addition(Fetch(TOPIC.cid, (chain[0].cid,))))
    told = [peer for peer, message in sent(relay.commit()) if message.additions]
    assert told.count(other) == 1


# Reading a history.


def test_a_history_is_read_in_pieces_and_verified() -> None:
    """What cannot be decoded is counted; the rest comes in the order of the links."""
    author = Counted(AUTHOR, history()[0])
    author.feed(Command(5, ReadHistory(topic=NAME)))
    pieces = 0
    while author._loads:
        pieces += 1
        author.answer_one()
    (search,) = author.machine._fetcher._searches
    assert search == history()[0][STORED - SOUND - 1].id, "the parent of the first sound one"
    assert pieces >= 2 * (STORED // PIECE)
    assert author.heaviest <= PIECE
    (reading,) = author.machine._reading._open.values()
    assert len(reading.events) == SOUND
    assert len(reading.refused) == STORED - SOUND


def test_a_returning_subscriber_reads_everything_in_order() -> None:
    """Restarted, it has all events once, those from its log among them."""
    world = World(5)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 5), wait=5.0)
    for number in range(10):
        world.publish(topic, 0, b"%d" % number, wait=0.2)
    world.crash(4)
    world.publish(topic, 0, b"missed")
    world.network.start(world.host(4))
    world.wire(range(5))
    world.subscribe(topic, 4, wait=40.0)
    result = world.command(4, ReadHistory(topic=topic), wait=20.0)
    assert isinstance(result, Outcome)
    assert isinstance(result.result, History)
    wanted = [*[b"%d" % number for number in range(10)], b"missed"]
    assert [event.data for event in result.result.events] == wanted
    assert world.data(4, topic) == wanted


def test_who_was_killed_before_it_found_its_topic_has_subscribed_all_the_same() -> None:
    """It knew nobody to ask, and died; what was published since is what it wants."""
    world = World(6)
    topic = world.create(0, allowed_publishers=None)
    world.subscribe(topic, 1, 2, 3, 4)
    world.publish(topic, 1, b"before")
    world.crash(5)
    world.journal(5).records.clear()  # or it has the topic's descriptor, held for others
    world.network.start(world.host(5))
    world.subscribe(topic, 5, wait=1.0)
    assert world.branch(5, topic) is None
    world.crash(5)
    world.publish(topic, 1, b"meanwhile")
    world.network.start(world.host(5))
    world.wire(range(6))
    world.subscribe(topic, 5, wait=60.0)
    assert world.data(5, topic) == [b"meanwhile"]


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    """The log's word for a question that was given up."""
    lone = Lone()
    assert lone.feed(Loaded(999)) == []
