"""`Node.serve`: all doors are open or none is, one sentence says why, and nothing stays behind."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import rumormill.daemon
from live_nodes import run, until
from rumormill import LocalError, Node, StoreConfig, SyncNode
from rumormill.daemon import flight_door
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import ControlError, Subscribe, socket_path
from rumormill.daemon.flight_client import DoorClient
from rumormill.daemon.flight_messages import ENDPOINT_FILE, TOKEN_FILE

ANYWHERE = "127.0.0.1:0"
ROWS = pa.schema([("value", pa.binary())])
SOURCES = Path(rumormill.daemon.__file__).parents[2]


@pytest.fixture
def taken() -> Iterator[str]:
    """HOST:PORT where somebody else listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def rows(*values: bytes) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"value": value} for value in values], ROWS)


async def page_at(endpoint: str) -> str:
    """The metrics page."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def published_by_command(path: Path, topic: str, data: bytes) -> int:
    """Publish through a control socket; return the event's offset."""
    client = await ControlClient.connect(path)
    (receipt,) = await client.publish(topic, [data])
    await client.close()
    return receipt.offset


def published_by_flight(endpoint: str, token: str, topic: str, data: bytes) -> int:
    """Publish through a Flight door; return how many events the topic has then."""
    with DoorClient(endpoint, token) as client:
        client.put("a key", topic, ROWS, rows(data))
        return {line.name: line.next_offset for line in client.topics()}[topic]


def listens(endpoint: str) -> bool:
    """Whether anybody is there."""
    host, _, port = endpoint.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_program_opens_every_door_of_its_own_node(home: Path) -> None:
    """A command, a scraper and a Flight client use it; then the node is alone again, and lives."""

    async def story() -> None:
        async with Node(home, control=False) as node:
            async with node.serve(control=True, metrics=ANYWHERE, flight=ANYWHERE) as doors:
                assert doors.control == socket_path(home)
                assert await published_by_command(doors.control, "news", b"a command") == 0
                found = await asyncio.to_thread(
                    published_by_flight, doors.flight, doors.token, "news", b"a Flight client"
                )
                assert found == 2
                assert 'topic_msg_published_total{topic="news"} 2\n' in await page_at(doors.metrics)
                assert (home / TOKEN_FILE).read_text().strip() == doors.token
                assert (home / ENDPOINT_FILE).exists()
            assert not doors.control.exists()
            assert not (home / ENDPOINT_FILE).exists()
            assert not listens(doors.metrics)
            assert not listens(doors.flight)
            assert (await node.publish("news", b"the node")).offset == 2

    run(story)


def test_what_was_not_asked_for_is_not_open(home: Path) -> None:
    async def story() -> None:
        async with Node(home, control=False) as node, node.serve(metrics=ANYWHERE) as doors:
            assert (doors.control, doors.flight, doors.token) == (None, None, None)
            assert not socket_path(home).exists()
            assert not (home / TOKEN_FILE).exists()

    run(story)


def test_doors_may_stay_open_as_long_as_the_node(home: Path) -> None:
    """`await` opens them; closing the node closes them first, and tells who is inside."""

    async def story() -> None:
        node = Node(home, control=False)
        await node.start()
        doors = await node.serve(control=True, flight=ANYWHERE)
        page = await node.serve(metrics=ANYWHERE)
        client = await ControlClient.connect(doors.control)
        batches = client.subscribe(Subscribe("news"))
        await anext(batches)
        await node.close()
        with pytest.raises(ControlError):
            await anext(batches)
        await client.close()
        assert not doors.control.exists()
        assert not listens(doors.flight)
        assert not listens(page.metrics)
        await doors.close()  # once more changes nothing

    run(story)


def test_closed_doors_are_not_opened_again(home: Path) -> None:
    async def story() -> None:
        async with Node(home, control=False) as node:
            async with await node.serve(control=True) as doors:
                assert await doors is doors, "what is open is open"
            with pytest.raises(LocalError, match="have been closed"):
                await doors
            waiting = node.serve(metrics=ANYWHERE)
        with pytest.raises(LocalError, match="have been closed"):
            await waiting
        with pytest.raises(LocalError, match="not running"):
            node.serve(control=True)

    run(story)


@pytest.mark.parametrize("door", ["metrics", "flight"])
def test_a_port_in_use_closes_what_was_open_already(home: Path, taken: str, door: str) -> None:
    """The sentence names the door, the address and the reason."""

    async def story() -> None:
        async with Node(home, control=False) as node:
            wishes = {"control": True, "metrics": ANYWHERE, "flight": ANYWHERE, door: taken}
            doors = node.serve(**wishes)
            with pytest.raises(LocalError, match=rf"(?i){door}: cannot .*{taken}.*already in use"):
                await doors
            assert not socket_path(home).exists()
            assert not (home / ENDPOINT_FILE).exists()
            assert doors.metrics is None or not listens(doors.metrics)
            async with node.serve(control=True) as doors:
                assert await published_by_command(doors.control, "news", b"still served") == 0

    run(story)


