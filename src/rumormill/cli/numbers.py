"""Numbers, times and positions as people type them."""

import datetime
import math
import re

from rumormill.cli.grammar import USAGE, CommandError

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def whole(flag: str, text: str | None, *, least: int = 1) -> int | None:
    """A whole number; None where nothing was typed."""
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise CommandError(f"{flag}: {text!r} is not a whole number", USAGE) from None
    if not least <= number < 2**53:
        raise CommandError(f"{flag}: {number} is not at least {least}", USAGE)
    return number


def seconds(flag: str, text: str | None) -> float | None:
    """A positive number, with or without a unit of time."""
    if text is None:
        return None
    match = _SPAN.fullmatch(text)
    try:
        number = float(match[1]) * _SECONDS[match[2]] if match else float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < 1e9:
        raise CommandError(f"{flag}: {text!r} is not a positive number such as 0.5", USAGE)
    return number


def moment(flag: str, text: str | None, now: float) -> float | None:
    """A time: so long ago (15m), or an ISO time, local unless it says otherwise."""
    if text is None:
        return None
    if _SPAN.fullmatch(text):
        return now - (seconds(flag, text) or 0)
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise CommandError(
            f"{flag}: {text!r} is neither a span such as 15m nor an ISO time", USAGE
        ) from None
