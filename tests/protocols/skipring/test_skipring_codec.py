"""The letters' codec: the same bytes as the protobuf library, bounded, and never another error."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipring_letters import letters, to_protobuf

from oracles import skipring_pb2
from refusals import reason_of
from rumormill.core.errors import DecodeError
from rumormill.protocols.skipring.config import (
    MAX_ADDRESS,
    MAX_ADDRESSES,
    MAX_DATA,
    MAX_MESSAGE,
    MAX_NODES,
    MAX_PUBLICATIONS,
    MAX_TOPIC,
)
from rumormill.protocols.skipring.junk import junk_letter
from rumormill.protocols.skipring.messages import (
    LETTERS,
    Letter,
    Token,
    decode_letter,
    encode_letter,
)
from rumormill.wire.protobuf import bytes_field, string_field, varint_field

TOPIC = string_field(1, "t")
PEER = bytes_field(2, b"peer")
HASH = bytes_field(3, bytes(32))


class TestAgreementWithProtobuf:
    """The generated class is the judge of our bytes."""

    @given(letters)
    def test_our_bytes_are_the_librarys_bytes(self, letter: Letter) -> None:
        """Encoding gives byte for byte what the protobuf library serialises."""
        assert encode_letter(letter) == to_protobuf(letter).SerializeToString()

    @given(letters)
    def test_their_bytes_decode_here_to_the_same_values(self, letter: Letter) -> None:
        """We read the values that the protobuf library serialised."""
        assert decode_letter(to_protobuf(letter).SerializeToString()) == letter

    @given(letters)
    def test_the_library_reads_our_bytes(self, letter: Letter) -> None:
        """There is nothing in them that the published schema does not name."""
        parsed = skipring_pb2.Letter.FromString(encode_letter(letter))
        assert parsed == to_protobuf(letter)

    @given(letters)
    def test_sizes_are_the_real_lengths(self, letter: Letter) -> None:
        """What the trace says of a letter is the length of its encoding."""
        encoded = encode_letter(letter)
        assert letter.meta.size == len(encoded)
        assert letter.meta.operations[0].name == letter.operation
        assert decode_letter(encoded).meta == letter.meta

    def test_every_kind_has_a_field_of_its_own(self) -> None:
        """The fourteen bodies stand in the fields 2 to 15, under their operations' names."""
        assert [kind.field for kind in LETTERS] == list(range(2, 17))
        named = {field.number: field.name for field in skipring_pb2.Letter.DESCRIPTOR.fields}
        assert [named[kind.field] for kind in LETTERS] == [
            kind.operation.replace("-", "_") for kind in LETTERS
        ]

    @given(letters)
    def test_unknown_fields_are_skipped(self, letter: Letter) -> None:
        """A newer peer may add fields to the letter."""
        more = varint_field(99, 7) + bytes_field(100, b"later")
        assert decode_letter(more + encode_letter(letter) + more) == letter


