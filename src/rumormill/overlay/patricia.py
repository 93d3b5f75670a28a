"""A Merkle-hashed Patricia trie: sets that two peers can compare by talking only of differences.

It is a set of keys of equal length whose every subtree has a hash. A Patricia trie keeps one inner
node for each place where two keys part, and none elsewhere, so n keys make n leaves and n - 1 inner
nodes. A node's label is the longest prefix that all keys below it share; a leaf's label is its key.
The hash of a leaf is taken over its key and that of an inner node over its children's hashes, as in
a Merkle tree: two nodes with equal hashes have the same keys below them. The shape follows from the
set of keys alone, whatever the order of insertion, and so do all the hashes.

Leaves are the keys themselves, without an object of their own. Hashes are computed when they are
asked for and forgotten along one path by an insertion; a node without a hash has no ancestor with
one, so forgetting stops early and loading many keys costs no hashing at all. Who has loaded many
computes their hashes in pieces (`hash_some`) before it asks for the root's.

Two owners find out what each lacks without naming what both have. One names a node of its trie by
label and hash (`Summary`); the other compares it with its own (`compare`) and answers with what
follows: nothing when the hashes are equal, its two children when they are not, and when it has no
such node, the prefixes under which it lacks every key, with the one subtree that it has in that
place. Answers are compared in turn by the first. Every step leads one level down, so d differing
keys cost O(d log n) nodes, whatever n is (Feldmann, Kolb, Scheideler, Strothmann: Self-Stabilizing
Supervised Publish-Subscribe Systems, section 4.2). Nothing here knows of publications, topics or
messages, so any protocol may reconcile any history with it.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias

import msgspec

HASH_BYTES: Final = 32
"""SHA-256: collisions are out of reach, so equal hashes may be taken for equal sets even where
the other side may choose its keys."""

EMPTY_HASH: Final = bytes(HASH_BYTES)
"""The hash of the trie without keys, which has no node that could have one."""

MAX_BITS: Final = 512
"""Our choice: the depth of a trie is at most the bits of a key, and hashing recurses that deep."""

_INNER = b"\x01"
_LEAF = b"\x00"

_KEEP = tuple(0xFF00 >> bits & 0xFF for bits in range(8))
"""By number of bits: the mask that keeps so many on the left of a byte."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The first `length` bits of a key: a node's label, and what keys are asked for by.

    Bits behind the prefix are zero up to whole bytes, so that equal prefixes are equal values.
    """

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


class Fork(msgspec.Struct, gc=False):
    """An inner node: the place where the keys below it part for the first time."""

    length: int
    """Bits of the label, and so the place of the bit that decides between the children."""
    byte: int
    mask: int
    """Where that bit lies in a key."""
    key: bytes
    """Any key below: the label is its prefix."""
    zero: "Node"
    one: "Node"
    hash: bytes | None = None


Node: TypeAlias = bytes | Fork
"""A leaf is its key."""


class Summary(msgspec.Struct, frozen=True, gc=False):
    """A node as one peer names it to another: its label and its hash, without its children."""

    label: Prefix
    hash: bytes


def leaf_hash(key: bytes) -> bytes:
    """The hash of a leaf; the byte in front keeps it apart from any inner node's."""
    return hashlib.sha256(_LEAF + key).digest()


def inner_hash(zero: bytes, one: bytes) -> bytes:
    """The hash of an inner node from its children's hashes, the child with the zero bit first."""
    return hashlib.sha256(_INNER + zero + one).digest()


def node_hash(node: Node) -> bytes:
    """The hash of a node: computed where it is not known, and kept."""
    if isinstance(node, bytes):
        return leaf_hash(node)
    known = node.hash
    if known is None:
        known = node.hash = inner_hash(node_hash(node.zero), node_hash(node.one))
    return known


