"""The Flight server around a shelf; imported when a door is opened, since it needs pyarrow."""

import contextlib
import hmac
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pyarrow import flight

from rumormill.core.errors import LocalError, RumormillError
from rumormill.daemon import flight_protocol as said
from rumormill.daemon.flight import Shelf, columns_of
from rumormill.log.arrow import event_schema

MAX_STREAMS: Final = 32
"""Our choice: reads and writes at a time; each holds a batch, and the log has few readers."""


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Flight's methods; each hands over to the shelf."""

    def __init__(self, shelf: Shelf, location: str, **settings: Any) -> None:
        super().__init__(location, **settings)
        self._shelf = shelf
        self._slots = threading.BoundedSemaphore(MAX_STREAMS)

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """Every topic."""
        with _told():
            for line in self._shelf.extents():
                yield self._info(said.PlanRequest(line.name))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """A topic, or a range of it, as endpoints that can be read at the same time."""
        with _told():
            return self._info(said.decode(descriptor.command or b"", said.PlanRequest))

    def _info(self, request: said.PlanRequest) -> Any:
        ranges = self._shelf.ranges(request)
        ends = [flight.FlightEndpoint(msgspec.json.encode(each), []) for each in ranges]
        named = flight.FlightDescriptor.for_command(msgspec.json.encode(request))
        rows = ranges[-1].stop - ranges[0].start
        return flight.FlightInfo(event_schema(columns_of(request)), named, ends, rows, -1)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """A range."""
        with _told():
            request = said.decode(ticket.ticket, said.RangeRequest)
            schema = event_schema(columns_of(request))
        return flight.GeneratorStream(schema, self._stream(request))

    def _stream(self, request: said.RangeRequest) -> Iterator[Any]:
        with _told(), self._slot():
            yield from self._shelf.batches(request)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Rows to publish."""
        with _told(), self._slot():
            request = said.decode(descriptor.command or b"", said.PutRequest)
            result = self._shelf.put(request, (chunk.data for chunk in reader))
            writer.write(msgspec.json.encode(result))

    def do_action(self, context: Any, action: Any) -> list[Any]:
        """Small questions."""
        body = action.body.to_pybytes()
        with _told():
            match action.type:
                case "topics":
                    answer: Any = self._shelf.extents()
                case "since":
                    answer = self._shelf.since(said.decode(body, said.SinceRequest))
                case "forget":
                    answer = self._shelf.forget(said.decode(body, said.ForgetRequest))
                case _:
                    raise LocalError(f"there is no action {action.type!r}")
        return [flight.Result(msgspec.json.encode(answer))]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """What can be asked."""
        return [
            ("topics", "every topic with its first and next offset"),
            ("since", "the first offset received at a time or later"),
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


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell the client of the store's errors in a form that it can raise again."""
    try:
        yield
    except RumormillError as error:
        fault = said.fault_of(error)
        raise flight.FlightServerError(
            fault.sentence, extra_info=msgspec.json.encode(fault)
        ) from None
