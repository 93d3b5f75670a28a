"""Score parameters: what is refused and what is accepted, as go-libp2p-pubsub has it."""

import math

import msgspec
import pytest

from protocols.conformance import TOPIC_OFF
from rumormill.core.config import override
from rumormill.core.errors import ConfigError
from rumormill.protocols.gossipsub.config import PRESETS
from rumormill.protocols.gossipsub.score_params import (
    HARDENING_SCORE,
    PeerScoreParams,
    ScoreThresholds,
    TopicScoreParams,
    score_parameter_decay,
)

INF, NAN = math.inf, math.nan


def thresholds(**values):
    zero = dict.fromkeys(("gossip", "publish", "graylist", "accept_px", "opportunistic_graft"), 0.0)
    return ScoreThresholds(**(zero | values))


def peer(**values):
    """Peer parameters of which only the given ones are set, as in go's struct literals."""
    unset = {
        "default_topic": None,
        "topic_score_cap": 0.0,
        "application_weight": 0.0,
        "ip_colocation_factor_weight": 0.0,
        "ip_colocation_factor_threshold": 0,
        "behaviour_penalty_weight": 0.0,
        "behaviour_penalty_threshold": 0.0,
        "behaviour_penalty_decay": 0.0,
        "decay_interval": 1.0,
        "decay_to_zero": 0.01,
    }
    return PeerScoreParams(**(unset | values))


def refuses(params) -> None:
    with pytest.raises(ConfigError):
        params.validate()


VALID_TOPIC = {
    "topic_weight": 1.0,
    "time_in_mesh_weight": 0.01,
    "time_in_mesh_quantum": 1.0,
    "time_in_mesh_cap": 10.0,
    "first_message_deliveries_weight": 1.0,
    "first_message_deliveries_decay": 0.5,
    "first_message_deliveries_cap": 10.0,
    "mesh_message_deliveries_weight": -1.0,
    "mesh_message_deliveries_decay": 0.5,
    "mesh_message_deliveries_cap": 10.0,
    "mesh_message_deliveries_threshold": 5.0,
    "mesh_message_deliveries_window": 0.001,
    "mesh_message_deliveries_activation": 1.0,
    "mesh_failure_penalty_weight": -1.0,
    "mesh_failure_penalty_decay": 0.5,
    "invalid_message_deliveries_weight": -1.0,
    "invalid_message_deliveries_decay": 0.5,
}

INVALID_THRESHOLDS = [
    {"gossip": 1},
    {"publish": 1},
    {"gossip": -1, "publish": 0},
    {"gossip": -1, "publish": -2, "graylist": 0},
    {"accept_px": -1},
    {"opportunistic_graft": -1},
    {"gossip": -INF, "publish": -2, "graylist": -3, "accept_px": 1, "opportunistic_graft": 2},
    {"gossip": -1, "publish": -INF, "graylist": -3, "accept_px": 1, "opportunistic_graft": 2},
    {"gossip": -1, "publish": -2, "graylist": -INF, "accept_px": 1, "opportunistic_graft": 2},
    {"gossip": -1, "publish": -2, "graylist": -3, "accept_px": NAN, "opportunistic_graft": 2},
    {"gossip": -1, "publish": -2, "graylist": -3, "accept_px": 1, "opportunistic_graft": INF},
]
VALID_THRESHOLDS = {
    "gossip": -1,
    "publish": -2,
    "graylist": -3,
    "accept_px": 1,
    "opportunistic_graft": 2,
}


@pytest.mark.parametrize("values", INVALID_THRESHOLDS)
def test_peer_score_threshold_atomic_validation(values):
    """Thresholds are finite, in order, and on their side of zero."""
    refuses(thresholds(**values))
    thresholds(**VALID_THRESHOLDS).validate()


_P2 = "first_message_deliveries"
_P3 = "mesh_message_deliveries"
_P3B = "mesh_failure_penalty"
_P4 = "invalid_message_deliveries"
_P3_GOOD = {f"{_P3}_weight": -1, f"{_P3}_decay": 0.5, f"{_P3}_cap": 5, f"{_P3}_threshold": 3}

INVALID_TOPICS = [
    {"topic_weight": -1},
    {"time_in_mesh_weight": -1},
    {"time_in_mesh_weight": 1, "time_in_mesh_quantum": -1},
    {"time_in_mesh_weight": 1, "time_in_mesh_cap": -1},
    {f"{_P2}_weight": -1},
    {f"{_P2}_weight": 1, f"{_P2}_decay": -1},
    {f"{_P2}_weight": 1, f"{_P2}_decay": 2},
    {f"{_P2}_weight": 1, f"{_P2}_decay": 0.5, f"{_P2}_cap": -1},
    {f"{_P3}_weight": 1},
    {f"{_P3}_weight": -1, f"{_P3}_decay": -1},
    {f"{_P3}_weight": -1, f"{_P3}_decay": 2},
    {f"{_P3}_weight": -1, f"{_P3}_decay": 0.5, f"{_P3}_cap": -1},
    _P3_GOOD | {f"{_P3}_threshold": -3},
    _P3_GOOD | {f"{_P3}_window": -1},
    _P3_GOOD | {f"{_P3}_window": 0.001, f"{_P3}_activation": 0.001},
    {f"{_P3B}_weight": 1},
    {f"{_P3B}_weight": -1, f"{_P3B}_decay": -1},
    {f"{_P3B}_weight": -1, f"{_P3B}_decay": 2},
    {f"{_P4}_weight": 1},
    {f"{_P4}_weight": -1, f"{_P4}_decay": -1},
    {f"{_P4}_weight": -1, f"{_P4}_decay": 2},
]


