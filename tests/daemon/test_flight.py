"""The Flight door: whoever has the token reads verified ranges, and publishes each row once."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from certificates import certificate
from rumormill.core.api import Message
from rumormill.core.errors import LocalError
from rumormill.core.event import Event, Note
from rumormill.daemon import flight_messages as messages
from rumormill.daemon import flight_server as server_module
from rumormill.daemon import flight_service as service_module
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.flight_client import DoorClient
from rumormill.daemon.flight_server import open_server
from rumormill.daemon.flight_service import FlightService
from rumormill.log import (
    DamagedRangeError,
    EventLog,
    OffsetAheadError,
    OffsetGoneError,
    Retention,
)
from rumormill.log.arrow import COLUMNS, event_schema, read_batches
from rumormill.log.notes import note_keys, read_note
from rumormill.node.payloads import payload
from store_samples import fill, make_event

TOKEN = "a token of the tests"
ANYWHERE = Endpoint("127.0.0.1", 0)
COLUMN = ("topic", "offset", "value")
ROWS = pa.schema([("topic", pa.string()), ("value", pa.binary())])


class Node:
    """Publishes into a log, until it is told to die."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.dies_after: int | None = None
        self._next = 0

    def publish(self, rows: Sequence[tuple[str, Message, Note]]) -> None:
        if self.dies_after is not None:
            rows = rows[: self.dies_after]
        events = [
            Event(topic, payload(said.data), b"me", b"own-%d" % (self._next + n), received=1.0)
            for n, (topic, said, _) in enumerate(rows)
        ]
        self._next += len(events)
        if events:
            self.log.append(events, notes=[note for _, _, note in rows]).result()
        if self.dies_after is not None:
            raise LocalError("the node is closed")


@pytest.fixture
def node(log: EventLog) -> Node:
    return Node(log)


@pytest.fixture
def server(node: Node) -> Iterator[flight.FlightServerBase]:
    opened = open_server(FlightService(node.log, node.publish), ANYWHERE, TOKEN)
    yield opened
    opened.shutdown()


@pytest.fixture
def client(server) -> Iterator[DoorClient]:
    with DoorClient(f"127.0.0.1:{server.port}", TOKEN) as opened:
        yield opened


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [each for batch in batches for each in batch.column("offset").to_pylist()]


def rows(*values: tuple[str, bytes], cut: int = 3) -> Iterator[pa.RecordBatch]:
    """Rows to publish, in batches of `cut`."""
    return (
        pa.RecordBatch.from_pylist(
            [{"topic": topic, "value": value} for topic, value in values[at : at + cut]], ROWS
        )
        for at in range(0, len(values), cut)
    )


def values_of(log: EventLog, topic: str) -> list[bytes]:
    return [event.data for event in log.read(topic, 0)]


def test_topics_ranges_and_times_are_served(log: EventLog, client: DoorClient) -> None:
    """What the client gets is what the log has."""
    fill(log, 100)
    fill(log, 5, "more")
    extents = [(each.name, each.first_offset, each.next_offset) for each in client.topics()]
    assert extents == [("news", 0, 100), ("more", 0, 5)]
    assert offsets(client.batches("news", 10, 90, COLUMN)) == list(range(10, 90))
    (batch,) = client.batches("news", 7, 8, COLUMNS)
    assert batch.schema == event_schema(COLUMNS)
    assert batch.to_pylist()[0]["value"] == make_event(7).data
    assert client.since("news", 1050.0) == 50
    assert client.since("news", 5000.0) is None


def test_only_committed_events_are_there(log: EventLog, client: DoorClient) -> None:
    """The end that the door names is one up to which everything can be read."""
    for number in range(20):
        log.append([make_event(number)]).result()
        (line,) = client.topics()
        found = offsets(client.batches("news", 0, line.next_offset, COLUMN))
        assert found == list(range(number + 1))


def test_a_plan_can_be_read_in_parallel_parts(log: EventLog, server) -> None:
    """Any Flight client can ask for endpoints; together they are the range."""
    fill(log, 100)
    plain = flight.connect(f"grpc://127.0.0.1:{server.port}")
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    request = b'{"topic": "news", "start": 5, "parts": 4, "columns": ["offset"]}'
    info = plain.get_flight_info(flight.FlightDescriptor.for_command(request), options)
    assert len(info.endpoints) == 4
    assert info.total_records == 95
    found = [plain.do_get(end.ticket, options).read_all() for end in info.endpoints]
    assert pa.concat_tables(found).column("offset").to_pylist() == list(range(5, 100))
    listed = [each.total_records for each in plain.list_flights(options=options)]
    assert listed == [100]
    plain.close()


