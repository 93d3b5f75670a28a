"""Prefixes of keys: the labels of a trie's nodes, and what publications are asked for by.

A prefix is some bits from the left of a key. It is held as whole bytes, whose bits behind the
prefix are zero, and the number of bits, so that equal prefixes are equal values.
"""

import msgspec

_KEEP = tuple(0xFF00 >> bits & 0xFF for bits in range(8))
"""By number of bits: the mask that keeps so many on the left of a byte."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The first `length` bits of a key, padded with zero bits to whole bytes."""

    bits: bytes = b""
    length: int = 0

    @classmethod
    def parse(cls, text: str) -> "Prefix":
        """Read a prefix as papers write it: a string of zeros and ones."""
        length = len(text)
        padded = text + "0" * (-length % 8)
        return cls(int(padded or "0", 2).to_bytes(len(padded) // 8, "big"), length)

    def __str__(self) -> str:
        whole = int.from_bytes(self.bits, "big")
        return f"{whole:0{8 * len(self.bits)}b}"[: self.length] if self.length else ""

    @property
    def well_formed(self) -> bool:
        """Whether the bytes fit the length and everything behind the prefix is zero."""
        bits, length = self.bits, self.length
        if length < 0 or len(bits) != (length + 7) >> 3:
            return False
        return not length & 7 or not bits[-1] & ~_KEEP[length & 7]

    def extended(self, bit: int) -> "Prefix":
        """Return the prefix that is one bit longer."""
        bits, length = self.bits, self.length
        place = length & 7
        if not place:
            return Prefix(bits + (b"\x80" if bit else b"\x00"), length + 1)
        if not bit:
            return Prefix(bits, length + 1)
        return Prefix(bits[:-1] + bytes((bits[-1] | 0x80 >> place,)), length + 1)

    def covers(self, key: bytes) -> bool:
        """Whether `key`, which has at least as many bits, starts with this prefix."""
        return first_bits(key, self.length) == self.bits


def first_bits(key: bytes, length: int) -> bytes:
    """Return the bytes of the prefix of `length` bits."""
    rest = length & 7
    if not rest:
        return key[: length >> 3]
    whole = length >> 3
    return key[:whole] + bytes((key[whole] & _KEEP[rest],))


def prefix_of(key: bytes, length: int) -> Prefix:
    """Return the first `length` bits of a key that has at least so many."""
    return Prefix(first_bits(key, length), length)


EVERYTHING = Prefix()
"""The prefix of all keys."""
