"""What goes wrong with real nodes: one clear sentence, the right exit code, no traceback."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Terminal, rumormill
from rumormill import SyncNode

STRANGER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"


def fails(*arguments: str, code: int, says: str, **extra: str) -> None:
    """Run a command that must fail with one sentence."""
    done = rumormill(*arguments, **extra)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("rumormill")
    assert says in done.stderr


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A TCP port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


BAD_TICKETS = {
    "garbage": "garbage",
    "no peer": "/ip4/127.0.0.1/tcp/4001",
    "no port": f"/ip4/127.0.0.1/p2p/{STRANGER}",
    "a bad peer": "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW",
    "a bad host": f"/ip4/300.0.0.1/tcp/4001/p2p/{STRANGER}",
}


@pytest.mark.parametrize("verb", [("node",), ("sub", "t"), ("pub", "t", "x"), ("peers",)])
def test_what_is_no_ticket_is_refused_by_every_verb(verb: tuple[str, ...], home: Path) -> None:
    for ticket in BAD_TICKETS.values() if verb == ("node",) else ["garbage"]:
        fails(*verb, "--home", home, "--join", ticket, code=2, says="is not a ticket")
    assert not home.exists()


def test_a_ticket_of_nobody_says_who_cannot_be_reached(home: Path) -> None:
    """The address is right in form, but nobody listens there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ticket = f"/ip4/127.0.0.1/tcp/{unused.getsockname()[1]}/p2p/{STRANGER}"
        done = rumormill("pub", "t", "x", "--home", home, "--join", ticket)
    assert done.returncode == 1
    assert f"cannot reach {STRANGER}" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_ticket_with_another_peer_is_not_believed(home: Path) -> None:
    """Whoever answers at the address must be the peer that the ticket names."""
    with Terminal("sub", "t", "--home", home) as sub:
        address = sub.says("--join").split()[-1].rpartition("/")[0]
        done = rumormill("pub", "t", "x", "--home", f"{home}2", "--join", f"{address}/{STRANGER}")
        assert done.returncode == 1
        assert f"cannot reach {STRANGER}" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_taken_port(home: Path, taken_port: int) -> None:
    address = f"/ip4/127.0.0.1/tcp/{taken_port}"
    fails("node", "--home", home, "--listen", address, code=1, says="ddress already in use")
    fails("sub", "t", "--home", home, "--listen", address, code=1, says="ddress already in use")
    metrics = f"127.0.0.1:{taken_port}"
    done = rumormill("node", "--home", home, "--metrics", metrics)
    assert done.returncode == 1
    assert "rumormill: metrics: cannot listen" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[str]:
    """A directory in which nothing can be made, for root either."""
    if os.geteuid() == 0:
        yield "/sys"
        return
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    yield str(closed)
    closed.chmod(0o700)


@pytest.mark.parametrize("verb", [("node",), ("sub", "t")])
def test_a_read_only_home(verb: tuple[str, ...], read_only: str) -> None:
    done = rumormill(*verb, "--home", f"{read_only}/home", "--log-level", "error")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "permitted" in done.stderr or "denied" in done.stderr or "Read-only" in done.stderr


def test_a_full_disk_is_said_to_the_publisher(home: Path) -> None:
    """The log's own limit stands for the disk: SQLite reports both in the same way."""
    limit = f"store.max_database_bytes={40 * 8192}"
    with Terminal("node", "--home", home, "--set", limit) as node:
        node.prints()
        fails("pub", "t", "x" * 100_000, "--count", "5", "--home", home, "--json",
              code=1, says="no room left for the store")  # fmt: skip


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 5000, "\udcff"])
@pytest.mark.parametrize("verb", ["pub", "sub", "history"])
def test_a_bad_topic_name(verb: str, name: str, home: Path) -> None:
    tail = ("x",) if verb == "pub" else ()
    fails(verb, name, *tail, "--home", home, code=2, says="topic name")


def test_a_damaged_log_is_not_served(home: Path) -> None:
    """The daemon refuses to start; a reader gets exit code 4 and the range; doctor says so."""
    with Terminal("node", "--home", home) as node:
        node.prints()
        numbers = "".join(f"number {number}\n" for number in range(200))
        assert rumormill("pub", "t", "--home", home, stdin=numbers).returncode == 0
        assert node.stop() == 0
    (database,) = home.glob("events-*.db")
    data = bytearray(database.read_bytes())
    where = data.index(b"number 77")
    data[where] ^= 0xFF
    database.write_bytes(data)
    fails("node", "--home", home, code=4, says="is damaged: topic 't' offsets 77 to 77")
    done = rumormill("history", "t", "--home", home)
    assert done.returncode == 4
    assert done.stdout.splitlines() == [f"number {number}" for number in range(77)]
    assert "not served: topic 't' offsets 77 to 77" in done.stderr
    done = rumormill("doctor", "--home", home)
    assert done.returncode == 1
    assert "failure  log: topic 't' offsets 77 to 77" in done.stdout


