"""Quantities as people write them: `50ms`, `10mbit`, `1kib`, `5%`.

One rule: a bare number is in the base unit (seconds, bits per second, bytes, a share of one), and
text is a number with one of the listed suffixes. Everything else is refused with the list of the
suffixes. Results are finite.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec

from rumormill.core.errors import ConfigError

DURATIONS: Final[Mapping[str, float]] = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
BANDWIDTHS: Final[Mapping[str, float]] = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SIZES: Final[Mapping[str, float]] = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 1024.0,
    "mib": 1024.0**2,
    "gib": 1024.0**3,
}
SHARES: Final[Mapping[str, float]] = {"%": 0.01}

# Longer text is no quantity; the limit keeps the pattern's work small.
_LONGEST_TEXT = 64
_QUANTITY = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)\s*([a-z%]*)", re.IGNORECASE)

Seconds = Annotated[float, msgspec.Meta(extra={"unit": "duration"})]
Bytes = Annotated[int, msgspec.Meta(extra={"unit": "size"})]
Share = Annotated[float, msgspec.Meta(extra={"unit": "share"})]


def _quantity(value: object, what: str, example: str, suffixes: Mapping[str, float]) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount = float(value) if abs(value) < 1e300 else math.inf
    elif isinstance(value, str) and len(value) <= _LONGEST_TEXT:
        match = _QUANTITY.fullmatch(value.strip())
        suffix = match[2].lower() if match else ""
        if match is None or (suffix and suffix not in suffixes):
            raise _not_a(what, example, suffixes, value)
        # Dividing by a whole number keeps 50ms equal to 0.05, which multiplying does not.
        scale = suffixes[suffix] if suffix else 1.0
        amount = float(match[1]) * scale if scale >= 1.0 else float(match[1]) / round(1.0 / scale)
    else:
        raise _not_a(what, example, suffixes, value)
    if not math.isfinite(amount):
        raise _not_a(what, example, suffixes, value)
    return amount


def _not_a(what: str, example: str, suffixes: Mapping[str, float], value: object) -> ConfigError:
    shown = repr(value)[:_LONGEST_TEXT]
    return ConfigError(
        f"{shown} is not a {what}; write a number or a number with one of "
        f"{', '.join(suffixes)}, such as {example}"
    )


def parse_duration(value: object) -> float:
    """Return seconds: `parse_duration("50ms") == 0.05`."""
    return _quantity(value, "duration", "50ms", DURATIONS)


def parse_bandwidth(value: object) -> float:
    """Return bits per second: `parse_bandwidth("10mbit") == 1e7`."""
    return _quantity(value, "bandwidth", "10mbit", BANDWIDTHS)


def parse_size(value: object) -> int:
    """Return whole bytes: `parse_size("1kib") == 1024`."""
    size = _quantity(value, "size", "1kib", SIZES)
    if size != int(size):
        raise ConfigError(f"{value!r} is not a whole number of bytes")
    return int(size)


def parse_share(value: object) -> float:
    """Return a share of one: `parse_share("5%") == 0.05`."""
    return _quantity(value, "share", "5%", SHARES)


READERS: Final[Mapping[str, Callable[[object], float | int]]] = {
    "duration": parse_duration,
    "size": parse_size,
    "share": parse_share,
}
"""The parser of every unit that a configuration's field may be annotated with."""
