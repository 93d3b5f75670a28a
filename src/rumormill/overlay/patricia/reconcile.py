"""How two owners of tries find out what each lacks, without naming what both have.

One names a node of its trie by label and hash (`Summary`); the other compares it with its own
(`compare`) and answers with what follows: nothing when the hashes are equal, its two children when
they are not, and when it has no such node, the prefixes under which it lacks every key, with the
one subtree that it has in that place. Answers are compared in turn by the first. Every step leads
one level down, so d differing keys cost O(d log n) nodes, whatever n is (Feldmann, Kolb,
Scheideler, Strothmann: Self-Stabilizing Supervised Publish-Subscribe Systems, section 4.2).
"""

from typing import Any

import msgspec

from rumormill.overlay.patricia.prefix import Prefix
from rumormill.overlay.patricia.trie import (
    EMPTY_HASH,
    Fork,
    Node,
    PatriciaTrie,
    Summary,
    keys_below,
    node_hash,
)


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """What follows from comparing one node of another trie with ours."""

    nodes: tuple[Summary, ...] = ()
    """Nodes of ours that the other side should compare next."""
    missing: Prefix | None = None
    """Every key with this prefix is missing here, and the other side has some."""


EQUAL = Comparison()


def compare(trie: PatriciaTrie[Any], theirs: Summary) -> Comparison:
    """Compare a node that another trie has with ours.

    The three cases of the paper: equal hashes, different hashes, and no such node here. A trie
    without keys names itself by the empty label and `EMPTY_HASH`, and lacks everything.
    """
    label = theirs.label
    node = trie.below(label)
    if node is None:
        return EQUAL if theirs.hash == EMPTY_HASH else Comparison(missing=label)
    if isinstance(node, bytes):
        if trie.bits == label.length:
            return EQUAL  # the same key; a different hash of it would be no difference of sets
    elif node.length == label.length:
        if node_hash(node) == theirs.hash:
            return EQUAL
        return Comparison((trie.summary(node.zero), trie.summary(node.one)))
    key = node if isinstance(node, bytes) else node.key
    ours = key[label.length >> 3] & 0x80 >> (label.length & 7)
    if theirs.hash == EMPTY_HASH:
        return Comparison((trie.summary(node),))
    return Comparison((trie.summary(node),), label.extended(0 if ours else 1))


def differences(
    first: PatriciaTrie[Any], second: PatriciaTrie[Any]
) -> tuple[list[bytes], list[bytes]]:
    """Return the keys that only `first` has and those that only `second` has, each in order.

    Both tries are at hand, so equal subtrees are passed over and everything else is looked at.
    """
    if first.bits != second.bits:
        raise ValueError("only tries with keys of one length can be compared")
    only_first: list[bytes] = []
    only_second: list[bytes] = []
    pairs: list[tuple[Node | None, Node | None]] = [(first.root, second.root)]
    while pairs:
        mine, other = pairs.pop()
        if mine is None:
            only_second += () if other is None else keys_below([other])
        elif other is None:
            only_first += keys_below([mine])
        elif node_hash(mine) != node_hash(other):
            pairs += reversed(_parted(first, mine, second, other))
    return only_first, only_second


def _parted(
    first: PatriciaTrie[Any], mine: Node, second: PatriciaTrie[Any], other: Node
) -> list[tuple[Node | None, Node | None]]:
    """Split two unlike nodes into smaller pairs, in the order of keys."""
    label, others = first.label(mine), second.label(other)
    if isinstance(mine, Fork) and isinstance(other, Fork) and label == others:
        return [(mine.zero, other.zero), (mine.one, other.one)]
    if isinstance(mine, Fork) and label.length < others.length and label.covers(others.bits):
        if others.bits[mine.byte] & mine.mask:
            return [(mine.zero, None), (mine.one, other)]
        return [(mine.zero, other), (mine.one, None)]
    if isinstance(other, Fork) and others.length < label.length and others.covers(label.bits):
        if label.bits[other.byte] & other.mask:
            return [(None, other.zero), (mine, other.one)]
        return [(mine, other.zero), (None, other.one)]
    return [(mine, None), (None, other)]
