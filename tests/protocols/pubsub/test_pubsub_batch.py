"""Messages that become safe together share RPCs, within the limits of an RPC."""

import random
from typing import Any

import pytest

from rumormill.core.effects import Append, Send, SendAll
from rumormill.core.inputs import PeerConnected, Publish, Received, Start, Stored
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.messages import Rpc, SubOpts
from rumormill.protocols.pubsub.split import SHARED_RPC_BYTES
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
