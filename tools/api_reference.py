"""Writes docs/api-reference.md: every public name of `rumormill`, from signatures and docstrings.

    python tools/api_reference.py            # write the page
    python tools/api_reference.py --check    # say whether it is up to date

The rule: what stands on the page stands in the code; nothing is written here by hand.
"""

import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

import rumormill

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api-reference.md"
HEAD = """\
# API reference

Every public name of `rumormill`, generated from the code by `python tools/api_reference.py`; the
[Python API](python-api.md) explains how they go together. `SyncNode` has the calls of `Node`
without `await`, and `Client` those of a node that runs elsewhere.
"""
_INHERITED = (Exception, bytes, Enum, msgspec.Struct, object)


def page() -> str:
    """The whole page."""
    names = sorted(name for name in rumormill.__all__ if not name.startswith("_"))
    return "\n".join([HEAD, *[_entry(name, getattr(rumormill, name)) for name in names]])


def _entry(name: str, thing: Any) -> str:
    lines = [f"## {name}", "", *_code(_declared(name, thing)), "", _text(thing)]
    if inspect.isclass(thing):
        for member, value in _members(thing):
            if isinstance(value, property):
                lines += [f"**`{member}`**: {_text(value)}", ""]
            else:
                call = f"{_async(value)}{member}{_signature(value)}"
                lines += [f"### {name}.{member}", "", *_code(call), "", _text(value)]
    return "\n".join(lines)


def _code(text: str) -> list[str]:
    return ["```pyi", text, "```"]


def _async(value: Any) -> str:
    return "await " if inspect.iscoroutinefunction(inspect.unwrap(value)) else ""


def _declared(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"{name}{_signature(thing)}"
    if issubclass(thing, Enum):
        return "\n".join(
            [f"class {name}:", *[f"    {each.name} = {_plain(repr(each.value))}" for each in thing]]
        )
    if issubclass(thing, msgspec.Struct):
        fields = [_field(field) for field in msgspec.structs.fields(thing)]
        return "\n".join([f"class {name}:", *[f"    {field}" for field in fields]])
    parents = [each.__name__ for each in thing.__bases__ if each in (bytes, Exception)]
    parents += [each.__name__ for each in thing.__bases__ if each.__name__ in rumormill.__all__]
    if parents:
        return f"class {name}({', '.join(parents)})"
    return f"{name}{_signature(thing)}"


def _field(field: msgspec.structs.FieldInfo) -> str:
    kind = _plain(str(getattr(field.type, "__name__", field.type)))
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return f"{field.name}: {kind}"
    given = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"{field.name}: {kind} = {_plain(repr(given))}"


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return ""
    kept = [each for name, each in signature.parameters.items() if name != "self"]
    shown = _plain(str(signature.replace(parameters=kept)))
    if len(shown) < 80:
        return shown
    inner, _, result = shown[1:].rpartition(")")
    parts = re.split(r", (?=\*|\w+:|\w+=|\w+$)", inner)
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")" + result


def _plain(text: str) -> str:
    """Types as people write them, without the modules that they come from."""
    text = re.sub(r"<(?:class )?'?([\w.]+)'?(?:: [^>]*)?>", r"\1", text)
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text).replace("'", '"')
    # Python's versions write these differently.
    text = re.sub(r"(\*\*\w+): \*(\w+)", r"\1: Unpack[\2]", text)
    text = re.sub(r"Optional\[(Literal\[[^\]]*\])\]", r"\1 | None", text)
    union = r"Union\[(\w+\[[^\]]*\]), (\w+\[[^\]]*\]), NoneType\]"
    return re.sub(union, r"\1 | \2 | None", text)


def _members(thing: type) -> list[tuple[str, Any]]:
    """The public calls and properties of a class, those of its parents of ours included."""
    found: dict[str, Any] = {}
    for kind in reversed(thing.__mro__):
        if kind in _INHERITED or not kind.__module__.startswith("rumormill"):
            continue
        for name, held in vars(kind).items():
            value = held.__func__ if isinstance(held, classmethod | staticmethod) else held
            if not name.startswith("_") and (callable(value) or isinstance(value, property)):
                found[name] = value
    return [(name, found[name]) for name in sorted(found) if not isinstance(found[name], Enum)]


def _text(thing: Any) -> str:
    """A docstring as a paragraph of the page; what is indented in it stands as it is."""
    found = inspect.getdoc(inspect.unwrap(thing) if callable(thing) else thing) or ""
    lines = []
    for block in found.split("\n\n"):
        if block.startswith("    "):
            lines += [*_code(inspect.cleandoc(block)), ""]
        else:
            lines += [block.replace("<", "&lt;"), ""]
    return "\n".join(lines)


def main() -> int:
    """Write the page, or compare it."""
    fresh = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != fresh)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
