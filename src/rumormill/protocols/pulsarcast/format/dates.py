"""Dates as JavaScript writes and reads them, without a calendar library.

Descriptors carry their date as text and are named by the hash of that text, so the text must be
the one that the JavaScript original would write: `YYYY-MM-DDTHH:MM:SS.mmmZ`. It reads more than it
writes. A date that arrives is checked against a pattern (the ISO 8601 of its validator), then given
to the engine's `Date`, then written back; `normal` does the same, so that an event whose date came
without milliseconds has the same CID here as there. The engine takes the ECMAScript format first
and falls back to an older, laxer reader, whose results can surprise; they are kept, because they
are hashed. A time without an offset is taken for UTC (there: for the machine's own zone).
"""

import re
from functools import lru_cache
from typing import Final

from rumormill.overlay.kademlia.rfc3339 import civil

MAX_MILLISECONDS: Final = 8_640_000_000_000_000
"""From ECMAScript: a hundred million days on either side of 1970."""

MAX_DATE_CHARACTERS: Final = 64
"""Our choice: twice the longest date that means something."""

_DAY = 86_400_000
_SPACES = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NORMAL = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3])(?::[0-5]\d){2}\.\d{3}Z",
    re.ASCII,
)
_NUMERAL = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)

_HOUR = r"(?:[01]\d|2[0-3])"
_SIXTY = r"[0-5]\d"
_FRACTION = r"[.,]\d+"
_MONTH_AND_DAY = r"(?:0[1-9]|1[0-2])(?:(?P=dash)(?:0[1-9]|[12]\d|3[01]))?"
_WEEK = r"W(?:[0-4]\d|5[0-2])(?:-?[1-7])?"
_DAY_OF_YEAR = r"(?:00[1-9]|0[1-9]\d|[12]\d\d|3[0-5]\d|36[1-6])"
_CLOCK = rf"(?:{_HOUR}(?:(?P<colon>:?){_SIXTY})?|24:?00)(?:{_FRACTION}(?!:))?"
_SECONDS = rf"(?(colon)(?P=colon)){_SIXTY}(?:{_FRACTION})?"
_ZONE = rf"(?:Z|[+-]{_HOUR}(?::?{_SIXTY})?)"
_ACCEPTED = re.compile(
    r"(?:[-+]\d\d)?\d{4}(?!\d\d(?:\W|\Z))"
    rf"(?:(?P<dash>-?)(?:{_MONTH_AND_DAY}|{_WEEK}|{_DAY_OF_YEAR})(?!T\Z|T\d+Z\Z)"
    rf"(?:[T{_SPACES}]{_CLOCK}(?:{_SECONDS})?{_ZONE}?)?)?",
    re.ASCII,
)
"""What the original's validator takes for ISO 8601."""

_STRICT = re.compile(
    r"(?P<year>\d{4}|[+-]\d{6})(?:-(?P<month>0[1-9]|1[0-2])(?:-(?P<day>0[1-9]|[12]\d|3[01]))?)?"
    r"(?:T(?P<hour>[01]\d|2[0-4]):(?P<minute>[0-5]\d)"
    r"(?::(?P<second>[0-5]\d)(?:\.(?P<fraction>\d+))?)?"
    r"(?P<zone>Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?)?",
    re.ASCII,
)
"""The date format of ECMAScript, with the hour 24 and offsets without a colon, as engines do."""

_TOKEN = re.compile(rf"\d+|[{_SPACES}]|.", re.ASCII | re.DOTALL)


def iso(milliseconds: int) -> str:
    """Write milliseconds since 1970 as JavaScript's `toISOString` does."""
    if not -MAX_MILLISECONDS <= milliseconds <= MAX_MILLISECONDS:
        raise ValueError("a date beyond the range of JavaScript's")
    days, rest = divmod(milliseconds, _DAY)
    year, month, day = civil(days)
    seconds, thousandths = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if year < 0 else "+"
    written = f"{year:04}" if 0 <= year <= 9999 else f"{sign}{abs(year):06}"
    return f"{written}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{thousandths:03}Z"


def iso_at(now: float) -> str:
    """Write a time in seconds since 1970."""
    return iso(round(now * 1000))


@lru_cache(maxsize=65536)
def date_of(created: str) -> int:
    """A normal date in milliseconds. Every hop asks for the same few, hence the memory."""
    found = parse(created)
    if found is None:
        raise ValueError("not a date")
    return found


def seconds(created: str) -> float:
    """A normal date in seconds since 1970."""
    return date_of(created) / 1000


def normal(written: str) -> str | None:
    """Rewrite a date as the original does on receipt; None where it refuses the date."""
    if _NORMAL.fullmatch(written):
        return written
    milliseconds = parse(written)
    return None if milliseconds is None else iso(milliseconds)


