"""Peer scoring, case by case as in go-libp2p-pubsub's score_test.go, then our own promises.

Where go calls its refresh, these tests let one decay interval (a second) pass.
"""

import gc
import math
import sys
import tracemalloc
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.conformance import TOPIC_OFF
from rumormill.protocols.gossipsub.score import PeerScore
from rumormill.protocols.gossipsub.score_params import (
    HARDENING_SCORE,
    PeerScoreParams,
    TopicScoreParams,
)
from rumormill.protocols.pubsub import reasons

T = "mytopic"
A, B, C, D = b"A", b"B", b"C", b"D"
DEFAULT_SCORE = PeerScoreParams()


def topic(**values):
    return msgspec.structs.replace(TOPIC_OFF, **({"topic_weight": 1.0} | values))


def params(**values):
    """Parameters with everything off but what is given."""
    off = {
        "default_topic": None,
        "topic_score_cap": 0.0,
        "behaviour_penalty_weight": 0.0,
        "behaviour_penalty_threshold": 0.0,
    }
    return PeerScoreParams(**(off | values))


def scoring(topic_params=None, peers=(A,), graft=True, application_score=None, **values):
    """A scorer with these peers, in the mesh of T since time 0."""
    topics = {} if topic_params is None else {T: topic_params}
    score = PeerScore(params(topics=topics, **values), application_score)
    for peer in peers:
        score.add_peer(peer, "", 0.0)
        if graft:
            score.graft(peer, T, 0.0)
    return score


def counted(score, peer):
    """All that is counted of a peer, connected or remembered; None for an unknown one."""
    return score._active.get(peer) or score._retained.get(peer)


def message(number):
    return b"message-%d" % number


def deliver(score, peer, count, now=0.0):
    for number in range(count):
        score.validate_message(message(number), now)
        score.deliver_message(peer, T, message(number), now)


P3_ON = {
    "mesh_message_deliveries_weight": -1.0,
    "mesh_message_deliveries_activation": 1.0,
    "mesh_message_deliveries_window": 0.01,
    "mesh_message_deliveries_threshold": 20.0,
    "mesh_message_deliveries_cap": 100.0,
    "mesh_message_deliveries_decay": 1.0,
}
P4_ON = {"invalid_message_deliveries_weight": -1.0, "invalid_message_deliveries_decay": 1.0}


def test_score_time_in_mesh():
    """P1 counts whole quanta since the GRAFT."""
    score = scoring(
        topic(
            topic_weight=0.5,
            time_in_mesh_weight=1.0,
            time_in_mesh_quantum=0.001,
            time_in_mesh_cap=3600.0,
        ),
        graft=False,
    )
    assert score.score(A, 0.0) == 0
    score.graft(A, T, 0.0)
    score.refresh(2.0)
    assert score.score(A, 2.0) == 0.5 * 2000


def test_score_time_in_mesh_cap():
    """P1 stops growing at its cap."""
    score = scoring(
        topic(
            topic_weight=0.5,
            time_in_mesh_weight=1.0,
            time_in_mesh_quantum=0.001,
            time_in_mesh_cap=10.0,
        )
    )
    score.refresh(1.0)
    assert score.score(A, 1.0) == 0.5 * 10


def test_score_follows_the_clock_refresh_by_refresh():
    """A score that is read at each refresh grows to P1's cap, and falls with P3's activation."""
    score = scoring(
        topic(
            **P3_ON | {"mesh_message_deliveries_activation": 15.0},
            time_in_mesh_weight=1.0,
            time_in_mesh_quantum=1.0,
            time_in_mesh_cap=10.0,
        )
    )
    quiet = scoring(topic(time_in_mesh_weight=1.0, time_in_mesh_quantum=1.0, time_in_mesh_cap=10.0))
    for tick in range(1, 31):
        score.refresh(float(tick))
        quiet.refresh(float(tick))
        earned = min(tick, 10)
        assert quiet.score(A, float(tick)) == earned
        assert score.score(A, float(tick)) == earned - (20**2 if tick > 15 else 0)


