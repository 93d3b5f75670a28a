"""Quantities read as people write them, and nothing else does."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.sim.units import parse_bandwidth, parse_duration, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("2s", 2.0),
        ("1m", 60.0),
        ("1min", 60.0),
        ("1.5h", 5400.0),
        ("100us", 0.0001),
        ("3", 3.0),
        (3, 3.0),
        (0.25, 0.25),
        (" 50 MS ", 0.05),
        ("-5s", -5.0),
        ("1e3ms", 1.0),
        (".5s", 0.5),
    ],
)
def test_durations_are_seconds(text: object, seconds: float) -> None:
    """A duration is a number of seconds or carries its unit."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "bits"), [("10mbit", 1e7), ("1gbit", 1e9), ("64kbit", 64_000.0), ("8bit", 8.0), (9, 9)]
)
def test_bandwidths_are_bits_per_second(text: object, bits: float) -> None:
    """Bandwidth counts bits, and its prefixes are decimal."""
    assert parse_bandwidth(text) == bits


@pytest.mark.parametrize(
    ("text", "size"), [("1kib", 1024), ("1kb", 1000), ("0.5kib", 512), ("1mib", 1 << 20), (7, 7)]
)
def test_sizes_are_whole_bytes(text: object, size: int) -> None:
    """Sizes know binary and decimal prefixes."""
    assert parse_size(text) == size
    assert isinstance(parse_size(text), int)


def test_shares_are_numbers_or_per_cent() -> None:
    """A share of one may be written in per cent."""
    assert parse_share("5%") == parse_share(0.05) == parse_share("0.05") == 0.05


@pytest.mark.parametrize(
    "bad", ["", "fast", "5 parsecs", "ms", "1 2ms", "5ms!", "nan", "inf", "1e999", math.nan]
)
def test_what_is_no_duration_is_refused_with_all_units(bad: object) -> None:
    """The refusal repeats the value and lists the units that are known."""
    with pytest.raises(ConfigError, match=r"is not a duration; .*us, ms, s, m, min, h.*50ms"):
        parse_duration(bad)


@pytest.mark.parametrize("bad", [True, None, [], {}, b"5ms", "9" * 1000])
def test_other_types_and_long_texts_are_refused(bad: object) -> None:
    """Only numbers and short texts are quantities."""
    for parse in (parse_duration, parse_bandwidth, parse_size, parse_share):
        with pytest.raises(ConfigError, match="is not a") as refusal:
            parse(bad)
        assert len(str(refusal.value)) < 300


def test_half_a_byte_is_refused() -> None:
    """A size must be whole."""
    with pytest.raises(ConfigError, match="whole number of bytes"):
        parse_size("1.5b")


@given(st.integers(min_value=0, max_value=10**6))
def test_milliseconds_and_seconds_agree_exactly(amount: int) -> None:
    """Writing a duration in milliseconds gives the float that writing it in seconds gives."""
    assert parse_duration(f"{amount}ms") == amount / 1000


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text raises anything but the declared error, and results are finite."""
    for parse in (parse_duration, parse_bandwidth, parse_size, parse_share):
        try:
            assert math.isfinite(parse(text))
        except ConfigError:
            continue
