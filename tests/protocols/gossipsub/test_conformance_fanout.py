"""go's fanout tests: publishing in topics to which the publisher does not subscribe."""

import pytest

from protocols.conformance import MESH_ONLY, publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.errors import LocalError
from rumormill.core.inputs import Subscribe
from rumormill.core.trace import SendRPC


def test_gossipsub_fanout() -> None:
    """A peer that does not subscribe reaches 19 that do, then joins. go: TestGossipsubFanout.

    Its fanout peers become its mesh.
    """
    rig = Rig()
    peers = rig.add(20, **MESH_ONLY)
    rig.subscribe(peers[1:])
    rig.connect_densely(peers)
    rig.run(2)
    publish_and_check(rig, [0], peers[1:])
    fanout = list(rig.router(0).fanout.peers["news"])
    assert len(fanout) == 6
    assert rig.data(0) == []

    rig.subscribe([0])
    assert not rig.router(0).fanout.peers
    assert list(rig.router(0).mesh.links["news"]) == fanout
    rig.run(1)
    publish_and_check(rig, [0], peers)


def test_gossipsub_fanout_maintenance() -> None:
    """All subscribers leave and come back: the fanout refills.

    go: TestGossipsubFanoutMaintenance.
    """
    rig = Rig()
    peers = rig.add(20, **MESH_ONLY)
    rig.subscribe(peers[1:])
    rig.connect_densely(peers)
    rig.run(2)
    publish_and_check(rig, [0], peers[1:])

    rig.unsubscribe(peers[1:])
    rig.run(2)
    assert rig.router(0).fanout.peers["news"] == {}
    rig.subscribe(peers[1:])
    rig.run(2)
    assert len(rig.router(0).fanout.peers["news"]) == 6
    publish_and_check(rig, [0], peers[1:])


def test_gossipsub_fanout_expiry() -> None:
    """The fanout of a topic without publications is forgotten. go: TestGossipsubFanoutExpiry."""
    rig = Rig()
    peers = rig.add(10, fanout_ttl=1.0, **MESH_ONLY)
    rig.subscribe(peers[1:])
    rig.connect_densely(peers)
    rig.run(2)
    publish_and_check(rig, [0], peers[1:], count=5, settle=0.0)
    fanout = rig.router(0).fanout
    assert fanout.peers
    assert fanout.last_published
    rig.run(2.2)
    assert not fanout.peers
    assert not fanout.last_published


def test_gossipsub_fanout_only() -> None:
    """A publish-only peer reaches all and hears only itself. go: TestGossipsubFanoutOnly."""
    rig = Rig()
    peers = rig.add(5, **MESH_ONLY)
    rig.subscribe(peers[1:])
    rig.host(0).handle(Subscribe("news", publish_only=True))
    rig.connect_densely(peers)
    rig.run(2)
    assert rig.mesh(0) == []
    assert not any(send.meta.subscription for send in rig.trace(SendRPC, 0))

    rig.publish(0, b"from the publisher")
    rig.run(0.1)
    assert [rig.data(peer) for peer in peers] == [[b"from the publisher"]] * 5

    rig.publish(1, b"from a subscriber")
    rig.run(2)
    assert [rig.data(peer)[1:] for peer in peers[1:]] == [[b"from a subscriber"]] * 4
    assert rig.data(0) == [b"from the publisher"]

    rig.unsubscribe([0])
    rig.publish(0, b"unheard by itself")
    rig.run(0.1)
    assert rig.data(0) == [b"from the publisher"]
    assert rig.data(1)[-1] == b"unheard by itself"


def test_gossipsub_fanout_only_relay() -> None:
    """A publish-only topic cannot be joined before it is given up.

    go: TestGossipsubFanoutOnlyRelay.

    Nor can a topic that is joined be made publish-only.
    """
    rig = Rig()
    (peer,) = rig.add()
    host = rig.host(peer)
    host.handle(Subscribe("news", publish_only=True))
    host.handle(Subscribe("news", publish_only=True))
    with pytest.raises(LocalError, match="publish-only"):
        host.handle(Subscribe("news"))
    assert rig.router(peer).subscriptions == {}
    assert rig.router(peer).mesh.links == {}

    rig.unsubscribe([peer])
    rig.subscribe([peer])
    with pytest.raises(LocalError, match="publish-only"):
        host.handle(Subscribe("news", publish_only=True))
    assert list(rig.router(peer).subscriptions) == ["news"]