def first_deliveries(decay=1.0, cap=2000.0):
    return scoring(
        topic(
            first_message_deliveries_weight=1.0,
            first_message_deliveries_decay=decay,
            first_message_deliveries_cap=cap,
        )
    )


def test_score_first_message_deliveries():
    """P2 counts the messages that a peer was first to deliver."""
    score = first_deliveries()
    deliver(score, A, 100)
    score.refresh(1.0)
    assert score.score(A, 1.0) == 100


def test_score_first_message_deliveries_cap():
    """P2 stops growing at its cap."""
    score = first_deliveries(cap=50.0)
    deliver(score, A, 100)
    score.refresh(1.0)
    assert score.score(A, 1.0) == 50


def test_score_first_message_deliveries_decay():
    """P2 decays by its factor each interval."""
    score = first_deliveries(decay=0.9)
    deliver(score, A, 100)
    for tick in range(1, 12):
        score.refresh(float(tick))
        assert score.score(A, float(tick)) == pytest.approx(100 * 0.9**tick)


def test_score_mesh_message_deliveries():
    """P3 spares first and near-first deliverers, and squares the deficit of those who lag.

    Before the activation time nobody pays.
    """
    score = scoring(topic(**P3_ON), peers=(A, B, C))
    score.refresh(1.0)
    assert [score.score(peer, 1.0) for peer in (A, B, C)] == [0, 0, 0]
    for number in range(100):
        now = 1.0 + number / 1000
        score.validate_message(message(number), now)
        score.deliver_message(A, T, message(number), now)
        score.duplicate_message(B, T, message(number), now)
        score.duplicate_message(C, T, message(number), now + 0.03)
    score.refresh(2.0)
    assert score.score(A, 2.0) == 0
    assert score.score(B, 2.0) == 0
    assert score.score(C, 2.0) == -(20**2)


def test_score_mesh_message_deliveries_decay():
    """Deliveries of long ago do not cover today's deficit."""
    score = scoring(
        topic(
            **P3_ON
            | {"mesh_message_deliveries_decay": 0.9, "mesh_message_deliveries_activation": 0.0}
        )
    )
    deliver(score, A, 40)
    score.refresh(1.0)
    assert score.score(A, 1.0) == 0
    for tick in range(2, 22):
        score.refresh(float(tick))
    deficit = 20 - 40 * 0.9**21
    assert score.score(A, 21.0) == pytest.approx(-(deficit**2))


def test_score_mesh_failure_penalty():
    """P3b: who is pruned with a deficit takes its square along."""
    failing = P3_ON | {
        "mesh_message_deliveries_weight": 0.0,
        "mesh_message_deliveries_activation": 0.0,
        "mesh_failure_penalty_weight": -1.0,
        "mesh_failure_penalty_decay": 1.0,
    }
    score = scoring(topic(**failing), peers=(A, B))
    deliver(score, A, 100)
    score.refresh(1.0)
    assert (score.score(A, 1.0), score.score(B, 1.0)) == (0, 0)
    score.prune(A, T, 1.0)
    score.prune(B, T, 1.0)
    score.refresh(2.0)
    assert score.score(A, 2.0) == 0
    assert score.score(B, 2.0) == -(20**2)


def test_score_invalid_message_deliveries():
    """P4 is the square of the number of invalid messages."""
    score = scoring(topic(**P4_ON))
    for number in range(100):
        score.reject_message(A, T, message(number), reasons.INVALID_SIGNATURE, 0.0)
    score.refresh(1.0)
    assert score.score(A, 1.0) == -(100**2)


def test_score_invalid_message_deliveries_decay():
    """P4's counter decays, so its square does twice over."""
    score = scoring(topic(**P4_ON | {"invalid_message_deliveries_decay": 0.9}))
    for number in range(100):
        score.reject_message(A, T, message(number), reasons.INVALID_SIGNATURE, 0.0)
    for tick in range(1, 12):
        score.refresh(float(tick))
        assert score.score(A, float(tick)) == pytest.approx(-((100 * 0.9**tick) ** 2))


