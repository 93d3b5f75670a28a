"""Frozen bytes of every message of our own protocols, beside their schemas: `*.vectors.json`.

A vector is a name, the bytes without the length prefix of the stream, and the fields as the schema
names them, bytes in hexadecimal. Whoever implements a protocol elsewhere tests with these. Run this
file as a program, with `tests` in PYTHONPATH, to add what is missing; those that are there are
never rewritten.
"""

import json
import sys
from typing import Any

import msgspec
import pytest

from rumormill.protocols.radius.messages import signed_bytes
from rumormill.protocols.skipring.envelope import SIGN_PREFIX, unsigned_fields
from rumormill.wire.keys import PrivateKey
from wire_samples import SEED, WIRES, Wire

CASES = [
    pytest.param(wire, name, id=f"{wire.name}-{name}") for wire in WIRES for name in wire.values
]


def read(wire: Wire) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(wire.file.read_text())
    return found


def vector(wire: Wire, name: str) -> tuple[bytes, dict[str, Any]]:
    """The bytes and fields of a message."""
    found = read(wire)["vectors"][name]
    return bytes.fromhex(found["bytes"]), found["fields"]


def fields_of(message: Any) -> dict[str, Any]:
    """A message of the protobuf library by the names of its fields."""
    found = {}
    for field, value in message.ListFields():
        many = field.is_repeated
        shown = [_shown(field, each) for each in (value if many else [value])]
        found[field.name] = shown if many else shown[0]
    return found


def _shown(field: Any, value: Any) -> Any:
    if field.message_type:
        return fields_of(value)
    if field.enum_type:
        return field.enum_type.values_by_number[value].name
    return value.hex() if field.type == field.TYPE_BYTES else value


def message_of(kind: Any, fields: dict[str, Any]) -> Any:
    """The inverse of `fields_of`."""
    message = kind()
    for name, value in fields.items():
        field = kind.DESCRIPTOR.fields_by_name[name]
        for each in value if field.is_repeated else [value]:
            _put(message, field, each)
    return message


def _put(message: Any, field: Any, value: Any) -> None:
    held = getattr(message, field.name)
    if field.message_type:
        inner = held.add() if field.is_repeated else held
        inner.SetInParent()
        inner.MergeFrom(message_of(type(inner), value))
        return
    if field.enum_type:
        value = field.enum_type.values_by_name[value].number
    elif field.type == field.TYPE_BYTES:
        value = bytes.fromhex(value)
    if field.is_repeated:
        held.append(value)
    else:
        setattr(message, field.name, value)


def plain(value: Any) -> Any:
    """What a value says, without what it has worked out and kept of it."""
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, {
            name: plain(getattr(value, name))
            for name in value.__struct_fields__
            if not name.startswith("cached")
        }
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(("wire", "name"), CASES)
def test_our_values_are_written_as_these_bytes(wire: Wire, name: str) -> None:
    """Whoever has read them once reads them for ever."""
    encoded, _ = vector(wire, name)
    assert wire.encode(wire.values[name]).hex() == encoded.hex()


@pytest.mark.parametrize(("wire", "name"), CASES)
def test_these_bytes_are_read_as_our_values(wire: Wire, name: str) -> None:
    """Field by field."""
    encoded, _ = vector(wire, name)
    assert plain(wire.decode(encoded)) == plain(wire.values[name])


@pytest.mark.parametrize(("wire", "name"), CASES)
def test_the_schema_gives_the_fields_and_the_bytes(wire: Wire, name: str) -> None:
    """The published `.proto` alone is enough to read and to write them."""
    encoded, fields = vector(wire, name)
    assert fields_of(wire.oracle.FromString(encoded)) == fields
    assert message_of(wire.oracle, fields).SerializeToString(deterministic=True) == encoded


@pytest.mark.parametrize("wire", WIRES, ids=[wire.name for wire in WIRES])
def test_a_file_has_the_protocol_and_no_vector_that_nothing_makes(wire: Wire) -> None:
    """Nothing is taken away either."""
    found = read(wire)
    assert (found["protocol"], found["message"]) == (wire.protocol, wire.oracle.DESCRIPTOR.name)
    assert sorted(found["vectors"]) == sorted(wire.values)


@pytest.mark.parametrize("wire", WIRES[:3], ids=[wire.name for wire in WIRES[:3]])
def test_every_body_of_a_schema_has_a_vector(wire: Wire) -> None:
    """A message that is added is frozen with the rest; most of the other schemas is libp2p's."""
    said = {field for each in read(wire)["vectors"].values() for field in each["fields"]}
    assert said == {field.name for field in wire.oracle.DESCRIPTOR.fields}


def test_signatures_cover_what_the_specification_says() -> None:
    """The seed, what is signed, the signature and the name that follows from it."""
    for wire in WIRES:
        for name, each in read(wire).get("signed", {}).items():
            key = PrivateKey(bytes.fromhex(each["seed"]))
            assert key.sign(bytes.fromhex(each["covers"])).hex() == each["signature"]
            assert each == signed(wire)[name]


def signed(wire: Wire) -> dict[str, dict[str, str]]:
    """What is signed in a protocol's vectors, by their names."""
    covered: dict[str, tuple[bytes, bytes, bytes]] = {}
    if wire.name == "skipring":
        said = wire.values["publish new"].publication
        covered["publish new"] = (SIGN_PREFIX + unsigned_fields(said), said.signature, said.id)
    if wire.name == "radius":
        said = wire.values["directmsg"].direct[0]
        covered["directmsg"] = (signed_bytes(said), said.signature, said.id)
        for name in ("sub", "unsub"):
            word = wire.values[name].interests[0].interest
            covered[name] = (signed_bytes(word), word.signature, b"")
    return {
        name: {"seed": SEED.hex(), "covers": covers.hex(), "signature": signature.hex()}
        | ({"id": uid.hex()} if uid else {})
        for name, (covers, signature, uid) in covered.items()
    }


def main() -> None:
    """Add vectors that are missing."""
    for wire in WIRES:
        kept = read(wire) if wire.file.exists() else {"vectors": {}}
        for name, value in wire.values.items():
            encoded = wire.encode(value)
            fields = fields_of(wire.oracle.FromString(encoded))
            kept["vectors"].setdefault(name, {"bytes": encoded.hex(), "fields": fields})
        head = {"protocol": wire.protocol, "message": wire.oracle.DESCRIPTOR.name}
        made = signed(wire) | kept.get("signed", {})
        found = head | ({"signed": made} if made else {}) | {"vectors": kept["vectors"]}
        wire.file.write_text(json.dumps(found, indent=1) + "\n")
        sys.stdout.write(f"{wire.file}: {len(kept['vectors'])} vectors\n")


if __name__ == "__main__":
    main()
