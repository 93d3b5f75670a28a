"""The application's own functions inside a node: it lives, whatever they do.

A function that raises, or answers with something else than it should, has given the most careful
answer there is: the default id, no opinion, no interest. That is counted, and logged once.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from rumormill.core.errors import LocalError
from rumormill.protocols.registry import Hooks, ProtocolSpec

_log = logging.getLogger(__name__)


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


class Callbacks:
    """The functions that an application gave, and how often they and its validators failed."""

    def __init__(
        self,
        message_id: Callable[..., object] | None,
        application_score: Callable[..., object] | None,
        subscription_filter: Callable[..., object] | None,
        peer_filter: Callable[..., object] | None,
    ) -> None:
        self.failures = 0
        self._functions = {
            "message_id": message_id,
            "application_score": application_score,
            "subscription_filter": subscription_filter,
            "peer_filter": peer_filter,
        }
        self._complained: dict[Callable[..., object], None] = {}

    def hooks(self, spec: ProtocolSpec, **others: Any) -> Hooks:
        """The functions for a protocol's machine, and what else it gets."""
        for name, function in self._functions.items():
            if function is not None:
                if name not in spec.takes:
                    raise LocalError(f"{name}: {spec.name} has no use for it")
                others[name] = self._guarded(function, *_READERS[name])
        return Hooks(**others)

    def _guarded(
        self,
        function: Callable[..., object],
        read: Callable[[Any], object],
        otherwise: object,
        so: str,
    ) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            try:
                return read(function(*arguments))
            except Exception as error:  # noqa: BLE001 (the application's own)
                self.failed(function, error, so)
                return otherwise

        return call

    def failed(self, function: Callable[..., object], error: Exception, so: str) -> None:
        """Count a failure; log the first of each function, so that peers cannot fill the log."""
        self.failures += 1
        if function not in self._complained:
            self._complained[function] = None
            _log.error("a function of the application failed: %s", so, exc_info=error)

    def forget(self, function: Callable[..., object]) -> None:
        """A function is used no longer."""
        self._complained.pop(function, None)
