"""Topics, history and traces on Spark: a session, a data source, tables, a report, sweeps.

Everything here needs the extra `rumormill[spark]`; importing this package does not import Spark.
"""

from rumormill.spark.progress import behind_latest
from rumormill.spark.session import session

__all__ = ["behind_latest", "session"]
