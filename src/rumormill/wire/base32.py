"""base32 in lower case without padding, as CIDs are written behind the letter `b`."""

import base64
import binascii

from rumormill.core.errors import DecodeError


def encode(data: bytes) -> str:
    """Write bytes in base32."""
    return base64.b32encode(data).decode().rstrip("=").lower()


def decode(text: str) -> bytes:
    """Read base32; of each value there is one right way to write it."""
    try:
        data = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise DecodeError("bad-base32", "not lower-case base32") from None
    if encode(data) != text:
        raise DecodeError("not-canonical", "base32 with stray bits or capitals")
    return data
