"""Dashboards over dashboards: nodes of other machines, by the addresses that were printed there.

And the other way to a node elsewhere: its control socket, forwarded as by `ssh -L`.
"""

import asyncio
import contextlib
import json
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from dashboard_client import Viewer

from certificates import certificate
from live_nodes import pair, run, until
from rumormill.core.errors import LocalError
from rumormill.daemon import homes
from rumormill.daemon.control_messages import socket_path
from rumormill.daemon.homes import HomeSource, HomesSource
from rumormill.dashboard import node_source, remote_source
from rumormill.dashboard.http import server_context
from rumormill.dashboard.node_source import NodeSource
from rumormill.dashboard.remote_source import RemoteSource, parse_address
from rumormill.dashboard.server import Dashboard
from rumormill.dashboard.source import (
    VIEWS,
    Look,
    NotHere,
    Page,
    Sections,
    Source,
    wanted_sections,
)
from rumormill.node.node import Node
from rumormill.version import __version__

ALL = Look(sections=wanted_sections(VIEWS))


@contextlib.asynccontextmanager
async def elsewhere(
    source: Source, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[tuple[str, Counter[str]]]:
    """A dashboard as another machine would serve it: its address, and who was refused."""
    refused: Counter[str] = Counter()
    door = Dashboard(source, lambda reason: refused.update([reason]), tls=tls, **options)
    try:
        yield await door.start("127.0.0.1", 0), refused
    finally:
        await door.close()


def watched(address: str, roots: Path | None = None) -> RemoteSource:
    return RemoteSource(parse_address(address), None if roots is None else str(roots))


def test_two_machines_are_one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts add up, an event's journey is what both saw; tails and history come from there."""
    for module in (homes, node_source):  # each look reads anew
        monkeypatch.setattr(module, "_FRESH", 0.0)

    async def story() -> None:
        async with (
            pair() as (alice, bob),
            elsewhere(NodeSource(alice, "gossipsub")) as (east, _),
            elsewhere(NodeSource(bob, "gossipsub"), allow_publish=True) as (west, _),
        ):
            source = HomesSource({"east": watched(east), "west": watched(west)})
            first = await source.look(ALL)
            assert (first["source"]["kind"], first["source"]["title"]) == ("homes", "east, west")
            receipt = await alice.publish("news", b"hello")
            await until(lambda: bob.metrics()["accepted_messages"], "bob has it")
            found = await source.look(ALL)
            assert (found["totals"]["published"], found["totals"]["delivered"]) == (1, 1)
            assert [row["name"] for row in found["peers"]["rows"]] == ["east", "west"]
            assert [row["delivered"] for row in found["peers"]["rows"]] == [0, 1]
            journey = await source.journey(receipt.id.hex())
            assert {hop["peer"] for hop in journey["hops"]} == {str(alice.id), str(bob.id)}
            tail = await source.look(Look(sections=wanted_sections(["tail"]), topic="news"))
            assert [row["text"] for row in tail["tail"]["rows"]] == ["hello"]
            assert [row["offset"] for row in (await source.page(Page(topic="news")))["rows"]] == [0]
            text = json.dumps([first, found, journey, tail])
            assert "token=" not in text
            assert "allow_publish" not in text
            with pytest.raises(NotHere):
                await source.journey("00")
            with pytest.raises(LocalError, match="was not allowed to publish"):
                await watched(east).publish("news", b"no")
            of_bob = watched(west)
            await of_bob.look(ALL)
            assert (await of_bob.publish("news", b"by a page elsewhere"))["offset"] == 1
            await source.close()

    run(story)


def test_a_page_of_pages_counts_nodes_and_not_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose dashboard shows several nodes, beside one with a single node."""
    monkeypatch.setattr(homes, "_FRESH", 0.0)

    async def story() -> None:
        async with (
            pair() as (alice, bob),
            Node(None) as carol,
            elsewhere(NodeSource(alice, "gossipsub")) as (a, _),
            elsewhere(NodeSource(bob, "gossipsub")) as (b, _),
        ):
            await alice.create_topic("news")
            both = HomesSource({"a": watched(a), "b": watched(b)})
            async with elsewhere(both) as (of_two, _):
                source = HomesSource(
                    {"two": watched(of_two), "one": NodeSource(carol, "gossipsub")}
                )
                found = await source.look(ALL)
                assert found["well"]["sentence"] == "3 nodes, all well"
                names = [row["name"] for row in found["peers"]["rows"]]
                assert names == ["two/a", "two/b", "one"]
                (news,) = [row for row in found["topics"]["rows"] if row["name"] == "news"]
                assert news["subscribers"] == 2
                await source.close()

    run(story)


def test_one_that_stops_is_away_and_the_others_are_shown() -> None:
    async def story() -> None:
        async with Node(None) as node, contextlib.AsyncExitStack() as stack:
            east, _ = await stack.enter_async_context(elsewhere(NodeSource(node, "gossipsub")))
            source = HomesSource({"east": watched(east), "here": NodeSource(node, "gossipsub")})
            assert (await source.look(ALL))["source"]["kind"] == "homes"
            await stack.aclose()
            source._last = None
            found = await source.look(ALL)
            assert found["well"] == {"ok": False, "sentence": "east is away"}
            assert [mark["text"] for mark in found["marks"]] == ["east is gone"]
            assert len(found["peers"]["rows"]) == 1
            await source.close()

    run(story)


def test_a_cookie_that_is_not_taken_any_more_is_asked_for_again() -> None:
    async def story() -> None:
        async with Node(None) as node, elsewhere(NodeSource(node, "gossipsub")) as (url, refused):
            source = watched(url)
            await source.look(ALL)
            source._cookie = "rumormill-1=old"
            assert (await source.look(ALL))["source"]["kind"] == "node"
            assert refused == {"token": 1}
            wrong = watched(url[:-4] + "xxxx")
            with pytest.raises(LocalError, match="that is not the token") as told:
                await wrong.look(ALL)
            assert "xxxx" not in str(told.value)

    run(story)


@pytest.mark.parametrize(
    "text",
    [
        "", "http://", "https://host", "http://host:x/?token=a", "http://host:99999/?token=a",
        "ftp://host/?token=a", "http://:4030/?token=a", "http://host/?token=", "host:4030",
        "http://[::1/?token=a",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(LocalError, match="give the whole address") as told:
        parse_address(text)
    assert "token=" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "place", "is_private"),
    [
        ("http://127.0.0.1:4030/?token=a", "127.0.0.1:4030", True),
        ("http://localhost:4030/?token=a", "localhost:4030", True),
        ("http://[::1]:4030/?token=a", "[::1]:4030", True),
        ("http://10.0.0.2:4030/?token=a", "10.0.0.2:4030", False),
        ("https://10.0.0.2/of/a/proxy/?token=a", "10.0.0.2:443", True),
    ],
)
def test_an_address_says_where_and_whether_somebody_reads_along(
    text: str, place: str, is_private: bool
) -> None:
    found = parse_address(text)
    assert (found.place, found.is_private, found.token) == (place, is_private, "a")
    assert found.prefix == ("/of/a/proxy/" if "proxy" in text else "/")


def test_tls_is_checked(tmp_path: Path) -> None:
    """A certificate that nobody vouches for, or of another place, is refused before the token."""
    ours, other = certificate(tmp_path, "127.0.0.1"), certificate(tmp_path, "127.0.0.9")

    async def story() -> None:
        async with Node(None) as node:
            source = NodeSource(node, "gossipsub")
            async with elsewhere(source, server_context(*ours)) as (url, refused):
                assert url.startswith("https://")
                with pytest.raises(LocalError, match="that is not the token"):
                    await watched(f"{url}x", ours[0]).look(ALL)
                assert refused == {"token": 1}
                assert (await watched(url, ours[0]).look(ALL))["source"]["kind"] == "node"
                with pytest.raises(LocalError, match="CERTIFICATE_VERIFY_FAILED"):
                    await watched(url).look(ALL)
            async with elsewhere(source, server_context(*other)) as (url, refused):
                with pytest.raises(LocalError, match="CERTIFICATE_VERIFY_FAILED"):
                    await watched(url, other[0]).look(ALL)
                assert "token" not in refused
            with pytest.raises(LocalError, match="No such file"):
                watched("https://127.0.0.1/?token=a", tmp_path / "nothing.pem")

    run(story)


def test_closing_does_not_wait_for_a_client_that_never_hangs_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over TLS an end is said and answered: this client reads its answer, and answers nothing."""
    pem, key = certificate(tmp_path, "127.0.0.1")

    async def story() -> None:
        async with Node(None) as node:
            source = NodeSource(node, "gossipsub")
            async with elsewhere(source, server_context(pem, key)) as (url, _):
                address = parse_address(url)
                host, port = address.place.split(":")
                request = f"GET /?token={address.token} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
                context = ssl.create_default_context(cafile=pem)

                def asked() -> ssl.SSLSocket:
                    plain = socket.create_connection((host, int(port)))
                    client = context.wrap_socket(plain, server_hostname=host)
                    client.sendall(request.encode())
                    client.recv(1)
                    return client

                client = await asyncio.to_thread(asked)
            client.close()

    run(story)
    assert not caplog.records


Serving = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listener(serve: Serving) -> AsyncIterator[str]:
    """Something else at an address; all that it serves is over in the end."""
    serving: list[asyncio.Task[Any] | None] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?token=a"
    finally:
        server.close()
        await asyncio.gather(*[task for task in serving if task is not None])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "does not answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is no dashboard"),
        (b"HTTP/1.1\r\n\r\n", "is no dashboard"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "is no dashboard"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "is no dashboard"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "does not answer"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 15\r\n\r\n{\"error\": \"no\"}", ": no"),
        (b"x" * 9000, "does not answer"),
    ],
)  # fmt: skip
def test_what_answers_otherwise_is_away(answer: bytes, said: str) -> None:
    """Within the bounds of an answer, and in one sentence."""

    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.write_eof()
            await reader.read()

        async with listener(serve) as url:
            with pytest.raises(LocalError, match=said):
                await watched(url).look(ALL)

    run(story)


