"""A Spark stream that reads a topic of a running node and publishes alerts into another.

    rumormill node --home plant --flight --topic celsius   # a node with a door for Spark
    python examples/spark_alerts.py plant --limit 60       # runs until Ctrl-C
    rumormill sub alerts --home plant                      # in a third terminal
    rumormill pub celsius 71.5 --home plant                # and in a fourth

Every alert is published once, also when the stream is killed and started again: the checkpoint
keeps what was read, and the node remembers what was published. Needs `rumormill[spark]`.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame

from rumormill.spark import session


def alerts(readings: DataFrame, limit: float) -> DataFrame:
    """Turn readings above the limit into lines; what is no number is left out."""
    celsius = readings.selectExpr("try_cast(CAST(value AS STRING) AS DOUBLE) AS celsius", "offset")
    hot = celsius.where(f"celsius > {limit}")
    return hot.selectExpr("concat(celsius, ' degrees at offset ', offset) AS value")


def main() -> None:
    """Start the stream; with --once, stop when everything that is there has been read."""
    parser = argparse.ArgumentParser(description="Publish alerts from a Spark stream.")
    parser.add_argument("home", help="the home of a node that runs with --flight")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    home = str(Path(options.home).resolve())
    spark = session()
    readings = (
        spark.readStream.format("rumormill")
        .option("subscribe", "celsius")
        .option("startingOffsets", "earliest")
        .load(home)
    )
    writer = (
        alerts(readings, options.limit)
        .writeStream.format("rumormill")
        .option("home", home)
        .option("topic", "alerts")
        .option("checkpointLocation", f"{home}/alerts-checkpoint")
    )
    query = (writer.trigger(availableNow=True) if options.once else writer).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
