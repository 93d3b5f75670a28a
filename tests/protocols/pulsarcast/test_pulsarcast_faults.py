"""The faults of the JavaScript original, one test each: what it does wrong, we do right.

The list is that of its known defects: orphaned subtrees, endless circles, permissions checked only
at the origin, requests judged by the wrong peer, custom links ignored, forwarding that waits for
the DHT, values believed without their hash, and a few ways to stop a peer with one message.
"""

import pytest
from pulsarcast_rig import (
    Lone,
    World,
    additions,
    delivered,
    event_by,
    penalties,
    publication,
    refusals,
    sent,
)

from rumormill.core.effects import Append, Ask, Disconnect, Effects, SendAll
from rumormill.core.inputs import (
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    Stored,
    Subscribe,
)
from rumormill.core.trace import (
    DuplicateMessage,
    Penalise,
    PublishMessage,
    RejectMessage,
    SendRPC,
)
from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import ShowTopic
from rumormill.protocols.pulsarcast.context import OURS
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates, rpc
from rumormill.protocols.pulsarcast.format.additions import (
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    Terms,
)
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor, EventLinking
from rumormill.protocols.pulsarcast.format.rpc import (
    Operation,
    PeerTree,
    Rpc,
    RpcMessage,
    accepted,
    addition,
    join,
    redirect,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, sign_event
from rumormill.protocols.pulsarcast.history import exchange
from rumormill.protocols.pulsarcast.tree.trees import gap
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.network import peer_id

ANYONE = {"allowed_publishers": None}


def inner_peer(world: World, topic: str) -> int:
    """A peer that is neither root nor leaf."""
    for peer, branch in world.members(topic).items():
        if branch.parent is not None and branch.children:
            return int.from_bytes(peer)
    raise AssertionError("the tree has no inner peer")


def test_the_death_of_a_parent_orphans_nobody() -> None:
    """1: the subtree of a peer that dies joins elsewhere, and gets what it missed meanwhile."""
    world = World(12, fan_out=2)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 12))
    dead = inner_peer(world, topic)
    world.crash(dead)
    world.publish(topic, 0, b"while orphaned", wait=0.01)
    world.run(15.0)
    world.publish(topic, 0, b"after")
    for index in range(12):
        if index != dead:
            assert world.data(index, topic) == [b"while orphaned", b"after"]
    world.check_tree(topic)


def test_an_inner_peer_that_leaves_orphans_nobody() -> None:
    """2: the children of a peer that unsubscribes are handed on and miss nothing."""
    world = World(12, fan_out=2)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 12))
    leaver = inner_peer(world, topic)
    world.unsubscribe(topic, leaver, wait=0.01)
    for number in range(20):
        world.publish(topic, 0, b"%d" % number, wait=0.5)
    world.run(10.0)
    wanted = [b"%d" % number for number in range(20)]
    for index in range(12):
        assert world.data(index, topic) == ([] if index == leaver else wanted)
    assert world.branch(leaver, topic) is None
    world.check_tree(topic)


def test_a_plain_leave_of_the_parent_is_answered_by_joining_elsewhere() -> None:
    """2: also when the parent says nothing but LEAVE, as the original does."""
    lone = Lone(5)
    topic = foreign_topic(lone, author=0)
    parent = join_below(lone, topic, closer_than(lone, 0))
    lone.receive(parent, rpc.leave(topic, lone.now))
    branch = lone.machine.trees.branches[topic]
    assert branch.parent is None
    assert parent in branch.failed
    lone.now += 5.0
    lone.machine.membership.on_timer(topic, lone.now, lone.effects)
    assert branch.candidate is not None or branch.searching or branch.rendezvous


def test_a_forced_cycle_carries_an_event_round_once() -> None:
    """3: three peers in a ring, one event: everybody gets it once, and then there is silence."""
    world = World(3)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, 1, 2)
    peers = [peer_id(index) for index in range(3)]
    for index in range(3):
        for other in range(3):
            world.network.dial(world.host(index), peers[other])
    world.run(1.0)
    for index in range(3):
        branch = world.branch(index, topic)
        assert branch is not None
        branch.targets = (peers[(index + 1) % 3],)
    before = len(world.traced(SendRPC))
    world.publish(topic, 1, b"round", wait=3.0)
    assert [world.data(index, topic) for index in range(3)] == [[b"round"]] * 3
    carried = [each for _, each in world.traced(SendRPC)[before:] if each.meta.messages]
    assert len(carried) == 3
    assert len(world.traced(DuplicateMessage)) == 1