def test_errors_of_the_store_name_the_range(log: EventLog, client: DoorClient) -> None:
    """Deleted, damaged, not there yet: the client raises what the store raised."""
    fill(log, 100)
    with pytest.raises(OffsetAheadError, match="next offset is 100"):
        list(client.batches("news", 90, 120, COLUMN))
    log.bar_loss("news", 70, 75)
    with pytest.raises(DamagedRangeError) as damaged:
        list(client.batches("news", 50, 100, COLUMN))
    assert (damaged.value.topic, damaged.value.start, damaged.value.end) == ("news", 70, 75)
    log.retain({"news": Retention(max_events=80)}, 2000.0)
    with pytest.raises(OffsetGoneError) as gone:
        list(client.batches("news", 0, 10, COLUMN))
    assert (gone.value.offset, gone.value.first_offset) == (0, 20)


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x"])
def test_without_the_token_nothing_is_told(log: EventLog, server, token: str) -> None:
    """Not even which topics there are."""
    fill(log, 1)
    with DoorClient(f"127.0.0.1:{server.port}", token) as stranger:
        for ask in (
            stranger.topics,
            lambda: stranger.since("news", 0.0),
            lambda: list(stranger.batches("news", 0, 1, COLUMN)),
            lambda: stranger.put("k", None, ROWS, rows(("t", b"v"))),
            lambda: stranger.forget("k"),
        ):
            with pytest.raises(LocalError, match=r"refuses the token.*flight\.token"):
                ask()
    assert log.topic("t") is None


@pytest.mark.parametrize(
    "ticket",
    [b"", b"nonsense", b"{}", b'{"topic": "news", "start": 0}', b'{"topic": 1}', b"x" * 100_000,
     b'{"topic": "news", "start": 0, "stop": 1, "columns": ["nothing"]}'],
)  # fmt: skip
def test_a_ticket_that_is_none_is_refused(log: EventLog, server, ticket: bytes) -> None:
    """With a sentence, not with a crash."""
    fill(log, 1)
    plain = flight.connect(f"grpc://127.0.0.1:{server.port}")
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with pytest.raises((flight.FlightError, pa.ArrowException), match=r"request|column"):
        plain.do_get(flight.Ticket(ticket), options).read_all()
    plain.close()


def test_a_slow_client_costs_one_batch_not_the_range(log: EventLog, server, monkeypatch) -> None:
    """Back-pressure: the door reads on only as the client takes what it has."""
    big = [make_event(n, data=os.urandom(200_000)) for n in range(100)]
    for at in range(0, 100, 10):
        log.append(big[at : at + 10]).result()
    read = []
    real = service_module.read_batches

    def counted(*arguments: object) -> Iterator[pa.RecordBatch]:
        for batch in real(*arguments, batch_bytes=1_000_000):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(service_module, "read_batches", counted)
    with DoorClient(f"127.0.0.1:{server.port}", TOKEN) as slow:
        stream = slow.batches("news", 0, 100, COLUMN)
        taken = next(stream).num_rows
        assert taken + sum(read) < 90, "most of the range is not even read yet"
        assert taken + sum(batch.num_rows for batch in stream) == 100


@contextlib.contextmanager
def idle_streams(log: EventLog, port: int, count: int) -> Iterator[list[Iterator[pa.RecordBatch]]]:
    """So many clients that have taken the first of many batches, and leave the rest lying."""
    for at in range(0, 150, 10):
        log.append([make_event(n, data=os.urandom(200_000)) for n in range(at, at + 10)]).result()
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(DoorClient(f"127.0.0.1:{port}", TOKEN)) for _ in range(count)
        ]
        streams = [each.batches("news", 0, 150, COLUMN) for each in clients]
        for each in streams:
            next(each)
        yield streams


