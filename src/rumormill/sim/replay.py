"""How to repeat a run: its scenario as a file, and the command that plays it.

A scenario and its seed decide a run completely, so a failure that shows both can be repeated by
anybody. What is written holds the values that differ from their defaults and nothing else.
"""

from typing import Any

import msgspec

from rumormill.sim.scenario import Scenario


def how_to_repeat(scenario: Scenario) -> str:
    """Return the seed, the command and the file that repeat a run, as text for people."""
    return (
        f"seed {scenario.seed}; to repeat, save the following as again.toml and run\n"
        f"    rumormill sim again.toml --seed {scenario.seed}\n\n{scenario_toml(scenario)}"
    )


def scenario_toml(scenario: Scenario) -> str:
    """Return a file that `Scenario.parse` reads as an equal scenario."""
    table = _changed(scenario)
    lines = [_line(key, value) for key, value in table.items() if not _is_table(value)]
    for name, value in table.items():
        if name == "faults":
            for fault in value:
                lines += ["", "[[faults]]", *(_line(*item) for item in fault.items())]
        elif _is_table(value):
            lines += ["", f"[{name}]", *(_line(*item) for item in value.items())]
    return "\n".join(lines) + "\n"


def _changed(config: Any) -> dict[str, Any]:
    """The values of a configuration that differ from their defaults, by name."""
    changed: dict[str, Any] = {}
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if value == default:
            continue
        if field.name == "faults":
            value = [_changed(fault) for fault in value]
        elif isinstance(value, msgspec.Struct):
            value = _changed(value)
        changed[field.name] = value
    return changed


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    )


def _line(key: str, value: Any) -> str:
    return f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _value(key)


def _value(value: Any) -> str:
    """JSON is TOML for text, numbers, true and false; lists and inline tables need their own."""
    if isinstance(value, dict):
        inside = ", ".join(_line(name, item) for name, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return msgspec.json.encode(value).decode()