class TestRefusals:
    """What is no letter is refused under a fixed reason."""

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "not-one-body"),
            (TOPIC, "not-one-body"),
            (TOPIC + bytes_field(3, b"") + bytes_field(5, b""), "not-one-body"),
            (TOPIC + TOPIC + bytes_field(3, b""), "repeated-field"),
            (TOPIC + bytes_field(3, b"") * 2, "repeated-field"),
            (bytes_field(1, b"\xff") + bytes_field(3, b""), "bad-text"),
            (varint_field(1, 1) + bytes_field(3, b""), "bad-wire-type"),
            (string_field(1, "t" * (MAX_TOPIC + 1)) + bytes_field(3, b""), "oversized"),
            (TOPIC + bytes_field(4, b""), "no-subject"),
            (TOPIC + bytes_field(4, bytes_field(1, bytes(65))), "oversized"),
            (TOPIC + bytes_field(2, bytes_field(1, bytes(MAX_ADDRESS + 1))), "oversized"),
            (TOPIC + bytes_field(2, bytes_field(1, b"") * (MAX_ADDRESSES + 1)), "repeated-field"),
            (TOPIC + bytes_field(6, varint_field(2, 2**62 + 1)), "bad-label"),
            (TOPIC + bytes_field(6, bytes_field(1, PEER)), "no-label"),
            (TOPIC + bytes_field(6, bytes_field(1, varint_field(1, 1))), "no-peer"),
            (TOPIC + bytes_field(7, bytes_field(1, varint_field(1, 1) + PEER)), "no-label"),
            (TOPIC + bytes_field(7, varint_field(2, 1)), "no-subject"),
            (
                TOPIC
                + bytes_field(8, bytes_field(1, varint_field(1, 1) + PEER) + varint_field(2, 2)),
                "bad-flag",
            ),
            (TOPIC + bytes_field(9, b""), "no-subject"),
            (TOPIC + bytes_field(11, bytes_field(1, varint_field(1, 1) + PEER)), "no-label"),
            (TOPIC + bytes_field(12, bytes_field(1, b"")), "bad-hash"),
            (TOPIC + bytes_field(12, bytes_field(1, bytes_field(3, bytes(31)))), "bad-hash"),
            (TOPIC + bytes_field(12, bytes_field(1, varint_field(1, 3) + HASH)), "bad-prefix"),
            (
                TOPIC + bytes_field(12, bytes_field(1, bytes_field(2, b"\x01") + HASH)),
                "bad-prefix",
            ),
            (
                TOPIC
                + bytes_field(
                    12, bytes_field(1, varint_field(1, 7) + bytes_field(2, b"\x01") + HASH)
                ),
                "bad-prefix",
            ),
            (TOPIC + bytes_field(12, bytes_field(1, HASH) * (MAX_NODES + 1)), "repeated-field"),
            (TOPIC + bytes_field(13, bytes_field(2, bytes_field(3, bytes(31)))), "bad-key"),
            (TOPIC + bytes_field(13, bytes_field(2, b"") * (MAX_NODES + 1)), "repeated-field"),
            (
                TOPIC + bytes_field(14, bytes_field(1, b"") * (MAX_PUBLICATIONS + 1)),
                "repeated-field",
            ),
            (TOPIC + bytes_field(15, b""), "no-publication"),
            (TOPIC + bytes_field(14, bytes_field(1, b"")), "no-author"),
            (
                TOPIC + bytes_field(15, bytes_field(1, bytes_field(2, bytes(MAX_DATA + 1)))),
                "oversized",
            ),
            (TOPIC + bytes_field(3, bytes(MAX_MESSAGE)), "oversized"),
        ],
    )
    def test_a_reason_for_each(self, data: bytes, reason: str) -> None:
        """Each of these breaks one rule."""
        assert reason_of(decode_letter, data) == reason

    def test_a_prefix_longer_than_a_key_is_refused(self) -> None:
        """The number of bits of a key is the receiver's setting."""
        node = varint_field(1, 9) + bytes_field(2, b"\x00\x00") + HASH
        data = TOPIC + bytes_field(12, bytes_field(1, node))
        decode_letter(data, key_bits=16)
        with pytest.raises(DecodeError, match="bad-prefix"):
            decode_letter(data, key_bits=8)


class TestFuzz:
    """Whatever arrives: a letter or a `DecodeError`, in bounded memory."""

    @given(st.binary(max_size=200))
    def test_arbitrary_bytes(self, data: bytes) -> None:
        """Bytes from nowhere."""
        self.read(data)

    @given(letters, st.randoms(use_true_random=False))
    @settings(max_examples=200)
    def test_damaged_letters(self, letter: Letter, chance: random.Random) -> None:
        """True letters with some bytes changed, dropped or doubled."""
        data = bytearray(encode_letter(letter))
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data) + 1)
            change = chance.randrange(3)
            if change == 0 and place < len(data):
                data[place] = chance.randrange(256)
            elif change == 1:
                del data[place : place + chance.randrange(1, 5)]
            else:
                data[place:place] = data[place : place + chance.randrange(1, 9)]
        self.read(bytes(data))

    def read(self, data: bytes) -> None:
        try:
            letter = decode_letter(data)
        except DecodeError:
            return
        assert decode_letter(encode_letter(letter)) == letter

    @pytest.mark.parametrize(
        "data",
        [
            TOPIC + bytes_field(12, bytes_field(1, HASH) * 25_000),
            TOPIC + bytes_field(13, bytes_field(2, b"") * 500_000),
            TOPIC + bytes_field(14, bytes_field(1, b"") * 500_000),
            TOPIC + bytes_field(2, bytes_field(1, b"") * 500_000),
            varint_field(99, 1) * 300_000,
        ],
        ids=["nodes", "wants", "publications", "addresses", "unknown"],
    )
    def test_counts_are_checked_before_anything_is_built(self, data: bytes) -> None:
        """A megabyte of the smallest items does not become a hundred megabytes of objects."""
        assert len(data) <= MAX_MESSAGE
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError):
                decode_letter(data)
            assert tracemalloc.get_traced_memory()[1] < 3 * MAX_MESSAGE
        finally:
            tracemalloc.stop()


def test_junk_is_of_every_kind_and_passes_the_codec() -> None:
    """An attacker's letters are well formed; all kinds occur but tokens, which a ring takes
    from neighbours alone and most rings do not know."""
    chance = random.Random(1)
    kinds: dict[type, int] = {}
    for _ in range(2000):
        letter = junk_letter(chance, [b"a", b"b", b"c"], ["t", "u"])
        kinds[type(letter)] = kinds.get(type(letter), 0) + 1
        assert decode_letter(encode_letter(letter)) == letter
        assert letter.meta.size == len(encode_letter(letter))
    assert set(kinds) == {*LETTERS} - {Token}
    assert junk_letter(chance, [], []).topic.startswith("junk")
