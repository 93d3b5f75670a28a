"""go's tests of direct peers and of filters: peers that are treated unlike others."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from protocols.conformance import MESH_ONLY, datas, publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.config import override
from rumormill.core.effects import Connect, SetTimer
from rumormill.core.errors import ConfigError, DecodeError, LocalError
from rumormill.core.inputs import (
    PeerConnected,
    PeerDisconnected,
    Start,
    Subscribe,
    TimerFired,
)
from rumormill.core.trace import DeliverMessage
from rumormill.protocols.gossipsub.config import GossipSubConfig, read_direct_peer
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts
from rumormill.sim.identity import SimulatedIdentity

IDS = [number.to_bytes(4, "big") for number in range(3)]


def direct_pair(rig: Rig, **changes: float) -> list[int]:
    """Three peers; 1 and 2 are direct peers of each other, and both know 0."""
    rig.add(**changes, **MESH_ONLY)
    rig.add(direct_peers=(IDS[2].hex(),), **changes, **MESH_ONLY)
    rig.add(direct_peers=(IDS[1].hex(),), **changes, **MESH_ONLY)
    rig.connect(0, 1)
    rig.connect(0, 2)
    return [0, 1, 2]


def test_gossipsub_direct_peers() -> None:
    """Direct peers stay connected and get everything. go: TestGossipsubDirectPeers.

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


def test_gossipsub_direct_peers_fanout() -> None:
    """Direct peers are never in fanout or mesh. go: TestGossipsubDirectPeersFanout."""
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


ID = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (ID, b""),
        (f"/p2p/{ID}", b"\xa5\x03"),
        (f"/ip4/127.0.0.1/tcp/4001/p2p/{ID}", b"\x04\x7f\0\0\1\x06\x0f\xa1\xa5\x03"),
    ],
)
def test_direct_peers_are_tickets_or_ids(text: str, address: bytes) -> None:
    """The id is the peer's own, however it is written; where a ticket says so, it is dialled."""
    peer, found = read_direct_peer(text)
    assert (peer[:2], len(peer)) == (b"\x00\x24", 38)
    assert found.startswith(address)
    assert bool(found) == bool(address)


@pytest.mark.parametrize(
    "text", ["", "12D3", "AAAAAQ==", "0000001", "/ip4/127.0.0.1/tcp/4001", "/ip4/1", ID + "1"]
)
def test_a_direct_peer_that_is_none_is_refused(text: str) -> None:
    """One sentence says which; nothing is taken for an id that is none."""
    with pytest.raises(ConfigError, match=r"^direct_peers: .* is neither a ticket nor a peer id"):
        override(GossipSubConfig(), {"direct_peers": ["00000001", text]})


def test_a_lost_direct_peer_is_dialled_soon_and_then_less_and_less_often() -> None:
    """A second after the loss, then in pauses that double, up to `direct_connect_ticks`."""
    router = GossipSub(
        SimulatedIdentity(IDS[0]),
        random.Random(1),
        GossipSubConfig(direct_peers=(IDS[0].hex(), IDS[1].hex()), direct_connect_ticks=5),
    )
    effects: list[Any] = []
    router.handle(Start(), 0.0, effects)
    dials: list[float] = []

    def run(until: float) -> None:
        while due := [
            e for e in effects if isinstance(e, SetTimer) and e.timer == "direct connect"
        ]:
            if due[-1].at > until:
                break
            effects.clear()
            router.handle(TimerFired(due[-1].timer), due[-1].at, effects)
            dials.extend(due[-1].at for each in effects if each == Connect(IDS[1]))

    run(20.0)
    assert dials == [1.0, 3.0, 7.0, 12.0, 17.0], "and never ourselves"
    router.handle(PeerConnected(IDS[1], PROTOCOLS[0], True, ""), 20.0, effects)
    run(30.0)
    assert len(dials) == 5
    router.handle(PeerDisconnected(IDS[1]), 40.0, effects)
    run(44.0)
    assert dials[5:] == [41.0, 43.0]


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


@pytest.mark.parametrize(
    "wanted", [["test1", "test2"].__contains__, re.compile("test[12]").fullmatch]
)
def test_basic_subscription_filter(wanted: Callable[[str], object]) -> None:
    """Any function of the topic is a filter, of a list or a pattern. What it does not let through
    is counted. An RPC with too many subscriptions is refused whole, filter or not.
    """
    rig = Rig()
    rig.add(options={"subscription_filter": wanted})
    rig.add_puppet()
    rig.connect(0, 1)
    topics = ["test1", "test2", "test3"]
    rig.send(1, 0, Rpc(subscriptions=tuple(SubOpts(True, topic) for topic in topics)))
    rig.run(0.1)
    assert list(rig.router(0).topics) == ["test1", "test2"]
    assert rig.refusals(0) == [reasons.FILTERED_SUBSCRIPTION]
    many = tuple(SubOpts(True, f"test{number}") for number in range(5001))
    with pytest.raises(DecodeError, match="too-many-subscriptions"):
        decode_rpc(encode_rpc(Rpc(subscriptions=many)))


def test_subscription_filter_deduplication() -> None:
    """Repetitions count once; a subscription and its end cancel out."""
    rig = Rig()
    rig.add(options={"subscription_filter": ["test1", "test2"].__contains__})
    rig.add_puppet()
    rig.connect(0, 1)
    said = [(True, "test1"), (True, "test1"), (True, "test2"), (False, "test2"), (True, "test3")]
    rig.send(1, 0, Rpc(subscriptions=tuple(SubOpts(*each) for each in said)))
    rig.run(0.1)
    assert rig.router(0).topics == {"test1": {IDS[1]: None}}
    assert list(rig.router(0).peers[IDS[1]].topics) == ["test1"]


def test_subscription_filter_rpc() -> None:
    """Peers know of each other's subscriptions what their filters let through.

    go: TestSubscriptionFilterRPC.
    """
    rig = Rig()
    rig.add(options={"subscription_filter": ["test1", "test2"].__contains__})
    rig.add(options={"subscription_filter": ["test2", "test3"].__contains__})
    for peer, topics in ((0, ("test1", "test2")), (1, ("test2", "test3"))):
        for topic in topics:
            rig.subscribe([peer], topic)
    with pytest.raises(LocalError, match="filter"):
        rig.host(0).handle(Subscribe("test3"))
    rig.connect(0, 1)
    rig.run(1)
    assert rig.router(0).topics == {"test2": {IDS[1]: None}}
    assert rig.router(1).topics == {"test2": {IDS[0]: None}}
