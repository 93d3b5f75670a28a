"""base58btc: the text form of peer ids and old CIDs.

Decoding is quadratic in the length, so the length is bounded before the first digit is read.
"""

from rumormill.core.errors import DecodeError

MAX_TEXT_LENGTH = 128
"""Our choice: the longest peer id has 61 digits, a CIDv0 has 46."""

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {digit: value for value, digit in enumerate(_ALPHABET)}


def encode(data: bytes) -> str:
    """Write bytes in base58btc; each leading zero byte is one leading `1`."""
    number = int.from_bytes(data)
    digits = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_ALPHABET[digit])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(digits))


def decode(text: str) -> bytes:
    """Read base58btc of at most `MAX_TEXT_LENGTH` digits."""
    if len(text) > MAX_TEXT_LENGTH:
        raise DecodeError("oversized", f"base58 text of more than {MAX_TEXT_LENGTH} digits")
    number = 0
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            raise DecodeError("bad-base58", f"{character!r} is not a base58 digit")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8)
