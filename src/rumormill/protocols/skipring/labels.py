"""Labels: where a subscriber stands on the ring, and whom it must know there.

The supervisor numbers subscribers 0, 1, 2, ...; the label l(x) moves the leading bit of x to the
units place (section 2.1): 0, 1, 01, 11, 001, 011, ... Read as a binary fraction, r(l(x)), each new
label falls midway between two old ones.

A label is held as that fraction in units of 2^-62, an `int`. Each such number stands for exactly
one label, so there is no malformed label; comparing labels is comparing numbers, and the length of
a label is where its last one bit stands. Everything here is a function of labels alone.
"""

from typing import Final, TypeAlias

from rumormill.core.errors import DecodeError

Label: TypeAlias = int

LABEL_BITS: Final = 62
"""The longest label. Our choice: a label and its number fit 63 bits, and no ring has 2^62 nodes."""
CIRCLE: Final = 1 << LABEL_BITS
"""The whole way round, r = 1."""


def label_of(number: int) -> Label:
    """l(x): the label of the subscriber with this number."""
    if not number:
        return 0
    length = number.bit_length()
    return (2 * number + 1 - (1 << length)) << (LABEL_BITS - length)


def number_of(label: Label) -> int:
    """The inverse of `label_of`."""
    if not label:
        return 0
    length = length_of(label)
    return (label >> (LABEL_BITS - length + 1)) | (1 << (length - 1))


def length_of(label: Label) -> int:
    """|label|: the number of bits in which a label is written."""
    if not label:
        return 1
    return LABEL_BITS + 1 - (label & -label).bit_length()


def text_of(label: Label) -> str:
    """A label as the paper writes it, a string of bits."""
    return f"{label:0{LABEL_BITS}b}"[: length_of(label)]


def parse_label(text: str) -> Label:
    """Read a string of bits; refuse one that is no label."""
    if not 0 < len(text) <= LABEL_BITS or text.strip("01") or (text[-1] == "0" and text != "0"):
        raise DecodeError("bad-label", f"{text!r} is not a label")
    return int(text, 2) << (LABEL_BITS - len(text))


def ring_neighbours(label: Label, count: int) -> tuple[Label, Label]:
    """The labels before and behind a label in the ring of `count` subscribers; itself when alone.

    With L the length of the longest label, the labels are the even multiples of 2^-L, and the odd
    ones up to the last number given out.
    """
    if count <= 1:
        return label, label
    length = (count - 1).bit_length()
    shift = LABEL_BITS - length
    odd = 2 * count - (1 << length)  # the odd multiples below this one are taken
    whole = (1 << length) - 1
    place = label >> shift
    before, behind = (place - 1) & whole, (place + 1) & whole
    if before & 1 and before >= odd:
        before = (before - 1) & whole
    if behind & 1 and behind >= odd:
        behind = (behind + 1) & whole
    return before << shift, behind << shift


def chain(label: Label, neighbour: Label) -> list[Label]:
    """The labels of the links on one side, from the ring neighbour to the farthest shortcut.

    Section 3.2.2: a neighbour w with a longer label than v was inserted midway between v and
    2·r(w) - r(v), so v has a shortcut there; and so on while labels are longer than v's own.
    The last one is v's neighbour on that side in the ring of labels that are not longer than v's.
    """
    links = [neighbour]
    # A label is no longer than v's exactly when it is a multiple of v's last one bit.
    finer = (label & -label or CIRCLE >> 1) - 1
    while neighbour & finer:
        neighbour = (2 * neighbour - label) % CIRCLE
        links.append(neighbour)
    return links
