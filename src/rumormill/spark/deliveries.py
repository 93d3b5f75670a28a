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

What a peer was asked to publish and did not (FAIL_PUBLISH) is owed likewise, and dropped. What was
planned for a peer that was down or hostile (SKIP_PUBLISH) is a message that is owed to nobody. Both
have ids of ours, since they have none.

A delivery at a peer that was not expected is `extra`; one of a message whose publication is not in
the trace is `unpublished`, and one that stands before it is taken to stand behind it. A peer may be
entitled to a message without being expected, because it was down at its publication
(`trace.completeness`): what it never gets is `missed`.

Hops say along how many peers a message came. A peer has one hop more than the peer whose copy
reached it first, and a message's publisher has none: a walk along the arrivals of one message in
their order. Joins would need a round for every hop. So the arrivals of a message are brought
together and in order by Spark, and walked through in one pass by a task that holds one message's
peers at a time.

Times are nanoseconds of the trace's clock. All functions take and return frames, nothing else.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from rumormill.trace.ledger import (
    NOT_PUBLISHED,
    SUBSCRIBER_DOWN,
    SUBSCRIBER_LEFT,
    UNDELIVERABLE,
    UNSPECIFIED,
)
from rumormill.trace.metrics import SYNC

PUBLISH, REJECT, DUPLICATE, DELIVER = 0, 1, 2, 3
RECV, SEND, DROP, JOIN, LEAVE = 6, 7, 8, 9, 10
UP, DOWN, UNDELIVER, SKIPPED, FAILED = 1000, 1001, 1004, 1005, 1008

_PAIR: Final = ["run", "message_id", "peer"]
_PLACE: Final = "struct(moment, seq) AS at"
"""Where an entry stands in its run: places compare as the entries are ordered."""

_HOPS: Final = "run STRING, message_id BINARY, peer BINARY, hops INT"


def publications(traces: DataFrame) -> DataFrame:
    """Every message's first publication, and what was meant to be one: run, message_id, topic,
    publisher, time and place, and the outcome: `published`, `failed` or `skipped`."""
    first = f.min(f.struct("moment", "seq", "timestamp", "topic", "peerID", "type"))
    unmade = f"IF(type = {PUBLISH}, messageID, CAST(concat_ws(' ', event, moment, seq) AS BINARY))"
    return (
        traces.where(f.col("type").isin(PUBLISH, SKIPPED, FAILED))
        .groupBy("run", f.expr(unmade).alias("message_id"))
        .agg(first.alias("first"))
        .selectExpr(
            "run",
            "message_id",
            "first.topic AS topic",
            "first.peerID AS publisher",
            "first.timestamp AS published_at",
            "struct(first.moment, first.seq) AS published",
            f"CASE first.type WHEN {PUBLISH} THEN 'published' WHEN {FAILED} THEN 'failed'"
            " ELSE 'skipped' END AS outcome",
        )
    )


def subscriptions(traces: DataFrame) -> DataFrame:
    """Every peer's subscription to a topic: the stretches in which it is subscribed and up.

    `since` to `until` of a stretch are places; `gone` is the place at which the peer will next have
    left or gone down, with the reason for it. A subscription outlives NODE_DOWN, and a peer of
    which no NODE_UP is known is up. `entitled` is the place from which on the peer has been
    subscribed, without leaving, up to the end; null if it is not, or not up then.
    """
    joins = traces.where(f.col("type").isin(JOIN, LEAVE)).selectExpr(
        "run", "peerID AS peer", "topic", _PLACE, f"type = {JOIN} AS joins"
    )
    moves = traces.where(f.col("type").isin(UP, DOWN)).selectExpr(
        "run", "peerID AS peer", _PLACE, f"type = {UP} AS up"
    )
    key = ["run", "peer", "topic"]
    topics = joins.select(key).distinct()
    changes = joins.unionByName(moves.join(topics, ["run", "peer"]), allowMissingColumns=True)
    order = Window.partitionBy(*key).orderBy("at")
    rest = order.rowsBetween(1, Window.unboundedFollowing)
    joined = f.coalesce(f.last("joins", ignorenulls=True).over(order), f.lit(False))
    up = f.coalesce(f.last("up", ignorenulls=True).over(order), f.lit(True))
    left = f.expr("max(IF(NOT joins, at, NULL))").over(Window.partitionBy(*key))
    known = changes.select(
        *key, "at", "joins", joined.alias("joined"), up.alias("up"), left.alias("left")
    ).withColumn("live", f.col("joined") & f.col("up"))
    why = f.when(f.col("joined"), SUBSCRIBER_DOWN).otherwise(SUBSCRIBER_LEFT)
    end = f.when(~f.col("live"), f.struct("at.moment", "at.seq", why.alias("why")))
    stretch = "struct(at AS since, until, gone)"
    figures = {
        "stretches": f"collect_list({stretch}) FILTER (WHERE live)",
        "entitled": "IF(max_by(live, at),"
        " min(at) FILTER (WHERE joins AND (left IS NULL OR at > left)), NULL)",
    }
    return (
        known.withColumn("until", f.lead("at").over(order))
        .withColumn("gone", f.first(end, ignorenulls=True).over(rest))
        .groupBy(*key)
        .agg(*[f.expr(text).alias(name) for name, text in figures.items()])
    )


