"""The one Spark session that the documentation's programs share."""

import os

import pytest
from doc_pages import ROOT


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Start it, or take the one that this process has; `rumormill.spark.session` then returns it.

    Nobody stops it here: other tests of the process may use it, and it ends with the process.
    """
    from rumormill.spark import session

    os.environ["PYTHONPATH"] = str(ROOT / "src")
    folder = tmp_path_factory.mktemp("spark-docs")
    return session(
        "local[2]",
        brief=True,
        settings={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "1g",
        },
    )
