"""GossipSub with a peer behind a relay that carries only so much: no mesh, and all the gossip."""

import random
from typing import Any

import pytest

from rumormill.core import inputs
from rumormill.core.effects import Append, Effects, Send, SendAll
from rumormill.core.trace import Refuse
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts
from rumormill.sim.identity import SimulatedIdentity

TOPIC = "news"
FAR, NEAR = b"far!", b"near"


class Bench:
    """A router, by hand."""

    def __init__(self) -> None:
        self.router = GossipSub(SimulatedIdentity(b"self"), random.Random(1), GossipSubConfig())
        self.now = 0.0
        self.give(inputs.Start())
        self.give(inputs.Subscribe(TOPIC))

    def give(self, event: inputs.Input) -> Effects:
        """Hand it an input; return what it wants."""
        effects: Effects = []
        self.router.handle(event, self.now, effects)
        return effects

    def meet(self, peer: bytes, *, limited: bool) -> None:
        """A peer connects, and subscribes."""
        self.give(inputs.PeerConnected(peer, PROTOCOLS[0], limited=limited))
        self.give(inputs.Received(peer, Rpc(subscriptions=(SubOpts(True, TOPIC),))))

    def beat(self) -> Effects:
        """A second passes."""
        self.now += 1.0
        effects: Effects = []
        self.router._on_heartbeat(self.now, effects)
        return effects


def controls(effects: Effects, peer: bytes) -> list[Control]:
    """What is said to a peer about links and messages."""
    said: list[Any] = [
        each.message for each in effects if isinstance(each, Send) and each.peer == peer
    ]
    said += [each.message for each in effects if isinstance(each, SendAll) and peer in each.peers]
    return [rpc.control for rpc in said if rpc.control is not None]


def test_a_limited_peer_is_in_no_mesh_and_hears_of_everything() -> None:
    """It is not grafted, and told in every heartbeat."""
    bench = Bench()
    bench.meet(FAR, limited=True)
    bench.meet(NEAR, limited=False)
    bench.beat()
    assert list(bench.router.mesh.links[TOPIC]) == [NEAR]
    wanted = bench.give(inputs.Publish(TOPIC, b"hello", 1))
    barriers = [each.barrier for each in wanted if isinstance(each, Append)]
    bench.give(inputs.Stored(tuple(barriers)))
    told = [control for control in controls(bench.beat(), FAR) if control.ihave]
    assert [ihave.topic for control in told for ihave in control.ihave] == [TOPIC]


def test_a_limited_peer_that_grafts_is_pruned() -> None:
    """The refusal has a reason, and an answer."""
    bench = Bench()
    bench.meet(FAR, limited=True)
    effects = bench.give(inputs.Received(FAR, Rpc(control=Control(graft=(TOPIC,)))))
    assert Refuse(FAR, reasons.GRAFT_LIMITED, TOPIC) in effects
    assert [prune.topic for each in controls(effects, FAR) for prune in each.prune] == [TOPIC]


@pytest.mark.parametrize("again", [True, False])
def test_a_peer_that_comes_directly_is_linked(again: bool) -> None:
    """As soon as it is, whether or not it was gone in between."""
    bench = Bench()
    bench.meet(FAR, limited=True)
    bench.beat()
    if again:
        bench.give(inputs.PeerDisconnected(FAR))
    bench.meet(FAR, limited=False)
    bench.beat()
    assert list(bench.router.mesh.links[TOPIC]) == [FAR]
