"""`connect`: the API of a node over the control socket of another program's."""

import asyncio
import inspect
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rumormill
from live_nodes import run, until
from processes import Program, Terminal
from processes import rumormill as rumormill_run
from rumormill import (
    Client,
    LocalError,
    Message,
    Node,
    OutOfTimeError,
    RumormillError,
    connect,
)
from rumormill.core.errors import LimitError
from rumormill.daemon.control_client import NoDaemonError
from rumormill.daemon.control_messages import ControlError, Reloaded, socket_path
from rumormill.log.errors import DiskFullError, OffsetAheadError, StoreLockedError
from rumormill.log.model import Retention
from rumormill.node.groups import NamedSubscription

HOLDER = """
import asyncio, sys
from rumormill import Node

async def main():
    async with Node(sys.argv[1], control=False):
        print("ready", flush=True)
        await asyncio.sleep(1e6)

asyncio.run(main())
"""


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[tuple[Node, Client]]:
    async with Node(home) as node, connect(home) as client:
        yield node, client


def test_it_has_the_calls_of_a_node_with_their_arguments() -> None:
    """What a client lacks is named here, and why; what it has takes the same."""
    # functions of a program
    local = {"access", "set_validator", "callback_failures", "add_observer", "remove_observer"}
    doors = {"serve", "log", "start", "publish_noted"}  # of the process that has it
    questions = {"command", "set_supervisors", "set_retention", "versions", "topic"}
    sight = {"refusals", "links", "reachability", "view", "check_process", "forked"}
    node = {name for name in dir(Node) if not name.startswith("_")}
    client = {name for name in dir(Client) if not name.startswith("_")}
    assert node - client - {"id"} == (local | doors | questions | sight) & node
    left_out = {"fetch_history": {"progress"}, "connect": {"keep"}, "network_ticket": {"nodes"}}
    left_out["peer_clocks"] = {"timeout"}
    for name in sorted(node & client):
        theirs, ours = (getattr(each, name) for each in (Node, Client))
        if name in ("tickets", "peers", "subscribe") or not callable(theirs):
            continue
        wanted = dict(inspect.signature(theirs).parameters)
        for each in left_out.get(name, ()):
            del wanted[each]
        assert {**inspect.signature(ours).parameters} == wanted, name


def test_publish_subscribe_and_history(tmp_path: Path) -> None:
    """Heads, batches, filters, offsets from the end; an interrupted wait loses nothing."""

    async def main() -> None:
        async with served(tmp_path) as (node, client):
            assert client.id == node.id
            assert await client.tickets() == node.tickets
            async with await client.subscribe("news", where="key == 'k'") as events:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(events)
                receipt = await client.publish("news", "one", key="k", headers={"a": "1"})
                many = [Message(b"two", key=b"x"), b"three", Message("four", key="k")]
                receipts = await client.publish_many("news", many)
                assert [each.offset for each in (receipt, *receipts)] == [0, 1, 2, 3]
                one, four = await anext(events), await anext(events)
                assert (one.data, one.key, dict(one.headers)) == (b"one", b"k", {"a": "1"})
                assert four.data == b"four"
            assert await client.history("news") == await node.history("news")
            assert [each.offset for each in await client.history("news", limit=2)] == [0, 1]
            assert [each.offset for each in await client.history("news", since_offset=-1)] == [3]
            assert len(await client.history("news", where="key == 'k'", limit=9)) == 2
            (line,) = [line for line in await client.topics() if line.name == "news"]
            assert (line.next_offset, line.subscribed) == (4, True)
            await client.unsubscribe("news")
            assert not [line for line in await client.topics() if line.subscribed]
            assert await client.peers() == []
            async with Node(None) as other:
                assert await client.connect(other.tickets[0]) == other.id
                assert [peer.id for peer in await client.peers()] == [other.id]
                assert [str(peer.id) for peer in await client.peers()] == [str(other.id)]
            quiet = await client.subscribe("quiet")
            waiting = asyncio.ensure_future(quiet.batch())
            await asyncio.sleep(0)
            await quiet.ended()
            assert (await waiting, quiet.closed) == ([], True)
            assert str(await client.completeness("news")) == "not compared with another node yet"
            await client.publish_many("long", [bytes(5000)] * 600)
            assert len(await client.history("long")) == 600
            (line,) = await client.retention("long", rules=Retention(max_events=9), apply=True)
            assert (line.topic, len(await client.history("long"))) == ("long", 9)
            assert await client.compact() >= 0
            assert await client.peer_clocks() == []

    run(main)