def parse(written: str) -> int | None:
    """Read a date that the original accepts: milliseconds since 1970, or None."""
    if len(written) > MAX_DATE_CHARACTERS:
        return None
    if _NUMERAL.fullmatch(written):
        return _numeral(written)
    if not _ACCEPTED.fullmatch(written):
        return None
    found = _STRICT.fullmatch(written)
    if found is None or found["year"] == "-000000":
        return _lax(written)
    return _strict(found)


def _numeral(written: str) -> int | None:
    """The original turns digits into a number first, and a number means milliseconds."""
    number = float(written)
    if not number.is_integer() or abs(number) > 1e15 or not _ACCEPTED.fullmatch(str(int(number))):
        return None
    return int(number)


def _strict(found: re.Match[str]) -> int | None:
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    fraction = found["fraction"] or "0"
    if hour == 24 and (minute or second or fraction.strip("0")):
        return None
    zone = (found["zone"] or "Z").replace(":", "")
    offset = 0 if zone == "Z" else _offset(zone[0], zone[1:])
    date = (int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    return _moment(date, (hour, minute, second, _thousandths(fraction)), offset)


def _offset(sign: str, digits: str) -> int:
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if sign == "-" else minutes


def _moment(
    date: tuple[int, int, int], clock: tuple[int, int, int, int], offset: int
) -> int | None:
    hour, minute, second, thousandths = clock
    of_day = ((hour * 60 + minute - offset) * 60 + second) * 1000 + thousandths
    milliseconds = _days(*date) * _DAY + of_day
    return milliseconds if abs(milliseconds) <= MAX_MILLISECONDS else None


def _nine(digits: str) -> int:
    """The engine reads nine digits behind the leading zeros."""
    return int(digits.lstrip("0")[:9] or 0)


def _thousandths(digits: str) -> int:
    """Of a fraction the engine forgets the leading zeros, once it has read its nine digits."""
    length = min(len(digits), 9)
    powers = 10 ** abs(length - 3)
    thousandths: int = _nine(digits) * powers if length <= 3 else _nine(digits) // powers
    return thousandths


def _lax(written: str) -> int | None:
    """The engine's older reader: numbers fill the date, then the clock, then the offset.

    It reads only what `_ACCEPTED` lets through, so most of what it could stumble over cannot come.
    """
    if "T" in written or "W" in written:
        return None  # these are words to it, and no word may follow a number
    tokens: list[str] = _TOKEN.findall(written)[::-1]  # the next one is the last
    date, offset = _leading_date(tokens), 0
    clock: list[int] = []
    while tokens:
        token = tokens.pop()
        following = tokens[-1] if tokens else ""
        if token in ("+", "-"):
            # An offset is expected behind a clock only; a sign before all numbers is ignored.
            if clock:
                digits = tokens.pop()
                if tokens:
                    tokens.pop()
                    digits += tokens.pop()
                offset = _offset(token, digits)
            elif date:
                return None
        elif token.isdigit() and (clock or following == ":"):
            if following == ",":
                return None
            clock.append(_nine(token))
            if following in (":", "."):
                tokens.pop()
            if following == ".":
                clock.append(_thousandths(tokens.pop()))
        elif token.isdigit():
            if len(date) == 3:
                return None
            date.append(_nine(token))
            if following in ("-", "."):
                tokens.pop()
    return _lax_moment(date, clock, offset)


def _leading_date(tokens: list[str]) -> list[int]:
    """Take the year, and month and day behind dashes, as the strict format has them."""
    date: list[int] = []
    sign = tokens.pop() if tokens[-1] in ("+", "-") else ""
    if len(tokens[-1]) != (6 if sign else 4):
        return date
    year = int(tokens.pop())
    if sign == "-" and not year:
        return date  # there is no such year; the engine then goes on behind it
    date.append(-year if sign == "-" else year)
    for most in (12, 31):
        if not tokens or tokens[-1] != "-":
            break
        tokens.pop()
        if len(tokens[-1]) != 2 or not 1 <= int(tokens[-1]) <= most:
            break
        date.append(int(tokens.pop()))
    return date


def _lax_moment(date: list[int], clock: list[int], offset: int) -> int | None:
    if not date:
        return None
    first, second, third = date + [1] * (3 - len(date))
    year, month, day = (third, first, second) if 1 <= first <= 31 else (first, second, third)
    if 0 <= year <= 99:
        year += 2000 if year < 50 else 1900
    hour, minute, second, thousandths = clock + [0] * (4 - len(clock))
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    is_clock = hour < 24 and minute < 60 and second < 60
    if not is_clock and (hour != 24 or minute or second or thousandths):
        return None
    return _moment((year, month, day), (hour, minute, second, thousandths), offset)


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the Gregorian calendar; a day behind the month's end goes on."""
    # Years are counted from March, so that the leap day is the last one.
    if month < 3:
        year -= 1
    era, in_era = divmod(year, 400)
    in_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - 719_468
