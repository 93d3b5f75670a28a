"""Protocol spam: the claims of go-libp2p-pubsub's `gossipsub_spam_test.go`, one test each.

The attacker is a puppet that the test plays RPC by RPC against a real router. Each docstring names
the go test whose claim it checks.
"""

import pytest

from protocols.conformance import by_data
from protocols.pubsub_rig import Rig
from rumormill.core.trace import RejectMessage
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_0, GOSSIPSUB_1_1
from rumormill.protocols.gossipsub.score_params import (
    PeerScoreParams,
    ScoreThresholds,
    TopicScoreParams,
    score_parameter_decay,
)
from rumormill.protocols.pubsub.message_ids import author_and_seqno
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Prune, Rpc, SubOpts
from rumormill.protocols.pubsub.reasons import MISSING_SIGNATURE

TOPIC = "news"
SUBSCRIBE_AND_GRAFT = Rpc(subscriptions=(SubOpts(True, TOPIC),), control=Control(graft=(TOPIC,)))
GRAFT = Rpc(control=Control(graft=(TOPIC,)))


def penalties_only(weight: float) -> GossipSubConfig:
    """Scoring by misbehaviour (P7) alone, with the thresholds of go's spam tests."""
    return GossipSubConfig(
        score=PeerScoreParams(
            default_topic=None,
            behaviour_penalty_weight=weight,
            behaviour_penalty_threshold=0.0,
            behaviour_penalty_decay=score_parameter_decay(60),
        ),
        thresholds=ScoreThresholds(gossip=-100.0, publish=-500.0, graylist=-1000.0, accept_px=0.0),
    )


class Attack:
    """One honest subscriber and one attacker that is in its mesh."""

    def __init__(self, config: GossipSubConfig | None = None, **changes: object) -> None:
        self.rig = Rig()
        self.victim = self.rig.add(config=config, **changes)[0]
        self.attacker = self.rig.add_puppet()
        self.rig.subscribe([self.victim], TOPIC)
        self.rig.connect(self.attacker, self.victim)
        self.send(SUBSCRIBE_AND_GRAFT)
        self.rig.run(0.02)
        assert self.in_mesh()

    def send(self, rpc: Rpc) -> None:
        self.rig.send(self.attacker, self.victim, rpc)

    def in_mesh(self) -> bool:
        return self.attacker in self.rig.mesh(self.victim, TOPIC)

    def score(self) -> float:
        return self.rig.router(self.victim).trust.score(
            self.rig.id(self.attacker), self.rig.network.engine.now
        )

    def refusals(self) -> list[str]:
        return self.rig.refusals(self.victim)

    def messages(self) -> list[Message]:
        return [m for rpc in self.rig.rpcs(self.attacker, self.victim) for m in rpc.publish]

    def controls(self) -> list[Control]:
        rpcs = self.rig.rpcs(self.attacker, self.victim)
        return [rpc.control for rpc in rpcs if rpc.control is not None]

    def asked(self) -> list[tuple[bytes, ...]]:
        """The IWANTs that the attacker got."""
        return [control.iwant for control in self.controls() if control.iwant]

    def prunes(self) -> int:
        return sum(len(control.prune) for control in self.controls())


def test_gossipsub_attack_spam_iwant() -> None:
    """Who asks for a message again and again gets it three more times, then silence.

    go: TestGossipsubAttackSpamIWANT
    """
    attack = Attack()
    attack.rig.publish(attack.victim, b"sixteen bytes...", TOPIC)
    attack.rig.run(0.01)
    [first] = attack.messages()
    for _ in range(10):
        attack.send(Rpc(control=Control(iwant=(author_and_seqno(first),))))
        attack.rig.run(0.01)
    assert len(attack.messages()) == 1 + 3
    assert attack.refusals() == [reasons.IWANT_TOO_OFTEN] * (10 - 3)


