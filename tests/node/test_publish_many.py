"""Batches: many events in one call, in order, and what is published at the same moment."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from live_nodes import pair, run, take, until
from rumormill import LocalError, Node, Receipt, SyncNode
from rumormill.core.errors import LimitError
from rumormill.core.trace import SendRPC
from rumormill.node.config import NodeConfig
from trace_log import TraceLog


def sent_together(log: TraceLog) -> list[int]:
    """How many messages each RPC that left a node carried, where it carried any."""
    return [len(each.meta.messages) for each in log.of(SendRPC) if each.meta.messages]


def check(receipts: Sequence[Receipt], first: int, count: int) -> None:
    assert [receipt.offset for receipt in receipts] == list(range(first, first + count))
    assert len({receipt.id for receipt in receipts}) == count


def test_offsets_and_receipts_are_in_the_order_given(tmp_path: Path) -> None:
    """Whatever the size of the batch; the log, a subscriber here and a peer have the same order."""
    items = [b"%d" % number for number in range(1000)]

    async def main() -> None:
        async with pair(home=tmp_path) as (ann, bob):
            here = await ann.subscribe("news")
            there = await bob.subscribe("news")
            await ann.wait_until_ready("news")
            receipts = await ann.publish_many("news", items)
            check(receipts, 0, 1000)
            assert all(receipt.peers == 1 and receipt.durable_at for receipt in receipts)
            assert [event.data for event in await ann.history("news")] == items
            assert await take(here, 1000) == items
            assert await take(there, 1000) == items

    run(main)


def test_batches_at_the_same_time_keep_their_own_order(tmp_path: Path) -> None:
    """Three batches and single events are published at once; each has its order, none is lost."""

    async def main() -> None:
        async with Node(tmp_path) as node:
            batches = [[b"%d %d" % (who, number) for number in range(300)] for who in range(3)]
            singles = [b"%d" % number for number in range(50)]
            together = await asyncio.gather(
                *(node.publish_many("news", batch) for batch in batches),
                *(node.publish("news", data) for data in singles),
            )
            stored = {event.data: event.offset for event in await node.history("news")}
            assert sorted(stored.values()) == list(range(950))
            for batch, receipts in zip(batches, together[:3], strict=True):
                offsets = [receipt.offset for receipt in receipts]
                assert offsets == sorted(offsets) == [stored[data] for data in batch]
            assert [receipt.offset for receipt in together[3:]] == [stored[d] for d in singles]

    run(main)


def test_small_messages_of_a_batch_share_rpcs_and_a_commit(tmp_path: Path) -> None:
    """That is why a batch costs less."""

    async def main() -> None:
        log = TraceLog()
        async with (
            Node(tmp_path / "ann", observers=[log]) as ann,
            Node(tmp_path / "bob") as bob,
        ):
            events = await bob.subscribe("news")
            await bob.connect(ann.tickets[0])
            await ann.wait_until_ready("news")
            before = ann.metrics()["rumormill_log_commits"][""]
            await ann.publish_many("news", [bytes(100)] * 200)
            assert ann.metrics()["rumormill_log_commits"][""] == before + 1
            assert sum(sent_together(log)) == 200
            assert len(sent_together(log)) < 10
            assert len(await take(events, 200)) == 200

    run(main)


def test_what_is_published_in_one_turn_is_a_batch(tmp_path: Path) -> None:
    """Publishers that do not know of each other share RPCs as well."""

    async def main() -> None:
        log = TraceLog()
        async with Node(None, observers=[log]) as ann, Node(None) as bob:
            await bob.subscribe("news")
            await bob.connect(ann.tickets[0])
            await ann.wait_until_ready("news")
            await asyncio.gather(*(ann.publish("news", b"%d" % number) for number in range(30)))
            ann.metrics()
            assert sent_together(log) == [30]

    run(main)


def test_nothing_behind_an_impossible_event_is_published_and_nobody_else_is_hurt() -> None:
    """Others who publish in the same turn do not notice."""

    async def main() -> None:
        async with Node(None) as node:
            refused, receipt = await asyncio.gather(
                node.publish_many("news", [b"fine", bytes(2 << 20), b"fine too"]),
                node.publish("news", b"hello"),
                return_exceptions=True,
            )
            assert isinstance(refused, LocalError)
            assert "do not fit" in str(refused)
            assert isinstance(receipt, Receipt)
            assert [event.data for event in await node.history("news")] == [b"fine", b"hello"]

    run(main)


def test_nothing_is_a_batch_too_and_a_bad_topic_is_refused() -> None:
    """No events give no receipts."""

    async def main() -> None:
        async with Node(None) as node:
            assert await node.publish_many("news", []) == []
            with pytest.raises(LocalError, match="topic"):
                await node.publish_many("", [b"x"])
        with pytest.raises(LocalError, match="not running"):
            await node.publish_many("news", [b"x"])

    run(main)


def test_a_long_batch_waits_for_a_peer_that_reads_slowly() -> None:
    """Small queues at the publisher: everything arrives, because the batch waits for room."""

    async def main() -> None:
        tight = NodeConfig(queue_messages=4, queue_bytes=64 << 10)
        async with Node(None, config=tight) as ann, Node(None) as bob:
            events = await bob.subscribe("news")
            await bob.connect(ann.tickets[0])
            await ann.wait_until_ready("news")
            receipts = await ann.publish_many("news", [bytes(20_000)] * 400)
            check(receipts, 0, 400)
            assert len(await take(events, 400)) == 400
            assert ann.metrics()["rumormill_rpc_dropped"] == {}

    run(main)


def test_one_who_gives_up_in_time_publishes_nothing() -> None:
    """A call that is cancelled while it waits for its turn leaves no trace."""

    async def main() -> None:
        async with Node(None) as node:
            free, node._journal.congested = node._journal.congested, lambda: True
            calls = [asyncio.ensure_future(node.publish("news", b"%d" % n)) for n in range(3)]
            await asyncio.sleep(0)
            calls[1].cancel()
            node._journal.congested = free
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            assert [event.data for event in await node.history("news")] == [b"0", b"2"]

    run(main)


def test_what_was_taken_is_published_when_the_node_closes(tmp_path: Path) -> None:
    """Closing in the same turn neither loses the event nor leaves its publisher waiting."""

    async def main() -> None:
        node = Node(tmp_path)
        await node.start()
        call = asyncio.ensure_future(node.publish("news", b"last words"))
        await asyncio.sleep(0)
        await node.close()
        assert (await call).offset == 0
        async with Node(tmp_path) as again:
            assert [event.data for event in await again.history("news")] == [b"last words"]

    run(main)


def test_a_topic_and_a_synchronous_node_offer_it_too(tmp_path: Path) -> None:
    """With the same promise."""

    async def main() -> None:
        async with Node(None) as node:
            check(await node.topic("news").publish_many([b"a", b"b"]), 0, 2)

    run(main)
    with SyncNode(tmp_path) as node:
        check(node.publish_many("news", (b"%d" % number for number in range(10))), 0, 10)
        assert [event.data for event in node.history("news")] == [b"%d" % n for n in range(10)]


def test_an_impossible_event_is_refused_alone_and_the_order_is_kept() -> None:
    """Its neighbours of the same turn are published."""

    async def main() -> None:
        async with Node(None) as node:
            check(await node.publish_many("news", [b"%d" % number for number in range(20)]), 0, 20)
            published = lambda: node.metrics()["topic_msg_published"]  # noqa: E731
            await until(lambda: published() == {"news": 20}, "20 events are counted")
            items = [b"before", bytes(2 << 20), b"after"]
            done = await asyncio.gather(
                *(node.publish("news", data) for data in items), return_exceptions=True
            )
            assert [type(outcome) for outcome in done] == [Receipt, LimitError, Receipt]
            assert [event.data for event in (await node.history("news"))[20:]] == items[::2]

    run(main)
