"""An observer of a node or a simulation that keeps everything, for a test to look at."""

from typing import TypeVar

from rumormill.core.ids import PeerId
from rumormill.trace.entries import Batch

Kind = TypeVar("Kind")


class TraceLog:
    """Keeps the whole trace."""

    def __init__(self) -> None:
        self.entries: Batch = []

    def observe(self, batch: Batch) -> None:
        self.entries.extend(batch)

    def close(self) -> None:
        """Nothing is held open."""

    def of(self, kind: type[Kind], peer: PeerId | None = None) -> list[Kind]:
        """The payloads of one kind, of one peer or all."""
        return [
            payload
            for _, at, payload in self.entries
            if isinstance(payload, kind) and peer in {None, at}
        ]
