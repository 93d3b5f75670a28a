"""Export and import: an exact copy, or a refusal."""

import sys

import pytest

from rumormill.log import (
    EventLog,
    ImportRefusedError,
    MissingExtraError,
    Retention,
    export_parquet,
    import_parquet,
    repair,
)
from store_samples import damage, fill, make_event, read_all

pytest.importorskip("pyarrow")


@pytest.fixture
def other(tmp_path):
    with EventLog(tmp_path / "other") as opened:
        yield opened


def test_a_round_trip_is_exact(log, other, tmp_path):
    """Events, offsets, sizes and head hashes come out as they went in; twice changes nothing."""
    fill(log, 1300)
    fill(log, 20, "more")
    log.retain({"more": Retention(max_events=5), "news": Retention(max_events=1200)}, now=0.0)
    path = tmp_path / "log.parquet"
    assert export_parquet(log, path) == 1205
    assert import_parquet(other, path) == 1205
    assert other.topics() == log.topics()
    for topic in ("news", "more"):
        assert read_all(other, topic) == read_all(log, topic)
    assert other.verify().ok
    assert import_parquet(other, path) == 0
    assert other.read_since("news", 2000.0)[0].received == 2000.0


def test_an_import_continues_a_log_with_the_same_history(log, other, tmp_path):
    """A later export brings the copy up to date, and both go on alike."""
    fill(log, 10)
    export_parquet(log, tmp_path / "first.parquet")
    import_parquet(other, tmp_path / "first.parquet")
    fill(log, 10, start=10)
    export_parquet(log, tmp_path / "second.parquet", topics=["news"])
    assert import_parquet(other, tmp_path / "second.parquet") == 10
    assert other.topics() == log.topics()


def test_an_import_of_another_history_is_refused(log, other, tmp_path):
    """Offsets cannot mean two things."""
    fill(log, 10)
    export_parquet(log, tmp_path / "log.parquet")
    fill(other, 5, start=100)
    with pytest.raises(ImportRefusedError, match="another event at offset 0"):
        import_parquet(other, tmp_path / "log.parquet")
    assert other.topic("news").next_offset == 5


def test_losses_are_exported_and_imported_as_losses(home, other, tmp_path):
    """A hole stays the same hole."""
    with EventLog(home) as log:
        fill(log, 30)
    old = (home / "events-1.db").read_bytes()
    with EventLog(home) as log:
        fill(log, 30, start=30)
    (home / "events-1.db").write_bytes(old)
    repair(home)
    with EventLog(home) as log:
        export_parquet(log, tmp_path / "tail.parquet")
        fill(log, 5, start=90)
        export_parquet(log, tmp_path / "middle.parquet")
        import_parquet(other, tmp_path / "tail.parquet")
        assert other.topic("news").next_offset == 60
        import_parquet(other, tmp_path / "middle.parquet")
        assert other.topics() == log.topics()
        assert other.losses("news") == log.losses("news") == [(30, 60)]
        assert other.read("news", 60) == log.read("news", 60)
        assert other.verify().ok


def test_losses_side_by_side_are_taken_for_one(home, other, tmp_path):
    """Two repairs gave up two events next to each other."""
    with EventLog(home) as log:
        fill(log, 10)
    for epoch in (1, 2):
        damage(home, 4, epoch)
        repair(home)
    with EventLog(home) as log:
        assert log.losses("news") == [(4, 5), (5, 6)]
        export_parquet(log, tmp_path / "log.parquet")
        import_parquet(other, tmp_path / "log.parquet")
        assert other.topics() == log.topics()
        assert other.losses("news") == [(4, 6)]
        assert other.read_since("news", 0.0) == log.read_since("news", 0.0)


def test_a_changed_file_is_refused_before_anything_is_written(log, other, tmp_path):
    """A value changed with another tool no longer has the hash that the row carries."""
    import pyarrow.parquet as pq

    fill(log, 50)
    export_parquet(log, tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    metadata = pq.read_metadata(tmp_path / "log.parquet").metadata
    table = table.replace_schema_metadata(metadata)
    data = table.column("data").to_pylist()
    data[20] = b"changed"
    at = table.column_names.index("data")
    changed = table.set_column(at, table.schema.field("data"), [data])
    for bad, words in (
        (changed, "offset 20: the row is damaged"),
        (table.slice(0, 49), "missing at its end"),
        (table.slice(1), "out of order"),
        (table.replace_schema_metadata(None), "not exported by rumormill"),
        (table.drop_columns(["proof"]), "lacks the column proof"),
    ):
        pq.write_table(bad, tmp_path / "bad.parquet")
        with pytest.raises(ImportRefusedError, match=words):
            import_parquet(other, tmp_path / "bad.parquet")
    content = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:-100])
    for name in ("cut.parquet", "absent.parquet"):
        with pytest.raises(ImportRefusedError):
            import_parquet(other, tmp_path / name)
    assert other.topics() == []
    assert other.append([make_event(0)]).result()[0].offset == 0


def test_without_pyarrow_the_extra_is_named(log, tmp_path, monkeypatch):
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"rumormill\[arrow\]"):
        export_parquet(log, tmp_path / "log.parquet")
