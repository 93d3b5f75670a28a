"""Publishing with notes: kept together with the events, and told to peers only afterwards."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run
from rumormill.core.effects import Append
from rumormill.core.errors import RumormillError
from rumormill.core.event import Event, Note
from rumormill.log import inserts
from rumormill.log.errors import DiskFullError
from rumormill.log.event_log import EventLog
from rumormill.log.model import Retention, StoreConfig
from rumormill.log.notes import LATEST, is_own, note_keys, read_note
from rumormill.members.book import MEMBERS_NOTE
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node


def test_noted_events_are_kept_in_order_and_reach_the_peers(tmp_path: Path) -> None:
    """In the log with their notes, then at a subscriber."""

    async def main() -> None:
        async with Node(tmp_path / "a") as node, Node(None) as peer:
            await peer.connect(node.tickets[0])
            async with await peer.subscribe("news") as events:
                await node.wait_until_ready("news")
                rows = [("news", b"%d" % n, Note("k", b"%d" % n)) for n in range(20)]
                receipts = await node.publish_noted(rows)
                assert [each.offset for each in receipts] == list(range(20))
                assert read_note(node.log, "k") == b"19"
                async with asyncio.timeout(30):
                    assert [(await anext(events)).data for _ in range(20)] == [
                        data for _, data, _ in rows
                    ]

    run(main)


def test_peers_never_hear_of_events_that_could_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: neither event nor note is there, and nothing was sent."""

    async def main() -> None:
        async with Node(tmp_path / "a") as node, Node(None) as peer:
            await peer.connect(node.tickets[0])
            async with await peer.subscribe("news") as events:
                await node.wait_until_ready("news")
                with monkeypatch.context() as patched:

                    def full(*_: object) -> int:
                        raise DiskFullError("no room left")

                    patched.setattr("rumormill.log.inserts.put_events", full)
                    with pytest.raises(RumormillError, match="no room left"):
                        await node.publish_noted([("news", b"lost", Note("k", b"1"))])
                assert note_keys(node.log, "") == []
                await node.publish_noted([("news", b"kept", Note("k", b"2"))])
                async with asyncio.timeout(30):
                    assert (await anext(events)).data == b"kept"

    run(main)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_event_that_the_log_refuses_takes_no_others_note_with_it(
    tmp_path: Path, bad: int
) -> None:
    """Those beside it are kept with their notes, and its own note is not: who reads the notes
    repeats nothing, and leaves nothing out."""

    async def main() -> None:
        store = StoreConfig(max_event_bytes=1000)
        async with Node(tmp_path / "a", store=store) as node:
            rows = [("news", b"%d" % n, Note(f"k{n}", b"noted")) for n in range(3)]
            rows[bad] = ("news", bytes(5000), rows[bad][2])
            with pytest.raises(RumormillError, match="above the limit"):
                await node.publish_noted(rows)
            kept = [int(each.data) for each in await node.history("news")]
            assert kept == [n for n in range(3) if n != bad]
            assert note_keys(node.log, "") == [f"k{n}" for n in kept]

    run(main)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_note_never_speaks_of_an_event_that_the_log_refused(tmp_path: Path, bad: int) -> None:
    """Under one key each note says what was published up to there, as those of the Spark sink do:
    nothing is kept that would have the refused event left out when all is published again."""

    async def main() -> None:
        store = StoreConfig(max_event_bytes=1000)
        async with Node(tmp_path / "a", store=store) as node:
            rows = [("news", b"%d" % n, Note("k", b"%d" % n)) for n in range(3)]
            rows[bad] = ("news", bytes(5000), rows[bad][2])
            with pytest.raises(RumormillError, match="above the limit"):
                await node.publish_noted(rows)
            assert int(read_note(node.log, "k") or b"-1") < bad
            assert len(await node.history("news")) <= bad

    run(main)


def test_a_note_never_speaks_of_events_that_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a moment, while the first of several batches is written: the others are
    not published either, and all are when it is tried again, each once."""

    async def main() -> None:
        async with Node(tmp_path / "a", config=NodeConfig(queue_messages=16)) as node:
            rows = [("news", b"%d" % n, Note("k", b"%d" % n)) for n in range(20)]
            await node.publish_noted(rows[:2])
            with monkeypatch.context() as patched:
                put, trouble = inserts.put_events, [DiskFullError("no room left")]

                def full_once(*arguments: Any) -> int:
                    if trouble:
                        raise trouble.pop()
                    return put(*arguments)

                patched.setattr("rumormill.log.inserts.put_events", full_once)
                with pytest.raises(RumormillError, match="no room left"):
                    await node.publish_noted(rows[2:])
                assert not trouble
            kept = int(read_note(node.log, "k") or b"-1")
            assert kept == 1
            await node.publish_noted(rows[kept + 1 :])
            assert [each.data for each in await node.history("news")] == [row[1] for row in rows]

    run(main)


def test_what_a_peer_brings_and_the_log_refuses_takes_no_note_with_it(tmp_path: Path) -> None:
    """It is in one batch with what we publish and note."""

    async def main() -> None:
        store = StoreConfig(max_event_bytes=1000)
        async with Node(tmp_path / "a", store=store) as node:
            foreign = Event("news", bytes(5000), b"them", b"id")
            ours = [("news", b"ours", Note("k", b"noted"))]
            publishing = asyncio.ensure_future(node.publish_noted(ours))
            # In the turn in which it is published, and before the log is given anything.
            append = Append(foreign, deliver=True)
            asyncio.get_running_loop().call_soon(node._journal.append, append, 1.0)
            await publishing
            assert [each.data for each in await node.history("news")] == [b"ours"]
            assert read_note(node.log, "k") == b"noted"
            assert node.metrics()["rumormill_events_lost"][""] == 1

    run(main)


def test_what_nodes_note_of_themselves_is_told_apart(tmp_path: Path) -> None:
    """By its key, from what they note for programs, which may not touch it."""

    async def main() -> list[str]:
        found: list[str] = []
        for protocol in ("gossipsub", "pulsarcast", "skipring"):
            options: dict[str, Any] = {"protocol": protocol}
            if protocol == "skipring":
                options["supervises"] = True
            async with Node(tmp_path / protocol, **options) as node, Node(None) as peer:
                await peer.connect(node.tickets[0])
                topic = (await node.create_topic("news")).name
                await node.publish_many(topic, [b"one", b"two"])
                await node.retention(rules=Retention(max_events=1), apply=True)
            with EventLog(tmp_path / protocol, read_only=True) as log:
                found += note_keys(log, "")
        return found

    keys = run(main)
    assert {key.partition("/")[0] for key in keys} >= {"followed", "sync", "deleted", "pulsarcast"}
    assert [key for key in keys if not is_own(key)] == []
    assert is_own(LATEST)
    assert is_own(MEMBERS_NOTE)
    assert not is_own("stream 17 2 0")
