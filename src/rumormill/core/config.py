"""Configurations: frozen, validated, overridable by name.

A configuration is a frozen struct with a `validate` method that raises `ConfigError` with one
sentence per rule. Every default names its source beside it: a specification, a paper's page, or
"our choice, because ...".
"""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from rumormill.core.errors import ConfigError


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all configurations."""

    def validate(self) -> None:
        """Raise `ConfigError` when values contradict each other."""


ConfigT = TypeVar("ConfigT", bound=Config)


def require(condition: bool, key: str, rule: str) -> None:
    """Refuse a configuration whose `key` breaks `rule`."""
    if not condition:
        raise ConfigError(f"{key}: {rule}")


class Rule(NamedTuple):
    """What a number must be, as a test and in words."""

    holds: Callable[[float], bool]
    words: str


AT_LEAST_ONE: Final = Rule(lambda value: 1 <= value < math.inf, "must be at least 1")
NOT_NEGATIVE: Final = Rule(lambda value: value >= 0, "must not be negative")
POSITIVE: Final = Rule(lambda value: 0 < value < math.inf, "must be a finite number above 0")
FRACTION: Final = Rule(lambda value: 0 < value < 1, "must lie strictly between 0 and 1")
SECONDS: Final = Rule(lambda value: 1 <= value < math.inf, "must be at least 1 s")


def require_all(config: Config, rules: Mapping[Rule, Sequence[str]]) -> None:
    """Refuse a configuration in which a value breaks the rule under which its name stands."""
    for rule, names in rules.items():
        for name in names:
            require(rule.holds(getattr(config, name)), name, rule.words)


def nearest(name: str, known: list[str]) -> str:
    """A sentence that names the closest known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known names: {', '.join(known)}"


def override(config: ConfigT, changes: Mapping[str, Any]) -> ConfigT:
    """Return a validated copy with some values replaced.

    Values may be text as typed on a command line (`"8"`, `"false"`). Names are the field names;
    a dotted name reaches into a nested configuration (`score.decay_interval`).
    """
    changed = config
    for name, value in changes.items():
        changed = _with_value(changed, name, name.split("."), value)
    changed.validate()
    return changed


def _with_value(config: ConfigT, name: str, path: list[str], value: Any) -> ConfigT:
    known = {field.name: field for field in msgspec.structs.fields(config)}
    head, rest = path[0], path[1:]
    if head not in known:
        raise ConfigError(f"{name}: there is no such parameter; {nearest(head, sorted(known))}")
    if rest:
        inner = getattr(config, head)
        if not isinstance(inner, Config):
            raise ConfigError(f"{name}: {head} has no parameters of its own")
        return msgspec.structs.replace(config, **{head: _with_value(inner, name, rest, value)})
    try:
        converted = msgspec.convert(_parsed(value), known[head].type, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {value!r} does not fit ({error})") from None
    return msgspec.structs.replace(config, **{head: converted})


def _parsed(value: Any) -> Any:
    """Read lists, tables and null written as JSON; leave everything else as it is."""
    if isinstance(value, str) and (value[:1] in {"[", "{"} or value == "null"):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    return value
