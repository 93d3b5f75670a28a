"""The parameters of a protocol, with the text that its source gives each of them.

The text is the string that stands below a field in its class; it is read from the source, so that
there is one place to write it.
"""

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from rumormill.core.config import Config


def list_parameters(config: Config, prefix: str = "") -> list[dict[str, Any]]:
    """Return name, value and text of every parameter; nested ones by dotted name."""
    texts = _texts(type(config))
    listed: list[dict[str, Any]] = []
    for field in msgspec.structs.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if isinstance(value, Config):
            listed += list_parameters(value, f"{name}.")
        else:
            plain = msgspec.json.decode(msgspec.json.encode(value))
            listed.append({"name": name, "value": plain, "text": texts.get(field.name, "")})
    return listed


def show_parameters(listed: list[dict[str, Any]]) -> None:
    """Print parameters for people."""
    for entry in listed:
        value = msgspec.json.encode(entry["value"]).decode()
        print(f"{entry['name']} = {value}")
        if entry["text"]:
            print(textwrap.fill(entry["text"], 96, initial_indent="    ", subsequent_indent="    "))


def _texts(kind: type) -> dict[str, str]:
    """The text of each field of a class and of those it inherits from."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not issubclass(owner, Config):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = " ".join(text.split())
    return texts
