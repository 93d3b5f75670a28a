"""The heads file by itself: notes are read back, torn ends are harmless, size is bounded."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.log.heads import HeadsDamagedError, HeadsFile, Witness, read_heads
from rumormill.log.model import Durability
from rumormill.log.rows import TopicRow


def new_file(path, epoch=1):
    return HeadsFile(path, Witness(b"s" * 16, epoch, 64, True, heads={}), Durability.FSYNC)


def topic(number, next_offset):
    return TopicRow(number, f"topic {number}", 0, b"b" * 16, next_offset, b"h" * 16)


def test_what_was_noted_is_read_back(tmp_path):
    """The last note of every topic counts; the stamp and the generation only grow."""
    path = tmp_path / "heads"
    heads = new_file(path, epoch=7)
    heads.note(1, [topic(1, 5), topic(2, 1)])
    heads.note(2, [topic(1, 9)])
    heads.note_stamp(2)
    heads.close()
    witness = read_heads(path)
    assert (witness.epoch, witness.generation, witness.stamp) == (7, 2, 2)
    assert [(h.name, h.next_offset) for h in witness.heads.values()] == [
        ("topic 1", 9),
        ("topic 2", 1),
    ]
    assert read_heads(tmp_path / "absent") is None


def test_a_cut_anywhere_gives_an_earlier_state_or_an_error(tmp_path):
    """Heads are lower bounds: a shorter file says less, and never something else."""
    path = tmp_path / "heads"
    heads = new_file(path)
    for generation in range(1, 6):
        heads.note(generation, [topic(1, generation * 10)])
    heads.close()
    content = path.read_bytes()
    for cut in range(0, 700, 7):
        path.write_bytes(content[:cut])
        try:
            witness = read_heads(path)
        except HeadsDamagedError:
            assert cut < 64
            continue
        reached = witness.heads[1].next_offset if witness.heads else 0
        assert reached == witness.generation * 10


@pytest.fixture(scope="module")
def three_notes(tmp_path_factory):
    path = tmp_path_factory.mktemp("heads") / "heads"
    heads = new_file(path)
    for generation in range(1, 4):
        heads.note(generation, [topic(1, generation * 10)])
    heads.close()
    return path, path.read_bytes()


@given(st.integers(0, 500), st.integers(1, 255))
def test_a_flip_anywhere_never_gives_a_head_that_was_not_noted(three_notes, place, mask):
    """Records and header are checksummed with their place."""
    path, original = three_notes
    content = bytearray(original)
    content[place] ^= mask
    path.write_bytes(content)
    try:
        witness = read_heads(path)
    except HeadsDamagedError:
        return
    assert witness.generation in range(4)
    if witness.heads:
        assert witness.heads[1].next_offset == witness.generation * 10


def test_the_file_is_replaced_before_it_grows_beyond_its_area(tmp_path):
    """Many notes on few topics: the size stays bounded and the last note is there."""
    path = tmp_path / "heads"
    heads = new_file(path)
    size = path.stat().st_size
    for generation in range(1, 6000):
        heads.note(generation, [topic(generation % 3, generation)])
    assert path.stat().st_size < size + 1024
    heads.close()
    witness = read_heads(path)
    assert witness.generation == 5999
    assert {head.next_offset for head in witness.heads.values()} == {5997, 5998, 5999}


def test_a_failed_write_is_made_up_for_by_the_next_note(tmp_path, monkeypatch):
    """After an error the whole state is written to a new file, so nothing noted is forgotten."""
    path = tmp_path / "heads"
    heads = new_file(path)
    heads.note(1, [topic(1, 10)])

    def no_room(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(OSError, match="No space"):
        heads.note(2, [topic(2, 20)])
    monkeypatch.undo()
    heads.note(3, [topic(3, 30)])
    heads.close()
    witness = read_heads(path)
    assert [head.next_offset for head in witness.heads.values()] == [10, 20, 30]
