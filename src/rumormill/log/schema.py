"""The database behind the log: connections, tables, versions.

A store is a directory: `lock`, `heads`, and `events-N.db` with SQLite's own `-wal` and `-shm`.
N is the epoch; a repair builds the next epoch beside the damaged one and the heads file, replaced
in one step, says which one counts.

The rule of this file: whatever SQLite can be told about safety is told here, once.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rumormill.log import errors, files
from rumormill.log.index_rows import INDEX_TABLES, likely_window
from rumormill.log.index_tree import begin_history
from rumormill.log.many import Insert
from rumormill.log.model import Durability, StoreConfig
from rumormill.log.rows import (
    INSERT,
    EventRow,
    TopicRow,
    bound,
    seal_loss,
    seal_store,
    seal_topic,
)

APPLICATION_ID = 0x524D4C47  # "RMLG"
SCHEMA_VERSION = 2
_MEMORY_BYTES = 2**30
_PAGE_BYTES = 8192  # a quarter less work per group than 4096, hardly more per single commit

_HEADER_STAMP_AT = 60  # SQLite's file format, 1.3: the user version, big-endian
_HEADER_STAMPS = 2**31


_TABLES = (
    """CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        schema_version INTEGER NOT NULL,
        store_id BLOB NOT NULL,
        seal BLOB NOT NULL,
        stamp INTEGER NOT NULL
    )""",
    """CREATE TABLE topics (
        topic_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        first_offset INTEGER NOT NULL,
        base_hash BLOB NOT NULL,
        next_offset INTEGER NOT NULL,
        head_hash BLOB NOT NULL,
        bytes INTEGER NOT NULL,
        received_max REAL NOT NULL,
        generation INTEGER NOT NULL,
        seal BLOB NOT NULL
    )""",
    """CREATE TABLE events (
        key INTEGER PRIMARY KEY,
        topic_id INTEGER NOT NULL,
        id BLOB NOT NULL,
        author BLOB NOT NULL,
        data BLOB NOT NULL,
        parents BLOB NOT NULL,
        created REAL,
        received REAL NOT NULL,
        protocol TEXT NOT NULL,
        proof BLOB NOT NULL,
        prev BLOB NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (topic_id, id)
    )""",
    """CREATE TABLE marks (
        key INTEGER PRIMARY KEY,
        received_max REAL NOT NULL,
        seal BLOB NOT NULL
    )""",
    """CREATE TABLE losses (
        topic_id INTEGER NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (topic_id, start)
    ) WITHOUT ROWID""",
    *INDEX_TABLES.values(),
)


def _add_index(db: sqlite3.Connection) -> None:
    """To version 2: the index of histories, which the log fills when it is open.

    Where events were deleted, nobody has kept a window: it is closed now, before others go.
    """
    for statement in INDEX_TABLES.values():
        db.execute(statement)
    for topic in get_topics(db)[0].values():
        if topic.first_offset:
            begin_history(db, topic, likely_window(db, topic))


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _add_index}
"""From each older schema version, the step to the next one; version 1 is the first."""

_TOPIC_COLUMNS = (
    "topic_id, name, first_offset, base_hash, next_offset, head_hash, bytes, received_max,"
    " generation"
)
_PUT_TOPICS = Insert(
    f"INSERT INTO topics ({_TOPIC_COLUMNS}, seal)",
    10,
    "ON CONFLICT (topic_id) DO UPDATE SET first_offset = excluded.first_offset,"
    " base_hash = excluded.base_hash, next_offset = excluded.next_offset,"
    " head_hash = excluded.head_hash, bytes = excluded.bytes,"
    " received_max = excluded.received_max, generation = excluded.generation,"
    " seal = excluded.seal",
)
_TopicTuple = tuple[int, str, int, bytes, int, bytes, int, float, int]


@contextlib.contextmanager
def store_lock(home: Path) -> Iterator[None]:
    """The right to write: held by one log at a time, released by the system if it dies."""
    with errors.translated(str(home)):
        descriptor = files.open_own(home / "lock", os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise errors.StoreLockedError(
                f"the store {home} is already open for writing by process {owner or 'unknown'}",
                "; use that node, by `rumormill.connect` or the command line, or another home",
            ) from None
        with contextlib.suppress(OSError):  # the number is only for the message above
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(descriptor)


def make_home(home: Path) -> None:
    """Create the store's directory, readable by its owner only."""
    with errors.translated(str(home)):
        files.make_folder(home)
        files.keep_name(home)


