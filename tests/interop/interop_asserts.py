"""What the interop tests ask of a rumormill node and of a pair of peers."""

import asyncio
import os
from typing import Any

from interop_peer import PATIENCE, ForeignPeer

from live_nodes import take
from rumormill.core import trace
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.services import PING
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.node.node import Node
from rumormill.wire.keys import PeerId
from trace_log import TraceLog

TOPIC = "interop"

NO_MESH = {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "D_score": 0, "flood_publish": False}
"""Parameters of a GossipSub of ours that sends by gossip alone."""


def messages(author: str, count: int, longest: int = 2000) -> list[bytes]:
    """Distinct messages of many lengths."""
    return [f"{author} {i} ".encode().ljust(i * 97 % longest, b".") for i in range(count)]


async def join(ours: Node, foreign: ForeignPeer, *, we_dial: bool | None) -> None:
    """Connect two peers, whichever dials; with None both do, at the same moment."""
    dials = []
    if we_dial is not False:
        dials.append(ours.connect(foreign.ticket))
    if we_dial is not True:
        dials.append(foreign.ask("dial", ticket=ours.tickets[0]))
    await asyncio.gather(*dials)


async def see_each_other(ours: Node, foreign: ForeignPeer, topic: str = TOPIC) -> None:
    """Wait until each of two peers knows that the other subscribes."""
    await ours.wait_until_ready(topic, timeout=PATIENCE)
    await foreign.ask("waitForSubscribers", topic=topic, count=1)


async def exchange(
    ours: Node,
    foreign: ForeignPeer,
    count: int,
    *,
    we_dial: bool | None,
    longest: int = 2000,
    rate: float | None = None,
    meshes: bool = False,
) -> None:
    """Publish both ways between two peers; each message must arrive exactly once.

    A `rate` in messages per second is for peers that lose messages when they come faster. A peer
    that `meshes` publishes to its mesh only, so that there must be one first.
    """
    subscription = await ours.subscribe(TOPIC)
    await foreign.ask("subscribe", topic=TOPIC)
    await join(ours, foreign, we_dial=we_dial)
    await see_each_other(ours, foreign)
    if meshes:
        await foreign.ask("waitForMesh", topic=TOPIC, count=1)
    from_us = messages("rumormill", count, longest)
    from_them = messages("foreign", count, longest)
    for message in from_us:
        receipt = await ours.publish(TOPIC, message)
        assert receipt.peers == 1, receipt.note
        if rate is not None:
            await asyncio.sleep(1 / rate)
    assert sorted(await foreign.received(TOPIC, count)) == sorted(from_us)
    await foreign.publish(TOPIC, from_them, **({} if rate is None else {"rate": rate}))
    everything = sorted(from_us + from_them)
    assert sorted(await take(subscription, 2 * count)) == everything
    assert await foreign.authors(TOPIC) == [own_name(ours)]
    # A round trip behind the last message: what could have come twice would be here by now.
    await ping(ours, foreign)
    assert sorted(event.data for event in await ours.history(TOPIC)) == everything
    assert not subscription.waiting
    assert sorted(await foreign.received(TOPIC, count)) == sorted(from_us)
    # A second connection is no fault, nor is a stream on it that takes the place of the first.
    expected = {"duplicate-connection", "replaced-stream"} if we_dial is None else set()
    assert ours._swarm.counts.keys() <= expected, "nothing that the peer did was refused"


