"""The tables of a lake: their columns, in three layers.

Bronze is what was read, silver what it means event by event, gold the figures. The rule: a table is
written with exactly the columns that stand here, in this order and with these types, so that parts
that were made at different times and by different ways can be read as one table. `docs/tables.md`
says what each column means, and a test compares the two.
"""

from typing import TYPE_CHECKING, Final

from rumormill.core.config import nearest
from rumormill.core.errors import LocalError
from rumormill.trace import shapes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BRONZE: Final = ("runs", "traces", "events")
SILVER: Final = ("events_verified", "messages", "deliveries")
GOLD: Final = (
    "delivery_quality",
    "latency_cdf",
    "overhead",
    "peer_load",
    "topic_activity",
    "dag_health",
    "self_stabilisation",
    "sync_sessions",
)

_TYPES: Final = {
    bytes: "BINARY",
    str: "STRING",
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
}


def _type_of(field: shapes.FieldShape) -> str:
    kind = _TYPES.get(field.holds)
    if kind is None:
        inner = [f"{each.name}: {_type_of(each)}" for each in shapes.SHAPES[field.holds]]
        kind = f"STRUCT<{', '.join(inner)}>"
    return f"ARRAY<{kind}>" if field.repeated else kind


_OF_RUN: Final = "run STRING, protocol STRING, "

_DDL: Final = {
    "runs": _OF_RUN + "source STRING, peers INT, seed STRING, preset STRING, parameters STRING,"
    " condition STRING, scenario STRING, figures STRING",
    # Behind these are the columns of a trace as Parquet (`trace.parquet`).
    "traces": "run STRING, moment BIGINT, seq BIGINT, type INT, event STRING, peerID BINARY,"
    " timestamp BIGINT",
    "events": _OF_RUN + "topic STRING, offset BIGINT, id BINARY, author BINARY, publisher STRING,"
    " key BINARY, headers ARRAY<STRUCT<key:STRING,value:BINARY>>, value BINARY, created TIMESTAMP,"
    " received TIMESTAMP, parents ARRAY<BINARY>, proof BINARY, payload BINARY",
    "events_verified": _OF_RUN + "topic STRING, offset BIGINT, id BINARY, author BINARY,"
    " bytes BIGINT, created TIMESTAMP, received TIMESTAMP, parents ARRAY<BINARY>, id_valid BOOLEAN,"
    " signature STRING, fault STRING, missing_parents ARRAY<BINARY>, children INT,"
    " is_root BOOLEAN, is_head BOOLEAN",
    "messages": _OF_RUN + "message_id BINARY, topic STRING, publisher BINARY, published_at BIGINT,"
    " outcome STRING, copies BIGINT, duplicates BIGINT, received BIGINT, entitled BIGINT,"
    " missing BIGINT, time_to_complete DOUBLE",
    "deliveries": _OF_RUN + "message_id BINARY, topic STRING, publisher BINARY,"
    " published_at BIGINT, peer BINARY, expected BOOLEAN, entitled BOOLEAN, remote BOOLEAN,"
    " state STRING, reason STRING, delivered_at BIGINT, latency DOUBLE, hops INT, via STRING,"
    " kept_at BIGINT, times BIGINT, synced BIGINT, repeated BIGINT",
    "delivery_quality": _OF_RUN + "scope STRING, topic STRING, window_start DOUBLE,"
    " planned BIGINT, published BIGINT, failed BIGINT, skipped BIGINT, expected BIGINT,"
    " delivered BIGINT, pending BIGINT, dropped BIGINT,"
    " delivery_ratio DOUBLE, remote_deliveries BIGINT, extra_deliveries BIGINT,"
    " repeated_deliveries BIGINT, latency_p50 DOUBLE, latency_p90 DOUBLE, latency_p99 DOUBLE,"
    " latency_max DOUBLE, hops_mean DOUBLE, hops_max INT, messages_sent BIGINT,"
    " messages_per_delivery DOUBLE, duplicates BIGINT, duplicates_per_delivery DOUBLE, rmr DOUBLE,"
    " synced_deliveries BIGINT, entitled BIGINT, missing BIGINT, complete_ratio DOUBLE,"
    " incomplete BIGINT, time_to_complete_p50 DOUBLE, time_to_complete_p99 DOUBLE,"
    " time_to_complete_max DOUBLE",
    "latency_cdf": _OF_RUN + "percent INT, latency DOUBLE",
    "overhead": _OF_RUN + "kind STRING, messages BIGINT, bytes BIGINT,"
    " messages_per_delivery DOUBLE, bytes_per_delivery DOUBLE",
    "peer_load": _OF_RUN + "peer BINARY, messages_sent BIGINT, rpcs_sent BIGINT,"
    " bytes_sent BIGINT, messages_received BIGINT, duplicates BIGINT, delivered BIGINT,"
    " over_mean DOUBLE",
    "topic_activity": _OF_RUN + "topic STRING, window_start DOUBLE, published BIGINT,"
    " publishers BIGINT, delivered BIGINT, subscribers BIGINT, failed BIGINT, skipped BIGINT,"
    " bytes BIGINT",
    "dag_health": _OF_RUN + "topic STRING, events BIGINT, valid BIGINT, unsigned BIGINT,"
    " faults BIGINT, roots BIGINT, heads BIGINT, forks BIGINT, gaps BIGINT, is_chain BOOLEAN,"
    " is_whole BOOLEAN",
    "self_stabilisation": _OF_RUN + "topic STRING, episode INT, lost_at DOUBLE,"
    " legitimate_at DOUBLE, seconds DOUBLE, rpcs BIGINT, messages BIGINT, bytes BIGINT",
    "sync_sessions": _OF_RUN + "outcome STRING, sessions BIGINT, topics BIGINT, unequal BIGINT,"
    " events BIGINT",
}  # fmt: skip

COLUMNS: Final = {
    table: tuple([(name, kind) for name, kind in map(str.split, text.split(", "))])
    for table, text in _DDL.items()
}
"""Every table's columns, as Spark names their types."""
COLUMNS["traces"] += tuple([(name, _type_of(field)) for name, field in shapes.COLUMNS.items()])

TABLES: Final = (*BRONZE, *SILVER, *GOLD)


def ddl(table: str) -> str:
    """A table's schema in Spark's own words."""
    if table not in COLUMNS:
        raise LocalError(f"there is no table {table!r}; {nearest(table, list(COLUMNS))}")
    return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS[table])


def shaped(frame: "DataFrame", table: str) -> "DataFrame":
    """A frame with exactly the columns of a table."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return frame.select(
        [f.col(f"`{name}`").cast(kind).alias(name) for name, kind in COLUMNS[table]]
    )