def test_a_joiner_that_is_not_farther_is_refused_so_that_no_cycle_forms() -> None:
    """3: a parent is strictly closer to the author, at every edge."""
    lone = Lone(0)
    other = next(index for index in range(1, 100) if closer(lone, index, to=50))
    topic = foreign_topic(lone, author=50)
    join_below(lone, topic, peer_id(50))
    lone.meet(peer_id(other))
    effects = lone.receive(peer_id(other), join(topic, Terms(topic), lone.now))
    assert refusals(effects) == [reasons.NOT_FARTHER]
    assert penalties(effects) == [reasons.NOT_FARTHER]
    assert peer_id(other) not in lone.machine.trees.branches[topic].children


def test_a_forged_publication_dies_at_the_first_honest_peer() -> None:
    """4: who is not allowed to publish is heard by his neighbour alone, who notes it."""
    world = World(8)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 8))
    cid = cids.parse(topic)
    forged = event_by(3, cid, b"forged", dates.iso_at(world.now))
    target = next(iter(world.machine(3)._context.connected))
    world.host(int.from_bytes(target)).handle(Received(peer_id(3), publication(forged, world.now)))
    world.run(2.0)
    assert all(world.data(index, topic) == [] for index in range(8))
    rejected = world.traced(RejectMessage)
    assert [(peer, each.reason) for peer, each in rejected] == [(target, reasons.NOT_ALLOWED)]


def test_a_name_without_its_signature_is_worth_nothing() -> None:
    """4: an event in an allowed publisher's name passes only with that publisher's signature."""
    lone = Lone(0)
    topic = lone.create(allowed_publishers=(peer_id(0), peer_id(1))).cid
    lone.meet(peer_id(9))
    created = dates.iso_at(lone.now)
    honest = event_by(1, topic, b"x", created)
    unsigned = SignedEvent(honest.event)
    foreign = sign_event(honest.event, SimulatedIdentity(peer_id(9)))
    assert refusals(lone.receive(peer_id(9), publication(unsigned))) == [reasons.NOT_SIGNED]
    assert refusals(lone.receive(peer_id(9), publication(foreign))) == [reasons.BAD_SIGNATURE]
    effects = lone.receive(peer_id(9), publication(honest))
    assert delivered(effects) == [b"x"]


def test_a_link_does_not_vouch_for_a_forged_event_in_the_dht() -> None:
    """4: who may publish himself cannot put words into another's mouth: he forges an event, stores
    it under its true hash, and links to it from one that he has signed."""
    world = World(8, store_events=True)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 8), wait=5.0)
    cid = cids.parse(topic)
    liar = 3
    forged = event_by(1, cid, b"forged", dates.iso_at(world.now - 1.0)).event
    host, machine = world.host(liar), world.machine(liar)
    machine.dht.put_value(content_key(forged.cid), forged.dag(), world.now, host.effects)
    host.carry_out()
    world.run(5.0)
    linked = event_by(liar, cid, b"honest", dates.iso_at(world.now), forged.cid)
    for neighbour in machine.trees.neighbours(cid):
        message = publication(linked, world.now)
        world.host(int.from_bytes(neighbour)).handle(Received(peer_id(liar), message))
    world.run(60.0)
    others = [index for index in range(8) if index != liar]
    assert [world.data(index, topic) for index in others] == [[b"honest"]] * len(others)
    rejected = [each.reason for _, each in world.traced(RejectMessage)]
    assert rejected
    assert set(rejected) == {reasons.NOT_SIGNED}
    assert world.traced(Penalise) == []


def test_a_liar_is_cut_off_and_everybody_else_is_served() -> None:
    """4: ten forgeries end a connection; what honest peers say goes on arriving."""
    lone = Lone(0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(9), peer_id(1))
    created = dates.iso_at(lone.now)
    for number in range(10):
        bad = SignedEvent(event_by(1, topic, b"%d" % number, created).event, bytes(64))
        last = lone.receive(peer_id(9), publication(bad))
    assert [each.peer for each in last if isinstance(each, Disconnect)] == [peer_id(9)]
    good = publication(event_by(1, topic, b"good", created))
    assert refusals(lone.receive(peer_id(9), good)) == [reasons.BANNED]
    effects = lone.receive(peer_id(1), good)
    assert delivered(effects) == [b"good"]


