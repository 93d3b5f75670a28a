"""Dissemination trees: how they grow, how wide they are, how they heal, and who stays in them."""

import pytest
from pulsarcast_rig import Lone, World, additions, sent

from rumormill.core.effects import Connect
from rumormill.core.inputs import ConnectFailed, Publish, Subscribe, TimerFired
from rumormill.core.trace import DuplicateMessage, SendRPC
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import SubscribeTo
from rumormill.protocols.pulsarcast.context import BranchTimer
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import rpc
from rumormill.protocols.pulsarcast.format.additions import JoinReply, JoinStatus, Terms
from rumormill.protocols.pulsarcast.format.descriptors import PROTOCOL, TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import join
from rumormill.protocols.pulsarcast.tree.trees import gap
from rumormill.sim.network import peer_id

ANYONE = {"allowed_publishers": None}


def test_an_event_goes_over_every_edge_once() -> None:
    """From any publisher, up and down: n - 1 copies for n members, and no duplicate."""
    world = World(20, fan_out=3)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 20), wait=10.0)
    world.check_tree(topic)
    before = len([1 for _, each in world.traced(SendRPC) if each.meta.messages])
    for index in range(20):
        world.publish(topic, index, b"%d" % index)
    after = len([1 for _, each in world.traced(SendRPC) if each.meta.messages])
    assert after - before == 20 * 19
    assert not world.traced(DuplicateMessage)
    assert all(len(world.data(index, topic)) == 20 for index in range(20))


@pytest.mark.parametrize("fan_out", [1, 2, 5])
def test_nobody_has_more_children_than_the_fan_out(fan_out: int) -> None:
    """A full peer hands joiners on to its children; a fan-out of one makes a line."""
    world = World(14, fan_out=fan_out, move_linger=0.5)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 14), wait=40.0)
    world.check_tree(topic)
    children = [len(branch.children) for branch in world.members(topic).values()]
    assert max(children) == fan_out
    assert sum(children) == 13


def test_a_full_peer_redirects_the_farthest() -> None:
    """The joiner is handed on, or it is taken in and a farther child is asked to move."""
    lone = Lone(0, fan_out=2)
    topic = lone.create(**ANYONE).cid
    peers = sorted((peer_id(n) for n in range(1, 20)), key=lambda peer: gap(peer, peer_id(0)))
    near, middle, far = peers[0], peers[1], peers[-1]
    lone.meet(near, middle, far)
    for peer in (middle, far):
        lone.receive(peer, join(topic, Terms(topic), lone.now))
    effects = lone.receive(near, join(topic, Terms(topic), lone.now))
    replies = [
        (peer, each.status, [address.peer for address in each.peers])
        for peer, message in sent(effects)
        for each in message.additions
        if isinstance(each, JoinReply)
    ]
    assert (near, JoinStatus.ACCEPTED, []) in replies
    assert (far, JoinStatus.REDIRECTED, [middle]) in replies
    assert far in lone.machine.trees.branches[topic].children, "served until it has left"
    farther = max((peer_id(n) for n in range(20, 60)), key=lambda peer: gap(peer, peer_id(0)))
    lone.meet(farther)
    effects = lone.receive(farther, join(topic, Terms(topic), lone.now))
    (reply,) = additions(effects, JoinReply)
    assert isinstance(reply, JoinReply)
    assert reply.status is JoinStatus.REDIRECTED


def test_the_tree_of_a_dead_author_heals_around_the_closest_living_peer() -> None:
    """The new root is the living peer closest to the author, and publishing goes on."""
    world = World(12, fan_out=3)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 12), wait=10.0)
    world.crash(0)
    world.publish(topic, 5, b"during", wait=0.05)
    world.run(40.0)
    closest = min(range(1, 12), key=lambda index: gap(peer_id(index), peer_id(0)))
    assert world.check_tree(topic) == peer_id(closest)
    world.publish(topic, 7, b"after")
    for index in range(1, 12):
        assert world.data(index, topic) == [b"during", b"after"]


def test_an_author_that_returns_has_its_tree_again() -> None:
    """Its stand-in finds it and joins below it."""
    world = World(8, fan_out=3)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 8), wait=10.0)
    world.crash(0)
    world.run(30.0)
    world.network.start(world.host(0))
    world.wire(range(8))
    world.run(5.0)
    world.subscribe(topic, 0, wait=90.0)
    assert world.check_tree(topic) == peer_id(0)
    world.publish(topic, 3, b"back")
    assert all(world.data(index, topic)[-1:] == [b"back"] for index in range(8))


def test_an_author_that_returns_quickly_is_not_avoided_for_having_died() -> None:
    """Whoever is connected lives: its stand-in does not wait until the failure is forgotten."""
    world = World(8, fan_out=3, avoid_failed=3600.0, rendezvous_interval=3600.0)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 8), wait=10.0)
    world.crash(0)
    world.run(30.0)
    world.network.start(world.host(0))
    world.wire(range(8))
    world.subscribe(topic, 0, wait=30.0)
    assert world.check_tree(topic) == peer_id(0)


