"""Labels, against the words of sections 2.1 and 3.2.2 and against Definition 2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipring_definition import label as defined_label
from skipring_definition import position, skip_ring

from rumormill.core.errors import DecodeError
from rumormill.protocols.skipring.labels import (
    CIRCLE,
    LABEL_BITS,
    chain,
    label_of,
    length_of,
    number_of,
    parse_label,
    ring_neighbours,
    text_of,
)


def test_labels_are_generated_in_the_order_of_the_paper() -> None:
    """Section 2.1: "Labels are generated in the order: 0, 1, 01, 11, 001, 011, 101, 111, 0001"."""
    listed = ["0", "1", "01", "11", "001", "011", "101", "111", "0001"]
    assert [text_of(label_of(x)) for x in range(9)] == listed


@given(st.integers(0, (1 << LABEL_BITS) - 1))
def test_l_is_invertible(number: int) -> None:
    """Section 2.1: "Note that l is invertible"."""
    label = label_of(number)
    assert number_of(label) == number
    assert parse_label(text_of(label)) == label
    assert text_of(label) == defined_label(number)
    assert length_of(label) == len(defined_label(number))
    assert label / CIRCLE == pytest.approx(float(position(text_of(label))))


@pytest.mark.parametrize("text", ["", "10", "00", "2", "0b1", "1" * 63, "-1", " 1", "1_1"])
def test_what_no_number_has_is_no_label(text: str) -> None:
    """A label other than 0 ends in the leading bit of its number, which is 1."""
    with pytest.raises(DecodeError, match="bad-label"):
        parse_label(text)


def test_the_example_of_the_paper() -> None:
    """Section 3.2.2: 1/4 with the neighbours 3/16 and 5/16 has shortcuts 1/8, 0 and 3/8, 1/2."""
    unit = CIRCLE // 16
    assert chain(4 * unit, 3 * unit)[1:] == [2 * unit, 0]
    assert chain(4 * unit, 5 * unit)[1:] == [6 * unit, 8 * unit]


@pytest.mark.parametrize("n", [*range(1, 70), 127, 128, 129, 500])
def test_neighbours_and_shortcuts_are_those_of_definition_2(n: int) -> None:
    """All links of all subscribers follow from n, and the shortcuts from the ring neighbours."""
    for text, links in skip_ring(n).items():
        label = parse_label(text)
        before, behind = ring_neighbours(label, n)
        if n == 1:
            assert (before, behind) == (label, label)
            continue
        assert text_of(before) == (links.left or links.ring)
        assert text_of(behind) == (links.right or links.ring)
        linked = {text_of(each) for each in (*chain(label, before), *chain(label, behind))}
        assert linked - {text} == links.everybody


@given(st.integers(0, CIRCLE - 1), st.integers(0, CIRCLE - 1))
def test_any_two_labels_have_a_chain_that_ends(label: int, neighbour: int) -> None:
    """However false the labels are, there are at most as many shortcuts as a label has bits."""
    links = chain(label, neighbour)
    assert len(links) <= LABEL_BITS + 1
    assert length_of(links[-1]) <= length_of(label)
