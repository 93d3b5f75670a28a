"""A strict reader of a metrics page, in Prometheus' text format 0.0.4 and in OpenMetrics 1.0.

It knows what both specifications demand of what a node serves, and fails on everything else: kinds
and names that do not fit, samples apart from their metric or twice, labels that are none,
histograms that do not add up.
"""

import math
import re
from typing import Final

import msgspec

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL: Final = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
_SAMPLE: Final = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (\S+)")
_ONE: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
_SUFFIXES: Final = {
    "counter": ("_total",),
    "gauge": ("",),
    "info": ("_info",),
    "histogram": ("_bucket", "_count", "_sum"),
}


class Metric(msgspec.Struct):
    """One metric: its kind, and its samples by suffix and labels."""

    kind: str
    text: str
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}


def parse(page: str, *, openmetrics: bool) -> dict[str, Metric]:
    """Every metric of a page by its name; an `AssertionError` where the page is none."""
    lines = page.split("\n")
    assert lines.pop() == "", "a page ends with the end of a line"
    if openmetrics:
        assert lines.pop() == "# EOF"
    found: dict[str, Metric] = {}
    name = text = ""
    for line in lines:
        if line.startswith("# HELP "):
            name, text = re.fullmatch(rf"# HELP ({_NAME}) ([^\\\n]+)", line).groups()  # type: ignore[union-attr]
            assert name not in found, f"{name} stands in two places"
        elif line.startswith("# TYPE "):
            typed, kind = re.fullmatch(rf"# TYPE ({_NAME}) (\w+)", line).groups()  # type: ignore[union-attr]
            assert typed == name
            assert kind in (_SUFFIXES if openmetrics else ("counter", "gauge", "histogram"))
            found[name] = Metric(kind, text, {})
        else:
            _take(found[name], name, line, openmetrics=openmetrics)
    for each, metric in found.items():
        if openmetrics:
            assert not each.endswith(("_total", "_info")), f"{each} is the name of a sample"
        if metric.kind == "histogram":
            _check_histogram(each, metric)
    return found


def _take(metric: Metric, name: str, line: str, *, openmetrics: bool) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, f"no sample: {line!r}"
    sample, labels, value = match.groups()
    suffix = sample.removeprefix(name)
    allowed = _SUFFIXES[metric.kind]
    if not openmetrics and metric.kind == "counter":
        assert name.endswith("_total")
        allowed = ("",)
    assert sample.startswith(name), f"{sample} does not belong to {name}"
    assert suffix in allowed, f"{sample} is no sample of a {metric.kind} {name}"
    key = suffix, tuple(sorted(_ONE.findall(labels or "")))
    assert key not in metric.samples, f"{line!r} is there twice"
    number = float(value)
    assert metric.kind == "gauge" or number >= 0
    assert metric.kind != "info" or number == 1
    metric.samples[key] = number


def _check_histogram(name: str, metric: Metric) -> None:
    bounds = [
        (float(dict(labels)["le"]), count)
        for (suffix, labels), count in metric.samples.items()
        if suffix == "_bucket"
    ]
    assert bounds == sorted(bounds), f"the boxes of {name} are in no order"
    assert bounds[-1] == (math.inf, metric.samples["_count", ()]), name
    assert ("_sum", ()) in metric.samples
