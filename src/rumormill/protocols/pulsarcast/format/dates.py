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
from typing import Final

MAX_MILLISECONDS: Final = 8_640_000_000_000_000
"""From ECMAScript: a hundred million days on either side of 1970."""

MAX_DATE_CHARACTERS: Final = 64
"""Our choice: twice the longest date that means something."""

_DAY = 86_400_000
_SPACES = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PLAIN = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z", re.ASCII)
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
    year, month, day = _civil(days)
    seconds, thousandths = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if year < 0 else "+"
    written = f"{year:04}" if 0 <= year <= 9999 else f"{sign}{abs(year):06}"
    return f"{written}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{thousandths:03}Z"


def iso_at(now: float) -> str:
    """Write a time in seconds since 1970."""
    return iso(round(now * 1000))


def seconds(created: str) -> float:
    """Return the time that a normal date means, in seconds since 1970."""
    milliseconds = parse(created)
    if milliseconds is None:
        raise ValueError("not a date")
    return milliseconds / 1000


def normal(written: str) -> str | None:
    """Rewrite a date as the original does on receipt; None where it refuses the date."""
    found = _PLAIN.fullmatch(written)
    if found is not None:
        _, month, day, hour, minute, second, _ = found.groups()
        is_day = "01" <= month <= "12" and "01" <= day <= "28"
        if is_day and hour < "24" and minute < "60" and second < "60":
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
    hour, minute = int(found["hour"] or 0), int(found["minute"] or 0)
    second, thousandths = int(found["second"] or 0), _thousandths(found["fraction"] or "0")
    if hour == 24 and (minute or second or int((found["fraction"] or "0").lstrip("0")[:9] or 0)):
        return None
    offset = 0
    zone = (found["zone"] or "Z").replace(":", "")
    if zone != "Z":
        offset = (int(zone[1:3]) * 60 + int(zone[3:])) * (-1 if zone[0] == "-" else 1)
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    clock = ((hour * 60 + minute - offset) * 60 + second) * 1000 + thousandths
    return _in_range(_days(year, month, day) * _DAY + clock)


def _in_range(milliseconds: int) -> int | None:
    return milliseconds if abs(milliseconds) <= MAX_MILLISECONDS else None


def _thousandths(digits: str) -> int:
    """The engine reads nine digits behind the leading zeros, and then forgets the zeros."""
    number = int(digits.lstrip("0")[:9] or 0)
    length = min(len(digits), 9)
    powers = 10 ** abs(length - 3)
    thousandths: int = number * powers if length <= 3 else number // powers
    return thousandths


class _LaxReader:
    """The engine's older reader: numbers fill the date, then the clock, then the offset."""

    __slots__ = ("clock", "date", "hours", "index", "minutes", "sign", "tokens")

    def __init__(self, written: str) -> None:
        self.tokens: list[str] = _TOKEN.findall(written)
        self.index = 0
        self.date: list[int] = []
        self.clock: list[int] = []
        self.sign = 0
        self.hours: int | None = None
        self.minutes: int | None = None

    def peek(self) -> str:
        return self.tokens[self.index] if self.index < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.index += 1
        return token

    def skip(self, symbol: str) -> bool:
        if self.peek() == symbol:
            self.index += 1
            return True
        return False

    def read(self) -> int | None:
        """Read everything; None where the engine gives up."""
        self._leading_date()
        while token := self.next():
            if token.isdigit():
                accepted = self._number(token)
            elif token == "Z":
                accepted = True
                self.sign, self.hours, self.minutes = 1, 0, 0
            elif token in "+-":
                # An offset is expected behind a clock only; a sign before all numbers is ignored.
                accepted = self._offset(token) if self.clock or self.is_utc else not self.date
            else:
                # `T` and `W` are words to this reader, and no word may follow a number.
                accepted = token not in "TW"
            if not accepted:
                return None
        return self._result()

    @property
    def is_utc(self) -> bool:
        return self.hours == 0 and self.minutes == 0

    def _leading_date(self) -> None:
        """Take the year, and month and day behind dashes, as the strict format has them."""
        sign = self.next() if self.peek() in ("+", "-") else ""
        if len(self.peek()) != (6 if sign else 4) or not self.peek().isdigit():
            return
        year = int(self.next())
        if sign == "-" and not year:
            return  # there is no such year; the engine then goes on behind it
        self.date.append(-year if sign == "-" else year)
        for most in (12, 31):
            if not self.skip("-"):
                return
            token = self.peek()
            if len(token) != 2 or not token.isdigit() or not 1 <= int(token) <= most:
                return
            self.date.append(int(self.next()))

    def _number(self, token: str) -> bool:
        number = int(token.lstrip("0")[:9] or 0)
        if self.skip(":"):
            self.clock.append(number)
            self.skip(".")
            return len(self.clock) <= 4
        if self.skip(".") and self._clock_expects(number):
            self.clock.append(number)
            fraction = self.next()
            if not fraction.isdigit():
                return False
            return self._finish_clock(_thousandths(fraction))
        if self.hours is not None and self.minutes is None and number < 60:
            self.minutes = number
            return True
        if self._clock_expects(number):
            following = self.peek()
            return self._finish_clock(number) and (not following or following in f"{_BLANKS}Z+-")
        if len(self.date) == 3:
            return False
        self.date.append(number)
        self.skip("-")
        return True

    def _clock_expects(self, number: int) -> bool:
        most = (0, 60, 60, 1000, 0)[len(self.clock)]
        return number < most

    def _finish_clock(self, number: int) -> bool:
        if len(self.clock) >= 4:
            return False
        self.clock.append(number)
        self.clock += [0] * (4 - len(self.clock))
        return True

    def _offset(self, sign: str) -> bool:
        self.sign = -1 if sign == "-" else 1
        digits = self.next() if self.peek().isdigit() else ""
        number = int(digits or 0)
        if self.peek() == ":":
            self.hours, self.minutes = number, None
        elif len(digits) in (1, 2):
            self.hours, self.minutes = number, 0
        elif len(digits) in (3, 4):
            self.hours, self.minutes = divmod(number, 100)
        else:
            return False
        return True

    def _result(self) -> int | None:
        if not self.date:
            return None
        first, second, third = self.date + [1] * (3 - len(self.date))
        if 1 <= first <= 31:
            month, day, year = first, second, third
        else:
            year, month, day = first, second, third
        if 0 <= year <= 99:
            year += 2000 if year < 50 else 1900
        hour, minute, second, thousandths = self.clock + [0] * (4 - len(self.clock))
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        is_clock = hour < 24 and minute < 60 and second < 60 and thousandths < 1000
        if not is_clock and (hour != 24 or minute or second or thousandths):
            return None
        offset = self.sign * ((self.hours or 0) * 60 + (self.minutes or 0))
        clock = ((hour * 60 + minute - offset) * 60 + second) * 1000 + thousandths
        return _in_range(_days(year, month, day) * _DAY + clock)


_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _lax(written: str) -> int | None:
    return _LaxReader(written).read()


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the Gregorian calendar; a day behind the month's end goes on."""
    # Years are counted from March, so that the leap day is the last one.
    if month < 3:
        year -= 1
    era, in_era = divmod(year, 400)
    in_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - 719_468


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    in_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    in_year = day_of_era - (365 * in_era + in_era // 4 - in_era // 100)
    shifted = (5 * in_year + 2) // 153
    day = in_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + in_era + (month <= 2), month, day
