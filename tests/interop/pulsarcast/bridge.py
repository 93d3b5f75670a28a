"""A py-libp2p host that carries a test's bytes to the JavaScript original of Pulsarcast.

One JSON request per line on stdin, one JSON answer per line on stdout. py-libp2p is here because it
still speaks secio, the only encryption that the original has; what is sent and what comes back is
the test's business. Nothing of rumormill is imported here.
"""

import json
import sys

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr

from libp2p import new_host

PROTOCOL = TProtocol("/pulsarcast/1.0.0")
CHUNK = 65_536


class Bridge:
    """One host, one stream, and what has come over it."""

    def __init__(self, seed: str) -> None:
        self.host = new_host(key_pair=create_new_key_pair(bytes.fromhex(seed)))
        self.came = bytearray()

    async def run(self) -> None:
        """Serve requests until stdin ends."""
        listen = Multiaddr("/ip4/127.0.0.1/tcp/0")
        async with self.host.run(listen_addrs=[listen]), trio.open_nursery() as nursery:
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

    async def open(self, ticket: str) -> None:
        """Connect to a peer and open the stream."""
        info = info_from_p2p_addr(Multiaddr(ticket))
        await self.host.connect(info)
        self.stream = await self.host.new_stream(info.peer_id, [PROTOCOL])

    async def send(self, data: str) -> None:
        """Send bytes."""
        await self.stream.write(bytes.fromhex(data))

    async def received(self, above: int) -> str:
        """Everything that has come, as soon as it is more than so many bytes.

        It is read here and not all the time, because a read that waits keeps this implementation
        from writing.
        """
        while len(self.came) <= above:
            self.came += await self.stream.read(CHUNK)
        return self.came.hex()


REQUESTS = {
    "about": Bridge.about,
    "open": Bridge.open,
    "send": Bridge.send,
    "received": Bridge.received,
}

if __name__ == "__main__":
    trio.run(Bridge(**json.loads(sys.argv[1])).run)
