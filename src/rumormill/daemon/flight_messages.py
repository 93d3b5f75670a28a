"""What is said through the Flight door: requests, answers, errors, the token's file.

Requests and answers are JSON in Flight's own envelopes (ticket, descriptor, action, metadata), so
that any Flight client can make them; `docs/spark.md` shows them.
"""

import os
import secrets
import stat
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rumormill.core.errors import LocalError, RumormillError
from rumormill.log import errors, files
from rumormill.log.model import Range

TOKEN_FILE: Final = "flight.token"
ENDPOINT_FILE: Final = "flight.json"
MAX_REQUEST_BYTES: Final = 64 << 10
"""A request names a topic (1 KiB), columns and numbers."""

_TOKEN_BYTES: Final = 32
_LEAST_TOKEN: Final = 16


class RangeRequest(Range, frozen=True, forbid_unknown_fields=True):
    """A ticket: a range of a topic, in these columns."""

    columns: tuple[str, ...] = ()


class PlanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A descriptor of a read: a topic from an offset to another, cut in parts."""

    topic: str
    start: int | None = None
    stop: int | None = None
    columns: tuple[str, ...] = ()
    parts: int = 1


class PutRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A descriptor of rows to publish: `key` names them, so that they are published once."""

    key: str
    topic: str | None = None


class PutResult(msgspec.Struct, frozen=True):
    """How many rows were published now, and how many had been before."""

    published: int
    known: int


class SinceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action: where are the first events that were received at a time or later?"""

    topic: str
    time: float


class PlacesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action: which offsets have these events of a topic?"""

    topic: str
    ids: list[bytes]


class FetchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action: get a topic's history beyond the log into the log, `most` events, 0 for all."""

    topic: str
    most: int = 0


class ForgetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action: the rows under keys with this beginning are never sent again, but for `keep`."""

    prefix: str
    keep: str = ""


class Fault(msgspec.Struct, frozen=True):
    """An error of the store on its way to the client."""

    kind: str
    sentence: str
    topic: str = ""
    start: int = 0
    stop: int = 0


class Door(msgspec.Struct, frozen=True):
    """Where the node of a home takes rows to publish, for programs of the same user."""

    endpoint: str
    tls: bool


Request = TypeVar("Request", bound=msgspec.Struct)


def decode(content: bytes, kind: type[Request]) -> Request:
    """Read a request; `LocalError` says what is wrong with it."""
    if len(content) > MAX_REQUEST_BYTES:
        raise LocalError(f"a request has at most {MAX_REQUEST_BYTES} bytes")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LocalError(f"not a request of this door: {error}") from None


def fault_of(error: RumormillError) -> Fault:
    """What a client is told of an error."""
    if isinstance(error, errors.OffsetGoneError):
        return Fault("gone", str(error), error.topic, error.offset, error.first_offset)
    if isinstance(error, errors.OffsetAheadError):
        return Fault("ahead", str(error), error.topic, error.offset, error.next_offset)
    if isinstance(error, errors.DamagedRangeError):
        return Fault("damaged", str(error), error.topic or "", error.start, error.end)
    return Fault("failed", str(error))


def error_of(fault: Fault) -> RumormillError:
    """The error that a client was told of."""
    if fault.kind == "gone":
        return errors.OffsetGoneError(fault.topic, fault.start, fault.stop)
    if fault.kind == "ahead":
        return errors.OffsetAheadError(fault.topic, fault.start, fault.stop)
    if fault.kind == "damaged":
        return errors.DamagedRangeError(
            errors.Finding(
                errors.FindingKind.DAMAGED, fault.topic, fault.start, fault.stop, fault.sentence
            )
        )
    return LocalError(fault.sentence)


def flight_library() -> Any:
    """Arrow Flight, or one sentence about how to get it."""
    sentence = "Flight needs pyarrow: run pip install rumormill[arrow]"
    return errors.import_extra(sentence, "pyarrow", "pyarrow.flight")[1]


def new_token() -> str:
    """What nobody guesses."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def load_or_create_token(home: Path) -> str:
    """The token of a home's door, made once, readable by its owner only."""
    path = home / TOKEN_FILE
    try:
        files.make_folder(home)
        try:
            descriptor = files.create(path)
        except FileExistsError:
            return _load_token(path)
        with open(descriptor, "w", encoding="ascii") as file:
            token = new_token()
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LocalError(f"cannot use the token file {path}: {error.strerror}") from error
    return token


def _load_token(path: Path) -> str:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise LocalError(
            f"the token file {path} can be read by others; make it private: chmod 600 {path}"
        )
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise LocalError(
            f"the token file {path} holds no token of at least {_LEAST_TOKEN} characters;"
            " delete it to get a new one"
        )
    return token