def test_a_list_of_requesters_admits_those_on_it() -> None:
    """5: it is the event's author who is looked up in `requestToPublish`, not the topic's."""
    world = World(6)
    topic = world.create(0, request_to_publish=(peer_id(2),))
    world.subscribe(topic, *range(1, 6))
    listed = world.say(2, topic, b"listed")
    other = world.say(3, topic, b"other")
    assert listed.error == ""
    assert listed.event is not None
    assert other.error.endswith("(may-not-publish)")
    assert [world.data(index, topic) for index in range(6)] == [[b"listed"]] * 6


def test_custom_links_are_what_the_application_says() -> None:
    """6: the named parent is linked, wherever the event's peer stands; one that is not, is not."""
    world = World(6)
    topic = world.create(0, event_linking=EventLinking.CUSTOM, **ANYONE)
    world.subscribe(topic, *range(1, 6))
    first = world.say(0, topic, b"first").event
    assert first is not None
    world.say(1, topic, b"second")
    third = world.say(2, topic, b"third", first.id)
    assert third.error == ""
    event = world.events[4][-1]
    assert (event.data, event.parents) == (b"third", (first.id,))
    nowhere = cids.of(b"nothing")
    lost = world.say(2, topic, b"lost", nowhere, wait=20.0)
    assert lost.error.endswith("(no-such-parent)")


def test_a_parent_cannot_be_named_where_the_topic_links_by_itself() -> None:
    """6: LAST_SEEN leaves no choice."""
    world = World(3)
    topic = world.create(0)
    first = world.say(0, topic, b"first").event
    assert first is not None
    outcome = world.say(0, topic, b"second", first.id)
    assert outcome.error.endswith("(topic-links-by-itself)")


@pytest.mark.parametrize("op", [*Operation])
def test_an_operation_without_its_payload_stops_nobody(op: Operation) -> None:
    """7: whatever comes with an operation, it is refused and life goes on."""
    lone = Lone(0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(9))
    created = dates.iso_at(lone.now)
    bodies = (
        RpcMessage(op, created, topic),
        RpcMessage(op, created, PeerTree(topic)),
        RpcMessage(op, created, event_by(1, topic, b"x", created)),
        RpcMessage(op, created),
    )
    for body in bodies:
        lone.receive(peer_id(9), Rpc((body,)))
    good = event_by(1, topic, b"good", created)
    effects = lone.receive(peer_id(1), publication(good))
    assert delivered(effects) == [b"good"]


def test_an_event_whose_cid_holds_slashes_is_stored_and_found() -> None:
    """8: the original cannot store 0.7 % of all events, those whose CID holds two slash bytes."""
    world = World(8, store_events=True)
    topic = world.create(0, event_linking=EventLinking.CUSTOM, **ANYONE)
    cid, author = cids.parse(topic), peer_id(0)
    date = int((world.now + 1) * 1000)
    payload = next(
        b"%d" % number
        for number in range(100_000)
        if EventDescriptor(cid, author, b"%d" % number, dates.iso(date), author).cid[4:].count(b"/")
        >= 2
    )
    world.run(1.0)
    world.publish(topic, 0, payload, wait=5.0)
    event = world.events[0][-1]
    assert event.id[4:].count(b"/") >= 2
    world.crash(0)
    assert world.say(5, topic, b"after it", event.id, wait=20.0).error == ""


def test_what_does_not_hash_to_its_name_is_refused_and_looked_for_elsewhere() -> None:
    """9: a false descriptor costs its sender, and the hunt goes on."""
    lone = Lone(0)
    lone.meet(peer_id(9))
    true = Lone(1).create()
    false = Lone(2).create()
    lone.receive(peer_id(9), join(true.cid, Terms(true.cid), lone.now))
    assert additions(lone.effects, Fetch) == [Fetch(true.cid, (true.cid,))]
    effects = lone.receive(peer_id(9), addition(Block(true.cid, false.dag())))
    assert refusals(effects) == [reasons.WRONG_CID]
    assert penalties(effects) == [reasons.WRONG_CID]
    assert lone.machine.topics.get(true.cid) is None
    assert true.cid in lone.machine._fetcher
    lone.receive(peer_id(9), addition(Block(true.cid, true.dag())))
    assert lone.machine.topics.get(true.cid) is not None


