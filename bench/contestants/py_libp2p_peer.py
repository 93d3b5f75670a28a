"""py-libp2p as a contestant: `py_libp2p_peer.py NODES`, in an environment of its own.

It speaks GossipSub 1.1 and has the logic switched off that drops messages of honest peers in
bursts: both make it faster and lose less.
"""

import contextlib
import json
import sys
import time

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr
from stage import TOPIC, WINDOW, Count, payload, resident_bytes

from libp2p import new_host


class Peer:
    """One host with GossipSub.

    It has no flood publishing, so a publisher who sends to all subscribers itself needs a degree
    as large as their number.
    """

    def __init__(self, degree: int) -> None:
        self.host = new_host(key_pair=create_new_key_pair(), muxer_preference="YAMUX")
        self.router = GossipSub(
            protocols=[TProtocol("/meshsub/1.1.0")],
            degree=degree,
            degree_low=degree - 2,
            degree_high=2 * degree,
            heartbeat_interval=1,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
        )
        self.pubsub = Pubsub(self.host, self.router)

    @contextlib.asynccontextmanager
    async def running(self):
        listen = Multiaddr("/ip4/127.0.0.1/tcp/0")
        async with (
            self.host.run(listen_addrs=[listen]),
            background_trio_service(self.pubsub),
            background_trio_service(self.router),
        ):
            await self.pubsub.wait_until_ready()
            yield self


class Stage:
    """All nodes of this process, and their commands (see `stage`)."""

    def __init__(self, peers: list[Peer], nursery: trio.Nursery) -> None:
        self.peers = peers
        self.count = Count()
        self.nursery = nursery

    async def tickets(self) -> dict:
        return {"tickets": [str(peer.host.get_addrs()[0]) for peer in self.peers]}

    async def connect(self, links: list) -> dict:
        for node, ticket in links:
            await self.peers[node].host.connect(info_from_p2p_addr(Multiaddr(ticket)))
        return {}

    async def subscribe(self, nodes: list[int]) -> dict:
        for node in nodes:
            subscription = await self.peers[node].pubsub.subscribe(TOPIC)
            self.nursery.start_soon(self.collect, node, subscription)
        return {}

    async def collect(self, node: int, subscription) -> None:
        while True:
            self.count.take(node, (await subscription.get()).data)

    async def ready(self, node: int, peers: int) -> dict:
        known = self.peers[node].pubsub.peer_topics
        while len(known.get(TOPIC, ())) < peers:  # noqa: ASYNC110 (the library has no event)
            await trio.sleep(0.02)
        await trio.sleep(3)  # until the mesh stands
        return {}

    async def publish(self, node: int, count: int, rate: float) -> dict:
        self.count.publisher = node
        numbers = iter(range(count))
        start = time.time()
        publish = self.peers[node].pubsub.publish

        async def publisher() -> None:
            for number in numbers:
                due = start + number / rate if rate else time.time()
                await trio.sleep(max(0.0, due - time.time()))
                await publish(TOPIC, payload(due, number))

        async with trio.open_nursery() as nursery:
            for _ in range(min(WINDOW, count)):
                nursery.start_soon(publisher)
        return {"seconds": time.time() - start}

    async def begin(self) -> dict:
        self.count.begin()
        return {}

    async def stats(self) -> dict:
        return {
            "cpu": time.process_time(),
            "rss": resident_bytes(),
            "received": self.count.received,
            "repeated": self.count.repeated,
        }

    async def latencies(self) -> dict:
        return {"latencies": self.count.latencies}


async def main() -> None:
    nodes = int(sys.argv[1])
    degree = 20 if nodes == 1 else 6
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(Peer(degree).running()) for _ in range(nodes)]
        async with trio.open_nursery() as nursery:
            stage = Stage(peers, nursery)
            async for line in trio.wrap_file(sys.stdin):
                command = json.loads(line)
                answer = await getattr(stage, command.pop("do"))(**command)
                print(json.dumps(answer), flush=True)
            nursery.cancel_scope.cancel()


trio.run(main)
