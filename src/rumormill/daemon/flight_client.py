"""A client of the Flight door: what the store offers, with the store's own errors.

Whatever goes wrong on the way becomes one sentence that names the door; what the store behind it
says comes out as the error that the store raised.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import msgspec

from rumormill.core.api import FetchedHistory
from rumormill.core.errors import LocalError
from rumormill.daemon import flight_messages as messages
from rumormill.log.arrow import event_schema
from rumormill.log.model import TopicExtent

CALL_SECONDS: Final = 60.0
"""Our choice: for questions; a stream of data takes as long as it takes."""


_PLACES_BYTES: Final = messages.MAX_REQUEST_BYTES // 2
_QUOTES: Final = 6
"""Ids are a third longer in JSON, and each has quotes and padding."""


class DoorClient:
    """A connection to a door. Use it in a `with`."""

    def __init__(self, endpoint: str, token: str, *, tls: bool = False, roots: str = "") -> None:
        self._flight = messages.flight_library()
        self.endpoint = endpoint
        header = (b"authorization", f"Bearer {token}".encode())
        self._quick = self._flight.FlightCallOptions(headers=[header], timeout=CALL_SECONDS)
        self._long = self._flight.FlightCallOptions(headers=[header])
        scheme = "grpc+tls" if tls else "grpc+tcp"
        settings = {"tls_root_certs": roots.encode()} if roots else {}
        with self._translated():
            self._client = self._flight.connect(f"{scheme}://{endpoint}", **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def topics(self) -> list[TopicExtent]:
        """Every topic with its extent."""
        return msgspec.json.decode(self._act("topics"), type=list[TopicExtent])

    def since(self, topic: str, time: float) -> int | None:
        """The offset of the first event that was received at a time or later."""
        request = msgspec.json.encode(messages.SinceRequest(topic, time))
        return msgspec.json.decode(self._act("since", request), type=int | None)

    def places(self, topic: str, ids: Sequence[bytes]) -> list[int | None]:
        """The offset of each of these events; None where there is none."""
        found: list[int | None] = []
        start = 0
        while start < len(ids):
            stop, size = start + 1, len(ids[start])
            while stop < len(ids) and size + len(ids[stop]) + _QUOTES <= _PLACES_BYTES:
                size += len(ids[stop]) + _QUOTES
                stop += 1
            request = messages.PlacesRequest(topic, list(ids[start:stop]))
            answer = self._act("places", msgspec.json.encode(request))
            found += msgspec.json.decode(answer, type=list[int | None])
            start = stop
        return found

    def fetch_history(self, topic: str, most: int) -> FetchedHistory:
        """Have the node get a topic's history beyond its log; it takes as long as it takes."""
        request = msgspec.json.encode(messages.FetchRequest(topic, most))
        answer = self._act("fetch-history", request, self._long)
        return msgspec.json.decode(answer, type=FetchedHistory)

    def forget(self, prefix: str, keep: str = "") -> int:
        """Let go of what the door remembers of published rows; return of how many keys."""
        request = msgspec.json.encode(messages.ForgetRequest(prefix, keep))
        return msgspec.json.decode(self._act("forget", request), type=int)

    def batches(self, topic: str, start: int, stop: int, columns: Sequence[str]) -> Iterator[Any]:
        """A range as Arrow batches; an error of the store is raised where it struck."""
        request = messages.RangeRequest(topic, start, stop, tuple(columns))
        ticket = self._flight.Ticket(msgspec.json.encode(request))
        with self._translated():
            reader = self._client.do_get(ticket, self._long)
            if not reader.schema.equals(event_schema(columns)):
                raise LocalError(f"the node at {self.endpoint} serves another version's columns")
            for chunk in reader:
                yield chunk.data

    def put(
        self, key: str, topic: str | None, schema: Any, batches: Iterator[Any]
    ) -> messages.PutResult:
        """Publish rows under a key, once."""
        request = msgspec.json.encode(messages.PutRequest(key, topic))
        descriptor = self._flight.FlightDescriptor.for_command(request)
        with self._translated():
            writer, answers = self._client.do_put(descriptor, schema, self._long)
            with contextlib.closing(writer):
                for batch in batches:
                    writer.write_batch(batch)
                writer.done_writing()
                answer = answers.read()
            if answer is None:
                raise LocalError(f"the node at {self.endpoint} did not say that it published")
            return msgspec.json.decode(answer.to_pybytes(), type=messages.PutResult)

    def _act(self, kind: str, body: bytes = b"", how: Any = None) -> bytes:
        with self._translated():
            (result,) = self._client.do_action((kind, body), how or self._quick)
            found: bytes = result.body.to_pybytes()
            return found

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        flight = self._flight
        import pyarrow as arrow  # noqa: PLC0415

        try:
            yield
        except flight.FlightUnauthenticatedError:
            raise LocalError(
                f"the node at {self.endpoint} refuses the token: it is in the file"
                f" {messages.TOKEN_FILE} of the node's home"
            ) from None
        except (flight.FlightError, arrow.ArrowException) as error:
            extra = getattr(error, "extra_info", b"")
            if extra:
                with contextlib.suppress(msgspec.MsgspecError):
                    raise messages.error_of(
                        msgspec.json.decode(extra, type=messages.Fault)
                    ) from None
            first = str(error).strip().partition("\n")[0]
            raise LocalError(f"the node at {self.endpoint} cannot be reached: {first}") from None
