"""The wire format itself, with the protobuf library as the judge, and the generated modules."""

import importlib.util
import re
from pathlib import Path

import pytest
from google.protobuf.internal import decoder, encoder
from hypothesis import given
from hypothesis import strategies as st

from oracles import trace_pb2
from refusals import reason_of
from rumormill.core import trace
from rumormill.core.errors import DecodeError
from rumormill.wire.protobuf import (
    bytes_field,
    field_size,
    item_fields,
    next_field,
    read_length,
    read_tag,
    read_varint,
    skip_value,
    string_field,
    varint,
    varint_field,
    varint_size,
)

ROOT = Path(__file__).resolve().parent.parent.parent
uint64 = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 9).flatmap(lambda n: st.sampled_from([2 ** (7 * n), 2 ** (7 * n) - 1])),
)


class TestVarints:
    """Unsigned integers of 64 bits, seven bits to a byte."""

    @given(uint64, st.binary(max_size=3))
    def test_round_trip(self, value: int, rest: bytes) -> None:
        """What is written is read back, up to its end; the size is known beforehand."""
        encoded = varint(value)
        assert len(encoded) == varint_size(value)
        data = rest + encoded + rest
        assert read_varint(data, len(rest), len(data)) == (value, len(rest) + len(encoded))

    @given(uint64)
    def test_same_bytes_as_the_library(self, value: int) -> None:
        """The protobuf library writes the same bytes and reads ours."""
        written: list[bytes] = []
        encoder._EncodeVarint(written.append, value)
        assert b"".join(written) == varint(value)
        assert decoder._DecodeVarint(varint(value), 0) == (value, varint_size(value))

    @given(st.binary(max_size=12))
    def test_any_bytes(self, data: bytes) -> None:
        """Bytes are a varint of 64 bits or an error."""
        try:
            value, position = read_varint(data, 0, len(data))
        except DecodeError:
            assert all(byte >= 0x80 for byte in data[:9])
        else:
            assert 0 <= value < 2**64
            assert data[position - 1] < 0x80

    def test_limits(self) -> None:
        """Cut short, over 64 bits, over ten bytes: all are errors."""
        assert reason_of(read_varint, b"", 0, 0) == "bad-varint"
        assert reason_of(read_varint, b"\x80\x01", 0, 1) == "bad-varint"
        assert reason_of(read_varint, b"\xff" * 9 + b"\x02", 0, 10) == "bad-varint"
        assert reason_of(read_varint, b"\x80" * 10 + b"\x00", 0, 11) == "bad-varint"
        assert read_varint(b"\xff" * 9 + b"\x01", 0, 10) == (2**64 - 1, 10)

    @pytest.mark.parametrize("value", [-1, 2**64])
    def test_what_cannot_be_written(self, value: int) -> None:
        """A varint is neither negative nor longer than 64 bits."""
        with pytest.raises(ValueError, match="a varint"):
            varint(value)


def _refusal(data: bytes) -> str:
    return reason_of(item_fields, data, 0, len(data))