def test_second_connections_and_closed_ones_confuse_nobody() -> None:
    """10: a further connection changes nothing, its end once ends all, sending then is no error."""
    lone = Lone(0)
    topic = lone.create(**ANYONE)
    peer = peer_id(1)
    lone.meet(peer, peer)
    lone.receive(peer, join(topic.cid, Terms(topic.cid), lone.now))
    lone.feed(PeerConnected(peer, OURS, outbound=True))
    assert peer in lone.machine.trees.branches[topic.cid].children
    lone.feed(PeerDisconnected(peer))
    lone.feed(PeerDisconnected(peer))
    assert sent(lone.feed(Publish(cids.text(topic.cid), b"x"))) == []


def test_a_peer_that_knows_nobody_is_its_own_root() -> None:
    """10: an empty routing table is no error: whoever knows no one stands in for the author."""
    world = World(4)
    topic = world.create(0, **ANYONE)
    world.crash(0, 2, 3)
    world.machine(1).topics.add(world.machine(0).topics.get(cids.parse(topic)))  # type: ignore[arg-type]
    world.subscribe(topic, 1, wait=30.0)
    branch = world.branch(1, topic)
    assert branch is not None
    assert branch.rendezvous


def test_an_event_from_the_future_is_refused_and_pins_nothing() -> None:
    """11: a future date is refused; the next event links to the one that was seen last."""
    lone = Lone(0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(1))
    now = event_by(1, topic, b"now", dates.iso_at(lone.now))
    lone.receive(peer_id(1), publication(now))
    future = event_by(1, topic, b"future", dates.iso_at(lone.now + 3600.0))
    effects = lone.receive(peer_id(1), publication(future))
    assert refusals(effects) == [reasons.FUTURE_DATE]
    assert penalties(effects) == [reasons.FUTURE_DATE]
    effects = lone.feed(Publish(cids.text(topic), b"next"))
    assert [each.event.parents for each in effects if isinstance(each, Append)] == [(now.cid,)]


def test_a_date_that_is_early_by_a_clocks_difference_is_nobodys_fault() -> None:
    """11: it was not too early where the neighbour is, who took it in and passed it on."""
    lone = Lone(0, max_clock_skew=60.0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(1))
    for ahead, blamed in ((60.05, []), (119.0, []), (121.0, [reasons.FUTURE_DATE])):
        early = event_by(2, topic, b"early", dates.iso_at(lone.now + ahead))
        effects = lone.receive(peer_id(1), publication(early))
        assert refusals(effects) == [reasons.FUTURE_DATE]
        assert penalties(effects) == blamed


def test_what_is_remembered_of_events_is_bounded_and_no_event_comes_twice() -> None:
    """11: the oldest ids are forgotten, and events so old are refused instead of delivered anew."""
    lone = Lone(0, timeline_limit=50)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(1))
    events = [
        event_by(1, topic, b"%d" % number, dates.iso_at(lone.now - 200 + number))
        for number in range(200)
    ]
    for each in events:
        lone.receive(peer_id(1), publication(each))
    feed = lone.machine.feeds.open[topic]
    assert len(feed.timeline) <= 51
    again = [refusals(lone.receive(peer_id(1), publication(each))) for each in events[:140]]
    assert again == [[reasons.TOO_OLD]] * 140


def test_forwarding_does_not_wait_for_the_dht() -> None:
    """An event is on its way to the neighbours before the DHT is asked anything."""
    world = World(6, store_events=True)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 6))
    machine, now = world.machine(0), world.now
    appended: Effects = []
    machine.handle(Publish(topic, b"x"), now, appended)
    (append,) = appended
    assert isinstance(append, Append)
    effects: Effects = []
    machine.handle(Stored((append.barrier,)), now, effects)
    kinds = [type(each) for each in effects]
    assert kinds.index(PublishMessage) < kinds.index(SendAll) < kinds.index(Ask)


def test_a_failed_subscription_is_rolled_back_and_can_be_tried_again() -> None:
    """A topic that nobody has is not subscribed to, and a later attempt is a new one."""
    world = World(4, subscribe_retries=1, subscribe_retry_delay=1.0)
    unknown = Lone(9).create()
    text = cids.text(unknown.cid)
    world.subscribe(text, 1, wait=20.0)
    assert unknown.cid not in world.machine(1).membership.subscriptions
    world.machine(2).topics.add(unknown)
    host = world.host(2)
    world.machine(2).dht.put_value(content_key(unknown.cid), unknown.dag(), world.now, host.effects)
    host.carry_out()
    world.run(3.0)
    assert world.command(1, ShowTopic(topic=text)).result == unknown
    world.subscribe(text, 1)
    assert unknown.cid in world.machine(1).membership.subscriptions


