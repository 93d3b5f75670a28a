"""What an operator can meet gives one clear sentence of the right class."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rumormill
from rumormill.core.errors import ConfigError
from rumormill.log import (
    CorruptLogError,
    DiskFullError,
    Durability,
    EventLog,
    NotAStoreError,
    StoreConfig,
    StoreLockedError,
    StoreVersionError,
    repair,
    schema,
)
from rumormill.log.rows import seal_store
from store_samples import fill, make_event, read_all


def run_child(code: str, *arguments: str) -> str:
    """Run a piece of Python in a process of its own and return what it prints."""
    source = str(Path(rumormill.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and 20 < len(text) < 400


def test_a_store_is_written_by_one_log_at_a_time(home, log):
    """A second opening for writing is refused, in this process and in another."""
    with pytest.raises(StoreLockedError, match=f"by process {os.getpid()}") as caught:
        EventLog(home)
    assert is_one_sentence(str(caught.value))
    code = """
import sys
from rumormill.log import EventLog, StoreLockedError
from rumormill.log import repair
for action in (EventLog, repair):
    try:
        action(sys.argv[1])
    except StoreLockedError as error:
        print(error)
"""
    assert (
        run_child(code, str(home)).count(f"already open for writing by process {os.getpid()}") == 2
    )


def test_a_full_disk_refuses_the_append_and_keeps_the_log(home):
    """Nothing acknowledged is lost, and the log goes on when there is room again."""
    with EventLog(home, StoreConfig(max_database_bytes=40 * 8192)) as log:
        fill(log, 50)
        big = make_event(99, data=bytes(400_000))
        error = log.append([big]).exception()
        assert isinstance(error, DiskFullError)
        assert is_one_sentence(str(error))
        assert log.append([make_event(50)]).result()[0].offset == 50
        assert log.counters.failed == 1
        assert log.verify().ok
    with EventLog(home) as log:
        assert log.append([big]).result()[0].offset == 51
        assert len(read_all(log)) == 52


def test_a_log_without_a_second_witness_says_so_until_it_has_one_again(home, monkeypatch):
    """The heads file cannot be written: events are kept, also over a crash, and counted trouble is
    all there is. The database records since when an old copy of itself could not be told."""

    def no_room(*arguments):
        raise OSError(28, "No space left on device")

    config = StoreConfig(heads_sync_commits=2)
    with EventLog(home, config) as log:
        fill(log, 1)
        monkeypatch.setattr(os, "pwrite", no_room)
        for number in range(1, 9):
            assert log.append([make_event(number)]).result()[0].durable_at is not None
        assert (log.counters.failed, log.counters.heads_failed) == (0, 1)
        shutil.copytree(home, home.with_name("crashed"))
        monkeypatch.undo()
    crashed = home.with_name("crashed")
    with EventLog(crashed, config, read_only=True) as log:
        assert (log.unwitnessed, log.findings) == (0, ())
    with EventLog(crashed, config) as log:
        assert len(read_all(log)) == 9
        fill(log, 1, start=9)
    with EventLog(crashed, config, read_only=True) as log:
        assert log.unwitnessed is None


def test_an_append_that_is_too_large_takes_no_other_with_it(home):
    """Appends that would have shared a commit are tried alone; those that fit are kept."""
    gate = threading.Event()
    with EventLog(home, StoreConfig(max_database_bytes=40 * 8192)) as log:
        log.writer().run(gate.wait)
        sizes = (100, 400_000, 200, 500_000, 300)
        tickets = [log.append([make_event(n, data=bytes(size))]) for n, size in enumerate(sizes)]
        gate.set()
        kept = [ticket.exception() is None for ticket in tickets]
        assert kept == [True, False, True, False, True]
        assert [len(event.data) for event in read_all(log)] == [100, 200, 300]
        assert log.verify().ok


def test_a_file_that_may_not_grow_fails_cleanly(tmp_path):
    """The system refuses to write: tickets fail, and what was acknowledged is there afterwards."""
    code = """
