"""go's mesh tests: GRAFT, PRUNE, backoff, and what becomes of control messages that are lost."""

from typing import Any

from protocols.conformance import MESH_ONLY, controls, publish_and_check, subscribe_and
from protocols.pubsub_rig import Rig
from rumormill.core.effects import Send
from rumormill.core.inputs import SendDropped
from rumormill.core.trace import DropRPC, Penalise, Refuse
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.outbox import Outbox
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_0
from rumormill.protocols.gossipsub.score_params import (
    PeerScoreParams,
    ScoreThresholds,
    TopicScoreParams,
)
from rumormill.protocols.pubsub import reasons as pubsub_reasons
from rumormill.protocols.pubsub.messages import Control, Prune, Rpc, SubOpts
from rumormill.sim.link import QUEUE_FULL, LinkFaults


def grafted(**puppets: Any) -> tuple[Rig, int, int]:
    """A subscriber, and a puppet that has grafted its topic and announced nothing."""
    rig = Rig()
    (peer,) = rig.add()
    puppet = rig.add_puppet(**puppets)
    rig.connect(puppet, peer)
    rig.subscribe([peer])
    rig.send(puppet, peer, Rpc(control=Control(graft=("news",))))
    rig.run(0.01)
    return rig, peer, puppet


class TestLinks:
    """Links come, go and come back."""

    def test_gossipsub_prune(self) -> None:
        """5 of 20 peers unsubscribe: the others still get everything. go: TestGossipsubPrune.

        Nobody keeps one of the 5 in its mesh, and they publish by fanout as before.
        """
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY)
        rig.subscribe(peers)
        rig.connect_densely(peers)
        rig.run(2)
        rig.unsubscribe(peers[:5])
        rig.run(0.1)
        assert not any(gone in rig.mesh(peer) for peer in peers for gone in peers[:5])
        publish_and_check(rig, peers, peers[5:], count=10)
        assert all(rig.data(peer) == [] for peer in peers[:5])

    def test_gossipsub_prune_backoff_time(self) -> None:
        """Who is pruned for its score sits out the backoff. go: TestGossipsubPruneBackoffTime."""
        rig = Rig()
        opinion = {"of 0": 0.0}
        zero = bytes(4)
        config = GossipSubConfig(
            heartbeat_initial_delay=0.01,
            heartbeat_interval=0.1,
            score=PeerScoreParams(default_topic=None),
            thresholds=ScoreThresholds(gossip=-1, publish=-1, graylist=-1),
            **MESH_ONLY,
        )
        score = {"application_score": lambda peer: opinion["of 0"] if peer == zero else 0.0}
        peers = rig.add(10, config=config, options=score)
        rig.subscribe(peers)
        rig.connect_all(peers)
        rig.run(1)
        assert sum(0 in rig.mesh(peer) for peer in peers) > 3

        pruned_at = rig.network.engine.now
        linked = [peer for peer in peers if 0 in rig.mesh(peer)]
        opinion["of 0"] = -1000.0
        rig.run(1)
        for peer in peers[1:]:
            assert 0 not in rig.mesh(peer)
        for peer in linked:
            expires = rig.router(peer).mesh.backoff.expires("news", zero)
            assert pruned_at + 60 <= expires <= pruned_at + 61
        publish_and_check(rig, peers[1:], peers[1:], count=10)

        opinion["of 0"] = 0.0
        rig.run(pruned_at + 60 - rig.network.engine.now)
        assert not any(0 in rig.mesh(peer) for peer in linked)
        rig.run(3)
        assert rig.mesh(0), "links come back when the backoff is over"

    def test_gossipsub_graft(self) -> None:
        """Peers that subscribe one after another graft each other. go: TestGossipsubGraft."""
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY)
        rig.connect_sparsely(peers)
        rig.run(1)
        for peer in peers:
            rig.subscribe([peer])
            rig.run(0.1)
        rig.run(1)
        publish_and_check(rig, peers, peers)

    def test_gossipsub_remove_peer(self) -> None:
        """5 of 20 peers vanish: the others still get everything. go: TestGossipsubRemovePeer."""
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY)
        rig.subscribe(peers)
        rig.connect_densely(peers)
        rig.run(2)
        for peer in peers[:5]:
            rig.network.crash(rig.host(peer))
        rig.run(1)
        for peer in peers[5:]:
            router = rig.router(peer)
            assert not any(rig.id(gone) in router.peers for gone in peers[:5])
            assert not any(gone in rig.mesh(peer) for gone in peers[:5])
        publish_and_check(rig, peers[5:], peers[5:], count=10)

    def test_gossipsub_multiple_graft_topics(self) -> None:
        """One RPC grafts three topics. go: TestGossipsubMultipleGraftTopics."""
        rig = Rig()
        (peer,) = rig.add()
        puppet = rig.add_puppet()
        topics = ("topic1", "topic2", "topic3")
        for topic in topics:
            rig.subscribe([peer], topic)
        rig.connect(puppet, peer)
        for topic in topics:
            rig.send(puppet, peer, subscribe_and(topic, prune=(Prune(topic, backoff=1),)))
        rig.run(1.5)
        before = [rig.mesh(peer, topic) for topic in topics]
        rig.send(puppet, peer, Rpc(control=Control(graft=topics)))
        rig.run(0.01)
        assert before == [[], [], []]
        assert [rig.mesh(peer, topic) for topic in topics] == [[puppet]] * 3

    def test_gossipsub_prune_mesh_correctly(self) -> None:
        """A mesh above D_hi goes back to exactly D. go: TestGossipsubPruneMeshCorrectly.

        Above D_hi, as the specification has it; go prunes at D_hi already.
        """
        rig = Rig()
        peers = rig.add(10, D_hi=8, heartbeat_spread=0.0)
        rig.subscribe(peers)
        for other in peers[1:]:
            rig.network.dial(rig.host(0), rig.id(other))
        rig.run(0.105)
        assert len(rig.mesh(0)) == 9
        rig.run(2)
        assert len(rig.mesh(0)) == 6
        rig.run(5)
        assert len(rig.mesh(0)) == 6


