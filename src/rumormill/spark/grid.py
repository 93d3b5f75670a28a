"""Grids: which simulations a sweep consists of.

A grid is a TOML file: a scenario that all runs share, and lists of what differs. Every combination
is one run. The rule is that of scenarios: whatever a file says is used or refused with its key, and
all runs are checked before the first begins.

    name = "paper"
    scenario = "reddit2007.toml"          # beside the grid; or a table [base] in its place
    protocols = ["floodsub", "gossipsub", "gossipsub:ethereum", "pulsarcast"]
    peers = [50, 100]
    seeds = [1, 2, 3]

    [parameters.gossipsub]                # of one protocol: every combination of these
    D = [6, 8]

    [conditions.calm]                     # keys of a scenario by their dotted names
    [conditions.lossy]
    "links.loss" = 0.05
"""

import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rumormill.core.config import nearest
from rumormill.core.errors import ConfigError
from rumormill.protocols.registry import protocol
from rumormill.sim.scenario import LONGEST_FILE, Scenario
from rumormill.version import __version__

MOST_RUNS: Final = 100_000
"""Runs of one grid; our choice: at a second each, more than a day of one core."""

_KEYS: Final = ("name", "scenario", "base", "protocols", "peers", "seeds", "parameters",
                "conditions")  # fmt: skip


class GridRun(msgspec.Struct, frozen=True):
    """One simulation of a grid."""

    name: str
    condition: str
    scenario: Scenario

    @property
    def digest(self) -> str:
        """What tells this run from every other: its name, its scenario, and who simulates it."""
        told = [__version__, self.name, self.condition, self.scenario.to_dict()]
        text = json.dumps(told, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


class Grid(msgspec.Struct, frozen=True):
    """What differs between the runs of a sweep, and what they share."""

    name: str
    base: Scenario
    protocols: tuple[str, ...]
    peers: tuple[int, ...]
    seeds: tuple[int, ...]
    parameters: dict[str, dict[str, list[Any]]]
    conditions: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> "Grid":
        """Read and check a file; `changes` are dotted keys of the scenario that all share."""
        file = Path(path)
        try:
            with file.open("rb") as stream:
                content = stream.read(LONGEST_FILE + 1)
            table = tomllib.loads(content.decode())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not TOML: {error}") from None
        if len(content) > LONGEST_FILE:
            raise ConfigError(f"{path}: larger than {LONGEST_FILE} bytes, the limit of grids")
        table.setdefault("name", file.stem)
        grid = cls.from_dict(table, file.parent)
        return msgspec.structs.replace(grid, base=grid.base.changed(changes)) if changes else grid

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], folder: Path = Path()) -> "Grid":
        """Build a grid; a scenario's path is relative to `folder`."""
        for key in table:
            if key not in _KEYS:
                raise ConfigError(f"{key}: there is no such key; {nearest(key, list(_KEYS))}")
        name = table.get("name", "sweep")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
            raise ConfigError("name: use letters, digits, dot, dash and underscore, 100 at most")
        if "scenario" in table and "base" in table:
            raise ConfigError("base: excludes scenario: give one of them")
        if "scenario" in table:
            base = Scenario.load(folder / _text(table["scenario"], "scenario"))
        else:
            base = Scenario.from_dict(_table(table.get("base", {}), "base"))
        protocols = _list(table.get("protocols", [base.protocol]), "protocols", str)
        parameters = {
            name: {
                key: value if isinstance(value, list) else [value]
                for key, value in _table(keys, f"parameters.{name}").items()
            }
            for name, keys in _table(table.get("parameters", {}), "parameters").items()
        }
        for entry in parameters:
            if entry not in protocols:
                close = nearest(entry, list(protocols))
                raise ConfigError(f"parameters.{entry}: not among the protocols; {close}")
        found = _table(table.get("conditions", {}), "conditions") or {"": {}}
        conditions = {name: _table(keys, f"conditions.{name}") for name, keys in found.items()}
        return cls(
            name,
            base,
            protocols,
            _list(table.get("peers", [base.peers]), "peers", int),
            _list(table.get("seeds", [base.seed]), "seeds", int),
            parameters,
            conditions,
        )

    def runs(self) -> list[GridRun]:
        """Every combination, checked, in a fixed order."""
        per_choice = len(self.conditions) * len(self.peers) * len(self.seeds)
        choices = sum(
            math.prod(map(len, self.parameters.get(entry, {}).values())) for entry in self.protocols
        )
        if choices * per_choice > MOST_RUNS:
            raise ConfigError(f"more than {MOST_RUNS} runs: make the grid smaller")
        return [
            self._run(entry, chosen, name, changes, peers, seed)
            for entry in self.protocols
            for chosen in _combinations(self.parameters.get(entry, {}))
            for name, changes in self.conditions.items()
            for peers, seed in itertools.product(self.peers, self.seeds)
        ]

    def _run(
        self,
        entry: str,
        chosen: Mapping[str, Any],
        condition: str,
        changes: Mapping[str, Any],
        peers: int,
        seed: int,
    ) -> GridRun:
        named, _, preset = entry.partition(":")
        parts = [entry.replace(":", "-"), *[f"{key}={value}" for key, value in chosen.items()]]
        words = [*parts, *([condition] if condition else []), f"n={peers}", f"seed={seed}"]
        label = ",".join(words)
        try:
            # The base's own parameters and preset are those of its own protocol.
            own = self.base.parameters if named == self.base.protocol and not preset else {}
            fallback = self.base.preset if named == self.base.protocol else "default"
            scenario = self.base.changed(
                {
                    **changes,
                    "protocol": named,
                    "preset": preset or fallback,
                    "parameters": {**own, **chosen},
                    "peers": peers,
                    "seed": seed,
                }
            )
            protocol(named).configure(scenario.preset, scenario.parameters)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        return GridRun(label, condition, scenario)


def _combinations(parameters: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    names = list(parameters)
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*parameters.values())
    ]


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected text, got {value!r}")
    return value


def _table(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{key}: expected a table, got {value!r}")
    return value


def _list(value: object, key: str, kind: type) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    for each in values:
        if not isinstance(each, kind) or isinstance(each, bool):
            raise ConfigError(f"{key}: {each!r} is not what belongs there ({kind.__name__})")
    if not values:
        raise ConfigError(f"{key}: the list is empty")
    if len(dict.fromkeys(values)) < len(values):
        raise ConfigError(f"{key}: names something twice")
    return tuple(values)