import resource, sys
from rumormill.core.event import Event
from rumormill.log import EventLog, StoreError
log = EventLog(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
done = 0
try:
    for number in range(1000):
        event = Event("t", bytes(5000), b"", b"%d" % number, received=1.0)
        log.append([event]).result()
        done += 1
except StoreError as error:
    print(done, type(error).__name__)
"""
    done, name = run_child(code, str(tmp_path / "store")).split()
    assert name in {"StoreFailedError", "DiskFullError"}
    with EventLog(tmp_path / "store") as log:
        assert log.topic("t").next_offset >= int(done) > 0
        assert log.verify().ok


def test_a_read_only_home_is_named(tmp_path):
    """Somebody without the right to write gets the directory's name and the reason."""
    home = tmp_path / "store"
    code = """
import os, sys, tempfile
from rumormill.log import EventLog, StoreReadOnlyError
home = tempfile.mkdtemp()
os.chmod(home, 0o555)
if os.geteuid() == 0:
    os.setuid(65534)
for place in (home, home + "/below"):
    try:
        EventLog(place)
    except StoreReadOnlyError as error:
        print(error)
"""
    output = run_child(code, str(home))
    assert output.count("cannot be written: Permission denied") == 2


def test_a_foreign_database_and_garbage_are_refused(tmp_path):
    """What is not a store is not opened, and not changed."""
    foreign = tmp_path / "foreign"
    with EventLog(foreign) as log:
        fill(log, 1)
    (foreign / "events-1.db").unlink()
    with sqlite3.connect(foreign / "events-1.db") as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    db.close()
    with pytest.raises(CorruptLogError, match="not a rumormill store"):
        EventLog(foreign)
    garbage = tmp_path / "garbage"
    garbage.mkdir()
    (garbage / "events-1.db").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(CorruptLogError):
        EventLog(garbage)
    with pytest.raises(NotAStoreError):
        repair(tmp_path / "nowhere")


def test_a_newer_store_says_upgrade(home):
    """An older program does not touch what it does not understand."""
    with EventLog(home) as log:
        fill(log, 1)
    with sqlite3.connect(home / "events-1.db") as db:
        (store_id,) = db.execute("SELECT store_id FROM store").fetchone()
        seal = seal_store(99, store_id)
        db.execute("UPDATE store SET schema_version = 99, seal = ?", (seal,))
    db.close()
    for read_only in (False, True):
        with pytest.raises(StoreVersionError, match=r"version 99.*upgrade rumormill"):
            EventLog(home, read_only=read_only)


def test_migrations_run_step_by_step_and_all_or_nothing(home):
    """A step that fails leaves the version it found; the others are applied in order."""
    with EventLog(home) as log:
        fill(log, 3)
    db = sqlite3.connect(home / "events-1.db", isolation_level=None)

    def add_table(connection):
        connection.execute("CREATE TABLE extra (x)")

    def fail_half_way(connection):
        connection.execute("CREATE TABLE half (x)")
        connection.execute("CREATE TABLE extra (x)")

    steps = {1: add_table, 2: fail_half_way}
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(db, 1, steps, 3)
    assert db.execute("SELECT schema_version FROM store").fetchone() == (2,)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master")]
    assert "extra" in names
    assert "half" not in names
    with pytest.raises(StoreVersionError):
        schema.migrate(db, 3, steps, 4)
    db.close()


def test_a_crash_while_the_store_is_created_is_no_damage(home):
    """Heads without a database, or with an empty one, are a store that was just begun."""
    with EventLog(home):
        pass
    heads = (home / "heads").read_bytes()
    for leftover in (None, b""):
        for path in home.iterdir():
            path.unlink()
        (home / "heads").write_bytes(heads)
        if leftover is not None:
            (home / "events-1.db").write_bytes(leftover)
        with EventLog(home) as log:
            fill(log, 2)


def test_modes_and_homes_must_fit(home):
    """Memory takes no directory, everything else needs one."""
    with pytest.raises(ConfigError, match="memory"):
        EventLog(None)
    with pytest.raises(ConfigError, match="memory"):
        EventLog(home, StoreConfig(durability=Durability.MEMORY))
    assert not home.exists()