def test_score_reject_message_deliveries():
    """Only a message known to be invalid is charged, then to all who brought it, early or late."""
    score = scoring(topic(**P4_ON), peers=(A, B), graft=False, delivery_record_ttl=10.0)

    def scores(now):
        return score.score(A, now), score.score(B, now)

    now = 0.0
    for reason in (reasons.VALIDATION_THROTTLED, reasons.VALIDATION_IGNORED):
        score.validate_message(message(0), now)
        score.reject_message(A, T, message(0), reason, now)
        score.duplicate_message(B, T, message(0), now)
        assert scores(now) == (0, 0)
        now += 11.0
        score.refresh(now)  # the record's time is over

    score.validate_message(message(0), now)
    score.reject_message(A, T, message(0), reasons.VALIDATION_FAILED, now)
    score.duplicate_message(B, T, message(0), now)
    assert scores(now) == (-1, -1)

    now += 11.0
    score.refresh(now)
    score.validate_message(message(0), now)
    score.duplicate_message(B, T, message(0), now)
    score.reject_message(A, T, message(0), reasons.VALIDATION_FAILED, now)
    assert scores(now) == (-4, -4)


def test_score_application_score():
    """P5 is what the application says at the moment, times its weight."""
    opinion = {A: 0.0}
    score = scoring(application_score=opinion.__getitem__, application_weight=0.5)
    for value in range(-100, 100):
        opinion[A] = float(value)
        assert score.score(A, 0.0) == value * 0.5


def colocated(**values):
    score = scoring(
        peers=(),
        ip_colocation_factor_weight=-1.0,
        ip_colocation_factor_threshold=1,
        **values,
    )
    score.add_peer(A, "1.2.3.4", 0.0)
    for peer in (B, C, D):
        score.add_peer(peer, "2.3.4.5", 0.0)
    return score


def test_score_ip_colocation():
    """P6: three peers at one address are two more than one."""
    score = colocated()
    assert score.score(A, 0.0) == 0
    assert [score.score(peer, 0.0) for peer in (B, C, D)] == [-4, -4, -4]


def test_score_ip_colocation_whitelist():
    """P6 does not count whitelisted networks."""
    score = colocated(ip_colocation_factor_whitelist=("2.3.0.0/16",))
    assert [score.score(peer, 0.0) for peer in (A, B, C, D)] == [0, 0, 0, 0]


def test_score_behaviour_penalty():
    """P7 is the square of the penalties, decaying; unknown peers have none."""
    score = PeerScore(
        params(behaviour_penalty_weight=-1.0, behaviour_penalty_decay=0.99, topics={})
    )
    score.add_penalty(A, 1)
    assert score.score(A, 0.0) == 0
    score.add_peer(A, "", 0.0)
    assert score.score(A, 0.0) == 0
    score.add_penalty(A, 1)
    assert score.score(A, 0.0) == -1
    score.add_penalty(A, 1)
    assert score.score(A, 0.0) == -4
    score.refresh(1.0)
    assert score.score(A, 1.0) == pytest.approx(-3.9204)


def test_score_retention():
    """A bad score survives the connection for a while, and no longer."""
    score = scoring(application_score=lambda peer: -1000.0, retain_score=10.0)
    score.refresh(1.0)
    assert score.score(A, 1.0) == -1000
    score.remove_peer(A, 1.0)
    score.refresh(6.0)
    assert score.score(A, 6.0) == -1000
    assert score.score(A, 11.05) == 0
    score.refresh(11.05)
    assert score.score(A, 11.05) == 0
    assert counted(score, A) is None


# Beyond go's cases.


def test_fifty_honest_peers_on_one_loopback_address_keep_a_score_of_zero_or_more():
    """Neither the defaults nor P6 switched on empties the mesh of a demo on one machine."""
    strict = msgspec.structs.replace(
        DEFAULT_SCORE, ip_colocation_factor_weight=-5.0, ip_colocation_factor_threshold=1
    )
    for preset in (DEFAULT_SCORE, strict):
        score = PeerScore(preset)
        peers = [b"%d" % number for number in range(50)]
        for port, peer in enumerate(peers):
            score.add_peer(peer, f"/ip4/127.0.0.1/tcp/{4000 + port}", 0.0)
            score.graft(peer, T, 0.0)
        for tick in range(1, 200):
            score.refresh(float(tick))
            assert all(score.score(peer, float(tick)) >= 0 for peer in peers)


