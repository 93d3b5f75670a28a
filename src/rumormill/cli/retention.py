"""`rumormill retention`: what is kept of topics, what is beyond that, and its end."""

import argparse
import json
import time

import msgspec

from rumormill.cli.grammar import CommandError
from rumormill.cli.logs import begin
from rumormill.daemon.control_messages import socket_path
from rumormill.log.event_log import EventLog
from rumormill.log.model import Retention, TopicExtent
from rumormill.node.retaining import delete_what_is_beyond, rule_for


class Line(msgspec.Struct, frozen=True):
    """A topic, and what a rule says of it; `oldest` is when its oldest event was received."""

    topic: str
    rule: Retention | None
    events: int
    bytes: int
    oldest: float | None
    beyond: int
    """Events that the rule would delete, as far as number and age say."""
    deleted: int | None = None


def run_retention(options: argparse.Namespace) -> int:
    """Show, or delete."""
    resolved = begin(options)
    rules = resolved.retain
    if options.apply and socket_path(resolved.home).exists():
        raise CommandError(
            f"a node runs in {resolved.home}, and deletes by its own rules, every minute"
        )
    deleted: dict[str, int] = {}
    if options.apply:
        rule = None if options.topic is None else rule_for(rules, options.topic)
        with EventLog(resolved.home, resolved.store_config) as log:
            only = rules if options.topic is None else {options.topic: rule} if rule else {}
            deleted = delete_what_is_beyond(log, only)
    with EventLog(resolved.home, read_only=True) as log:
        extents = [each for each in log.topics() if options.topic in (None, each.name)]
        if options.topic is not None and not extents:
            raise CommandError(f"the log of {resolved.home} has no topic {options.topic!r}")
        for extent in extents:
            line = _line(log, extent, rule_for(rules, extent.name))
            if options.apply:
                line = msgspec.structs.replace(line, deleted=deleted.get(extent.name, 0))
            print(json.dumps(msgspec.to_builtins(line)) if options.json else _shown(line))
    return 0


def _line(log: EventLog, extent: TopicExtent, rule: Retention | None) -> Line:
    first, behind = extent.first_offset, extent.next_offset
    oldest = log.read(extent.name, first, 1) if first < behind else []
    beyond = 0
    if rule is not None and rule.max_events is not None:
        beyond = max(0, behind - first - rule.max_events)
    if rule is not None and rule.max_age_seconds is not None and oldest:
        young = log.read_since(extent.name, time.time() - rule.max_age_seconds, 1)
        beyond = max(beyond, (young[0].offset if young else behind) - first)
    received = oldest[0].received if oldest else None
    return Line(extent.name, rule, behind - first, extent.size, received, beyond)


def _shown(line: Line) -> str:
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
    return f"{line.topic}\t{line.events} events, {line.bytes} bytes\tkeeps {kept}\t{done}"
