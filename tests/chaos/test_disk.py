"""Disks that fail and power that is cut: what was acknowledged is there, and a sound log opens.

A run has several lives of one log. In each, from a seed, flushes or writes of some file fail from
some moment on, the process is killed before one of its operations or ends by itself, and after it
the power may be cut, with luck or without. The checker knows nothing but receipts and what the next
life reads. A failing run names its seed; `RUMORMILL_DISK_SEED=N` repeats it alone.
"""

import contextlib
import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from disk import COMPILER, KILL, NEEDS_COMPILER, BestLuck, Disk, Rule

from processes import RUMORMILL, Program, rumormill
from rumormill import SyncNode
from rumormill.log import EventLog, StoreError

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NEEDS_COMPILER)

STORE = Path(__file__).with_name("disk_store.py")
FOLD = Path(__file__).with_name("disk_fold.py")
TROUBLE = re.compile(r"the heads file (cannot be written, next try in \d+ s: \[Errno \d+\])")
FAILED = "nothing more is stored: the store "
DATABASE, WAL, HEADS = "*.db", "*-wal", "*/heads*"


class Store:
    """Lives of one log on one disk, and what its receipts promise."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.disk = Disk(folder)
        self.seed = seed
        self.kept: dict[str, tuple[str, int]] = {}
        self.lives = 0
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.trouble: list[str] = []
        """What the log of the last life complained about."""

    def live(self, appends: int, end: str, *rules: Rule) -> list[str]:
        """One life; what it said is checked and returned."""
        self.disk.rules(*rules)
        self.lives += 1
        word = f"life{self.lives}"
        self.story.append(f"{word}: {appends} appends, {end}, {[str(rule) for rule in rules]}")
        command = [sys.executable, STORE, self.disk.root / "home", word, str(self.seed)]
        with Program([*command, str(appends), end], env=self.disk.environment()) as program:
            program.ends()
        self.check(program.output, program.errors)
        return program.output

    def check(self, said: list[str], errors: list[str]) -> None:
        """Hold what a life said against the receipts of those before it."""
        found = [TROUBLE.match(line) for line in errors if not line.startswith(FAILED)]
        assert all(found), f"{errors}\n{self}"
        self.trouble = [each[1] for each in found if each]
        has: dict[str, tuple[str, int]] = {}
        for line in said:
            fact, _, text = line.partition(" ")
            assert fact != "refused", f"{line}\n{self}"
            if fact in {"has", "kept"}:
                topic, offset, event_id = text.split(" ")
                (has if fact == "has" else self.kept)[event_id] = (topic, int(offset))
            if fact == "ready":
                lost = [name for name, at in self.kept.items() if has.get(name) != at]
                assert not lost, f"lost {len(lost)} of {len(self.kept)}: {lost[:5]}\n{self}"
            self.counts[fact] += 1

    def cut_power(self, luck: random.Random | None = None) -> None:
        """Cut the power; the next life finds what is on the disk."""
        self.story.append(f"power cut {'with' if luck else 'without'} luck")
        self.counts["cuts"] += 1
        self.disk.cut_power(luck)

    def __repr__(self) -> str:
        return f"RUMORMILL_DISK_SEED={self.seed}\n" + "\n".join(self.story)


def flush_fails(pattern: str, first: int = 1, last: int = 0) -> Rule:
    return Rule("sync", errno.EIO, pattern, first, last)


def test_what_is_acknowledged_after_a_failed_flush_survives(tmp_path: Path) -> None:
    """The log recovers what the page cache still shows; it must be on the disk before others
    follow it there."""
    store = Store(tmp_path)
    store.live(5, "die")
    store.live(5, "die", flush_fails(WAL))
    store.live(4, "die")
    store.cut_power()
    store.live(1, "close")


def test_a_log_that_cannot_have_a_write_ahead_log_is_not_opened(tmp_path: Path) -> None:
    """SQLite goes on without one when a flush fails there; its other journal promises less."""
    for number in (1, 2):
        store = Store(tmp_path / str(number))
        store.live(3, "die", flush_fails(DATABASE, number, number))
        store.cut_power()
        store.live(3, "close")
        assert store.kept


def test_power_cuts_soon_after_each_other_leave_a_sound_log(tmp_path: Path) -> None:
    """The heads file is behind after a cut; the next open brings it up, so that it never is by
    more than it may."""
    store = Store(tmp_path)
    for _ in range(6):
        store.live(3, "die")
        store.cut_power()
    store.live(0, "close")


@pytest.mark.parametrize(
    ("operation", "error"), [("write", errno.ENOSPC), ("write", errno.EIO), ("sync", errno.EIO)]
)
def test_heads_that_cannot_be_written_fail_no_append(
    operation: str, error: int, tmp_path: Path
) -> None:
    """After the commit an event is safe. The trouble is counted and told, without haste; neither a
    kill nor a power cut in the middle of it makes the log refuse itself afterwards."""
    store = Store(tmp_path)
    store.live(1, "close")
    trouble = Rule(operation, error, HEADS, first=3)  # the log is opened with heads that work
    said = store.live(40, "die", trouble)
    assert len([line for line in said if line.startswith("kept")]) >= 40
    said_so = [f"cannot be written, next try in {s} s: [Errno {error}]" for s in (1, 2, 4, 8)]
    assert store.trouble[0] == said_so[0]
    assert set(store.trouble) <= set(said_so), "later ones, where forty events take so long"
    counts = msgspec.json.decode(next(line[7:] for line in said if line.startswith("counts")))
    assert counts["failed"] == 0
    assert counts["heads_failed"] == len(store.trouble) > 0
    store.live(0, "die")
    store.live(40, "die", trouble)
    store.cut_power()
    store.live(0, "close")


READER = """
import sys
from rumormill.log import EventLog
with EventLog(sys.argv[1], read_only=True) as log:
    log.topics()
    print("reads", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("end", "readers"), [("close", 0), ("close", 1), ("die", 1)])
