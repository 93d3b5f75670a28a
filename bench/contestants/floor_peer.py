"""The floor: the least that a signed and encrypted message can cost in Python.

Everything that the comparison asks for and nothing else: one TCP connection per subscriber, frames
of ChaCha20-Poly1305 under a fixed key, protobuf messages signed and verified with Ed25519, once, by
the same calls that rumormill makes. Messages of one turn of the loop share frames and system calls,
and a full kernel buffer makes publishers wait. There is no handshake, no multiplexer, no mesh, no
log.
"""

import asyncio
import sys
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from stage import TOPIC, Count, perform

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from oracles.rpc_pb2 import RPC, Message
from rumormill.wire.keys import PrivateKey

_FRAME = 65535 - 16
_PREFIX = b"libp2p-pubsub:"
_KEY = bytes(32)


class Link(asyncio.Protocol):
    """One encrypted connection."""

    def __init__(self, floor: "Floor", node: int) -> None:
        self.floor = floor
        self.node = node
        self.cipher = ChaCha20Poly1305(_KEY)
        self.sent = self.taken = 0
        self.rest = b""
        self.waiting: list[bytes] = []
        self.room = asyncio.Event()
        self.room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.floor.links.setdefault(self.node, []).append(self)

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def send(self, message: bytes) -> None:
        """Queue a message for this turn of the loop."""
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self.waiting.append(len(message).to_bytes(4) + message)

    def flush(self) -> None:
        """Encrypt and write what waits."""
        plain = b"".join(self.waiting)
        self.waiting.clear()
        frames = []
        for start in range(0, len(plain), _FRAME):
            part = self.cipher.encrypt(self.sent.to_bytes(12), plain[start : start + _FRAME], None)
            self.sent += 1
            frames += (len(part).to_bytes(2), part)
        self.transport.write(b"".join(frames))

    plain = b""

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        start, parts = 0, [self.plain]
        while len(data) - start >= 2:
            end = start + 2 + int.from_bytes(data[start : start + 2])
            if len(data) < end:
                break
            parts.append(self.cipher.decrypt(self.taken.to_bytes(12), data[start + 2 : end], None))
            self.taken += 1
            start = end
        self.rest = data[start:]
        plain = b"".join(parts)
        start = 0
        while len(plain) - start >= 4:
            end = start + 4 + int.from_bytes(plain[start : start + 4])
            if len(plain) < end:
                break
            self.floor.receive(self.node, plain[start + 4 : end])
            start = end
        self.plain = plain[start:]


class Floor:
    """All nodes of this process."""

    def __init__(self, count: Count, nodes: int) -> None:
        self.count = count
        self.nodes = nodes
        self.links: dict[int, list[Link]] = {}
        key = PrivateKey(bytes(32))
        self.author = key.public_key.data
        self.sign = key.sign
        self.verify = key.public_key.verify
        self.seqno = 0

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(lambda node=node: Link(self, node), "127.0.0.1", 0)
            for node in range(self.nodes)
        ]

    def tickets(self) -> list[str]:
        return [str(server.sockets[0].getsockname()[1]) for server in self.servers]

    async def connect(self, node: int, ticket: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Link(self, node), "127.0.0.1", int(ticket))

    async def subscribe(self, node: int) -> None:
        """Whoever is connected gets everything."""

    async def ready(self, node: int, peers: int) -> None:
        while len(self.links.get(node, ())) < peers:  # noqa: ASYNC110 (before the measurement)
            await asyncio.sleep(0.01)

    async def publish(self, node: int, data: bytes) -> None:
        self.seqno += 1
        message = Message(data=data, seqno=self.seqno.to_bytes(8), topic=TOPIC)
        setattr(message, "from", self.author)
        payload = _PREFIX + message.SerializeToString()
        message.signature = self.sign(payload)
        encoded = RPC(publish=[message]).SerializeToString()
        for link in self.links[node]:
            link.send(encoded)
        await asyncio.sleep(0)
        for link in self.links[node]:
            await link.room.wait()

    def receive(self, node: int, encoded: bytes) -> None:
        for message in RPC.FromString(encoded).publish:
            signature = message.signature
            message.ClearField("signature")
            if not self.verify(_PREFIX + message.SerializeToString(), signature):
                raise ValueError("a signature does not hold")
            self.count.take(node, message.data)


async def main() -> None:
    count = Count()
    floor = Floor(count, int(sys.argv[1]))
    await floor.listen()
    await perform(floor, count)


asyncio.run(main())
