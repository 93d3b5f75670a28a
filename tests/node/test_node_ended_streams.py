"""A peer that ends our stream and stays: it is sent to over another, and nothing is forgotten."""

import pytest
from hostile_peer import MESHSUB, HostilePeer

from live_nodes import pair, run, until
from rumormill.core.trace import AddPeer, DropRPC
from rumormill.node.channel import TOO_LARGE
from rumormill.node.node import Node
from trace_log import TraceLog

TOPIC = "news"


class Picky(HostilePeer):
    """A peer that reads, and ends the stream on which it got more than it takes, as rust does."""

    def __init__(self, most: int, *, resets: bool) -> None:
        super().__init__()
        self.most, self.resets = most, resets
        self.ended: list[int] = []

    def _on_data(self, stream_id: int, data: bytes) -> None:
        super()._on_data(stream_id, data)
        if len(self.heard.get(stream_id, b"")) > self.most and stream_id not in self.ended:
            self.ended.append(stream_id)
            (self.session.reset if self.resets else self.session.end)(stream_id)

    def all_heard(self) -> bytes:
        """What came on all streams."""
        return b"".join(map(bytes, self.heard.values()))


@pytest.mark.parametrize("resets", [False, True], ids=["FIN", "RST"])
def test_a_peer_that_takes_no_large_rpc_gets_the_small_ones(resets: bool) -> None:
    """The trace names what was too large for whom; the peer's subscriptions stay known."""
    log = TraceLog()

    async def story() -> None:
        async with Node(None, observers=[log]) as node, Picky(80_000, resets=resets) as picky:
            await picky.connect(node)
            picky.hello(TOPIC)
            await node.wait_until_ready(TOPIC)
            large = await node.publish(TOPIC, bytes(200_000))
            await until(lambda: picky.ended, "the peer ends our stream")
            await until(lambda: log.of(DropRPC), "the loss is noticed")
            assert node.subscribers(TOPIC) == 1
            again = await node.publish(TOPIC, bytes(200_000))
            await node.publish(TOPIC, b"something small")
            await until(lambda: b"something small" in picky.all_heard(), "the small one arrives")
            assert node.subscribers(TOPIC) == 1
            assert len(picky.ended) == 1, "it was given nothing more that it does not take"
            assert 80_000 < node._driver.limits[bytes(picky.key.peer_id)] < 201_000
            assert [each.protocol for each in node.peers] == [MESHSUB]
        drops = [
            (drop.send_to, drop.reason, drop.meta.messages[0].message_id)
            for drop in log.of(DropRPC)
        ]
        assert not node._driver.limits
        peer = bytes(picky.key.peer_id)
        assert drops == [(peer, TOO_LARGE, each.id) for each in (large, again)]
        assert len(log.of(AddPeer)) == 1, "it has been a peer all the time"

    run(story)


def test_a_stream_that_is_due_when_one_side_has_said_goodbye_is_no_error() -> None:
    """The end of the connection may wait for its turn behind other frames."""

    async def story() -> None:
        async with pair() as (alice, bob):
            channel = alice._driver.channels[bob.id]
            channel.connection.session.go_away()
            channel._delay = 0.0
            channel._start_later()
            await until(lambda: channel._retry is None, "it was due")
            assert channel.connection.closed_because is None

    run(story)
