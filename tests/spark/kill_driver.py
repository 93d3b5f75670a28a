"""A Spark driver for the kill tests: a stream from a live node, into Parquet or into a topic.

    python kill_driver.py source NODE TOKEN FOLDER
    python kill_driver.py sink NODE TOKEN FOLDER

It prints `running` when the query runs, and ends when `FOLDER/stop` exists and everything that was
there then has been processed.
"""

import sys
import time
from pathlib import Path

from rumormill.spark import session

LIMIT = 400
"""Events in a batch: many small batches, so that kills strike all their parts."""


def main() -> None:
    kind, node, token, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    spark = session("local[2]", app=kind)
    stream = (
        spark.readStream.format("rumormill")
        .option("node", node)
        .option("token", token)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", LIMIT)
        .option("minPartitions", 2)
        .load()
    )
    if kind == "source":
        writer = stream.writeStream.format("parquet").option("path", str(folder / "table"))
    else:
        writer = stream.select("value").writeStream.format("rumormill")
        writer = writer.option("node", node).option("token", token).option("topic", "out")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    sys.stdout.write("running\n")
    sys.stdout.flush()
    while not (folder / "stop").exists():
        time.sleep(0.1)
        if query.exception() is not None:
            raise SystemExit(f"failed: {query.exception()}")
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main()
