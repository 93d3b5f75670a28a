"""Reconciliation by `compare`: both sides end with the union, at the differences' cost alone."""

import hashlib
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rumormill.overlay.patricia import (
    EMPTY_HASH,
    PatriciaTrie,
    Prefix,
    Summary,
    compare,
    inner_hash,
    leaf_hash,
)


def trie_of(words: list[str]) -> PatriciaTrie:
    trie = PatriciaTrie(len(words[0]) if words else 8)
    for word in words:
        trie.insert(Prefix.parse(word).bits)
    return trie


def exchange(asker: PatriciaTrie, other: PatriciaTrie) -> tuple[int, int]:
    """One chain that `asker` starts; return how many nodes were named and how many keys moved.

    Lists of nodes go to and fro; a missing prefix is answered with the keys under it.
    """
    named = moved = 0
    here, there = other, asker
    waiting = deque([[asker.root_summary()]])
    while waiting:
        nodes = waiting.popleft()
        named += len(nodes)
        answer: list[Summary] = []
        wanted: list[Prefix] = []
        for node in nodes:
            comparison = compare(here, node)
            answer += comparison.nodes
            if comparison.missing is not None:
                wanted.append(comparison.missing)
        for prefix in wanted:
            for found in list(there.keys(prefix)):
                moved += here.insert(found)
        if answer:
            waiting.append(answer)
        here, there = there, here
    return named, moved


bytes_sets = st.sets(st.integers(0, 255), max_size=40)


@given(bytes_sets, bytes_sets)
@settings(max_examples=300)
def test_alternating_chains_make_both_sides_equal(first: set[int], second: set[int]) -> None:
    """Claim 21: whichever side must start for a difference to be found, its turn comes."""
    mine, others = (
        trie_of([f"{number:08b}" for number in sorted(numbers)]) for numbers in (first, second)
    )
    for _ in range(2 * 40):
        if mine.root_hash == others.root_hash:
            break
        exchange(mine, others)
        exchange(others, mine)
    assert [*mine.keys()] == [*others.keys()] == [bytes((n,)) for n in sorted(first | second)]


@given(bytes_sets)
def test_an_empty_side_gets_everything_whoever_starts(numbers: set[int]) -> None:
    """A trie without keys names the empty label and hash, and one exchange fills it."""
    for empty_starts in (True, False):
        full = trie_of([f"{number:08b}" for number in sorted(numbers)])
        empty = PatriciaTrie(8)
        named, moved = exchange(empty, full) if empty_starts else exchange(full, empty)
        assert empty.root_hash == full.root_hash
        assert moved == len(numbers)
        assert named <= 4


def test_two_empty_tries_have_nothing_to_say() -> None:
    """Both sides empty is the first state of every topic."""
    one = PatriciaTrie(8)
    comparison = compare(one, PatriciaTrie(8).root_summary())
    assert comparison.nodes == ()
    assert comparison.missing is None


def test_the_three_cases_of_section_4_2() -> None:
    """Equal hashes end it; unequal ones lead to the children; a missing node names what lacks."""
    trie = trie_of(["000", "010", "100"])
    zero = inner_hash(leaf_hash(b"\x00"), leaf_hash(b"\x40"))
    children = (
        Summary(Prefix.parse("0"), zero),
        Summary(Prefix.parse("100"), leaf_hash(b"\x80")),
    )
    case_i = compare(trie, trie.root_summary())
    assert (case_i.nodes, case_i.missing) == ((), None)
    case_ii = compare(trie, Summary(Prefix(), b"other".ljust(32)))
    assert (case_ii.nodes, case_ii.missing) == (children, None)
    case_iii = compare(trie, Summary(Prefix.parse("10"), b"other".ljust(32)))
    assert (case_iii.nodes, case_iii.missing) == (children[1:], Prefix.parse("101"))
    no_such_subtree = compare(trie, Summary(Prefix.parse("11"), b"other".ljust(32)))
    assert (no_such_subtree.nodes, no_such_subtree.missing) == ((), Prefix.parse("11"))


def test_a_leaf_is_never_asked_about_twice() -> None:
    """A lie about the hash of a key that we have, or about an empty trie, leads nowhere."""
    trie = trie_of(["000", "010", "100"])
    for label in ("000", "100"):
        lie = compare(trie, Summary(Prefix.parse(label), bytes(31) + b"x"))
        assert (lie.nodes, lie.missing) == ((), None)
    nothing = compare(trie, Summary(Prefix.parse("11"), EMPTY_HASH))
    assert (nothing.nodes, nothing.missing) == ((), None)
    too_long = compare(trie, Summary(Prefix.parse("0000"), bytes(31) + b"x"))
    assert too_long.nodes == ()


@pytest.mark.parametrize("differing", [1, 4, 16])
def test_the_cost_is_the_differences_times_the_depth(differing: int) -> None:
    """d differing keys of n cost O(d log n) nodes, not O(n)."""
    count = 4096
    keys = [hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(count)]
    mine = PatriciaTrie()
    others = PatriciaTrie()
    for place, key in enumerate(keys):
        mine.insert(key)
        if place >= differing:
            others.insert(key)
    named = moved = 0
    for starter, other in ((mine, others), (others, mine)):
        nodes, keys_moved = exchange(starter, other)
        named += nodes
        moved += keys_moved
    assert moved == differing
    assert mine.root_hash == others.root_hash
    depth = count.bit_length()
    assert named <= 4 * differing * depth
