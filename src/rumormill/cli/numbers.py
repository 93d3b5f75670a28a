"""Numbers, times and positions as people type them."""

import contextlib
import datetime
import math
from collections.abc import Iterator, Sequence

import msgspec

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.core.errors import ConfigError
from rumormill.log.model import Retention
from rumormill.sim.units import parse_duration, parse_size


def pairs(
    flag: str, texts: Sequence[str] | None, *, start: str = "", hint: str = ""
) -> Iterator[tuple[str, str]]:
    """Keys, which begin with `start`, and values."""
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key or not key.startswith(start):
            raise ConfigError(f"{flag}: {text!r} is not {start}KEY=VALUE{hint}")
        yield key, value


def retention_rules(texts: Sequence[str]) -> Iterator[tuple[str, Retention]]:
    """Rules as people write them, such as `7d,1gb` for all topics and `news=1000events`."""
    for text in texts:
        topic, _, limits = text.rpartition("=")
        found: dict[str, float] = {}
        for limit in limits.split(","):
            if limit.endswith("events") and limit.removesuffix("events").strip().isdigit():
                found["max_events"] = int(limit.removesuffix("events"))
                continue
            for name, read in (("max_age_seconds", parse_duration), ("max_bytes", parse_size)):
                with contextlib.suppress(ConfigError):
                    if not limit.strip()[-1:].isdigit():
                        found[name] = read(limit)
        if len(found) != len(limits.split(",")):
            raise ConfigError(
                f"retain: {text!r} is not [TOPIC=]LIMIT,..., each of another kind: an age such as"
                " 7d, a size such as 1gb, a number such as 1000events"
            )
        rule = msgspec.convert(found, Retention)
        rule.validate()
        yield topic, rule


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
    try:
        number = parse_duration(text)
    except ConfigError:
        number = math.nan
    if not 0 < number < 1e9:
        raise CommandError(f"{flag}: {text!r} is not a positive number such as 0.5", USAGE)
    return number


def moment(flag: str, text: str | None, now: float) -> float | None:
    """A time: so long ago (15m), or an ISO time, local unless it says otherwise."""
    if text is None:
        return None
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        if text[-1:].isalpha():
            return now - (seconds(flag, text) or 0)
    except CommandError:
        pass
    raise CommandError(f"{flag}: {text!r} is neither a span such as 15m nor an ISO time", USAGE)
