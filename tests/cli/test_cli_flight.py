"""The Flight door from the command line: of a node, and of a bare store."""

import json
import signal
import time
from pathlib import Path

import pytest

from processes import PATIENCE, Terminal, rumormill
from rumormill.core.event import Event
from rumormill.daemon.flight_client import DoorClient
from rumormill.log import Durability, EventLog, StoreConfig


def test_a_node_serves_its_topics_to_whoever_has_the_token(home: Path) -> None:
    """The address is printed, the token is in the home; the door closes with the node."""
    with Terminal("node", "--home", home, "--flight", "127.0.0.1:0", "--json") as node:
        said = json.loads(node.prints()[0])
        assert rumormill("pub", "news", "hello", "--home", home).returncode == 0
        token = (home / "flight.token").read_text().strip()
        with DoorClient(said["flight"], token) as client:
            (line,) = client.topics()
            assert (line.name, line.first_offset, line.next_offset) == ("news", 0, 1)
            (batch,) = client.batches("news", 0, 1, ["value"])
            assert batch.column("value").to_pylist() == [b"hello"]
        assert (home / "flight.json").exists()
        node.process.send_signal(signal.SIGTERM)
        assert node.ends() == 0
    assert not (home / "flight.json").exists()


def test_ctrl_c_closes_every_door(home: Path) -> None:
    """While a command is inside; nothing of them is left in the home but the token."""
    place = ("--home", home)
    doors = ("--flight", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with Terminal("node", *place, *doors) as node:
        node.prints()
        with Terminal("sub", "news", *place) as sub:
            sub.says("listening")
            assert node.stop(signal.SIGINT) == 0
            assert sub.ends() == 1
        assert "stopped" in node.errors[-1]
    left = sorted(path.name for path in home.iterdir() if not path.name.startswith("events-"))
    assert left == ["flight.token", "heads", "identity.key", "lock"]


def test_a_store_is_served_beside_its_node(home: Path) -> None:
    """Read-only, in a process of its own; who wants to publish still finds the node."""
    with Terminal("node", "--home", home, "--flight", "127.0.0.1:0") as node:
        node.prints()
        found = (home / "flight.json").read_bytes()
        rumormill("pub", "news", "hello", "--home", home)
        with Terminal("serve-store", home, "--flight", "127.0.0.1:0", "--json") as server:
            said = json.loads(server.prints()[0])
            token = Path(said["token_file"]).read_text().strip()
            rumormill("pub", "news", "again", "--home", home)
            with DoorClient(said["flight"], token) as client:
                assert [line.next_offset for line in client.topics()] == [2]
            assert server.stop() == 0
        assert (home / "flight.json").read_bytes() == found


def test_a_served_store_is_sealed_before_anybody_reads_it(home: Path) -> None:
    """A whole range gets its segment while the door is open."""
    config = StoreConfig(durability=Durability.OS)
    with EventLog(home, config) as log:
        for first in range(0, config.segment_rows, 1024):
            numbers = range(first, first + 1024)
            log.append([Event("news", b"", b"", b"%d" % n, received=1.0) for n in numbers]).result()
    with Terminal("serve-store", home, "--flight", "127.0.0.1:0") as server:
        server.prints()
        end = time.monotonic() + PATIENCE
        while not list((home / "segments").glob("*/0")):
            assert time.monotonic() < end, "no segment was made"
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        assert server.ends() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["serve-store", "{}"], 1, "no rumormill store in"),
        (["serve-store", "{}", "--flight", "nonsense"], 1, "no rumormill store in"),
        (["serve-store", "{}", "--flight-cert", "a"], 2, "TLS needs both"),
        (["node", "--home", "{}", "--flight", "nonsense"], 2, "is not HOST:PORT"),
        (["node", "--home", "{}", "--flight-key", "a"], 2, "TLS needs both"),
    ],
)
def test_what_cannot_be_served(home: Path, arguments: list[str], code: int, sentence: str) -> None:
    """One sentence, and the usual exit codes."""
    done = rumormill(*[each.format(home) for each in arguments])
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
