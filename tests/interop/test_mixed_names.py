"""Networks of several implementations, each with its own default for message ids."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from interop_asserts import TOPIC, join, messages, own_name
from interop_peer import ForeignPeer, Program

from live_nodes import take
from rumormill.node.node import Node

pytestmark = pytest.mark.interop

JS_DEFAULT_IDS = {"gossipsub": {"msgIdFn": None}}
NO_MESH = {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "D_score": 0}
SECONDS_OF_PROMISES = 4.0
"""After so long every promise is kept or broken, by everybody's defaults of three seconds."""


def scores_of(node: Node) -> list[float]:
    return list(node._driver.machine.view().scores.values())


async def subscribe(stack: AsyncExitStack, peer: ForeignPeer) -> ForeignPeer:
    """Start a foreign peer, and let it subscribe."""
    await stack.enter_async_context(peer)
    await peer.ask("subscribe", topic=TOPIC)
    return peer


async def star(hub: ForeignPeer, leaves: int, rounds: int) -> None:
    """Nodes of ours around a foreign hub: all that anybody publishes arrives, nobody is a liar.

    Five of them are in its mesh, the others in none: they hear by gossip alone.
    """
    async with AsyncExitStack() as stack:
        await subscribe(stack, hub)
        nodes = [Node(None, parameters=NO_MESH if i >= 5 else None) for i in range(leaves)]
        ours = [await stack.enter_async_context(node) for node in nodes]
        subscriptions = [await node.subscribe(TOPIC) for node in ours]
        for node in ours:
            await join(node, hub, we_dial=True)
        for node in ours:
            await node.wait_until_ready(TOPIC, timeout=30)
        # Relays pass messages on along the mesh.
        meshing = {own_name(node) for node in ours[:5]}
        while not meshing <= set(await hub.ask("mesh", topic=TOPIC)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        sent: list[bytes] = []
        for number in range(rounds):
            for index, node in enumerate(ours):
                sent.append(b"leaf %d says %d" % (index, number))
                await node.publish(TOPIC, sent[-1])
            sent.append(b"the hub says %d" % number)
            await hub.publish(TOPIC, sent[-1:])
            await asyncio.sleep(0.5)
        for subscription in subscriptions:
            assert sorted(await take(subscription, len(sent))) == sorted(sent)
        await asyncio.sleep(SECONDS_OF_PROMISES)
        for node in ours:
            assert min(scores_of(node)) >= 0


async def test_a_js_hub_with_its_own_names_serves_everybody(javascript: Program) -> None:
    """js names messages by the author's key; it scores everybody, and us not below zero."""
    hub = ForeignPeer(javascript, router="gossipsub", **JS_DEFAULT_IDS)
    await star(hub, 9, 4)


@pytest.mark.rust
async def test_a_rust_hub_with_its_own_names_serves_everybody(rust: Program) -> None:
    """rust names messages by text."""
    await star(ForeignPeer(rust), 9, 6)


async def told_twice(*foreign: ForeignPeer) -> None:
    """Peers that have everything from one of us are told of it by another, and lose no trust."""
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(Node(None))
        gossiping = await stack.enter_async_context(Node(None, parameters=NO_MESH))
        for node in (near, gossiping):
            await node.subscribe(TOPIC)
        await near.connect(gossiping.tickets[0])
        for peer in foreign:
            await subscribe(stack, peer)
            for node in (near, gossiping):
                await join(node, peer, we_dial=True)
        await near.wait_until_ready(TOPIC, peers=1 + len(foreign), timeout=30)
        for peer in foreign:
            while own_name(near) not in await peer.ask("mesh", topic=TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for number in range(30):
            await near.publish(TOPIC, b"%d" % number)
            await asyncio.sleep(0.1)
        for peer in foreign:
            assert len(await peer.received(TOPIC, 30)) == 30
        await asyncio.sleep(SECONDS_OF_PROMISES)
        for peer in foreign:
            lowest = await peer.ask("scores")
            assert {own_name(near), own_name(gossiping)} <= lowest.keys()
            assert min(lowest.values()) >= 0


async def test_js_and_go_do_not_hold_us_for_liars(javascript: Program, golang: Program) -> None:
    """js has names of its own, and scores everybody; go names messages as we do."""
    js = ForeignPeer(javascript, router="gossipsub", **JS_DEFAULT_IDS)
    await told_twice(js, ForeignPeer(golang, scoring=True))


@pytest.mark.rust
async def test_rust_does_not_hold_us_for_liars(rust: Program) -> None:
    """Its default names, and its default scores."""
    await told_twice(ForeignPeer(rust, scoring=True))


async def connect_all(ours: list[Node], foreign: list[ForeignPeer]) -> None:
    """Connect everybody to everybody else."""
    for index, node in enumerate(ours):
        for peer in foreign:
            await join(node, peer, we_dial=index % 2 == 0)
        for other in ours[:index]:
            await node.connect(other.tickets[0])
    for index, peer in enumerate(foreign):
        for other in foreign[:index]:
            await peer.ask("dial", ticket=other.ticket)


@pytest.mark.rust
async def test_all_implementations_in_one_network(
    javascript: Program, golang: Program, rust: Program
) -> None:
    """3 go, 3 rust, 3 js and 3 of ours, all connected, with everybody's defaults.

    Everybody gets everything once, and none of us has anybody below zero, nor js any of us.
    """
    async with AsyncExitStack() as stack:
        js = [ForeignPeer(javascript, router="gossipsub", **JS_DEFAULT_IDS) for _ in range(3)]
        others = [ForeignPeer(program) for program in (golang, rust) for _ in range(3)]
        foreign = [await subscribe(stack, peer) for peer in js + others]
        ours = [await stack.enter_async_context(Node(None)) for _ in range(3)]
        subscriptions = [await node.subscribe(TOPIC) for node in ours]
        await connect_all(ours, foreign)
        for node in ours:
            await node.wait_until_ready(TOPIC, peers=11, timeout=30)
        for peer in foreign:
            await peer.ask("waitForMesh", topic=TOPIC, count=4)
        sent = {peer: messages(f"peer {i}", 20, 1500) for i, peer in enumerate([*foreign, *ours])}
        for number in range(20):
            for peer, batch in sent.items():
                if isinstance(peer, ForeignPeer):
                    await peer.publish(TOPIC, batch[number : number + 1])
                else:
                    await peer.publish(TOPIC, batch[number])
            await asyncio.sleep(0.2)
        everything = sorted(message for batch in sent.values() for message in batch)
        for subscription in subscriptions:
            assert sorted(await take(subscription, len(everything))) == everything
        for peer in foreign:
            others_said = sorted(set(everything) - set(sent[peer]))
            assert sorted(await peer.received(TOPIC, len(others_said))) == others_said
        await asyncio.sleep(SECONDS_OF_PROMISES)
        for node in ours:
            assert len(await node.history(TOPIC)) == len(everything)
            assert min(scores_of(node)) >= 0
            for peer in js:
                assert (await peer.ask("scores"))[own_name(node)] >= 0
