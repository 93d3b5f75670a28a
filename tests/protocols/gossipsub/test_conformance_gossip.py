"""go's gossip tests: IHAVE and IWANT bring what the mesh did not, and long answers are split."""

from protocols.conformance import (
    MESH_ONLY,
    add_actor,
    datas,
    ihaves,
    publish_and_check,
    subscribe_and,
    subscribes,
)
from protocols.pubsub_rig import Rig
from rumormill.core.trace import RecvRPC
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_0
from rumormill.protocols.pubsub.config import SENT_LIMITS
from rumormill.protocols.pubsub.messages import Control, Prune, Rpc


def test_gossipsub_gossip() -> None:
    """Gossip between 100 messages disturbs no delivery. go: TestGossipsubGossip.

    Every subscriber hears gossip meanwhile, and gets no message twice for it.
    """
    rig = Rig()
    peers = rig.add(20, **MESH_ONLY)
    rig.subscribe(peers)
    rig.connect_densely(peers)
    rig.run(2)
    publish_and_check(rig, peers, peers, pause=0.1)
    for peer in peers:
        controls = [rpc.meta.control for rpc in rig.trace(RecvRPC, peer) if rpc.meta.control]
        assert any(control.ihave for control in controls)


def test_gossipsub_gossip_piggyback() -> None:
    """Two topics share RPCs for their gossip. go: TestGossipsubGossipPiggyback."""
    rig = Rig()
    peers = rig.add(20, **MESH_ONLY)
    rig.subscribe(peers, "foobar")
    rig.subscribe(peers, "bazcrux")
    rig.connect_densely(peers)
    rig.run(2)
    sent = [b"%d in two topics" % number for number in range(50)]
    for data in sent:
        owner = rig.randomness.choice(peers)
        rig.publish(owner, data, "foobar")
        rig.publish(owner, data, "bazcrux")
        rig.run(0.1)
    rig.run(2)
    for peer in peers:
        assert sorted(rig.data(peer)) == sorted(sent * 2)
    gossiped = [
        tuple(ihave.topic for ihave in rpc.meta.control.ihave)
        for rpc in rig.trace(RecvRPC)
        if rpc.meta.control and rpc.meta.control.ihave
    ]
    assert ("foobar", "bazcrux") in gossiped


def test_gossipsub_gossip_propagation() -> None:
    """Late subscribers get earlier messages by gossip alone. go: TestGossipsubGossipPropagation.

    Peer 0 publishes in a group that subscribes, and belongs to a second group whose peers
    subscribe when all is said. The groups share nobody else.
    """
    rig = Rig()
    peers = rig.add(20, **MESH_ONLY)
    first, second = peers[1:7], peers[7:]
    rig.connect_densely([0, *first])
    rig.connect_densely([*second, 0])
    rig.subscribe(first)
    rig.run(1)
    sent = [b"%d early" % number for number in range(10)]
    for data in sent:
        rig.publish(0, data)
        rig.run(0.001)
    rig.run(0.1)
    assert [sorted(rig.data(peer)) for peer in first] == [sent] * 6

    rig.subscribe(second)
    rig.run(10)
    for peer in second:
        assert sorted(rig.data(peer)) == sent


def test_gossipsub_rpc_fragmentation() -> None:
    """Answers to IWANT larger than an RPC come in several. go: TestGossipsubRPCFragmentation.

    A peer that refuses every link and asks for all that is gossiped gets 1000 messages of 20 kB.
    """
    rig = Rig()
    (peer,) = rig.add(**MESH_ONLY)

    def want_everything(rpc: Rpc) -> Rpc | None:
        if subscribes(rpc):
            return subscribe_and()
        if rpc.control is None:
            return None
        refused = tuple(Prune(topic) for topic in rpc.control.graft)
        return Rpc(control=Control(iwant=tuple(ihaves([rpc])), prune=refused))

    greedy = add_actor(rig, want_everything, (GOSSIPSUB_1_0,))
    rig.connect(peer, greedy)
    rig.subscribe([peer])
    rig.run(1)
    assert rig.mesh(peer) == []
    for number in range(1000):
        rig.publish(peer, number.to_bytes(4, "big") * 5000)
        rig.run(0.02)
    rig.run(5)
    rpcs = rig.rpcs(greedy)
    assert len(set(datas(rpcs))) == 1000
    assert len(set(ihaves(rpcs))) == 1000
    limit = SENT_LIMITS.rpc_bytes
    assert all(rpc.meta.size <= limit for rpc in rpcs)
    with_messages = [len(rpc.publish) for rpc in rpcs if rpc.publish]
    assert len(with_messages) >= 1000 * 20_000 // limit
    assert max(with_messages) == limit // 20_000, "parts are filled"


def test_ids_are_not_put_in_order_for_nobody() -> None:
    """Where the whole topic is in the mesh there is nobody to gossip to, however much there is to
    tell: a heartbeat after a burst draws no random number for each of its messages."""
    rig = Rig()
    peers = rig.add(2)
    rig.subscribe(peers)
    rig.connect(*peers)
    rig.run(2)
    assert rig.mesh(peers[0]) == [peers[1]]
    for number in range(10):
        rig.publish(peers[0], b"%d goes along the mesh" % number)
    router, now = rig.router(peers[0]), rig.network.engine.now
    before = router.gossip._randomness.getstate()
    assert len(router.gossip.cache.gossip_ids("news")) == 10
    assert router.gossip.emit("news", router.mesh.links["news"], now) == []
    assert router.gossip._randomness.getstate() == before
