"""Silver: what became of every message at every subscriber, as relations.

The rules are the ledger's (`trace.ledger`), told as joins instead of as a walk through the trace. A
publication and each peer that is subscribed and up at that place of the trace form an expected
pair. Since every entry has its place, the end of a pair follows from the places of a few entries:

- after its last DELIVER_MESSAGE only an UNDELIVERABLE_MESSAGE can take a pair back: it is
  delivered, or dropped as undeliverable;
- never delivered, it is dropped for the first of: a rejection, an undeliverable message, the
  subscriber's leaving or going down;
- without any of those, for the reason of the last DROP_RPC that carried the message to it;
- else it is pending.

A delivery at a peer that was not expected is `extra`; one of a message whose publication is not
before it in the trace is `unpublished`.

Times are nanoseconds of the trace's clock. All functions take and return frames, nothing else.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rumormill.trace.ledger import (
    SUBSCRIBER_DOWN,
    SUBSCRIBER_LEFT,
    UNDELIVERABLE,
    UNSPECIFIED,
)

PUBLISH, REJECT, DUPLICATE, DELIVER = 0, 1, 2, 3
RECV, SEND, DROP, JOIN, LEAVE = 6, 7, 8, 9, 10
UP, DOWN, UNDELIVER = 1000, 1001, 1004

DELIVERED: Final = "delivered"
PENDING: Final = "pending"
DROPPED: Final = "dropped"
EXTRA: Final = "extra"
UNPUBLISHED: Final = "unpublished"

_PAIR: Final = ["run", "message_id", "peer"]


def place() -> Column:
    """Where an entry stands in its run: places compare as the entries are ordered."""
    return f.struct("moment", "seq")


def reason() -> Column:
    """An entry's reason; go's entries may have none."""
    return f.when(f.coalesce(f.col("reason"), f.lit("")) == "", UNSPECIFIED).otherwise(
        f.col("reason")
    )


def publications(traces: DataFrame) -> DataFrame:
    """Every message's first publication: run, message_id, topic, publisher, time and place."""
    first = f.min(f.struct("moment", "seq", "timestamp", "topic", "peerID"))
    return (
        traces.where(f.col("type") == PUBLISH)
        .groupBy("run", f.col("messageID").alias("message_id"))
        .agg(first.alias("first"))
        .select(
            "run",
            "message_id",
            f.col("first.topic").alias("topic"),
            f.col("first.peerID").alias("publisher"),
            f.col("first.timestamp").alias("published_at"),
            f.struct("first.moment", "first.seq").alias("published"),
        )
    )


def subscriptions(traces: DataFrame) -> DataFrame:
    """The stretches in which a peer is subscribed to a topic and up.

    `since` to `until` are places; `gone` is the place at which the peer will next have left or gone
    down, with the reason for it. A subscription outlives NODE_DOWN, and a peer of which no NODE_UP
    is known is up.
    """
    peer = f.col("peerID").alias("peer")
    joins = traces.where(f.col("type").isin(JOIN, LEAVE)).select(
        "run", peer, "topic", place().alias("at"), (f.col("type") == JOIN).alias("joined")
    )
    moves = traces.where(f.col("type").isin(UP, DOWN)).select(
        "run", peer, place().alias("at"), (f.col("type") == UP).alias("up")
    )
    topics = joins.select("run", "peer", "topic").distinct()
    changes = joins.withColumn("up", f.lit(None).cast("boolean")).unionByName(
        moves.join(topics, ["run", "peer"]), allowMissingColumns=True
    )
    order = Window.partitionBy("run", "peer", "topic").orderBy("at")
    rest = order.rowsBetween(1, Window.unboundedFollowing)
    joined = f.coalesce(f.last("joined", ignorenulls=True).over(order), f.lit(False))
    up = f.coalesce(f.last("up", ignorenulls=True).over(order), f.lit(True))
    known = changes.select(
        "run", "peer", "topic", "at", joined.alias("joined"), up.alias("up")
    ).withColumn("live", f.col("joined") & f.col("up"))
    why = f.when(f.col("joined"), SUBSCRIBER_DOWN).otherwise(SUBSCRIBER_LEFT)
    end = f.when(~f.col("live"), f.struct("at.moment", "at.seq", why.alias("why")))
    return (
        known.withColumn("until", f.lead("at").over(order))
        .withColumn("gone", f.first(end, ignorenulls=True).over(rest))
        .where("live")
        .select("run", "peer", "topic", f.col("at").alias("since"), "until", "gone")
    )


def expected_pairs(published: DataFrame, subscribed: DataFrame) -> DataFrame:
    """Every publication with every subscriber that it is owed to."""
    inside = (f.col("since") < f.col("published")) & (
        f.col("until").isNull() | (f.col("published") < f.col("until"))
    )
    return (
        published.join(subscribed, ["run", "topic"])
        .where(inside)
        .select("run", "message_id", "peer", "gone")
    )


def _happenings(traces: DataFrame) -> DataFrame:
    """All entries that can decide a pair: run, message_id, peer, kind, place, time, reason."""
    why = f.when(f.col("type") == UNDELIVER, UNDELIVERABLE).otherwise(reason())
    shared = [
        f.col("type").alias("kind"), place().alias("at"), f.col("timestamp"), why.alias("why"),
    ]  # fmt: skip
    own = traces.where(f.col("type").isin(DELIVER, REJECT, UNDELIVER)).select(
        "run", f.col("messageID").alias("message_id"), f.col("peerID").alias("peer"), *shared
    )
    lost = (
        traces.where(f.col("type") == DROP)
        .select("run", f.explode("messages").alias("carried"), "remotePeer", *shared)
        .select(
            "run",
            f.col("carried.messageID").alias("message_id"),
            f.col("remotePeer").alias("peer"),
            "kind",
            "at",
            "timestamp",
            "why",
        )
    )
    return own.unionByName(lost)


