"""Radius gossip, as the registry lists it."""

import functools
from collections.abc import Callable

from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import PRESETS, RadiusConfig
from rumormill.protocols.radius.junk import junk_frame
from rumormill.protocols.radius.messages import (
    Frame,
    FrameLimits,
    decode_frame,
    encode_frame,
    parts_of,
)
from rumormill.protocols.radius.router import RADIUS, Radius
from rumormill.protocols.registry import Hooks, ProtocolSpec


def _decoder(config: RadiusConfig, _hooks: Hooks) -> Callable[[bytes], Frame]:
    limits = FrameLimits(frame_bytes=config.max_message, topic_bytes=config.max_topic_length)
    return functools.partial(decode_frame, limits=limits)


SPEC = ProtocolSpec(
    name="radius",
    protocol_ids=(RADIUS,),
    presets=PRESETS,
    build=Radius,
    encode=encode_frame,
    decoder=_decoder,
    max_message=lambda config: config.max_message,
    junk=junk_frame,
    parts=parts_of,
    max_topic=lambda config: config.max_topic_length,
    proves_authors=lambda _: True,
    recovers=True,
    finds_peers=True,
    tolerated=reasons.BLAMELESS,
)