def test_clients_that_stop_reading_make_room_for_others(log: EventLog, monkeypatch) -> None:
    """The one that has been idle for longest is told so when it wants to go on."""
    monkeypatch.setattr(server_module, "MAX_STREAMS", 2)
    monkeypatch.setattr(service_module, "read_batches", partial(read_batches, batch_bytes=10**6))
    counted: list[str] = []
    service = FlightService(log, count=counted.append)
    opened = open_server(service, ANYWHERE, TOKEN, stalled=0.0)
    with idle_streams(log, opened.port, 2) as streams:
        with DoorClient(f"127.0.0.1:{opened.port}", TOKEN) as third:
            while "made-room" not in counted:  # buffers that are not full yet are no idleness
                with contextlib.suppress(LocalError):
                    assert offsets(third.batches("news", 0, 3, COLUMN)) == [0, 1, 2]
        ends: list[int | str] = []
        for each in streams:
            try:
                ends.append(offsets(each)[-1])
            except LocalError as error:
                ends.append(str(error))
        assert 149 in ends
        assert any("was idle for long" in str(end) for end in ends)
        assert counted.count("made-room") == 1
    opened.shutdown()


def test_a_client_that_stops_reading_does_not_keep_the_door_from_closing(
    log: EventLog, monkeypatch
) -> None:
    monkeypatch.setattr(service_module, "read_batches", partial(read_batches, batch_bytes=10**6))
    counted: list[str] = []
    opened = open_server(FlightService(log, count=counted.append), ANYWHERE, TOKEN)
    with idle_streams(log, opened.port, 1) as (stream,):
        opened.close(0.0)
        assert counted == ["cut-off"]
        with pytest.raises(LocalError):
            list(stream)