class TestJoiningAndLeaving:
    """Backoff after leaving a topic."""

    def test_gossipsub_leave_topic(self) -> None:
        """Both sides keep the unsubscribe backoff of 10 s. go: TestGossipSubLeaveTopic."""
        rig = Rig()
        peers = rig.add(2)
        rig.connect(0, 1)
        rig.subscribe(peers)
        rig.run(1.5)
        assert (rig.mesh(0), rig.mesh(1)) == ([1], [0])
        left_at = rig.network.engine.now
        rig.unsubscribe([0])
        rig.run(1)
        for peer, other in ((0, 1), (1, 0)):
            backoff = rig.router(peer).mesh.backoff
            assert len(backoff) == 1
            assert 10 <= backoff.expires("news", rig.id(other)) - left_at <= 11

    def test_gossipsub_join_topic(self) -> None:
        """A peer in backoff is not grafted when we join. go: TestGossipSubJoinTopic."""
        rig = Rig()
        peers = rig.add(3)
        rig.connect(0, 1)
        rig.connect(0, 2)
        for one, other in ((0, 1), (1, 0)):
            now = rig.network.engine.now
            rig.router(one).mesh.backoff.add("news", rig.id(other), 10.0, now)
        rig.subscribe(peers[1:])
        rig.run(0.1)
        rig.subscribe([0])
        assert rig.mesh(0) == [2]
        rig.run(1)
        assert rig.mesh(0) == [2]
        rig.run(12)
        assert sorted(rig.mesh(0)) == [1, 2]