async def exchange_in_a_mixed_mesh(
    ours: list[Node], foreign: list[ForeignPeer], *, rate: float | None = None
) -> None:
    """5 rumormill and 3 foreign peers, 4 links each, 20 messages from everybody: all arrive once.

    A `rate` in messages per second of each peer is for peers that lose what comes faster.
    """
    subscriptions = [await node.subscribe(TOPIC) for node in ours]
    for peer in foreign:
        await peer.ask("subscribe", topic=TOPIC)
    # A ring with foreign peers and rumormill in turn, and chords: o f o f o f o o.
    ring = [ours[0], foreign[0], ours[1], foreign[1], ours[2], foreign[2], ours[3], ours[4]]
    for i, one in enumerate(ring):
        for step in (1, 3):
            await _connect(one, ring[(i + step) % len(ring)])
    # Relays pass messages on along the mesh, which takes a heartbeat or two to form.
    for node in ours:
        await mesh_of(node, 4)
    for peer in foreign:
        await peer.ask("waitForMesh", topic=TOPIC, count=4)
    sent = {i: messages(f"peer {i}", 20, 1500) for i in range(len(ring))}
    await asyncio.gather(*(_publish(one, sent[i], rate) for i, one in enumerate(ring)))
    everything = sorted(message for batch in sent.values() for message in batch)
    for subscription in subscriptions:
        assert sorted(await take(subscription, len(everything))) == everything
    for peer in foreign:
        own = sent[ring.index(peer)]
        others = [message for message in everything if message not in own]
        assert sorted(await peer.received(TOPIC, len(others))) == others
    for node in ours:
        assert len(await node.history(TOPIC)) == len(everything)


async def mesh_of(node: Node, count: int) -> None:
    """Wait until a node has so many links in its mesh."""
    machine: Any = node._driver.protocol
    async with asyncio.timeout(PATIENCE):
        while len(machine.mesh.links[TOPIC]) < count:
            await node._change.wait()


async def _connect(one: Node | ForeignPeer, other: Node | ForeignPeer) -> None:
    ticket = other.tickets[0] if isinstance(other, Node) else other.ticket
    if isinstance(one, Node):
        await one.connect(ticket)
    else:
        await one.ask("dial", ticket=ticket)


async def _publish(peer: Node | ForeignPeer, batch: list[bytes], rate: float | None) -> None:
    if isinstance(peer, ForeignPeer):
        await peer.publish(TOPIC, batch, **({} if rate is None else {"rate": rate}))
        return
    for message in batch:
        await peer.publish(TOPIC, message)
        if rate is not None:
            await asyncio.sleep(1 / rate)


class _Pinging(StreamHandler):
    """Pings a peer once."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent = os.urandom(32)
        self._echo = b""

    def on_open(self, stream: Stream) -> None:
        stream.send(self._sent)

    def on_data(self, stream: Stream, data: bytes) -> None:
        self._echo += data
        if self._echo == self._sent:
            self.answered.set_result(None)
            stream.end()

    def on_close(self, stream: Stream, reason: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(AssertionError(f"no pong: {reason}"))
        stream.connection.forget_stream(stream)


async def ping(ours: Node, foreign: ForeignPeer) -> None:
    """Ping a foreign peer with libp2p's ping protocol, on a stream that we open."""
    connection = connection_to(ours, foreign)
    pinging = _Pinging()
    connection.open_stream((PING,), pinging)
    await asyncio.wait_for(pinging.answered, PATIENCE)


async def keep_alive(ours: Node, foreign: ForeignPeer) -> None:
    """Let yamux ping a foreign peer as it does on an idle connection; a pong must come."""
    connection = connection_to(ours, foreign)
    for _ in range(3):
        connection.keep_alive(asyncio.get_running_loop().time())
        async with asyncio.timeout(PATIENCE):
            while connection._awaited_ping is not None:
                await ours._change.wait()
    assert connection.closed_because is None


def own_name(ours: Node) -> str:
    """Our peer id as other implementations write it."""
    return str(PeerId(ours.id))


def connection_to(ours: Node, foreign: ForeignPeer) -> Connection:
    """Our connection to a foreign peer."""
    return ours._swarm.connections[bytes(PeerId.parse(foreign.id))]


def ids_in(log: TraceLog, way: type[trace.SendRPC | trace.RecvRPC], kind: str) -> set[bytes]:
    """The message ids that RPCs of one way named in control messages of one kind."""
    rpcs = [rpc.meta for rpc in log.of(way)]
    controls = [rpc.control for rpc in rpcs if rpc.control is not None]
    metas = [meta for control in controls for meta in getattr(control, kind)]
    return {each for meta in metas for each in meta.message_ids}


def refused(node: Node) -> dict[str, int]:
    """What a node has refused, but for frames that met the end of their stream on the way, which
    are counted and nobody's fault."""
    return {reason: count for reason, count in node.refusals.items() if reason != "gone-stream"}
