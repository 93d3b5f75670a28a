"""The control socket: private, bounded, honest about what went wrong, and it pushes back."""

import asyncio
import contextlib
import os
import socket
import stat
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live_nodes import run, until
from rumormill.core.errors import LocalError, RumormillError
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_client import ControlClient, NoDaemonError
from rumormill.daemon.control_errors import error_code
from rumormill.daemon.control_messages import socket_path
from rumormill.daemon.control_server import ControlServer
from rumormill.daemon.control_service import NodeService, expected
from rumormill.node.node import Node


class Watched(NodeService):
    """A service that counts what is taken from it, and may be held."""

    server: ControlServer

    def __init__(self, node: Node) -> None:
        super().__init__(node, "gossipsub")
        self.node = node
        self.gate = asyncio.Event()
        self.gate.set()
        self.publications = 0
        self.handed_out = 0
        self.refused: Counter[str] = Counter()

    async def answer(self, request: messages.Request) -> messages.Answer:
        if isinstance(request, messages.Publish):
            self.publications += 1
            await self.gate.wait()
        return await super().answer(request)

    async def subscribe(
        self, request: messages.Subscribe
    ) -> AsyncIterator[messages.Begun | messages.Events]:
        async with contextlib.aclosing(super().subscribe(request)) as batches:
            async for batch in batches:
                if isinstance(batch, messages.Events):
                    self.handed_out += len(batch.events)
                yield batch


@contextlib.asynccontextmanager
async def daemon(home: Path, **options: float) -> AsyncIterator[tuple[Watched, Path]]:
    """A node in memory behind a control socket."""
    async with Node(None) as node:
        service = Watched(node)
        server = ControlServer(
            service, socket_path(home), lambda reason: service.refused.update([reason]), **options
        )
        service.server = server
        await server.start()
        try:
            yield service, socket_path(home)
        finally:
            await server.close()


@contextlib.asynccontextmanager
async def client_of(path: Path) -> AsyncIterator[ControlClient]:
    """A command's connection."""
    client = await ControlClient.connect(path)
    try:
        yield client
    finally:
        await client.close()


def expected_refusal(answer: messages.Answer | None) -> str:
    """The code of a refusal, which the answer must be."""
    assert isinstance(answer, messages.Refused)
    return answer.code


