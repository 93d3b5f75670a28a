"""Trace files: every format gives back what was written, and damage is one clear error."""

import gzip
import hashlib
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import trace_pb2
from rumormill.core import trace
from rumormill.core.errors import LocalError
from rumormill.trace import files, writers
from rumormill.trace.entries import TraceError
from rumormill.trace.files import open_writer, read_trace, replay
from rumormill.trace.ndjson import TYPE_NAMES, LineEncoder, TraceHash
from rumormill.trace.protobuf import (
    EventError,
    decode_batch,
    decode_event,
    encode_event,
    field_number,
    payload_number,
)
from rumormill.trace.shapes import SHAPES
from rumormill.wire.protobuf import bytes_field, read_varint, varint, varint_field
from trace_payloads import ONE_OF_EACH, entries

ALL_FORMATS = ["t.ndjson", "t.jsonl", "t.json", "t.pb", "t.pb.gz", "t.parquet"]
BINARY_FORMATS = ["t.pb", "t.pb.gz"]


def written(path, *batches):
    """Write batches to a file and return its path."""
    with open_writer(path) as writer:
        for batch in batches:
            writer.observe(batch)
    return path


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_every_kind_comes_back_from_every_format(tmp_path, name):
    """One event of each kind, with all its fields, in two batches."""
    path = written(tmp_path / name, ONE_OF_EACH[:5], ONE_OF_EACH[5:])
    assert list(read_trace(path)) == ONE_OF_EACH


@pytest.mark.parametrize("name", ["t.ndjson", "t.pb", "t.pb.gz", "t.parquet"])
@settings(max_examples=30)
@given(batch=st.lists(entries(), max_size=6))
def test_any_entry_comes_back_from_every_format(tmp_path_factory, name, batch):
    """Arbitrary payloads of every kind."""
    path = written(tmp_path_factory.mktemp("trace") / name, batch)
    assert list(read_trace(path)) == batch


@pytest.mark.parametrize("name", ["t.pb", "t.parquet"])
@settings(max_examples=30)
@given(batch=st.lists(entries(), min_size=1, max_size=6), order=st.lists(st.integers(0, 5)))
def test_what_is_recorded_several_times_comes_back_as_often(tmp_path_factory, name, batch, order):
    """The same objects again and again, as when one RPC goes to many peers, in any order."""
    repeated = [batch[number % len(batch)] for number in order]
    path = written(tmp_path_factory.mktemp("trace") / name, repeated)
    assert list(read_trace(path)) == repeated


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_an_empty_trace_is_a_file_without_entries(tmp_path, name):
    """Nothing recorded: still a complete file of its format."""
    assert list(read_trace(written(tmp_path / name))) == []


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_equal_traces_give_equal_files(tmp_path, name):
    """No time of writing and no file name inside."""
    (tmp_path / "other").mkdir()
    first = written(tmp_path / name, ONE_OF_EACH)
    second = written(tmp_path / "other" / name, ONE_OF_EACH)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_a_file_has_its_name_only_when_it_is_complete(tmp_path, name):
    """Until `close` an older file of that name stays; after an error nothing is left behind."""
    path = tmp_path / name
    path.write_bytes(b"older")
    writer = open_writer(path)
    writer.observe(ONE_OF_EACH)
    assert path.read_bytes() == b"older"
    writer.abort()
    assert [file.name for file in tmp_path.iterdir()] == [name]
    with pytest.raises(TypeError), open_writer(path) as writer:
        writer.observe([None])
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == b"older"


def test_closing_twice_is_closing_once(tmp_path):
    """A recorder and a `with` may both close."""
    for name in ALL_FORMATS:
        writer = open_writer(tmp_path / name)
        writer.observe(ONE_OF_EACH)
        writer.close()
        writer.close()
        assert len(list(read_trace(tmp_path / name))) == len(ONE_OF_EACH)


def test_the_checksum_of_the_ndjson_file_is_the_trace_hash(tmp_path):
    """`sha256sum trace.ndjson` prints what the run printed; the lines are encoded once."""
    lines = LineEncoder()
    trace_hash, path = TraceHash(lines), tmp_path / "t.ndjson"
    writer = open_writer(path, lines)
    for batch in (ONE_OF_EACH[:7], ONE_OF_EACH[7:]):
        trace_hash.observe(batch)
        writer.observe(batch)
    writer.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == trace_hash.hexdigest()


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_a_replayed_file_has_the_hash_of_the_recorded_trace(tmp_path, name):
    """From any format an observer sees what it would have seen while recording."""
    recorded, replayed = TraceHash(), TraceHash()
    recorded.observe(ONE_OF_EACH)
    replay(written(tmp_path / name, ONE_OF_EACH), [replayed])
    assert replayed.hexdigest() == recorded.hexdigest()


