"""kill -9 of live nodes: a publisher, a relay and a subscriber, at random moments.

What a node has said to its application is in its log afterwards: every receipt, every event that
was handed to a subscriber. Offsets are dense, no event is there twice, no row is there in part.

RUMORMILL_CHAOS_ROUNDS sets the rounds of the long test (500 by default).
"""

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_node import REPEATS

from processes import Program
from rumormill.log import EventLog
from rumormill.node.identity import load_or_create_key

SCRIPT = Path(__file__).with_name("chaos_node.py")
ROLES = ("publisher", "relay", "subscriber")


class Child(Program):
    """A node in a process of its own."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__([sys.executable, SCRIPT, *arguments], stdin=subprocess.PIPE, stderr=None)

    @property
    def claims(self) -> list[str]:
        """What it has said of events, behind `opening` and `ready`."""
        return self.output[2:]


class Trio:
    """A publisher, a relay and a subscriber, each with a home that outlives its processes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.claims: dict[str, list[str]] = {role: [] for role in ROLES}
        self.running: dict[str, Child] = {}
        self._lives = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        relay = load_or_create_key(folder / "relay" / "identity.key").peer_id
        self._ticket = f"/ip4/127.0.0.1/tcp/{self._port}/p2p/{relay}"

    def start(self, role: str) -> None:
        """Start a process on the role's home."""
        self._lives += 1
        arguments = [role, str(self.folder / role), str(self._port), f"life{self._lives}"]
        if role != "relay":
            arguments.append(self._ticket)
        self.running[role] = Child(arguments)

    def kill_one(self) -> None:
        """Kill one of the three: while it opens its log, or after it has said a few things."""
        rng = self.rng
        victim = rng.choice(ROLES)
        child = self.running[victim]
        # One line: it is opening. Two: it listens. More: it is at work.
        child.prints(rng.choice([1, 2, 3, 3 + rng.randrange(30), 3 + rng.randrange(150)]))
        child.kill()
        del self.running[victim]
        self.claims[victim] += child.claims
        check_log(self.folder / victim, self.claims[victim])
        self.start(victim)

    def end(self) -> None:
        """Let all three end in order, and check each log a last time."""
        for child in self.running.values():
            child.prints(3)
        for role in ("publisher", "subscriber", "relay"):
            child = self.running[role]
            assert child.close() == 0
            del self.running[role]
            self.claims[role] += child.claims
            check_log(self.folder / role, self.claims[role])


def check_log(home: Path, claims: list[str]) -> None:
    """Reopen a log as its node left it, and hold it against what the node had said."""
    with EventLog(home) as log:
        stored: dict[tuple[str, int], tuple[str, str]] = {}
        names: dict[str, None] = {}
        for info in log.topics():
            events = [event for chunk in log.chunks(info.name) for event in chunk]
            assert [event.offset for event in events] == list(range(info.next_offset))
            for event in events:
                name = event.data[: len(event.data) // REPEATS].decode()
                assert event.data == name.encode() * REPEATS, "a row is there in part"
                assert name not in names, "an event is there twice"
                names[name] = None
                stored[info.name, event.offset] = event.id.hex(), name
        assert len(dict.fromkeys(id_ for id_, _ in stored.values())) == len(stored)
        for claim in claims:
            topic, offset, id_, name = claim.split()
            assert stored.get((topic, int(offset))) == (id_, name), f"{claim} is not in the log"
        assert log.verify().ok


@contextlib.contextmanager
def trio(folder: Path, seed: int) -> Iterator[Trio]:
    """Three running nodes; none is left behind, whatever happens."""
    three = Trio(folder, seed)
    try:
        for role in ("relay", "subscriber", "publisher"):
            three.start(role)
        yield three
    finally:
        for child in three.running.values():
            child.kill()


def chaos(folder: Path, rounds: int, seed: int) -> int:
    """Kill and restart so many times; return how many claims were held against the logs."""
    with trio(folder, seed) as three:
        for _ in range(rounds):
            three.kill_one()
        three.end()
        assert all(three.claims.values()), "one of the three had no part in it"
        return sum(map(len, three.claims.values()))


def test_what_a_node_has_said_survives_kill_9(tmp_path: Path) -> None:
    """Forty kills of a publisher, a relay and a subscriber, each on one home all the time."""
    assert chaos(tmp_path, rounds=40, seed=1) > 1000


@pytest.mark.slow
def test_what_a_node_has_said_survives_many_kills(tmp_path: Path) -> None:
    """The long mode: new homes every fifty kills, so that young logs are killed too."""
    rounds = int(os.environ.get("RUMORMILL_CHAOS_ROUNDS", "500"))
    for seed in range(max(1, rounds // 50)):
        assert chaos(tmp_path / f"{seed}", rounds=min(rounds, 50), seed=seed) > 1000