class TestFields:
    """Tags, lengths and what lies between them."""

    @given(st.integers(1, 15), st.one_of(st.binary(max_size=300), st.just(bytes(20_000))))
    def test_length_delimited(self, number: int, value: bytes) -> None:
        """A field is read where it was written; its size is known beforehand."""
        encoded = bytes_field(number, value)
        assert len(encoded) == field_size(len(value))
        tag, start, stop = next_field(encoded + b"rest", 0, len(encoded))
        assert (tag, encoded[start:stop], stop) == (number << 3 | 2, value, len(encoded))

    @given(st.binary(max_size=40), st.integers(0, 40))
    def test_the_fast_reading_is_the_careful_one(self, data: bytes, end: int) -> None:
        """`next_field` on any bytes does what tag, length and value one by one do."""
        end = min(end, len(data))

        def careful() -> tuple[int, int, int]:
            tag, position = read_tag(data, 0, end)
            if tag & 7 == 2:
                return tag, *read_length(data, position, end)
            return tag, position, skip_value(data, position, end, tag & 7)

        try:
            expected: object = careful()
        except DecodeError as error:
            expected = error.reason
        try:
            found: object = next_field(data, 0, end)
        except DecodeError as error:
            found = error.reason
        assert found == expected

    @given(st.binary(max_size=60))
    def test_any_bytes(self, data: bytes) -> None:
        """Splitting noise gives fields or an error."""
        try:
            found = item_fields(data, 0, len(data), 8)
        except DecodeError:
            return
        assert len(found) <= 8
        assert all(tag >> 3 > 0 for tag, _, _ in found)

    def test_every_wire_type(self) -> None:
        """Each comes with its tag and the place of its value, in order."""
        data = varint_field(1, 300) + string_field(2, "ü") + b"\x19" + bytes(8) + b"\x25" + bytes(4)
        found = item_fields(data, 0, len(data), 4)
        assert [(tag, data[start:stop]) for tag, start, stop in found] == [
            (1 << 3, varint(300)),
            (2 << 3 | 2, "ü".encode()),
            (3 << 3 | 1, bytes(8)),
            (4 << 3 | 5, bytes(4)),
        ]
        assert reason_of(item_fields, data, 0, len(data), 3) == "too-many-fields"

    def test_what_is_refused(self) -> None:
        """Field numbers that protobuf does not have, groups, and values that are cut short."""
        assert _refusal(b"\x02\x00") == "bad-tag"
        assert _refusal(varint(2**29 << 3) + b"\x00") == "bad-tag"
        assert _refusal(b"\x0b\x0c") == "bad-wire-type"
        assert _refusal(b"\x0a\x05abcd") == "truncated"
        assert _refusal(b"\x0a" + varint(2**63)) == "truncated"
        assert _refusal(b"\x09" + bytes(7)) == "truncated"
        assert _refusal(b"\x0d" + bytes(3)) == "truncated"


def _without_version(text: str) -> str:
    """A generated module without the compiler's version, which is not part of the schema."""
    text = re.sub(r"# Protobuf Python Version: .*", "", text)
    return re.sub(r"_runtime_version\.Domain\.PUBLIC,\s+\d+,\s+\d+,\s+\d+,", "", text)


class TestGeneratedModules:
    """The classes from the schemas."""

    def test_the_committed_modules_are_current(self, tmp_path: Path) -> None:
        """Regenerating gives what is committed (`python tools/generate_protos.py`)."""
        path = ROOT / "tools" / "generate_protos.py"
        spec = importlib.util.spec_from_file_location("generate_protos", path)
        assert spec is not None
        assert spec.loader is not None
        tool = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tool)
        written = tool.generate(tmp_path)
        assert len(written) == 2 * len(tool.schemas())
        for name in written:
            fresh = _without_version((tmp_path / name).read_text())
            assert fresh == _without_version((tool.ORACLES / name).read_text())

    def test_trace_kinds_have_their_numbers(self) -> None:
        """Every payload's kind is a value of the enumeration, and the other way round."""
        kinds = sorted(payload.kind for payload in trace.TRACE_PAYLOADS)
        assert kinds == sorted(trace_pb2.TraceEvent.Type.values())

    def test_trace_fields_are_those_of_the_payloads(self) -> None:
        """Each payload has a message in the schema with the same fields as on disk."""
        renamed = {"AddPeer": "OnNewOutboundStream", "RemovePeer": "OnClosedOutboundStream"}
        for payload in trace.TRACE_PAYLOADS:
            name = renamed.get(payload.__name__, payload.__name__)
            found = trace_pb2.TraceEvent.DESCRIPTOR.nested_types_by_name[name]
            assert set(payload.__struct_encode_fields__) == set(found.fields_by_name), name

    def test_our_own_trace_fields_are_numbered_from_1000(self) -> None:
        """libp2p's numbers stay free for libp2p inside its messages."""
        event = trace_pb2.TraceEvent.DESCRIPTOR
        ours = {
            "": [
                "nodeUp",
                "nodeDown",
                "refuse",
                "penalise",
                "undeliverableMessage",
                "skipPublish",
                "stabilised",
                "syncEnded",
                "failPublish",
            ],
            "DeliverMessage": ["via"],
            "DropRPC": ["reason"],
            "RPCMeta": ["size", "dataSize", "operations", "cause"],
        }
        for name, added in ours.items():
            message = event.nested_types_by_name[name] if name else event
            for field in message.fields:
                assert (field.number >= 1000) == (field.name in added)
