"""Requests and replies by events, over every protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from live_nodes import pair, run
from rumormill import LocalError, Node
from rumormill.core.errors import LimitError, OutOfTimeError
from rumormill.node import requesting
from rumormill.node.subscription import Subscription


async def answer(node: Node, requests: Subscription, times: int = 1) -> None:
    """Reply to everything that asks, with its data in capitals."""
    async for request in requests:
        if request.reply_to:
            for _ in range(times):
                await node.reply(request, request.data.upper(), headers={"by": "us"})


@asynccontextmanager
async def answering(node: Node, topic: str, times: int = 1) -> AsyncIterator[None]:
    async with await node.subscribe(topic) as requests:
        task = asyncio.ensure_future(answer(node, requests, times))
        yield
    await task


@asynccontextmanager
async def two_nodes(protocol: str) -> AsyncIterator[tuple[Node, Node, str]]:
    """Two nodes that know each other, and a topic in which both may publish."""
    async with AsyncExitStack() as stack:
        options: dict[str, object] = {"protocol": protocol}
        if protocol == "skipring":
            supervisor = Node(None, protocol=protocol, supervises=True)
            options["supervisors"] = (await stack.enter_async_context(supervisor)).tickets
        alice, bob = [
            await stack.enter_async_context(Node(None, **options))  # type: ignore[arg-type]
            for _ in range(2)
        ]
        await alice.connect(bob.tickets[0])
        topic = "sums"
        if protocol == "pulsarcast":
            topic = (await bob.create_topic("sums", allowed_publishers="anyone")).name
        yield alice, bob, topic


@pytest.mark.parametrize("protocol", ["floodsub", "gossipsub", "radius", "skipring", "pulsarcast"])
def test_a_request_is_answered_over_every_protocol(protocol: str) -> None:
    async def main() -> None:
        async with two_nodes(protocol) as (alice, bob, topic), answering(bob, topic):
            await alice.wait_until_ready(topic)
            for said in (b"one", b"two"):
                reply = await alice.request(topic, said, timeout=30, headers={"x": "y"})
                assert (reply.data, reply.author) == (said.upper(), bob.id)
                assert reply.headers["by"] == "us"
                assert not reply.reply_to

    run(main)


def test_all_replies_that_come_in_time_are_iterated() -> None:
    """Each request sees its own, however many are under way."""

    async def main() -> None:
        async with pair("sums") as (alice, bob), answering(bob, "sums", times=2):
            replies: list[bytes] = []
            async for reply in alice.request("sums", b"a", timeout=30):
                replies.append(reply.data)
                if len(replies) == 2:
                    break
            assert replies == [b"A", b"A"]
            asked = [alice.request("sums", b"%d" % number, timeout=30) for number in range(20)]
            found = await asyncio.gather(*(each._first() for each in asked))
            assert [reply.data for reply in found] == [b"%d" % number for number in range(20)]
            assert [each async for each in alice.request("silence", timeout=0.05)] == []

    run(main)


def test_one_node_may_ask_itself_and_a_named_group_may_answer() -> None:
    async def main() -> None:
        async with Node(None) as node:
            requests = await node.subscribe("sums", name="workers")
            task = asyncio.ensure_future(answer(node, requests))
            assert (await node.request("sums", "x", timeout=30)).data == b"X"
            requests.close()
            await task

    run(main)


def test_who_waits_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(OutOfTimeError, match=r"no reply .* within 0\.05 seconds"):
                await node.request("sums", b"", timeout=0.05)
            with pytest.raises(LocalError, match="not a number of seconds"):
                node.request("sums", timeout=0)
            plain = await node.subscribe("sums")
            await node.publish("sums", b"")
            with pytest.raises(LocalError, match="asks for no reply"):
                await node.reply(await anext(plain), b"")
            monkeypatch.setattr(requesting, "_MOST_REQUESTS", 1)
            waits = asyncio.ensure_future(node.request("sums", timeout=30)._first())
            await anext(plain)
            with pytest.raises(LimitError, match="1 requests wait"):
                await node.request("sums", timeout=30)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            with pytest.raises(OutOfTimeError):
                await node.request("sums", timeout=0.05)

    run(main)


def test_strangers_do_not_have_a_node_open_ever_more_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is in the log for ever: so many at once, and those that are known go on."""
    monkeypatch.setattr(requesting, "_ELSEWHERE", 3)

    async def main() -> None:
        async with pair("sums") as (alice, bob):
            requests = await bob.subscribe("sums")
            refused = 0
            for inbox in ("a", "b", "c", "d", "a", "e"):
                headers = {"reply-to": f"inbox/{inbox}", "correlation-id": "1"}
                await alice.publish("sums", b"?", headers=headers)
                try:
                    await bob.reply(await anext(requests), b"!")
                except LimitError:
                    refused += 1
            assert refused == 2
            assert bob.log.topic("inbox/c") is not None
            assert bob.log.topic("inbox/d") is None
            await alice.publish("sums", b"?", headers={"reply-to": "sums/replies"})
            await bob.reply(await anext(requests), b"!")

    run(main)
