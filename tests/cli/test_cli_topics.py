"""`rumormill topics create` and `topics show`, and publishing by request, from the command line."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from live_nodes import run, until
from processes import Terminal, rumormill
from rumormill.cli import main
from rumormill.cli.logs import _Lines
from rumormill.node.node import Node
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.wire.keys import PrivateKey

CAROL = str(PrivateKey(bytes(32)).peer_id)
UNKNOWN = cids.text(cids.of(b"nobody has this"))
PULSAR = ("--protocol", "pulsarcast")
EVIL = "evil\x1b[2J\nforged\t9 events\x9b1m"
QUICK = ("--set", "kademlia.bootstrap_delay=0.05", "--set", "subscribe_retry_delay=0.1")


@pytest.fixture
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where homes can be; the path is short, as a Unix socket's must be."""
    return tmp_path_factory.mktemp("h")


@pytest.fixture
def daemon(homes: Path) -> Iterator[Terminal]:
    """A node that runs in the home `a`."""
    with Terminal("node", "--home", str(homes / "a"), *PULSAR, *QUICK) as node:
        node.prints()
        yield node


def create(home: Path, *options: str) -> str:
    """Create a topic; return its CID."""
    done = rumormill("topics", "create", *options, "--home", str(home))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def shown(home: Path, topic: str, *options: str) -> dict[str, object]:
    """What is known of a topic, as JSON."""
    done = rumormill("topics", "show", topic, "--home", str(home), "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_topic_is_created_and_shown_without_a_node(homes: Path) -> None:
    """The home's identity is its author; what the home has kept is enough to show it."""
    home = homes / "a"
    first = create(home, "news", *PULSAR, "--allow", "author", "--allow", CAROL)
    second = create(
        home, "news", *PULSAR, "--allow", "anyone", "--no-request-to-publish",
        "--linking", "custom", "--sub-topic", f"old={first}", "--parent", first,
    )  # fmt: skip
    done = rumormill("topics", "show", second, "--home", str(home))
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert ["topic", second] in lines
    assert ["name", "news"] in lines
    assert ["linking", "custom"] in lines
    assert ["publisher", "anyone"] in lines
    assert ["requester", "nobody"] in lines
    assert ["sub-topic", "old", first, "news"] in lines
    versions = [line[1] for line in lines if line[0] == "version"]
    assert versions == [first, second]
    readable = shown(home, first)["readable"]
    assert isinstance(readable, dict)
    assert readable["metadata"]["allowedPublishers"] == [readable["author"], CAROL]
    assert readable["metadata"]["requestToPublish"] is True


def test_create_prints_json(homes: Path) -> None:
    """One object and nothing else."""
    done = rumormill("topics", "create", "news", "--home", str(homes / "a"), *PULSAR, "--json")
    found = json.loads(done.stdout)
    assert (found["name"], found["protocol"]) == ("news", "pulsarcast")
    assert found["topic"].startswith("zdpu")


def test_two_nodes_and_a_request_to_publish(homes: Path, daemon: Terminal) -> None:
    """Created at one, shown and published in at the other, verified with its permissions."""
    topic = create(homes / "a", "news", "--requester", CAROL)
    free = create(homes / "a", "free")
    b = str(homes / "b")
    ticket = daemon.prints()[0]
    with Terminal("node", "--home", b, *PULSAR, *QUICK, "--topic", free, "--join", ticket) as node:
        node.prints()
        assert shown(homes / "b", free)["cid"] == free
        done = rumormill("pub", free, "please", "--home", b, "--wait", "30")
        assert done.returncode == 0, done.stderr
        assert "at our request" in done.stderr
        done = rumormill("pub", free, "again", "--home", b, "--json")
        receipt = json.loads(done.stdout)
        assert (receipt["requested"], receipt["offset"]) == (True, -1)
        done = rumormill("pub", topic, "not me", "--home", b)
        assert (done.returncode, done.stdout) == (1, "")
        assert "not among the topic's allowed publishers" in done.stderr
        done = rumormill("sub", free, "--all", "--count", "2", "--home", str(homes / "a"))
        assert done.stdout == "please\nagain\n"
        done = rumormill("history", "verify", free, "--home", str(homes / "a"), "--json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["whole"], report["events"]) == (0, True, 2)
        assert report["permissions"] == "checked"
        done = rumormill("history", free, "--graph", "--home", str(homes / "a"))
        assert len(done.stdout.splitlines()) == 2
        done = rumormill("topics", "show", UNKNOWN, "--home", b)
        assert (done.returncode, done.stdout) == (1, "")
        assert "known neither here nor in the DHT" in done.stderr


def test_other_protocols_have_nothing_to_create(homes: Path) -> None:
    """Without a node there is nothing to do; with one, a topic is joined and options refused."""
    home = str(homes / "a")
    done = rumormill("topics", "create", "news", "--home", home)
    assert done.returncode == 2
    assert "topics of gossipsub need no creating" in done.stderr
    with Terminal("node", "--home", home) as node:
        node.prints()
        assert create(homes / "a", "news") == "news"
        done = rumormill("topics", "create", "news", "--allow", CAROL, "--home", home)
        assert (done.returncode, done.stdout) == (2, "")
        assert "topics of gossipsub have no options" in done.stderr
        done = rumormill("topics", "show", UNKNOWN, "--home", home)
        assert done.returncode == 1
        assert "has a name and no description" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create",), 2, "needs the name of the new topic"),
        (("show",), 2, "needs the CID of a topic"),
        (("show", "news"), 2, "'news' names no topic"),
        (("show", UNKNOWN), 1, "has not kept the topic"),
        (("show", UNKNOWN, "--allow", CAROL), 2, "--allow belongs to `topics create`"),
        (("list", "news"), 2, "did you mean show?"),
        (("crate", "news"), 2, "did you mean create"),
        (("create", "news", "--allow", "carol"), 2, "--allow: 'carol' is not a peer id"),
        (("create", "news", "--allow", "anyone", "--allow", CAROL), 2, "anyone stands alone"),
        (("create", "news", "--requester", "x"), 2, "--requester: 'x' is not a peer id"),
        (("create", "news", "--requester", CAROL, "--no-request-to-publish"), 2, "contradict"),
        (("create", "news", "--linking", "none"), 2, "--linking: 'none' is not one of last-seen"),
        (("create", "news", "--sub-topic", "x"), 2, "not of the form NAME=CID"),
        (("create", "news", "--sub-topic", "x=y", "--sub-topic", "x=z"), 2, "given twice"),
        (("create", "news", "--sub-topic", "x=y"), 1, "'y' names no topic"),
        (("create", "news", "--parent", "old"), 1, "'old' names no topic"),
        (("create", UNKNOWN), 1, "is a topic already"),
        (("create", "a\nb"), 2, "not a topic name"),
    ],
)
def test_mistakes_are_one_sentence(
    homes: Path,
    arguments: tuple[str, ...],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And nothing is printed to stdout."""
    try:
        returned = main(["topics", *arguments, "--home", str(homes / "a"), *PULSAR])
    except SystemExit as left:
        returned = int(left.code or 0)
    said = capsys.readouterr()
    assert (returned, said.out) == (code, ""), said.err
    assert words in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("protocol", ["gossipsub", "pulsarcast"])
def test_names_that_peers_have_chosen_command_no_terminal(homes: Path, protocol: str) -> None:
    """Nothing in them clears a screen, writes a title or begins a line that looks like ours."""
    home = str(homes / "a")

    async def story() -> list[str]:
        async with Node(home, protocol=protocol) as node, Node(None) as mallory:
            await mallory.connect(node.tickets[0])
            if protocol == "gossipsub":
                await mallory.subscribe(EVIL)
                await until(lambda: node.subscribers(EVIL), "the name is known")
                await node.create_topic(f"{EVIL}, too")
                await node.publish(f"{EVIL}, too", b"")
                asked = [("topics",), ("retention",), ("doctor",)]
            else:
                below = (await node.create_topic(EVIL)).name
                made = (await node.create_topic(EVIL, sub_topics={EVIL: below})).name
                asked = [("topics", "show", made), ("topics", "tree", made)]
            return [
                (await asyncio.to_thread(rumormill, *words, "--home", home)).stdout
                for words in asked
            ]

    said = run(story)
    told = "".join(said)
    assert "evil�[2J�forged" in told
    assert not [each for each in told if not each.isprintable() and each not in "\n\t"]
    assert not [line for line in told.split("\n") if line.startswith("forged")]


def test_such_names_begin_no_line_of_the_log_either() -> None:
    record = logging.LogRecord("rumormill.node", logging.INFO, "", 0, "joined topic", (), None)
    record.fields = {"topic": EVIL}
    said = _Lines(as_json=False).format(record)
    assert said.endswith("info: joined topic topic=evil�[2J�forged�9 events�1m")
    record.fields = {}
    record.exc_info = (ValueError, ValueError("wrong"), None)
    assert _Lines(as_json=False).format(record).endswith("info: joined topic\nValueError: wrong")
