"""The application's own functions inside a node: it lives, whatever they do.

A function that raises, or answers with something else than it should, has given the most careful
answer there is: the default id, no opinion, no interest. That is counted, and logged once.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from rumormill.core.errors import LocalError
from rumormill.protocols.registry import Hooks, ProtocolSpec

_log = logging.getLogger(__name__)


class Failures:
    """How often functions of the application failed."""

    def __init__(self) -> None:
        self.count = 0
        self._complained: dict[Callable[..., object], None] = {}

    def note(self, function: Callable[..., object], error: Exception, so: str) -> None:
        """Count a failure; log the first of each function, so that peers cannot fill the log."""
        self.count += 1
        if function not in self._complained:
            self._complained[function] = None
            _log.error("a function of the application failed: %s", so, exc_info=error)

    def forget(self, function: Callable[..., object]) -> None:
        """A function is used no longer."""
        self._complained.pop(function, None)


def _id(answer: object) -> bytes:
    if isinstance(answer, bytes):
        return answer
    raise TypeError(f"message_id returned {answer!r}, not bytes")


_READERS: Final[dict[str, tuple[Callable[[Any], object], object, str]]] = {
    "message_id": (_id, b"", "the message has its default id"),
    "application_score": (float, 0.0, "the peer's score is 0"),
    "subscription_filter": (bool, False, "the topic is refused"),
    "peer_filter": (bool, False, "the peer is refused"),
}
"""How the answers of functions are read, and what counts instead where one fails."""


def application_hooks(
    spec: ProtocolSpec, functions: Mapping[str, Callable[..., object] | None], failures: Failures
) -> Hooks:
    """Guard the functions that the application gave; refuse those without a meaning here."""
    guarded: dict[str, Any] = {}
    for name, function in functions.items():
        if function is not None:
            if name not in spec.takes:
                raise LocalError(f"{name}: {spec.name} has no use for it")
            guarded[name] = _guarded(function, *_READERS[name], failures)
    return Hooks(**guarded)


def _guarded(
    function: Callable[..., object],
    read: Callable[[Any], object],
    otherwise: object,
    so: str,
    failures: Failures,
) -> Callable[..., Any]:
    def call(*arguments: object) -> object:
        try:
            return read(function(*arguments))
        except Exception as error:  # noqa: BLE001 (the application's own)
            failures.note(function, error, so)
            return otherwise

    return call