def owed_pairs(published: DataFrame, subscribed: DataFrame) -> DataFrame:
    """Every publication with every subscriber that it is owed to: expected, entitled, or both."""
    then = "each.since < published AND (each.until IS NULL OR published < each.until)"
    return (
        published.where("outcome != 'skipped'")
        .join(subscribed, ["run", "topic"])
        .withColumn("stretch", f.expr(f"get(filter(stretches, each -> {then}), 0)"))
        .selectExpr(
            *_PAIR,
            "stretch.gone AS gone",
            "stretch IS NOT NULL AS expected",
            "coalesce(entitled < published, false) AS entitled",
        )
        .where("expected OR entitled")
    )


def last_faults(traces: DataFrame) -> DataFrame:
    """When a peer last went down, or came back, in each run: a first start is no fault."""
    moves = traces.where(f.col("type").isin(UP, DOWN)).selectExpr(
        "run", "peerID AS peer", _PLACE, "timestamp", f"type = {DOWN} AS falls"
    )
    last = moves.groupBy("run", "peer").agg(
        f.max(f.struct("at", "timestamp")).alias("last"), f.expr("bool_or(falls) AS fell")
    )
    return last.where("fell").groupBy("run").agg(f.max("last").timestamp.alias("last_fault"))


def _happenings(traces: DataFrame) -> DataFrame:
    """All entries that can decide a pair: run, message_id, peer, kind, place, time, reason."""
    # Go's entries may have no reason.
    why = f"coalesce(nullif(reason, ''), '{UNSPECIFIED}')"
    shared = ["run", "type AS kind", _PLACE, "timestamp", "via",
              f"IF(type = {UNDELIVER}, '{UNDELIVERABLE}', {why}) AS why"]  # fmt: skip
    own = traces.where(f.col("type").isin(DELIVER, REJECT, UNDELIVER)).selectExpr(
        *shared, "messageID AS message_id", "peerID AS peer"
    )
    lost = traces.where(f.col("type") == DROP).selectExpr(
        *shared, "explode(messages.messageID) AS message_id", "remotePeer AS peer"
    )
    return own.unionByName(lost)


def _summed(happened: DataFrame) -> DataFrame:
    """What happened at each pair, reduced to what decides it."""
    told, delivered = "struct(at.moment, at.seq, why)", f"FILTER (WHERE kind = {DELIVER})"
    figures = {
        "first": f"min(struct(at, timestamp)) {delivered}",
        "last": f"max(at) {delivered}",
        "times": f"count(*) {delivered}",
        "synced": f"count_if(via = '{SYNC}') {delivered}",
        "undelivered": f"max(at) FILTER (WHERE kind = {UNDELIVER})",
        "refused": f"min({told}) FILTER (WHERE kind IN ({REJECT}, {UNDELIVER}))",
        "noted": f"max({told}) FILTER (WHERE kind = {DROP})",
        "acts": "sort_array(collect_list(struct(at, came, kind, timestamp, via))"
        f" FILTER (WHERE kind IN ({DELIVER}, {UNDELIVER})))",
    }
    summed = happened.groupBy(*_PAIR, "known").agg(
        *[f.expr(text).alias(name) for name, text in figures.items()]
    )
    return summed.withColumns({"repeated": f.expr(_REPEATED), "kept": f.expr(_KEPT)})


_REPEATED: Final = (
    f"size(filter(acts, (act, i) -> act.kind = {DELIVER} AND i > 0"
    f" AND acts[i - 1].kind = {DELIVER}))"
)
"""Deliveries of what was delivered already."""

_KEPT: Final = (
    f"get(filter(acts, act -> act.kind = {DELIVER} AND coalesce(act.at > undelivered, true)), 0)"
)
"""The first delivery that was not taken back."""


def deliveries(traces: DataFrame) -> DataFrame:
    """Every expected pair and every delivery: publish ⟗ deliver, per subscriber."""
    published = publications(traces)
    pairs = owed_pairs(published, subscriptions(traces))
    places = published.select("run", "message_id", "published", "published_at")
    early = f"kind = {DELIVER} AND at < published"
    happened = (
        _happenings(traces)
        .join(places, ["run", "message_id"], "left")
        .withColumns(
            {
                "came": f.col("at"),
                "at": f.expr(f"IF({early}, published, at)"),
                "timestamp": f.expr(f"IF({early}, published_at, timestamp)"),
            }
        )
        .withColumn("known", f.expr("coalesce(at >= published, false)"))
        .where(f"known OR kind = {DELIVER}")
    )
    both = pairs.withColumn("known", f.lit(True)).join(_summed(happened), [*_PAIR, "known"], "full")
    told = (
        both.fillna(False, ["expected", "entitled"])
        .where("expected OR entitled OR times > 0")
        .join(published.drop("published"), ["run", "message_id"], "left")
        .join(hops_of(traces), _PAIR, "left")
    )
    return _judged(told)


