"""What is kept of a batch that is too much for the disk."""

import math

from hypothesis import given
from hypothesis import strategies as st

from rumormill.log.model import StoredEvent
from rumormill.node.rescue import Rescue

Taken = tuple[StoredEvent, None]


def batch_of(sizes: list[int]) -> list[Taken]:
    return [
        (StoredEvent("t", b"%d" % number, b"", bytes(size), 0.0), None)
        for number, size in enumerate(sizes)
    ]


def rescued(sizes: list[int], room: int) -> tuple[list[int], list[int], int]:
    """Store on a disk with so much room; return what was kept, what was lost, and how many tries.

    An append is stored whole or not at all.
    """
    lost: list[Taken] = []
    kept: list[Taken] = []
    tries = 0
    rescue = Rescue(batch_of(sizes), lost.extend)
    while piece := rescue.next_piece():
        tries += 1
        size = sum(len(event.data) for event, _ in piece)
        if size <= room:
            room -= size
            kept += piece
        else:
            rescue.did_not_fit(piece)
    return [int(event.id) for event, _ in kept], [int(event.id) for event, _ in lost], tries


@given(st.lists(st.integers(0, 50), min_size=2, max_size=40), st.integers(0, 500))
def test_as_much_is_kept_as_if_each_event_had_come_alone(sizes: list[int], room: int) -> None:
    """In the order of the batch; every event is kept or lost, once."""
    kept, lost, tries = rescued(sizes, room)
    expected = []
    for number, size in enumerate(sizes):
        if size <= room:
            room -= size
            expected.append(number)
    assert kept == expected
    assert sorted(kept + lost) == list(range(len(sizes)))
    assert tries <= 2 * len(sizes)


@given(st.integers(2, 5000), st.integers(0, 5000))
def test_a_full_disk_is_not_asked_for_every_event(count: int, room: int) -> None:
    """With events of one size, about two tries for each time that the batch can be halved."""
    kept, _, tries = rescued([1] * count, room)
    assert len(kept) == min(count, room)
    assert tries <= 2 * math.ceil(math.log2(count)) + 2


def test_what_was_not_tried_is_told_when_the_log_fails() -> None:
    """Nothing disappears between the pieces."""
    rescue = Rescue(batch_of([1] * 8), lambda _: None)
    piece = rescue.next_piece()
    assert [event.id for event, _ in piece + rescue.rest()] == [b"%d" % n for n in range(8)]
    assert rescue.next_piece() == []
