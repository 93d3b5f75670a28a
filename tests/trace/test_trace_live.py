"""The trace of a process that may be killed: whole lines, continued by the next life."""

import logging
import os
from pathlib import Path

import pytest

from rumormill.trace.entries import TraceError
from rumormill.trace.files import read_trace
from rumormill.trace.writers import LiveWriter
from trace_payloads import ONE_OF_EACH as ENTRIES


def test_what_was_observed_is_in_the_file_at_once(tmp_path: Path) -> None:
    """Nobody has to close it: its process may be killed."""
    path = tmp_path / "node.ndjson"
    writer = LiveWriter(path)
    writer.observe(ENTRIES[:2])
    assert list(read_trace(path)) == ENTRIES[:2]
    writer.observe(ENTRIES[2:])
    assert list(read_trace(path)) == ENTRIES
    writer.close()
    writer.close()


@pytest.mark.parametrize("torn", [b"", b"{", b'{"type":7', b"x" * 200_000])
def test_the_next_life_cuts_off_what_a_kill_has_torn_and_goes_on(
    tmp_path: Path, torn: bytes
) -> None:
    path = tmp_path / "node.ndjson"
    first = LiveWriter(path)
    first.observe(ENTRIES[:3])
    first.close()
    with path.open("ab") as file:
        file.write(torn)
    second = LiveWriter(path)
    second.observe(ENTRIES[3:])
    second.close()
    assert list(read_trace(path)) == ENTRIES


def test_a_file_without_any_whole_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "node.ndjson"
    path.write_bytes(b"half a li")
    LiveWriter(path).close()
    assert path.read_bytes() == b""


def test_what_cannot_be_written_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="ends in one of"):
        LiveWriter(tmp_path / "node.parquet")
    with pytest.raises(TraceError, match="cannot write"):
        LiveWriter(tmp_path / "missing" / "node.ndjson")


def test_a_full_disk_ends_the_trace_and_not_the_node(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; later entries are let go."""
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    writer = LiveWriter.__new__(LiveWriter)
    writer._path = Path("/dev/full")
    writer._file = os.open("/dev/full", os.O_WRONLY)
    writer._open = True
    with caplog.at_level(logging.ERROR):
        writer.observe(ENTRIES)
        writer.observe(ENTRIES)
    assert caplog.text.count("ends here: No space left on device") == 1
