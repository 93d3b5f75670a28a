"""The names that others rely on are those of `surface.json`; docs/stability.md says what they are.

Whoever adds, renames or removes one knows it then, and says so in the changelog. Run this file as a
program to write the list anew.
"""

import argparse
import contextlib
import io
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rumormill
from rumormill import SyncNode, cli
from rumormill.cli import grammar
from rumormill.cli.parser import build_parser
from rumormill.cli.printing import receipt_json
from rumormill.core import api, trace
from rumormill.daemon import control_messages
from rumormill.log import EventLog, notes, positions, records
from rumormill.log.arrow import COLUMNS, event_schema, libraries
from rumormill.log.parquet import _schema as export_schema
from rumormill.node.metrics import METRICS
from rumormill.protocols.registry import PROTOCOL_NAMES, protocol
from rumormill.spark.options import READ_OPTIONS, WRITE_OPTIONS
from rumormill.spark.tables import TABLES, ddl
from rumormill.trace.parquet import SCHEMA as TRACE_COLUMNS
from rumormill.trace.shapes import SHAPES

FILE = Path(__file__).with_name("surface.json")
Section = dict[str, list[str]]


def members(kind: type) -> list[str]:
    """The public members of a class, those of its instances included."""
    ours = [each for each in kind.__mro__ if each.__module__.startswith("rumormill")]
    said = {name for each in ours for name in (*vars(each), *each.__annotations__)}
    return sorted(name for name in said if not name.startswith("_"))


def python() -> Section:
    """`rumormill.__all__`, and what classes have."""
    found = {name: getattr(rumormill, name) for name in rumormill.__all__}
    return {
        name: members(each) if isinstance(each, type) and not issubclass(each, Exception) else []
        for name, each in found.items()
    }


