"""What a node keeps and finds again, and the commands of a protocol."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from parlour import PARLOUR, act, guest

from live_nodes import run, until
from rumormill.core.effects import Deliver, Keep
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.event import Event
from rumormill.log.model import StoreConfig
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.sync import SyncNode

TOPIC = "t"


def event(number: int, topic: str = TOPIC) -> Event:
    """An event of somebody else, with everything that an event may have."""
    return Event(
        topic,
        b"data %d" % number,
        b"author",
        b"id %d" % number,
        (b"parent a", b"parent b"),
        1234.5,
        b"proof",
    )


# Keeping.


@pytest.mark.parametrize("effect", [Keep(event(1)), Deliver(event(1), b"somebody")])
def test_what_is_kept_is_found_at_once_and_after_it_is_safe(effect: Keep | Deliver) -> None:
    """With all that belongs to it; others are not found."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            archive = guest(node).hooks.archive
            act(node, effect)
            for _ in range(2):
                assert archive.get(TOPIC, b"id 1") == event(1)
                assert list(archive.scan(TOPIC)) == [event(1)]
                assert archive.get(TOPIC, b"id 2") is None
                assert archive.get("another topic", b"id 1") is None
                assert list(archive.scan("another topic")) == []
                await until(lambda: node.log.find(TOPIC, b"id 1"), "it is in the log")
                await until(lambda: not node._desk.unsafe, "and nothing waits")

    run(story)


def test_a_scan_tells_each_event_once_in_order() -> None:
    """Those of the log, those on the way, and those that arrive in the log meanwhile."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            archive = guest(node).hooks.archive
            act(node, *(Keep(event(number)) for number in range(600)))
            await until(lambda: node.log.find(TOPIC, b"id 599"), "they are in the log")
            act(node, *(Keep(event(number)) for number in range(600, 900)))
            assert [each.id for each in archive.scan(TOPIC)] == [b"id %d" % n for n in range(900)]
            assert len(list(archive.scan(TOPIC))) == 900

    run(story)


def test_an_event_that_is_kept_for_others_is_not_handed_out() -> None:
    """Subscribers get what is delivered and what the node itself says."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node, await node.subscribe(TOPIC) as events:
            own = Event(TOPIC, b"own", node.id, b"said besides")
            act(node, Keep(event(1)), Keep(own), Deliver(event(2), b"somebody"))
            receipt = await node.publish(TOPIC, b"published")
            got = [(await anext(events)).data for _ in range(3)]
            assert got == [b"own", b"data 2", b"published"]
            assert (receipt.offset, receipt.note) == (3, "told nobody")
            assert [each.data for each in await node.history(TOPIC)] == [b"data 1", *got]

    run(story)


def test_an_archive_survives_a_restart(tmp_path: Path) -> None:
    """It is the log."""

    async def story() -> None:
        async with Node(tmp_path, protocol=PARLOUR) as node:
            act(node, Keep(event(1)))
            await node.publish(TOPIC, b"mine")
        async with Node(tmp_path, protocol=PARLOUR) as node:
            archive = guest(node).hooks.archive
            assert archive.get(TOPIC, b"id 1") == event(1)
            assert [each.data for each in archive.scan(TOPIC)] == [b"data 1", b"mine"]

    run(story)


def test_a_protocol_that_reads_no_archive_has_none() -> None:
    """And the desk remembers nothing for it."""

    async def story() -> None:
        forgetful = msgspec.structs.replace(PARLOUR, reads_archive=False)
        async with Node(None, protocol=forgetful) as node:
            act(node, Keep(event(1)))
            assert node._desk.unsafe is None
            assert guest(node).hooks.archive.get(TOPIC, b"id 1") is None
            await until(lambda: node.log.find(TOPIC, b"id 1"), "it is kept all the same")

    run(story)


def test_an_event_that_the_log_refuses_is_forgotten() -> None:
    """It is lost and counted, and not found as if it were kept."""

    async def story() -> None:
        store = StoreConfig(max_event_bytes=300)
        async with Node(None, protocol=PARLOUR, store=store) as node:
            act(node, Keep(Event(TOPIC, bytes(400), b"author", b"long")), Keep(event(1)))
            await until(lambda: node.log.find(TOPIC, b"id 1"), "the other one is kept")
            await until(lambda: not node._desk.unsafe, "and nothing waits")
            assert guest(node).hooks.archive.get(TOPIC, b"long") is None
            assert node._desk.lost == 1

    run(story)


# Commands.


def test_a_command_returns_what_the_protocol_says() -> None:
    """A result, or an error of the caller's own."""

    async def story() -> None:
        async with Node(None, protocol=PARLOUR) as node:
            assert await node.command("shout") == "SHOUT"
            with pytest.raises(LocalError, match="no such thing"):
                await node.command("fail no such thing")
            assert not node._driver._commands

    run(story)


def test_commands_are_bounded_and_end_with_the_node() -> None:
    """One too many is refused; those that wait fail when the node closes, or are given up."""

    async def story() -> None:
        node = Node(None, protocol=PARLOUR, config=NodeConfig(max_commands=2))
        await node.start()
        waiting = [asyncio.ensure_future(node.command(b"never")) for _ in range(2)]
        await until(lambda: len(node._driver._commands) == 2, "both wait")
        with pytest.raises(LimitError, match="2 commands wait"):
            await node.command("shout")
        waiting[0].cancel()
        await until(lambda: len(node._driver._commands) == 1, "one gave up")
        assert await node.command("shout") == "SHOUT"
        await node.close()
        with pytest.raises(LocalError, match="the node is closed"):
            await waiting[1]
        with pytest.raises(LocalError, match="not running"):
            await node.command("shout")

    run(story)


def test_scripts_have_commands_too() -> None:
    """`SyncNode.command` is `Node.command`."""
    with SyncNode(None, protocol=PARLOUR) as node:
        assert node.command("shout") == "SHOUT"