@pytest.mark.parametrize("values", INVALID_TOPICS)
def test_topic_score_params_validation_invalid_params_atomic_validation(values):
    """A wrong value is refused where all others are right, and so is a set of zeros."""
    TopicScoreParams(**VALID_TOPIC).validate()
    refuses(TopicScoreParams(**(VALID_TOPIC | values)))
    refuses(TopicScoreParams(**dict.fromkeys(VALID_TOPIC, 0.0)))


def test_topic_score_params_validation_valid_params_atomic_validation():
    """A whole set of sound values is accepted."""
    TopicScoreParams(**VALID_TOPIC).validate()


def test_topic_score_params_validation_non_atomic_validation():
    """Groups can be switched on one after the other, each valid without those to come."""
    groups = ("topic_weight", "time_in_mesh", _P2, _P3, _P3B, _P4)
    params = TOPIC_OFF
    params.validate()
    for group in groups:
        values = {name: value for name, value in VALID_TOPIC.items() if name.startswith(group)}
        assert values
        params = msgspec.structs.replace(params, **values)
        params.validate()


_P6 = {"ip_colocation_factor_weight": -1, "ip_colocation_factor_threshold": 1}
INVALID_PEERS = [
    {"topic_score_cap": -1},
    {"ip_colocation_factor_weight": 1},
    {"ip_colocation_factor_weight": -1, "ip_colocation_factor_threshold": -1},
    _P6 | {"decay_interval": 0.001},
    _P6 | {"decay_to_zero": -1},
    _P6 | {"decay_to_zero": 2},
    {"behaviour_penalty_weight": 1},
    {"behaviour_penalty_weight": -1},
    {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 2},
    {"behaviour_penalty_threshold": -1},
    _P6 | {"topics": {"test": TopicScoreParams(**(VALID_TOPIC | {"topic_weight": INF}))}},
    _P6 | {"topics": {"test": TopicScoreParams(**(VALID_TOPIC | {f"{_P4}_decay": NAN}))}},
    _P6 | {"topics": {"test": TopicScoreParams(**(VALID_TOPIC | {f"{_P3}_cap": INF}))}},
    {"decay_to_zero": INF},
    {"ip_colocation_factor_weight": -INF, "ip_colocation_factor_threshold": 1},
    {"behaviour_penalty_weight": -INF, "behaviour_penalty_decay": NAN},
    _P6 | {"topics": {"test": TopicScoreParams(**(VALID_TOPIC | {"topic_weight": -1}))}},
    {"default_topic": TopicScoreParams(**(VALID_TOPIC | {"topic_weight": -1}))},
    {"application_weight": NAN},
    {"ip_colocation_factor_whitelist": ("not an address",)},
    {"retain_score": -1},
    {"peers_max": 0},
]


@pytest.mark.parametrize("values", INVALID_PEERS)
def test_peer_score_params_validation_invalid_params_atomic_validation(values):
    """A wrong value is refused where all others are right."""
    peer().validate()
    refuses(peer(**values))


def test_peer_score_params_validation_valid_params_atomic_validation():
    """Sound values are accepted, with and without a cap and topics."""
    sound = _P6 | {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 0.999}
    peer(**sound).validate()
    peer(topic_score_cap=1, **sound).validate()
    peer(topic_score_cap=1, topics={"test": TopicScoreParams(**VALID_TOPIC)}, **_P6).validate()


def test_peer_score_params_validation_valid_params_skip_atomic_validation():
    """Groups can be switched on one after the other, each valid without those to come."""
    params = peer()
    params.validate()
    for values in (
        {"topic_score_cap": 1.0},
        _P6,
        {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 0.999},
        {"topics": {"test": TopicScoreParams(**VALID_TOPIC)}},
    ):
        params = msgspec.structs.replace(params, **values)
        params.validate()


def test_score_parameter_decay():
    """A counter that shall vanish in an hour loses about 1.3 per mille a second."""
    assert score_parameter_decay(3600) == 0.9987216039048303
    assert score_parameter_decay(10, interval=2, to_zero=0.1) ** 5 == pytest.approx(0.1)
    with pytest.raises(ConfigError):
        score_parameter_decay(0.5)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_every_preset_is_valid(preset):
    """What we ship passes its own checks."""
    preset.validate()


def test_defaults_are_safe_without_tuning():
    """Neither shared addresses nor a quiet topic costs anything until somebody asks for it."""
    params = PeerScoreParams()
    assert params.ip_colocation_factor_weight == 0
    assert params.default_topic is not None
    assert not params.default_topic.counts_mesh_deliveries
    assert params.default_topic.counts_invalid
    assert params.behaviour_penalty_weight < 0


def test_the_hardening_set_has_the_published_values():
    """Spot checks against scripts/configs/1k.json of libp2p/gossipsub-hardening."""
    params = HARDENING_SCORE.default_topic
    assert params is not None
    assert (params.topic_weight, params.first_message_deliveries_weight) == (0.25, 0.664)
    assert (params.mesh_message_deliveries_weight, params.mesh_failure_penalty_weight) == (
        -0.25,
        -0.25,
    )
    assert params.invalid_message_deliveries_weight == -99
    assert HARDENING_SCORE.retain_score == 30


def test_nested_parameters_can_be_overridden_by_name():
    """A command line reaches into the default topic's parameters, and is checked."""
    params = override(PeerScoreParams(), {"default_topic.topic_weight": "0.5"})
    assert params.default_topic is not None
    assert params.default_topic.topic_weight == 0.5
    with pytest.raises(ConfigError):
        override(PeerScoreParams(), {"default_topic.topic_weight": "-1"})