def test_who_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_source, "PATIENCE", 0.05)

    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with listener(serve) as url:
            with pytest.raises(LocalError, match="does not answer"):
                await watched(url).look(ALL)

    run(story)


class Fixed:
    """A source that says the same of itself always."""

    def __init__(self, **about: Any) -> None:
        self._about = about

    async def look(self, look: Look) -> Sections:
        return {"source": dict(self._about), "well": {"ok": True, "sentence": "well"}}

    async def page(self, page: Page) -> dict[str, Any]:
        raise NotHere("nothing")

    async def journey(self, event: str) -> dict[str, Any]:
        raise NotHere("nothing")

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        raise LocalError("it does not")

    async def play(self, wish: dict[str, Any]) -> dict[str, Any]:
        raise LocalError("it does not")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"kind": "node", "version": "99.0"}, "runs version 99.0"),
        ({"kind": "trace", "version": __version__}, "shows no live nodes"),
    ],
)
def test_what_cannot_be_part_of_a_picture_is_refused(about: dict[str, str], said: str) -> None:
    async def story() -> None:
        async with elsewhere(Fixed(title="x", **about)) as (url, _):
            with pytest.raises(LocalError, match=said):
                await watched(url).look(ALL)

    run(story)


def test_tokens_of_others_are_told_to_no_viewer() -> None:
    """Neither theirs for the page, nor theirs for publishing; our own page still has its own."""

    async def story() -> None:
        async with (
            Node(None) as node,
            elsewhere(NodeSource(node, "gossipsub"), allow_publish=True) as (theirs, _),
            elsewhere(watched(theirs)) as (ours, _),
        ):
            viewer = await Viewer(ours).enter()
            async with viewer.stream() as seen:
                told = (await anext(seen))[1]["source"]
            assert "token" not in told
            assert not told["allow_publish"]
            assert parse_address(theirs).token not in json.dumps(told)

    run(story)


def test_a_control_socket_that_is_forwarded_is_a_home(tmp_path: Path) -> None:
    """As `ssh -L here/control.sock:…/control.sock` does it: bytes in and out, nothing else."""
    (tmp_path / "here").mkdir()

    async def story() -> None:
        async with Node(tmp_path / "there") as node, node.serve(control=True) as doors:
            assert doors.control is not None
            far = doors.control

            async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while data := await reader.read(65536):
                    writer.write(data)
                writer.close()

            async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                onward = await asyncio.open_unix_connection(far)
                await asyncio.gather(pass_on(reader, onward[1]), pass_on(onward[0], writer))

            server = await asyncio.start_unix_server(forward, socket_path(tmp_path / "here"))
            await node.create_topic("news")
            await node.publish("news", b"hello")
            source = HomeSource(tmp_path / "here")
            found = await source.look(ALL)
            assert (found["source"]["kind"], found["totals"]["published"]) == ("node", 1)
            await source.close()
            server.close()
            await server.wait_closed()

    run(story)
