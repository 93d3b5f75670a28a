"""`rumormill get`: an event by its CID alone, from nodes that are killed with -9."""

import json
from pathlib import Path

import pytest

from processes import Terminal, rumormill
from rumormill.protocols.pulsarcast.format import cid as cids

PULSAR = ("--protocol", "pulsarcast")
QUICK = ("--set", "kademlia.bootstrap_delay=0.05", "--set", "subscribe_retry_delay=0.1")
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
            done = rumormill("get", UNKNOWN, "--timeout", "0.1", "--home", homes / "c")
            assert (done.returncode, done.stdout) == (3, "")
            assert "not found within 0.1 seconds" in done.stderr


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
        done = rumormill("get", "news", "--home", homes / "b")
        assert done.returncode == 1
        assert "names no event" in done.stderr
        done = rumormill("get", UNKNOWN, "--home", homes / "b")
        assert done.returncode == 1
        assert "no peer is known that could be asked" in done.stderr
