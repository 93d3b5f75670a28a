"""How two owners of tries find out what each lacks, without naming what both have.

One names a node of its trie by label and hash (`Summary`); the other compares it with its own
(`compare`) and answers with what follows: nothing when the hashes are equal, its two children when
they are not, and when it has no such node, the prefixes under which it lacks every key, with the
one subtree that it has in that place. Answers are compared in turn by the first. Every step leads
one level down, so d differing keys cost O(d log n) nodes, whatever n is (Feldmann, Kolb,
Scheideler, Strothmann: Self-Stabilizing Supervised Publish-Subscribe Systems, section 4.2).
"""

import msgspec

from rumormill.overlay.patricia.prefix import Prefix
from rumormill.overlay.patricia.trie import EMPTY_HASH, PatriciaTrie, Summary, node_hash


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """What follows from comparing one node of another trie with ours."""

    nodes: tuple[Summary, ...] = ()
    """Nodes of ours that the other side should compare next."""
    missing: Prefix | None = None
    """Every key with this prefix is missing here, and the other side has some."""


EQUAL = Comparison()


def compare(trie: PatriciaTrie, theirs: Summary) -> Comparison:
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
