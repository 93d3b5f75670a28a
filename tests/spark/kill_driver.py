"""A Spark driver for the kill tests: streams from a live node, into Parquet and into a topic.

    python kill_driver.py NODE TOKEN FOLDER LIMIT

LIMIT is the most events of a batch. It prints `running` when the queries run, and ends when
`FOLDER/stop` exists and everything that was there then has been processed; its last line is the
Parquet table as Spark reads it, offsets and values as JSON.
"""

import json
import sys
import time
from pathlib import Path

from rumormill.spark import session


def main() -> None:
    node, token, place, limit = sys.argv[1:]
    folder = Path(place)
    spark = session("local[2]", app="kill", brief=True)
    reader = (
        spark.readStream.format("rumormill")
        .option("node", node)
        .option("token", token)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .option("minPartitions", 2)
    )
    # Each query loads its own: of two that share a DataFrame, Spark 4.3 now and then cannot
    # serialize a task ("Illegal size of collection"), since the other changes what they share.
    table = reader.load().writeStream.format("parquet").option("path", str(folder / "table"))
    topic = reader.load().select("value").writeStream.format("rumormill")
    topic = topic.option("node", node).option("token", token).option("topic", "out")
    queries = [
        writer.option("checkpointLocation", str(folder / "checkpoint" / name))
        .trigger(processingTime="0 seconds")
        .start()
        for name, writer in (("table", table), ("topic", topic))
    ]
    sys.stdout.write("running\n")
    sys.stdout.flush()
    while not (folder / "stop").exists():
        time.sleep(0.1)
        for query in queries:
            if query.exception() is not None:
                raise SystemExit(f"failed: {query.exception()}")
    for query in queries:
        query.processAllAvailable()
        query.stop()
    rows = spark.read.parquet(str(folder / "table")).select("offset", "value").collect()
    sys.stdout.write(json.dumps([(row.offset, int(bytes(row.value))) for row in rows]) + "\n")


if __name__ == "__main__":
    main()
