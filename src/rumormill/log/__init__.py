"""The durable event log: per topic a dense, gap-free, verified history.

An event is safe when the ticket of its append has resolved: by default it has then been flushed to
the disk. `docs/store.md` says what each mode promises, what damage is found and how, and what to do
about it.
"""

from rumormill.log.backup import BackupRefusedError as BackupRefusedError
from rumormill.log.backup import backup as backup
from rumormill.log.backup import restore as restore
from rumormill.log.errors import CorruptLogError as CorruptLogError
from rumormill.log.errors import DamagedRangeError as DamagedRangeError
from rumormill.log.errors import DiskFullError as DiskFullError
from rumormill.log.errors import EventRefusedError as EventRefusedError
from rumormill.log.errors import Finding as Finding
from rumormill.log.errors import FindingKind as FindingKind
from rumormill.log.errors import ImportRefusedError as ImportRefusedError
from rumormill.log.errors import MissingExtraError as MissingExtraError
from rumormill.log.errors import NotAStoreError as NotAStoreError
from rumormill.log.errors import OffsetAheadError as OffsetAheadError
from rumormill.log.errors import OffsetGoneError as OffsetGoneError
from rumormill.log.errors import QueueFullError as QueueFullError
from rumormill.log.errors import StoreClosedError as StoreClosedError
from rumormill.log.errors import StoreError as StoreError
from rumormill.log.errors import StoreFailedError as StoreFailedError
from rumormill.log.errors import StoreLockedError as StoreLockedError
from rumormill.log.errors import StoreReadOnlyError as StoreReadOnlyError
from rumormill.log.errors import StoreVersionError as StoreVersionError
from rumormill.log.event_log import EventLog as EventLog
from rumormill.log.keeping import compact as compact
from rumormill.log.model import Appended as Appended
from rumormill.log.model import Durability as Durability
from rumormill.log.model import Report as Report
from rumormill.log.model import Retention as Retention
from rumormill.log.model import StoreConfig as StoreConfig
from rumormill.log.model import TopicExtent as TopicExtent
from rumormill.log.parquet import export_parquet as export_parquet
from rumormill.log.parquet import import_parquet as import_parquet
from rumormill.log.repair import repair as repair
