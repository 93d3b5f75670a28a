"""The metrics of a node as a page: in Prometheus' text format, or in OpenMetrics if wanted.

Samples have the same names in both: counters end in `_total`, what is told in words in `_info`.
"""

from collections.abc import Iterator, Mapping

from rumormill.node.metrics import METRICS, Description, Values

_SUFFIX = {"counter": "_total", "info": "_info"}
SUM = "sum"
"""The label under which a histogram has the sum of its values; the others are its bounds."""


def render_metrics(found: Mapping[str, Values], *, openmetrics: bool = False) -> str:
    """All samples, each metric with what it is."""
    lines: list[str] = []
    for name, values in found.items():
        about = METRICS[name]
        lines += _head(name, about, openmetrics=openmetrics)
        lines += _samples(name, about, values)
    lines += ["# EOF"] if openmetrics else []
    return "\n".join(lines) + "\n"


def _head(name: str, about: Description, *, openmetrics: bool) -> Iterator[str]:
    """OpenMetrics calls a metric by its name, the older format by that of its samples."""
    kind = about.kind
    if not openmetrics:
        name += _SUFFIX.get(kind, "")
        kind = "gauge" if kind == "info" else kind
    yield f"# HELP {name} {about.text}"
    yield f"# TYPE {name} {kind}"


def _samples(name: str, about: Description, values: Values) -> Iterator[str]:
    if about.kind == "histogram":
        for bound, count in values.items():
            if bound != SUM:
                yield f'{name}_bucket{{le="{bound}"}} {count:.15g}'
        yield f"{name}_count {values['+Inf']:.15g}"
        yield f"{name}_sum {values[SUM]:.15g}"
        return
    name += _SUFFIX.get(about.kind, "")
    for label, value in values.items():
        yield f"{name}{_labels(about.label, label)} {value:.15g}"


def _labels(names: str, label: str) -> str:
    if not names:
        return ""
    several = names.split(",")
    texts = label.split(",") if len(several) > 1 else [label]
    pairs = [f'{name}="{_escaped(text)}"' for name, text in zip(several, texts, strict=True)]
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
