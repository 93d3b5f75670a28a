"""The fields of every trace struct, as the file formats need to know them.

The rule: formats are derived from `core.trace` and never list its fields again.
"""

from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from rumormill.core.trace import TRACE_PAYLOADS, ControlMeta, RpcMeta


class FieldShape(NamedTuple):
    """One field: its name here and on disk, and what it holds.

    `holds` is the type of the value, or of one value if the field is repeated. A field that is
    not required has a default and is left out where it has that value.
    """

    attribute: str
    name: str
    holds: Any
    nested: bool
    repeated: bool
    required: bool
    default: Any


def _note_shape(struct: Any, shapes: dict[Any, tuple[FieldShape, ...]]) -> None:
    if struct in shapes:
        return
    hints = get_type_hints(struct)
    fields = []
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        holds = (get_args(hint) or (hint,))[0]
        nested = isinstance(holds, type) and issubclass(holds, msgspec.Struct)
        if nested:
            _note_shape(holds, shapes)
        fields.append(
            FieldShape(
                attribute=field.name,
                name=field.encode_name,
                holds=holds,
                nested=nested,
                repeated=get_origin(hint) is tuple,
                required=field.required,
                default=field.default,
            )
        )
    shapes[struct] = tuple(fields)


SHAPES: dict[Any, tuple[FieldShape, ...]] = {}
"""Every trace struct's fields; a struct stands behind the structs that it contains."""

for _struct in (RpcMeta, *TRACE_PAYLOADS):
    _note_shape(_struct, SHAPES)


def column_of(field: FieldShape) -> str:
    """The column of a flat table that holds a payload's field."""
    return "remotePeer" if field.attribute in _REMOTE_PEER else field.name


_REMOTE_PEER = ("received_from", "send_to", "peer")
_FIELDS = [field for payload in TRACE_PAYLOADS for field in SHAPES[payload]]
_FLAT = {column_of(field): field for field in _FIELDS if field.holds is not RpcMeta}
_OF_RPCS = [
    each
    for field in SHAPES[RpcMeta]
    for each in (SHAPES[ControlMeta] if field.holds is ControlMeta else (field,))
]
COLUMNS: dict[str, FieldShape] = _FLAT | {field.name: field for field in _OF_RPCS}
"""The columns of a flat table of entries, besides the envelope's: what RPCs carried comes last."""
