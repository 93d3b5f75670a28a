"""Payloads opened in bulk are what they are one by one, whatever the bytes are."""

import random

import pyarrow as pa
import pytest

from rumormill.log import payloads
from rumormill.log.payloads import opened
from rumormill.wire.envelope import MAGIC, MAX_HEADERS, encode_envelope


def sample(chance: random.Random) -> bytes:
    """An envelope with some of what can be in one."""
    names = chance.sample(["a", "ünder", "content-type", "x" * 128], chance.randrange(4))
    return encode_envelope(
        chance.randbytes(chance.choice([0, 1, 127, 128, 20_000])),
        key=chance.choice([None, b"", b"key", bytes(1024)]),
        headers={name: chance.choice(["", "v", "é" * 70]) for name in names},
        content_type=chance.choice(["", "text/plain"]),
        created=chance.choice([0, 1, 1_730_000_000_000]),
    )


def same(data: list[bytes]) -> bool:
    """Whether both ways agree; and whether there was anything to read at once."""
    array = pa.array(data, pa.binary())
    slow, fast = payloads._read_one_by_one(array), payloads._read_at_once(array)
    if fast is None:
        return False
    for name in ("value", "key", "headers"):
        getattr(fast, name).validate(full=True)
        assert getattr(fast, name).equals(getattr(slow, name)), name
    assert fast.created.tolist() == slow.created.tolist()
    return True


def test_envelopes_as_we_write_them_are_read_at_once() -> None:
    """Whatever they hold."""
    chance = random.Random(7)
    for _ in range(30):
        assert same([sample(chance) for _ in range(chance.randrange(1, 40))])
    full = {f"h{number}": "v" for number in range(MAX_HEADERS)}
    assert same([encode_envelope(b"data", headers=full)])


def test_other_bytes_are_never_read_otherwise() -> None:
    """Flipped, cut, doubled, foreign: at once they are read the same way or not at all."""
    chance = random.Random(8)
    agreed = 0
    for _ in range(1500):
        whole = bytearray(sample(chance)[:400])
        for _ in range(chance.randrange(1, 4)):
            whole[chance.randrange(len(MAGIC), len(whole))] = chance.randrange(256)
        if chance.random() < 0.3:
            del whole[chance.randrange(len(MAGIC), len(whole) + 1) :]
        agreed += same([sample(chance), bytes(whole), sample(chance)])
    assert agreed, "some are envelopes still"


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"\x0a",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x2a\x05four",
        b"\x2a\x01four",
        b"\x0a\x01k\x0a\x01l\x2a\x00",
        b"\x22\x00\x2a\x00",
        b"\x22\x03\x0a\x01a\x22\x03\x0a\x01a\x2a\x00",
        b"\x22\x03\x0a\x01\xff\x2a\x00",
        b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x01\x2a\x00",
        b"\x32\x01z\x2a\x00",
        b"\x2a\x00\x0a\x01k",
    ],
)
def test_what_we_do_not_write_is_left_to_the_careful_reader(tail: bytes) -> None:
    """Which says what it is; its neighbours are opened all the same."""
    good = encode_envelope(b"data", key=b"key")
    assert not same([good, MAGIC + tail, good])
    found = opened(pa.array([good, MAGIC + tail, b"plain"], pa.binary()))
    assert found.value.to_pylist()[::2] == [b"data", b"plain"]
    assert found.key.to_pylist()[::2] == [b"key", None]
    assert found.payload.to_pylist()[::2] == [good, None]


def test_plain_payloads_are_passed_on() -> None:
    """The same buffer, not a copy."""
    data = pa.array([b"one", b"", b"two"], pa.binary())
    found = opened(data)
    assert found.value is data
    assert found.key.null_count == found.headers.null_count == found.payload.null_count == 3
