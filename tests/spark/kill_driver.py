"""A Spark driver for the kill tests: a stream from a live node, into Parquet or into a topic.

    python kill_driver.py source|sink NODE TOKEN FOLDER LIMIT

LIMIT is the most events of a batch. It prints `running` when the query runs, and ends when
`FOLDER/stop` exists and everything that was there then has been processed.
"""

import sys
import time
from pathlib import Path

from rumormill.spark import session


def main() -> None:
    kind, node, token, place, limit = sys.argv[1:]
    folder = Path(place)
    spark = session("local[2]", app=kind, brief=True)
    stream = (
        spark.readStream.format("rumormill")
        .option("node", node)
        .option("token", token)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
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
