"""Receipts: whom an event was really handed to, and what a queue dropped later."""

import asyncio

import pytest

from live_nodes import run, until
from rumormill import Receipt
from rumormill.core import trace
from rumormill.core.effects import Published
from rumormill.core.event import Event
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.receipts import Receipts
from trace_log import TraceLog

EVENTS = 800
SIZE = 10_000


@pytest.mark.parametrize("protocol", ["floodsub", "gossipsub"])
def test_a_paused_reader_is_not_counted_as_reached(protocol: str) -> None:
    """What its queue had no room for is in no receipt; what waited when it was given up is dropped
    from those that were given. The rest is what it gets, but for what lies in windows; and with
    sync it gets all of it."""
    config = NodeConfig(slow_peer_after=0.2, slow_peer_limit=1.0, queue_messages=128)

    async def main() -> None:
        traced = TraceLog()
        async with (
            Node(None, protocol=protocol, config=config, observers=[traced]) as author,
            Node(None, protocol=protocol) as reader,
        ):
            await reader.create_topic("news")
            await author.connect(reader.tickets[0])
            await author.wait_until_ready("news")
            transport = reader._swarm.connections[author.id]._transport
            assert transport is not None
            transport.pause_reading()
            receipts: list[Receipt] = []
            for number in range(0, EVENTS, 50):
                items = [b"%d " % each + bytes(SIZE) for each in range(number, number + 50)]
                receipts += await author.publish_many("news", items)
            promised = sum(receipt.peers for receipt in receipts)
            assert 0 < promised < EVENTS, "a full queue is not a peer that was reached"
            await until(lambda: [r for r in receipts if r.dropped], "the reader is given up")
            assert sum(receipt.dropped for receipt in receipts) < promised
            assert all(receipt.dropped <= receipt.peers for receipt in receipts)
            sent = [r for r in receipts if r.peers and not r.dropped]
            transport.resume_reading()
            while reader.log.counters.appended < EVENTS:
                await asyncio.sleep(0.05)
                await reader.sync("news")
            author._recorder.flush()
            drops = traced.of(trace.DropRPC)
            lost = {message.message_id for drop in drops for message in drop.meta.messages}
            assert lost.isdisjoint(receipt.id for receipt in sent)
            assert lost.issuperset(r.id for r in receipts if r.dropped)
            # Where publishing took so long that the reader was given up before its end, the rest
            # was for nobody.
            counted = [receipt.id in lost for receipt in receipts if not receipt.peers]
            assert counted[0]
            assert counted == sorted(counted, reverse=True)

    run(main)


def test_a_refusal_counts_before_and_after_the_machine_has_spoken() -> None:
    """In the turn of the receipt it was never handed over; later it was dropped, and no more often
    than there were peers; and what nobody has a receipt for is not remembered."""
    event = Event("news", b"", b"a", b"1")
    said = trace.RpcMeta((trace.MessageMeta(b"1", "news"),))
    other = trace.RpcMeta((trace.MessageMeta(b"2", "news"),))

    async def main() -> None:
        receipts = Receipts()
        receipts.drop(said)
        receipt = receipts.make(Published(1, event, 3), event, {})
        receipts.drop(said)
        receipts.drop(other)
        assert (receipt.peers, receipt.dropped) == (1, 0)
        await asyncio.sleep(0)
        for _ in range(3):
            receipts.drop(said)
        assert (receipt.peers, receipt.dropped) == (1, 1)
        del receipt
        await asyncio.sleep(0)
        receipts.drop(other)
        await asyncio.sleep(0)
        assert not [*receipts._given, *receipts._new, *receipts._refused]

    run(main)