@contextlib.asynccontextmanager
async def raw(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which anything can be sent."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield reader, writer
    finally:
        writer.close()


def test_only_the_owner_can_open_the_socket_and_it_goes_with_the_daemon(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(tmp_path) as (_, path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()

    run(story)


def test_every_operation_answers_over_the_socket_as_it_does_inside(tmp_path: Path) -> None:
    """A command cannot tell whether the node is its own."""

    async def story() -> None:
        async with daemon(tmp_path) as (service, path), client_of(path) as client:
            assert await client.welcome() == await service.welcome()
            receipts = await client.publish("news", [b"one", b"\xff\x00", b""])
            assert [receipt.offset for receipt in receipts] == [0, 1, 2]
            stored = await client.history("news", limit=10)
            assert stored == await service.history("news", limit=10)
            assert [event.data for event in stored.events] == [b"one", b"\xff\x00", b""]
            assert (await client.history("news", offset=-1, limit=10)).events == stored.events[2:]
            assert await client.topics() == await service.topics()
            assert await client.peers() == []
            async with Node(None) as other:
                await client.join(other.tickets[0])
                (peer,) = await client.peers()
                assert peer.id == other.id
                await other.subscribe("news")
                await client.wait("news", 1, 30.0)
                (receipt,) = await client.publish("news", [b"two"])
                assert receipt.peers == 1

    run(story)


def test_a_subscription_begins_where_it_was_told_and_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(tmp_path) as (_, path), client_of(path) as client:
            await client.publish("t", [b"%d" % number for number in range(10)])
            async with contextlib.aclosing(client.subscribe(messages.Subscribe("t", 7))) as batches:
                assert await anext(batches) == messages.Begun(7)
                seen: list[bytes] = []
                while len(seen) < 3:
                    seen += [event.data for event in (await anext(batches)).events]
                await client.publish("t", [b"new"])
                seen += [event.data for event in (await anext(batches)).events]
                assert seen == [b"7", b"8", b"9", b"new"]

    run(story)


def test_a_node_leaves_a_topic_with_its_last_reader_unless_it_follows_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(tmp_path) as (service, path), client_of(path) as client:
            await service.node.create_topic("joined")
            (await service.node.subscribe("followed")).close()

            async def subscribed() -> list[str]:
                return [line.name for line in (await client.topics()).topics if line.subscribed]

            for topic in ("joined", "followed", "left"):
                async with contextlib.aclosing(
                    client.subscribe(messages.Subscribe(topic))
                ) as batches:
                    await anext(batches)
                    assert topic in await subscribed()
            while await subscribed() != ["followed", "joined"]:
                pass  # each look is a round trip to the daemon

    run(story)


def test_readers_come_and_go_beside_the_application() -> None:
    """Whoever reads for a command ends no subscription but its own."""

    async def story() -> None:
        async with Node(None) as node:
            service = NodeService(node, "gossipsub")
            for follow in (True, False):
                async with contextlib.aclosing(
                    service.subscribe(messages.Subscribe("news"))
                ) as batches:
                    await anext(batches)
                    own = await node.subscribe("news", follow=follow)
                await service.publish("news", [b"still here"])
                assert (await anext(own)).data == b"still here"
                own.close()
                assert (await service.topics()).topics[0].subscribed == follow
                await node.unsubscribe("news")

    run(story)


def test_a_reader_who_does_not_read_is_waited_for_and_loses_nothing(tmp_path: Path) -> None:
    """Ten megabytes are published; a fraction leaves the log before the reader reads."""

    async def story() -> None:
        total, size = 5000, 2048
        async with daemon(tmp_path) as (service, path), raw(path) as (reader, writer):
            writer.write(messages.encode(messages.Subscribe("t")))
            assert await messages.read_answer(reader) == messages.Begun(0)
            for start in range(0, total, 250):
                await service.publish(
                    "t", [b"%d" % n + bytes(size) for n in range(start, start + 250)]
                )
            assert service.handed_out * size < 4 * messages.BATCH_BYTES
            offsets: list[int] = []
            while len(offsets) < total:
                batch = await messages.read_answer(reader)
                assert isinstance(batch, messages.Events)
                assert batch.lost == 0
                offsets += [event.offset for event in batch.events]
            assert offsets == list(range(total))

    run(story)


def test_a_publisher_is_read_no_faster_than_the_node_publishes(tmp_path: Path) -> None:
    """One request of a client is carried out at a time; the others wait in the socket."""

    async def story() -> None:
        async with daemon(tmp_path) as (service, path), raw(path) as (reader, writer):
            service.gate.clear()
            for number in range(3):
                writer.write(
                    messages.encode(messages.Publish("t", [messages.Said(b"%d" % number)]))
                )
            await until(lambda: service.publications, "the first request was taken")
            async with client_of(path) as other:  # the daemon has time for others
                await other.topics()
            assert service.publications == 1
            service.gate.set()
            for number in range(3):
                answer = await messages.read_answer(reader)
                assert isinstance(answer, messages.Receipts)
                assert answer.receipts[0].offset == number

    run(story)


def test_a_frame_without_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(tmp_path) as (_, path), raw(path) as (reader, writer):
            writer.write(b"\xff\xff\xff\xff")
            answer = await messages.read_answer(reader)
            assert isinstance(answer, messages.Refused)
            assert answer.code == "too-large"
            assert await messages.read_answer(reader) is None

    run(story)


def test_what_is_no_request_is_refused_and_the_next_one_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(tmp_path) as (_, path), raw(path) as (reader, writer):
            unknown = msgspec.msgpack.encode({"type": "format-disk"})
            wrong = msgspec.msgpack.encode({"type": "publish", "topic": 7, "data": []})
            for body in (b"", b"\xc1", unknown, wrong):
                writer.write(len(body).to_bytes(4) + body)
                answer = await messages.read_answer(reader)
                assert isinstance(answer, messages.Refused)
                assert answer.code == "not-understood"
            writer.write(messages.encode(messages.ListPeers()))
            assert await messages.read_answer(reader) == messages.PeerList([])

    run(story)


REFUSED = {
    "another version": (messages.Hello(99), "version"),
    "an empty batch": (messages.Publish("t", []), "failed"),
    "a batch too long": (
        messages.Publish("t", [messages.Said(b"")] * (messages.BATCH_EVENTS + 1)),
        "failed",
    ),
    "a topic without name": (messages.Publish("", [messages.Said(b"x")]), "limit"),
    "a topic that is none": (messages.Subscribe("a\0b"), "limit"),
    "a message too large": (messages.Publish("t", [messages.Said(bytes(3 << 20))]), "limit"),
    "no ticket": (messages.Join("nonsense"), "failed"),
    "nobody who listens": (messages.Wait("t", 1, 0.01), "timeout"),
    "an offset that never was": (messages.ReadHistory("t", 99), "ahead"),
}


@pytest.mark.parametrize(("request_", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_is_said_in_one_sentence(
    request_: messages.Request, code: str, tmp_path: Path
) -> None:
    """The connection goes on afterwards."""

    async def story() -> None:
        async with daemon(tmp_path) as (_, path), client_of(path) as client:
            with pytest.raises(RumormillError) as raised:
                expected(await client.answer(request_), messages.Done)
            assert error_code(raised.value) == code
            assert "\n" not in str(raised.value)
            if not isinstance(request_, messages.Subscribe):
                assert await client.peers() == []

    run(story)


def test_one_client_too_many_is_told_so_and_what_to_do(tmp_path: Path) -> None:
    """However late it speaks: the sentence is not lost in a connection that is reset."""

    async def story() -> None:
        async with daemon(tmp_path, max_clients=2) as (service, path):
            async with client_of(path), client_of(path):
                for turn in range(20):
                    with pytest.raises(
                        messages.ControlError, match="serves 2 commands already: end"
                    ) as raised:
                        await ControlClient.connect(path)
                    assert raised.value.code == "busy"
                    assert service.refused == {"busy": turn + 1}
                async with raw(path) as (reader, writer):
                    await until(lambda: service.refused["busy"] == 21, "it is turned away")
                    await asyncio.sleep(0.01)  # the daemon has said it all
                    writer.write(messages.encode(messages.Hello()))
                    await writer.drain()
                    assert expected_refusal(await messages.read_answer(reader)) == "busy"
            async with contextlib.AsyncExitStack() as stack:
                while True:  # until the daemon has seen that they are gone
                    with contextlib.suppress(messages.ControlError):
                        await stack.enter_async_context(client_of(path))
                        break

    run(story)


def test_clients_that_do_not_read_make_room_for_others(tmp_path: Path) -> None:
    """They have all places, each with a full buffer; who reads, or is sent nothing, stays."""

    async def story() -> None:
        async with daemon(tmp_path, max_clients=3, stalled=0.0) as (service, path):
            await service.node.publish_many("bulk", [bytes(100_000)] * 200)
            async with client_of(path) as client, contextlib.AsyncExitStack() as stack:
                for _ in range(2):
                    _, writer = await stack.enter_async_context(raw(path))
                    writer.write(messages.encode(messages.Subscribe("bulk", offset=0)))

                def stuck() -> int:
                    clients = service.server._clients.values()
                    return sum(each.stalled_since is not None for each in clients)

                await until(lambda: stuck() == 2, "neither takes more")
                for count in range(1, 3):
                    newcomer = await stack.enter_async_context(client_of(path))
                    assert await newcomer.peers() == []
                    assert service.refused == {"made-room": count}
                with pytest.raises(messages.ControlError, match="serves 3 commands already"):
                    await ControlClient.connect(path)
                assert await client.peers() == []
                assert service.handed_out < 200

    run(story)


def test_a_flood_of_requests_is_answered_one_a_turn(tmp_path: Path) -> None:
    """All of them at once in the socket: another client is answered among them, and no callback
    holds the loop for long, which is watched behind every test."""

    async def story() -> None:
        async with daemon(tmp_path) as (service, path), client_of(path) as client:
            async with raw(path) as (reader, writer):
                writer.write(messages.encode(messages.Hello()) * 5000)
                answers = 0

                async def read() -> None:
                    nonlocal answers
                    while answers < 5000:
                        assert not isinstance(await messages.read_answer(reader), messages.Refused)
                        answers += 1
                        await asyncio.sleep(0)

                reading = asyncio.ensure_future(read())
                await until(lambda: answers > 10, "it is being answered")
                assert await client.peers() == []
                assert answers < 5000
                await reading
            assert not service.refused

    run(story)


def test_whoever_is_turned_away_and_stays_takes_no_place(tmp_path: Path) -> None:
    """As many as may be served are told so at a time; the others are hung up on."""

    async def story() -> None:
        async with (
            daemon(tmp_path, max_clients=1) as (service, path),
            client_of(path) as client,
            raw(path) as (told, _),
        ):
            assert expected_refusal(await messages.read_answer(told)) == "busy"
            async with raw(path) as (reader, _):
                assert await reader.read() == b""
            assert service.refused == {"busy": 2}
            assert await client.peers() == []

    run(story)


def test_a_client_that_says_nothing_is_let_go_and_one_that_has_spoken_may_pause(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with (
            daemon(tmp_path, max_clients=2, patience=0.1) as (service, path),
            client_of(path) as client,
        ):
            async with raw(path) as (reader, writer):
                writer.write(messages.encode(messages.ListPeers())[:3])
                assert expected_refusal(await messages.read_answer(reader)) == "silent"
                assert await reader.read() == b""
            assert service.refused == {"silent": 1}
            assert await client.peers() == [], "who has spoken is waited for"

    run(story)


def test_whoever_is_connected_when_the_daemon_stops_is_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            _, path = await stack.enter_async_context(daemon(tmp_path))
            client = await ControlClient.connect(path)
            batches = client.subscribe(messages.Subscribe("t"))
            await anext(batches)
            await stack.aclose()
            with pytest.raises(messages.ControlError):
                await anext(batches)
            with pytest.raises(messages.ControlError):
                await client.peers()
            await client.close()

    run(story)


def test_a_socket_that_nobody_serves_is_explained_and_replaced(tmp_path: Path) -> None:
    path = socket_path(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def story() -> None:
        with pytest.raises(NoDaemonError, match="died and left its socket"):
            await ControlClient.connect(path)
        async with daemon(tmp_path), client_of(path) as client:
            assert await client.peers() == []
        with pytest.raises(NoDaemonError):
            await ControlClient.connect(path)

    run(story)


def test_a_socket_that_somebody_serves_is_left_to_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with daemon(tmp_path) as (_, path):
            with pytest.raises(LocalError, match="already serves"):
                async with daemon(tmp_path):
                    pass
            async with client_of(path) as client:
                assert await client.peers() == []

    run(story)


def test_a_file_in_the_sockets_place_is_not_removed(tmp_path: Path) -> None:
    socket_path(tmp_path).write_text("precious")

    async def story() -> None:
        with pytest.raises(LocalError, match="is not a socket"):
            async with daemon(tmp_path):
                pass

    run(story)
    assert socket_path(tmp_path).read_text() == "precious"


@settings(max_examples=15)
@given(noise=st.lists(st.binary(max_size=200), max_size=5))
def test_noise_harms_nobody_else(
    noise: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever bytes one client sends, another is served."""

    async def story() -> None:
        home = Path(os.fspath(tmp_path_factory.getbasetemp()))
        async with daemon(home) as (_, path):
            async with raw(path) as (_, writer):
                for data in noise:
                    writer.write(data)
                writer.write_eof()
            async with client_of(path) as client:
                assert await client.peers() == []

    run(story)