def test_ports_do_not_hide_a_shared_address_and_ipv6_counts_by_network():
    """P6 looks at the host of a multiaddr, and at the /64 that one IPv6 host can own."""
    score = scoring(peers=(), ip_colocation_factor_weight=-1.0, ip_colocation_factor_threshold=1)
    score.add_peer(A, "/ip4/9.9.9.9/tcp/1", 0.0)
    score.add_peer(B, "/ip4/9.9.9.9/tcp/2", 0.0)
    score.add_peer(C, "2001:db8::1", 0.0)
    score.add_peer(D, "/ip6/2001:db8::2/tcp/1", 0.0)
    assert [score.score(peer, 0.0) for peer in (A, B, C, D)] == [-1, -1, -1, -1]
    score.remove_peer(B, 0.0)
    score.add_peer(B, "/ip4/8.8.8.8/tcp/2", 0.0)
    assert (score.score(A, 0.0), score.score(B, 0.0)) == (0, 0)


def test_a_peer_that_leaves_with_a_deficit_pays_when_it_returns():
    """Disconnecting is no way around P3b, and rewards do not outlive the connection."""
    failing = P3_ON | {
        "mesh_failure_penalty_weight": -1.0,
        "mesh_failure_penalty_decay": 0.99,
        "first_message_deliveries_weight": 1.0,
        "first_message_deliveries_decay": 0.9,
        "first_message_deliveries_cap": 5.0,
    }
    score = scoring(topic(**failing))
    deliver(score, A, 3)
    score.refresh(2.0)
    score.remove_peer(A, 2.0)
    score.add_peer(A, "", 3.0)
    deficit = 20 - 3
    assert score.score(A, 3.0) == -(deficit**2)
    assert counted(score, A).topics[T].first == 0


def test_good_and_blank_peers_are_forgotten_at_once():
    """Only what speaks against a peer is worth memory after it left."""
    score = first_deliveries(decay=0.9)
    score.add_peer(B, "", 0.0)
    deliver(score, A, 3)
    for peer in (A, B):
        score.remove_peer(peer, 0.0)
        assert counted(score, peer) is None


def test_p3_ends_with_the_mesh_link():
    """A pruned peer pays P3b alone: it cannot deliver in a mesh that it is not in."""
    score = scoring(topic(**P3_ON))
    score.refresh(2.0)
    assert score.score(A, 2.0) == -(20**2)
    score.prune(A, T, 2.0)
    assert score.score(A, 2.0) == 0


def test_a_peer_earns_p3_once_per_message():
    """Copies sent again, by the first sender or by another, count for nothing."""
    score = scoring(topic(**P3_ON), peers=(A, B))
    score.validate_message(message(0), 0.0)
    score.duplicate_message(B, T, message(0), 0.0)
    score.duplicate_message(A, T, message(0), 0.0)
    score.deliver_message(A, T, message(0), 0.0)
    for _ in range(3):
        score.duplicate_message(A, T, message(0), 0.001)
        score.duplicate_message(B, T, message(0), 0.001)
    score.validate_message(message(1), 0.0)
    score.deliver_message(A, T, message(1), 0.0)
    score.duplicate_message(A, T, message(1), 0.001)
    counts = [counted(score, peer).topics[T].mesh for peer in (A, B)]
    assert counts == [2, 1]


def test_penalties_count_at_once_and_rewards_at_the_next_refresh():
    """A score is only read between refreshes, unless a peer did wrong."""
    both = P4_ON | {
        "first_message_deliveries_weight": 1.0,
        "first_message_deliveries_decay": 0.9,
        "first_message_deliveries_cap": 10.0,
    }
    score = scoring(topic(**both))
    assert score.score(A, 0.0) == 0
    score.deliver_message(A, T, message(0), 0.0)
    assert score.score(A, 0.0) == 0
    score.reject_message(A, T, message(1), reasons.INVALID_SIGNATURE, 0.0)
    assert score.score(A, 0.0) == 1 - 1
    score.refresh(1.0)
    assert score.score(A, 1.0) == pytest.approx(0.9 - 1)


