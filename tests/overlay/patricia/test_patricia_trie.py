"""The trie against a plain set: membership, order, prefixes, labels, hashes, differences."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.overlay.patricia import (
    EMPTY_HASH,
    EVERYTHING,
    PatriciaTrie,
    Prefix,
    Summary,
    inner_hash,
    leaf_hash,
    prefix_of,
)

BITS = 10
"""Few enough that keys collide in long prefixes, and no whole number of bytes."""


def key(number: int, bits: int = BITS) -> bytes:
    return Prefix.parse(f"{number:0{bits}b}").bits


def text(own: bytes, bits: int = BITS) -> str:
    return str(Prefix(own, bits))


def built(numbers: list[int]) -> PatriciaTrie:
    trie = PatriciaTrie(BITS)
    for number in numbers:
        trie.insert(key(number))
    return trie


def naive_nodes(words: list[str]) -> dict[str, bytes]:
    """Every node of the trie over `words` by its label, straight from the definition (4.2)."""
    if not words:
        return {}
    if len(words) == 1:
        return {words[0]: leaf_hash(Prefix.parse(words[0]).bits)}
    length = 0
    while len({word[length] for word in words}) == 1:
        length += 1
    zero = naive_nodes([word for word in words if word[length] == "0"])
    one = naive_nodes([word for word in words if word[length] == "1"])
    top = inner_hash(zero[min(zero, key=len)], one[min(one, key=len)])
    return {words[0][:length]: top, **zero, **one}


numbers = st.lists(st.integers(0, 2**BITS - 1), max_size=60)
clustered = st.lists(
    st.one_of(st.integers(0, 2**BITS - 1), st.integers(0, 15), st.integers(512, 519)), max_size=60
)
labels = st.text("01", max_size=BITS)


@given(clustered)
def test_the_trie_is_the_set_that_was_put_in(given_numbers: list[int]) -> None:
    """Insertion says what is new; keys come in their order."""
    trie = PatriciaTrie(BITS)
    model: dict[bytes, None] = {}
    for number in given_numbers:
        assert trie.insert(key(number)) == (key(number) not in model)
        model[key(number)] = None
    assert len(trie) == len(model)
    assert list(trie.keys()) == sorted(model)
    for number in range(2**BITS):
        assert (key(number) in trie) == (key(number) in model)


@given(clustered, st.randoms(use_true_random=False))
def test_labels_and_hashes_follow_from_the_set_alone(given_numbers: list[int], chance) -> None:
    """Section 4.2: labels are longest common prefixes, inner hashes are over the children's hashes.

    Hashes are asked for in the middle of inserting, so that forgetting them is tested too.
    """
    chance.shuffle(given_numbers)
    trie = PatriciaTrie(BITS)
    for number in given_numbers:
        trie.insert(key(number))
        if chance.random() < 0.5:
            assert trie.root_summary().hash == trie.root_hash
    expected = naive_nodes([f"{number:0{BITS}b}" for number in dict.fromkeys(given_numbers)])
    for label, value in expected.items():
        node = trie.below(Prefix.parse(label))
        assert node is not None
        assert trie.summary(node) == Summary(Prefix.parse(label), value)
    top = min(expected, key=len) if expected else ""
    assert trie.root_hash == expected.get(top, EMPTY_HASH)
    assert trie.root_summary().label == Prefix.parse(top)


@given(clustered, clustered)
def test_equal_root_hashes_mean_equal_sets(first: list[int], second: list[int]) -> None:
    """The root hash tells two different sets apart, and never two equal ones."""
    assert (built(first).root_hash == built(second).root_hash) == (set(first) == set(second))


@given(clustered, labels)
def test_a_prefix_finds_the_shortest_label_that_extends_it(given_numbers, prefix: str) -> None:
    """`below` is the paper's node c; `keys` are all with the prefix."""
    trie = built(given_numbers)
    words = sorted({f"{number:0{BITS}b}" for number in given_numbers})
    known = [label for label in naive_nodes(words) if label.startswith(prefix)]
    wanted = Prefix.parse(prefix)
    node = trie.below(wanted)
    label = None if node is None else str(trie.summary(node).label)
    assert label == min(known, key=len, default=None)
    covered = [word for word in words if word.startswith(prefix)]
    assert [text(own) for own in trie.keys(wanted)] == covered
    assert all(prefix_of(own, wanted.length) == wanted for own in trie.keys(wanted))