def test_gossipsub_attack_spam_ihave() -> None:
    """IHAVE makes us ask only so often per heartbeat, and empty promises cost score.

    go: TestGossipsubAttackSpamIHAVE
    """
    attack = Attack(penalties_only(-1.0), iwant_followup_time=10.0, max_ihave_length=500)

    def flood(begin: int) -> None:
        for number in range(begin, begin + 3 * 500):
            ids = (b"someid%d" % number,)
            attack.send(Rpc(control=Control(ihave=(IHave(TOPIC, ids),))))
        attack.rig.run(1.0)

    flood(0)
    first = len(attack.asked())
    assert first == 10, "max_ihave_messages RPCs were heeded"
    assert reasons.IHAVE_TOO_MANY_MESSAGES in attack.refusals()
    assert attack.score() == 0, "no promise is broken yet"
    flood(100)
    assert len(attack.asked()) == 2 * first, "the next heartbeat counts anew"
    attack.rig.run(11.0)
    assert attack.score() < 0


def test_gossipsub_attack_spam_ihave_of_many_ids() -> None:
    """However the ids are spread over IHAVEs, no more than the limit are asked for per heartbeat.

    go: TestGossipsubAttackSpamIHAVE (the same claim, with long lists)
    """
    attack = Attack(max_ihave_length=500)
    for batch in range(5):
        ids = tuple(b"id %d %d" % (batch, number) for number in range(400))
        attack.send(Rpc(control=Control(ihave=(IHave(TOPIC, ids),))))
    attack.rig.run(0.01)
    assert sum(len(ids) for ids in attack.asked()) == 500
    assert reasons.IHAVE_TOO_MANY_IDS in attack.refusals()


def test_gossipsub_attack_graft_non_existent_topic() -> None:
    """A GRAFT for a topic that is not ours is neither answered nor remembered.

    go: TestGossipsubAttackGRAFTNonExistentTopic
    """
    attack = Attack()
    attack.send(Rpc(control=Control(graft=("non-existent",))))
    attack.rig.run(0.1)
    assert attack.prunes() == 0
    assert attack.refusals() == [reasons.GRAFT_UNKNOWN_TOPIC]
    router = attack.rig.router(attack.victim)
    assert list(router.mesh.links) == [TOPIC]
    assert len(router.mesh.backoff) == 0


@pytest.mark.parametrize(
    ("spoken", "answer"), [(GOSSIPSUB_1_0, [Prune("else")]), (GOSSIPSUB_1_1, [])]
)
def test_a_graft_for_a_topic_that_is_not_ours(spoken: str, answer: list[Prune]) -> None:
    """1.0 has it answered with a PRUNE, without a back-off; from 1.1 on it is passed over. Either
    way it is counted, and nothing is remembered of it."""
    rig = Rig()
    (peer,) = rig.add()
    asker = rig.add_puppet((spoken,))
    rig.subscribe([peer], TOPIC)
    rig.connect(asker, peer)
    rig.send(asker, peer, Rpc(control=Control(graft=("else",))))
    rig.run(0.1)
    controls = [rpc.control for rpc in rig.rpcs(asker, peer) if rpc.control is not None]
    assert [prune for control in controls for prune in control.prune] == answer
    assert rig.refusals(peer) == [reasons.GRAFT_UNKNOWN_TOPIC]
    assert list(rig.router(peer).mesh.links) == [TOPIC]
    assert len(rig.router(peer).mesh.backoff) == 0


