"""The upkeep that commands ask of a running node: settings, its log as files, clocks, counts."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from rumormill.daemon import control_messages as messages
from rumormill.daemon.served_node import ServedNode
from rumormill.log.model import Report

UpkeepRequest = (
    messages.Reload
    | messages.Retain
    | messages.Compact
    | messages.Mend
    | messages.CompareClocks
    | messages.AskReach
    | messages.Measure
)
Reloading = Callable[[], Awaitable[messages.Reloaded]]
"""Reads the settings again, and everything that they name."""

MAX_LINES = 10_000
"""Topics, or findings, in one answer."""


async def carry_out(
    node: ServedNode, request: UpkeepRequest, reload: Reloading | None
) -> messages.Answer:
    """Have the node do it; without settings to read, it reads its keys and policies again."""
    if isinstance(request, messages.Reload):
        if reload is not None:
            return await reload()
        node.access.reload()
        return messages.Reloaded()
    if isinstance(request, messages.Retain):
        lines = await node.retention(request.topic, rules=request.rules, apply=request.apply)
        return messages.Retained(lines[:MAX_LINES], max(0, len(lines) - MAX_LINES))
    if isinstance(request, messages.Compact):
        return messages.Compacted(await node.compact(old=request.old))
    if isinstance(request, messages.Mend):
        return messages.Mended(await _mend(node, request))
    if isinstance(request, messages.AskReach):
        return messages.ReachReport(node.reachability)
    if isinstance(request, messages.Measure):
        metrics = {name: dict(values) for name, values in node.metrics().items()}
        return messages.Measured(metrics, node.health())
    return messages.Clocks(await node.peer_clocks())


async def _mend(node: ServedNode, request: messages.Mend) -> Report:
    if request.how == "import":
        return Report((), await node.import_events(request.path), 0)
    if request.how == "restore":
        report = await node.restore(request.path, replace=request.replace)
    else:
        report = await node.repair()
    return replace(report, findings=report.findings[:MAX_LINES])
