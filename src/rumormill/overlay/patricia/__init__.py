"""A Merkle-hashed Patricia trie: sets that two peers can compare by talking only of differences.

`trie` is the set itself, `prefix` names its nodes, `reconcile` is what two owners say to each
other until their sets are equal. It knows nothing of publications, topics or messages, so any
protocol may reconcile any history with it.
"""

from rumormill.overlay.patricia.prefix import EVERYTHING, Prefix, prefix_of
from rumormill.overlay.patricia.reconcile import Comparison, compare
from rumormill.overlay.patricia.trie import (
    EMPTY_HASH,
    HASH_BYTES,
    PatriciaTrie,
    Summary,
    inner_hash,
    leaf_hash,
)

__all__ = [
    "EMPTY_HASH",
    "EVERYTHING",
    "HASH_BYTES",
    "Comparison",
    "PatriciaTrie",
    "Prefix",
    "Summary",
    "compare",
    "inner_hash",
    "leaf_hash",
    "prefix_of",
]