class TestControlMessages:
    """GRAFT and PRUNE that could not be sent are sent with the next RPC, if still true."""

    def test_gossipsub_graft_prune_retry(self) -> None:
        """35 topics joined at once get whole meshes. go: TestGossipsubGraftPruneRetry.

        Control messages that do not fit the outgoing queues of 32 are lost first, and repeated.
        """
        rig = Rig(faults=LinkFaults(queue_limit=32))
        peers = rig.add(10, **MESH_ONLY)
        for peer in peers:
            rig.host(peer).upload = 20_000.0
        rig.connect_all(peers)
        topics = [f"topic{number}" for number in range(35)]
        for peer in peers:
            for topic in topics:
                rig.subscribe([peer], topic)
            rig.run(0.5)
        rig.run(5)
        refused = [reason for peer in peers for reason in rig.refusals(peer)]
        assert (refused, rig.trace(Penalise)) == ([], []), "no GRAFT overtakes its announcement"
        lost = [drop.meta for drop in rig.trace(DropRPC) if drop.reason == QUEUE_FULL]
        assert any(meta.control is not None and meta.control.graft for meta in lost)
        assert any(meta.subscription for meta in lost)
        for topic in topics:
            for peer in peers:
                for other in rig.mesh(peer, topic):
                    assert peer in rig.mesh(other, topic), "links are mutual"
            publish_and_check(rig, peers, peers, count=1, topic=topic, settle=0.0, pause=1.0)

    def test_gossipsub_control_piggyback(self) -> None:
        """Meshes of 5 topics form under a flood of 10,000 messages.

        go: TestGossipsubControlPiggyback.

        The flood fills the outgoing queues of its publisher, so control messages are lost there.
        """
        rig = Rig(faults=LinkFaults(queue_limit=32))
        peers = rig.add(10, history_gossip=0, **MESH_ONLY)
        owner = 4
        rig.host(owner).upload = 10e6
        rig.connect_all(peers)
        rig.subscribe(peers, "flood")
        rig.run(1)
        topics = [f"topic{number}" for number in range(5)]
        for topic in topics:
            for _ in range(2000):
                rig.publish(owner, b"background flood", "flood")
            rig.subscribe(peers, topic)
        lost = [drop.meta for drop in rig.trace(DropRPC, owner) if drop.reason == QUEUE_FULL]
        assert sum(bool(meta.subscription) for meta in lost) == 5 * len(rig.mesh(owner, "flood"))
        rig.run(3)
        for topic in topics:
            assert rig.mesh(owner, topic)
            publish_and_check(rig, peers, peers, count=1, topic=topic, settle=1.0)

    def test_gossipsub_piggyback_control(self) -> None:
        """What is no longer true is not repeated. go: TestGossipsubPiggybackControl.

        A lost GRAFT counts while the link exists, a lost PRUNE while it does not.
        """
        peer = b"somebody"
        outbox = Outbox({"test1": {peer: None}, "test2": {}})
        topics = ("test1", "test2", "test3")
        outbox.retry(peer, Control(graft=topics))
        assert outbox.take(peer) == Control(graft=("test1",))
        outbox.retry(peer, Control(prune=tuple(map(Prune, topics))))
        assert outbox.take(peer) == Control(prune=(Prune("test2"), Prune("test3")))
        assert outbox.take(peer) is None

    def test_a_graft_that_overtakes_its_announcement_costs_nobody(self) -> None:
        """Who grafts one of our topics subscribes to it; its own announcement changes nothing."""
        rig, peer, puppet = grafted()
        assert rig.mesh(peer) == [puppet]
        assert list(rig.router(peer).topics["news"]) == [rig.id(puppet)]
        rig.send(puppet, peer, subscribe_and())
        rig.run(2)
        assert rig.mesh(peer) == [puppet]
        assert controls(rig.rpcs(puppet)) == []
        assert rig.trace(Penalise) == []
        assert rig.trace(Refuse) == []

    def test_a_peer_that_only_grafted_leaves_by_unsubscribing(self) -> None:
        """A subscription that a GRAFT announced ends like any other, and the link with it."""
        rig, peer, puppet = grafted()
        assert rig.mesh(peer) == [puppet]
        rig.send(puppet, peer, Rpc(subscriptions=(SubOpts(False, "news"),)))
        rig.run(2)
        assert rig.mesh(peer) == []
        assert "news" not in rig.router(peer).topics

    def test_a_graft_announces_no_more_topics_than_a_peer_may_have(self) -> None:
        """Beyond the limit it is refused like an announcement, and answered with a PRUNE."""
        rig = Rig()
        (peer,) = rig.add(max_subscriptions_per_peer=1)
        puppet = rig.add_puppet()
        rig.connect(puppet, peer)
        rig.subscribe([peer])
        rig.send(puppet, peer, subscribe_and("another topic"))
        rig.send(puppet, peer, Rpc(control=Control(graft=("news",))))
        rig.run(0.01)
        assert rig.mesh(peer) == []
        assert list(rig.router(peer).topics) == ["another topic"]
        assert controls(rig.rpcs(puppet)) == [Control(prune=(Prune("news", backoff=10),))]
        assert [refusal.reason for refusal in rig.trace(Refuse)] == [
            pubsub_reasons.TOO_MANY_SUBSCRIPTIONS,
            reasons.GRAFT_NOT_SUBSCRIBED,
        ]

    def test_a_graft_of_a_floodsub_peer_announces_nothing(self) -> None:
        """FloodSub knows no GRAFT; it is refused, and the sender is no subscriber by it."""
        rig, peer, _ = grafted(protocols=(FLOODSUB,))
        assert rig.mesh(peer) == []
        assert "news" not in rig.router(peer).topics

    def test_a_lost_graft_leaves_with_the_next_message(self) -> None:
        """A message takes a lost GRAFT along, and the lost announcement of its topic."""
        rig = Rig()
        (peer,) = rig.add()
        puppet = rig.add_puppet()
        rig.connect(peer, puppet)
        rig.subscribe([peer])
        rig.send(puppet, peer, subscribe_and())
        rig.run(1.5)
        assert rig.mesh(peer) == [puppet]
        announcement = Rpc(subscriptions=(SubOpts(True, "news"),))
        for lost in (announcement, Rpc(control=Control(graft=("news", "a topic that we left")))):
            rig.host(peer).handle(SendDropped(rig.id(puppet), lost, QUEUE_FULL))
        rig.publish(peer, b"takes it along")
        rig.run(0.01)
        last = rig.rpcs(puppet)[-1]
        assert last.subscriptions == announcement.subscriptions
        assert [message.data for message in last.publish] == [b"takes it along"]
        assert last.control == Control(graft=("news",))
        rig.run(2)
        assert sum(bool(rpc.subscriptions) for rpc in rig.rpcs(puppet)) == 2, "it is said once more"


