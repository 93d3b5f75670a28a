"""The gater at work inside a router: who is turned away, and what still passes."""

from typing import Any

from protocols.pubsub_rig import Rig
from rumormill.core.inputs import Validated, Verdict
from rumormill.core.trace import Refuse, RejectMessage
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GaterParams, GossipSubConfig
from rumormill.protocols.gossipsub.gater import GatedGossipSub
from rumormill.protocols.gossipsub.spec import SPEC
from rumormill.protocols.pubsub.codec import signing_payload
from rumormill.protocols.pubsub.messages import Control, Message, Rpc, SubOpts
from rumormill.protocols.pubsub.reasons import VALIDATION_THROTTLED
from rumormill.protocols.registry import NO_HOOKS, Hooks
from rumormill.sim.identity import SimulatedIdentity


def gated(rig: Rig) -> tuple[int, list[Any]]:
    """A gated peer whose validation takes for ever and has room for four messages."""
    config = GossipSubConfig(gater=GaterParams(), max_pending_validations=4)
    judged: list[Any] = []

    def defer(event: Any, peer: bytes) -> Verdict:
        judged.append(event)
        return Verdict.DEFER

    (peer,) = rig.add(
        build=lambda peer, rng: SPEC.build(
            SimulatedIdentity(peer), rng, config, Hooks(validator=defer)
        )
    )
    rig.host(peer).validation_delay = 1e6
    rig.subscribe([peer])
    return peer, judged


def signed(author: bytes, number: int) -> Message:
    message = Message("news", b"x", author, number.to_bytes(8, "big"))
    message.signature = SimulatedIdentity(author).sign(signing_payload(message))
    return message


def test_the_gater_is_used_when_it_is_configured() -> None:
    """A configuration with gater parameters makes a gated router, one without a plain one."""
    import random

    build = SPEC.build
    identity, rng = SimulatedIdentity(b"me"), random.Random(1)
    assert isinstance(
        build(identity, rng, GossipSubConfig(gater=GaterParams()), NO_HOOKS), GatedGossipSub
    )
    assert not isinstance(build(identity, rng, GossipSubConfig(), NO_HOOKS), GatedGossipSub)


def test_a_peer_that_wastes_validation_is_turned_away_and_its_control_still_counts() -> None:
    """While validation is overloaded, the messages of a peer with a bad record are refused."""
    rig = Rig()
    peer, judged = gated(rig)
    waster = rig.add_puppet()
    rig.connect(waster, peer)
    rig.send(waster, peer, Rpc(subscriptions=(SubOpts(True, "news"),)))
    for number in range(1, 5):
        rig.send(waster, peer, Rpc(publish=(signed(rig.id(waster), number),)))
    rig.run(0.1)
    assert len(judged) == 4
    for event in judged:
        rig.host(peer).handle(Validated(event.id, Verdict.REJECT))
    for number in range(5, 12):
        rig.send(waster, peer, Rpc(publish=(signed(rig.id(waster), number),)))
        rig.run(0.01)
    throttled = [r for r in rig.trace(RejectMessage, peer) if r.reason == VALIDATION_THROTTLED]
    assert throttled, "validation is overloaded"
    rig.puppet(waster).received.clear()
    graft = Control(graft=("news",))
    for number in range(12, 60):
        message = signed(rig.id(waster), number)
        rig.send(waster, peer, Rpc(publish=(message,), control=graft))
        rig.run(0.01)
    refused = [r for r in rig.trace(Refuse, peer) if r.reason == reasons.THROTTLED]
    assert len(refused) > 30, "of 48 messages most are turned away before validation"
    answered = [rpc for rpc in rig.rpcs(waster) if rpc.control and rpc.control.prune]
    assert answered, "the GRAFTs that came with them were heeded, and refused for the score"
