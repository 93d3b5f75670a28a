"""`retention`, `backup`, `restore`, `export`, `import`, `compact` and `repair`: the log as files.

What only reads works beside a running node. What a running node must do itself, it is asked to.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec

from rumormill.cli.grammar import DATA_LOSS, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.printing import plain
from rumormill.cli.session import by_the_node, log_to_change
from rumormill.cli.settings import Resolved
from rumormill.daemon.control_client import ControlClient, held_without_control
from rumormill.daemon.control_service import Mending
from rumormill.log.backup import backup, restore
from rumormill.log.errors import StoreLockedError
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import RetentionLine, compact, retention_lines
from rumormill.log.model import Report
from rumormill.log.parquet import export_parquet, import_parquet
from rumormill.log.repair import repair
from rumormill.node.verdicts import fault_of


def run_retention(options: argparse.Namespace) -> int:
    """Show, or delete."""
    resolved = begin(options)
    lines, left_out = _retention(resolved, options)
    if options.topic is not None and not lines:
        raise CommandError(f"the log of {resolved.home} has no topic {options.topic!r}")
    for line in lines:
        print(json.dumps(msgspec.to_builtins(line)) if options.json else _shown(line))
    if left_out:
        raise CommandError(f"{left_out} more topics were left out; name one")
    return 0


def _retention(resolved: Resolved, options: argparse.Namespace) -> tuple[list[RetentionLine], int]:
    topic, rules, apply = options.topic, resolved.retain, options.apply

    async def ask(client: ControlClient) -> tuple[list[RetentionLine], int]:
        typed = rules if options.retain else None  # else it has rules of its own
        found = await client.retention(topic, typed, apply=apply)
        return found.lines, found.left_out

    def alone() -> tuple[list[RetentionLine], int]:
        with log_to_change(resolved) if apply else EventLog(resolved.home, read_only=True) as log:
            return retention_lines(log, rules, topic, apply=apply), 0

    return by_the_node(resolved, ask, alone)


def _shown(line: RetentionLine) -> str:
    limits = []
    if (rule := line.rule) is not None:
        if rule.max_age_seconds is not None:
            limits.append(f"{rule.max_age_seconds / 86400:g} days")
        if rule.max_bytes is not None:
            limits.append(f"{rule.max_bytes} bytes")
        if rule.max_events is not None:
            limits.append(f"{rule.max_events} events")
    kept = ", ".join(limits) or "everything"
    done = f"{line.beyond} beyond" if line.deleted is None else f"{line.deleted} deleted"
    return f"{plain(line.topic)}\t{line.events} events, {line.bytes} bytes\tkeeps {kept}\t{done}"


def run_backup(options: argparse.Namespace) -> int:
    """Copy a home beside the node that runs in it."""
    resolved, to = begin(options), _path(options.to)
    report = backup(resolved.home, to)
    return _tell(options, {"backup": str(to)}, report, f"{to}: {_size(report)}, all verified")


def run_restore(options: argparse.Namespace) -> int:
    """Put a backup in the place of a home's log."""
    resolved, source = begin(options), _path(options.source)
    report = _mended(resolved, "restore", source, replace=options.replace)
    said = [f"{resolved.home} has what {source} has: {_size(report)}, all verified"]
    empty = [finding.sentence() for finding in report.findings]
    return _tell(
        options,
        {"home": str(resolved.home), "empty": empty},
        report,
        "\n".join([*said, *empty]),
    )


def _mended(
    resolved: Resolved, how: Mending, path: Path | None = None, *, replace: bool = False
) -> Report:
    """What the node of the home does, or this command where none runs."""

    def alone() -> Report:
        try:
            if how == "restore" and path is not None:
                return restore(path, resolved.home, replace=replace)
            if path is None:
                return repair(resolved.home, resolved.store_config)
            with EventLog(resolved.home, resolved.store_config) as log:
                return Report((), import_parquet(log, path, fault_of()), 0)
        except StoreLockedError as error:
            raise CommandError(held_without_control(resolved.home) or str(error)) from None

    where = "" if path is None else str(path)
    return by_the_node(resolved, lambda client: client.mend(how, where, replace=replace), alone)


def run_export(options: argparse.Namespace) -> int:
    """Write events to a Parquet file."""
    resolved, path = begin(options), _path(options.file)
    if path.exists():
        raise CommandError(f"{path} exists already: name a file that does not")
    with EventLog(resolved.home, read_only=True) as log:
        known = [extent.name for extent in log.topics()]
        unknown = [topic for topic in options.topics or () if topic not in known]
        if unknown:
            raise CommandError(f"the log of {resolved.home} has no topic {unknown[0]!r}")
        events = export_parquet(log, path, options.topics)
    told = {"file": str(path), "events": events}
    print(json.dumps(told) if options.json else f"{path}: {events} events")
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Take in what was exported, if it proves itself."""
    resolved, path = begin(options), _path(options.file)
    if not path.is_file():
        raise CommandError(f"there is no file {path}")
    events = _mended(resolved, "import", path).events
    told = {"home": str(resolved.home), "events": events}
    print(json.dumps(told) if options.json else f"{resolved.home}: {events} events are new")
    return 0


def run_compact(options: argparse.Namespace) -> int:
    """Give back space that the log does not use."""
    resolved = begin(options)
    freed = _compact(resolved, old=options.old)
    print(json.dumps({"freed": freed}) if options.json else f"{freed} bytes given back")
    return 0


def _compact(resolved: Resolved, *, old: bool) -> int:
    def alone() -> int:
        with log_to_change(resolved) as log:
            return compact(log, old=old)

    return by_the_node(resolved, lambda client: client.compact(old=old), alone)


def run_repair(options: argparse.Namespace) -> int:
    """Make a damaged log writable again."""
    resolved = begin(options)
    report = _mended(resolved, "repair")
    if report.ok:
        print(json.dumps({"findings": []}) if options.json else "nothing is wrong")
        return 0
    said = [finding.sentence() for finding in report.findings]
    lost = any(each.topic is not None and each.start < each.end for each in report.findings)
    kept = f"{_size(report)} kept; the damaged database stays until `rumormill compact --old`"
    _tell(options, {"findings": said, "lost": lost}, report, "\n".join([*said, kept]))
    return DATA_LOSS if lost else 0


def _size(report: Report) -> str:
    return f"{report.events} events, {report.size} bytes"


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _tell(options: argparse.Namespace, told: dict[str, Any], report: Report, said: str) -> int:
    told |= {"events": report.events, "bytes": report.size}
    print(json.dumps(told) if options.json else said)
    return 0
