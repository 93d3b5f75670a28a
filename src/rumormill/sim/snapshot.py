"""The whole state of a machine: dumped and restored, and as plain values to be read and compared.

A machine is its fields alone, with no callbacks, clocks or files hidden in them, so it can be put
away in the middle of a run and go on from there. What its runtime gave it, its identity and its
hooks, is named in a dump and not copied. A dump is for the same code on the same day: read none
that somebody else has made.
"""

import hashlib
import io
import pickle
import random
from collections import deque
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

import msgspec

from rumormill.core.identity import Identity
from rumormill.core.machine import Machine
from rumormill.protocols.registry import Hooks
from rumormill.sim.draws import Draws


class Given(msgspec.Struct, frozen=True):
    """What a runtime gave to a machine."""

    identity: Identity
    hooks: Hooks

    def by_name(self) -> dict[str, object]:
        """Everything that a dump names."""
        hooks = {name: getattr(self.hooks, name) for name in self.hooks.__struct_fields__}
        found = {"identity": self.identity, "hooks": self.hooks, **hooks}
        return {name: value for name, value in found.items() if value is not None}


def dump(machine: Machine, given: Given) -> bytes:
    """Return a machine's whole state."""
    names = {id(value): name for name, value in given.by_name().items()}

    class Naming(pickle.Pickler):
        def persistent_id(self, value: object) -> str | None:
            return names.get(id(value))

    written = io.BytesIO()
    Naming(written, pickle.HIGHEST_PROTOCOL).dump(machine)
    return written.getvalue()


def restore(data: bytes, given: Given) -> Machine:
    """Return a machine that is in a dumped state."""
    values = given.by_name()

    class Naming(pickle.Unpickler):
        def persistent_load(self, name: str) -> object:
            return values[name]

    machine: Machine = Naming(io.BytesIO(data)).load()
    return machine


def state_of(value: object, given: Given | None = None) -> Any:
    """Return a machine, or a part of one, as lists, dictionaries, texts and numbers.

    Two states are equal when these are, the order of all keys included: what JSON makes of them can
    be compared as text. What is held in two places is shown at the first, and is the same at both.
    """
    names = {} if given is None else {id(each): name for name, each in given.by_name().items()}
    return _Plain(names).of(value)


class _Plain:
    """Turns one value, and all that hangs on it, into plain ones."""

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._shown: dict[int, int] = {}

    def of(self, value: object) -> Any:
        name = self._names.get(id(value))
        if name is not None:
            return {"given": name}
        if isinstance(value, Enum):
            return value.name
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, tuple):
            return [self.of(each) for each in value]
        if isinstance(value, random.Random | Draws):
            return hashlib.sha256(repr(value.getstate()).encode()).hexdigest()
        if isinstance(value, type | FunctionType | MethodType):
            return value.__qualname__
        if id(value) in self._shown:
            return {"same": self._shown[id(value)]}
        self._shown[id(value)] = len(self._shown)
        return self._in_full(value)

    def _in_full(self, value: object) -> Any:
        if isinstance(value, list | deque):
            return [self.of(each) for each in value]
        if isinstance(value, dict):
            if all(isinstance(key, str | bytes) for key in value):
                return {self.of(key): self.of(each) for key, each in value.items()}
            return [[self.of(key), self.of(each)] for key, each in value.items()]
        fields = _fields(value)
        return {"type": type(value).__name__, **{key: self.of(fields[key]) for key in fields}}


def _fields(value: object) -> dict[str, object]:
    kinds = type(value).__mro__
    slots = [name for kind in kinds for name in getattr(kind, "__slots__", ())]
    if not slots and not hasattr(value, "__dict__") and not isinstance(value, msgspec.Struct):
        raise TypeError(f"a machine must not hold a {type(value).__name__}: {value!r}")
    names = [*getattr(value, "__struct_fields__", ()), *getattr(value, "__dict__", ()), *slots]
    # What was computed from other fields, to be at hand, is no state of its own.
    names = [name for name in dict.fromkeys(names) if not name.startswith("cached_")]
    return {name: getattr(value, name) for name in names}
