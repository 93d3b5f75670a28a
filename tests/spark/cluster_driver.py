"""A driver's work, the same on a cluster and in one process: a mill, a sweep and a stream.

    python cluster_driver.py FOLDER --master URL --conf KEY=VALUE …

FOLDER holds `storm.ndjson`, `grid.toml` and the store `home`; the lake is made in it. It prints, as
JSON, where tasks ran: of a plain job, and of the one that reads the store.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rumormill.spark import session
from rumormill.spark.bronze import find_source
from rumormill.spark.lake import Lake
from rumormill.spark.mill import mill
from rumormill.spark.streaming import Stream
from rumormill.spark.sweep import Grid, sweep


def work(spark: Any, folder: Path) -> dict[str, list[str]]:
    """Fill the folder's lake; return the executors that took part."""

    def place(_: Any) -> Any:
        time.sleep(0.2)  # long enough that no executor takes all tasks
        yield os.environ.get("SPARK_EXECUTOR_DIRS", "one process")

    plain = spark.sparkContext.parallelize(range(8), 8).mapPartitions(place).collect()
    reading = (
        spark.read.format("rumormill")
        .option("home", str(folder / "home"))
        .option("subscribe", "news")
        .option("minPartitions", 8)
        .load()
    )
    read = reading.rdd.mapPartitions(place).collect()
    lake = Lake.create(folder / "lake")
    mill(spark, find_source(str(folder / "storm.ndjson")), lake)
    sweep(spark, Grid.load(folder / "grid.toml"), lake)
    Stream(spark, find_source(str(folder / "home")), lake).start(once=True).awaitTermination()
    return {"plain": sorted(set(plain)), "reading": sorted(set(read))}


def main() -> None:
    arguments = sys.argv[2:]
    pairs = list(itertools.pairwise(arguments))
    [master] = [value for flag, value in pairs if flag == "--master"]
    settings = dict(value.split("=", 1) for flag, value in pairs if flag == "--conf")
    spark = session(master, settings=settings)
    found = work(spark, Path(sys.argv[1]))
    spark.stop()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
