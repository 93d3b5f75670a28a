"""The heads file by itself: notes are read back, torn ends are harmless, size is bounded."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.log import files
from rumormill.log.heads import HeadsDamagedError, HeadsFile, Upkeep, Witness, read_heads
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
        heads.write()
    assert path.stat().st_size < size + 1024
    heads.close()
    witness = read_heads(path)
    assert witness.generation == 5999
    assert {head.next_offset for head in witness.heads.values()} == {5997, 5998, 5999}


@pytest.fixture
def broken(monkeypatch):
    """A function that breaks a call of the system; without a name it mends them all."""

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    def break_(name=None):
        monkeypatch.undo()
        if name is not None:
            monkeypatch.setattr(files if name == "flush" else os, name, fail)

    return break_


@pytest.mark.parametrize("call", ["pwrite", "flush"])
def test_a_failure_is_made_up_for_by_the_next_write(tmp_path, broken, call):
    """After an error the whole state is written to a new file, so nothing noted is forgotten. A
    flush that failed is not repeated: the system would say that all is well, and it is not."""
    path = tmp_path / "heads"
    heads = new_file(path)
    heads.note(1, [topic(1, 10)])
    heads.flush()
    first = path.stat().st_ino
    broken(call)
    heads.note(2, [topic(2, 20)])
    with pytest.raises(OSError, match="No space"):
        heads.flush()
    assert heads.unflushed_commits == 1
    broken()
    heads.note(3, [topic(3, 30)])
    heads.flush()
    assert path.stat().st_ino != first
    heads.close()
    witness = read_heads(path)
    assert [head.next_offset for head in witness.heads.values()] == [10, 20, 30]


def test_upkeep_flushes_after_a_second_or_so_many_commits(tmp_path):
    """What is noted is written at once; a quiet log waits for nothing."""
    path = tmp_path / "heads"
    upkeep = Upkeep(new_file(path), Durability.FSYNC, 3)
    assert upkeep.wait(0.0) is None
    for generation in (1, 2):
        upkeep.heads.note(generation, [topic(1, generation)])
        assert upkeep.keep(10.0)
        assert read_heads(path).generation == generation
        assert upkeep.heads.unflushed_commits == generation
    assert upkeep.wait(10.4) == pytest.approx(0.6)
    assert upkeep.wait(12.0) == 0.0
    assert upkeep.keep(12.0)
    assert (upkeep.heads.unflushed_commits, upkeep.wait(12.0)) == (0, None)
    for generation in (3, 4, 5):
        assert upkeep.heads.unflushed_commits == generation - 3
        upkeep.heads.note(generation, [topic(1, generation)])
        assert upkeep.keep(13.0)
    assert (upkeep.heads.unflushed_commits, upkeep.wait(13.0)) == (0, None)


@pytest.mark.parametrize("call", ["pwrite", "flush"])
def test_upkeep_tries_again_after_growing_pauses(tmp_path, broken, call):
    """In between it leaves the disk alone, however many commits there are; then all is made up."""
    path = tmp_path / "heads"
    upkeep = Upkeep(new_file(path), Durability.FSYNC, 1)
    broken(call)
    upkeep.heads.note(1, [topic(1, 1)])
    now, pauses = 100.0, []
    assert not upkeep.keep(now)
    broken("open")
    for generation in range(2, 10):
        assert upkeep.behind == 0
        pauses.append(upkeep.wait(now))
        upkeep.heads.note(generation, [topic(1, generation)])
        assert upkeep.keep(now + pauses[-1] - 0.1)  # not tried, and so nothing failed
        now += pauses[-1]
        assert not upkeep.keep(now)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    broken()
    assert upkeep.keep(now + 60.0)
    assert (upkeep.behind, upkeep.wait(now)) == (None, None)
    assert read_heads(path).generation == 9


def test_a_link_in_the_place_of_a_heads_file_is_not_followed(tmp_path):
    """Neither is what somebody prepared in the place of its draft."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "heads.new").symlink_to(precious)
    (tmp_path / "heads").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        read_heads(tmp_path / "heads")
    new_file(tmp_path / "heads").close()
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / "heads").is_symlink()