def test_a_client_reads_from_where_a_node_does(tmp_path: Path) -> None:
    """Offsets, times, both of them, and what is beyond either end."""

    async def main() -> None:
        async with served(tmp_path) as (node, client):
            await node.publish_many("news", [b"%d" % number for number in range(10)])
            await node.retention("news", rules=Retention(max_events=6), apply=True)
            moment = (await node.history("news"))[2].received
            for start, since, first in (
                *((0, None, 4), (2, None, 4), (5, None, 5), (-1, None, 9), (-99, None, 4)),
                *((10, None, 10), (9, moment, 9), (-1, moment, 9), (5, 9e9, 10)),
            ):
                for each in (node, client):
                    found = await each.history("news", since_offset=start, since=since)
                    assert [event.offset for event in found][:1] == [*range(first, 10)][:1]
            for each in (node, client):
                for topic in ("news", "nothing"):
                    with pytest.raises(RumormillError, match="offset 11 is ahead of the log"):
                        await each.history(topic, since_offset=11)
                with pytest.raises(LocalError, match="a subscription's name is printable text"):
                    await each.subscribe("news", name="")

    run(main)


async def wrong_calls(at: Node | Client, place: Path) -> dict[str, type[Exception]]:
    """What is raised for what a caller does wrong, by its sentence."""
    raised = {}
    for wrong in (
        at.publish("news", 5),  # type: ignore[arg-type]
        at.publish("news", bytes(3 << 20)),
        at.publish("", b""),
        at.publish_many("news", b"abc"),  # type: ignore[arg-type]
        at.subscribe("news", where="x ="),
        at.subscribe("quiet", since_offset=9),
        at.history("quiet", since_offset=9),
        at.history("news", order="links"),
        at.connect("nonsense"),
        at.wait_until_ready("news", timeout=0.01),
        at.request("news", b"", timeout=0.01),
        at.publish("news", b"", copies=1, timeout=0.01),
        at.backup(place),
        at.restore(place / "no backup"),
        at.import_events(__file__),
    ):
        with pytest.raises(RumormillError) as info:
            await wrong
        raised[re.sub(r"offset \d$", "offset", str(info.value))] = info.type
    return raised


