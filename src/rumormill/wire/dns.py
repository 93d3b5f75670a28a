"""DNS messages (RFC 1035), as far as a resolver is asked for the TXT records of a name.

Python's own resolver asks for addresses only, and `/dnsaddr` names are TXT records. The rule here:
an answer is bytes from outside, so every length and pointer is checked, pointers lead backwards
only, and the number of records is bounded.
"""

from typing import Final

from rumormill.core.errors import DecodeError

MAX_ANSWER_BYTES: Final = 16 * 1024
"""Our choice: a hundred addresses; more than any name seen lists."""
MAX_RECORDS: Final = 64

_TXT: Final = 16
_INTERNET: Final = 1
_HEAD_BYTES: Final = 12
_RECURSION_DESIRED: Final = 0x0100
_IS_ANSWER: Final = 0x8000
_TRUNCATED: Final = 0x0200
_POINTER: Final = 0xC0
_MAX_NAME_BYTES: Final = 255


def encode_question(number: int, name: str) -> bytes:
    """Ask for the TXT records of a name."""
    labels = name.rstrip(".").encode("ascii").split(b".")
    if not all(0 < len(label) < 64 for label in labels) or len(name) > _MAX_NAME_BYTES - 2:
        raise DecodeError("bad-name", f"{name!r} is not a DNS name")
    head = b"".join(each.to_bytes(2) for each in (number, _RECURSION_DESIRED, 1, 0, 0, 0))
    question = b"".join(bytes([len(label)]) + label for label in labels)
    return head + question + b"\0" + _TXT.to_bytes(2) + _INTERNET.to_bytes(2)


def is_truncated(data: bytes) -> bool:
    """Whether an answer says that it did not fit, so that it must be asked for over TCP."""
    return len(data) >= _HEAD_BYTES and bool(int.from_bytes(data[2:4]) & _TRUNCATED)


def decode_texts(number: int, data: bytes) -> list[str]:
    """The TXT records of the answer to this question; DecodeError if it is none."""
    if not _HEAD_BYTES <= len(data) <= MAX_ANSWER_BYTES:
        raise DecodeError("bad-dns", f"an answer of {len(data)} bytes")
    said, flags, questions, answers = (int.from_bytes(data[i : i + 2]) for i in (0, 2, 4, 6))
    if said != number or not flags & _IS_ANSWER:
        raise DecodeError("bad-dns", "not the answer to our question")
    if failure := flags & 0xF:
        raise DecodeError("no-such-name" if failure == 3 else "bad-dns", f"DNS error {failure}")
    if questions > 1 or answers > MAX_RECORDS:
        raise DecodeError("bad-dns", f"{questions} questions, {answers} answers")
    place = _HEAD_BYTES
    for _ in range(questions):
        place = _skip_name(data, place) + 4
    texts = []
    for _ in range(answers):
        place = _skip_name(data, place)
        if place + 10 > len(data):
            raise DecodeError("truncated", "a DNS record ends in its head")
        kind, size = (
            int.from_bytes(data[place : place + 2]),
            int.from_bytes(data[place + 8 : place + 10]),
        )
        place += 10
        if place + size > len(data):
            raise DecodeError("truncated", "a DNS record ends in its data")
        if kind == _TXT:
            texts.append(_read_text(data[place : place + size]))
        place += size
    return texts


def _skip_name(data: bytes, place: int) -> int:
    """Where a name ends; what it is does not matter, as we asked about one only."""
    while place < len(data):
        size = data[place]
        if size & _POINTER == _POINTER:
            return place + 2
        place += 1 + size
        if size == 0:
            return place
    raise DecodeError("truncated", "a DNS message ends in a name")


def _read_text(data: bytes) -> str:
    """The strings of a TXT record, joined."""
    parts, place = [], 0
    while place < len(data):
        end = place + 1 + data[place]
        if end > len(data):
            raise DecodeError("truncated", "a TXT record ends in a string")
        parts.append(data[place + 1 : end])
        place = end
    return b"".join(parts).decode("ascii", "replace")