def test_the_topic_cap_limits_credit_and_not_blame():
    """The cap is on the sum of all topics, and only from above."""
    score = PeerScore(params(topics={"x": topic(**P4_ON)}, topic_score_cap=10.0))
    score.add_peer(A, "", 0.0)
    for number in range(5):
        score.reject_message(A, "x", message(number), reasons.INVALID_SIGNATURE, 0.0)
    assert score.score(A, 0.0) == -25
    capped = scoring(
        topic(time_in_mesh_weight=1.0, time_in_mesh_quantum=1.0, time_in_mesh_cap=100.0),
        topic_score_cap=10.0,
    )
    capped.refresh(50.0)
    assert capped.score(A, 50.0) == 10


def test_refresh_decays_once_per_interval_whatever_the_heartbeat():
    """A heartbeat of 0.7 s, or a long sleep, decays as much as one of 1 s."""
    steps, jump = first_deliveries(decay=0.9), first_deliveries(decay=0.9)
    for score in (steps, jump):
        deliver(score, A, 100)
    for beat in range(1, 101):
        steps.refresh(beat * 0.7)
    jump.refresh(70.0)
    expected = 100 * 0.9**70
    assert steps.score(A, 70.0) == pytest.approx(expected)
    assert jump.score(A, 70.0) == pytest.approx(expected)


def test_default_parameters_graylist_a_peer_after_four_invalid_messages():
    """What the parameter's comment promises of P4."""
    score = PeerScore(DEFAULT_SCORE)
    score.add_peer(A, "", 0.0)
    seen = []
    for number in range(4):
        score.reject_message(A, T, message(number), reasons.VALIDATION_FAILED, 0.0)
        seen.append(score.score(A, 0.0))
    assert seen == [-5, -20, -45, -80]
    score.refresh(1200.0)
    assert score.score(A, 1200.0) == 0


def test_with_p4_alone_valid_messages_leave_no_record():
    """The default set remembers a message only while its fate is open, or when it was bad."""
    score = PeerScore(DEFAULT_SCORE)
    score.add_peer(A, "", 0.0)
    assert score.tracks_deliveries
    deliver(score, A, 100)
    assert len(score.records) == 0
    score.validate_message(message(200), 0.0)
    score.reject_message(A, T, message(200), reasons.INVALID_SIGNATURE, 0.0)
    assert len(score.records) == 0
    score.reject_message(A, T, message(201), reasons.VALIDATION_FAILED, 0.0)
    assert len(score.records) == 1


def test_unscored_topics_and_unknown_peers_cost_nothing():
    """Events about them change no score and keep no state."""
    score = scoring(topic(**P4_ON), graft=False)
    score.graft(A, "other", 0.0)
    score.deliver_message(A, "other", message(0), 0.0)
    score.reject_message(A, "other", message(1), reasons.INVALID_SIGNATURE, 0.0)
    score.reject_message(D, T, message(2), reasons.INVALID_SIGNATURE, 0.0)
    score.prune(D, T, 0.0)
    score.remove_peer(D, 0.0)
    assert score.score(A, 0.0) == score.score(D, 0.0) == 0
    assert counted(score, D) is None


def test_peers_are_bounded_and_the_longest_gone_make_way():
    """The table of scores has room for a given number, connected peers first."""
    score = PeerScore(params(behaviour_penalty_weight=-1.0, peers_max=3, retain_score=100.0))
    for number, peer in enumerate((A, B, C)):
        score.add_peer(peer, "", float(number))
        score.add_penalty(peer, 1)
        score.remove_peer(peer, float(number))
    score.add_peer(D, "", 4.0)
    assert score.forgotten == 1
    assert [score.score(peer, 4.0) for peer in (A, B, C, D)] == [0, -1, -1, 0]
    for peer in (b"E", b"F", b"G"):
        score.add_peer(peer, "", 5.0)
    assert (score.forgotten, score.untracked) == (3, 1)


