"""The key space: where peers and keys stand, and how far apart two of them are.

A position is the SHA-256 of a peer id or a key, read as a number; the distance of two positions is
their exclusive or. Peers of the same bucket share the same number of leading bits with us.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Final

from rumormill.core.randomness import Randomness

BITS: Final = 256


@lru_cache(maxsize=1 << 15)
def position(name: bytes) -> int:
    """Where a peer id or a key stands."""
    return int.from_bytes(sha256(name).digest())


def distance(a: bytes, b: bytes) -> int:
    """How far apart two names stand: the exclusive or of their SHA-256."""
    return position(a) ^ position(b)


def shared_bits(a: int, b: int) -> int:
    """How many leading bits two positions share; 256 when they are equal."""
    return BITS - (a ^ b).bit_length()


def key_in_bucket(own: int, bucket: int, randomness: Randomness) -> bytes | None:
    """Find a random key whose position shares exactly `bucket` leading bits with ours.

    Hashes cannot be chosen, so keys are tried: 2^(bucket + 1) of them on average. None where luck
    fails eight times over.
    """
    shift = BITS - bucket - 1
    wanted = (own >> shift) ^ 1
    seed = randomness.randbytes(24)
    for attempt in range(8 << (bucket + 1)):
        key = seed + attempt.to_bytes(8)
        if int.from_bytes(sha256(key).digest()) >> shift == wanted:
            return key
    return None