def secure_database(path: Path, *, half_folded: bool = False) -> None:
    """Before SQLite looks: its files are private, no links, and what it recovers is on the disk.

    SQLite takes what it finds in the write-ahead log for stored and appends behind it, even if the
    flush of that failed and the process died. So the log is put on the disk once more. Whatever
    of it is in the database file SQLite folds in again, unless a process that still reads keeps
    its shared index alive, which knows that a part was (`half_folded`): that part was not flushed,
    and may have been lost since.
    """
    try:
        os.close(files.create(path))
    except FileExistsError:
        files.make_private(path)
        if half_folded:
            files.rewrite(path)
    with contextlib.suppress(FileNotFoundError):
        files.make_private(path.with_name(path.name + "-shm"))
    with contextlib.suppress(FileNotFoundError):
        files.rewrite(path.with_name(path.name + "-wal"))
    if path.with_name(path.name + "-journal").exists():
        # Its first page was being written, before there was a write-ahead log. It is undone by
        # the first who may write.
        with contextlib.closing(sqlite3.connect(path)) as db:
            has_schema(db)


def database_path(home: Path, epoch: int) -> Path:
    """The database file of an epoch."""
    return home / f"events-{epoch}.db"


def latest_epoch(home: Path) -> int:
    """The highest epoch that has a database file; 0 if none has."""
    numbers = (path.stem.removeprefix("events-") for path in home.glob("events-*.db"))
    return max((int(number) for number in numbers if number.isdigit()), default=0)


class _Connection(sqlite3.Connection):
    """A connection on which all damage is an `sqlite3.Error`.

    SQLite quotes damaged names in its messages, and Python then fails to decode the message.
    """

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError:
            raise errors.RecordDamagedError("the database's schema is damaged") from None


