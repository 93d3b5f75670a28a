"""Reads tables (of a TOML file, of a JSON report) into configurations.

The rule: every refusal names the full key (`topology.kind`, `faults[2].at`) and says what is
allowed there. A key that no configuration has is refused, with the nearest name that one has.
"""

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from rumormill.core.config import Config, nearest
from rumormill.core.errors import ConfigError
from rumormill.sim.units import READERS

ConfigT = TypeVar("ConfigT", bound=Config)


def read_config(
    kind: type[ConfigT], table: object, *, path: str = "", lax: bool = False
) -> ConfigT:
    """Build a configuration from a table, without calling its `validate`.

    `lax` accepts numbers and booleans written as text, as a command line gives them.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path or 'scenario'}: expected a table, got {table!r}")
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    prefix = f"{path}." if path else ""
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise ConfigError(
                f"{prefix}{key}: there is no such key; {nearest(str(key), list(fields))}"
            )
        values[key] = _read_value(fields[key].type, value, f"{prefix}{key}", lax)
    for name, field in fields.items():
        if field.required and name not in values:
            raise ConfigError(f"{prefix}{name}: is required{_allowed(field.type)}")
    return kind(**values)


def _read_value(kind: Any, value: object, path: str, lax: bool) -> Any:
    origin = get_origin(kind)
    if origin is Annotated:
        return _read_unit(kind, value, path)
    if origin is Literal:
        return _read_choice(kind, value, path)
    if origin in {Union, UnionType} and type(None) in get_args(kind):
        if value is None:
            return None
        present = [choice for choice in get_args(kind) if choice is not type(None)]
        if len(present) == 1:
            return _read_value(present[0], value, path, lax)
    if isinstance(kind, type) and issubclass(kind, Config):
        return read_config(kind, value, path=path, lax=lax)
    inner = get_args(kind)[0] if origin is tuple else None
    if isinstance(inner, type) and issubclass(inner, Config) and isinstance(value, list | tuple):
        return tuple(
            read_config(inner, item, path=f"{path}[{index}]", lax=lax)
            for index, item in enumerate(value)
        )
    try:
        return msgspec.convert(value, kind, strict=not lax)
    except msgspec.ValidationError as error:
        reason = str(error)
        raise ConfigError(f"{path}: {reason[:1].lower()}{reason[1:]}") from None


def _read_unit(kind: Any, value: object, path: str) -> float | int:
    meta = next(part for part in get_args(kind) if isinstance(part, msgspec.Meta))
    try:
        return READERS[(meta.extra or {})["unit"]](value)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_choice(kind: Any, value: object, path: str) -> object:
    allowed = get_args(kind)
    if value in allowed:
        return value
    hint = ""
    if isinstance(value, str):
        guess = nearest(value, list(allowed))
        hint = f"; {guess}" if guess.startswith("did you mean") else ""
    raise ConfigError(f"{path}: {value!r} is unknown{hint}{_allowed(kind)}")


def _allowed(kind: Any) -> str:
    return f"; allowed: {', '.join(get_args(kind))}" if get_origin(kind) is Literal else ""


def within(path: str, check: Callable[[], None]) -> None:
    """Run a nested configuration's check and put `path` before the key that it names."""
    try:
        check()
    except ConfigError as error:
        raise ConfigError(f"{path}.{error}") from None
