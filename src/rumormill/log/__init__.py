"""The durable event log: per topic a dense, gap-free, verified history.

An event is safe when the ticket of its append has resolved: by default it has then been flushed to
the disk. `docs/store.md` says what each mode promises, what damage is found and how, and what to do
about it.
"""

from rumormill.log.errors import (
    CorruptLogError,
    DamagedRangeError,
    DiskFullError,
    EventRefusedError,
    Finding,
    FindingKind,
    ImportRefusedError,
    MissingExtraError,
    NotAStoreError,
    OffsetAheadError,
    OffsetGoneError,
    QueueFullError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreVersionError,
)
from rumormill.log.event_log import EventLog
from rumormill.log.model import (
    Appended,
    Durability,
    Report,
    Retention,
    StoreConfig,
    TopicExtent,
)
from rumormill.log.parquet import export_parquet, import_parquet
from rumormill.log.repair import repair

__all__ = [
    "Appended",
    "CorruptLogError",
    "DamagedRangeError",
    "DiskFullError",
    "Durability",
    "EventLog",
    "EventRefusedError",
    "Finding",
    "FindingKind",
    "ImportRefusedError",
    "MissingExtraError",
    "NotAStoreError",
    "OffsetAheadError",
    "OffsetGoneError",
    "QueueFullError",
    "Report",
    "Retention",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreFailedError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreVersionError",
    "TopicExtent",
    "export_parquet",
    "import_parquet",
    "repair",
]
