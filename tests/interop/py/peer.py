"""A py-libp2p peer that a test drives: one JSON request per line on stdin, one JSON answer per
line on stdout. The options of the peer are the first argument, as JSON:

    protocols  the pubsub protocol ids to speak, best first
    router     gossipsub or floodsub
    gossipsub  settings of the GossipSub router that differ from those below

It runs in an environment of its own; nothing of rumormill is imported here.
"""

import base64
import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.ping import PingService
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.identify import parse_identify_response
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.floodsub import FloodSub
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.varint import read_length_prefixed_protobuf
from multiaddr import Multiaddr

from libp2p import new_host

LOOK_EVERY = 0.02

SETTINGS = {
    "degree": 6,
    "degree_low": 4,
    "degree_high": 12,
    "heartbeat_interval": 1,
    # These drop or hold back messages of honest peers in bursts.
    "adaptive_gossip_enabled": False,
    "spam_protection_enabled": False,
    "eclipse_protection_enabled": False,
}


class Peer:
    """One host with a pubsub router, and what it has received."""

    def __init__(
        self,
        protocols: list[str],
        router: str = "gossipsub",
        gossipsub: dict[str, object] | None = None,
    ) -> None:
        self.host = new_host(key_pair=create_new_key_pair(), muxer_preference="YAMUX")
        spoken = [TProtocol(protocol) for protocol in protocols]
        self.router: FloodSub | GossipSub
        if router == "floodsub":
            self.router = FloodSub(protocols=spoken)
        else:
            self.router = GossipSub(protocols=spoken, **{**SETTINGS, **(gossipsub or {})})
        self.pubsub = Pubsub(self.host, self.router)
        self.received: dict[str, list[dict[str, str]]] = {}

    async def run(self) -> None:
        """Serve requests until stdin ends."""
        listen = Multiaddr("/ip4/127.0.0.1/tcp/0")
        async with (
            self.host.run(listen_addrs=[listen]),
            background_trio_service(self.pubsub),
            trio.open_nursery() as nursery,
            AsyncExitStack() as services,
        ):
            if isinstance(self.router, GossipSub):  # FloodSub has nothing to run
                await services.enter_async_context(background_trio_service(self.router))
            await self.pubsub.wait_until_ready()
            self.nursery = nursery
            async for line in trio.wrap_file(sys.stdin):
                nursery.start_soon(self.answer, json.loads(line))
            nursery.cancel_scope.cancel()

    async def answer(self, request: dict) -> None:
        """Carry out one request and answer it; a failure is an answer too."""
        number, name = request.pop("id"), request.pop("request")
        try:
            reply = {"id": number, "result": await REQUESTS[name](self, **request)}
        except Exception as error:  # noqa: BLE001 (whatever a library raises is the answer)
            reply = {"id": number, "error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()

    async def about(self) -> dict:
        """Who we are and where we listen."""
        tickets = [str(address) for address in self.host.get_addrs()]
        return {"id": str(self.host.get_id()), "tickets": tickets}

    async def dial(self, ticket: str) -> None:
        """Connect to a peer."""
        await self.host.connect(info_from_p2p_addr(Multiaddr(ticket)))

    async def subscribe(self, topic: str) -> None:
        """Subscribe, and keep everything that comes."""
        subscription = await self.pubsub.subscribe(topic)
        self.nursery.start_soon(self.collect, topic, subscription)

    async def collect(self, topic: str, subscription: object) -> None:
        """Empty a subscription, whose channel is short, as fast as it fills."""
        kept = self.received.setdefault(topic, [])
        while True:
            message = await subscription.get()
            if message.from_id != self.host.get_id().to_bytes():
                kept.append(
                    {
                        "author": str(ID(message.from_id)),
                        "data": base64.b64encode(message.data).decode(),
                    }
                )

    async def publish(self, topic: str, messages: list[str], rate: float) -> None:
        """Publish at a rate that this implementation can take."""
        for message in messages:
            await self.pubsub.publish(topic, base64.b64decode(message))
            await trio.sleep(1 / rate)

    async def got(self, topic: str) -> list[dict[str, str]]:
        """What has come in a topic."""
        return self.received.get(topic, [])

    async def wait_for_peer(self, peer: str) -> None:
        """Wait until a connection that the other side made is known here too."""
        await until(lambda: ID.from_string(peer) in self.host.get_network().connections)

    async def wait_for_subscribers(self, topic: str, count: int) -> None:
        """Wait until so many peers subscribe to a topic."""
        await until(lambda: len(self.pubsub.peer_topics.get(topic, ())) >= count)

    async def wait_for_messages(self, topic: str, count: int) -> None:
        """Wait until so many messages have come."""
        await until(lambda: len(self.received.get(topic, ())) >= count)

    async def wait_for_mesh(self, topic: str, count: int) -> None:
        """Wait until so many peers are in the mesh."""
        await until(lambda: len(self.router.mesh.get(topic, ())) >= count)

    async def protocol_of(self, peer: str) -> str:
        """The pubsub protocol that a peer is spoken to in."""
        return str(self.router.peer_protocol[ID.from_string(peer)])

    async def ping(self, peer: str) -> list[int]:
        """Ping a peer; return the round trip in microseconds."""
        return await PingService(self.host).ping(ID.from_string(peer))

    async def identified(self, peer: str) -> dict:
        """Ask a peer who it is."""
        stream = await self.host.new_stream(ID.from_string(peer), [IDENTIFY])
        said = parse_identify_response(await read_length_prefixed_protobuf(stream))
        await stream.close()
        return {
            "agent": said.agent_version,
            "listen": [str(Multiaddr(address)) for address in said.listen_addrs],
            "protocols": list(said.protocols),
        }


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not holds():  # noqa: ASYNC110 (the library has no events for these)
        await trio.sleep(LOOK_EVERY)


REQUESTS = {
    "about": Peer.about,
    "dial": Peer.dial,
    "subscribe": Peer.subscribe,
    "publish": Peer.publish,
    "received": Peer.got,
    "waitForPeer": Peer.wait_for_peer,
    "waitForSubscribers": Peer.wait_for_subscribers,
    "waitForMessages": Peer.wait_for_messages,
    "waitForMesh": Peer.wait_for_mesh,
    "protocolOf": Peer.protocol_of,
    "ping": Peer.ping,
    "identified": Peer.identified,
}

if __name__ == "__main__":
    trio.run(Peer(**json.loads(sys.argv[1])).run)
