"""dag-cbor: one encoding for each value, and nothing else is read."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import reason_of
from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast.format import dag_cbor
from rumormill.protocols.pulsarcast.format.dag_cbor import Link, Value, decode, encode

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=40),
    st.text(max_size=20),
    st.binary(min_size=1, max_size=36).map(Link),
)
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_every_value_comes_back(value: Value) -> None:
    """Writing and reading are inverse, whatever the order in which keys were added."""
    data = encode(value)
    assert decode(data) == value
    assert encode(decode(data)) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_in_its_one_encoding_or_an_error(data: bytes) -> None:
    """Whatever is accepted is written back byte for byte: no value has two names."""
    try:
        value = decode(data)
    except DecodeError:
        return
    assert encode(value) == data


@given(values, st.data())
def test_a_changed_byte_is_an_error_or_another_value(value: Value, draw: st.DataObject) -> None:
    """A block with a flipped bit is never read as something that hashes otherwise."""
    data = bytearray(encode(value))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with contextlib.suppress(DecodeError):
        assert encode(decode(bytes(data))) == data


def test_keys_are_ordered_by_length_and_then_by_bytes() -> None:
    """Length in UTF-8, not in characters; bytes, not the order of any language."""
    names = ["zz", "é", "z", "", "日本", "zzzzzz", "𐀀", "\ue000"]
    back = decode(encode(dict.fromkeys(names)))
    assert isinstance(back, dict)
    assert list(back) == ["", "z", "zz", "é", "\ue000", "𐀀", "zzzzzz", "日本"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "truncated"),
        ("f6f6", "bad-dag-cbor"),
        ("1817", "not-canonical"),
        ("1900ff", "not-canonical"),
        ("1a0000ffff", "not-canonical"),
        ("1b00000000ffffffff", "not-canonical"),
        ("580161", "not-canonical"),
        ("a2616200616100", "not-canonical"),
        ("a2616100616100", "not-canonical"),
        ("a262616100616200", "not-canonical"),
        ("a10000", "bad-dag-cbor"),
        ("9fff", "bad-dag-cbor"),
        ("5f4100ff", "bad-dag-cbor"),
        ("1c", "bad-dag-cbor"),
        ("f7", "bad-dag-cbor"),
        ("f0", "bad-dag-cbor"),
        ("f93c00", "bad-dag-cbor"),
        ("fa3f800000", "bad-dag-cbor"),
        ("fb7ff8000000000000", "bad-dag-cbor"),
        ("fb7ff0000000000000", "bad-dag-cbor"),
        ("c100", "bad-dag-cbor"),
        ("d82a00", "bad-dag-cbor"),
        ("d82a4100", "bad-link"),
        ("d82a420101", "bad-link"),
        ("61ff", "bad-text"),
        ("63eda080", "bad-text"),
        ("41", "truncated"),
        ("5bffffffffffffffff", "truncated"),
        ("9bffffffffffffffff", "truncated"),
        ("bbffffffffffffffff", "truncated"),
        ("81" * 20 + "00", "too-deep"),
    ],
)
def test_what_is_refused(data: str, reason: str) -> None:
    """Long heads, wrong order, foreign types, lies about lengths: each has its reason."""
    assert reason_of(decode, bytes.fromhex(data)) == reason


def test_limits_come_before_the_work() -> None:
    """A block is refused by its size and by the number of its values."""
    with pytest.raises(DecodeError, match="oversized"):
        decode(bytes(11), max_bytes=10)
    with pytest.raises(DecodeError, match="too-many-items"):
        decode(b"\x84\0\0\0\0", max_items=4)
    assert decode(b"\x84\0\0\0\0", max_items=5) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**64, -(2**64) - 1, {1: 2}, {1, 2}, "\ud800"]
)
def test_what_cannot_be_written(value: object) -> None:
    """What dag-cbor has no encoding for is our caller's mistake."""
    with pytest.raises(ValueError, match=r"."):
        encode(value)  # type: ignore[arg-type]


def test_nesting_is_bounded_on_both_sides() -> None:
    """What is written can be read."""
    nested: Value = None
    for _ in range(dag_cbor.MAX_DEPTH):
        nested = [nested]
    assert decode(encode(nested)) == nested
    with pytest.raises(ValueError, match="nested"):
        encode([nested])