def command_line() -> Section:
    """Verbs, their flags and arguments, and exit codes."""
    found: Section = {"exit codes": []}
    (verbs,) = (
        each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    for name, verb in verbs.choices.items():
        found[name] = sorted(
            "/".join(each.option_strings) or f"{each.dest} {'|'.join(each.choices or ())}".strip()
            for each in verb._actions
            if each.dest != "help"
        )
    codes = {name: getattr(grammar, name) for name in ("FAILURE", "USAGE", "TIMEOUT", "DATA_LOSS")}
    found["exit codes"] = [f"{name} {code}" for name, code in codes.items()]
    return found


def keys_of(value: Any, name: str = "") -> Iterator[str]:
    """The keys of a JSON object and of those in it; lists by what their first item has."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield f"{name}{key}"
            yield from keys_of(each, f"{name}{key}.")
    elif isinstance(value, list) and value:
        yield from keys_of(value[0], name)


def told(*arguments: str) -> list[str]:
    """The keys of what a command prints with `--json`."""
    out = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main([*arguments, "--json"]) == 0
    out.seek(0)
    return sorted(keys_of(json.loads(out.readline())))


def json_keys() -> Section:
    """What `--json` prints: of verbs that need no other node, and the records behind others."""
    with tempfile.TemporaryDirectory() as folder:
        home = str(Path(folder) / "home")
        with SyncNode(home) as node:
            receipt = node.publish("news", b"hello", key="k", headers={"h": "v"})
            node.subscribe("news", name="billing").close()
        at = ("--home", home)
        found = {
            "history": told("history", "news", *at),
            "topics": told("topics", *at),
            "retention": told("retention", *at),
            "backup": told("backup", f"{folder}/backup", *at),
            "export": told("export", f"{folder}/events.parquet", *at),
            "import": told("import", f"{folder}/events.parquet", "--home", f"{folder}/another"),
            "compact": told("compact", *at),
            "network new": told("network", "new", f"{folder}/network.key"),
            "topic-key new": told("topic-key", "new", f"{folder}/topic.key"),
            "sim": told("sim", "--peers", "4", "--messages", "2", "--rate", "10"),
        }
    found["pub"] = sorted(keys_of(receipt_json(receipt)))
    for name, record in (("groups", api.GroupView), ("peers", api.PeerView)):
        found[name] = sorted(record.__struct_fields__)
    return found


def traced() -> Section:
    """Kinds with their numbers, and the fields of each and of what is in them."""
    found = {
        f"{kind.kind} {kind.__name__}": [field.name for field in SHAPES[kind]]
        for kind in trace.TRACE_PAYLOADS
    }
    inner = [kind for kind in SHAPES if kind not in trace.TRACE_PAYLOADS]
    found |= {kind.__name__: [field.name for field in SHAPES[kind]] for kind in inner}
    found["parquet"] = [f"{field.name} {field.type}" for field in TRACE_COLUMNS]
    return found


def stored() -> Section:
    """The version of a store, and the columns of its tables."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        EventLog(home).close()
        (path,) = home.rglob("events-*.db")
        with contextlib.closing(sqlite3.connect(path)) as db:
            for made_on_demand in (notes, positions, records):
                db.execute(made_on_demand._CREATE)
            names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
            found = {
                name: [f"{row[1]} {row[2]}" for row in db.execute(f"PRAGMA table_info({name})")]
                for (name,) in names.fetchall()
            }
            ((version,),) = db.execute("SELECT schema_version FROM store")
    return {"version": [str(version)], **found}


def tables() -> Section:
    """Columns of a lake's tables, of Spark's source, and of exports."""
    lake = {name: ddl(name).split(", ") for name in TABLES}
    return {
        **lake,
        "format('rumormill')": [f"{field.name} {field.type}" for field in event_schema(COLUMNS)],
        "export": [f"{field.name} {field.type}" for field in export_schema(libraries()[0])],
        "options to read": sorted(READ_OPTIONS),
        "options to write": sorted(WRITE_OPTIONS),
    }


def spoken() -> Section:
    """Protocol ids, and the records of the control socket with their fields."""
    ids = {name: list(protocol(name).protocol_ids) for name in PROTOCOL_NAMES}
    found = {f"{name}'s ids": each for name, each in ids.items()}
    for base in (control_messages.Request, control_messages.Answer):
        for kind in base.__subclasses__():
            fields = [field.encode_name for field in msgspec.structs.fields(kind)]
            found[f"control {kind.__struct_config__.tag}"] = fields
    return {**found, "control version": [str(control_messages.VERSION)]}


def metrics() -> Section:
    """What the metrics page has."""
    return {"names": sorted(METRICS)}


SECTIONS: dict[str, Callable[[], Section]] = {
    "Python API": python,
    "command line": command_line,
    "--json": json_keys,
    "metrics": metrics,
    "trace": traced,
    "store": stored,
    "tables": tables,
    "wire": spoken,
}


def differences(kept: Section, now: Section) -> list[str]:
    """What was added and what is gone, one a line."""
    lists = kept.keys() | now.keys()
    changed = [
        f"{sign} {name}: {each}" if each else f"{sign} {name}"
        for name in sorted(lists)
        for sign, ours, theirs in (("-", kept, now), ("+", now, kept))
        for each in ([] if name in theirs else [""])
        + [each for each in ours.get(name, []) if each not in theirs.get(name, [])]
        if name in ours
    ]
    moved = [name for name in sorted(lists) if kept.get(name) != now.get(name)]
    return changed or [f"~ {name}: another order" for name in moved]


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_public_is_what_was_recorded(section: str) -> None:
    """A change of it is meant, told, and in the list."""
    changed = differences(json.loads(FILE.read_text())[section], SECTIONS[section]())
    assert not changed, (
        f"{section}: what is public has changed (docs/stability.md says what may);\n  "
        + "\n  ".join(changed)
        + "\nif it is meant: a line in CHANGELOG.md, and python tests/public/test_surface.py"
    )


def test_a_change_is_named() -> None:
    """What was renamed, added, removed or moved."""
    kept = {"a": ["one", "two"], "gone": []}
    assert differences(kept, {"a": ["one", "three"], "new": ["x"]}) == [
        "- a: two",
        "+ a: three",
        "- gone",
        "+ new",
        "+ new: x",
    ]
    assert differences(kept, {"a": ["two", "one"], "gone": []}) == ["~ a: another order"]
    assert not differences(kept, kept)


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: read() for name, read in SECTIONS.items()}, indent=1) + "\n")
    sys.stdout.write(f"{FILE}\n")