@contextlib.contextmanager
def _connecting(where: str, *, uri: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection with what all of them have; closed at once if it cannot be set up.

    Otherwise it would be held, with its descriptors, as long as the exception is. Where they are
    what is short, that is said before they are given back, since nothing shows it afterwards.
    """
    db = sqlite3.connect(
        where,
        uri=uri,
        isolation_level=None,
        check_same_thread=False,
        timeout=5.0,
        factory=_Connection,
    )
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA fullfsync = ON")  # on macOS, plain fsync does not reach the disk
        db.execute("PRAGMA temp_store = MEMORY")  # a commit needs no further file, nor descriptor
        yield db
    except BaseException as error:
        is_short = isinstance(error, sqlite3.Error) and errors.lacks_descriptors(error)
        db.close()
        if is_short:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), where) from error
        raise


def connect_writer(path: Path | None, config: StoreConfig) -> sqlite3.Connection:
    """The one connection that writes; without a path, a database in memory."""
    with _connecting(":memory:" if path is None else str(path)) as db:
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        if path is not None:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":  # SQLite says no more than this of a write or a flush that failed
                raise errors.StoreFailedError(
                    f"the store {path.parent} cannot have a write-ahead log: its disk fails, or "
                    "its file system cannot share memory"
                )
            level = "FULL" if config.durability is Durability.FSYNC else "NORMAL"
            db.execute(f"PRAGMA synchronous = {level}")
            # The writer folds the log itself, so that it can note what the file has reached.
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute("PRAGMA journal_size_limit = 67108864")
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("PRAGMA cache_size = -16384")
        limit_pages(db, config, in_memory=path is None)
        return db


def limit_pages(
    db: sqlite3.Connection, config: StoreConfig, *, in_memory: bool, spare: int = 0
) -> None:
    """Let the database have as many bytes as it may, and some more where that makes room."""
    most = config.max_database_bytes
    if most is None and in_memory:
        most = _MEMORY_BYTES
    if most is not None:
        db.execute(f"PRAGMA max_page_count = {max(1, (most + spare) // _PAGE_BYTES)}")


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads, with SQLite's own snapshots.

    For those SQLite makes files beside the database. On a disk that cannot be written, one that was
    closed in order, and so has no write-ahead log, is read as one that nobody changes.
    """
    frozen = os.statvfs(path.parent).f_flag & os.ST_RDONLY
    waits = frozen and path.with_name(path.name + "-wal").exists()
    how = "immutable=1" if frozen and not waits else "mode=ro"
    with _connecting(f"{path.absolute().as_uri()}?{how}", uri=True) as db:
        return db


def create_schema(db: sqlite3.Connection, store_id: bytes) -> None:
    """Make the tables of an empty database, all or none."""
    with transaction(db):
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for statement in _TABLES:
            db.execute(statement)
        seal = seal_store(SCHEMA_VERSION, store_id)
        db.execute("INSERT INTO store VALUES (1, ?, ?, ?, 0)", (SCHEMA_VERSION, store_id, seal))


def put_stamp(db: sqlite3.Connection, stamp: int) -> None:
    """Write down in the database which commit its file is about to reach.

    It goes into the store's record and, because a file in the middle of a checkpoint is not always
    one that SQLite can read, into the file's header, whose first page is written at once.
    """
    with transaction(db):
        db.execute("UPDATE store SET stamp = ?", (stamp,))
        db.execute(f"PRAGMA user_version = {stamp % _HEADER_STAMPS}")


def get_file_stamp(path: Path, expected: int) -> int | None:
    """The stamp of a database file as it is, without its write-ahead log; None if it has none.

    The header has the lower bits only: of the stamps that fit, the one next to `expected`.
    """
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
        ) as raw:
            stamp = raw.execute("SELECT stamp FROM store").fetchone()[0]
            return stamp if type(stamp) is int else None
    except (sqlite3.Error, TypeError, UnicodeDecodeError):
        pass
    with path.open("rb") as file:
        header = file.read(_HEADER_STAMP_AT + 4)
    if len(header) < _HEADER_STAMP_AT + 4:
        return None
    ahead = (int.from_bytes(header[_HEADER_STAMP_AT:]) - expected) % _HEADER_STAMPS
    return expected + (ahead if ahead < _HEADER_STAMPS // 2 else ahead - _HEADER_STAMPS)


def has_schema(db: sqlite3.Connection) -> bool:
    """Whether anything was ever created in this database."""
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def has_table(db: sqlite3.Connection, name: str) -> bool:
    """Whether a table is there that is made when it is first needed."""
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    return bool(db.execute(query, (name,)).fetchone()[0])


def check_version(db: sqlite3.Connection, where: str) -> int:
    """The store's schema version; refuse foreign databases and newer versions."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise errors.NotAStoreError(f"{where} is a database, but not a rumormill store")
    version, _ = get_store(db)
    if version > SCHEMA_VERSION:
        raise errors.StoreVersionError(
            f"the store {where} has version {version}, this rumormill knows versions up to "
            f"{SCHEMA_VERSION}: upgrade rumormill"
        )
    return version


def get_store(db: sqlite3.Connection) -> tuple[int, bytes]:
    """The store's own record: its schema version and its id."""
    found = db.execute("SELECT schema_version, store_id, seal FROM store").fetchone()
    try:
        version, store_id, seal = found
        if seal_store(version, store_id) == seal:
            return version, store_id
    except Exception:  # noqa: BLE001 - a flipped type code can give any type here
        pass
    raise errors.RecordDamagedError("the store's own record is damaged")


def migrate(
    db: sqlite3.Connection,
    version: int,
    migrations: Mapping[int, Callable[[sqlite3.Connection], None]] = MIGRATIONS,
    target: int = SCHEMA_VERSION,
) -> None:
    """Bring an older schema up to `target`, every step in a transaction of its own."""
    for step in range(version, target):
        if step not in migrations:
            raise errors.StoreVersionError(
                f"there is no way from store version {step} to {step + 1}"
            )
        with transaction(db):
            migrations[step](db)
            _, store_id = get_store(db)
            seal = seal_store(step + 1, store_id)
            db.execute("UPDATE store SET schema_version = ?, seal = ?", (step + 1, seal))


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes, all or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        rollback(db)
        raise


def rollback(db: sqlite3.Connection) -> None:
    """Undo whatever transaction is open, if SQLite has not done so already."""
    if db.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def put_events(db: sqlite3.Connection, rows: Sequence[EventRow]) -> int:
    """Insert rows in order; return how many of their ids were new."""
    return INSERT.put(db, [bound(row) for row in rows])


def put_topics(db: sqlite3.Connection, rows: Iterable[TopicRow]) -> None:
    """Write topics' own records, each with its seal."""
    _PUT_TOPICS.put(db, [(*msgspec.structs.astuple(row), seal_topic(row)) for row in rows])


def get_topic(db: sqlite3.Connection, name: str) -> TopicRow | None:
    """A topic's own record, or None if there is no such topic."""
    found = db.execute(
        f"SELECT {_TOPIC_COLUMNS}, seal FROM topics WHERE name = ?", (name,)
    ).fetchone()
    if found is None:
        return None
    row = _unseal_topic(found)
    if row is None:
        raise errors.RecordDamagedError(f"the record of topic {name!r} is damaged")
    return row


def get_topics(db: sqlite3.Connection) -> tuple[dict[int, TopicRow], list[int]]:
    """All topics' own records that are whole, and the numbers of those that are not."""
    whole: dict[int, TopicRow] = {}
    broken: list[int] = []
    query = f"SELECT {_TOPIC_COLUMNS}, seal FROM topics ORDER BY topic_id"
    for found in db.execute(query):
        row = _unseal_topic(found)
        if row is None:
            broken.append(found[0])
        else:
            whole[row.topic_id] = row
    return whole, broken


def get_losses(db: sqlite3.Connection, topics: dict[int, TopicRow]) -> list[errors.Finding]:
    """The ranges that a repair has given up, as findings; an unreadable record is a finding too."""
    findings = []
    for topic_id, start, end, seal in db.execute(
        "SELECT topic_id, start, end, seal FROM losses ORDER BY topic_id, start"
    ):
        row = topics.get(topic_id)
        try:
            sealed = seal_loss(topic_id, start, end) == seal
        except Exception:  # noqa: BLE001 - a flipped type code can give any type here
            sealed = False
        if row is None or not sealed:
            findings.append(
                errors.Finding(errors.FindingKind.INDEX, detail="a recorded loss is damaged")
            )
        else:
            findings.append(errors.Finding(errors.FindingKind.REPAIRED, row.name, start, end))
    return findings


def put_loss(db: sqlite3.Connection, topic_id: int, start: int, end: int) -> None:
    """Record that a range of offsets will stay empty for ever."""
    db.execute(
        "INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?)",
        (topic_id, start, end, seal_loss(topic_id, start, end)),
    )


def put_unwitnessed(db: sqlite3.Connection, since: int | None) -> None:
    """Record that the heads file could not be kept up since a commit; None: it is kept up again."""
    db.execute("CREATE TABLE IF NOT EXISTS unwitnessed (since INTEGER NOT NULL)")
    db.execute("DELETE FROM unwitnessed")
    if since is not None:
        db.execute("INSERT INTO unwitnessed VALUES (?)", (since,))


def get_unwitnessed(db: sqlite3.Connection) -> int | None:
    """Since which commit the heads file could not be kept up; None if it was."""
    try:
        found = db.execute("SELECT since FROM unwitnessed").fetchone()
    except sqlite3.Error:  # there is no such table, as a rule
        return None
    return found[0] if found and type(found[0]) is int else None


def _unseal_topic(found: tuple[object, ...]) -> TopicRow | None:
    try:
        topic = TopicRow(*msgspec.convert(found[:-1], _TopicTuple))
        return topic if seal_topic(topic) == found[-1] else None
    except Exception:  # noqa: BLE001 - a flipped type code can give any type here
        return None
