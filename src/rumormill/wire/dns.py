"""DNS messages (RFC 1035): what a resolver is asked for names, and what mDNS says on a link.

Python's own resolver asks for addresses only, and `/dnsaddr` names are TXT records. The rule here:
a message is bytes from outside, so every length and pointer is checked, pointers lead backwards
only, and the number of records is bounded.
"""

from typing import Final, TypeAlias

import msgspec

from rumormill.core.errors import DecodeError

MAX_MESSAGE_BYTES: Final = 16 * 1024
"""Our choice: a hundred addresses; more than any name seen lists."""
MAX_RECORDS: Final = 64

A, PTR, TXT, SRV = 1, 12, 16, 33
"""Kinds of records: an IPv4 address, another name, texts, a host and a port."""
IS_ANSWER: Final = 0x8000
AUTHORITATIVE: Final = 0x0400

_INTERNET: Final = 1
_HEAD_BYTES: Final = 12
_RECURSION_DESIRED: Final = 0x0100
_TRUNCATED: Final = 0x0200
_POINTER: Final = 0xC0
_MAX_NAME_BYTES: Final = 255

Name: TypeAlias = tuple[bytes, ...]
"""A name by its labels, in small letters: names that differ in nothing else are the same."""


class Record(msgspec.Struct, frozen=True):
    """What is said of a name; its data has no pointers where it is a PTR's or a TXT's."""

    name: Name
    kind: int
    seconds: int
    """How long it holds."""
    data: bytes

    @property
    def texts(self) -> list[bytes]:
        """The strings of a TXT record."""
        found, place = [], 0
        while place < len(self.data):
            end = place + 1 + self.data[place]
            found.append(self.data[place + 1 : end])
            place = end
        return found

    @property
    def target(self) -> Name:
        """The name that a PTR record leads to."""
        return _read_name(self.data, 0)[0]


class DnsMessage(msgspec.Struct, frozen=True):
    """Questions, answers to them, and what may help besides."""

    number: int
    flags: int
    questions: tuple[tuple[Name, int], ...] = ()
    """Names, and the kind of records that is wanted of each."""
    answers: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()

    def encode(self) -> bytes:
        """Write a message, without pointers."""
        counts = (len(self.questions), len(self.answers), 0, len(self.additional))
        parts = [each.to_bytes(2) for each in (self.number, self.flags, *counts)]
        for name, kind in self.questions:
            parts += [encode_name(name), kind.to_bytes(2), _INTERNET.to_bytes(2)]
        for record in (*self.answers, *self.additional):
            parts += [encode_name(record.name), record.kind.to_bytes(2), _INTERNET.to_bytes(2)]
            parts += [record.seconds.to_bytes(4), len(record.data).to_bytes(2), record.data]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> "DnsMessage":
        """Read a message; DecodeError if it is none, or too long."""
        if not _HEAD_BYTES <= len(data) <= MAX_MESSAGE_BYTES:
            raise DecodeError("bad-dns", f"a message of {len(data)} bytes")
        number, flags, asked, answered, authorities, more = (
            int.from_bytes(data[place : place + 2]) for place in range(0, _HEAD_BYTES, 2)
        )
        if asked + answered + authorities + more > MAX_RECORDS:
            raise DecodeError("bad-dns", f"more than {MAX_RECORDS} questions and records")
        place, questions = _HEAD_BYTES, []
        for _ in range(asked):
            name, place = _read_name(data, place)
            if place + 4 > len(data):
                raise DecodeError("truncated", "a DNS question ends after its name")
            questions.append((name, int.from_bytes(data[place : place + 2])))
            place += 4
        records = []
        for _ in range(answered + authorities + more):
            record, place = _read_record(data, place)
            records.append(record)
        return cls(
            number, flags, tuple(questions), tuple(records[:answered]), tuple(records[answered:])
        )


def name_of(text: str) -> Name:
    """A name that people write with dots; DecodeError if it is none."""
    labels = text.lower().rstrip(".").encode("ascii").split(b".")
    if not all(0 < len(label) < 64 for label in labels) or len(text) > _MAX_NAME_BYTES - 2:
        raise DecodeError("bad-name", f"{text!r} is not a DNS name")
    return tuple(labels)


def encode_name(name: Name) -> bytes:
    """Write a name, without pointers."""
    return b"".join(bytes([len(label)]) + label for label in name) + b"\0"


def encode_texts(texts: list[bytes]) -> bytes:
    """The data of a TXT record, of strings of at most 255 bytes."""
    return b"".join(bytes([len(text)]) + text for text in texts)


def encode_question(number: int, name: str) -> bytes:
    """Ask a resolver for the TXT records of a name."""
    return DnsMessage(number, _RECURSION_DESIRED, ((name_of(name), TXT),)).encode()


def is_truncated(data: bytes) -> bool:
    """Whether an answer says that it did not fit, so that it must be asked for over TCP."""
    return len(data) >= _HEAD_BYTES and bool(int.from_bytes(data[2:4]) & _TRUNCATED)


def decode_texts(number: int, data: bytes) -> list[str]:
    """The TXT records of the answer to this question; DecodeError if it is none."""
    message = DnsMessage.decode(data)
    if message.number != number or not message.flags & IS_ANSWER:
        raise DecodeError("bad-dns", "not the answer to our question")
    if failure := message.flags & 0xF:
        raise DecodeError("no-such-name" if failure == 3 else "bad-dns", f"DNS error {failure}")
    return [
        b"".join(record.texts).decode("ascii", "replace")
        for record in message.answers
        if record.kind == TXT
    ]


def _read_record(data: bytes, place: int) -> tuple[Record, int]:
    """A record, and where the next one begins."""
    name, place = _read_name(data, place)
    if place + 10 > len(data):
        raise DecodeError("truncated", "a DNS record ends in its head")
    kind = int.from_bytes(data[place : place + 2])
    seconds = int.from_bytes(data[place + 4 : place + 8])
    end = place + 10 + int.from_bytes(data[place + 8 : place + 10])
    if end > len(data):
        raise DecodeError("truncated", "a DNS record ends in its data")
    value = data[place + 10 : end]
    if kind == PTR:
        value = encode_name(_read_name(data[:end], place + 10)[0])
    elif kind == TXT:
        at = 0
        while at < len(value):
            at += 1 + value[at]
        if at > len(value):
            raise DecodeError("truncated", "a TXT record ends in a string")
    return Record(name, kind, seconds, value), end


def _read_name(data: bytes, place: int) -> tuple[Name, int]:
    """A name, and where what follows it begins."""
    labels: list[bytes] = []
    length, limit, after = 1, place, 0
    while place < len(data):
        size = data[place]
        if size >= _POINTER:
            after = after or place + 2
            place = int.from_bytes(data[place : place + 2]) & 0x3FFF
            if place >= limit or after > len(data):
                raise DecodeError("bad-dns", "a name that points forwards")
            limit = place
            continue
        place += 1 + size
        if size == 0:
            return tuple(labels), after or place
        length += 1 + size
        if size > 63 or length > _MAX_NAME_BYTES or place > len(data):
            raise DecodeError("bad-dns", "a name that is too long")
        labels.append(data[place - size : place].lower())
    raise DecodeError("truncated", "a DNS message ends in a name")
