"""`rumormill get`: an event by its CID alone, from nodes that are killed with -9."""

import contextlib
import json
import time
from pathlib import Path

import pytest

from processes import PATIENCE, Terminal, rumormill
from rumormill.log.event_log import EventLog
from rumormill.log.records import read_records
from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast.format import cid as cids

PULSAR = ("--protocol", "pulsarcast")
QUICK = (
    "--set", "kademlia.bootstrap_delay=0.05",
    "--set", "kademlia.upkeep_interval=0.5",
    "--set", "subscribe_retry_delay=0.1",
)  # fmt: skip
UNKNOWN = cids.text(cids.of(b"nobody has this"))


@pytest.fixture
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where homes can be; the path is short, as a Unix socket's must be."""
    return tmp_path_factory.mktemp("h")


def node(home: Path, *options: str) -> Terminal:
    """A node that runs in a home."""
    started = Terminal("node", "--home", home, *PULSAR, *QUICK, *options)
    started.prints()
    return started


def test_an_event_is_had_after_its_author_was_killed(homes: Path) -> None:
    """By a node that follows nothing, and by a command that joins one, with its CID alone."""
    with node(homes / "a") as author:
        ticket = author.prints()[0]
        with node(homes / "b", "--join", ticket) as holder, node(homes / "c", "--join", ticket):
            done = rumormill("topics", "create", "news", "--home", homes / "a")
            topic = done.stdout.strip()
            done = rumormill("pub", topic, "still here", "--json", "--home", homes / "a")
            event = json.loads(done.stdout)["id"]
            done = rumormill("get", event, "--home", homes / "c")
            assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr
            author.kill()
            name = cids.text(bytes.fromhex(event))
            done = rumormill("get", name, "--json", "--home", homes / "c")
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert (found["data"], found["id"], found["topic"]) == ("still here", event, topic)
            ticket = holder.prints()[0]
            away = ("--home", homes / "d", *PULSAR, *QUICK, "--join", ticket)
            done = rumormill("get", name, "--raw", *away)
            assert (done.returncode, done.stdout) == (0, "still here"), done.stderr
            done = rumormill("get", UNKNOWN, *away)
            assert (done.returncode, done.stdout) == (1, "")
            assert "whoever could be asked has not got it" in done.stderr
            done = rumormill("get", UNKNOWN, "--timeout", "0.001", "--home", homes / "c")
            assert (done.returncode, done.stdout) == (3, "")
            assert "not found within 0.001 seconds" in done.stderr


def test_what_cannot_be_had_is_said_in_one_sentence(homes: Path) -> None:
    """No node, no CID, another protocol."""
    home = homes / "a"
    done = rumormill("get", UNKNOWN, "--home", home, *PULSAR)
    assert done.returncode == 1
    assert "nobody to ask" in done.stderr
    with Terminal("node", "--home", home) as gossip:
        gossip.prints()
        done = rumormill("get", UNKNOWN, "--home", home)
        assert done.returncode == 1
        assert "an event of gossipsub cannot be had by its name alone" in done.stderr
    with node(homes / "b"):
        done = rumormill("history", UNKNOWN, "--most", "5", "--home", homes / "b")
        assert done.returncode == 2
        assert "--from and --most belong to --complete" in done.stderr
        done = rumormill("get", "news", "--home", homes / "b")
        assert done.returncode == 1
        assert "names no event" in done.stderr
        done = rumormill("get", UNKNOWN, "--home", homes / "b")
        assert done.returncode == 1
        assert "no peer is known that could be asked" in done.stderr


def test_an_event_outlives_a_kill_of_all_holders(homes: Path) -> None:
    """Author and holders are killed with -9; the holders come back, and have it on disk."""
    names = ("b", "c")
    with contextlib.ExitStack() as nodes:
        author = nodes.enter_context(node(homes / "a"))
        ticket = author.prints()[0]
        started = [nodes.enter_context(node(homes / name, "--join", ticket)) for name in names]
        done = rumormill("topics", "create", "news", "--home", homes / "a")
        topic = done.stdout.strip()
        done = rumormill(
            "pub", topic, "--json", "--home", homes / "a", stdin="first\nsecond\non disk\n"
        )
        events = [json.loads(line)["id"] for line in done.stdout.splitlines()]
        event = events[-1]
        for cid in (*map(bytes.fromhex, events), cids.parse(topic)):
            wait_until_kept(homes / "b", cid)
        for each in (author, *started):
            each.kill()
        first = nodes.enter_context(node(homes / "b"))
        ticket = first.prints()[0]
        away = ("--home", homes / "e", *PULSAR, *QUICK, "--join", ticket)
        done = rumormill("get", event, *away)
        assert (done.returncode, done.stdout) == (0, "on disk\n"), done.stderr
        done = rumormill("topics", "show", topic, *away)
        assert done.returncode == 0, done.stderr
        nodes.enter_context(node(homes / "f", "--join", ticket))
        walk = ("history", topic, "--home", homes / "f", "--complete", "--from", event)
        done = rumormill(*walk, "--most", "2")
        assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", "on disk", "second"])
        assert "there are more than were asked for" in done.stderr
        assert f"missing\t{cids.text(bytes.fromhex(events[0]))}" in done.stderr
        done = rumormill(*walk)
        lines = sorted(done.stdout.splitlines())
        assert (done.returncode, lines) == (0, ["first", "on disk", "second"])
        assert "who knows the newest events could not be asked" in done.stderr


def wait_until_kept(home: Path, cid: bytes) -> None:
    """Wait until a node that runs has a record on its disk."""
    give_up = time.monotonic() + PATIENCE
    while True:
        with EventLog(home, read_only=True) as log:
            records, _ = read_records(log, b"", 1000, 1 << 30)
        if content_key(cid) in [record.key for record in records]:
            return
        assert time.monotonic() < give_up, "it was never kept"
        time.sleep(0.05)
