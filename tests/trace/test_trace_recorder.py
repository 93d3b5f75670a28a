"""The recorder hands every entry to every observer once, in order, in bounded batches."""

from itertools import chain

from rumormill.core.trace import Join
from rumormill.trace.entries import FLUSH_AT, Batch, Entry, Recorder


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.closed = 0

    def observe(self, batch: Batch) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        self.closed += 1


def entry(number: int) -> Entry:
    return (float(number), b"peer", Join(str(number)))


def test_every_observer_gets_every_entry_once_and_in_order():
    """Two observers, three flushes: the same entries in the recorded order."""
    first, second = Sink(), Sink()
    recorder = Recorder([first, second])
    everything = [entry(number) for number in range(10)]
    for number, item in enumerate(everything):
        recorder.record(item)
        if number in (2, 6):
            recorder.flush()
    recorder.close()
    assert list(chain.from_iterable(first.batches)) == everything
    assert list(chain.from_iterable(second.batches)) == everything
    assert (first.closed, second.closed) == (1, 1)


def test_record_stays_valid_over_flushes():
    """A runtime takes the bound `record` once and uses it for the whole run."""
    sink = Sink()
    recorder = Recorder([sink])
    record = recorder.record
    record(entry(1))
    recorder.flush()
    record(entry(2))
    recorder.flush()
    assert sink.batches == [[entry(1)], [entry(2)]]


def test_the_buffer_is_handed_over_when_it_is_full_and_not_before():
    """`maybe_flush` keeps the buffer at `FLUSH_AT` entries at most."""
    sink = Sink()
    recorder = Recorder([sink])
    for number in range(FLUSH_AT - 1):
        recorder.record(entry(number))
    recorder.maybe_flush()
    assert sink.batches == []
    recorder.record(entry(FLUSH_AT))
    recorder.maybe_flush()
    assert [len(batch) for batch in sink.batches] == [FLUSH_AT]
    assert recorder._buffer == []


def test_an_empty_buffer_makes_no_batch():
    """Observers see no empty batches."""
    sink = Sink()
    Recorder([sink]).flush()
    assert sink.batches == []