def test_a_batch_file_is_split_into_batches_of_bounded_size(tmp_path, monkeypatch):
    """Every record of the compressed file is a `TraceEventBatch` of the schema."""
    monkeypatch.setattr(writers, "_BATCH_BYTES", 200)
    path = written(tmp_path / "t.pb.gz", ONE_OF_EACH)
    data, position, sizes = gzip.decompress(path.read_bytes()), 0, []
    while position < len(data):
        length, start = read_varint(data, position, len(data))
        position = start + length
        sizes.append(len(trace_pb2.TraceEventBatch.FromString(data[start:position]).batch))
    assert sum(sizes) == len(ONE_OF_EACH)
    assert len(sizes) > 2
    assert list(read_trace(path)) == ONE_OF_EACH


def test_the_numbers_on_the_wire_are_the_schemas():
    """Every field of every struct has the number that `trace.proto` gives it."""
    event = trace_pb2.TraceEvent.DESCRIPTOR

    def check(struct, message):
        assert {field.name for field in SHAPES[struct]} == set(message.fields_by_name)
        for place, field in enumerate(SHAPES[struct]):
            schema = message.fields_by_name[field.name]
            assert schema.number == field_number(struct, place, field), (struct, field.name)
            if field.nested:
                check(field.holds, schema.message_type)

    for payload in trace.TRACE_PAYLOADS:
        check(payload, event.fields_by_number[payload_number(payload.kind)].message_type)
    for name, value in event.enum_types_by_name["Type"].values_by_name.items():
        assert TYPE_NAMES[name] == value.number


@given(entries())
def test_protobufs_own_classes_read_and_write_the_same_events(entry):
    """An independent implementation of the schema agrees in both directions."""
    record = encode_event(entry)
    event = trace_pb2.TraceEvent.FromString(record)
    assert (event.type, event.peerID) == (entry[2].kind, entry[1])
    assert event.timestamp == round(entry[0] * 1e9)
    assert event.SerializeToString() == record
    assert decode_event(record) == entry
    batch = trace_pb2.TraceEventBatch(batch=[event, event])
    assert list(decode_batch(batch.SerializeToString())) == [entry, entry]


def test_a_go_nodes_event_is_read():
    """Built field by field from libp2p's schema, with an unknown field in between."""
    message = bytes_field(1, b"id-1") + bytes_field(2, b"news")
    control = bytes_field(1, bytes_field(1, b"news") + bytes_field(2, b"id-2"))
    control += bytes_field(4, bytes_field(1, b"news") + bytes_field(2, b"peer-c"))
    meta = bytes_field(1, message) + bytes_field(3, control)
    subscription = varint_field(1, 1) + bytes_field(2, b"news")
    meta += bytes_field(2, subscription)
    event = varint_field(1, 7) + bytes_field(2, b"peer-a") + varint_field(3, 1_500_000_000)
    event += bytes_field(99, b"later") + bytes_field(
        11, bytes_field(1, b"peer-b") + bytes_field(2, meta)
    )
    assert decode_event(event) == (
        1.5,
        b"peer-a",
        trace.SendRPC(
            b"peer-b",
            trace.RpcMeta(
                messages=(trace.MessageMeta(b"id-1", "news"),),
                subscription=(trace.SubMeta(True, "news"),),
                control=trace.ControlMeta(
                    ihave=(trace.IHaveMeta("news", (b"id-2",)),),
                    prune=(trace.PruneMeta("news", (b"peer-c",)),),
                ),
            ),
        ),
    )


def test_a_go_nodes_leave_has_its_topic_in_field_two():
    """libp2p's schema skips field 1 there."""
    event = varint_field(1, 10) + varint_field(3, 0) + bytes_field(14, bytes_field(2, b"news"))
    assert decode_event(event) == (0.0, b"", trace.Leave("news"))


def test_absent_fields_are_empty():
    """Every field of the schema is optional."""
    assert decode_event(varint_field(1, 3)) == (0.0, b"", trace.DeliverMessage(b"", "", b""))
    assert decode_event(varint_field(1, 6)) == (0.0, b"", trace.RecvRPC(b"", trace.RpcMeta()))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_an_event_or_an_error(record):
    """No other exception leaves the decoders."""
    for decode in (decode_event, lambda data: list(decode_batch(data))):
        with suppress(EventError):
            decode(record)


@given(st.sampled_from(ONE_OF_EACH), st.data())
def test_a_damaged_event_is_an_event_or_an_error(entry, data):
    """Flip any byte and cut anywhere: the decoder answers and reads nothing beyond the record."""
    record = bytearray(encode_event(entry))
    place = data.draw(st.integers(0, len(record) - 1))
    record[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(record)))
    with suppress(EventError):
        decode_event(bytes(record[:cut]))


