"""Whose the files are: nobody else reads a store, and no link leads a writer astray."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from rumormill.log import (
    EventLog,
    StoreConfig,
    StoreFailedError,
    backup,
    export_parquet,
    import_parquet,
    repair,
    restore,
    schema,
)
from rumormill.log.arrow import read_batches
from small_disk import run_on_small_disk
from store_samples import fill, read_all


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request):
    """The umask of whoever starts us."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_to_others(home: Path) -> dict[str, str]:
    """What is not its owner's alone, or not even its owner's."""
    found = {}
    for path in (home, *home.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found[str(path.relative_to(home))] = oct(mode)
    return found


def test_a_log_is_private_whatever_the_umask(umask, tmp_path):
    """Database, write-ahead log, shared index, heads, lock, segments: open, closed, repaired."""
    home = tmp_path / "store"
    with EventLog(home, StoreConfig(segment_rows=50)) as log:
        fill(log, 120)
        assert [batch.num_rows for batch in read_batches(log, "news", 0, 120)] == [50, 50, 20]
        names = {path.name for path in home.iterdir()}
        files = {"events-1.db", "events-1.db-wal", "events-1.db-shm", "heads", "lock"}
        assert names == files | {"segments"}
        assert open_to_others(home) == {}
    (home / "heads").unlink()
    repair(home)
    assert open_to_others(home) == {}


def test_files_that_others_could_read_are_closed_to_them_on_open(tmp_path):
    """As earlier versions left them. The directory is not ours to close, if we did not make it."""
    home = tmp_path / "store"
    home.mkdir(mode=0o755)
    with EventLog(home) as log:
        fill(log, 10)
        shutil.copytree(home, tmp_path / "crashed")
    crashed = tmp_path / "crashed"
    for path in crashed.iterdir():
        path.chmod(0o644)
    with EventLog(crashed) as log:
        assert len(read_all(log)) == 10
        assert open_to_others(crashed) == {".": "0o755"}


@pytest.mark.parametrize("name", ["lock", "heads", "events-1.db", "events-1.db-wal"])
def test_a_link_in_the_place_of_a_file_is_refused(name, tmp_path):
    """It would lead the writer to somebody else's file, which stays as it is."""
    home = tmp_path / "store"
    with EventLog(home) as log:
        fill(log, 10)
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (home / name).unlink(missing_ok=True)
    (home / name).symlink_to(precious)
    with pytest.raises(StoreFailedError, match=f"a symbolic link stands for .*{name}: remove it"):
        EventLog(home)
    assert precious.read_bytes() == b"precious"


FULL = """
import os, sys
from rumormill.core.event import Event
from rumormill.log import EventLog, StoreError
for number in range(40):
    home = f"{sys.argv[1]}/{number}"
    if sys.argv[2] == "old":
        with EventLog(home) as log:
            log.append([Event("t", b"data", b"author", b"id", received=1.0)]).result()
    room = os.statvfs(sys.argv[1])
    ballast = os.open(f"{sys.argv[1]}/ballast", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(ballast, 0, room.f_bavail * room.f_frsize - number * 24_576)
    os.close(ballast)
    try:
        with EventLog(home) as log:
            print("opened")
    except StoreError as error:
        print(type(error).__name__)
    os.unlink(f"{sys.argv[1]}/ballast")
"""


@pytest.mark.parametrize("store", ["new", "old"])
def test_opening_on_a_full_disk_says_that_it_is_full(store, tmp_path):
    """However little room there is, and whichever file finds it out."""
    said = run_on_small_disk(FULL, tmp_path, "24m", store).split()
    assert len(said) == 40
    assert {*said} == {"DiskFullError", "opened"}


def test_a_restore_opens_no_file_to_others_on_the_way(umask, tmp_path, monkeypatch):
    """Also in a home into which others may look: who has a file open reads it for ever."""
    copy, home, seen = tmp_path / "copy", tmp_path / "store", {}
    with EventLog(tmp_path / "first") as log:
        fill(log, 500)
    backup(tmp_path / "first", copy)
    home.mkdir()
    home.chmod(0o755)
    connect = schema.connect_reader

    def watched(path):
        db = connect(path)
        db.set_progress_handler(lambda: seen.update(open_to_others(home)), 1)
        return db

    with monkeypatch.context() as patched:
        patched.setattr(schema, "connect_reader", watched)
        assert restore(copy, home).events == 500
    assert seen == {".": "0o755"} == open_to_others(home)


def test_an_export_is_its_owners_alone_and_follows_no_link(umask, tmp_path):
    """It has what the log has. Where it is written others may have put a link in its way."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / ".news.parquet.part").symlink_to(precious)
    (tmp_path / "news.parquet").symlink_to(precious)
    with EventLog(tmp_path / "store") as log, EventLog(tmp_path / "copy") as copy:
        fill(log, 120)
        assert export_parquet(log, tmp_path / "news.parquet") == 120
        assert import_parquet(copy, tmp_path / "news.parquet") == 120
    assert stat.S_IMODE((tmp_path / "news.parquet").lstat().st_mode) == 0o600
    assert not (tmp_path / "news.parquet").is_symlink()
    assert precious.read_bytes() == b"precious"
