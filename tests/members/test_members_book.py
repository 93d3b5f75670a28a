"""The book of remembered peers: bounded, fair to groups of addresses, of use after a restart."""

import pytest

from rumormill.core.ids import PeerId
from rumormill.members.book import Book

DAY = 86400.0


def name(number: int) -> PeerId:
    return number.to_bytes(4, "big")


def test_who_was_met_may_be_sought_and_who_failed_rests_ever_longer() -> None:
    book = Book(8)
    book.meet(b"ann", "", 100.0)
    assert book.rested(100.0) == [b"ann"]
    pauses = []
    now = 100.0
    for _ in range(8):
        book.fail(b"ann", now)
        began = now
        while not book.rested(now):
            now += 0.25
        pauses.append(now - began)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0]


def test_a_full_book_forgets_whom_it_tried_in_vain_then_whom_it_has_not_seen_for_longest() -> None:
    book = Book(3)
    for number in range(3):
        book.meet(name(number), "", float(number))
    book.fail(name(2), 10.0)
    book.meet(name(3), "", 20.0)
    assert [each.peer for each in book] == [name(0), name(1), name(3)]
    book.meet(name(4), "", 21.0)
    assert [each.peer for each in book] == [name(1), name(3), name(4)]


def test_one_group_of_addresses_has_an_eighth_of_the_book() -> None:
    """500 ids of one /24 push out each other, and nobody else."""
    book = Book(64)
    for number in range(40):
        book.meet(name(number), f"10.{number}.0.0/24", 0.0)
    for number in range(100, 600):
        book.meet(name(number), "203.0.113.0/24", 1.0 + number)
    assert sum(each.group == "203.0.113.0/24" for each in book) == 8
    assert all(name(number) in book for number in range(40))


def test_peers_without_a_group_have_no_share_to_keep_to() -> None:
    """Private and loopback addresses: a network of one machine or one office."""
    book = Book(64)
    for number in range(64):
        book.meet(name(number), "", 0.0)
    assert len(book) == 64


def test_the_lost_are_missed_in_turn_and_those_who_parted_in_order_are_not() -> None:
    book = Book(8)
    for peer in (b"ann", b"bob", b"carol"):
        book.meet(peer, "", 0.0)
    book.part(b"ann", lost=True, now=1.0)
    book.part(b"bob", lost=True, now=1.0)
    book.part(b"carol", lost=False, now=1.0)
    assert book.lost == 2
    seen = []
    for now in (10.0, 20.0, 30.0):
        peer = book.missed(now)
        assert peer is not None
        book.note_tried(peer, now)
        book.fail(peer, now)
        seen.append(peer)
    assert seen == [b"ann", b"bob", b"ann"]
    book.meet(b"ann", "", 40.0)
    book.meet(b"bob", "", 40.0)
    assert book.missed(100.0) is None


def test_what_is_written_down_is_read_in_the_next_life_with_the_addresses_of_then() -> None:
    book = Book(8)
    book.meet(b"ann", "192.0.2.0/24", 100.0)
    book.meet(b"bob", "", 100.0)
    written = book.written(lambda peer: [peer + b"'s address"])
    assert not book.changed
    later = Book(8)
    found = later.read(written, 200.0)
    assert [(each.peer, each.addresses) for each in found] == [
        (b"ann", (b"ann's address",)),
        (b"bob", (b"bob's address",)),
    ]
    assert later.rested(200.0) == [b"ann", b"bob"]
    assert later.group_of(b"ann") == "192.0.2.0/24"
    # An address that is not known any more is not forgotten.
    assert Book(8).read(later.written(lambda _: []), 200.0)[0].addresses == (b"ann's address",)


def test_who_was_not_seen_for_a_week_is_forgotten() -> None:
    book = Book(8)
    book.meet(b"ann", "", 0.0)
    written = book.written(lambda _: [])
    later = Book(8)
    later.read(written, 8 * DAY)
    assert len(later) == 0
    book.fail(b"ann", 8 * DAY)
    assert b"ann" not in book


@pytest.mark.parametrize("damaged", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x91\x93\x01\x02\x03"])
def test_what_cannot_be_read_is_as_if_it_had_never_been_written(damaged: bytes) -> None:
    book = Book(8)
    assert book.read(damaged, 0.0) == []
    assert len(book) == 0
