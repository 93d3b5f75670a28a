"""No file descriptor left: what needs none goes on, the rest says so, and it all comes back."""

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from live_nodes import pair, run, take, until
from processes import SOURCES, environment
from rumormill.core.errors import LocalError
from rumormill.log import EventLog, compact, repair
from rumormill.log.errors import NoDescriptorsError
from rumormill.node.node import Node
from rumormill.wire.keys import PrivateKey
from store_samples import damage, fill


@contextlib.contextmanager
def no_descriptors(spare: int = 0) -> Iterator[None]:
    """What is open stays open, and nothing more can be opened than so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    found = []
    for number in range(256):  # a folder cannot be listed without a descriptor
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(folder))]


def test_an_honest_pair_goes_on_and_reading_says_what_to_do(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair(home=tmp_path) as (alice, bob):
            events = await bob.subscribe("news")
            await alice.publish("news", b"before")
            assert await take(events, 1) == [b"before"]
            # The one connection that was open for reading is in use.
            with alice.log.snapshot(), no_descriptors():
                for number in range(300):
                    await alice.publish("news", b"%d" % number)
                await take(events, 300)
                with pytest.raises(NoDescriptorsError, match="ulimit -n"):
                    await alice.history("news")
                nobody = PrivateKey(bytes(32)).peer_id
                with pytest.raises(LocalError, match="Too many open files"):
                    await alice.connect(f"/ip4/127.0.0.1/tcp/9/p2p/{nobody}")
            assert len(await alice.history("news")) == 301
            await alice.publish("news", b"after")
            assert await take(events, 1) == [b"after"]

    run(story)


def test_a_log_that_is_to_be_compacted_says_what_to_do(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        fill(log, 10)
        with no_descriptors(), pytest.raises(NoDescriptorsError, match="ulimit -n"):
            compact(log, old=True)
        compact(log, old=True)


PARQUET = """
import sys
from test_node_descriptors import no_descriptors
from rumormill.core.errors import RumormillError
from rumormill.log import EventLog, export_parquet, import_parquet
from store_samples import fill
home, file = sys.argv[1:]
with EventLog(home) as log, EventLog(home + "-copy") as copy:
    fill(log, 10)
    for spare in (0, 1):
        with no_descriptors(spare):
            try:
                export_parquet(log, file)
            except RumormillError as error:
                print(type(error).__name__, error)
    events = export_parquet(log, file)
    with no_descriptors():
        try:
            import_parquet(copy, file)
        except RumormillError as error:
            print(type(error).__name__, error)
    assert import_parquet(copy, file) == events
"""


def test_an_export_says_what_to_do_also_where_nothing_of_it_was_loaded(tmp_path: Path) -> None:
    """Its libraries are files as well: a process of its own, which has not opened them."""
    command = [sys.executable, "-c", PARQUET, str(tmp_path / "home"), str(tmp_path / "file")]
    here = Path(__file__).parent
    env = environment(PYTHONPATH=os.pathsep.join(map(str, (SOURCES, here.parent, here))))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) >= 2
    assert all(line.startswith("NoDescriptorsError") and "ulimit -n" in line for line in said)


def test_whoever_calls_meanwhile_waits_and_is_let_in(home: Path) -> None:
    """Peers, commands and Prometheus; each failure is counted, and none is reported by asyncio."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with Node(home) as node, node.serve(control=True, metrics="127.0.0.1:0") as doors:
            assert doors.metrics is not None
            callers = {
                socket.socket(): ("127.0.0.1", int(node.tickets[0].split("/")[4])),
                socket.socket(): ("127.0.0.1", int(doors.metrics.rpartition(":")[2])),
                socket.socket(socket.AF_UNIX): str(doors.control),
            }

            def refused() -> dict[str, float]:
                found = node.metrics()
                return found["rumormill_doors_refused"] | found["rumormill_connections_refused"]

            with contextlib.ExitStack() as stack:
                for caller in callers:
                    stack.enter_context(caller).setblocking(False)
                with no_descriptors():
                    for caller, address in callers.items():
                        await loop.sock_connect(caller, address)
                    await until(lambda: len(refused()) == 3, "all three were counted")
                assert refused() == {
                    "no-descriptors": 1,
                    "control-no-descriptors": 1,
                    "metrics-no-descriptors": 1,
                }
                _, page, _ = callers
                await loop.sock_sendall(page, b"GET /metrics HTTP/1.1\r\n\r\n")
                assert (await loop.sock_recv(page, 15)).startswith(b"HTTP/1.1 200")
                assert b'{reason="metrics-no-descriptors"} 1' in await _rest(loop, page)

    run(story)


async def _rest(loop: asyncio.AbstractEventLoop, caller: socket.socket) -> bytes:
    found = b""
    while piece := await loop.sock_recv(caller, 65536):
        found += piece
    return found


def test_a_log_that_cannot_be_opened_says_so_and_is_whole(home: Path) -> None:
    with EventLog(home):
        pass
    for reading in (False, True):
        for spare in range(12):
            with no_descriptors(spare):
                try:
                    with EventLog(home, read_only=reading):
                        assert spare > 2, "it was opened out of nothing"
                except NoDescriptorsError:
                    assert open_files(home) == []  # also while somebody looks at what went wrong
    with EventLog(home) as log:
        assert not log.verify().findings


def test_a_repair_without_descriptors_gives_nothing_up(home: Path, tmp_path: Path) -> None:
    """What cannot be opened for want of one is not damaged: it is as it was, and only what is
    damaged is lost in the end."""
    with EventLog(home) as log:
        fill(log, 100)
    damage(home, 20)
    for spare in range(12):
        copy = tmp_path / f"{spare}"
        shutil.copytree(home, copy)
        with no_descriptors(spare):
            try:
                repair(copy)
                assert spare > 2, "it was repaired out of nothing"
            except NoDescriptorsError:
                assert open_files(copy) == []  # also while somebody looks at what went wrong
        repair(copy)
        with EventLog(copy) as log:
            assert log.losses("news") == [(20, 21)]
