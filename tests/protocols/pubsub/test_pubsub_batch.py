"""Messages that become safe, or come, together share RPCs, within the limits of an RPC."""

import random
from typing import Any

import pytest

from rumormill.core.effects import Append, Send, SendAll
from rumormill.core.inputs import PeerConnected, Publish, Received, Start, Stored, Subscribe
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.config import PubSubConfig, SignPolicy
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts
from rumormill.protocols.pubsub.naming import Authorship
from rumormill.protocols.pubsub.split import SHARED_RPC_BYTES, share_rpcs
from rumormill.sim.identity import SimulatedIdentity


@pytest.mark.parametrize("max_rpc_size", [1024, 1 << 20])
def test_messages_share_rpcs_up_to_the_limit(max_rpc_size: int) -> None:
    """No RPC is longer than peers read, nor so long that its first message waits for the last."""
    router = FloodSub(
        SimulatedIdentity(b"self"), random.Random(1), PubSubConfig(max_rpc_size=max_rpc_size)
    )
    effects: list[Any] = []
    router.handle(Start(), 0.0, effects)
    router.handle(PeerConnected(b"peer", FLOODSUB, True, ""), 0.0, effects)
    router.handle(Received(b"peer", Rpc((SubOpts(True, "news"),))), 0.0, effects)
    effects.clear()
    for number in range(200):
        router.handle(Publish("news", b"%d" % number * 100, number), 0.0, effects)
    barriers = tuple(each.barrier for each in effects if isinstance(each, Append))
    effects.clear()
    router.handle(Stored(barriers), 0.0, effects)
    rpcs: list[Any] = [each.message for each in effects if isinstance(each, Send | SendAll)]
    assert sum(len(rpc.publish) for rpc in rpcs) == 200
    assert 1 < len(rpcs) < 200
    assert max(rpc.meta.size for rpc in rpcs) <= min(max_rpc_size, SHARED_RPC_BYTES)


def test_what_comes_together_is_passed_on_together() -> None:
    """One RPC to whoever gets all of it, after IDONTWANTs of as many as others heed."""
    author = Authorship(SimulatedIdentity(b"author"), SignPolicy.STRICT_SIGN)
    messages = [author.compose("news", b"%d" % number * 1024) for number in range(12)]
    router = GossipSub(SimulatedIdentity(b"self"), random.Random(1), GossipSubConfig())
    effects: list[Any] = []
    router.handle(Start(), 0.0, effects)
    router.handle(Subscribe("news"), 0.0, effects)
    for peer in (b"one", b"two", b"three"):
        router.handle(PeerConnected(peer, PROTOCOLS[0], True, ""), 0.0, effects)
        graft = Rpc((SubOpts(True, "news"),), control=Control(graft=("news",)))
        router.handle(Received(peer, graft), 0.0, effects)
    effects.clear()
    router.handle(Received(b"one", Rpc(publish=tuple(messages))), 1.0, effects)
    assert [each.event.id for each in effects if isinstance(each, Append)] == [
        message.id for message in messages
    ]
    sent: list[Any] = [each for each in effects if isinstance(each, Send | SendAll)]
    assert {each.peers for each in sent} == {(b"two", b"three")}
    rpcs = [each.message for each in sent]
    said = [rpc.control.idontwant for rpc in rpcs if rpc.control is not None]
    assert list(map(len, said)) == [10, 2]
    assert [rpc.control is None for rpc in rpcs] == [False, False, True]
    assert [message.id for message in rpcs[2].publish] == [message.id for message in messages]


def test_own_messages_share_rpcs_inside_the_mesh_and_outside() -> None:
    """Those outside it get the same messages for another cause, in as few RPCs."""
    router = GossipSub(SimulatedIdentity(b"self"), random.Random(1), GossipSubConfig())
    effects: list[Any] = []
    router.handle(Start(), 0.0, effects)
    router.handle(Subscribe("news"), 0.0, effects)
    for peer in (b"one", b"two", b"outside"):
        router.handle(PeerConnected(peer, PROTOCOLS[0], True, ""), 0.0, effects)
        control = None if peer == b"outside" else Control(graft=("news",))
        router.handle(Received(peer, Rpc((SubOpts(True, "news"),), (), control)), 0.0, effects)
    for number in range(5):
        router.handle(Publish("news", b"%d" % number, number), 0.0, effects)
    barriers = tuple(each.barrier for each in effects if isinstance(each, Append))
    effects.clear()
    router.handle(Stored(barriers), 0.0, effects)
    sent = [each for each in effects if isinstance(each, Send)]
    assert sorted(each.peer for each in sent) == [b"one", b"outside", b"two"]
    rpcs: list[Any] = [each.message for each in sent]
    assert [[message.data for message in rpc.publish] for rpc in rpcs] == [
        [b"0", b"1", b"2", b"3", b"4"]
    ] * 3
    assert {each.peer for each in sent if each.message.meta.cause} == {b"outside"}


def test_messages_that_go_to_different_peers_stay_in_order() -> None:
    """No peer gets the third before the second because another gets the first and the third."""
    author = Authorship(SimulatedIdentity(b"author"), SignPolicy.STRICT_SIGN)
    first, second, third = (author.compose("news", b"%d" % number) for number in range(3))
    both = (b"one", b"two")
    effects: list[Any] = [
        SendAll(both, first.alone()),
        SendAll((b"one",), second.alone()),
        SendAll(both, third.alone()),
    ]
    share_rpcs(effects, 1 << 20)
    got = {
        peer: [m for each in effects if peer in each.peers for m in each.message.publish]
        for peer in both
    }
    assert got == {b"one": [first, second, third], b"two": [first, third]}
