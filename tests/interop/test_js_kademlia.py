"""rumormill and js-libp2p's kad-dht share one hash table: every operation, in both directions."""

import base64
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any

import pytest
from interop_asserts import join, own_name
from interop_peer import ForeignPeer, Program

from live_nodes import until
from rumormill.core import trace
from rumormill.node.node import Node
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.messages import KadMessage, KadType, Record
from rumormill.overlay.kademlia.operations import LookupResult
from rumormill.overlay.kademlia.peer import (
    FindClosest,
    FindPeer,
    FindProviders,
    GetValue,
    KademliaPeer,
    Meet,
    Provide,
    PutValue,
    Request,
)
from rumormill.overlay.kademlia.validators import CID_PREFIX, WRONG_HASH, content_key
from rumormill.protocols.kademlia.spec import SPEC
from rumormill.wire.keys import PeerId
from trace_log import TraceLog

pytestmark = pytest.mark.interop

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "js-dials"])


def js_peer(program: Program) -> ForeignPeer:
    return ForeignPeer(program, kad=True)


def node(**options: Any) -> Node:
    return Node(None, protocol=SPEC, **options)


def cid(value: bytes) -> bytes:
    return CID_PREFIX + sha256(value).digest()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def id_of(peer: ForeignPeer) -> bytes:
    return bytes(PeerId.parse(peer.id))


def overlay(ours: Node) -> Kademlia:
    machine: Any = ours._driver.protocol
    assert isinstance(machine, KademliaPeer)
    return machine.overlay


async def asked(ours: Node, request: Request) -> LookupResult:
    result = await ours.command(request)
    assert isinstance(result, LookupResult)
    return result


async def acquaint(ours: Node, js: ForeignPeer, *, we_dial: bool) -> None:
    """Connect two peers and wait until each is in the other's table."""
    await join(ours, js, we_dial=we_dial)
    if we_dial:
        await ours.command(Meet(id_of(js)))
    await js.ask("waitForContact", peer=own_name(ours))
    await until(lambda: id_of(js) in overlay(ours).contacts.table, "it is in our table")


async def acquaint_js(peers: list[ForeignPeer]) -> None:
    """Let the first js peer and each other one know each other."""
    first, *others = peers
    for other in others:
        await other.ask("dial", ticket=first.ticket)
        await first.ask("waitForContact", peer=other.id)
        await other.ask("waitForContact", peer=first.id)


@WE_DIAL
async def test_values_are_stored_and_found_both_ways(javascript: Program, we_dial: bool) -> None:
    """PUT_VALUE and GET_VALUE, asked by each and answered by the other."""
    async with js_peer(javascript) as js, node() as ours:
        await acquaint(ours, js, we_dial=we_dial)
        value = b"stored by rumormill"
        put = await asked(ours, PutValue(content_key(cid(value)), value))
        assert (put.stored, put.peers, put.reason) == (1, (id_of(js),), "")
        theirs = b"stored by js" * 5000
        key = content_key(cid(theirs))
        answers = await js.ask("putValue", key=encoded(key), value=encoded(theirs))
        assert answers == [{"from": own_name(ours), "error": None}]
        held = overlay(ours).records.get(key, ours._driver.now())
        assert held is not None
        assert held.value == theirs
        assert not ours._swarm.counts
        # What each finds must come from the other, so each asks for what it did not store itself.
        async with node() as stranger:
            await acquaint(stranger, js, we_dial=True)
            got = await asked(stranger, GetValue(content_key(cid(value))))
            assert got.value == value
        async with js_peer(javascript) as other:
            await acquaint(ours, other, we_dial=we_dial)
            found = await other.ask("getValue", key=encoded(key))
            assert base64.b64decode(found[-1]) == theirs


@WE_DIAL
async def test_providers_are_announced_and_found_both_ways(
    javascript: Program, we_dial: bool
) -> None:
    """ADD_PROVIDER and GET_PROVIDERS; keys are multihashes, and addresses come with them."""
    async with js_peer(javascript) as js, node() as ours:
        await acquaint(ours, js, we_dial=we_dial)
        mine, theirs = cid(b"rumormill provides this"), cid(b"js provides this")
        told = await asked(ours, Provide(mine[2:]))
        assert told.stored == 1
        await js.ask("provide", cid=encoded(theirs))
        await until(
            lambda: overlay(ours).providers.get(theirs[2:], 0.0) == [id_of(js)],
            "we know it as the provider",
        )
        async with js_peer(javascript) as other:
            await acquaint(ours, other, we_dial=we_dial)
            found = await other.ask("findProviders", cid=encoded(theirs))
            assert js.id in [each["id"] for each in found]
            (named,) = [each for each in found if each["id"] == js.id][:1]
            assert js.ticket.partition("/p2p/")[0] in named["addresses"]
        async with node() as stranger:
            await acquaint(stranger, js, we_dial=True)
            result = await asked(stranger, FindProviders(mine[2:]))
            assert result.peers == (ours.id,)
            listens = [ticket.partition("/p2p/")[0] for ticket in ours.tickets]
            endpoints = stranger._swarm.book.endpoints(PeerId(ours.id))
            assert [f"/ip4/{each.host}/tcp/{each.port}" for each in endpoints] == listens


