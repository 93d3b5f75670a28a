"""Storage faults under a node: a damaged log stops the start, with one sentence that says where."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from live_nodes import run
from rumormill.log import CorruptLogError, StoreError
from rumormill.node.identity import KEY_FILE
from rumormill.node.node import Node

EVENTS = 200


def fill(home: Path, start: int) -> None:
    """Let a node publish, and close it."""

    async def publish() -> None:
        async with Node(home) as node:
            for number in range(start, start + EVENTS):
                await node.publish("news", f"payload {number:04} ".encode() * 20)

    run(publish)


def start(home: Path) -> None:
    """Start a node and close it again."""

    async def once() -> None:
        async with Node(home):
            pass

    run(once)


def database(home: Path) -> Path:
    """The file that holds the events."""
    (path,) = home.glob("events-*.db")
    return path


def flip_an_event(home: Path, _: Path) -> None:
    """One byte of one event."""
    content = bytearray(database(home).read_bytes())
    content[content.index(b"payload 0123 ")] ^= 1
    database(home).write_bytes(content)


def truncate(home: Path, _: Path) -> None:
    """The second half of the file is gone."""
    content = database(home).read_bytes()
    database(home).write_bytes(content[: len(content) // 2])


def restore_old_copy(home: Path, older: Path) -> None:
    """Somebody put back yesterday's database."""
    shutil.copy(database(older), database(home))


def delete(home: Path, _: Path) -> None:
    """The database is gone, the rest of the home is not."""
    database(home).unlink()


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (flip_an_event, "topic 'news' offsets 123 to 123: damaged"),
        (truncate, None),
        (restore_old_copy, "topic 'news' offsets 200 to 399: lost-tail"),
        (delete, None),
    ],
)
def test_a_damaged_log_stops_the_start_and_is_named(
    fault: Callable[[Path, Path], None], named: str | None, tmp_path: Path
) -> None:
    """Nothing is served or appended: starting raises an error that names what is damaged."""
    home, older = tmp_path / "home", tmp_path / "older"
    fill(home, 0)
    shutil.copytree(home, older)
    fill(home, EVENTS)
    fault(home, older)
    with pytest.raises(StoreError) as caught:
        start(home)
    assert isinstance(caught.value, CorruptLogError)
    assert caught.value.findings
    assert str(home) in str(caught.value)
    if named is not None:
        assert named in str(caught.value)


def test_a_sound_log_starts_again_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    """The counterpart: without a fault the same home starts, and offsets go on."""
    fill(tmp_path, 0)
    fill(tmp_path, EVENTS)

    async def read() -> list[int]:
        async with Node(tmp_path) as node:
            return [event.offset for event in await node.history("news")]

    assert run(read) == list(range(2 * EVENTS))


@pytest.mark.parametrize("umask", [0o022, 0o777])
def test_a_home_is_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    """The key is made before the log is, and with it the home."""
    home = tmp_path / "home"

    async def publish() -> dict[str, int]:
        async with Node(home) as node:
            await node.publish("news", b"for nobody else")
            return {path.name: path.stat().st_mode & 0o777 for path in home.rglob("*")}

    before = os.umask(umask)
    try:
        modes = run(publish)
    finally:
        os.umask(before)
    assert home.stat().st_mode & 0o777 == 0o700
    assert {KEY_FILE, "heads", "lock", "events-1.db", "events-1.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_subscribing_on_a_disk_that_fails_says_so(tmp_path: Path) -> None:
    """It is the log's error, as of everything else that the log cannot store."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            await node.publish("news", b"one")
            writer = node.log.writer()
            refuse = writer.exclusively(lambda: writer.db.execute("PRAGMA query_only = 1"))
            await asyncio.wrap_future(writer.run(refuse))
            with pytest.raises(StoreError):
                await node.subscribe("weather")

    run(story)
