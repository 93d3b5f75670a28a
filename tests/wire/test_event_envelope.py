"""Payloads with a key and headers: read as they were written, within limits, and for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, LocalError
from rumormill.wire.envelope import (
    MAGIC,
    MAX_CONTENT_TYPE,
    MAX_CREATED,
    MAX_HEAD,
    MAX_HEADERS,
    MAX_KEY,
    MAX_NAME,
    MAX_VALUE,
    Envelope,
    decode_envelope,
    encode_envelope,
    is_enveloped,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)

VECTORS = {
    "fa726d656e766c012a00": Envelope(None, "", 0, {}, b""),
    "fa726d656e766c010a002a0168": Envelope(b"", "", 0, {}, b"h"),
    "fa726d656e766c010a086f726465722d31371210616170706c69636174696f6e2f6a736f6e": None,
    "fa726d656e766c010a03616263120a746578742f706c61696e18e8f38f8aa533220f0a06726567696f6e12056e6f"
    "72746822070a05656d7074792a0568656c6c6f": Envelope(
        b"abc", "text/plain", 1762300000744, {"region": "north", "empty": ""}, b"hello"
    ),
    "fa726d656e766c012a01ff3203787978": Envelope(None, "", 0, {}, b"\xff"),
}
"""What stands in logs and travels: none of these bytes may ever mean something else. The third is
cut off, the last has a field that nobody knows yet."""


@pytest.mark.parametrize("encoded", VECTORS)
def test_what_was_written_once_is_read_for_ever(encoded: str) -> None:
    expected = VECTORS[encoded]
    if expected is None:
        with pytest.raises(DecodeError):
            decode_envelope(bytes.fromhex(encoded))
        return
    assert decode_envelope(bytes.fromhex(encoded)) == expected


@given(
    data=st.binary(max_size=100),
    key=st.none() | st.binary(max_size=20),
    headers=st.dictionaries(TEXT.filter(bool), TEXT, max_size=5),
    content_type=TEXT,
    created=st.integers(0, MAX_CREATED),
)
def test_what_goes_in_comes_out(
    data: bytes, key: bytes | None, headers: dict[str, str], content_type: str, created: int
) -> None:
    """And the payload is in it as it is, at the end, for those who know no envelopes."""
    found = encode_envelope(
        data, key=key, headers=headers, content_type=content_type, created=created
    )
    assert is_enveloped(found)
    assert found.endswith(data)
    assert decode_envelope(found) == Envelope(key, content_type, created, headers, data)


def test_an_envelope_is_small() -> None:
    """Twelve bytes around a key and a payload of some bytes."""
    assert len(encode_envelope(b"hello", key=b"k")) == len(b"hello" + b"k") + len(MAGIC) + 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"key": bytes(MAX_KEY + 1)}, f"key: at most {MAX_KEY} bytes"),
        ({"content_type": "x" * (MAX_CONTENT_TYPE + 1)}, f"at most {MAX_CONTENT_TYPE} bytes"),
        ({"headers": {"x" * (MAX_NAME + 1): ""}}, f"at most {MAX_NAME} bytes"),
        ({"headers": {"x": "é" * MAX_VALUE}}, f"'x' has at most {MAX_VALUE} bytes"),
        ({"headers": {"": "x"}}, "a header needs a name"),
        ({"headers": {"x": 5}}, "'x' is text, not int: 5"),
        ({"headers": {b"x": "5"}}, "a name is text, not bytes"),
        ({"headers": {"x": "\ud800"}}, "'x' is not text that UTF-8 can express"),
        ({"headers": {str(number): "" for number in range(MAX_HEADERS + 1)}}, "at most 64, not 65"),
        ({"headers": {str(number): "x" * 4000 for number in range(5)}}, f"at most {MAX_HEAD} byte"),
        ({"created": -1}, "not a number of milliseconds"),
    ],
)
def test_what_cannot_be_written_is_said(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        encode_envelope(b"data", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "no-envelope"),
        (b"hello", "no-envelope"),
        (MAGIC[:-1] + b"\x02", "no-envelope"),
        (MAGIC + b"\x0a\xff\x07" + bytes(1022), "truncated"),
        (MAGIC + b"\x0a\x81\x08" + bytes(1025), "oversized"),
        (MAGIC + b"\x0a\x00\x0a\x00", "repeated-field"),
        (MAGIC + b"\x12\x01\xff", "bad-text"),
        (MAGIC + b"\x18" + b"\xff" * 9 + b"\x01", "bad-number"),
        (MAGIC + b"\x22\x02\x12\x00", "bad-header"),
        (MAGIC + b"\x22\x03\x0a\x01a" * 2, "bad-header"),
        (MAGIC + b"\x22\x03\x0a\x01a" * (MAX_HEADERS + 1), "too-many-headers"),
        (MAGIC + b"\x32\x00" * 17, "too-many-fields"),
        (MAGIC + b"\x32\x80\x81\x01" + bytes(MAX_HEAD + 128), "oversized"),
    ],
)
def test_what_is_none_is_refused_under_a_reason(encoded: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode_envelope(encoded)
    assert refused.value.reason == reason
