"""Real nodes that find each other from one ticket, lose each other, and find together again."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, until
from processes import SOURCES, environment
from rumormill import Node
from rumormill.log.event_log import EventLog
from rumormill.log.notes import read_note
from rumormill.members.book import Book
from rumormill.members.config import MembersConfig
from rumormill.members.peer import TABLE
from rumormill.node.config import listen_endpoint

QUICK = MembersConfig(interval=1.0, retry=2.0)
"""As by default, and sooner."""


@contextlib.asynccontextmanager
async def network(count: int, **options: Any) -> AsyncIterator[list[Node]]:
    """So many nodes that were all given the ticket of the first."""
    async with contextlib.AsyncExitStack() as running:
        nodes = [
            await running.enter_async_context(Node(None, members=QUICK, **options))
            for _ in range(count)
        ]
        ticket = nodes[0].tickets[0]
        await asyncio.gather(*[node.connect(ticket) for node in nodes[1:]])
        yield nodes


async def kill(node: Node) -> None:
    """End a node without a word to anybody, as SIGKILL does."""
    for connection in list(node._swarm._all):
        connection.abort("killed")
    await node.close()


def linked(node: Node) -> int:
    """How many other members a node is linked to."""
    return node._driver.machine.view().members["linked"]


def knows(node: Node) -> int:
    return node._driver.machine.view().members["known"]


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
def test_ten_from_one_ticket_lose_three_and_the_first_and_the_rest_gets_everything(
    protocol: str,
) -> None:
    async def story() -> None:
        async with network(10, protocol=protocol) as nodes:
            events = [await node.subscribe("news") for node in nodes]
            await until(lambda: all(linked(node) >= 6 for node in nodes), "all are linked")
            for node in nodes[:3]:
                await kill(node)
            sent = [f"from {number}".encode() for number in range(3, 10)]
            for node, said in zip(nodes[3:], sent, strict=True):
                await node.publish("news", said)
            for each in events[3:]:
                assert sorted(await take(each, len(sent))) == sorted(sent)

    run(story)


def test_a_node_that_is_started_again_needs_no_ticket(tmp_path: Path) -> None:
    """It comes back at another address, and the one whose ticket it had is gone."""

    async def story() -> None:
        async with network(3) as nodes:
            async with Node(tmp_path / "late", members=QUICK) as late:
                await late.connect(nodes[0].tickets[0])
                await until(lambda: linked(late) == 3, "it is linked")
                log = late.log
                await until(lambda: _remembered(log) == 3, "it has written that down")
            await kill(nodes[0])
            async with Node(tmp_path / "late", members=QUICK, resume=True) as late:
                events = await late.subscribe("news")
                await nodes[1].wait_until_ready("news")
                await nodes[1].publish("news", b"welcome")
                assert await take(events, 1) == [b"welcome"]

    run(story)


def _remembered(log: EventLog) -> int:
    written = read_note(log, "members")
    return 0 if written is None else len(Book(8).read(written, time.time()))


@pytest.mark.parametrize("count", [14, pytest.param(50, marks=pytest.mark.slow)])
def test_three_subscribers_find_each_other_though_nobody_between_them_subscribes(
    count: int,
) -> None:
    """All have few links, so that the three are not linked by chance for long."""

    async def story() -> None:
        few = MembersConfig(interval=1.0, wanted=3, dialled=2, most=6)
        async with contextlib.AsyncExitStack() as running:
            nodes = [
                await running.enter_async_context(Node(None, members=few)) for _ in range(count)
            ]
            for node in nodes[1:]:
                await node.connect(nodes[0].tickets[0])
            await until(lambda: all(knows(node) >= 4 for node in nodes), "they know some others")
            chosen = [nodes[count // 5], nodes[count // 2], nodes[count - 1]]
            events = [await node.subscribe("rare") for node in chosen]
            for node in chosen:
                await node.wait_until_ready("rare", peers=2)
            for number, node in enumerate(chosen):
                await node.publish("rare", b"found by %d" % number)
            for each in events:
                assert len(await take(each, 3)) == 3

    run(story)


def test_who_was_lost_is_found_again_when_it_can_be_reached() -> None:
    """Bob's network is gone for a while: nobody says a word, and he cannot be dialled."""

    async def story() -> None:
        async with network(2) as (alice, bob):
            events = await bob.subscribe("news")
            await alice.wait_until_ready("news")
            address = bob.tickets[0].split("/p2p/")[0]
            await bob._swarm.listening.close()
            for connection in list(alice._swarm._all):
                connection.abort("the cable is cut")
            alice._swarm._bans.ban(bob.id, None, asyncio.get_running_loop().time())
            await until(lambda: not alice.peers and not bob.peers, "they have lost each other")
            alice._swarm._bans._until.clear()
            await bob._swarm.listen(listen_endpoint(address))
            await alice.wait_until_ready("news")
            await alice.publish("news", b"there you are")
            assert await take(events, 1) == [b"there you are"]

    run(story)


def test_a_node_whose_address_has_changed_is_found_again(tmp_path: Path) -> None:
    """It is killed and comes back at another port, where only whom it remembers it can find."""

    async def story() -> None:
        async with network(5) as nodes:
            async with Node(tmp_path / "mover", members=QUICK) as mover:
                await mover.connect(nodes[0].tickets[0])
                await until(lambda: linked(mover) >= 3, "it is linked")
                log, before = mover.log, mover.tickets[0]
                await until(lambda: _remembered(log) >= 3, "it has written that down")
                await kill(mover)
            async with Node(tmp_path / "mover", members=QUICK) as mover:
                assert mover.tickets[0] != before
                here = before.rpartition("/")[2]
                for node in nodes:
                    await until(
                        lambda node=node: here in [str(peer.id) for peer in node.peers],
                        "it is back",
                    )

    run(story)


def test_membership_can_be_turned_off() -> None:
    async def story() -> None:
        async with contextlib.AsyncExitStack() as running:
            nodes = [await running.enter_async_context(Node(None, members=False)) for _ in range(3)]
            for node in nodes[1:]:
                await node.connect(nodes[0].tickets[0])
            assert nodes[1]._driver.machine.view().members == {}
            assert "/rumormill/members/1.0.0" not in nodes[1]._swarm.services

    run(story)


_NAMESPACE = (
    "ip link set lo up && ip route add local 45.67.89.0/24 dev lo"
    " && ip route add local 20.0.0.0/8 dev lo"
)


def _in_namespace(command: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    path = f"{SOURCES}:{here}:{here.parent}"
    return subprocess.run(
        ["unshare", "-rn", "sh", "-c", f"{_NAMESPACE} && {command}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(PYTHONPATH=path),
    )


@pytest.mark.slow
def test_five_hundred_ids_of_one_network_hold_no_more_than_their_share_on_sockets() -> None:
    """In a network namespace, where every node has an address of its own."""
    if shutil.which("unshare") is None or _in_namespace("true").returncode:
        pytest.skip("this machine does not allow network namespaces")
    ended = _in_namespace(f"{sys.executable} {Path(__file__).with_name('eclipse_story.py')}")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["links"].count(False) <= MembersConfig().per_group
    assert found["links"].count(True) >= 7
    assert found["book"].count(False) <= MembersConfig().remembered // 8
    assert 0 < found["providers"].count(False) <= TABLE.providers_per_key // 8
    assert found["heard"] == 8
