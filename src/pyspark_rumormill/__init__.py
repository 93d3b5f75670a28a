"""Lets Spark find `format("rumormill")` by itself: it looks for modules named `pyspark_*`."""

from rumormill.spark.source import RumormillSource as DefaultSource

__all__ = ["DefaultSource"]
