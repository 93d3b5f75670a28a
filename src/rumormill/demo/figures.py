"""The figures of a run that are compared: out of the lake that Spark milled, or out of the traces.

Both ways have the same definitions (`docs/trace.md`, Metrics). The rule: where a run was milled,
what is shown is what stands in the lake's tables.
"""

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rumormill.trace.files import read_trace
from rumormill.trace.metrics import Metrics
from rumormill.trace.recorder import Recorder

if TYPE_CHECKING:
    from rumormill.spark.lake import Lake


class Figures(msgspec.Struct, frozen=True):
    """How a protocol did."""

    published: int
    expected: int
    delivered: int
    delivery_ratio: float | None
    messages_per_delivery: float | None
    duplicates_per_delivery: float | None
    latency_p50: float | None
    latency_p99: float | None
    data_bytes: int
    control_bytes: int


def of_traces(paths: Sequence[str]) -> Figures:
    """The figures of one network, whose traces are merged by their clocks."""
    metrics = Metrics()
    recorder = Recorder([metrics])
    for entry in heapq.merge(*[read_trace(path) for path in paths], key=lambda entry: entry[0]):
        recorder.record(entry)
        recorder.maybe_flush()
    recorder.close()
    found = metrics.summary()
    found["expected"] = found["expected_deliveries"]
    return _figures(found, found["data_bytes"], found["control_bytes"])


def of_lake(lake: "Lake") -> dict[str, Figures]:
    """The figures of all runs of a lake, by run."""
    spent = {(row["run"], row["kind"]): row["bytes"] or 0 for row in lake.rows("overhead")}
    return {
        row["run"]: _figures(
            row, spent.get((row["run"], "message"), 0), spent.get((row["run"], "control"), 0)
        )
        for row in lake.rows("delivery_quality")
        if row["scope"] == "run"
    }


def _figures(found: dict[str, Any], data: int, control: int) -> Figures:
    named = {name: found[name] for name in Figures.__struct_fields__ if name in found}
    return Figures(**{**named, "data_bytes": data, "control_bytes": control})
