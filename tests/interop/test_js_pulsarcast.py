"""Our Pulsarcast bytes and the JavaScript original: what we send it takes, what it sends we read.

The original (npm `pulsarcast` 0.2.0) speaks secio and mplex, which nobody else does any more except
py-libp2p; so a py-libp2p host carries the bytes, and this test makes and reads every one of them.
"""

import time
from contextlib import AsyncExitStack
from typing import Any, Self

import pytest
from interop_peer import ForeignPeer, Program

from rumormill.node.identity import NodeIdentity, SignatureVerifier
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import Have, PeerAddress
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    TopicDescriptor,
    read_topic,
)
from rumormill.protocols.pulsarcast.format.rpc import (
    Operation,
    Rpc,
    addition,
    decode_rpc,
    join,
    leave,
    publish,
    request_to_publish,
)
from rumormill.protocols.pulsarcast.format.signing import (
    UNSIGNED,
    SignedEvent,
    fault_of,
    sign_event,
    sign_request,
)
from rumormill.wire.frames import FrameReader, frame
from rumormill.wire.keys import PrivateKey

pytestmark = pytest.mark.interop

SEED = bytes(range(32))
US = NodeIdentity(PrivateKey(SEED))


class Exchange:
    """The original with a topic of its own, and a stream to it."""

    def __init__(self, original: Program, bridge: Program) -> None:
        self._original = ForeignPeer(original)
        self._bridge = ForeignPeer(bridge, seed=SEED.hex())
        self._stack = AsyncExitStack()
        self._frames = FrameReader(1 << 20)
        self._came = 0
        self._delivered = 0

    async def __aenter__(self) -> Self:
        js = await self._stack.enter_async_context(self._original)
        carrier = await self._stack.enter_async_context(self._bridge)
        made = await js.ask("createTopic", name="Notícias-日本-😀")
        self.topic: TopicDescriptor = read_topic(bytes.fromhex(made["block"]))
        self.topic_text: str = made["cid"]
        await carrier.ask("open", ticket=js.ticket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def send(self, rpc: Rpc) -> None:
        """Send an RPC of ours."""
        await self._bridge.ask("send", data=frame(Rpc.encode(rpc)).hex())

    async def next_rpc(self) -> Rpc:
        """Wait for an RPC of the original's; there is one at a time."""
        data = bytes.fromhex(await self._bridge.ask("received", above=self._came))
        [rpc] = [decode_rpc(each) for each in self._frames.feed(data[self._came :])]
        self._came = len(data)
        return rpc

    async def delivered(self) -> dict[str, Any]:
        """Wait for the next event that the original delivers to its application."""
        self._delivered += 1
        events: list[dict[str, Any]] = await self._original.ask("received", count=self._delivered)
        return events[self._delivered - 1]

    async def js_publishes(self, payload: bytes) -> None:
        """Let the original publish."""
        await self._original.ask("publish", topic=self.topic_text, payload=payload.hex())

    async def children(self) -> list[str]:
        """The original's children in the topic's tree."""
        found: list[str] = await self._original.ask("children", topic=self.topic_text)
        return found

    def event(self, payload: bytes, parent: bytes | None = None) -> SignedEvent:
        """A signed event of ours."""
        created = dates.iso_at(time.time())
        return sign_event(
            EventDescriptor(self.topic.cid, US.peer, payload, created, US.peer, parent), US
        )


def event_in(rpc: Rpc) -> SignedEvent:
    """The one event that an RPC publishes."""
    assert rpc.refused == ()
    [message] = rpc.messages
    assert message.op == Operation.PUBLISH_EVENT
    assert message.event is not None
    return message.event


async def test_events_go_both_ways_and_have_one_name(pulsarcast: Program, bridge: Program) -> None:
    """Our join is taken, our signed events are delivered under our CID, and theirs arrive."""
    async with Exchange(pulsarcast, bridge) as exchange:
        assert cids.text(exchange.topic.cid) == exchange.topic_text
        assert not exchange.topic.may_publish(US.peer)
        await exchange.send(join(exchange.topic.cid, None, time.time()))
        ours: SignedEvent | None = None
        for payload in (b"from us", b"", "olá 日本 😀".encode(), bytes(range(256)) * 100):
            ours = exchange.event(payload, None if ours is None else ours.cid)
            await exchange.send(publish(ours, time.time()))
            delivered = await exchange.delivered()
            assert delivered == {"cid": cids.text(ours.cid), "payload": payload.hex()}
        assert ours is not None
        assert await exchange.children() == [str(US.key.peer_id)]
        await exchange.js_publishes(b"from them")
        delivered = await exchange.delivered()
        theirs = event_in(await exchange.next_rpc())
        assert cids.text(theirs.cid) == delivered["cid"]
        assert theirs.event.payload == b"from them"
        assert theirs.event.publisher == exchange.topic.author
        assert theirs.event.parent == ours.cid, "the original saw our last event last"
        assert fault_of(theirs, SignatureVerifier()) == UNSIGNED


async def test_the_original_publishes_what_we_ask_for(pulsarcast: Program, bridge: Program) -> None:
    """Our request comes back published: its own CID, and our part of it unchanged."""
    async with Exchange(pulsarcast, bridge) as exchange:
        await exchange.send(join(exchange.topic.cid, None, time.time()))
        created = dates.iso_at(time.time())
        request = EventDescriptor(exchange.topic.cid, US.peer, b"please", created)
        await exchange.send(request_to_publish(sign_request(request, US), time.time()))
        delivered = await exchange.delivered()
        published = event_in(await exchange.next_rpc())
        assert cids.text(published.cid) == delivered["cid"]
        assert published.event.request() == request
        assert published.event == request.published(exchange.topic.author, None)
        assert published.cid != request.cid


async def test_what_is_ours_does_not_disturb_the_original(
    pulsarcast: Program, bridge: Program
) -> None:
    """Answers and hints that it does not know are skipped, and the stream goes on."""
    async with Exchange(pulsarcast, bridge) as exchange:
        topic = exchange.topic.cid
        await exchange.send(addition(Have(topic, 1, 2, (topic,))))
        await exchange.send(leave(topic, time.time(), (PeerAddress(US.peer, (b"address",)),)))
        joined = join(topic, None, time.time())
        await exchange.send(Rpc(joined.messages, (Have(topic, 1, 2),)))
        ours = exchange.event(b"still here")
        await exchange.send(publish(ours, time.time()))
        assert (await exchange.delivered())["cid"] == cids.text(ours.cid)
        assert await exchange.children() == [str(US.key.peer_id)]
