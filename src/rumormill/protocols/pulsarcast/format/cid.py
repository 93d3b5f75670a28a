"""CIDs, of the one kind that Pulsarcast uses: version 1, dag-cbor, SHA-256; 36 bytes.

Inside rumormill a CID is plain bytes. People see it in base58btc (`zdpu…`), as the JavaScript
original shows it; base32 (`bafy…`), the form that IPFS tools prefer, is read as well.
"""

import hashlib
from functools import lru_cache
from typing import Final

from rumormill.core.errors import DecodeError
from rumormill.wire import base32, base58

PREFIX: Final = b"\x01\x71\x12\x20"
"""CIDv1, multicodec dag-cbor, multihash sha2-256 of 32 bytes."""

LENGTH: Final = 36
"""Bytes of a CID: the prefix and the hash."""

TAIL: Final = 8
"""Bytes of it that neighbours compare. Nobody finds another's in 2^63 tries; who makes two events
of his own with one tail, after 2^32, only hides one of them."""


def of(block: bytes) -> bytes:
    """The CID of a dag-cbor block."""
    return PREFIX + hashlib.sha256(block).digest()


def is_cid(data: bytes) -> bool:
    """Whether bytes are a CID of our kind."""
    return len(data) == LENGTH and data.startswith(PREFIX)


def check(data: bytes) -> bytes:
    """Return the bytes of a CID, or raise `DecodeError` for anything else."""
    if not is_cid(data):
        raise DecodeError("bad-cid", "not a CIDv1 of dag-cbor with SHA-256")
    return data


def tail(cid: bytes) -> bytes:
    """The end of a CID, which tells it apart from all others of a topic."""
    return cid[-TAIL:]


@lru_cache(maxsize=4096)
def text(cid: bytes) -> str:
    """Write a CID in base58btc. Topics are named so on every path, hence the memory."""
    return "z" + base58.encode(cid)


def text32(cid: bytes) -> str:
    """Write a CID in base32."""
    return "b" + base32.encode(cid)


def parse(written: str) -> bytes:
    """Read a CID in base58btc or base32; of each there is one right way to write it."""
    if len(written) > base58.MAX_TEXT_LENGTH:
        raise DecodeError("bad-cid", f"a CID has at most {base58.MAX_TEXT_LENGTH} characters")
    if written.startswith("z"):
        data = base58.decode(written[1:])
    elif written.startswith("b"):
        data = base32.decode(written[1:])
    else:
        raise DecodeError("bad-cid", "a CID starts with z (base58btc) or b (base32)")
    return check(data)