class PatriciaTrie:
    """A set of keys of `bits` bits, which can be compared with others by hashes.

    Keys are given as whole bytes; bits behind the last one of a key must be zero.
    """

    __slots__ = ("_keys", "_root", "_size", "bits")

    def __init__(self, bits: int = 256) -> None:
        if not 1 <= bits <= MAX_BITS:
            raise ValueError(f"keys have 1 to {MAX_BITS} bits, not {bits}")
        self.bits = bits
        self._size = (bits + 7) // 8
        self._root: Node | None = None
        self._keys: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    @property
    def root_hash(self) -> bytes:
        """The hash over all keys: equal for equal sets, and for no others."""
        root = self._root
        return EMPTY_HASH if root is None else node_hash(root)

    def hash_some(self, most: int) -> bool:
        """Compute at most so many hashes of inner nodes; return whether all are known now."""
        unknown = _unhashed(self._root)
        while unknown:
            below = _unhashed(unknown[-1].zero, unknown[-1].one)
            if below:
                unknown += below
            elif not most:
                return False
            else:
                most -= 1
                node_hash(unknown.pop())
        return True

    def insert(self, key: bytes) -> bool:
        """Add a key; return whether it is new."""
        if key in self._keys:
            return False
        self._check(key)
        self._keys[key] = None
        node = self._root
        if node is None:
            self._root = key
            return True
        path: list[Fork] = []
        while type(node) is Fork:
            path.append(node)
            node = node.one if key[node.byte] & node.mask else node.zero
        # The keys on the way agree with ours in the bits that were looked at; where the first of
        # all bits differs decides at which height of that way the new fork stands.
        differing = int.from_bytes(key, "big") ^ int.from_bytes(node, "big")  # type: ignore[arg-type]
        length = 8 * self._size - differing.bit_length()
        while path and path[-1].length > length:
            node = path.pop()
        byte, mask = length >> 3, 0x80 >> (length & 7)
        if key[byte] & mask:
            fork = Fork(length, byte, mask, key, node, key)
        else:
            fork = Fork(length, byte, mask, key, key, node)
        if not path:
            self._root = fork
            return True
        parent = path[-1]
        if key[parent.byte] & parent.mask:
            parent.one = fork
        else:
            parent.zero = fork
        for above in reversed(path):
            if above.hash is None:
                break
            above.hash = None
        return True

    def _check(self, key: bytes) -> None:
        unused = -self.bits % 8
        if len(key) != self._size or (unused and key[-1] & (1 << unused) - 1):
            raise ValueError(f"a key has {self.bits} bits in {self._size} bytes")

    def summary(self, node: Node) -> Summary:
        """Return a node as it is named to others: by what all keys below it start with."""
        if isinstance(node, bytes):
            return Summary(Prefix(node, self.bits), leaf_hash(node))
        return Summary(prefix_of(node.key, node.length), node_hash(node))

    def root_summary(self) -> Summary:
        """Return the root as it is named to others; without keys, the empty label and hash."""
        root = self._root
        return Summary(EVERYTHING, EMPTY_HASH) if root is None else self.summary(root)

    def below(self, prefix: Prefix) -> Node | None:
        """Find the node with the shortest label that starts with `prefix`."""
        node, length, bits = self._root, prefix.length, prefix.bits
        while type(node) is Fork and node.length < length:
            node = node.one if bits[node.byte] & node.mask else node.zero
        if node is None or length > self.bits:
            return None
        key = node.key if isinstance(node, Fork) else node
        return node if first_bits(key, length) == bits else None

    def keys(self, prefix: Prefix = EVERYTHING, after: bytes | None = None) -> Iterator[bytes]:
        """Go through the keys with a prefix in their order, from the first one behind `after`.

        The trie must not change meanwhile.
        """
        node = self.below(prefix)
        stack: list[Node] = [] if node is None else [node]
        if after is not None:
            self._check(after)
            stack = _behind(stack, after)
        return _keys_below(stack)

    def some_keys(self, prefix: Prefix, most: int, after: bytes | None = None) -> list[bytes]:
        """Return the first keys with a prefix behind `after`, at most so many."""
        return list(islice(self.keys(prefix, after), most))


def _unhashed(*nodes: Node | None) -> list[Fork]:
    return [node for node in nodes if isinstance(node, Fork) and node.hash is None]


def _keys_below(stack: list[Node]) -> Iterator[bytes]:
    """Go through the keys below some nodes, the last node first; the list is used up."""
    while stack:
        node = stack.pop()
        while isinstance(node, Fork):
            stack.append(node.one)
            node = node.zero
        yield node


def _behind(stack: list[Node], after: bytes) -> list[Node]:
    """The subtrees of the one in `stack`, last one first, whose keys all lie behind `after`."""
    left: list[Node] = []
    while stack:
        node = stack.pop()
        if isinstance(node, bytes):
            if node > after:
                left.append(node)
            break
        own, theirs = first_bits(node.key, node.length), first_bits(after, node.length)
        if own != theirs:
            if own > theirs:
                left.append(node)
            break
        if after[node.byte] & node.mask:
            stack.append(node.one)
        else:
            left.append(node.one)
            stack.append(node.zero)
    return left


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