def _summed(happened: DataFrame) -> DataFrame:
    """What happened at each pair, reduced to what decides it."""
    at, kind = f.col("at"), f.col("kind")
    told = f.struct("at.moment", "at.seq", "why")
    seen = kind.isin(DELIVER, UNDELIVER)
    return (
        happened.groupBy("run", "message_id", "peer", "known")
        .agg(
            f.min(f.when(kind == DELIVER, f.struct("at", "timestamp"))).alias("first"),
            f.max(f.when(kind == DELIVER, at)).alias("last"),
            f.count(f.when(kind == DELIVER, 1)).alias("times"),
            f.max(f.when(kind == UNDELIVER, at)).alias("undelivered"),
            f.min(f.when(kind.isin(REJECT, UNDELIVER), told)).alias("refused"),
            f.max(f.when(kind == DROP, told)).alias("noted"),
            f.sort_array(f.collect_list(f.when(seen, f.struct("at", "kind")))).alias("acts"),
        )
        .withColumn("repeated", f.expr(_REPEATED))
    )


_REPEATED: Final = (
    f"size(filter(acts, (act, i) -> act.kind = {DELIVER} AND i > 0"
    f" AND acts[i - 1].kind = {DELIVER}))"
)
"""Deliveries of what was delivered already."""


def deliveries(traces: DataFrame, hops: DataFrame) -> DataFrame:
    """Every expected pair and every delivery: publish ⟗ deliver, per subscriber."""
    published = publications(traces)
    pairs = expected_pairs(published, subscriptions(traces))
    places = published.select("run", "message_id", "published")
    happened = (
        _happenings(traces)
        .join(places, ["run", "message_id"], "left")
        .withColumn("known", f.coalesce(f.col("at") > f.col("published"), f.lit(False)))
        .where(f.col("known") | (f.col("kind") == DELIVER))
    )
    summed = _summed(happened)
    both = pairs.withColumns({"expected": f.lit(True), "known": f.lit(True)}).join(
        summed, [*_PAIR, "known"], "full"
    )
    expected = f.coalesce(f.col("expected"), f.lit(False))
    kept = both.withColumn("expected", expected).where("expected OR times > 0")
    told = kept.join(published.drop("published"), ["run", "message_id"], "left").join(
        hops, _PAIR, "left"
    )
    return _judged(told)


def _judged(told: DataFrame) -> DataFrame:
    """Give every pair its state."""
    decided = f.least("refused", "gone")
    taken_back = f.col("undelivered") > f.col("last")
    dropped_for = (
        f.when(f.col("last").isNotNull(), f.when(taken_back, UNDELIVERABLE))
        .when(decided.isNotNull(), decided["why"])
        .otherwise(f.col("noted.why"))
    )
    state = (
        f.when(~f.col("known"), UNPUBLISHED)
        .when(~f.col("expected"), EXTRA)
        .when(f.col("reason").isNotNull(), DROPPED)
        .when(f.col("last").isNotNull(), DELIVERED)
        .otherwise(PENDING)
    )
    judged = told.withColumn("reason", f.when(f.col("expected"), dropped_for)).withColumn(
        "state", state
    )
    return judged.select(
        "run",
        "message_id",
        "topic",
        "publisher",
        "published_at",
        "peer",
        "expected",
        (f.col("peer") != f.col("publisher")).alias("remote"),
        "state",
        "reason",
        f.col("first.timestamp").alias("delivered_at"),
        f.when(
            f.col("known") & f.col("first").isNotNull(),
            (f.col("first.timestamp") - f.col("published_at")) / 1e9,
        ).alias("latency"),
        f.when(f.col("known"), f.col("hops")).alias("hops"),
        f.coalesce(f.col("times"), f.lit(0)).alias("times"),
        f.coalesce(f.col("repeated"), f.lit(0)).alias("repeated"),
    )


def messages(traces: DataFrame, delivered: DataFrame) -> DataFrame:
    """Every message: who published it, how many copies were sent, how many came to nothing new."""
    sent = _counted(
        traces.where(f.col("type") == SEND)
        .select("run", f.explode("messages").alias("carried"))
        .select("run", "carried.messageID", "carried.topic"),
        "copies",
    )
    again = _counted(traces.where(f.col("type") == DUPLICATE), "duplicates")
    got = (
        delivered.where("remote")
        .groupBy("run", "message_id")
        .agg(
            f.sum(
                f.when(f.col("state") == DELIVERED, 1)
                .when(f.col("state") == EXTRA, f.col("times"))
                .otherwise(0)
            ).alias("received")
        )
    )
    key = ["run", "message_id"]
    found = publications(traces).join(sent, key, "full").join(again, key, "full")
    return found.join(got, key, "left").select(
        "run",
        "message_id",
        f.coalesce("topic", "copies_topic", "duplicates_topic").alias("topic"),
        "publisher",
        "published_at",
        f.coalesce(f.col("copies"), f.lit(0)).alias("copies"),
        f.coalesce(f.col("duplicates"), f.lit(0)).alias("duplicates"),
        f.coalesce(f.col("received"), f.lit(0)).alias("received"),
    )


def _counted(entries: DataFrame, name: str) -> DataFrame:
    """How many entries a message has, and its topic.

    By topic at first, although a message has one: Spark sums up numbers as it goes, and sorts all
    rows where it has to pick a text.
    """
    return (
        entries.groupBy("run", f.col("messageID").alias("message_id"), "topic")
        .agg(f.count("*").alias(name))
        .groupBy("run", "message_id")
        .agg(f.sum(name).alias(name), f.min("topic").alias(f"{name}_topic"))
    )