def test_gossipsub_attack_graft_during_backoff() -> None:
    """GRAFTs during the back-off cost more and more, until nothing is answered any longer.

    go: TestGossipsubAttackGRAFTDuringBackoff
    """
    attack = Attack(penalties_only(-100.0), prune_backoff=0.2, graft_flood_threshold=0.1)
    assert attack.prunes() == 0
    attack.send(Rpc(control=Control(prune=(Prune(TOPIC),))))
    attack.rig.run(0.02)
    assert attack.prunes() == 0, "the attacker left by itself"
    attack.rig.run(0.101)  # no flood any more, but still back-off

    scores = [attack.score()]
    for answered in (1, 2, 3):
        attack.send(GRAFT)
        attack.rig.run(0.02)
        assert attack.prunes() == answered
        scores.append(attack.score())
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4, "each GRAFT lowered the score"
    assert scores[2] - scores[3] > scores[0] - scores[1], "a flood costs more"
    assert scores[3] < -1000

    attack.rig.run(0.201)  # the back-off is over, but the attacker is graylisted
    attack.send(GRAFT)
    attack.rig.run(0.02)
    assert attack.prunes() == 3
    assert attack.refusals()[-1] == reasons.BELOW_GRAYLIST
    assert not attack.in_mesh()


def test_gossipsub_attack_invalid_message_spam() -> None:
    """Unsigned messages cost their sender its score, its mesh link, and in the end our ear.

    go: TestGossipsubAttackInvalidMessageSpam
    """
    topic_params = TopicScoreParams(
        topic_weight=0.25,
        time_in_mesh_weight=0.0027,
        time_in_mesh_cap=3600.0,
        first_message_deliveries_weight=0.664,
        first_message_deliveries_decay=0.9916,
        first_message_deliveries_cap=1500.0,
        mesh_message_deliveries_weight=-0.25,
        mesh_message_deliveries_decay=0.97,
        mesh_message_deliveries_cap=400.0,
        mesh_message_deliveries_threshold=100.0,
        mesh_message_deliveries_activation=30.0,
        mesh_message_deliveries_window=300.0,
        mesh_failure_penalty_weight=-0.25,
        mesh_failure_penalty_decay=0.997,
        invalid_message_deliveries_weight=-99.0,
        invalid_message_deliveries_decay=0.9994,
    )
    attack = Attack(
        GossipSubConfig(
            score=PeerScoreParams(
                default_topic=None,
                topics={TOPIC: topic_params},
                topic_score_cap=0.0,
                decay_interval=5.0,
                retain_score=10.0,
            ),
            thresholds=ScoreThresholds(
                gossip=-100.0, publish=-200.0, graylist=-300.0, accept_px=0.0
            ),
        )
    )
    assert attack.score() == 0
    author = attack.rig.id(attack.attacker)
    for number in range(100):
        message = Message(TOPIC, b"some data %d" % number, author, bytes([number + 1]))
        attack.send(Rpc(publish=(message,)))
    attack.rig.run(1.2)  # one heartbeat at least
    assert attack.score() < 0
    rejected = attack.rig.trace(RejectMessage, attack.victim)
    assert {rejection.reason for rejection in rejected} == {MISSING_SIGNATURE}
    assert len(rejected) + attack.refusals().count(reasons.BELOW_GRAYLIST) == 100
    assert attack.prunes() == 1
    assert not attack.in_mesh()
    assert attack.rig.data(attack.victim) == []


def test_gossipsub_attack_spam_idontwant() -> None:
    """IDONTWANTs over the limit count for nothing, and the next heartbeat counts anew.

    go: TestGossipsubAttackSpamIDONTWANT
    """
    rig = Rig()
    by_content = {"message_id": by_data}
    publisher, middle = rig.add(2, options=by_content)
    attacker = rig.add_puppet()
    rig.subscribe([publisher, middle], TOPIC)
    rig.connect(publisher, middle)
    rig.connect(attacker, middle)
    rig.send(attacker, middle, SUBSCRIBE_AND_GRAFT)
    rig.run(1.2)

    def received() -> list[bytes]:
        return [message.data for rpc in rig.rpcs(attacker) for message in rpc.publish]

    spam = [b"content %d" % number for number in range(1001)]
    for data in spam:
        rig.send(attacker, middle, Rpc(control=Control(idontwant=(data,))))
    rig.run(0.01)
    assert rig.refusals(middle) == [reasons.IDONTWANT_TOO_MANY_MESSAGES]
    rig.publish(publisher, spam[0], TOPIC)
    rig.publish(publisher, spam[-1], TOPIC)
    rig.run(1.0)
    assert received() == [spam[-1]], "the last one was over the limit"

    rig.send(attacker, middle, Rpc(control=Control(idontwant=(b"another",))))
    rig.run(0.01)
    rig.publish(publisher, b"another", TOPIC)
    rig.run(0.1)
    assert received() == [spam[-1]], "it is heeded again"
    assert rig.data(middle) == [spam[0], spam[-1], b"another"]


