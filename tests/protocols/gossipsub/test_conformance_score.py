"""go's tests of what scores do in a running router."""

from msgspec.structs import replace

from protocols.conformance import MESH_ONLY, TOPIC_OFF
from protocols.pubsub_rig import Rig
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Verdict
from rumormill.core.trace import DeliverMessage
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.score_params import (
    PeerScoreParams,
    ScoreThresholds,
)

IDS = [number.to_bytes(4, "big") for number in range(3)]

FIRST_DELIVERIES = replace(
    TOPIC_OFF,
    topic_weight=1.0,
    time_in_mesh_quantum=1.0,
    first_message_deliveries_weight=1.0,
    first_message_deliveries_decay=0.999,
    first_message_deliveries_cap=100.0,
    invalid_message_deliveries_weight=-1.0,
    invalid_message_deliveries_decay=0.9999,
)
CAUTIOUS = ScoreThresholds(gossip=-1, publish=-10, graylist=-1000)
LENIENT = ScoreThresholds(gossip=-10, publish=-100, graylist=-10000)


def scored(**topic: float) -> GossipSubConfig:
    params = PeerScoreParams(
        topics={"news": replace(FIRST_DELIVERIES, **topic)},
        default_topic=None,
        topic_score_cap=0.0,
    )
    return GossipSubConfig(score=params, thresholds=CAUTIOUS)


def test_gossipsub_negative_score() -> None:
    """A peer of bad name is neither heard nor served. go: TestGossipsubNegativeScore.

    Everybody thinks ill of peer 0: it gets its own message only, and nobody gets one from it.
    """
    rig = Rig()
    config = GossipSubConfig(
        score=PeerScoreParams(default_topic=None), thresholds=LENIENT, **MESH_ONLY
    )
    opinion = {"application_score": lambda peer: -1000.0 if peer == IDS[0] else 0.0}
    peers = rig.add(20, config=config, options=opinion)
    rig.connect_densely(peers)
    rig.subscribe(peers)
    rig.run(3)
    for peer in peers:
        rig.publish(peer, b"message %d" % peer)
        rig.run(0.02)
    rig.run(2)
    assert rig.data(0) == [b"message 0"]
    others = [b"message %d" % peer for peer in peers[1:]]
    for peer in peers[1:]:
        assert sorted(rig.data(peer)) == sorted(others)
        assert all(d.received_from != IDS[0] for d in rig.trace(DeliverMessage, peer))


def test_gossipsub_score_validator_ex() -> None:
    """Ignoring a message costs nobody, rejecting it costs its sender.

    go: TestGossipsubScoreValidatorEx.
    """

    def validator(event: Event, peer: PeerId) -> Verdict:
        return {IDS[1]: Verdict.IGNORE, IDS[2]: Verdict.REJECT}.get(peer, Verdict.ACCEPT)

    rig = Rig()
    config = scored(first_message_deliveries_weight=0.0)
    peers = rig.add(3, config=config, options={"validator": validator})
    rig.connect_all(peers)
    rig.subscribe([0])
    rig.run(0.1)
    rig.publish(1, b"i am not a walrus")
    rig.publish(2, b"i am not a walrus either")
    rig.run(0.1)
    now = rig.network.engine.now
    assert rig.data(0) == []
    assert rig.router(0).trust.score(IDS[1], now) == 0
    assert rig.router(0).trust.score(IDS[2], now) < 0


def test_gossipsub_peer_score_inspect() -> None:
    """The application sees what its router thinks of peers. go: TestGossipsubPeerScoreInspect."""
    rig = Rig()
    rig.add(config=scored())
    rig.add()
    rig.connect(0, 1)
    rig.subscribe([0, 1])
    rig.run(1.5)
    for number in range(20):
        rig.publish(number % 2, b"message %d" % number)
        rig.run(0.02)
    rig.run(1.2)
    seen = rig.router(0).view().scores
    assert list(seen) == [IDS[1]]
    assert 9 <= seen[IDS[1]] <= 10


def test_a_router_without_scores_trusts_everybody_and_shows_none() -> None:
    """Where peers are not scored, nothing that anybody does changes how they are treated."""
    rig = Rig()
    (peer,) = rig.add(scoring=False)
    rig.add()
    rig.connect(0, 1)
    trust = rig.router(peer).trust
    trust.penalise(IDS[1], "whatever", 100, [])
    assert trust.score(IDS[1], 0.0) == 0
    assert rig.router(peer).view().scores == {}
