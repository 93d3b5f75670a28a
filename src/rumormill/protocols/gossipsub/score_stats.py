"""The counters behind a peer's score, and how they fade.

A counter exists only while there is something to count: a peer without topics costs a few dozen
bytes, and counters of a topic that have faded to nothing are dropped.
"""

from typing import Final

import msgspec

from rumormill.core.ids import Topic
from rumormill.protocols.gossipsub.score_params import TopicScoreParams

COUNTER_MAX: Final = 1e9
SCORE_MAX: Final = 1e15
"""Scores and counters saturate, so that no parameters and no events make a score infinite."""


class TopicScoreSnapshot(msgspec.Struct, frozen=True):
    """A peer's counters in one topic."""

    time_in_mesh: float
    first_message_deliveries: float
    mesh_message_deliveries: float
    mesh_failure_penalty: float
    invalid_message_deliveries: float


class PeerScoreSnapshot(msgspec.Struct, frozen=True):
    """A peer's score and what it is made of."""

    score: float
    topics: dict[Topic, TopicScoreSnapshot]
    application_score: float
    ip_colocation_factor: float
    behaviour_penalty: float


class TopicStats(msgspec.Struct, gc=False):
    """A peer's counters in one topic: P1 to P4 in this order."""

    params: TopicScoreParams
    grafted: float | None = None
    """When the peer was taken into the mesh; None outside."""
    first: float = 0.0
    mesh: float = 0.0
    failure: float = 0.0
    invalid: float = 0.0


class PeerStats(msgspec.Struct, gc=False):
    """All that is counted of one peer."""

    topics: dict[Topic, TopicStats] | None = None
    behaviour: float = 0.0
    standing: float | None = 0.0
    """The score without P5 and P6; None when it must be computed again."""
    groups: tuple[str, ...] = ()
    expires: float = 0.0
    """When a peer that left is forgotten."""


def saturated(score: float) -> float:
    """The score, or the nearest bound; what is not a number counts against the peer."""
    if -SCORE_MAX <= score <= SCORE_MAX:
        return score
    return SCORE_MAX if score > 0 else -SCORE_MAX


def count_mesh_delivery(stats: TopicStats) -> None:
    """P3: a mesh peer brought a message, first or nearly so."""
    stats.mesh = min(stats.mesh + 1.0, stats.params.mesh_message_deliveries_cap)


def faded_over(decay: float, intervals: int) -> float:
    """What is left after some intervals.

    The decay of a counter that weighs nothing is not checked and may be any number: it must
    neither overflow nor let the counter grow.
    """
    return decay**intervals if 0 <= decay <= 1 else 0.0


def decay(stats: TopicStats, intervals: int, floor: float) -> None:
    """Let a topic's counters fade; below `floor` they are nothing."""
    params = stats.params
    if stats.first:
        faded = stats.first * faded_over(params.first_message_deliveries_decay, intervals)
        stats.first = faded if faded >= floor else 0.0
    if stats.mesh:
        faded = stats.mesh * faded_over(params.mesh_message_deliveries_decay, intervals)
        stats.mesh = faded if faded >= floor else 0.0
    if stats.failure:
        faded = stats.failure * faded_over(params.mesh_failure_penalty_decay, intervals)
        stats.failure = faded if faded >= floor else 0.0
    if stats.invalid:
        faded = stats.invalid * params.invalid_message_deliveries_decay**intervals
        stats.invalid = faded if faded >= floor else 0.0


def is_idle(stats: TopicStats) -> bool:
    """Whether nothing is lost by forgetting these counters."""
    return stats.grafted is None and not (
        stats.first or stats.mesh or stats.failure or stats.invalid
    )


def drop_idle(topics: dict[Topic, TopicStats]) -> None:
    """Forget the counters of topics in which there is nothing to remember."""
    for topic in [topic for topic, stats in topics.items() if is_idle(stats)]:
        del topics[topic]