def test_every_join_is_acknowledged() -> None:
    """A joiner hears that it was taken in, and by what answer."""
    lone = Lone(0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(1))
    effects = lone.receive(peer_id(1), join(topic, Terms(topic), lone.now))
    replies = additions(effects, JoinReply)
    assert [reply.status.name for reply in replies if isinstance(reply, JoinReply)] == ["ACCEPTED"]


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    """Unasked events, blocks and replies are refused."""
    lone = Lone(0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(9))
    event = event_by(9, topic, b"pushed", dates.iso_at(lone.now))
    effects = lone.receive(peer_id(9), addition(Events(topic, (event,))))
    assert refusals(effects) == [reasons.NOT_ASKED_FOR]
    assert not any(isinstance(each, Append) for each in effects)
    other = Lone(1).create()
    effects = lone.receive(peer_id(9), addition(Block(other.cid, other.dag())))
    assert refusals(effects) == [reasons.NOT_ASKED_FOR]
    assert lone.machine.topics.get(other.cid) is None


def test_a_redirection_to_a_peer_that_is_not_closer_is_refused() -> None:
    """A liar cannot bend the tree into a circle."""
    lone = Lone(5)
    topic = foreign_topic(lone, author=0)
    parent = join_below(lone, topic, closer_than(lone, 0))
    farther = next(peer_id(index) for index in range(1, 200) if not closer(lone, index, to=0))
    effects = lone.receive(parent, redirect(topic, farther, ()))
    assert refusals(effects) == [reasons.BAD_REDIRECT]
    assert lone.machine.trees.branches[topic].candidate is None


# How a lone machine is brought into a foreign tree.


def closer(lone: Lone, index: int, to: int) -> bool:
    """Whether a peer is closer to another than the machine is."""
    return gap(peer_id(index), peer_id(to)) < gap(lone.machine.id, peer_id(to))


def closer_than(lone: Lone, author: int) -> bytes:
    """A peer, not the author, that is closer to the author than the machine is."""
    return next(peer_id(index) for index in range(1, 500) if closer(lone, index, to=author))


def foreign_topic(lone: Lone, author: int) -> bytes:
    """A topic of another's, whose descriptor the machine has."""
    topic = Lone(author).create(**ANYONE)
    lone.machine.topics.add(topic)
    return topic.cid


def join_below(lone: Lone, topic: bytes, parent: bytes) -> bytes:
    """Subscribe the machine, and let a peer take it in."""
    lone.meet(parent)
    lone.feed(Subscribe(cids.text(topic)))
    branch = lone.machine.trees.branches[topic]
    lone.machine._parents.try_parent(branch, parent, lone.now, lone.effects)
    lone.receive(parent, accepted(topic, None))
    assert branch.parent == parent
    return parent


def test_questions_cost_us_no_more_than_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """11: three kilobytes that ask for everything, sixty-four times, do not have a whole history
    looked through as often; and whoever asks all the time is refused."""
    lone, looked_at = Lone(0), 0
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(1))
    for number in range(1500):
        created = dates.iso_at(lone.now - 600.0 + number / 10)
        lone.receive(peer_id(1), publication(event_by(1, topic, b"%d" % number, created)))

    def counted(cid: bytes) -> bytes:
        nonlocal looked_at
        looked_at += 1
        return cids.tail(cid)

    monkeypatch.setattr(exchange, "tail", counted)
    have = Have(topic, 0, int(lone.now * 1000))
    effects = lone.receive(peer_id(1), addition(*[have] * 64))
    assert refusals(effects) == [reasons.ASKED_TOO_OFTEN] * 60
    assert looked_at < 1500
    nothing = addition(Have(topic, 0, 0))
    refused = [refusals(lone.receive(peer_id(1), nothing)) for _ in range(1100)]
    assert refused.count([reasons.ASKED_TOO_OFTEN]) > 50
    assert lone.receive(peer_id(1), addition(Fetch(topic, (cids.of(b"x"),))))
    lone.now += 1.0
    assert not refusals(lone.receive(peer_id(1), nothing))
