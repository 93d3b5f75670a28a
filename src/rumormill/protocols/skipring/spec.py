"""The supervised skip ring, as the registry lists it."""

import functools
from collections.abc import Callable

import msgspec

from rumormill.core.ids import PeerId
from rumormill.core.messages import WireMessage
from rumormill.protocols.registry import Hooks, InspectionSpec, ProtocolSpec, Servers
from rumormill.protocols.skipring import reasons
from rumormill.protocols.skipring.config import MAX_MESSAGE, SkipRingConfig
from rumormill.protocols.skipring.inspection import (
    RingInspection,
    begin_arbitrary,
    begin_legitimate,
)
from rumormill.protocols.skipring.junk import junk_letter
from rumormill.protocols.skipring.messages import decode_letter, encode_letter, parts_of
from rumormill.protocols.skipring.peer import SetSupervisors, SkipRing

SKIPRING = "/rumormill/skipring/1.0.0"


def _decoder(config: SkipRingConfig, _hooks: Hooks) -> Callable[[bytes], WireMessage]:
    return functools.partial(decode_letter, key_bits=config.publications.key_bits)


def _supervisor_count(config: SkipRingConfig) -> int:
    return 0 if config.supervisors else config.supervisor_count


def _appoint(config: SkipRingConfig, peers: tuple[PeerId, ...]) -> SkipRingConfig:
    return msgspec.structs.replace(config, supervisors=tuple(peer.hex() for peer in peers))


SPEC = ProtocolSpec(
    name="skipring",
    protocol_ids=(SKIPRING,),
    presets={"default": SkipRingConfig()},
    build=SkipRing,
    encode=encode_letter,
    decoder=_decoder,
    max_message=lambda _: MAX_MESSAGE,
    parts=parts_of,
    junk=junk_letter,
    reads_log=True,
    servers=Servers(_supervisor_count, _appoint, SetSupervisors),
    publishes_from_within=True,
    proves_authors=lambda _: True,
    inspection=InspectionSpec(
        lambda config: config.interval,
        RingInspection,
        {"empty": None, "legitimate": begin_legitimate, "arbitrary": begin_arbitrary},
    ),
    finds_peers=True,
    tolerated=reasons.BLAMELESS,
)