def test_rows_are_published_in_order(log: EventLog, client: DoorClient) -> None:
    """By the topic of each row, or all in the topic of the request."""
    result = client.put("k", None, ROWS, rows(("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"4")))
    assert result == messages.PutResult(4, 0)
    assert values_of(log, "a") == [b"1", b"3", b"4"]
    assert values_of(log, "b") == [b"2"]
    client.put("other", "c", ROWS, rows(("a", b"5"), ("b", b"6")))
    assert values_of(log, "c") == [b"5", b"6"], "the request's topic wins"
    text = pa.RecordBatch.from_pylist([{"value": "é"}])
    client.put("text", "d", text.schema, iter([text]))
    assert values_of(log, "d") == ["é".encode()]


def test_rows_that_are_sent_again_are_published_once(log: EventLog, client: DoorClient) -> None:
    """The same key and rows: nothing happens. More rows: only those."""
    sent = [("a", b"%d" % n) for n in range(10)]
    assert client.put("k", None, ROWS, rows(*sent)) == messages.PutResult(10, 0)
    assert client.put("k", None, ROWS, rows(*sent, cut=4)) == messages.PutResult(0, 10)
    assert client.put("k", None, ROWS, rows(*sent, ("a", b"x"))) == messages.PutResult(1, 10)
    assert client.put("another key", None, ROWS, rows(*sent)) == messages.PutResult(10, 0)
    assert values_of(log, "a") == [b"%d" % n for n in range(10)] + [b"x"] + [
        b"%d" % n for n in range(10)
    ]


def test_a_node_that_dies_goes_on_where_it_was(
    log: EventLog, node: Node, client: DoorClient, monkeypatch
) -> None:
    """After any number of rows: the next attempt publishes the rest."""
    monkeypatch.setattr(service_module, "PUBLISH_ROWS", 4)
    sent = [("a", b"%d" % n) for n in range(11)]
    for survive in (0, 1, 3, 4):
        node.dies_after = survive
        with pytest.raises(LocalError, match="the node is closed"):
            client.put("k", None, ROWS, rows(*sent))
    node.dies_after = None
    assert client.put("k", None, ROWS, rows(*sent)) == messages.PutResult(3, 8)
    assert values_of(log, "a") == [value for _, value in sent]


@pytest.mark.parametrize("again", [[("a", b"1")], [("a", b"2"), ("a", b"1")], []])
def test_other_rows_under_the_same_key_are_an_error(
    log: EventLog, client: DoorClient, again: list[tuple[str, bytes]]
) -> None:
    """A query that is not the same on replay cannot be published once; it must not go unnoticed."""
    client.put("k", None, ROWS, rows(("a", b"1"), ("a", b"2")))
    with pytest.raises(LocalError, match="not the same on replay"):
        client.put("k", None, ROWS, rows(*again))
    assert values_of(log, "a") == [b"1", b"2"]


@pytest.mark.parametrize(
    ("row", "schema", "complaint"),
    [
        ({"topic": "a"}, None, "need a column value"),
        ({"value": b"v"}, None, "need a column topic"),
        ({"topic": None, "value": b"v"}, ROWS, "no null"),
        ({"topic": "a", "value": None}, ROWS, "no null"),
    ],
)
def test_rows_that_cannot_be_published(client: DoorClient, row, schema, complaint: str) -> None:
    """One sentence says why."""
    batch = pa.RecordBatch.from_pylist([row], schema)
    with pytest.raises(LocalError, match=complaint):
        client.put("k", None, batch.schema, iter([batch]))


def test_what_is_remembered_of_rows_can_be_forgotten(log: EventLog, client: DoorClient) -> None:
    """All keys with a beginning, except those that are to be kept."""
    for key in ("q 1 0", "q 1 1", "q 2 0", "r 1 0"):
        client.put(key, None, ROWS, rows(("a", key.encode())))
    assert client.forget("q ", keep="q 2 ") == 2
    assert note_keys(log, "") == ["q 2 0", "r 1 0"]
    with pytest.raises(LocalError, match="prefix"):
        client.forget("")


@pytest.mark.parametrize(
    "key",
    [
        "moment",
        "members",
        "followed/news",
        "sync/news",
        "deleted/news",
        "access/news",
        "pulsarcast/topic/x",
    ],
)
def test_what_the_node_notes_of_itself_is_not_the_doors(
    log: EventLog, client: DoorClient, key: str
) -> None:
    """Whoever may publish could keep the node from ever starting again, by a note that it reads as
    its own; or have it forget what it follows and how far its numbers have come."""
    log.append([], notes=[Note(key, b"its own")]).result()
    with pytest.raises(LocalError, match="the node itself uses the key"):
        client.put(key, None, ROWS, rows(("a", b"1")))
    client.put(f"{key[0]} of mine", None, ROWS, rows(("a", b"2")))
    assert client.forget(key[0]) == 1
    assert note_keys(log, "") == [key]
    assert read_note(log, key) == b"its own"
    assert values_of(log, "a") == [b"2"]


def test_a_bare_store_does_not_publish(log: EventLog) -> None:
    """It says what does."""
    server = open_server(FlightService(log), ANYWHERE, TOKEN)
    with (
        DoorClient(f"127.0.0.1:{server.port}", TOKEN) as client,
        pytest.raises(LocalError, match="rumormill node --flight"),
    ):
        client.put("k", None, ROWS, rows(("a", b"v")))
    server.shutdown()


def test_a_node_that_is_not_there(log: EventLog) -> None:
    """The sentence names it."""
    server = open_server(FlightService(log), ANYWHERE, TOKEN)
    port = server.port
    server.shutdown()
    with (
        DoorClient(f"127.0.0.1:{port}", TOKEN) as client,
        pytest.raises(LocalError, match=f"node at 127.0.0.1:{port} cannot be reached"),
    ):
        client.topics()


def test_a_door_that_cannot_be_opened(log: EventLog, server) -> None:
    """Its address is in the sentence, and why."""
    with pytest.raises(LocalError, match=r"flight: cannot listen on 256\.0\.0\.1:1"):
        open_server(FlightService(log), Endpoint("256.0.0.1", 1), TOKEN)
    taken = f"flight: cannot listen on 127.0.0.1:{server.port}: Address already in use"
    with pytest.raises(LocalError, match=taken):
        open_server(FlightService(log), ANYWHERE._replace(port=server.port), TOKEN)


def test_the_token_is_made_once_and_private(tmp_path: Path) -> None:
    """Nobody else may read it; one that others can read is refused."""
    token = messages.load_or_create_token(tmp_path / "home")
    path = tmp_path / "home" / messages.TOKEN_FILE
    assert len(token) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert messages.load_or_create_token(tmp_path / "home") == token
    path.chmod(0o640)
    with pytest.raises(LocalError, match="chmod 600"):
        messages.load_or_create_token(tmp_path / "home")
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(LocalError, match="holds no token"):
        messages.load_or_create_token(tmp_path / "home")


def test_tls(log: EventLog, tmp_path: Path) -> None:
    """With the right root it works; without, or without TLS, it does not."""
    fill(log, 3)
    cert, key = [path.read_bytes() for path in certificate(tmp_path, "127.0.0.1")]
    server = open_server(FlightService(log), ANYWHERE, TOKEN, tls=(cert, key))
    endpoint = f"127.0.0.1:{server.port}"
    with DoorClient(endpoint, TOKEN, tls=True, roots=cert.decode()) as client:
        assert offsets(client.batches("news", 0, 3, COLUMN)) == [0, 1, 2]
    for other in ({"tls": True}, {}):
        with (
            DoorClient(endpoint, TOKEN, **other) as client,
            pytest.raises(LocalError, match="cannot be reached"),
        ):
            client.topics()
    server.shutdown()
