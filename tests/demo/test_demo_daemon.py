"""A node's process in the hands of a demonstration: killed, and started again."""

import socket
from pathlib import Path

import pytest

from live_nodes import run, until
from rumormill.core.errors import LocalError
from rumormill.core.trace import DeliverMessage, PublishMessage
from rumormill.demo.network import Daemon, unsaid


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short path, because sockets lie in it."""
    return tmp_path_factory.mktemp("d")


def port_of(ticket: str) -> int:
    """The port in a ticket."""
    return int(ticket.split("/")[4])


def test_it_comes_back_as_the_same_peer_at_the_same_address_with_its_log(folder: Path) -> None:
    async def story() -> None:
        node = Daemon("n0", folder, ["--topic", "news"])
        try:
            await node.start()
            first, peer = node.ticket, node.peer
            (receipt,) = await node.client.publish("news", [b"hello"])
            await node.kill()
            with pytest.raises(LocalError, match="n0 does not run"):
                assert node.client
            await node.start()
            assert (node.ticket, node.peer) == (first, peer)
            events = (await node.client.history("news", limit=10)).events
            assert [(each.id, each.data) for each in events] == [(receipt.id, b"hello")]
        finally:
            await node.kill()
            await node.kill()

    run(story)


def test_what_a_killed_node_had_no_time_to_say_is_found_in_its_log(folder: Path) -> None:
    """Of two publications the trace has one, and the beginning of a line about the other."""

    async def story() -> None:
        node = Daemon("n0", folder, ["--topic", "news"])
        try:
            await node.start()
            receipts = [(await node.client.publish("news", [data]))[0] for data in (b"a", b"b")]
            await until(
                lambda: node.trace.read_bytes().count(b"deliverMessage") == 2, "both are told"
            )
        finally:
            await node.kill()
        assert unsaid(node, ["news"]) == []
        lines = node.trace.read_bytes().splitlines(keepends=True)
        last = [n for n, line in enumerate(lines) if b"publishMessage" in line][1]
        node.trace.write_bytes(b"".join(lines[:last]) + lines[last][:20])
        late = receipts[1].id
        deeds = [PublishMessage(late, "news"), DeliverMessage(late, "news", node.peer)]
        assert unsaid(node, ["news"]) == deeds

    run(story)


def test_a_port_that_was_taken_meanwhile_is_given_up(folder: Path) -> None:
    async def story() -> None:
        node = Daemon("n0", folder, [])
        try:
            await node.start()
            port = port_of(node.ticket)
            await node.kill()
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", port))
                other.listen()
                await node.start()
                assert port_of(node.ticket) != port
        finally:
            await node.kill()

    run(story)


def test_one_that_cannot_start_says_where_its_log_is(folder: Path) -> None:
    async def story() -> None:
        node = Daemon("n0", folder, ["--no-such-flag"])
        with pytest.raises(LocalError, match=f"n0 does not start: see {node.log}"):
            await node.start()
        assert "--no-such-flag" in node.log.read_text()

    run(story)