def test_without_pyarrow_the_sentence_names_the_extra(home: Path, monkeypatch) -> None:
    async def story() -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        async with Node(home, control=False) as node:
            with pytest.raises(rumormill.RumormillError, match=r"pip install rumormill\[arrow\]"):
                await node.serve(control=True, flight=ANYWHERE)
            assert not socket_path(home).exists()

    run(story)


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"control": True}, "control: .* this node has none; give `home`"),
        ({"metrics": "9464"}, "metrics: '9464' is not HOST:PORT, such as 127.0.0.1:9464"),
        ({"flight": "here"}, "flight: 'here' is not HOST:PORT, such as 127.0.0.1:4020"),
        ({"flight": ANYWHERE, "tls": ("no.pem", "no.key")}, "tls: cannot read no.pem"),
    ],
)
def test_what_cannot_be_served(wishes: dict[str, object], sentence: str) -> None:
    async def story() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError, match=sentence):
                await node.serve(**wishes)

    run(story)


def test_a_node_in_memory_is_served_too(tmp_path: Path) -> None:
    """Flight has a token for this time only; a socket needs a directory."""

    async def story() -> None:
        async with Node(None) as node:
            async with node.serve(flight=ANYWHERE) as doors:
                await asyncio.to_thread(
                    published_by_flight, doors.flight, doors.token, "news", b"1"
                )
            async with node.serve(control=True, flight=ANYWHERE, home=tmp_path / "new") as doors:
                assert await published_by_command(doors.control, "news", b"2") == 1
                assert (tmp_path / "new" / TOKEN_FILE).read_text().strip() == doors.token

    run(story)


def test_who_is_publishing_is_let_finish(home: Path) -> None:
    """The node works until the door is closed: every row that was sent has its place in the log."""

    async def story() -> None:
        async with Node(home, control=False) as node:
            doors = await node.serve(flight=ANYWHERE)
            begun, going_on = threading.Event(), threading.Event()

            def slowly() -> Iterator[pa.RecordBatch]:
                yield from rows(b"before")
                begun.set()
                going_on.wait()
                yield from rows(b"after")

            def publish() -> None:
                with DoorClient(doors.flight, doors.token) as client:
                    client.put("a key", "news", ROWS, slowly())

            publishing = asyncio.ensure_future(asyncio.to_thread(publish))
            await asyncio.to_thread(begun.wait)
            closing = asyncio.ensure_future(node.close())
            await until(lambda: not (home / ENDPOINT_FILE).exists(), "the door is being closed")
            going_on.set()
            await publishing
            await closing
        async with Node(home) as node:
            assert [event.data for event in await node.history("news")] == [b"before", b"after"]

    run(story)


def test_opening_that_is_given_up_leaves_nothing_open(home: Path, monkeypatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(flight_door.messages, "flight_library", gate.wait)

    async def story() -> None:
        async with Node(home, control=False) as node:
            opening = asyncio.ensure_future(node.serve(control=True, flight=ANYWHERE).__aenter__())
            await until(socket_path(home).exists, "the first door is open")
            opening.cancel()
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert not socket_path(home).exists()
            assert not (home / ENDPOINT_FILE).exists()

    run(story)


def test_ranges_are_sealed_while_the_door_is_open(home: Path) -> None:
    async def story() -> None:
        async with Node(home, store=StoreConfig(segment_rows=4)) as node:
            await node.publish_many("news", [b"%d" % number for number in range(8)])
            async with node.serve(flight=ANYWHERE):
                await until(
                    lambda: node.metrics()["rumormill_log_segments"]["sealed"] == 2,
                    "both ranges are sealed",
                )

    run(story)


def test_scripts_serve_too(home: Path) -> None:
    with SyncNode(home, control=False) as node:
        with node.serve(control=True, metrics=ANYWHERE, flight=ANYWHERE) as doors:
            assert published_by_flight(doors.flight, doors.token, "news", b"rain") == 1
            page = run(lambda: page_at(doors.metrics))
            assert 'topic_msg_published_total{topic="news"} 1\n' in page
            assert run(lambda: published_by_command(doors.control, "news", b"sun")) == 1
        assert not listens(doors.flight)
        with node.serve(dashboard=ANYWHERE) as doors:
            assert "/?token=" in doors.dashboard
        doors = node.serve(metrics=ANYWHERE)
    assert not listens(doors.metrics)
    doors.close()  # once more changes nothing


def test_a_script_that_closes_nothing_leaves_nothing_behind(home: Path) -> None:
    """Its node, doors and all, is closed when the program ends."""
    program = (
        "import sys\n"
        "from rumormill import SyncNode\n"
        "node = SyncNode(sys.argv[1]).start()\n"
        f"node.serve(control=True, metrics={ANYWHERE!r}, flight={ANYWHERE!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(home)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not socket_path(home).exists()
    assert not (home / ENDPOINT_FILE).exists()


def test_who_opens_no_flight_door_does_not_import_arrow() -> None:
    """Every module but the server itself, and a node."""
    found = Path(rumormill.daemon.__file__).parent.glob("[a-z]*.py")
    names = sorted(f"rumormill.daemon.{path.stem}" for path in found)
    names.remove("rumormill.daemon.flight_server")
    code = (
        f"import sys, rumormill.node.node, {', '.join(names)}\nassert 'pyarrow' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(SOURCES)}
    )
