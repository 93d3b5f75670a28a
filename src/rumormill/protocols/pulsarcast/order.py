"""One single chain, in order: what a topic promises in which only the author publishes.

There every event links to the one before it, so the order is written into the events themselves.
An event whose parent has not been delivered yet is held back until it is; meanwhile the parent is
looked for (`gaps`). Nothing is held for ever: when a parent cannot be had within a given time, the
chain goes on without it, and should it turn up after all it is kept but not delivered, since what
follows it has been.
"""

from rumormill.protocols.pulsarcast.signing import SignedEvent


class HoldBack:
    """The events of one ordered topic that wait for an ancestor."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[bytes, dict[bytes, SignedEvent]] = {}
        self._since: dict[bytes, float] = {}
        self.held: dict[bytes, bytes] = {}
        """The ids of the events that wait, and what each waits for."""
        self.overtaken: dict[bytes, None] = {}
        """Ancestors that were given up."""

    @property
    def full(self) -> bool:
        """Whether no further event can wait."""
        return len(self.held) >= self._limit

    def hold(self, parent: bytes, signed: SignedEvent, now: float) -> None:
        """Let an event wait for its parent."""
        self._waiting.setdefault(parent, {})[signed.cid] = signed
        self._since.setdefault(parent, now)
        self.held[signed.cid] = parent

    def release(self, cid: bytes) -> list[SignedEvent]:
        """An event has been delivered: return what may follow it, in order."""
        ready: list[SignedEvent] = []
        settled = [cid]
        for done in settled:
            self._since.pop(done, None)
            for signed in self._waiting.pop(done, {}).values():
                del self.held[signed.cid]
                ready.append(signed)
                settled.append(signed.cid)
        return ready

    def oldest(self) -> float | None:
        """Since when the longest waiting event has been waiting for an ancestor nobody has."""
        times = [since for parent, since in self._since.items() if parent not in self.held]
        return min(times, default=None)

    def give_up(self, before: float) -> list[bytes]:
        """Overtake the ancestors that have been missing since before a time; return their ids."""
        missing = [
            parent
            for parent, since in self._since.items()
            if since <= before and parent not in self.held
        ]
        for parent in missing:
            if len(self.overtaken) >= self._limit:
                del self.overtaken[next(iter(self.overtaken))]
            self.overtaken[parent] = None
        return missing