def test_what_half_a_checkpoint_folded_is_not_lost_by_a_failed_flush(
    end: str, readers: int, tmp_path: Path
) -> None:
    """A reader stopped it, so it was not flushed; SQLite counts it as folded all the same, and
    would delete the write-ahead log after folding the rest. It remembers that for as long as
    anybody reads, also after the writer has died."""
    store = Store(tmp_path)
    store.live(1, "die")
    home = store.disk.root / "home"
    with contextlib.ExitStack() as beside:
        for _ in range(readers):
            command = [sys.executable, "-c", READER, home]
            reader = beside.enter_context(Program(command, stdin=subprocess.PIPE))
            assert reader.hears() == "reads"
        command = [sys.executable, FOLD, home, store.disk.faults, end]
        with Program(command, env=store.disk.environment()) as program:
            program.ends()
        assert program.output == ["100"], program.errors
        if not readers:
            store.cut_power(BestLuck())
        store.live(40, "die")
    store.cut_power()
    said = store.live(0, "close")
    found = [line.split(" ")[3] for line in said if line.startswith("has news")]
    assert [name for name in found if name.isdigit()] == [str(number) for number in range(100)]


REPAIR = "import sys; from rumormill.log import repair; repair(sys.argv[1])"


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_a_repair_gives_nothing_up_because_the_disk_fails(error: int, tmp_path: Path) -> None:
    """Whichever operation fails, once: what cannot be opened now is not damaged."""
    store = Store(tmp_path)
    store.live(20, "die")
    command = [sys.executable, "-c", REPAIR, store.disk.root / "home"]
    for number in range(1, 9):
        store.disk.rules(Rule("any", error, "*", number, number))
        with Program(command, env=store.disk.environment()) as program:
            program.ends()
    assert "ready" in store.live(0, "close"), "all is there, and can be read"


IDENTITY = """
import sys
from pathlib import Path
from rumormill.node.identity import identity_of
print(identity_of(Path(sys.argv[1])).peer.hex())
"""