def test_a_relay_keeps_nothing_of_a_topic_that_it_no_longer_serves() -> None:
    """When the last child leaves, the relays on its way up are free of the topic."""
    world = World(16, fan_out=2)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 16), wait=10.0)
    world.publish(topic, 3, b"x")
    world.unsubscribe(topic, *range(1, 16), wait=60.0)
    cid = cids.parse(topic)
    for index in range(1, 16):
        machine = world.machine(index)
        assert cid not in machine.trees.branches
        assert cid not in machine.feeds.open
    branch = world.branch(0, topic)
    assert branch is not None
    assert not branch.children


def test_a_neighbour_that_cannot_be_reached_is_dialled_again_and_then_replaced() -> None:
    """`connect_retries` is how often; then another next hop is chosen."""
    lone = Lone(5, connect_retries=2)
    topic = TopicDescriptor("t", peer_id(0), "2020-01-01T00:00:00.000Z")
    lone.machine.topics.add(topic)
    lone.feed(Subscribe(cids.text(topic.cid)))
    branch = lone.machine.trees.branches[topic.cid]
    target = next(peer_id(n) for n in range(1, 99) if gap(peer_id(n), peer_id(0)) < branch.own_gap)
    effects = lone.effects
    lone.machine._parents.try_parent(branch, target, lone.now, effects)
    for attempt in range(3):
        assert [each.peer for each in effects if isinstance(each, Connect)] == [target]
        lone.feed(ConnectFailed(target, "refused"))
        assert (target in branch.failed) == (attempt == 2)
        lone.now += 60.0
        effects = lone.feed(TimerFired(BranchTimer(topic.cid)))
    assert branch.candidate is None


def test_who_only_publishes_is_sent_nothing() -> None:
    """A publisher that does not subscribe hangs on the tree in silence, and leaves it after."""
    world = World(8, publish_linger=5.0)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 6))
    world.publish(topic, 7, b"from outside")
    for number in range(3):
        world.publish(topic, 1, b"%d" % number)
    assert world.data(4, topic) == [b"from outside", b"0", b"1", b"2"]
    assert world.data(7, topic) == []
    outsider = peer_id(7)
    received = [
        message
        for peer, each in world.traced(SendRPC)
        for message in each.meta.messages
        if each.send_to == outsider
    ]
    assert received == []
    world.run(60.0)
    assert world.branch(7, topic) is None


def test_a_subscription_is_answered_when_there_is_a_way_to_the_root() -> None:
    """SubscribeTo ends with the descriptor, or with the reason."""
    world = World(5)
    topic = world.create(0)
    outcome = world.command(3, SubscribeTo(topic=topic))
    assert isinstance(outcome.result, TopicDescriptor)
    assert cids.text(outcome.result.cid) == topic
    bad = world.command(3, SubscribeTo(topic="not a cid"))
    assert "names no topic" in bad.error


def test_a_child_of_the_original_is_served_without_ceremony() -> None:
    """A JOIN without terms, over the original's protocol, is taken in and not answered."""
    lone = Lone(0)
    topic = lone.create(**ANYONE).cid
    lone.meet(peer_id(1), protocol=PROTOCOL)
    effects = lone.receive(peer_id(1), join(topic, None, lone.now))
    assert sent(effects) == []
    out = sent(lone.feed(Publish(cids.text(topic), b"x")))
    assert [peer for peer, _ in out] == [peer_id(1)]
    lone.receive(peer_id(1), rpc.leave(topic, lone.now))
    assert sent(lone.feed(Publish(cids.text(topic), b"y"))) == []


def test_no_more_peers_and_topics_wait_for_a_descriptor_than_fit() -> None:
    """Whoever wants to join below us in a topic that we must look for first waits; one too many is
    told so, be it for one topic or for another that nobody has heard of."""
    lone = Lone(max_waiting=2)
    peers = [peer_id(number) for number in range(1, 5)]
    lone.meet(*peers)
    wanted = [cids.of(b"topic %d" % number) for number in range(3)]

    def refused(peer: bytes, topic: bytes) -> list[str]:
        effects = lone.receive(peer, join(topic, Terms(topic), lone.now))
        return [each.reason for each in additions(effects, JoinReply)]  # type: ignore[attr-defined]

    assert refused(peers[0], wanted[0]) == refused(peers[1], wanted[0]) == []
    assert refused(peers[0], wanted[0]) == [], "who repeats itself takes no further place"
    assert refused(peers[2], wanted[0]) == [reasons.WAITING_FULL]
    assert refused(peers[2], wanted[1]) == []
    assert refused(peers[3], wanted[2]) == [reasons.WAITING_FULL]
    assert len(lone.machine.membership._joining) == 2
