"""Requests to publish that outlive their asker: notes in its log, until they are answered.

Nobody is told that something was published before somebody who may publish has it on disk. So who
is killed while it waits for that owes its application nothing; but the application meant it, and
the request is signed. It is noted when it is made, and the next life asks once more, under the same
name: whoever has granted it already says so and publishes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rumormill.core.effects import Effects, KeepNote, Notes, SetTimer
from rumormill.core.event import Note
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast.context import Context, KeptTimer
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import encode_event, read_event
from rumormill.protocols.pulsarcast.format.signing import SignedEvent

NOTES: Final = "pulsarcast/request/"
"""What the keys of requests begin with; the request's CID follows."""

_PAUSE: Final = 5.0
"""Seconds from the beginning of a life until it asks again. Our choice: by then it knows peers, and
its application has subscribed to what it wants to be given."""


class RequestsReading(msgspec.Struct, frozen=True):
    """The log is asked for requests of an earlier life."""


@dataclass(eq=False)
class KeptRequests:
    """Our own requests that have no answer yet, as the log has them."""

    _context: Context
    ask_again: Callable[[SignedEvent, float, Effects], None] = field(init=False)
    """Hears of every request of an earlier life; `publishing` sets it."""

    def __post_init__(self) -> None:
        self._context.operations.steps[RequestsReading, Loaded] = self._on_loaded

    def keep(self, signed: SignedEvent, effects: Effects) -> None:
        """A request of ours is about to be sent."""
        effects.append(KeepNote(Note(_key(signed.cid), encode_event(signed))))

    def drop(self, cid: bytes, effects: Effects) -> None:
        """A request of ours has its answer, or will have none."""
        effects.append(KeepNote(Note(_key(cid), b"")))

    def start(self, now: float, effects: Effects) -> None:
        """A life begins."""
        effects.append(SetTimer(KeptTimer(b""), now + _PAUSE))

    def on_timer(self, _: bytes, now: float, effects: Effects) -> None:
        """Look for what the last life left."""
        self._read("", effects)

    def _read(self, after: str, effects: Effects) -> None:
        self._context.load(RequestsReading(), "", Notes(NOTES, after), effects)

    def _on_loaded(self, _: RequestsReading, loaded: Loaded, now: float, effects: Effects) -> None:
        for note in loaded.notes:
            signed = read_event(note.value, self._context.config.limits)
            if not isinstance(signed, str) and _key(signed.cid) == note.key:
                self.ask_again(signed, now, effects)
        if loaded.more and loaded.notes:
            self._read(loaded.notes[-1].key, effects)


def _key(cid: bytes) -> str:
    return NOTES + cids.text(cid)
