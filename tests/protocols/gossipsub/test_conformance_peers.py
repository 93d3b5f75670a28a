"""go's tests of explicit peers and of filters: peers that are treated unlike others."""

import pytest

from protocols.conformance import MESH_ONLY, datas, publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.errors import LocalError
from rumormill.core.inputs import Subscribe
from rumormill.core.trace import DeliverMessage
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts
from rumormill.protocols.pubsub.subscription_filter import TopicAllowList

IDS = [number.to_bytes(4, "big") for number in range(3)]


def direct_pair(rig: Rig, **changes: float) -> list[int]:
    """Three peers; 1 and 2 are explicit peers of each other, and both know 0."""
    rig.add(**changes, **MESH_ONLY)
    rig.add(direct_peers=(IDS[2],), **changes, **MESH_ONLY)
    rig.add(direct_peers=(IDS[1],), **changes, **MESH_ONLY)
    rig.connect(0, 1)
    rig.connect(0, 2)
    return [0, 1, 2]


def test_gossipsub_direct_peers() -> None:
    """Explicit peers stay connected and get everything. go: TestGossipsubDirectPeers.

    They are in nobody's mesh, and send to each other nevertheless.
    """
    rig = Rig()
    peers = direct_pair(rig, direct_connect_ticks=2)
    rig.run(2)
    assert IDS[2] in rig.host(1).links
    rig.subscribe(peers)
    rig.run(1.5)
    assert (rig.mesh(1), rig.mesh(2)) == ([0], [0])
    for peer in peers:
        publish_and_check(rig, [peer], peers, count=1, settle=0.0)

    rig.disconnect(1, 2)
    assert IDS[2] not in rig.host(1).links
    rig.run(5)
    assert IDS[2] in rig.host(1).links
    for peer in peers:
        publish_and_check(rig, [peer], peers, count=1, settle=0.0)
    rig.publish(1, b"directly")
    rig.run(0.0015)
    assert rig.data(2)[-1] == b"directly"
    assert rig.trace(DeliverMessage, 2)[-1].received_from == IDS[1]


def test_gossipsub_dynamic_direct_peers() -> None:
    """Peers become explicit and ordinary again. go: TestGossipsubDynamicDirectPeers.

    An explicit peer leaves the mesh, and may come back when it is explicit no more.
    """
    rig = Rig()
    peers = rig.add(3, direct_connect_ticks=2)
    rig.subscribe(peers)
    rig.run(1)
    for one, other in ((1, 2), (2, 1)):
        host = rig.host(one)
        rig.router(one).add_direct_peer(IDS[other], rig.network.engine.now, host.effects)
        host.carry_out()
    rig.run(2)
    assert list(rig.router(1).direct) == [IDS[2]]
    assert list(rig.router(2).direct) == [IDS[1]]
    assert IDS[2] in rig.host(1).links, "an explicit peer is dialled at once"
    assert (rig.mesh(1), rig.mesh(2)) == ([], [])

    for one, other in ((1, 2), (2, 1)):
        rig.router(one).remove_direct_peer(IDS[other])
    rig.run(2)
    assert not rig.router(1).direct
    assert not rig.router(2).direct
    assert (rig.mesh(1), rig.mesh(2)) == ([2], [1])

    host = rig.host(1)
    rig.router(1).add_direct_peer(IDS[2], rig.network.engine.now, host.effects)
    host.carry_out()
    assert rig.mesh(1) == []


def test_gossipsub_direct_peers_fanout() -> None:
    """Explicit peers are never in fanout or mesh. go: TestGossipsubDirectPeersFanout."""
    rig = Rig()
    direct_pair(rig)
    rig.run(2)
    rig.subscribe([0, 1])
    rig.run(1)
    publish_and_check(rig, [2], [0, 1], count=3, settle=0.0)
    assert list(rig.router(2).fanout.peers["news"]) == [IDS[0]]
    rig.subscribe([2])
    rig.run(2)
    assert rig.mesh(2) == [0]


def test_gossipsub_peer_filter() -> None:
    """Peers that the filter does not admit get nothing. go: TestGossipSubPeerFilter.

    Not by the mesh, not by flooding, not by gossip, and not when they ask.
    """
    rig = Rig()
    rig.add(options={"peer_filter": lambda peer, topic: peer == IDS[1]})
    rig.add(options={"peer_filter": lambda peer, topic: peer == IDS[0]})
    rig.add_puppet()
    rig.connect(0, 1)
    rig.connect(0, 2)
    rig.subscribe([0, 1])
    rig.send(2, 0, Rpc(subscriptions=(SubOpts(True, "news"),), control=Control(graft=("news",))))
    rig.run(1)
    assert rig.refusals(0)[0] == reasons.FILTERED_PEER
    published = rig.publish(0, b"from 0").event
    rig.publish(1, b"from 1")
    rig.run(2)
    rig.send(2, 0, Rpc(control=Control(iwant=(published.id,))))
    rig.run(0.1)
    assert sorted(rig.data(0)) == sorted(rig.data(1)) == [b"from 0", b"from 1"]
    assert rig.mesh(0) == [1]
    assert datas(rig.rpcs(2)) == []
    assert not any(rpc.control and rpc.control.ihave for rpc in rig.rpcs(2))


def test_subscription_filter_rpc() -> None:
    """Peers know of each other's subscriptions what their filters let through.

    go: TestSubscriptionFilterRPC.
    """
    rig = Rig()
    rig.add(options={"subscription_filter": TopicAllowList(["test1", "test2"])})
    rig.add(options={"subscription_filter": TopicAllowList(["test2", "test3"])})
    for peer, topics in ((0, ("test1", "test2")), (1, ("test2", "test3"))):
        for topic in topics:
            rig.subscribe([peer], topic)
    with pytest.raises(LocalError, match="filter"):
        rig.host(0).handle(Subscribe("test3"))
    rig.connect(0, 1)
    rig.run(1)
    assert rig.router(0).topics == {"test2": {IDS[1]: None}}
    assert rig.router(1).topics == {"test2": {IDS[0]: None}}