def test_a_peer_forgotten_to_make_room_no_longer_counts_at_its_address():
    """P6 counts connected and remembered peers, and no others."""
    score = PeerScore(
        params(ip_colocation_factor_weight=-1.0, ip_colocation_factor_threshold=1, peers_max=2)
    )
    for peer in (A, B, C):
        score.add_peer(peer, "9.9.9.9", 0.0)
        score.remove_peer(peer, 0.0)
    assert score.forgotten == 1
    score.add_peer(C, "9.9.9.9", 0.0)
    assert score.score(C, 0.0) == -1


def test_a_peer_cannot_hide_invalid_messages_behind_many_topics():
    """When no counter is left for a topic, the charge falls on P7."""
    score = PeerScore(
        params(default_topic=topic(**P4_ON), topics_per_peer_max=2, behaviour_penalty_weight=-1.0)
    )
    score.add_peer(A, "", 0.0)
    for number in range(5):
        score.reject_message(A, f"t{number}", b"", reasons.INVALID_SIGNATURE, 0.0)
    assert len(counted(score, A).topics) == 2
    assert score.score(A, 0.0) == -1 - 1 - 3**2


def test_delivery_records_are_bounded():
    """Old records make way, and that is counted."""
    score = scoring(topic(**P3_ON), delivery_records_max=10)
    deliver(score, A, 100)
    assert len(score.records) <= 10
    assert score._deliveries.evicted == 90


def test_idle_topics_are_dropped():
    """Counters that have faded to nothing give their memory back."""
    score = PeerScore(DEFAULT_SCORE)
    score.add_peer(A, "", 0.0)
    for number in range(100):
        score.deliver_message(A, f"t{number}", message(number), 0.0)
    assert len(counted(score, A).topics) == 100
    score.refresh(60.0)
    score.refresh(61.0)
    assert counted(score, A).topics == {}


def test_twenty_mesh_peers_in_one_topic_take_less_than_fifteen_kilobytes():
    """The state of a simulated router has to be small, for there are thousands of them."""
    peers = [b"%04d" % number for number in range(20)]
    if sys.implementation.name != "cpython":
        pytest.skip("sizes are those of CPython")
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        score = PeerScore(DEFAULT_SCORE)
        for peer in peers:
            score.add_peer(peer, "", 0.0)
            score.graft(peer, T, 0.0)
        for tick in range(1, 10):
            for number, peer in enumerate(peers):
                score.deliver_message(peer, T, message(number), float(tick))
            score.refresh(float(tick))
            assert all(score.score(peer, float(tick)) > 0 for peer in peers)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used < 15_000


PEERS = st.sampled_from([A, B, C, D])
TOPICS = st.sampled_from([T, "other"])
IDS = st.sampled_from([message(number) for number in range(6)])
REASONS = st.sampled_from(
    [
        reasons.INVALID_SIGNATURE,
        reasons.VALIDATION_FAILED,
        reasons.VALIDATION_IGNORED,
        reasons.VALIDATION_THROTTLED,
        "a reason of tomorrow",
    ]
)
CALLS = st.one_of(
    st.tuples(st.just("add_peer"), PEERS, st.sampled_from(["", "1.2.3.4", "::2", "nowhere"])),
    st.tuples(st.just("remove_peer"), PEERS),
    st.tuples(st.just("graft"), PEERS, TOPICS),
    st.tuples(st.just("prune"), PEERS, TOPICS),
    st.tuples(st.just("validate_message"), IDS),
    st.tuples(st.just("deliver_message"), PEERS, TOPICS, IDS),
    st.tuples(st.just("reject_message"), PEERS, TOPICS, IDS, REASONS),
    st.tuples(st.just("duplicate_message"), PEERS, TOPICS, IDS),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("add_penalty"), PEERS, st.integers(-(2**70), 2**70)),
)
EXTREME = TopicScoreParams(
    topic_weight=1e300,
    time_in_mesh_weight=1e300,
    mesh_message_deliveries_weight=-1e300,
    mesh_message_deliveries_threshold=1e300,
    mesh_message_deliveries_activation=1.0,
    mesh_failure_penalty_weight=-1e300,
    invalid_message_deliveries_weight=-1e300,
)


