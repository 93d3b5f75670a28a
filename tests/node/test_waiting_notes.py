"""Notes and records on their way into the log: notes at once, others' records when it suits."""

import asyncio

from live_nodes import run
from rumormill.core.event import Kept, KeptRecord, Note
from rumormill.log.errors import DiskFullError
from rumormill.node import waiting_notes
from rumormill.node.waiting_notes import WaitingNotes, awaited

NOTE = Note("a", b"b")


def record(number: int, size: int = 1, *, own: bool = False) -> KeptRecord:
    return KeptRecord(b"%d" % number, bytes(size), own=own)


class Story:
    """Notes that wait, and how often somebody was told to write."""

    def __init__(self) -> None:
        self.told = 0
        self.notes = WaitingNotes(self.tell)

    def tell(self) -> None:
        self.told += 1


def test_a_note_and_a_record_of_our_own_are_written_at_once() -> None:
    async def story() -> None:
        story = Story()
        assert story.notes.add(NOTE) == 1
        assert story.told == 1
        assert story.notes.pressing
        assert story.notes.take() == [NOTE]
        assert not story.notes.pressing
        assert story.notes.add(record(1, own=True)) == 0
        assert story.told == 2
        assert story.notes.pressing

    run(story)


def test_what_others_ask_us_to_hold_waits_for_a_batch_but_not_for_long() -> None:
    async def story() -> None:
        story = Story()
        for number in range(3):
            assert story.notes.add(record(number)) == 0
        assert (story.told, story.notes.pressing) == (0, False)
        assert story.notes.take() == [record(number) for number in range(3)]
        story.notes.add(record(3))
        await asyncio.sleep(3 * waiting_notes._DELAY)
        assert story.told == 1
        assert story.notes.pressing
        assert story.notes.take() == [record(3)]
        assert (len(story.notes), story.notes.pressing) == (0, False)

    run(story)


def test_a_batch_takes_so_many_records_and_so_many_bytes() -> None:
    """Its events wait for them; what is left presses until all of it is written."""

    async def story() -> None:
        story = Story()
        for number in range(600):
            story.notes.add(record(number))
        assert story.told == 1
        story.notes.add(NOTE)
        story.notes.press()
        assert [len(story.notes.take()) for _ in range(3)] == [257, 256, 88]
        assert not story.notes.pressing
        for number in range(4):
            story.notes.add(record(number, 400_000))
        assert [len(story.notes.take()) for _ in range(2)] == [3, 1]

    run(story)


def test_beyond_the_bound_records_are_lost_and_counted() -> None:
    """Also with what was put back, in its order; what the log could not take is counted as well."""

    async def story() -> None:
        story, half = Story(), waiting_notes._MOST_BYTES // 2
        for number in range(3):
            story.notes.add(record(number, half - 1000))
        assert story.notes.lost == 1
        batch: list[Kept] = story.notes.take()
        story.notes.add(NOTE)
        story.notes.put_back(batch)
        story.notes.add(record(4, half))
        assert story.notes.lost == 2
        story.notes.add(record(5))
        rest: list[Kept] = [*story.notes.take(), *story.notes.take(), *story.notes.take()]
        assert rest == [NOTE, record(0, half - 1000), record(1, half - 1000), record(5)]
        assert awaited(rest) == 1
        assert story.notes.lose(rest, trouble := DiskFullError("full")) == 1
        assert (story.notes.lost, story.notes.trouble) == (5, trouble)

    run(story)


def test_what_was_put_back_waits_for_nothing_else_to_come() -> None:
    """The log refused the events beside it: it goes with the next batch, if need be alone."""

    async def story() -> None:
        story = Story()
        story.notes.add(record(1))
        await asyncio.sleep(3 * waiting_notes._DELAY)
        story.notes.put_back(story.notes.take())
        assert story.notes.pressing
        assert story.notes.take() == [record(1)]
        assert not story.notes.pressing

    run(story)