def test_one_daemon_per_home(home: Path) -> None:
    """The second one says who holds the log."""
    with Terminal("node", "--home", home) as node:
        node.prints()
        says = f"already open for writing by process {node.process.pid}"
        fails("node", "--home", home, code=1, says=says)
        fails("pub", "t", "x", "--home", home, "--protocol", "floodsub", code=2, says="--protocol")


def test_a_dead_daemons_socket_is_ignored_and_replaced(home: Path) -> None:
    """Commands work as where no daemon runs; the next daemon cleans up by itself."""
    with Terminal("node", "--home", home) as node:
        node.prints()
        node.stop(signal.SIGKILL)
        assert rumormill("topics", "--home", home).returncode == 0
    fails("pub", "t", "x", "--home", home, code=1, says="nobody to publish to: no node runs in")
    done = rumormill("doctor", "--home", home)
    assert done.returncode == 1
    assert "died and left its socket" in done.stdout
    with Terminal("node", "--home", home) as node:
        node.prints()
        assert rumormill("pub", "t", "x", "--home", home).returncode == 0


def test_a_program_that_holds_the_home_and_lets_nobody_in_is_named(home: Path) -> None:
    """Every verb that needs the node says who has the home, and what to call there."""
    says = f"process {os.getpid()} has {home} open and serves no control socket; there, call"
    with SyncNode(home, control=False):
        for verb in (("pub", "t", "x"), ("peers",), ("ticket",), ("reload",), ("sync",)):
            fails(*verb, "--home", home, code=1, says=says)


def test_a_home_whose_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    long = str(tmp_path / ("x" * 120))
    done = rumormill("node", "--home", long, "--log-level", "error")
    assert done.returncode == 1
    assert "choose a home with a shorter path" in done.stderr
    assert done.stderr.count("\n") == 1


def test_publishing_to_nobody_says_what_to_do(home: Path) -> None:
    fails("pub", "t", "x", "--home", home, code=1, says="give --join TICKET")
    fails("peers", "--home", home, code=1, says="start `rumormill node`")
    fails("topics", "--home", home, code=1, says="`rumormill node` makes one")
    fails("history", "t", "--home", home, code=1, says="there is no rumormill store")
    fails("sub", "t", "--all", "--home", home, code=2, says="rumormill history")


def test_a_topic_of_which_the_log_has_nothing_is_named(home: Path) -> None:
    """On stderr, since an empty history is an answer; what was there and did not match is not."""
    with SyncNode(home) as node:
        node.publish("news", b"x")
    done = rumormill("history", "nesw", "--home", home, "--json")
    assert (done.returncode, done.stdout) == (0, "")
    assert "has nothing of nesw; `rumormill topics` lists what it has" in done.stderr
    for more in (("--where", "has key"), ("--offset", "1"), ("--since", "2100-01-01")):
        assert rumormill("history", "news", *more, "--home", home).stderr == ""


def test_waiting_for_a_subscriber_in_vain_is_a_timeout(home: Path) -> None:
    with Terminal("sub", "other", "--home", home) as sub:
        sub.says("listening")
        fails("pub", "t", "x", "--wait", "0.2", "--home", home, code=3, says="0 of 1 wanted")


def test_waiting_for_events_in_vain_is_a_timeout(home: Path) -> None:
    """Without a count, the time is simply over."""
    fails("sub", "t", "-q", "--count", "1", "--wait", "0.1", "--home", home,
          code=3, says="0 of 1 events came within 0.1 seconds")  # fmt: skip
    assert rumormill("sub", "t", "--wait", "0.1", "--home", home).returncode == 0


WRONG = {
    "no number": ("sub", "t", "--count", "many"),
    "no positive number": ("pub", "t", "x", "--count", "0"),
    "no time": ("sub", "t", "--since", "yesterday"),
    "two beginnings": ("sub", "t", "--all", "--offset", "3"),
    "two outputs": ("sub", "t", "--raw", "--json"),
    "no such field": ("sub", "t", "--format", "%z"),
    "no such escape": ("sub", "t", "--format", "\\q"),
    "two paces": ("pub", "t", "x", "--rate", "1", "--sleep", "1"),
    "a count of nothing": ("pub", "t", "--count", "3"),
    "no parameter": ("node", "--set", "DD=3"),
    "no node setting": ("node", "--set", "node.colour=red"),
    "no store setting": ("node", "--set", "store.colour=red"),
    "no value": ("node", "--set", "D"),
    "no protocol": ("node", "--protocol", "gosip"),
    "no durability": ("node", "--durability", "maybe"),
    "no address": ("node", "--listen", "localhost:4001"),
    "no endpoint": ("node", "--metrics", "9464"),
    "no level": ("node", "--log-level", "loud"),
    "no file": ("node", "--config", "missing.toml"),
    "no flag": ("node", "--frobnicate"),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_gives_one_sentence_and_exit_code_two(
    arguments: tuple[str, ...], home: Path
) -> None:
    """Nothing is started and nothing is made."""
    fails(*arguments, "--home", home, code=2, says="rumormill")
    assert not home.exists()
