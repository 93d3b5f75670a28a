"""The interoperability harness's logs: who, and every copy that arrived."""

import json
from datetime import datetime

import pytest

from rumormill.core.trace import DeliverMessage, DuplicateMessage, Join, NodeUp, PublishMessage
from rumormill.trace.entries import TraceError
from rumormill.trace.harness import SHADOW_EPOCH, HarnessLogs

A, B = b"\x0a", b"\x0b"
MESSAGE = (17).to_bytes(8, "big")

TRACE = [
    (0.0, A, NodeUp()),
    (0.0, B, NodeUp()),
    (0.5, B, Join("t")),
    (1.0, A, PublishMessage(MESSAGE, "t")),
    (1.0, A, DeliverMessage(MESSAGE, "t", A)),
    (1.25, B, DeliverMessage(MESSAGE, "t", A)),
    (1.5, B, DuplicateMessage(MESSAGE, A, "t")),
    (1.5, A, DuplicateMessage(MESSAGE, B, "t")),
]


def log_of(folder, number):
    text = (folder / "hosts" / f"node{number}" / "rumormill.stdout").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_node_introduces_itself_and_names_every_copy(tmp_path):
    """B's log: PeerID first, then the delivery and the duplicate; ids are decimal."""
    logs = HarnessLogs(tmp_path)
    logs.observe(TRACE[:6])
    logs.observe(TRACE[6:])
    logs.close()
    common = {"level": "INFO", "msg": "Received Message", "id": "17", "from": "0a", "topic": "t"}
    assert log_of(tmp_path, 1) == [
        {
            "time": "2000-01-01T00:00:00.000000+00:00",
            "level": "INFO",
            "msg": "PeerID",
            "id": "0b",
            "node_id": 1,
        },
        {"time": "2000-01-01T00:00:01.250000+00:00", **common},
        {"time": "2000-01-01T00:00:01.500000+00:00", **common},
    ]


def test_an_own_message_is_no_copy_but_its_echo_is(tmp_path):
    """A published: only the copy that B sent back is received."""
    logs = HarnessLogs(tmp_path)
    logs.observe(TRACE)
    assert [(line["msg"], line.get("from")) for line in log_of(tmp_path, 0)] == [
        ("PeerID", None),
        ("Received Message", "0b"),
    ]


def test_times_are_read_by_the_standard_library(tmp_path):
    """The analysis uses `datetime.fromisoformat`."""
    HarnessLogs(tmp_path).observe(TRACE)
    times = [datetime.fromisoformat(line["time"]) for line in log_of(tmp_path, 1)]
    assert [(time - SHADOW_EPOCH).total_seconds() for time in times] == [0.0, 1.25, 1.5]


def test_ids_of_other_lengths_are_hexadecimal(tmp_path):
    """Only the harness's own eight-byte ids are numbers."""
    HarnessLogs(tmp_path).observe([(0.0, A, DuplicateMessage(b"\x01\x02", B, "t"))])
    assert log_of(tmp_path, 0)[1]["id"] == "0102"


def test_an_older_folder_is_not_mixed_with_a_new_run(tmp_path):
    """Logs are appended to, so a folder is used once."""
    HarnessLogs(tmp_path)
    with pytest.raises(TraceError, match="new folder"):
        HarnessLogs(tmp_path)
