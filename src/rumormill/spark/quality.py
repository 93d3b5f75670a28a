"""Gold: how well messages were delivered, how fast, and at what price.

The figures are those of `trace.metrics`, by its definitions: percentiles are nearest-rank, so each
is one of the values; latency and hops are those of first deliveries to expected subscribers other
than the publisher; a ratio without a denominator is null. Windows are those of publication: a
window's row says what became of the messages that were published in it.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rumormill.spark.deliveries import DELIVERED, DROPPED, EXTRA, PENDING, SEND

RUN, TOPIC, WINDOW, TOPIC_WINDOW = "run", "topic", "window", "topic-window"
"""What a row of `delivery_quality` is about."""

_SETS: Final = ((), ("topic",), ("window_start",), ("topic", "window_start"))
_NANOSECONDS: Final = 1e9


def ratio(above: Column, below: Column) -> Column:
    """Divide; null if there is nothing to divide by."""
    return f.when(below != 0, above / below)


def window_start(seconds: float) -> Column:
    """The beginning, in seconds, of the window in which a message was published."""
    width = round(seconds * _NANOSECONDS)
    return f.floor(f.col("published_at") / f.lit(width)) * f.lit(width) / _NANOSECONDS


def _by_scope(frame: DataFrame, figures: list[Column]) -> DataFrame:
    """Aggregate for the whole run, by topic, by window, and by both."""
    grouped = [[f.col("run"), *map(f.col, each)] for each in _SETS]
    scope = f.when(f.grouping("topic") == 1, f.when(f.grouping("window_start") == 1, RUN)
                   .otherwise(WINDOW))  # fmt: skip
    scope = scope.when(f.grouping("window_start") == 1, TOPIC).otherwise(TOPIC_WINDOW)
    return frame.groupingSets(grouped, "run", "topic", "window_start").agg(
        scope.alias("scope"), *figures
    )


def _percentile(share: float) -> Column:
    return f.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY late)")


def delivery_quality(deliveries: DataFrame, messages: DataFrame, window: float) -> DataFrame:
    """Ratio, latency, hops, duplicates and redundancy, by topic and window and over all."""
    state, expected = f.col("state"), f.col("expected")
    reached = expected & f.col("remote") & f.col("delivered_at").isNotNull()
    prepared = deliveries.select(
        "run",
        "topic",
        window_start(window).alias("window_start"),
        "state",
        "expected",
        "remote",
        "times",
        "repeated",
        f.when(reached, f.col("delivered_at") - f.col("published_at")).alias("late"),
        f.when(reached, f.col("hops")).alias("far"),
    )
    counted = _by_scope(
        prepared,
        [
            f.count(f.when(expected, 1)).alias("expected"),
            f.count(f.when(state == DELIVERED, 1)).alias("delivered"),
            f.count(f.when(state == PENDING, 1)).alias("pending"),
            f.count(f.when(state == DROPPED, 1)).alias("dropped"),
            f.count(f.when((state == DELIVERED) & f.col("remote"), 1)).alias("remote_deliveries"),
            f.sum(f.when(state == EXTRA, f.col("times")).otherwise(0)).alias("extra_deliveries"),
            f.sum(f.when(expected, f.col("repeated")).otherwise(0)).alias("repeated_deliveries"),
            (_percentile(0.5) / _NANOSECONDS).alias("latency_p50"),
            (_percentile(0.9) / _NANOSECONDS).alias("latency_p90"),
            (_percentile(0.99) / _NANOSECONDS).alias("latency_p99"),
            (f.max("late") / _NANOSECONDS).alias("latency_max"),
            f.avg("far").alias("hops_mean"),
            f.max("far").alias("hops_max"),
        ],
    )
    redundancy = f.when(f.col("received") > 0, f.col("copies") / f.col("received") - 1)
    spread = _by_scope(
        messages.withColumn("window_start", window_start(window)).withColumn("extra", redundancy),
        [
            f.count("published_at").alias("published"),
            f.sum("copies").alias("messages_sent"),
            f.sum("duplicates").alias("duplicates"),
            f.avg(f.when(f.col("published_at").isNotNull(), f.col("extra"))).alias("rmr"),
        ],
    )
    same = [
        spread[name].eqNullSafe(counted[name]) for name in ("run", "scope", "topic", "window_start")
    ]
    counts = [name for name in counted.columns if name not in spread.columns]
    both = spread.join(counted, same, "left").select(
        *[spread[name] for name in spread.columns],
        *[
            f.coalesce(counted[name], f.lit(0)).alias(name) if name in _ZERO else counted[name]
            for name in counts
        ],
    )
    remote = f.col("remote_deliveries")
    return both.withColumns(
        {
            "delivery_ratio": ratio(f.col("delivered"), f.col("expected")),
            "messages_per_delivery": ratio(f.col("messages_sent"), remote),
            "duplicates_per_delivery": ratio(f.col("duplicates"), remote),
        }
    )


_ZERO: Final = (
    "expected",
    "delivered",
    "pending",
    "dropped",
    "remote_deliveries",
    "extra_deliveries",
    "repeated_deliveries",
)
"""Counts that are zero where there is nothing to count."""


def latency_cdf(deliveries: DataFrame) -> DataFrame:
    """For every run the latency within which each percent of first deliveries came."""
    reached = deliveries.where("expected AND remote AND delivered_at IS NOT NULL").select(
        "run", (f.col("delivered_at") - f.col("published_at")).alias("late")
    )
    everything = Window.partitionBy("run")
    ranked = reached.select(
        "run",
        "late",
        f.row_number().over(everything.orderBy("late")).alias("rank"),
        f.count("*").over(everything).alias("of"),
    )
    # The q-th percentile has rank ceil(q·n/100): a rank stands for all q with that value.
    return (
        ranked.withColumn("low", f.expr("100 * (rank - 1) DIV of + 1"))
        .withColumn("high", f.expr("100 * rank DIV of"))
        .where("low <= high")
        .select(
            "run",
            f.explode(f.sequence("low", "high")).alias("percent"),
            (f.col("late") / _NANOSECONDS).alias("latency"),
        )
    )


_SUBSCRIBED: Final = "size(filter(subscription, each -> each.subscribe))"
_UNSUBSCRIBED: Final = "size(filter(subscription, each -> NOT each.subscribe))"
_THINGS: Final = "array<struct<kind: string, messages: bigint, bytes: bigint>>"


def overhead(traces: DataFrame, quality: DataFrame) -> DataFrame:
    """What was sent, by kind, and how much of it per delivery.

    `rpc` is everything, `message` the published messages and their bytes, `control` the rest. The
    kinds of control are counted; a trace does not say how an RPC's bytes are shared among them.
    """
    sent = traces.where(f.col("type") == SEND)
    controls = {name: f.size(name) for name in ("ihave", "iwant", "graft", "prune", "idontwant")}
    controls |= {"subscribe": f.expr(_SUBSCRIBED), "unsubscribe": f.expr(_UNSUBSCRIBED)}
    sums = {
        "rpcs": f.count("*"),
        "size": f.sum("size"),
        "data": f.sum("dataSize"),
        "copies": f.sum(f.size("messages")),
        **{kind: f.sum(number) for kind, number in controls.items()},
    }
    summed = sent.groupBy("run").agg(
        *[f.coalesce(total, f.lit(0)).alias(name) for name, total in sums.items()]
    )
    operated = (
        sent.select("run", f.explode("operations.name").alias("kind"))
        .groupBy("run", "kind")
        .agg(f.count("*").alias("number"))
        .groupBy("run")
        .agg(f.collect_list(_thing(f.col("kind"), f.col("number"))).cast(_THINGS).alias("others"))
    )
    kinds = f.concat(
        f.array(*[_thing(f.lit(kind), f.col(kind)) for kind in controls]).cast(_THINGS),
        f.coalesce("others", f.array().cast(_THINGS)),
    )
    control = f.aggregate(
        kinds, f.lit(0).cast("bigint"), lambda before, each: before + each["messages"]
    )
    totals = f.array(
        _thing(f.lit("rpc"), f.col("rpcs"), f.col("size")),
        _thing(f.lit("message"), f.col("copies"), f.col("data")),
        _thing(f.lit("control"), control, f.col("size") - f.col("data")),
    ).cast(_THINGS)
    there = f.filter(kinds, lambda each: each["messages"] > 0)
    remote = quality.where(f.col("scope") == RUN).select("run", "remote_deliveries")
    return (
        summed.join(operated, "run", "left")
        .select("run", f.explode(f.concat(totals, there)).alias("one"))
        .groupBy("run", "one.kind", f.col("one.bytes").isNull())
        .agg(f.sum("one.messages").alias("messages"), f.sum("one.bytes").alias("bytes"))
        .join(remote, "run", "left")
        .withColumns(
            {
                "messages_per_delivery": ratio(f.col("messages"), f.col("remote_deliveries")),
                "bytes_per_delivery": ratio(f.col("bytes"), f.col("remote_deliveries")),
            }
        )
    )


def _thing(kind: Column, number: Column, size: Column | None = None) -> Column:
    """So many of a kind; how many bytes they have is known of totals alone."""
    unknown = f.lit(None).cast("bigint")
    return f.struct(
        kind.alias("kind"),
        number.cast("bigint").alias("messages"),
        (unknown if size is None else size).alias("bytes"),
    )
