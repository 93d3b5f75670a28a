"""Events of a store as the lake has them."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from rumormill import SyncNode
from rumormill.spark.bronze import find_source, read_events
from rumormill.spark.verifying import verify

pytestmark = pytest.mark.xdist_group("spark")


def test_envelopes_are_verified_as_they_travelled(spark: Any, tmp_path: Path) -> None:
    """A signature is over key, headers and data; the table has them apart."""
    with SyncNode(tmp_path / "home") as node:
        node.publish("news", b"data", key="k", headers={"a": "b"})
        node.publish("news", b"plain")
    events = read_events(spark, find_source(str(tmp_path / "home"))).cache()
    rows = events.orderBy("offset").collect()
    assert [(row.key, row.value, row.payload is None) for row in rows] == [
        (b"k", b"data", False),
        (None, b"plain", True),
    ]
    verdicts = verify(events).collect()
    assert {(row.signature, row.fault) for row in verdicts} == {("valid", None)}
    bare = verify(events.withColumn("payload", f.lit(None).cast("binary"))).orderBy("offset")
    assert [row.fault for row in bare.collect()] == ["bad-signature", None]
