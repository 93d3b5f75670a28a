"""Gold: who bore the load, what topics did, how histories hang together, how rings recover."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rumormill.spark.deliveries import (
    DELIVER,
    DELIVERED,
    DOWN,
    DUPLICATE,
    JOIN,
    LEAVE,
    PUBLISH,
    RECV,
    SEND,
    UP,
)
from rumormill.spark.quality import ratio, window_start

STABILISED, SKIPPED = 1006, 1005
LINKING: Final = ("pulsarcast",)
"""Protocols whose events name the events before them."""

_NANOSECONDS: Final = 1e9
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


def peer_load(traces: DataFrame) -> DataFrame:
    """What each peer sent, received and delivered; `over_mean` is its share of messages sent.

    The peers are those that started, joined, published, sent a message or took part in one's way.
    """
    kind = f.col("type")
    carried = f.coalesce(f.size("messages"), f.lit(0))
    partakes = kind.isin(UP, DOWN, JOIN, LEAVE, PUBLISH, DELIVER) | (
        kind.isin(SEND, RECV) & (carried > 0)
    )
    counted = traces.groupBy("run", f.col("peerID").alias("peer")).agg(
        f.sum(f.when(kind == SEND, carried).otherwise(0)).alias("messages_sent"),
        f.count(f.when(kind == SEND, 1)).alias("rpcs_sent"),
        f.sum(f.when(kind == SEND, f.col("size")).otherwise(0)).alias("bytes_sent"),
        f.sum(f.when(kind == RECV, carried).otherwise(0)).alias("messages_received"),
        f.count(f.when(kind == DUPLICATE, 1)).alias("duplicates"),
        f.count(f.when(kind == DELIVER, 1)).alias("delivered"),
        f.max(f.when(partakes, 1)).alias("partakes"),
    )
    senders = traces.where((kind == RECV) & (carried > 0)).select(
        "run", f.col("remotePeer").alias("peer"), f.lit(1).alias("sends")
    )
    found = counted.join(senders.distinct(), ["run", "peer"], "full").where(
        "partakes = 1 OR sends = 1"
    )
    counts = [name for name in counted.columns if name not in ("run", "peer", "partakes")]
    mean = f.avg("messages_sent").over(Window.partitionBy("run"))
    return found.fillna(0, counts).withColumn("over_mean", ratio(f.col("messages_sent"), mean))


def topic_activity(
    traces: DataFrame, messages: DataFrame, deliveries: DataFrame, window: float
) -> DataFrame:
    """What was published and delivered in each topic and window, from traces."""
    key = ["run", "topic", "window_start"]
    published = (
        messages.where("published_at IS NOT NULL")
        .withColumn("window_start", window_start(window))
        .groupBy(key)
        .agg(
            f.count("*").alias("published"),
            f.countDistinct("publisher").alias("publishers"),
        )
    )
    arrived = (
        deliveries.where("published_at IS NOT NULL")
        .withColumn("window_start", window_start(window))
        .groupBy(key)
        .agg(
            f.count(f.when(f.col("state") == DELIVERED, 1)).alias("delivered"),
            f.countDistinct(f.when(f.col("expected"), f.col("peer"))).alias("subscribers"),
        )
    )
    skipped = (
        traces.where(f.col("type") == SKIPPED)
        .withColumn("published_at", f.col("timestamp"))
        .withColumn("window_start", window_start(window))
        .groupBy(key)
        .agg(f.count("*").alias("skipped"))
    )
    counts = ["published", "publishers", "delivered", "subscribers", "skipped"]
    return (
        published.join(arrived, key, "full")
        .join(skipped, key, "full")
        .fillna(0, counts)
        .withColumn("bytes", f.lit(None).cast("bigint"))
    )


def event_activity(events: DataFrame, window: float) -> DataFrame:
    """What was received in each topic and window, from a store."""
    at = (f.unix_micros("received") * 1000).alias("published_at")
    return (
        events.select("run", "protocol", "topic", "author", "value", at)
        .withColumn("window_start", window_start(window))
        .groupBy("run", "protocol", "topic", "window_start")
        .agg(
            f.count("*").alias("published"),
            f.countDistinct("author").alias("publishers"),
            f.sum(f.length("value")).alias("bytes"),
        )
        .withColumns({name: f.lit(None) for name in ("delivered", "subscribers", "skipped")})
    )


def dag_health(verified: DataFrame) -> DataFrame:
    """Whether each topic's history is whole: faults, beginnings, ends, forks, gaps.

    What concerns links is null where the protocol links no events.
    """
    sound = f.col("fault").isNull()
    summed = verified.groupBy("run", "protocol", "topic").agg(
        f.count("*").alias("events"),
        f.count(f.when(sound, 1)).alias("valid"),
        f.count(f.when(sound & (f.col("signature") == "absent"), 1)).alias("unsigned"),
        f.count(f.when(~sound, 1)).alias("faults"),
        f.count(f.when(f.col("is_root"), 1)).alias("roots"),
        f.count(f.when(f.col("is_head"), 1)).alias("heads"),
        f.count(f.when(f.col("children") > 1, 1)).alias("branching"),
        f.size(f.array_distinct(f.flatten(f.collect_list("missing_parents")))).alias("gaps"),
        f.max(f.size("parents")).alias("parents"),
    )
    forks = f.col("branching") + f.when(f.col("roots") > 1, 1).otherwise(0)
    whole = (f.col("gaps") == 0) & (f.col("faults") == 0)
    judged = summed.withColumn("forks", forks).withColumn("is_chain", whole & (f.col("forks") == 0))
    linked = f.col("protocol").isin(*LINKING) | (f.col("parents") > 0)
    of_links = ("roots", "heads", "forks", "gaps", "is_chain")
    return judged.withColumn("is_whole", whole).withColumns(
        {name: f.when(linked, f.col(name)) for name in of_links}
    )


def self_stabilisation(traces: DataFrame) -> DataFrame:
    """Every episode in which a topic's overlay was not legitimate, and what it cost to mend it.

    Episode 0 begins with the run. `legitimate_at` is null where the run ended first. What was sent
    counts for all topics of the run together, since an RPC may serve several.
    """
    said = traces.where(f.col("type") == STABILISED).select(
        "run", "topic", "timestamp", f.struct("moment", "seq").alias("at"), "legitimate"
    )
    # Places before and behind all entries, of numbers alone: Spark sums those up without sorting.
    begun = traces.groupBy("run").agg(
        f.min("timestamp").alias("begin"),
        f.struct(f.min("moment").alias("moment"), f.lit(_FIRST).alias("seq")).alias("first"),
        f.struct(f.max("moment").alias("moment"), f.lit(_LAST).alias("seq")).alias("final"),
    )
    start = (
        said.select("run", "topic")
        .distinct()
        .join(begun, "run")
        .select(
            "run",
            "topic",
            f.col("begin").alias("timestamp"),
            f.col("first").alias("at"),
            f.lit(False).alias("legitimate"),
        )
    )
    order = Window.partitionBy("run", "topic").orderBy("at", f.col("legitimate").asc())
    episodes = (
        said.unionByName(start)
        .withColumn("next", f.lead(f.struct("at", "timestamp")).over(order))
        .where("NOT legitimate")
        .withColumn("episode", f.row_number().over(order) - 1)
        .join(begun.select("run", "final"), "run")
        .withColumn("until", f.coalesce("next.at", "final"))
    )
    sent = traces.where(f.col("type") == SEND).select(
        "run", f.struct("moment", "seq").alias("sent"), "size", f.size("messages").alias("copies")
    )
    inside = (f.col("sent") >= f.col("at")) & (f.col("sent") <= f.col("until"))
    costs = (
        f.broadcast(episodes.select("run", "topic", "episode", "at", "until"))
        .join(sent, "run")
        .where(inside)
        .groupBy("run", "topic", "episode")
        .agg(
            f.count("*").alias("rpcs"),
            f.sum("copies").alias("messages"),
            f.sum("size").alias("bytes"),
        )
    )
    return (
        episodes.join(costs, ["run", "topic", "episode"], "left")
        .fillna(0, ["rpcs", "messages", "bytes"])
        .withColumns(
            {
                "lost_at": _seconds("timestamp"),
                "legitimate_at": _seconds("next.timestamp"),
                "seconds": (f.col("next.timestamp") - f.col("timestamp")) / _NANOSECONDS,
            }
        )
    )


def _seconds(name: str) -> Column:
    return f.col(name) / _NANOSECONDS
