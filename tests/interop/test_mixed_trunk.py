"""Trees among ours, in a mesh with go and js, who do not know of them: nobody loses anything."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from interop_asserts import TOPIC, messages, own_name
from interop_peer import ForeignPeer, Program
from test_mixed_names import SECONDS_OF_PROMISES, connect_all, scores_of, subscribe

from live_nodes import take
from rumormill.core.trace import SendRPC
from rumormill.node.node import Node
from trace_log import TraceLog

pytestmark = pytest.mark.interop

EACH = 4
SAID = 10


async def test_trees_among_ours_disturb_neither_go_nor_js(
    javascript: Program, golang: Program
) -> None:
    """4 go, 4 js and 4 of ours with trees, all connected: everything reaches everybody once.

    Nobody has anybody below zero: ours and js score by default, go with js's weights; what go and
    js say is the lowest score that each peer ever had. Of the extension they hear nothing.
    """
    logs = [TraceLog() for _ in range(EACH)]
    async with AsyncExitStack() as stack:
        js = [ForeignPeer(javascript, router="gossipsub") for _ in range(EACH)]
        go = [ForeignPeer(golang, scoring=True) for _ in range(EACH)]
        foreign = [await subscribe(stack, peer) for peer in js + go]
        nodes = [Node(None, parameters={"trunk": True}, observers=[log]) for log in logs]
        ours = [await stack.enter_async_context(node) for node in nodes]
        subscriptions = [await node.subscribe(TOPIC) for node in ours]
        await connect_all(ours, foreign)
        for node in ours:
            await node.wait_until_ready(TOPIC, peers=3 * EACH - 1, timeout=30)
        for peer in foreign:
            await peer.ask("waitForMesh", topic=TOPIC, count=4)
        sent = {peer: messages(f"peer {i}", SAID, 1500) for i, peer in enumerate([*foreign, *ours])}
        for number in range(SAID):
            for peer, batch in sent.items():
                if isinstance(peer, ForeignPeer):
                    await peer.publish(TOPIC, batch[number : number + 1])
                else:
                    await peer.publish(TOPIC, batch[number])
        everything = sorted(message for batch in sent.values() for message in batch)
        for subscription in subscriptions:
            assert sorted(await take(subscription, len(everything))) == everything
        for peer in foreign:
            others_said = sorted(set(everything) - set(sent[peer]))
            assert sorted(await peer.received(TOPIC, len(others_said))) == others_said
        await asyncio.sleep(SECONDS_OF_PROMISES)
        for peer in foreign:
            lowest = await peer.ask("scores")
            assert {own_name(node) for node in ours} <= lowest.keys()
            assert min(lowest.values()) >= 0
            assert len(await peer.received(TOPIC, 1)) == len(everything) - SAID, "nothing twice"
        for node, subscription in zip(ours, subscriptions, strict=True):
            assert min(scores_of(node)) >= 0
            assert len(await node.history(TOPIC)) == len(everything)
            assert not subscription.waiting
        own = {node.id for node in ours}
    spoken = [rpc for log in logs for rpc in log.of(SendRPC) if rpc.meta.operations]
    told = [rpc for rpc in spoken if any(each.name == "choke" for each in rpc.meta.operations)]
    assert told, "there are trees among ours"
    names = {"have", "want", "choke", "unchoke", "probe", "echo", "past"}
    of_trees = [rpc for rpc in spoken if names & {each.name for each in rpc.meta.operations}]
    assert {rpc.send_to for rpc in of_trees} <= own