def test_gossipsub_opportunistic_grafting() -> None:
    """10 honest peers among 40 that deliver nothing find each other.

    go: TestGossipsubOpportunisticGrafting.

    Each squatter dials every honest peer and fills its mesh; in the end each honest peer has at
    least 3 honest ones in its mesh.
    """
    rig = Rig()
    rig.network.round_trip = None  # nearly 200,000 RPCs: their encoding is checked elsewhere
    scoring = TopicScoreParams(
        time_in_mesh_weight=0.0002777,
        time_in_mesh_quantum=1.0,
        time_in_mesh_cap=3600.0,
        first_message_deliveries_weight=1.0,
        first_message_deliveries_decay=0.9997,
        first_message_deliveries_cap=100.0,
        invalid_message_deliveries_weight=0.0,
        invalid_message_deliveries_decay=0.99997,
    )
    config = GossipSubConfig(
        prune_backoff=0.5,
        graft_flood_threshold=0.1,
        opportunistic_graft_ticks=2,
        flood_publish=True,
        score=PeerScoreParams(topics={"news": scoring}, topic_score_cap=0.0),
        thresholds=ScoreThresholds(
            gossip=-10, publish=-100, graylist=-10000, opportunistic_graft=1.0
        ),
    )
    honest = rig.add(10, config=config)
    rig.connect_some(honest, 5)
    squatters = [rig.add_puppet((GOSSIPSUB_1_0,)) for _ in range(40)]
    for squatter in squatters:
        for peer in honest:
            rig.network.dial(rig.host(squatter), rig.id(peer))
    rig.run(0.01)
    for squatter in squatters:
        host = rig.host(squatter)
        host.effects += [Send(rig.id(peer), subscribe_and()) for peer in honest]
        host.carry_out()
    rig.run(1)
    rig.subscribe(honest)
    started = [sum(other < 10 for other in rig.mesh(peer)) for peer in honest]
    assert min(started) < 3, "squatters fill meshes at first"
    for number in range(1000):
        rig.publish(honest[number % 10], b"message %d" % number)
        rig.run(0.02)
    rig.run(7)
    for peer in honest:
        assert sum(other < 10 for other in rig.mesh(peer)) >= 3
