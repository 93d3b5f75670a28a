"""`rumormill history verify` of a skip ring's topic, on the log of a home."""

import json
from pathlib import Path

import msgspec
import pytest

from processes import rumormill
from rumormill.cli import main
from rumormill.core.event import Event
from rumormill.log import EventLog
from rumormill.node.identity import NodeIdentity
from rumormill.overlay.patricia import PatriciaTrie
from rumormill.protocols.skipring.envelope import Author, Publication, named
from rumormill.wire.keys import PrivateKey


def keep(home: Path, publications: list[Publication], *more: Event) -> None:
    """Write a log that has these publications."""
    events = [each.to_event() for each in publications]
    rows = [
        Event(
            each.topic,
            each.data,
            each.author,
            each.id,
            created=each.created,
            proof=each.proof,
            received=1.0,
        )
        for each in events
    ]
    with EventLog(home) as log:
        log.append([*rows, *more]).result()


@pytest.fixture
def published() -> list[Publication]:
    """Three publications of one author."""
    author = Author(NodeIdentity(PrivateKey(b"ann".ljust(32))))
    return [author.compose("news", text, 1.7e9) for text in (b"one", b"two", b"three")]


def test_two_homes_with_the_same_history_have_the_same_root_hash(
    tmp_path: Path, published: list[Publication], capsys: pytest.CaptureFixture[str]
) -> None:
    """In whatever order it came, and whatever other protocols left in the topic."""
    stranger = Event("news", b"gossip", b"bob", b"12 bytes...", received=1.0)
    keep(tmp_path / "a", published)
    keep(tmp_path / "b", published[::-1], stranger)
    trie = PatriciaTrie()
    for publication in published:
        trie.insert(publication.id)
    root = trie.root_hash.hex()
    assert main(["history", "verify", "news", "--home", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out == f"3 publications, root hash {root}\n"
    assert main(["history", "verify", "news", "--home", str(tmp_path / "b"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "topic": "news",
        "publications": 3,
        "root_hash": root,
        "faults": [],
        "others": 1,
    }


def test_a_forgery_in_the_log_is_named(
    tmp_path: Path, published: list[Publication], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name fits its content, but nobody signed that."""
    forgery = named(msgspec.structs.replace(published[1], data=b"never said"))
    keep(tmp_path, [published[0], forgery])
    assert main(["history", "verify", "news", "--home", str(tmp_path)]) == 4
    out = capsys.readouterr().out
    assert out.startswith("1 publications, root hash ")
    assert "offset 1: not signed by its author" in out


def test_a_topic_of_neither_kind_is_refused(tmp_path: Path) -> None:
    """There is nothing to verify in what other protocols leave."""
    keep(tmp_path, [], Event("news", b"gossip", b"bob", b"12 bytes...", received=1.0))
    done = rumormill("history", "verify", "news", "--home", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no publications of a skip ring" in done.stderr
