"""The protocols by name: what a runtime needs to run any of them without knowing it.

A protocol is listed here once; the simulator, the node and the command line find it by its name.
Modules are imported when a protocol is asked for, not before.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rumormill.core.config import Config, nearest, override
from rumormill.core.errors import ConfigError
from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness


class ProtocolSpec(msgspec.Struct, frozen=True):
    """How to configure, build and speak one protocol."""

    name: str
    protocol_ids: tuple[str, ...]
    """What is offered to other peers, best first."""
    presets: Mapping[str, Config]
    build: Callable[[Identity, Randomness, Any], Machine]
    """Make a peer's machine from its identity, randomness and configuration."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], WireMessage]
    junk: Callable[[Randomness, list[bytes], list[str]], WireMessage]
    """Make an arbitrary message as an attacker would, from the peers and topics it knows."""

    def configure(
        self, preset: str = "default", changes: Mapping[str, Any] | None = None
    ) -> Config:
        """Return a preset with some parameters replaced."""
        config = self.presets.get(preset)
        if config is None:
            raise ConfigError(
                f"preset: {self.name} has no preset {preset!r};"
                f" {nearest(preset, sorted(self.presets))}"
            )
        return override(config, changes or {})


_MODULES = {
    "floodsub": "rumormill.protocols.floodsub.spec",
    "gossipsub": "rumormill.protocols.gossipsub.spec",
}

PROTOCOL_NAMES = tuple(_MODULES)


def protocol(name: str) -> ProtocolSpec:
    """Find a protocol by its name."""
    module = _MODULES.get(name)
    if module is None:
        raise ConfigError(
            f"protocol: there is no protocol {name!r}; {nearest(name, list(PROTOCOL_NAMES))}"
        )
    spec: ProtocolSpec = importlib.import_module(module).SPEC
    return spec