def _judged(told: DataFrame) -> DataFrame:
    judged = told.withColumn("reason", f.expr(f"""
        CASE WHEN NOT expected THEN NULL
             WHEN outcome = 'failed' THEN '{NOT_PUBLISHED}'
             WHEN last IS NOT NULL THEN IF(undelivered > last, '{UNDELIVERABLE}', NULL)
             ELSE coalesce(least(refused, gone).why, noted.why) END"""))  # fmt: skip
    state = f.expr("""
        CASE WHEN NOT known THEN 'unpublished'
             WHEN NOT expected THEN IF(times > 0, 'extra', 'missed')
             WHEN reason IS NOT NULL THEN 'dropped'
             WHEN last IS NOT NULL THEN 'delivered'
             ELSE 'pending' END""")
    return judged.withColumn("state", state).selectExpr(
        "* EXCEPT (hops, times, synced, repeated)",
        "peer != publisher AS remote",
        "first.timestamp AS delivered_at",
        "IF(known, (first.timestamp - published_at) / 1e9, NULL) AS latency",
        "IF(known, hops, NULL) AS hops",
        "kept.via AS via",
        "kept.timestamp AS kept_at",
        "coalesce(times, 0) AS times",
        "coalesce(synced, 0) AS synced",
        "coalesce(repeated, 0) AS repeated",
    )


def messages(traces: DataFrame, delivered: DataFrame) -> DataFrame:
    """Every message: who published it, how many copies were sent, how many came to nothing new, and
    whether everybody has it who is entitled to it."""
    key = ["run", "message_id"]
    carried = traces.where(f.col("type") == SEND).select("run", f.inline("messages"))
    sent = _counted(carried, "copies")
    again = _counted(traces.where(f.col("type") == DUPLICATE), "duplicates")
    by_copy = f"IF(state = 'delivered', IF(via = '{SYNC}', 0, 1), times - synced)"
    new = f"IF(remote AND state IN ('delivered', 'extra'), {by_copy}, 0)"
    figures = {
        "received": f"sum({new})",
        "entitled": "count_if(entitled)",
        "missing": "count_if(entitled AND kept_at IS NULL)",
        "complete_at": "max(kept_at) FILTER (WHERE entitled)",
    }
    got = delivered.groupBy(key).agg(*[f.expr(text).alias(name) for name, text in figures.items()])
    found = publications(traces).join(sent, key, "full").join(again, key, "full")
    topic = f.coalesce("topic", "copies_topic", "duplicates_topic")
    counts = ["copies", "duplicates", "received", "entitled", "missing"]
    # Counted from the last fault if that came later; `greatest` passes over what is null.
    took = "(complete_at - least(complete_at, greatest(published_at, last_fault))) / 1e9"
    return (
        found.join(got, key, "left")
        .join(f.broadcast(last_faults(traces)), "run", "left")
        .withColumns({"topic": topic, "time_to_complete": f.expr(f"IF(missing = 0, {took}, NULL)")})
        .fillna(0, counts)
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


def hops_of(traces: DataFrame) -> DataFrame:
    """The hops of every first delivery: run, message_id, peer, hops; where they can be known."""
    shared = ["run", "moment", "seq", "type AS kind", "peerID AS peer", "remotePeer AS sender"]
    own = traces.where(f.col("type").isin(PUBLISH, DELIVER))
    copies = traces.where(f.col("type") == RECV)
    arrivals = own.selectExpr(*shared, "messageID AS message_id").unionByName(
        copies.selectExpr(*shared, "explode(messages.messageID) AS message_id")
    )
    return (
        arrivals.repartition("run", "message_id")
        .sortWithinPartitions("run", "message_id", "moment", "seq")
        .select("run", "message_id", "kind", "peer", "sender")
        .mapInArrow(_walk, _HOPS)
    )


def _walk(batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: follow each message from its publisher outwards."""
    import pyarrow as pa  # noqa: PLC0415

    types = [pa.string(), pa.binary(), pa.binary(), pa.int32()]
    names = ["run", "message_id", "peer", "hops"]
    current: tuple[str, bytes] | None = None
    known: dict[bytes, int] = {}
    told: dict[bytes, None] = {}
    early: list[tuple[bytes, bytes]] = []
    for batch in batches:
        found: list[tuple[str, bytes, bytes, int]] = []
        columns = [column.to_pylist() for column in batch.columns]
        for run, message, kind, peer, sender in zip(*columns, strict=True):
            if (run, message) != current:
                current = (run, message)
                known, told, early = {}, {}, []
            arrived = [(peer, sender)]
            if kind == PUBLISH:
                if known:
                    continue
                known[peer] = 0
                arrived, early = early, []
            elif kind == DELIVER and not known:
                early += arrived  # its clock is behind the publisher's
            for at, source in arrived:
                if at not in known and source in known:
                    known[at] = known[source] + 1
                if kind != RECV and known and at not in told:
                    told[at] = None
                    if at in known:
                        found.append((run, message, at, known[at]))
        arrays = zip(*found, strict=True) if found else [()] * len(types)
        yield pa.RecordBatch.from_arrays(list(map(pa.array, arrays, types)), names)