def test_what_is_wrong_is_said_as_by_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sentences, and what a program can tell apart, it tells apart by the same class."""

    async def main() -> None:
        async with served(tmp_path / "home") as (node, client):
            here, there = [await wrong_calls(each, tmp_path) for each in (node, client)]
            assert [*here] == [*there]
            assert {said: kind for said, kind in here.items() if kind is not there[said]} == {
                said: LocalError for said, kind in there.items() if kind is ControlError
            }
            assert not {OutOfTimeError, OffsetAheadError, LimitError} - {*there.values()}
            with pytest.raises(OffsetAheadError) as ahead:
                await client.history("quiet", since_offset=9)
            assert (ahead.value.topic, ahead.value.offset) == ("quiet", 9)
            assert isinstance(ahead.value, LocalError)

            async def full(*_: object, **__: object) -> None:
                raise DiskFullError("no room left")

            node.publish_many = full  # type: ignore[method-assign]
            with pytest.raises(DiskFullError, match="no room left"):
                await client.publish("news", b"")
            named = await client.subscribe("news", name="w", auto_ack=False)
            with monkeypatch.context() as patched:
                patched.setattr(NamedSubscription, "ack", full)
                with pytest.raises(DiskFullError, match="no room left"):
                    await named.ack(0)
        async with served(tmp_path / "another") as (_, client):
            plain = await client.subscribe("news")
            with pytest.raises(LocalError, match="with a name"):
                await plain.ack()
            await client.close()
            with pytest.raises(LocalError, match="the client is closed"):
                await client.publish("news", b"")

    run(main)


def test_several_programs_share_a_named_subscription(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (node, one), connect(tmp_path) as two:
            await node.publish_many("work", [b"%d" % number for number in range(4)])
            wish = {"name": "w", "since_offset": 0}
            mine = await one.subscribe("work", **wish)  # type: ignore[arg-type]
            yours = await two.subscribe("work", **wish, auto_ack=False)  # type: ignore[arg-type]
            assert [(await anext(mine)).data, (await anext(yours)).data] == [b"0", b"1"]
            assert (yours.pending, yours.lag) == (2, 2)
            await yours.nack()
            assert (await anext(mine)).via == "again"
            assert (await anext(yours)).data == b"2"
            await two.close()
            await until(lambda: node.groups()[0].consumers == 1, "the other has hung up")
            assert [(await anext(mine)).data for _ in range(2)] == [b"2", b"3"]
            await mine.ack()
            assert [(each.name, each.pending) for each in await one.groups()] == [("w", 0)]
            with pytest.raises(LocalError, match="is open"):
                await one.forget_group("work", "w")
            await mine.ended()
            await until(lambda: node.groups()[0].consumers == 0, "all have hung up")
            await one.forget_group("work", "w")

    run(main)


def test_clients_ask_and_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (_, one), connect(tmp_path) as two:

            async def answer() -> None:
                async for request in requests:
                    await two.reply(request, request.data.upper())

            requests = await two.subscribe("sums", name="workers")
            answering = asyncio.ensure_future(answer())
            assert (await one.request("sums", b"x", timeout=30)).data == b"X"
            await requests.ended()
            await answering

    run(main)


def test_calls_that_wait_hold_up_no_others_and_the_end_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (node, client):
            waits = [asyncio.ensure_future(client.wait_until_ready("news")) for _ in range(8)]
            await client.publish("news", b"meanwhile")
            events = await client.subscribe("news")
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            await node.close()
            with pytest.raises(LocalError, match="stopped"):
                await anext(events)
            with pytest.raises(NoDaemonError):
                await client.publish("news", b"late")
            async with Node(tmp_path):
                assert (await client.publish("news", b"again")).offset == 1

    run(main)


def test_errors_say_who_has_a_home_and_what_to_do(tmp_path: Path) -> None:
    """Nobody; a program that serves nothing; one that was killed and left its socket."""
    home = tmp_path / "home"

    async def main() -> None:
        with pytest.raises(NoDaemonError, match="start one with `rumormill node --home"):
            await connect(home)
        with Program([sys.executable, "-c", HOLDER, home]) as holder:
            assert holder.hears() == "ready"
            with pytest.raises(NoDaemonError, match=f"process {holder.process.pid} has .* open"):
                await connect(home)
            with pytest.raises(StoreLockedError, match=r"rumormill\.connect"):
                await Node(home).start()
        with Terminal("node", "--home", home) as daemon:
            daemon.prints()
            async with connect(home) as client:
                assert await client.peers() == []
            daemon.kill()
        assert socket_path(home).exists()
        with pytest.raises(NoDaemonError, match="died and left its socket; start it again"):
            await connect(home)
        async with Node(home) as node, connect(home) as client:
            assert client.id == node.id

    run(main)


def test_commands_use_the_node_of_a_program(tmp_path: Path) -> None:
    """As they use a daemon: nothing has to be opened for them."""

    async def main() -> None:
        async with Node(tmp_path) as node, Node(None) as peer:
            await node.connect(peer.tickets[0])

            async def said(*words: str) -> str:
                done = await asyncio.to_thread(rumormill_run, *words, "--home", tmp_path)
                assert done.returncode == 0, done.stderr
                return done.stdout

            events = await node.subscribe("news")
            await said("pub", "news", "hi", "--quiet")
            assert (await anext(events)).data == b"hi"
            assert await said("history", "news") == "hi\n"
            assert await said("sub", "news", "--all", "--count", "1") == "hi\n"
            assert await said("sub", "news", "--name", "n", "--all", "--count", "1") == "hi\n"
            assert "n" in await said("groups")
            assert "news" in await said("topics")
            assert str(peer.id) in await said("peers")
            assert str(node.id) in await said("ticket")
            assert str(node.id) in await said("doctor")
            assert await said("repair") == "nothing is wrong\n"
            assert await said("compact", "--json") != ""
        assert not socket_path(tmp_path).exists()

    run(main)


def test_a_home_whose_path_is_too_long_for_a_socket_has_a_node_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says that commands cannot use it; who asks for the socket by name is refused."""

    async def main() -> None:
        async with Node(tmp_path / ("long" * 30)) as node:
            assert (await node.publish("news", b"all the same")).offset == 0
            with pytest.raises(LocalError, match="longer than 103 bytes"):
                await node.serve(control=True)

    run(main)
    assert "commands cannot use this node" in caplog.text


def test_who_asks_for_the_socket_is_told_where_it_is(tmp_path: Path) -> None:
    """It is open before and stays open; what a reload does is the last one's who said so."""
    reloaded = []

    async def reload() -> Reloaded:
        reloaded.append("by us")
        return Reloaded(changed=["all"])

    async def main() -> None:
        async with Node(tmp_path) as node, connect(tmp_path) as client:
            async with node.serve(control=True, on_reload=reload) as doors:
                assert doors.control == socket_path(tmp_path)
                done = await asyncio.to_thread(rumormill_run, "reload", "--home", tmp_path)
                assert (done.returncode, reloaded) == (0, ["by us"])
            assert (await client.health()).ready
            assert (await asyncio.to_thread(rumormill_run, "reload", "--home", tmp_path)).stdout
            assert reloaded == ["by us"]

    run(main)


def test_without_a_home_it_is_that_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUMORMILL_HOME", str(tmp_path))

    async def main() -> None:
        async with Node(tmp_path):
            client = await rumormill.connect()
            assert client.home == tmp_path
            await client.close()

    run(main)