def test_an_identity_that_was_told_is_there_after_a_power_cut(tmp_path: Path) -> None:
    """The file, and the new directories that it is in."""
    disk = Disk(tmp_path)
    said = []
    for _ in range(2):
        command = [sys.executable, "-c", IDENTITY, disk.root / "new" / "home"]
        with Program(command, env=disk.environment()) as program:
            assert program.ends() == 0
        said += program.output
        disk.cut_power()
    assert len({*said}) == 1


def test_an_import_that_is_killed_is_taken_up_again(tmp_path: Path) -> None:
    """Wherever it dies, and whatever the power cut leaves: in the end all is there, once."""
    written = tmp_path / "written"
    with SyncNode(written) as node:
        for topic in ("news", "weather"):
            node.publish_many(topic, [b"here it rains"] * 1250)
    file = tmp_path / "events.parquet"
    assert rumormill("export", file, "--home", written).returncode == 0
    disk = Disk(tmp_path)
    home = disk.root / "home"
    command = [*RUMORMILL, "import", file, "--home", home, "--json"]
    taken, moment = [0], 200
    while True:
        disk.rules(Rule("write", KILL, WAL, moment, moment))
        with Program(command, env=disk.environment()) as program:
            if program.ends() == 0:
                break
        assert program.errors == []
        moment += 200
        disk.notice()
        disk.cut_power(random.Random(moment))
        with contextlib.suppress(StoreError), EventLog(home, read_only=True) as log:
            taken.append(sum(each.next_offset for each in log.topics()))
    assert taken == sorted(taken)
    assert {1000, 2000} & {*taken}, f"it died in the midst of it too: {taken}"
    assert json.loads(program.output[0])["events"] == 2500 - taken[-1]
    with EventLog(written) as log, EventLog(home) as imported:
        assert not imported.verify().findings
        for topic in log.topics():
            assert imported.read(topic.name, 0, 2000) == log.read(topic.name, 0, 2000)


# Random schedules.


def fault(rng: random.Random) -> Rule:
    """Something that goes wrong in a life."""
    pattern = rng.choice((WAL, DATABASE, HEADS, "*"))
    first = rng.randint(1, 40)
    last = rng.choice((0, first, first + 5))
    kind = rng.random()
    if kind < 0.5:
        return flush_fails(pattern, first, last)
    operation = "write" if kind < 0.85 else rng.choice(("open", "name", "cut"))
    return Rule(operation, rng.choice((errno.ENOSPC, errno.EIO)), pattern, first, last)


def lives(folder: Path, seed: int) -> Counter[str]:
    """A run from a seed; what happened in it, counted."""
    rng = random.Random(seed)
    store = Store(folder, seed)
    for _ in range(rng.randint(3, 6)):
        rules = [fault(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        if rng.random() < 0.5:
            moment = rng.randint(1, rng.choice((30, 300)))
            rules.append(Rule("any", KILL, "*", moment, moment))
        store.live(rng.randint(0, 40), rng.choice(("die", "close")), *rules)
        if rng.random() < 0.6:
            store.cut_power(rng.choice((None, random.Random(rng.random()), BestLuck())))
    store.live(1, "close")
    store.cut_power()
    assert "ready" in store.live(0, "close"), store
    store.counts["runs"] += 1
    return store.counts


def seeds(count: int) -> range:
    chosen = os.environ.get("RUMORMILL_DISK_SEED")
    return range(count) if chosen is None else range(int(chosen), int(chosen) + 1)


def test_random_faults_and_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """A few runs."""
    for seed in seeds(3):
        lives(tmp_path / str(seed), seed)


@pytest.mark.slow
def test_many_random_faults_and_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """`RUMORMILL_DISK_RUNS` of them."""
    total: Counter[str] = Counter()
    for seed in seeds(int(os.environ.get("RUMORMILL_DISK_RUNS", "300"))):
        total += lives(tmp_path / "run", seed)
        shutil.rmtree(tmp_path / "run")
    assert total["cuts"] > total["runs"]
    assert total["kept"] > 10 * total["runs"]
