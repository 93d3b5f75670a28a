"""go's delivery tests: whatever the network looks like, every subscriber gets every message."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.conformance import MESH_ONLY, by_data, publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.config import override
from rumormill.core.errors import ConfigError, LimitError
from rumormill.core.inputs import Publish
from rumormill.core.trace import SendRPC
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.pubsub.router import ALREADY_PUBLISHED
from rumormill.protocols.pubsub.split import round_robin
from rumormill.sim.journal import Journal

TREE = [(0, 1), (1, 2), (1, 4), (2, 3), (0, 5), (5, 6), (5, 8), (6, 7), (8, 9)]


class TestParameters:
    """Parameters are checked, and reach the router."""

    def test_gossipsub_params_validate(self) -> None:
        """Degrees that contradict each other are refused. go: TestGossipSubParamsValidate."""
        with pytest.raises(ConfigError, match="D_hi"):
            GossipSubConfig(D_hi=1, D_score=10).validate()
        with pytest.raises(ConfigError, match="D_score"):
            GossipSubConfig(D_score=13).validate()

    def test_gossipsub_bootstrap_params_validate(self) -> None:
        """A bootstrapper keeps no mesh at all. go: TestGossipSubBootstrapParamsValidate."""
        GossipSubConfig(D=0, D_lo=0, D_hi=0, D_out=0, D_score=0).validate()

    def test_gossipsub_custom_params(self) -> None:
        """Parameters that are set reach the router's parts. go: TestGossipsubCustomParams.

        An IHAVE's promise is due after the changed time, and gossip goes to the changed part of
        the peers outside the mesh.
        """
        rig = Rig()
        changes = {"iwant_followup_time": 1.0, "gossip_factor": 0.12, "D_lazy": 1}
        (peer,) = rig.add(**changes, D=0, D_lo=0, D_hi=0, D_out=0, D_score=0, **MESH_ONLY)
        router = rig.router(peer)
        assert router._config == override(router._config, changes)
        router.gossip.promises.add(b"somebody", [b"id"], 10.0)
        assert not router.gossip.promises.broken(10.9)
        assert router.gossip.promises.broken(11.1) == {b"somebody": 1}

        listeners = rig.add(50)
        rig.subscribe([peer, *listeners])
        for listener in listeners:
            rig.connect(peer, listener)
        rig.publish(peer, b"gossip about this")
        rig.run(0.01)
        told = [len(router.gossip.emit("news", {}, rig.network.engine.now)) for _ in range(3)]
        assert told == [6, 6, 6], "12 % of 50 peers"


class TestNetworks:
    """Messages reach everybody in networks of many shapes."""

    def test_sparse_gossipsub(self) -> None:
        """20 peers that dial 3 others each: 100 messages reach all. go: TestSparseGossipsub."""
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY)
        rig.subscribe(peers)
        rig.connect_sparsely(peers)
        rig.run(2)
        publish_and_check(rig, peers, peers)

    def test_dense_gossipsub(self) -> None:
        """20 peers that dial 10 others each: 100 messages reach all. go: TestDenseGossipsub."""
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY)
        rig.subscribe(peers)
        rig.connect_densely(peers)
        rig.run(2)
        publish_and_check(rig, peers, peers)

    def test_mixed_gossipsub(self) -> None:
        """20 GossipSub and 10 FloodSub peers are one network. go: TestMixedGossipsub."""
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY) + rig.add_floodsub(10)
        rig.subscribe(peers)
        rig.connect_sparsely(peers)
        rig.run(2)
        publish_and_check(rig, peers, peers)

    def test_gossipsub_multihops(self) -> None:
        """A message crosses a chain of 6 peers. go: TestGossipsubMultihops."""
        rig = Rig()
        peers = rig.add(6, **MESH_ONLY)
        for one, other in itertools.pairwise(peers):
            rig.connect(one, other)
        rig.subscribe(peers[1:])
        rig.run(2)
        rig.publish(0, b"i like cats")
        rig.run(0.1)
        assert rig.data(5) == [b"i like cats"]

    def test_gossipsub_tree_topology(self) -> None:
        """Messages from two leaves reach a tree of 10 peers. go: TestGossipsubTreeTopology."""
        rig = Rig()
        peers = rig.add(10, **MESH_ONLY)
        for one, other in TREE:
            rig.connect(one, other)
        rig.subscribe(peers)
        rig.run(2)
        for peer, neighbours in ((0, [1, 5]), (1, [0, 2, 4]), (2, [1, 3])):
            assert list(rig.router(peer).peers) == [rig.id(other) for other in neighbours]
        for leaf in (9, 3):
            rig.publish(leaf, b"from %d" % leaf)
            rig.run(0.1)
        assert [rig.data(peer) for peer in peers] == [[b"from 9", b"from 3"]] * 10

    def test_gossipsub_flood_publish(self) -> None:
        """With flood publishing the hub of a star of 20 reaches all. go: TestGossipsubFloodPublish.

        Its mesh is far smaller than the star, and nobody but the hub can forward.
        """
        rig = Rig()
        peers = rig.add(20, flood_publish=True)
        for leaf in peers[1:]:
            rig.connect(0, leaf)
        rig.subscribe(peers)
        rig.run(1)
        sent = [b"message %d" % number for number in range(20)]
        for data in sent:
            assert rig.publish(0, data).peers == 19
            rig.run(0.01)
        assert [rig.data(peer) for peer in peers] == [sent] * 20

    def test_publish_duplicate_message(self) -> None:
        """A message published twice is no error, and goes out once.

        go: TestPublishDuplicateMessage.
        """
        rig = Rig()
        (peer,) = rig.add(options={"message_id": by_data})
        assert rig.publish(peer, b"hello").note != ALREADY_PUBLISHED
        again = rig.publish(peer, b"hello")
        assert (again.peers, again.note) == (0, ALREADY_PUBLISHED)

    @settings(max_examples=32)
    @given(st.integers(0, 63), st.integers(0, 299))
    def test_round_robin_message_id_scheduler(self, peers: int, messages: int) -> None:
        """No message gets a second copy before all had one. go: TestRoundRobinMessageIDScheduler.

        Every copy comes out exactly once.
        """
        queues = [[(message, peer) for peer in range(peers)] for message in range(messages)]
        taken = round_robin(queues)
        assert len(taken) == peers * messages
        if peers:
            assert len({message for message, _ in taken[:messages]}) == messages
        assert set(taken) == {copy for queue in queues for copy in queue}

    def test_message_batch_publish(self) -> None:
        """All 100 messages of a batch reach all 20 peers. go: TestMessageBatchPublish.

        On the way out, each message goes to one peer before any goes to a second.
        """
        rig = Rig()
        peers = rig.add(20, **MESH_ONLY, options={"message_id": by_data})
        rig.subscribe(peers)
        rig.connect_sparsely(peers)
        rig.run(2)
        sent = [b"%d in a batch" % number for number in range(100)]
        already = len(rig.trace(SendRPC, 0))
        # What is published while the disk is busy becomes safe, and spreads, together.
        host = rig.host(0)
        host.journal = Journal(commit_delay=0.01)
        for data in sent:
            host.handle(Publish("news", data))
        assert len(rig.trace(SendRPC, 0)) == already, "nobody hears of it before it is stored"
        rig.run(0.0101)
        copies = [
            message.message_id
            for send in rig.trace(SendRPC, 0)[already:]
            for message in send.meta.messages
        ]
        assert len(rig.mesh(0)) > 1
        assert copies == sent * len(rig.mesh(0))
        rig.run(2)
        for peer in peers:
            assert sorted(rig.data(peer)) == sorted(sent)
        receipts = host.receipts
        assert receipts is not None
        assert [(receipt.event.data, receipt.note) for receipt in receipts] == [
            (data, "") for data in sent
        ]

    def test_an_impossible_message_is_refused_at_once(self) -> None:
        """Those published before and after it are not concerned."""
        rig = Rig()
        (peer,) = rig.add(max_rpc_size=1024)
        rig.subscribe([peer])
        rig.host(peer).handle(Publish("news", b"before"))
        with pytest.raises(LimitError):
            rig.host(peer).handle(Publish("news", bytes(2000)))
        rig.host(peer).handle(Publish("news", b"after"))
        assert rig.data(peer) == [b"before", b"after"]