@pytest.mark.parametrize("name", ["t.ndjson", "t.pb", "t.pb.gz", "t.parquet"])
def test_a_file_that_is_cut_short_says_so(tmp_path, name):
    """The error is the declared one and names the file."""
    path = written(tmp_path / name, ONE_OF_EACH)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(TraceError, match=name):
        list(read_trace(path))


def test_entries_before_the_damage_are_given_and_the_position_is_named(tmp_path):
    """Three good lines, then a broken one: line 4."""
    path = written(tmp_path / "t.ndjson", ONE_OF_EACH[:3])
    with open(path, "ab") as stream:
        stream.write(b'{"type":9,"join":{"topic":\n')
    reader = read_trace(path)
    found = [next(reader) for _ in range(3)]
    with pytest.raises(TraceError, match=r"t\.ndjson, line 4"):
        next(reader)
    assert found == ONE_OF_EACH[:3]


def test_the_position_in_a_binary_file_is_a_byte(tmp_path):
    """The second record has no type."""
    path = tmp_path / "t.pb"
    first = encode_event(ONE_OF_EACH[0])
    path.write_bytes(varint(len(first)) + first + b"\x02\x18\x00")
    with pytest.raises(TraceError, match=f"byte {len(first) + 1}: the event has no type"):
        list(read_trace(path))


@pytest.mark.parametrize("name", BINARY_FORMATS)
def test_a_length_is_checked_before_it_is_believed(tmp_path, name):
    """A record that claims an exabyte is refused by its length alone."""
    path = tmp_path / name
    claim = varint(2**60) + b"x"
    path.write_bytes(gzip.compress(claim) if name.endswith("gz") else claim)
    with pytest.raises(TraceError, match="is most"):
        list(read_trace(path))
    path.write_bytes(gzip.compress(b"\xff" * 11) if name.endswith("gz") else b"\xff" * 11)
    with pytest.raises(TraceError, match="more than 64 bits"):
        list(read_trace(path))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    """A reader never holds more than the longest allowed line."""
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 64)
    path = tmp_path / "t.ndjson"
    path.write_bytes(b"x" * 65)
    with pytest.raises(TraceError, match="line 1: longer than 64 bytes"):
        list(read_trace(path))


@pytest.mark.parametrize("name", ["t.ndjson", "t.pb", "t.pb.gz", "t.parquet"])
@settings(max_examples=30)
@given(garbage=st.binary(min_size=1, max_size=60))
def test_garbage_is_entries_or_the_one_error(tmp_path_factory, name, garbage):
    """Arbitrary bytes in a file of any format."""
    path = tmp_path_factory.mktemp("garbage") / name
    path.write_bytes(garbage)
    with suppress(TraceError):
        list(read_trace(path))


def test_a_parquet_file_of_something_else_is_refused(tmp_path):
    """A table without the trace's columns, and one with impossible values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    for columns in ({"price": [1]}, {"type": [77]}, {"type": [9], "topic": [None]}):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(TraceError, match=r"t\.parquet, row 0"):
            list(read_trace(path))


def test_parquet_columns_are_flat_and_documented(tmp_path):
    """The schema that other engines see; changing it breaks their queries."""
    import pyarrow.parquet as pq

    path = written(tmp_path / "t.parquet", ONE_OF_EACH)
    names = pq.read_schema(path).names
    assert names == [
        "type",
        "event",
        "peerID",
        "timestamp",
        "messageID",
        "topic",
        "remotePeer",
        "reason",
        "cause",
        "via",
        "proto",
        "count",
        "amount",
        "legitimate",
        "outcome",
        "topics",
        "unequal",
        "events",
        "messages",
        "subscription",
        "ihave",
        "iwant",
        "graft",
        "prune",
        "idontwant",
        "size",
        "dataSize",
        "operations",
    ]
    rows = pq.read_table(path).to_pylist()
    assert rows[0]["event"] == "PUBLISH_MESSAGE"
    assert rows[0]["remotePeer"] is None
    assert rows[3]["remotePeer"] == b"peer-b"
    assert rows[6]["messages"] == [{"messageID": b"id-1", "topic": "news"}]
    assert rows[7]["messages"] == []
    assert rows[7]["ihave"] is None


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
    """Parquet is optional."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "rumormill.trace.parquet", raising=False)
    with pytest.raises(TraceError, match=r"rumormill\[arrow\]"):
        open_writer(tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_opened_is_a_clear_error(tmp_path):
    """Unknown suffix, missing folder, missing file."""
    with pytest.raises(TraceError, match=r"\.ndjson.*\.parquet"):
        open_writer(tmp_path / "trace.csv")
    with pytest.raises(TraceError, match="cannot write"):
        open_writer(tmp_path / "missing" / "t.pb")
    for name in ("t.ndjson", "t.pb", "t.pb.gz", "t.parquet"):
        with pytest.raises(TraceError, match=name):
            list(read_trace(tmp_path / name))
    assert issubclass(TraceError, LocalError)
