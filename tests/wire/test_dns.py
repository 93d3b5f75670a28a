"""DNS answers are bytes from outside: read whole or refused, whatever they are."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rumormill.core.errors import DecodeError
from rumormill.wire.dns import decode_texts, encode_question, is_truncated

TXT = b"\0\x10\0\x01\0\0\0\x3c"
"""Type, class and time to live of a record."""


def answer(question: bytes, *texts: bytes, flags: int = 0x8180) -> bytes:
    """What a server says, with names that point at the question's."""
    head = question[:2] + flags.to_bytes(2) + b"\0\1" + len(texts).to_bytes(2) + bytes(4)
    records = (b"\xc0\x0c" + TXT + len(text).to_bytes(2) + text for text in texts)
    return head + question[12:] + b"".join(records)


def text(value: str) -> bytes:
    """The data of a TXT record: strings of at most 255 bytes."""
    data = value.encode()
    parts = [data[at : at + 255] for at in range(0, len(data), 255)]
    return b"".join(bytes([len(part)]) + part for part in parts)


def test_a_question_is_that_of_rfc_1035() -> None:
    assert encode_question(0xABCD, "_dnsaddr.a.org") == (
        b"\xab\xcd\x01\x00\0\1\0\0\0\0\0\0\x08_dnsaddr\x01a\x03org\0\0\x10\0\x01"
    )


def test_texts_are_found_behind_other_records_and_joined() -> None:
    question = encode_question(7, "a.org")
    long = "dnsaddr=" + "x" * 300
    alias = b"\xc0\x0c" + b"\0\x05" + TXT[2:] + b"\0\x02\xc0\x0c"
    data = answer(question, text("dnsaddr=/ip4/1.2.3.4"), text(long))
    data = data[:6] + b"\0\3" + data[8 : len(question)] + alias + data[len(question) :]
    assert decode_texts(7, data) == ["dnsaddr=/ip4/1.2.3.4", long]


def test_an_answer_to_another_question_is_none() -> None:
    question = encode_question(7, "a.org")
    with pytest.raises(DecodeError):
        decode_texts(8, answer(question, text("x")))
    with pytest.raises(DecodeError):
        decode_texts(7, question)


def test_a_name_that_is_not_there_is_told_apart() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_texts(7, answer(encode_question(7, "a.org"), flags=0x8183))
    assert caught.value.reason == "no-such-name"


def test_what_did_not_fit_says_so() -> None:
    assert is_truncated(answer(encode_question(7, "a.org"), flags=0x8380))
    assert not is_truncated(answer(encode_question(7, "a.org")))


@pytest.mark.parametrize("name", ["", "a..org", "a" * 64 + ".org", ".".join(["abc"] * 80)])
def test_what_is_no_name_is_not_asked(name: str) -> None:
    with pytest.raises(DecodeError):
        encode_question(1, name)


@given(some.binary(max_size=200), some.integers(0, 60))
def test_any_bytes_are_read_or_refused(junk: bytes, at: int) -> None:
    whole = answer(encode_question(7, "a.org"), text("dnsaddr=/ip4/1.2.3.4"), text("more"))
    for data in (junk, whole[:at] + junk, whole[:at] + junk + whole[at:]):
        with contextlib.suppress(DecodeError):
            decode_texts(7, data)
