"""`rumormill history --graph` and `history verify` on the log of a home."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from processes import rumormill
from rumormill.cli import main
from rumormill.core.event import Event, Note
from rumormill.log.event_log import EventLog
from rumormill.node.identity import NodeIdentity
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.codec import stored
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor, TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import (
    SignedEvent,
    publish_request,
    sign_event,
    sign_request,
)
from rumormill.protocols.pulsarcast.tree.known_topics import note_of
from rumormill.wire.keys import PrivateKey

ALICE = NodeIdentity(PrivateKey(bytes(32)))
BOB = NodeIdentity(PrivateKey(b"bob".ljust(32)))
TOPIC = cids.of(b"a topic")
NAME = cids.text(TOPIC)


def an_event(number: int, parent: SignedEvent | None) -> SignedEvent:
    """Event `number`, which follows `parent`."""
    link = None if parent is None else parent.cid
    created = dates.iso(number)
    payload = b"event\t%d" % number
    return sign_event(EventDescriptor(TOPIC, ALICE.peer, payload, created, ALICE.peer, link), ALICE)


def keep(home: Path, events: list[Event], *notes: Note) -> None:
    """Put events and notes into the log of a home."""
    with EventLog(home) as log:
        kept = [replace(event, received=1.0, protocol="pulsarcast") for event in events]
        log.append(kept, notes=notes).result()


@pytest.fixture
def events() -> list[SignedEvent]:
    """A root, two that follow it, and one that follows the second."""
    root = an_event(0, None)
    left, right = an_event(1, root), an_event(2, root)
    return [root, left, right, an_event(3, right)]


def test_the_graph_is_drawn(
    events: list[SignedEvent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newest first; each event with name, date, author and the beginning of its payload."""
    keep(tmp_path, [stored(event) for event in events])
    assert main(["history", NAME, "--graph", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" z")[0] for line in lines] == ["*", "*", "| *", "|/", "*"]
    assert cids.text(events[3].cid) in lines[0]
    assert "1970-01-01T00:00:00.003Z" in lines[0]
    assert lines[0].endswith("event·3")


def test_a_part_of_the_graph_is_drawn(
    events: list[SignedEvent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies before the part is not called missing."""
    keep(tmp_path, [stored(event) for event in events])
    assert main(["history", NAME, "--graph", "--offset", "-1", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1] == f"? {cids.text(events[2].cid)} before what is shown"


def test_a_whole_history_is_verified(
    events: list[SignedEvent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, the heads and the forks."""
    keep(tmp_path, [stored(event) for event in events])
    assert main(["history", "verify", NAME, "--home", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4 events, 2 heads, 1 forks\n")
    assert said.endswith("whole\n")
    assert main(["history", "verify", NAME, "--json", "--home", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["heads"] == [cids.text(events[1].cid), cids.text(events[3].cid)]
    assert report["whole"] is True
    assert report["chain"] is False
    assert report["forks"][0]["cid"] == cids.text(events[0].cid)


def test_what_is_missing_or_forged_is_data_loss(
    events: list[SignedEvent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4, and each finding with its name and reason."""
    forged = SignedEvent(events[1].event, events[0].publisher_signature)
    keep(tmp_path, [stored(event) for event in (events[0], forged, events[3])])
    assert main(["history", "verify", NAME, "--home", str(tmp_path)]) == 4
    said = capsys.readouterr().out
    assert f"missing {cids.text(events[2].cid)}, parent of {cids.text(events[3].cid)}" in said
    assert f"bad {cids.text(events[1].cid)}: bad-signature" in said
    assert said.endswith("not whole\n")
    assert main(["history", "verify", NAME, "--json", "--home", str(tmp_path)]) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["faults"] == [{"id": cids.text(events[1].cid), "reason": "bad-signature"}]
    assert report["gaps"][0]["needed_by"] == [cids.text(events[3].cid)]


def test_unsigned_events_are_said(
    events: list[SignedEvent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events of the original have no signatures; their names are checked all the same."""
    keep(tmp_path, [stored(SignedEvent(events[0].event))])
    assert main(["history", "verify", NAME, "--home", str(tmp_path)]) == 0
    assert "1 events are unsigned" in capsys.readouterr().out


def test_who_was_not_allowed_to_publish_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the topic's descriptor in the log: the publisher, and who may not even ask."""
    topic = TopicDescriptor(
        "news", ALICE.peer, dates.iso(0), allowed_publishers=(ALICE.peer,), request_to_publish=None
    )

    def event(author: NodeIdentity, publisher: NodeIdentity, number: int) -> SignedEvent:
        draft = EventDescriptor(topic.cid, author.peer, b"%d" % number, dates.iso(number))
        return publish_request(sign_request(draft, author), publisher, None)

    good, asked, forged = event(ALICE, ALICE, 1), event(BOB, ALICE, 2), event(BOB, BOB, 3)
    keep(tmp_path, [stored(each) for each in (good, asked, forged)], note_of(topic, 0.0))
    name = cids.text(topic.cid)
    assert main(["history", "verify", name, "--json", "--home", str(tmp_path)]) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["permissions"] == "checked"
    assert report["faults"] == [
        {"id": cids.text(asked.cid), "reason": "author-not-allowed"},
        {"id": cids.text(forged.cid), "reason": "publisher-not-allowed"},
    ]


def test_permissions_that_cannot_be_checked_are_said(
    events: list[SignedEvent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log has the events and not the topic: no fault, but not silence either."""
    keep(tmp_path, [stored(events[0])])
    assert main(["history", "verify", NAME, "--home", str(tmp_path)]) == 0
    assert "permissions were not checked" in capsys.readouterr().out


def test_mistakes(tmp_path: Path, events: list[SignedEvent]) -> None:
    """Another kind of topic, no events, a misspelt word, flags that do not go together."""
    keep(tmp_path, [stored(events[0])])
    home = ("--home", str(tmp_path))
    for arguments, code, words in (
        (("verify", "news"), 2, "not a Pulsarcast topic"),
        (("verify", cids.text(cids.of(b"x"))), 1, "no events"),
        (("verfy", NAME), 2, "did you mean verify?"),
        (("verify", NAME, "--graph"), 2, "history verify takes"),
        ((NAME, "--graph", "--json"), 2, "choose one of"),
    ):
        done = rumormill("history", *arguments, *home)
        assert (done.returncode, done.stdout) == (code, "")
        assert words in done.stderr
