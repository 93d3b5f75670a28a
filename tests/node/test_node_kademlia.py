"""Kademlia on real nodes: questions over libp2p streams between peers that are not connected."""

import asyncio
from contextlib import AsyncExitStack
from hashlib import sha256
from random import Random
from typing import Any

from live_nodes import run, until
from rumormill.node.node import Node
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.messages import encode_kad
from rumormill.overlay.kademlia.peer import (
    FindClosest,
    FindProviders,
    GetValue,
    KademliaPeer,
    Provide,
    PutValue,
)
from rumormill.overlay.kademlia.validators import CID_PREFIX, content_key
from rumormill.protocols.kademlia.spec import SPEC, junk_question, kad_decoder, max_kad_message

PEERS = 20


def overlay(node: Node) -> Kademlia:
    machine: Any = node._driver.protocol
    assert isinstance(machine, KademliaPeer)
    return machine.overlay


def cid(value: bytes) -> bytes:
    return CID_PREFIX + sha256(value).digest()


def test_20_nodes_on_loopback_that_know_one_find_everything() -> None:
    """Each dials the first only; all come to know all, store and find, also when a third is gone.

    Twenty peers share one address: on the loopback that is no reason to keep anybody out.
    """

    async def story() -> None:
        async with AsyncExitStack() as stack:
            parameters = {"bootstrap_delay": 0.1, "ask_timeout": 60.0}
            nodes = [
                await stack.enter_async_context(Node(None, protocol=SPEC, parameters=parameters))
                for _ in range(PEERS)
            ]
            for node in nodes[1:]:
                await node.connect(nodes[0].tickets[0])
            for node in nodes[1:]:
                await until(lambda node=node: len(overlay(node).contacts.table) > 0, "it joined")
            for node in nodes[1:]:
                await node.command(FindClosest(node.id))
            values = [b"value %d" % number for number in range(10)]
            keys = [content_key(cid(value)) for value in values]
            puts = [
                nodes[number].command(PutValue(keys[number], value))
                for number, value in enumerate(values)
            ]
            assert min(put.stored for put in await asyncio.gather(*puts)) >= 15
            await nodes[3].command(Provide(cid(b"content")[2:]))
            for node in nodes[10:16]:
                await node.close()
            searchers = [*nodes[:10], *nodes[16:]]
            for number, key in enumerate(keys):
                got = await searchers[-1 - number].command(GetValue(key))
                assert got.value == values[number]
            found = await nodes[17].command(FindProviders(cid(b"content")[2:]))
            assert found.peers == (nodes[3].id,)
            for node in searchers:
                usual = {"duplicate-connection", "dial-failed"}
                # A question that was repeated is answered twice, the second time to nobody.
                assert set(node._swarm.counts) <= usual | {"gone-stream"}

    run(story)


def test_an_attackers_question_is_one_that_can_be_read() -> None:
    """Junk of the simulator passes through the codec within the limits."""
    config: Any = SPEC.presets["default"]
    for seed in range(20):
        message = junk_question(Random(seed), [b"peer"], [])
        data = encode_kad(message)  # type: ignore[arg-type]
        assert len(data) <= max_kad_message(config)
        assert kad_decoder(config)(data).meta.size == len(data)
