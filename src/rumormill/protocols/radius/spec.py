"""Radius gossip, as the registry lists it."""

from collections.abc import Callable

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.protocols.radius.config import PRESETS, RadiusConfig
from rumormill.protocols.radius.junk import junk_frame
from rumormill.protocols.radius.messages import Frame, FrameLimits, decode_frame, encode_frame
from rumormill.protocols.radius.router import RADIUS, Radius
from rumormill.protocols.registry import Hooks, ProtocolSpec


def _build(
    identity: Identity, randomness: Randomness, config: RadiusConfig, hooks: Hooks
) -> Machine:
    return Radius(identity, randomness, config, hooks)


def _decoder(config: RadiusConfig, _hooks: Hooks) -> Callable[[bytes], Frame]:
    limits = FrameLimits(frame_bytes=config.max_message, topic_bytes=config.max_topic_length)

    def decode(data: bytes) -> Frame:
        return decode_frame(data, limits)

    return decode


def _max_message(config: RadiusConfig) -> int:
    return config.max_message


SPEC = ProtocolSpec(
    name="radius",
    protocol_ids=(RADIUS,),
    presets=PRESETS,
    build=_build,
    encode=encode_frame,
    decoder=_decoder,
    max_message=_max_message,
    junk=junk_frame,
    max_topic=lambda config: config.max_topic_length,
)
