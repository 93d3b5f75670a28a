"""How far a stream is behind, from its progress.

Kafka's connector adds these figures to the progress itself. Spark does not let a source that is
written in Python do so: it asks it for the latest offsets, and no more. They are computed here from
what the progress does have, under Kafka's names.
"""

import json
from collections.abc import Mapping
from typing import Any

from rumormill.spark.replicas import from_json


def behind_latest(progress: Any, source: int = 0) -> dict[str, float]:
    """Of `query.lastProgress`, how many events a source's topics are ahead of what was read:
    `maxOffsetsBehindLatest`, `minOffsetsBehindLatest`, `avgOffsetsBehindLatest`."""
    found = progress["sources"][source]
    read, latest = (from_json(_offsets(found[name])) for name in ("endOffset", "latestOffset"))
    behind = [max(0, place - read.get(line, 0)) for line, place in latest.items()] or [0]
    return {
        "maxOffsetsBehindLatest": max(behind),
        "minOffsetsBehindLatest": min(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(text: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    return json.loads(text) or {} if isinstance(text, str) else text or {}
