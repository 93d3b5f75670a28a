"""The Flight server around a service; imported when a door is opened, since it needs pyarrow."""

import contextlib
import hmac
import threading
from collections.abc import Iterator
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


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Flight's methods; each hands over to the service."""

    def __init__(self, service: FlightService, location: str, **settings: Any) -> None:
        super().__init__(location, **settings)
        self._service = service
        self._slots = threading.BoundedSemaphore(MAX_STREAMS)

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
        with _errors_sent(), self._slot():
            yield from self._service.batches(request)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Rows to publish."""
        with _errors_sent(), self._slot():
            request = messages.decode(descriptor.command or b"", messages.PutRequest)
            result = self._service.put(request, (chunk.data for chunk in reader))
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
                    with self._slot():
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

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(blocking=False):
            raise LocalError(f"the door serves {MAX_STREAMS} streams already; try again")
        try:
            yield
        finally:
            self._slots.release()


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
) -> Server:
    """Serve until `shutdown` is called; `port` says where, also when the system chose it.

    `tls` is a certificate and its key, both in PEM.
    """
    try:
        endpoint.try_to_listen()  # gRPC fails without a reason
        return Server(
            service,
            f"{'grpc+tls' if tls else 'grpc+tcp'}://{endpoint}",
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