@given(
    st.sampled_from(
        [
            (DEFAULT_SCORE, None),
            (HARDENING_SCORE, lambda peer: math.inf),
            (
                PeerScoreParams(
                    default_topic=EXTREME,
                    ip_colocation_factor_weight=-1e300,
                    ip_colocation_factor_threshold=1,
                    topic_score_cap=0.0,
                    behaviour_penalty_weight=-1e300,
                    peers_max=3,
                    delivery_records_max=2,
                    topics_per_peer_max=1,
                ),
                lambda peer: math.nan,
            ),
        ]
    ),
    st.lists(st.tuples(st.floats(0, 1e4), CALLS), max_size=60),
)
def test_scores_stay_finite_and_tables_bounded_whatever_happens(setup, steps):
    """No sequence of events and no accepted parameters make a score infinite or not a number."""
    parameters, opinion = setup
    parameters.validate()
    score = PeerScore(parameters, opinion)
    now = 0.0
    for pause, (name, *arguments) in steps:
        now += pause
        if name != "add_penalty":
            arguments.append(now)
        getattr(score, name)(*arguments)
        assert len(score._active) + len(score._retained) <= parameters.peers_max
        assert len(score.records) <= parameters.delivery_records_max
        if score._colocation is not None:
            known = [*score._active.values(), *score._retained.values()]
            at_address = Counter(group for stats in known for group in stats.groups)
            assert score._colocation._counts == at_address
        for peer in (A, B, C, D):
            assert math.isfinite(score.score(peer, now))
            stats = counted(score, peer)
            assert stats is None or len(stats.topics or ()) <= parameters.topics_per_peer_max


@pytest.mark.parametrize("decay", [5.0, -3.0, 1.0, math.inf, math.nan])
def test_the_decay_of_what_weighs_nothing_may_be_any_number(decay: float) -> None:
    """A weight of zero leaves its decay unchecked: no such number raises, however long we slept."""
    topic_params = TopicScoreParams(
        first_message_deliveries_weight=0.0,
        first_message_deliveries_decay=decay,
        mesh_message_deliveries_weight=0.0,
        mesh_message_deliveries_decay=decay,
        mesh_failure_penalty_weight=0.0,
        mesh_failure_penalty_decay=decay,
    )
    params = PeerScoreParams(
        default_topic=topic_params, behaviour_penalty_weight=0.0, behaviour_penalty_decay=decay
    )
    params.validate()
    score = PeerScore(params)
    score.add_peer(b"peer", "", 0.0)
    score.graft(b"peer", "news", 0.0)
    score.deliver_message(b"peer", "news", b"id", 0.0)
    score.add_penalty(b"peer", 1)
    for now in (1.0, 1000.0, 1e9):
        score.refresh(now)
        assert math.isfinite(score.score(b"peer", now))
    assert counted(score, b"peer").topics["news"].first <= 1


def test_who_is_grafted_in_hundreds_of_topics_is_added_up_once(monkeypatch) -> None:
    """A graft changes no score by itself, so a heartbeat that asks each time costs what it does."""
    added_up = []
    compute = PeerScore._compute_earned

    def counting(self, stats):
        added_up.append(stats)
        return compute(self, stats)

    monkeypatch.setattr(PeerScore, "_compute_earned", counting)
    score = PeerScore(HARDENING_SCORE)
    score.add_peer(A, "", 0.0)
    score.refresh(1.0)
    for number in range(300):
        score.graft(A, f"topic {number}", 1.0)
        assert score.score(A, 1.0) == 0.0
    assert len(added_up) <= 1


def test_who_is_grafted_again_loses_what_its_time_in_the_mesh_was_worth() -> None:
    """There the graft itself changes the score."""
    score = scoring(topic(time_in_mesh_weight=1.0, time_in_mesh_quantum=1.0, time_in_mesh_cap=99.0))
    score.refresh(10.0)
    assert score.score(A, 10.0) == 10.0
    score.graft(A, T, 10.0)
    assert score.score(A, 10.0) == 0.0