def test_gossipsub_handle_idontwant_spam() -> None:
    """Of an IDONTWANT with too many ids the first ten count, and it counts as one.

    go: TestGossipsubHandleIDontwantSpam
    """
    attack = Attack()
    ids = tuple(b"idontwant-%d" % number for number in range(11))
    attack.send(Rpc(control=Control(idontwant=ids)))
    attack.rig.run(0.01)
    gossip = attack.rig.router(attack.victim).gossip
    attacker = attack.rig.id(attack.attacker)
    assert gossip._idontwants_heard == {attacker: 1}
    assert list(gossip.unwanted[attacker]) == list(ids[:10])
    assert attack.refusals() == [reasons.IDONTWANT_TOO_MANY_IDS]


def test_long_ids_that_a_peer_does_not_want_are_remembered_in_few() -> None:
    """Its IDONTWANTs of a heartbeat, each within all limits, come to a mebibyte of ids at most."""
    attack = Attack()
    for number in range(1000):
        start = number.to_bytes(2)
        ids = tuple(start + bytes([place]) + bytes(1100) for place in range(10))
        attack.send(Rpc(control=Control(idontwant=ids)))
    attack.rig.run(0.01)
    unwanted = attack.rig.router(attack.victim).gossip.unwanted[attack.rig.id(attack.attacker)]
    assert 0 < sum(map(len, unwanted)) < 1 << 20
    assert set(attack.refusals()) == {reasons.IDONTWANT_TOO_MANY_MESSAGES}


@pytest.mark.parametrize("ending", ["time", "disconnect"])
def test_gossipsub_idontwant_unwanted_cleanup(ending: str) -> None:
    """What a peer does not want is forgotten after three heartbeats, and when it is gone.

    go: TestGossipsubIDontWantUnwantedCleanup
    """
    attack = Attack()
    gossip = attack.rig.router(attack.victim).gossip
    attack.send(Rpc(control=Control()))
    attack.rig.run(0.01)
    assert gossip.unwanted == {}, "an IDONTWANT without ids leaves nothing behind"
    attack.send(Rpc(control=Control(idontwant=(b"idontwant-cleanup",))))
    attack.rig.run(0.01)
    assert gossip.unwanted == {attack.rig.id(attack.attacker): {b"idontwant-cleanup": 3}}
    if ending == "time":
        attack.rig.run(2.0)
        assert gossip.unwanted, "two heartbeats are not enough"
        attack.rig.run(1.0)
    else:
        attack.rig.disconnect(attack.attacker, attack.victim)
    assert gossip.unwanted == {}


def test_a_subscription_that_is_said_again_is_not_worked_out_again() -> None:
    """An RPC of a few bytes, as often as anybody likes: what is known of the peer's thousand topics
    is neither added up nor made anew for it."""
    attack = Attack()
    topics = tuple(SubOpts(True, f"t{number}") for number in range(1000))
    attack.send(Rpc(subscriptions=topics))
    attack.rig.run(0.01)
    state = attack.rig.router(attack.victim).peers[attack.rig.id(attack.attacker)]
    before = state.topics
    assert len(before) >= 1000
    attack.send(Rpc(subscriptions=(topics[7], SubOpts(False, "none of them"))))
    attack.rig.run(0.01)
    assert state.topics is before
    attack.send(Rpc(subscriptions=(topics[7], SubOpts(False, "t7"), topics[7])))
    attack.rig.run(0.01)
    assert sorted(state.topics) == sorted(before)
    assert state.topics[-1] == "t7", "off and on again, in this order"
