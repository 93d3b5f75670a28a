"""A home that an earlier version made keeps every event, offset and identity.

`recorded/home.tar.xz` was made before events had columns for keys and headers: a node published 100
plain events and 60 with keys, headers and content types in `news`, and 20 rows in `rows` through
its door under the key of a job; a reader sealed two ranges of 64 events; the log was exported as
Parquet; and `said.json` is what the node itself said of its events.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rumormill import SyncNode
from rumormill.core.api import Message
from rumormill.core.event import Note
from rumormill.daemon.flight_messages import PutRequest
from rumormill.daemon.flight_service import FlightService
from rumormill.log import EventLog, StoreConfig
from rumormill.log.arrow import COLUMNS, read_batches
from rumormill.log.parquet import import_parquet
from rumormill.node.verdicts import fault_of

CONFIG = StoreConfig(segment_rows=64)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The folder with the home, its export and what was said of it."""
    with tarfile.open(Path(__file__).parent / "recorded" / "home.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def said(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The events of each topic as the node described them."""
    events: dict[str, list[dict[str, Any]]] = json.loads((folder / "said.json").read_text())
    return events["events"]


def rows_of(log: EventLog, topic: str) -> list[dict[str, Any]]:
    """The same description, from the columns of bulk reads."""
    stop = log.topic(topic).next_offset
    found = []
    for batch in read_batches(log, topic, 0, stop, COLUMNS):
        batch.validate(full=True)
        for row in batch.to_pylist():
            headers = {each["key"]: each["value"].decode() for each in row["headers"] or ()}
            found.append(
                {
                    "offset": row["offset"],
                    "id": row["id"].hex(),
                    "data": row["value"].decode(),
                    "key": row["key"] and row["key"].decode(),
                    "content_type": headers.pop("content-type", ""),
                    "headers": headers,
                    "created": row["created"] and row["created"].timestamp(),
                    "received": pytest.approx(row["timestamp"].timestamp(), abs=1e-6),
                    "author": row["author"].hex(),
                }
            )
    return found


def test_every_event_and_offset_is_there(recorded: Path) -> None:
    """From the segments that were there, and from the database."""
    with EventLog(recorded / "home", CONFIG, read_only=True) as log:
        assert rows_of(log, "news") == said(recorded)["news"]
        assert rows_of(log, "rows") == said(recorded)["rows"]
        assert log.segments.counters.used == 2, "those of before"
        assert log.segments.counters.damaged + log.segments.counters.stale == 0


def test_its_export_is_imported(recorded: Path) -> None:
    """With the same offsets and ids."""
    with EventLog(recorded / "another") as log:
        assert import_parquet(log, recorded / "events.parquet", fault_of()) == 180
        assert rows_of(log, "news") == said(recorded)["news"]


def test_the_node_is_the_same_and_goes_on(recorded: Path) -> None:
    """Its identity is that of its events, and the next one comes behind them."""
    with SyncNode(recorded / "home") as node:
        assert node.id.hex() == said(recorded)["news"][0]["author"]
        node.publish("news", b"new", key="k")
        event = node.history("news", since_offset=159)[1]
    assert (event.offset, event.key, event.data) == (160, b"k", b"new")


def test_rows_of_before_are_recognised_when_they_are_sent_again(recorded: Path) -> None:
    """The digest of rows without keys and headers is what it was."""

    def publish(_: list[tuple[str, Message, Note]]) -> None:
        pytest.fail("they were published before")

    rows = pa.record_batch({"value": [f"row {number}" for number in range(20)]})
    with EventLog(recorded / "home") as log:
        result = FlightService(log, publish).put(PutRequest("write job 0", "rows"), iter([rows]))
    assert (result.published, result.known) == (0, 20)