async def test_peers_are_found_both_ways(javascript: Program) -> None:
    """FIND_NODE: three js peers and two of ours that know one js peer find all the others."""
    async with AsyncExitStack() as stack:
        js = [await stack.enter_async_context(js_peer(javascript)) for _ in range(3)]
        ours = [await stack.enter_async_context(node()) for _ in range(2)]
        await acquaint_js(js)
        for each in ours:
            await acquaint(each, js[0], we_dial=True)
        found = await asked(ours[0], FindPeer(id_of(js[2])))
        assert found.peers == (id_of(js[2]),)
        closest = await asked(ours[0], FindClosest(b"anything"))
        everybody = {id_of(each) for each in js} | {ours[1].id}
        assert set(closest.peers) == everybody
        assert set(overlay(ours[0]).closest(b"x", 20)) == everybody
        named = await js[1].ask("findPeer", peer=own_name(ours[1]))
        assert {each["id"] for each in named} == {own_name(ours[1])}
        near = await js[1].ask("closestPeers", key=encoded(b"anything"))
        assert {own_name(each) for each in ours} <= {each["id"] for each in near}


async def test_a_value_from_js_that_does_not_hash_to_its_key_is_refused(
    javascript: Program,
) -> None:
    """js may be told to store anything; we neither keep nor believe it, and say so."""
    log = TraceLog()
    async with js_peer(javascript) as js, node(observers=[log]) as ours:
        await acquaint(ours, js, we_dial=True)
        key = content_key(cid(b"true"))
        await js.ask("putValue", key=encoded(key), value=encoded(b"false"))
        assert overlay(ours).records.get(key, 0.0) is None
        assert overlay(ours).contacts.is_banned(id_of(js), ours._driver.now())
    assert [each.reason for each in log.of(trace.Refuse)] == [WRONG_HASH]


async def test_js_refuses_our_false_value(javascript: Program) -> None:
    """js answers a false PUT_VALUE by a reset, which fails the question and not the contact."""
    async with js_peer(javascript) as js, node() as ours:
        await acquaint(ours, js, we_dial=True)
        kad = overlay(ours)
        key = content_key(cid(b"true"))
        message = KadMessage(KadType.PUT_VALUE, key, Record(key, b"false"))
        effects: list[Any] = []
        now = ours._driver.now()
        kad._questions.ask(id_of(js), message, 0, now, effects)
        ours._driver._carry_out(effects, now)
        await until(lambda: len(kad._questions) == 0, "no question is left")
        assert kad.closest(id_of(js)) == [id_of(js)]
        assert (await asked(ours, GetValue(key))).value is None


async def test_a_mixed_table_keeps_and_finds_everything(javascript: Program) -> None:
    """3 js and 4 rumormill peers: six values from each side, found by all of ours and by js."""
    async with AsyncExitStack() as stack:
        js = [await stack.enter_async_context(js_peer(javascript)) for _ in range(3)]
        ours = [await stack.enter_async_context(node()) for _ in range(4)]
        await acquaint_js(js)
        for each in ours:
            await acquaint(each, js[0], we_dial=True)
        values = [b"value %d" % number for number in range(12)]
        for number, value in enumerate(values):
            key = content_key(cid(value))
            if number % 2:
                await js[number % 3].ask("putValue", key=encoded(key), value=encoded(value))
            else:
                assert (await asked(ours[number % 4], PutValue(key, value))).stored >= 3
        for number, value in enumerate(values):
            key = content_key(cid(value))
            for each in ours:
                assert (await asked(each, GetValue(key))).value == value
            found = await js[(number + 1) % 3].ask("getValue", key=encoded(key))
            assert base64.b64decode(found[-1]) == value
        for each in ours:
            # Lookups dial in both directions, so two connections may meet; nothing else happens.
            assert set(each._swarm.counts) <= {"duplicate-connection"}
