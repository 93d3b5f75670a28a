"""Topics as tables and views of SQL."""

from pathlib import Path
from typing import Any

import pytest
from spark_samples import run_to_end

pytestmark = pytest.mark.xdist_group("spark")


def test_create_table_and_views(spark: Any, store: Path, tmp_path: Path) -> None:
    """A table keeps its options, for queries, for views over it and for streams; options of a
    query go over them."""
    options = f"OPTIONS (home '{store}', subscribe 'news,chat', includeHeaders 'true')"
    spark.sql(f"CREATE TABLE said USING rumormill {options}")
    try:
        counts = spark.sql("SELECT topic, count(*) AS events FROM said GROUP BY topic").collect()
        assert {row.topic: row.events for row in counts} == {"news": 100, "chat": 40}
        assert "headers" in spark.table("said").columns
        spark.sql("CREATE VIEW late AS SELECT offset, STRING(value) AS text FROM said"
                  " WHERE topic = 'news' AND offset >= 98")  # fmt: skip
        rows = spark.sql("SELECT text FROM late ORDER BY offset").collect()
        assert [row.text for row in rows] == ["news 98", "news 99"]
        one = spark.sql("SELECT count(*) AS events FROM said WITH (subscribe = 'chat')")
        assert one.first().events == 40
        frame = spark.readStream.option("startingOffsets", "earliest").table("said")
        run_to_end(frame.select("topic", "offset"), tmp_path)
        assert spark.read.parquet(str(tmp_path / "table")).count() == 140
    finally:
        spark.sql("DROP VIEW IF EXISTS late")
        spark.sql("DROP TABLE said")


def test_columns_are_listed_for_a_temporary_view(spark: Any, store: Path) -> None:
    """Which then reads no others. A table forgets its options with them, and says so."""
    columns = "(offset BIGINT NOT NULL, value BINARY NOT NULL)"
    options = f"USING rumormill OPTIONS (home '{store}', subscribe 'chat')"
    spark.sql(f"CREATE TEMPORARY VIEW brief {columns} {options}")
    spark.sql(f"CREATE TABLE listed {columns} {options}")
    try:
        assert spark.table("brief").columns == ["offset", "value"]
        assert spark.sql("SELECT max(offset) AS last FROM brief").first().last == 39
        with pytest.raises(Exception, match="leave the columns out"):
            spark.table("listed").count()
    finally:
        spark.sql("DROP VIEW brief")
        spark.sql("DROP TABLE listed")
