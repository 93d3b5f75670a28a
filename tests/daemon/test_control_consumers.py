"""Consumers of named subscriptions over the control socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from live_nodes import run, until
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_consumers import Consumer
from rumormill.node.node import Node

WISH = messages.Subscribe("work", 0, name="w")


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[tuple[Node, ControlClient]]:
    async with Node(home) as node, node.serve(control=True) as doors:
        assert doors.control is not None
        client = await ControlClient.connect(doors.control)
        yield node, client
        await client.close()


async def offsets(consumer: Consumer, most: int) -> list[int]:
    return [event.offset for event in (await consumer.take(most)).events]


def test_consumers_share_and_who_hangs_up_gives_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (node, client):
            await node.publish_many("work", [b"%d" % number for number in range(6)])
            one, two = await client.consume(WISH), await client.consume(WISH)
            assert await offsets(one, 2) == [0, 1]
            assert await offsets(two, 2) == [2, 3]
            assert await one.settle([0]) == messages.Settled(3, 2)
            assert await one.settle([1], back=True) == messages.Settled(3, 2)
            assert await offsets(two, 1) == [1]
            await two.close()
            assert [await offsets(one, 9) for _ in range(3)] == [[1], [2], [3]]
            assert await offsets(one, 9) == [4, 5]
            await one.settle([1, 2, 3, 4, 5])
            (view,) = await client.groups()
            assert (view.next_offset, view.pending, view.consumers) == (6, 0, 1)
            await one.close()
            await until(lambda: not node.groups()[0].consumers, "the node has noticed")
            await client.forget_group("work", "w")
            assert await client.groups() == []

    run(main)


def test_acknowledgements_pass_a_wait_and_an_interrupted_wait_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (node, client):
            await node.publish("work", b"0")
            consumer = await client.consume(WISH)
            assert await offsets(consumer, 1) == [0]
            waiting = asyncio.ensure_future(consumer.take(1))
            assert (await consumer.settle([0])).pending == 0
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await node.publish("work", b"1")
            assert await offsets(consumer, 1) == [1]
            await node.unsubscribe("work")
            assert await offsets(consumer, 1) == []
            await consumer.close()
            with pytest.raises(messages.ControlError, match="closed"):
                await consumer.take(1)

    run(main)


def test_the_end_of_the_daemon_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (node, client):
            consumer = await client.consume(WISH)
            waiting = asyncio.ensure_future(consumer.take(1))
            await until(lambda: node.groups()[0].consumers, "it is open")
            await client.close()
        with pytest.raises(messages.ControlError, match="stopped"):
            await waiting
        with pytest.raises(messages.ControlError, match="stopped"):
            await consumer.settle([0])
        await consumer.close()

    run(main)


def test_what_is_no_request_of_a_consumer_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (node, client):
            with pytest.raises(messages.ControlError, match="one topic"):
                await client.consume(messages.Subscribe("work/*", name="w"))
            assert isinstance(await client.answer(WISH), messages.Begun)
            client._writer.write(messages.encode(messages.Hello()))
            refused = await client._next()
            assert isinstance(refused, messages.Refused)
            assert "one request for events" in refused.sentence
            await until(lambda: not node.groups()[0].consumers, "its place is free")

    run(main)