@given(clustered, labels, st.integers(0, 2**BITS - 1), st.integers(0, 8))
def test_keys_go_on_behind_any_key(given_numbers, prefix: str, last: int, most: int) -> None:
    """A listing that was cut off continues behind its last key, whether or not that is there."""
    trie = built(given_numbers)
    wanted = Prefix.parse(prefix)
    behind = [own for own in trie.keys(wanted) if own > key(last)]
    assert list(trie.keys(wanted, key(last))) == behind
    assert trie.some_keys(wanted, most, key(last)) == behind[:most]


@given(clustered, st.integers(1, 5))
def test_hashes_can_be_computed_in_pieces(given_numbers: list[int], most: int) -> None:
    """Each piece computes so many and no more, and all pieces together compute all, once each."""
    trie = built(given_numbers)
    forks = max(0, len(trie) - 1)
    pieces = 1
    while not trie.hash_some(most):
        assert count_hashed(trie) == most * pieces
        pieces += 1
    assert count_hashed(trie) == forks
    assert pieces == max(1, -(-forks // most))
    assert trie.root_hash == built(given_numbers).root_hash


def count_hashed(trie: PatriciaTrie) -> int:
    nodes = [trie.below(EVERYTHING)]
    hashed = 0
    while nodes:
        node = nodes.pop()
        if node is not None and not isinstance(node, bytes):
            hashed += node.hash is not None
            nodes += [node.zero, node.one]
    return hashed


def test_a_prefix_reads_and_writes_as_bits() -> None:
    """Prefixes of any length have one form, and every other form is recognised as wrong."""
    for word in ("", "0", "1", "01", "11111111", "111111110", "0000000001"):
        prefix = Prefix.parse(word)
        assert str(prefix) == word
        assert prefix.well_formed
        assert str(prefix.extended(0)) == word + "0"
        assert str(prefix.extended(1)) == word + "1"
        assert prefix.extended(0).well_formed
        assert prefix.extended(1).well_formed
    assert str(prefix_of(b"\xff\x00", 9)) == "111111110"
    assert not Prefix(b"\xff", 7).well_formed
    assert not Prefix(b"\xff", 9).well_formed
    assert not Prefix(b"", 1).well_formed
    assert not Prefix(b"\x00", 0).well_formed
    assert not Prefix(b"", -1).well_formed


def test_keys_of_the_wrong_length_are_refused() -> None:
    """A trie has keys of one length; bits behind the last one of a key must be zero."""
    trie = PatriciaTrie(BITS)
    for wrong in (b"", b"\x00", b"\x00\x00\x00", b"\x00\x01"):
        with pytest.raises(ValueError, match="10 bits"):
            trie.insert(wrong)
    with pytest.raises(ValueError, match="bits"):
        PatriciaTrie(0)
    assert len(trie) == 0
    assert trie.root_hash == EMPTY_HASH


def test_the_deepest_trie_can_be_hashed() -> None:
    """Keys that share ever longer prefixes make a trie as deep as a key is long."""
    trie = PatriciaTrie(512)
    for place in range(512):
        trie.insert((1 << place).to_bytes(64, "big"))
    assert len(trie.root_hash) == 32
    assert len(list(trie.keys())) == 512


def test_many_keys_need_few_hashes_again() -> None:
    """An insertion forgets the hashes along one path only."""
    trie = PatriciaTrie()
    for number in range(4000):
        trie.insert(hashlib.sha256(number.to_bytes(4, "big")).digest())
    before = trie.root_hash
    trie.insert(hashlib.sha256(b"one more").digest())
    forgotten = len(trie) - 1 - count_hashed(trie)
    assert 0 < forgotten < 40
    assert trie.root_hash != before
