"""Gold: how well messages were delivered, how fast and at what price; who bore the load, what
topics did, how histories hang together, how rings recover, what sync did.

The figures are those of `trace.metrics`, by its definitions: percentiles are nearest-rank, so each
is one of the values; latency and hops are those of first deliveries to expected subscribers other
than the publisher; a ratio without a denominator is null. Windows are those of publication: a
window's row says what became of the messages that were published in it.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rumormill.spark import deliveries as silver
from rumormill.trace.metrics import SYNC

STABILISED, SYNC_ENDED = 1006, 1007
LINKING: Final = ("pulsarcast",)
"""Protocols whose events name the events before them."""

_NANOSECONDS: Final = 1e9
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1

_SETS: Final = ((), ("topic",), ("window_start",), ("topic", "window_start"))
_SCOPES: Final = "array('topic-window', 'topic', 'window', 'run')[grouping_id()]"
"""What a row of `delivery_quality` is about."""

_REACHED: Final = "expected AND remote AND delivered_at IS NOT NULL"
_PERCENTILE: Final = "percentile_disc({}) WITHIN GROUP (ORDER BY late) / 1e9"
_COUNTS: Final = {
    "expected": "count_if(expected)",
    "delivered": "count_if(state = 'delivered')",
    "pending": "count_if(state = 'pending')",
    "dropped": "count_if(state = 'dropped')",
    "remote_deliveries": "count_if(state = 'delivered' AND remote)",
    "synced_deliveries": f"count_if(state = 'delivered' AND remote AND via = '{SYNC}')",
    "extra_deliveries": "sum(IF(state = 'extra', times, 0))",
    "repeated_deliveries": "sum(IF(expected, repeated, 0))",
}
"""Counts that are zero where there is nothing to count."""
_SPEED: Final = {
    "latency_p50": _PERCENTILE.format(0.5),
    "latency_p90": _PERCENTILE.format(0.9),
    "latency_p99": _PERCENTILE.format(0.99),
    "latency_max": "max(late) / 1e9",
    "hops_mean": "avg(far)",
    "hops_max": "max(far)",
}
_COMPLETING: Final = (
    "percentile_disc({}) WITHIN GROUP (ORDER BY coalesce(time_to_complete, double('infinity')))"
    " FILTER (WHERE entitled > 0)"
)
"""Of messages to which anybody is entitled; one that is not complete took longer than any."""
_SPREAD: Final = {
    "planned": "count(outcome)",
    **{name: f"count_if(outcome = '{name}')" for name in ("published", "failed", "skipped")},
    "messages_sent": "sum(copies)",
    "duplicates": "sum(duplicates)",
    "rmr": "avg(IF(published_at IS NOT NULL AND received > 0, copies / received - 1, NULL))",
    "entitled": "sum(entitled)",
    "missing": "sum(missing)",
    "incomplete": "count_if(missing > 0)",
    "time_to_complete_p50": _COMPLETING.format(0.5),
    "time_to_complete_p99": _COMPLETING.format(0.99),
    "time_to_complete_max": _COMPLETING.format(1.0),
}


def _named(figures: Mapping[str, str]) -> list[Column]:
    return [f.expr(text).alias(name) for name, text in figures.items()]


def _windowed(frame: DataFrame, window: float, at: str = "published_at") -> DataFrame:
    """Say of each row when the window begins in which a message was published, in seconds."""
    width = round(window * _NANOSECONDS)
    return frame.withColumn("window_start", f.expr(f"floor({at} / {width}) * {width} / 1e9"))


def _by_scope(frame: DataFrame, figures: Mapping[str, str]) -> DataFrame:
    """Aggregate for the whole run, by topic, by window, and by both."""
    grouped = [[f.col("run"), *map(f.col, each)] for each in _SETS]
    return frame.groupingSets(grouped, "run", "topic", "window_start").agg(
        *_named({"scope": _SCOPES, **figures})
    )


def delivery_quality(deliveries: DataFrame, messages: DataFrame, window: float) -> DataFrame:
    """Ratio, latency, hops, duplicates and redundancy, by topic and window and over all."""
    prepared = _windowed(deliveries, window).selectExpr(
        "*",
        f"IF({_REACHED}, delivered_at - published_at, NULL) AS late",
        f"IF({_REACHED}, hops, NULL) AS far",
    )
    counted = _by_scope(prepared, _COUNTS | _SPEED)
    spread = _by_scope(_windowed(messages, window), _SPREAD)
    key = ("run", "scope", "topic", "window_start")
    same = [spread[name].eqNullSafe(counted[name]) for name in key]
    both = spread.join(counted, same, "left").select(
        *[spread[name] for name in spread.columns],
        *[counted[name] for name in counted.columns if name not in spread.columns],
    )
    times = [name for name in _SPREAD if name.startswith("time_to_complete")]
    spread_to = "nullif(remote_deliveries - synced_deliveries, 0)"
    return both.fillna(0, list(_COUNTS)).selectExpr(
        f"* EXCEPT ({', '.join(times)})",
        "delivered / nullif(expected, 0) AS delivery_ratio",
        f"messages_sent / {spread_to} AS messages_per_delivery",
        f"duplicates / {spread_to} AS duplicates_per_delivery",
        "(entitled - missing) / nullif(entitled, 0) AS complete_ratio",
        *[f"nullif({name}, double('infinity')) AS {name}" for name in times],
    )


def latency_cdf(deliveries: DataFrame) -> DataFrame:
    """For every run the latency within which each percent of first deliveries came."""
    ranked = deliveries.where(_REACHED).selectExpr(
        "run",
        "delivered_at - published_at AS late",
        "row_number() OVER (PARTITION BY run ORDER BY delivered_at - published_at) AS rank",
        "count(*) OVER (PARTITION BY run) AS of",
    )
    # The q-th percentile has rank ceil(q·n/100): a rank stands for all q with that value.
    low, high = "100 * (rank - 1) DIV of + 1", "100 * rank DIV of"
    return ranked.where(f"{low} <= {high}").selectExpr(
        "run", f"explode(sequence({low}, {high})) AS percent", "late / 1e9 AS latency"
    )


def overhead(traces: DataFrame, quality: DataFrame) -> DataFrame:
    """What was sent, by kind, and how much of it per delivery.

    `rpc` is everything, `message` the published messages and their bytes, `control` the rest. The
    kinds of control are counted; a trace does not say how an RPC's bytes are shared among them.
    Where there is sync, `sync` is every RPC of it, and `sync-data` the events in those that have
    some. Messages that were sent for another cause than ordinary spreading are counted besides, as
    `copies: ` and the cause.
    """
    sent = traces.where(f.col("type") == silver.SEND)
    controls = {name: f"size({name})" for name in ("ihave", "iwant", "graft", "prune", "idontwant")}
    controls["subscribe"] = "size(filter(subscription, each -> each.subscribe))"
    controls["unsubscribe"] = "size(filter(subscription, each -> NOT each.subscribe))"
    sums = {"rpcs": "1", "bytes": "size", "data": "dataSize", "copies": "size(messages)"} | controls
    summed = sent.groupBy("run").agg(
        *_named({name: f"coalesce(sum({text}), 0)" for name, text in sums.items()})
    )
    operated = sent.select("run", f.explode("operations.name").alias("kind"))
    kinds = (
        summed.unpivot("run", list(controls), "kind", "messages")
        .unionByName(operated.groupBy("run", "kind").agg(f.count("*").alias("messages")))
        .groupBy("run", "kind")
        .agg(f.sum("messages").alias("messages"))
    )
    totals = summed.join(kinds.groupBy("run").agg(f.sum("messages").alias("control")), "run")
    rows = totals.selectExpr(
        "run",
        "stack(3, 'rpc', rpcs, bytes, 'message', copies, data, 'control', control, bytes - data)"
        " AS (kind, messages, bytes)",
    ).unionByName(kinds.where("messages > 0"), allowMissingColumns=True)
    rows = rows.unionByName(_of_sync(sent)).unionByName(
        _of_causes(traces), allowMissingColumns=True
    )
    remote = quality.where("scope = 'run'").select("run", "remote_deliveries")
    return rows.join(remote, "run", "left").selectExpr(
        "*",
        "messages / nullif(remote_deliveries, 0) AS messages_per_delivery",
        "bytes / nullif(remote_deliveries, 0) AS bytes_per_delivery",
    )


def _of_causes(traces: DataFrame) -> DataFrame:
    """The rows of `overhead` that say why copies were sent, or came too late to be stopped."""
    # The trace says of an RPC why its messages were sent, and of a duplicate why it came.
    told = traces.where(f"cause != '' AND type IN ({silver.SEND}, {silver.DUPLICATE})")
    copies = f"IF(type = {silver.SEND}, size(messages), 1)"
    return told.groupBy("run", f.expr("'copies: ' || cause AS kind")).agg(
        f.expr(f"sum({copies})").alias("messages")
    )


def _of_sync(sent: DataFrame) -> DataFrame:
    """The rows of `overhead` that are about sync."""
    asked = sent.where(f"exists(operations, each -> startswith(each.name, '{SYNC} '))")
    summed = asked.groupBy("run").agg(
        *_named({"rpcs": "count(*)", "bytes": "sum(size)", "data": "sum(dataSize)"}),
        f.count_if(f.col("dataSize") > 0).alias("carriers"),
    )
    return summed.selectExpr(
        "run",
        f"stack(2, '{SYNC}', rpcs, bytes, '{SYNC}-data', carriers, data)"
        " AS (kind, messages, bytes)",
    )


def sync_sessions(traces: DataFrame) -> DataFrame:
    """Sessions of sync by outcome: how many, what they compared, what differed and was fetched."""
    sums = {name: f"sum({name})" for name in ("topics", "unequal", "events")}
    return (
        traces.where(f.col("type") == SYNC_ENDED)
        .groupBy("run", "outcome")
        .agg(*_named({"sessions": "count(*)", **sums}))
    )


def peer_load(traces: DataFrame) -> DataFrame:
    """What each peer sent, received and delivered; `over_mean` is its share of messages sent.

    The peers are those that started, joined, published, sent a message or took part in one's way.
    """
    carried = "coalesce(size(messages), 0)"
    acts = (silver.UP, silver.DOWN, silver.JOIN, silver.LEAVE, silver.PUBLISH, silver.DELIVER)
    counts = {
        "messages_sent": f"sum(IF(type = {silver.SEND}, {carried}, 0))",
        "rpcs_sent": f"count_if(type = {silver.SEND})",
        "bytes_sent": f"sum(IF(type = {silver.SEND}, size, 0))",
        "messages_received": f"sum(IF(type = {silver.RECV}, {carried}, 0))",
        "duplicates": f"count_if(type = {silver.DUPLICATE})",
        "delivered": f"count_if(type = {silver.DELIVER})",
    }
    moves = (silver.SEND, silver.RECV)
    partakes = f"bool_or(type IN {acts} OR (type IN {moves} AND {carried} > 0))"
    counted = traces.groupBy("run", f.col("peerID").alias("peer")).agg(
        *_named({**counts, "partakes": partakes})
    )
    senders = traces.where(f"type = {silver.RECV} AND {carried} > 0").selectExpr(
        "run", "remotePeer AS peer", "true AS sends"
    )
    found = counted.join(senders.distinct(), ["run", "peer"], "full").where("partakes OR sends")
    mean = "avg(messages_sent) OVER (PARTITION BY run)"
    return found.fillna(0, list(counts)).withColumn(
        "over_mean", f.expr(f"messages_sent / nullif({mean}, 0)")
    )


def topic_activity(messages: DataFrame, deliveries: DataFrame, window: float) -> DataFrame:
    """What was published and delivered in each topic and window, from traces."""
    key = ["run", "topic", "window_start"]
    of_messages = {
        **{name: f"count_if(outcome = '{name}')" for name in ("published", "failed", "skipped")},
        "publishers": "count(DISTINCT IF(outcome = 'published', publisher, NULL))",
    }
    of_deliveries = {
        "delivered": "count_if(state = 'delivered')",
        "subscribers": "count(DISTINCT IF(expected, peer, NULL))",
    }
    published, arrived = [
        _windowed(frame.where("published_at IS NOT NULL"), window)
        .groupBy(key)
        .agg(*_named(figures))
        for frame, figures in ((messages, of_messages), (deliveries, of_deliveries))
    ]
    return (
        published.join(arrived, key, "full")
        .fillna(0, [*of_messages, *of_deliveries])
        .withColumn("bytes", f.lit(None))
    )


def event_activity(events: DataFrame, window: float) -> DataFrame:
    """What was received in each topic and window, from a store."""
    unknown = ("delivered", "subscribers", "failed", "skipped")
    return (
        _windowed(events, window, "(unix_micros(received) * 1000)")
        .groupBy("run", "protocol", "topic", "window_start")
        .agg(
            f.count("*").alias("published"),
            f.countDistinct("author").alias("publishers"),
            f.sum(f.length("value")).alias("bytes"),
        )
        .withColumns({name: f.lit(None) for name in unknown})
    )


def dag_health(verified: DataFrame) -> DataFrame:
    """Whether each topic's history is whole: faults, beginnings, ends, forks, gaps.

    What concerns links is null where the protocol links no events.
    """
    figures = {
        "events": "count(*)",
        "valid": "count_if(fault IS NULL)",
        "unsigned": "count_if(fault IS NULL AND signature = 'absent')",
        "faults": "count(fault)",
        "roots": "count_if(is_root)",
        "heads": "count_if(is_head)",
        "forks": "count_if(children > 1) + IF(count_if(is_root) > 1, 1, 0)",
        "gaps": "size(array_distinct(flatten(collect_list(missing_parents))))",
        "parents": "max(size(parents))",
    }
    summed = verified.groupBy("run", "protocol", "topic").agg(*_named(figures))
    judged = summed.withColumn("is_whole", f.expr("gaps = 0 AND faults = 0"))
    judged = judged.withColumn("is_chain", f.expr("is_whole AND forks = 0"))
    linked = f.col("protocol").isin(*LINKING) | (f.col("parents") > 0)
    of_links = ("roots", "heads", "forks", "gaps", "is_chain")
    return judged.withColumns({name: f.when(linked, f.col(name)) for name in of_links})


def self_stabilisation(traces: DataFrame) -> DataFrame:
    """Every episode in which a topic's overlay was not legitimate, and what it cost to mend it.

    Episode 0 begins with the run. `legitimate_at` is null where the run ended first. What was sent
    counts for all topics of the run together, since an RPC may serve several.
    """
    said = traces.where(f.col("type") == STABILISED).selectExpr(
        "run", "topic", "timestamp", "struct(moment, seq) AS at", "legitimate"
    )
    # Places before and behind all entries, of numbers alone: Spark sums those up without sorting.
    begun = traces.groupBy("run").agg(
        f.min("timestamp").alias("timestamp"),
        f.struct(f.min("moment").alias("moment"), f.lit(_FIRST).alias("seq")).alias("at"),
        f.struct(f.max("moment").alias("moment"), f.lit(_LAST).alias("seq")).alias("final"),
    )
    start = said.select("run", "topic").distinct().join(begun.drop("final"), "run")
    order = Window.partitionBy("run", "topic").orderBy("at", f.col("legitimate").asc())
    episodes = (
        said.unionByName(start.withColumn("legitimate", f.lit(False)))
        .withColumn("next", f.lead(f.struct("at", "timestamp")).over(order))
        .where("NOT legitimate")
        .withColumn("episode", f.row_number().over(order) - 1)
        .join(begun.select("run", "final"), "run")
        .withColumn("until", f.coalesce("next.at", "final"))
    )
    sent = traces.where(f.col("type") == silver.SEND).selectExpr(
        "run", "struct(moment, seq) AS sent", "size", "size(messages) AS copies"
    )
    costs = (
        f.broadcast(episodes.select("run", "topic", "episode", "at", "until"))
        .join(sent, "run")
        .where("sent >= at AND sent <= until")
        .groupBy("run", "topic", "episode")
        .agg(*_named({"rpcs": "count(*)", "messages": "sum(copies)", "bytes": "sum(size)"}))
    )
    return (
        episodes.join(costs, ["run", "topic", "episode"], "left")
        .fillna(0, ["rpcs", "messages", "bytes"])
        .selectExpr(
            "*",
            "timestamp / 1e9 AS lost_at",
            "next.timestamp / 1e9 AS legitimate_at",
            "(next.timestamp - timestamp) / 1e9 AS seconds",
        )
    )
