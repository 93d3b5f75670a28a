"""The Flight server around a service; imported when a door is opened, since it needs pyarrow.

Reads and writes have a bounded number of places. A client that stops in the midst of one, and
takes or sends nothing, keeps its place until somebody else needs it, and holds up no end of the
door: gRPC would wait for it for ever.
"""

import contextlib
import hmac
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as arrow
from pyarrow import flight

from rumormill.core.errors import LocalError, RumormillError
from rumormill.daemon import flight_messages as messages
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.flight_service import FlightService, columns_of
from rumormill.log.arrow import event_schema
from rumormill.log.places import offsets_of

MAX_STREAMS: Final = 32
"""Our choice: reads and writes at a time; each holds a batch, and the log has few readers."""

STALLED: Final = 60.0
"""Seconds after which a stream whose client does nothing makes room for another, as at the doors
that speak HTTP."""

LAST_WORDS: Final = 5.0
"""Seconds for which streams go on when the door closes, as a node's queues do."""


class Place:
    """The place of one stream."""

    __slots__ = ("gone", "idle_since")

    def __init__(self) -> None:
        self.idle_since: float | None = None
        """Since when it is the client's turn; None while it is ours."""
        self.gone = ""
        """Why it is over, to be told when the client moves again."""

    def passing(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches to a client, with its turn behind each."""
        for batch in batches:
            self.idle_since = time.monotonic()
            yield batch
            self._ours()

    def coming(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches from a client, with its turn before each."""
        while True:
            self.idle_since = time.monotonic()
            batch = next(batches, None)
            self._ours()
            if batch is None:
                return
            yield batch

    def _ours(self) -> None:
        self.idle_since = None
        if self.gone:
            raise LocalError(self.gone)


class Places:
    """The streams at a time. Used by the threads of all of them."""

    def __init__(self, most: int, stalled: float, count: Callable[[str], None]) -> None:
        self._most, self._stalled, self._count = most, stalled, count
        self._lock = threading.Lock()
        self._taken: dict[Place, None] = {}

    @contextlib.contextmanager
    def one(self) -> Iterator[Place]:
        """A place, if need be that of who has been idle for longest."""
        place = Place()
        with self._lock:
            if len(self._taken) >= self._most:
                self._make_room()
            self._taken[place] = None
        try:
            yield place
        finally:
            with self._lock:
                self._taken.pop(place, None)

    def _make_room(self) -> None:
        idle = [(each.idle_since, each) for each in self._taken if each.idle_since is not None]
        since, longest = min(idle, key=lambda each: each[0], default=(0.0, None))
        if longest is None or time.monotonic() - since < self._stalled:
            self._count("busy")
            raise LocalError(f"the door serves {self._most} streams already; try again")
        self._count("made-room")
        del self._taken[longest]
        longest.gone = "this stream was idle for long, and others waited: begin again"

    def end(self) -> None:
        """Count those that are cut off."""
        with self._lock:
            for place in self._taken:
                self._count("cut-off")
                place.gone = "the door is closed"


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Flight's methods; each hands over to the service."""

    def __init__(
        self, service: FlightService, location: str, stalled: float = STALLED, **settings: Any
    ) -> None:
        super().__init__(location, **settings)
        self._service = service
        self._places = Places(MAX_STREAMS, stalled, service.count)

    def close(self, last_words: float = LAST_WORDS) -> None:
        """Listen no more, and wait for streams as long as they may take."""
        ending = threading.Thread(target=self.shutdown, name="rumormill-flight-end", daemon=True)
        ending.start()
        ending.join(last_words)
        if ending.is_alive():
            self._places.end()
            _hang_up(self.port)
            ending.join()

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """Every topic."""
        with _errors_sent():
            for line in self._service.log.topics():
                yield self._info(messages.PlanRequest(line.name))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """A topic, or a range of it, as endpoints that can be read at the same time."""
        with _errors_sent():
            return self._info(messages.decode(descriptor.command or b"", messages.PlanRequest))

    def _info(self, request: messages.PlanRequest) -> Any:
        ranges = self._service.ranges(request)
        ends = [flight.FlightEndpoint(msgspec.json.encode(each), []) for each in ranges]
        named = flight.FlightDescriptor.for_command(msgspec.json.encode(request))
        rows = ranges[-1].stop - ranges[0].start
        return flight.FlightInfo(event_schema(columns_of(request)), named, ends, rows, -1)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """A range."""
        with _errors_sent():
            request = messages.decode(ticket.ticket, messages.RangeRequest)
            schema = event_schema(columns_of(request))
        return flight.GeneratorStream(schema, self._stream(request))

    def _stream(self, request: messages.RangeRequest) -> Iterator[Any]:
        with _errors_sent(), self._places.one() as place:
            yield from place.passing(self._service.batches(request))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Rows to publish."""
        with _errors_sent(), self._places.one() as place:
            request = messages.decode(descriptor.command or b"", messages.PutRequest)
            result = self._service.put(request, place.coming(chunk.data for chunk in reader))
            writer.write(msgspec.json.encode(result))

    def do_action(self, context: Any, action: Any) -> list[Any]:
        """Small questions."""
        body = action.body.to_pybytes()
        with _errors_sent():
            match action.type:
                case "topics":
                    answer: Any = self._service.log.topics()
                case "since":
                    answer = self._service.since(messages.decode(body, messages.SinceRequest))
                case "places":
                    asked = messages.decode(body, messages.PlacesRequest)
                    answer = offsets_of(self._service.log, asked.topic, asked.ids)
                case "fetch-history":
                    with self._places.one():
                        request = messages.decode(body, messages.FetchRequest)
                        answer = self._service.fetch(request)
                case "forget":
                    answer = self._service.forget(messages.decode(body, messages.ForgetRequest))
                case _:
                    raise LocalError(f"there is no action {action.type!r}")
        return [flight.Result(msgspec.json.encode(answer))]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """What can be asked."""
        return [
            ("topics", "every topic with its first and next offset"),
            ("since", "the first offset received at a time or later"),
            ("places", "the offsets of events by their ids"),
            ("fetch-history", "get a topic's history beyond the log into the log"),
            ("forget", "drop the notes of rows that are never sent again"),
        ]


def _hang_up(port: int) -> None:
    """Shut the sockets of a server's clients down: gRPC ends no call that its client leaves lying,
    and waits for all of them."""
    for name in os.listdir("/dev/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:  # that of the listing itself
            continue
        try:
            found = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            continue
        with found, contextlib.suppress(OSError):  # nobody may be at its other end
            if found.type == socket.SOCK_STREAM and found.getsockname()[1:2] == (port,):
                found.shutdown(socket.SHUT_RDWR)


class Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets those in who have the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        """Look at a call's header before anything else is read of it."""
        given = next(
            (each for name, each in headers.items() if name.lower() == "authorization"), ()
        )
        text = str(given[0]) if given else ""
        if not hmac.compare_digest(text.encode(), self._expected):
            raise flight.FlightUnauthenticatedError("the token is missing or wrong")


def open_server(
    service: FlightService,
    endpoint: Endpoint,
    token: str,
    *,
    tls: tuple[bytes, bytes] | None = None,
    stalled: float = STALLED,
) -> Server:
    """Serve until `close` is called; `port` says where, also when the system chose it.

    `tls` is a certificate and its key, both in PEM.
    """
    try:
        endpoint.try_to_listen()  # gRPC fails without a reason
        return Server(
            service,
            f"{'grpc+tls' if tls else 'grpc+tcp'}://{endpoint}",
            stalled,
            middleware={"token": Guard(token)},
            tls_certificates=None if tls is None else [tls],
        )
    except (arrow.ArrowException, OSError, ValueError) as error:
        first = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        raise LocalError(f"flight: cannot listen on {endpoint}: {first}") from None


@contextlib.contextmanager
def _errors_sent() -> Iterator[None]:
    """Tell the client of the store's errors in a form that it can raise again."""
    try:
        yield
    except RumormillError as error:
        fault = messages.fault_of(error)
        raise flight.FlightServerError(
            fault.sentence, extra_info=msgspec.json.encode(fault)
        ) from None
