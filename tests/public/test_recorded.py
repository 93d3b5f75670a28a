"""What earlier versions wrote is read by this one: homes, keys, traces, tables, a control socket.

`recorded/VERSION` was made by that version (`record.py`). None of it is ever made anew.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from record import RECORD, STORE, TRACES, command, described, exchange

from live_nodes import run
from rumormill import SyncNode
from rumormill.daemon import control_messages as control
from rumormill.log import EventLog
from rumormill.log.arrow import COLUMNS, read_batches
from rumormill.log.notes import read_note
from rumormill.log.records import read_records
from rumormill.spark.lake import Lake
from rumormill.spark.tables import COLUMNS as TABLE_COLUMNS
from rumormill.trace.files import open_writer, read_trace

VERSIONS = sorted(Path(__file__).with_name("recorded").iterdir())
pytestmark = pytest.mark.parametrize("version", VERSIONS, ids=[each.name for each in VERSIONS])

KINDS = {
    "binary": "BINARY",
    "bool": "BOOLEAN",
    "double": "DOUBLE",
    "int32": "INT",
    "int64": "BIGINT",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
}
"""Types of Arrow as Spark names them; others are lists and structs."""


@pytest.fixture
def files(version: Path, tmp_path: Path) -> Path:
    """The files of a version, to be changed as one likes."""
    with tarfile.open(version / "files.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def said(files: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files / "said.json").read_text())
    return found


def test_a_log_is_whole_with_its_segments_notes_and_records(files: Path) -> None:
    """Nothing is damaged, and what was sealed is used."""
    with EventLog(files / "home", STORE) as log:
        assert log.verify().ok
        for batch in read_batches(log, "news", 10, 40, COLUMNS):
            batch.validate(full=True)
        counters = log.segments.counters
        assert (counters.used, counters.damaged, counters.stale) == (1, 0, 0)
        assert read_note(log, "job 7") == b"done"
        assert read_records(log, b"", 10, 1000) == ([RECORD], False)


def test_a_node_goes_on_where_it_was(files: Path) -> None:
    """With its identity, events, encrypted ones too, what retention left, and names' positions."""
    told = said(files)
    with SyncNode(files / "home", topic_keys={"secret": files / "secret.key"}) as node:
        assert node.id.hex() == told["id"]
        for topic in ("news", "secret", "noted"):
            events = node.history(topic, since_offset=0)
            assert [described(event) for event in events] == told[topic]
        groups = [[each.topic, each.name, each.next_offset, each.pending] for each in node.groups()]
        assert groups == told["groups"]
        with node.subscribe("news", name="billing", auto_ack=False) as events:
            assert [next(events).offset for _ in range(4)] == [10, 11, 12, 13]
        assert node.publish("news", b"new").offset == 40


def test_key_files_and_policies_are_read(files: Path) -> None:
    """They are worth nothing if they cannot be."""
    told = said(files)
    for name, arguments in (
        ("policy", ("policy", "show", "news.policy")),
        ("network", ("network", "show", "network.key")),
        ("topic key", ("topic-key", "show", "secret.key")),
    ):
        shown = command(*arguments[:-1], str(files / arguments[-1]))
        assert {key: value for key, value in shown.items() if key != "file"} == told[name]


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_read_in_every_format(version: Path, tmp_path: Path, name: str) -> None:
    """And means what its lines mean, which are written as they were."""
    entries = list(read_trace(version / name))
    assert entries == list(read_trace(version / "each.ndjson"))
    assert len({type(payload) for _, _, payload in entries}) == len(entries) >= 22
    writer = open_writer(tmp_path / "again.ndjson")
    writer.observe(entries)
    writer.close()
    assert (tmp_path / "again.ndjson").read_bytes() == (version / "each.ndjson").read_bytes()


def test_tables_of_a_lake_are_read(files: Path) -> None:
    """All rows; what columns there were are there still, with the same types."""
    from pyarrow import dataset  # here, because pandas comes with it

    lake = Lake(files / "lake")
    for table, count in json.loads((files / "rows.json").read_text()).items():
        assert len(lake.rows(table)) == count
        for folder in lake.folders(table):
            stored = dataset.dataset(sorted(map(str, folder.glob("*.parquet")))).schema
            now = dict(TABLE_COLUMNS[table])
            for field in stored:
                kind = KINDS.get(str(field.type).partition("[")[0])
                assert now[field.name].startswith(kind or ("ARRAY", "STRUCT")), (table, field)


def test_what_was_said_over_a_control_socket_is_understood(version: Path, tmp_path: Path) -> None:
    """By a node of the same number as it was; by another one it is refused with a sentence."""
    pairs = [
        [bytes.fromhex(frame) for frame in pair]
        for pair in json.loads((version / "control.json").read_text())
    ]
    spoken = msgspec.msgpack.decode(pairs[0][0][4:])["version"]

    async def story() -> list[bytes]:
        return await exchange(tmp_path / "home", [asked for asked, _ in pairs])

    answers = run(story)
    if spoken != control.VERSION:
        refused = control._decode_answer(answers[0][4:])
        assert isinstance(refused, control.Refused)
        assert refused.code == "version"
        return
    for (_, answer), now in zip(pairs, answers, strict=True):
        kind = type(control._decode_answer(answer[4:]))
        assert kind is type(control._decode_answer(now[4:]))
