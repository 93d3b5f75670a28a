"""Dates as RFC 3339 writes them, between text and seconds since 1970, without a clock.

Reading takes what go (nanoseconds), js (milliseconds) and we write, with any offset from UTC.
"""

import calendar
import re
from typing import Final

MAX_LENGTH: Final = 64
"""Our choice: the longest form in use (go: nine decimals and an offset) has 35 characters."""

_FORM: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_DAY: Final = 86_400
_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999, the last that the form can write."""


def write(seconds: float) -> str:
    """Write a moment in UTC with milliseconds: `2024-02-29T12:00:00.250Z`."""
    milliseconds = min(max(round(seconds * 1000), 0), _LAST_SECOND * 1000 + 999)
    whole, fraction = divmod(milliseconds, 1000)
    days, rest = divmod(whole, _DAY)
    year, month, day = civil(days)
    hours, rest = divmod(rest, 3600)
    minutes, seconds_left = divmod(rest, 60)
    return f"{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds_left:02}.{fraction:03}Z"


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 1970-01-01."""
    # Years begin in March here, so that the day which some years lack is the last one.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return era * 400 + year_of_era + (month <= 2), month, day


def read(text: str) -> float | None:
    """Read a moment as seconds since 1970; None where it is none."""
    matched = _FORM.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if matched is None:
        return None
    year, month, day, hours, minutes, seconds = map(int, matched.groups()[:6])
    fraction, sign, *offset = matched.groups(default="0")[6:]
    ahead, rest = map(int, offset)
    if (
        year < 1
        or not 1 <= month <= 12
        or not 1 <= day <= calendar.monthrange(year, month)[1]
        or hours > 23
        or minutes > 59
        or seconds > 60  # a leap second
        or ahead > 23
        or rest > 59
    ):
        return None
    moment = calendar.timegm((year, month, day, hours, minutes, seconds)) + float(fraction)
    shift = ahead * 3600 + rest * 60
    return moment + shift if sign == "-" else moment - shift
