"""The answering side: every question is worked out from the log alone, and nothing is remembered.

Bounds: a peer has so much work of ours to spend, and so much a second comes back; a question beyond
that is declined, and counted. Questions that wait for the log are few.
"""

from typing import Final

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Answer, ById, Decline, Effects, Load
from rumormill.core.history import HistoryQuery
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Asked, Loaded
from rumormill.core.rate_limit import RateLimit
from rumormill.sync.messages import (
    Compare,
    Confirm,
    Confirmed,
    Fetch,
    Probe,
    SyncMessage,
)
from rumormill.sync.ranges import AnswerCompare, AnswerFetch, AnswerProbe

TOO_OFTEN: Final = "sync-too-often"
NO_QUESTION: Final = "sync-no-question"

_BURST: Final = 4096
_RATE: Final = 512
"""What a peer may have worked out at once, and per second: ranges, topics, and for every piece of
events as much as eight. Our choice: a million scattered events in a minute, a probe at any time."""
_FETCH_COST: Final = 8
_MAX_ASKERS: Final = 1024
_MAX_OPEN: Final = 256


class Answering:
    """Questions of others that wait for our log."""

    def __init__(self) -> None:
        self._limits: dict[PeerId, RateLimit] = {}
        self._open: dict[int, tuple[int, Confirm | None]] = {}

    def take(
        self, asked: Asked, number: int, now: float, topics: dict[bytes, Topic], effects: Effects
    ) -> bool:
        """Take a question; whether our log is asked under `number`."""
        message: SyncMessage = asked.message  # type: ignore[assignment]
        body = message.body
        query: HistoryQuery | ById
        topic, cost = "", 1
        if isinstance(body, Probe):
            query, cost = AnswerProbe(body), len(body.topics)
        elif isinstance(body, Compare):
            query, cost = AnswerCompare(body), len(body.spans)
        elif isinstance(body, Fetch):
            query, cost = AnswerFetch(body), _FETCH_COST
        elif isinstance(body, Confirm):
            query, topic = ById(body.ids), topics.get(body.tag, "")
        else:
            effects += (trace.Refuse(asked.peer, NO_QUESTION), Decline(asked.number))
            return False
        limit = self._limits.get(asked.peer) or RateLimit(_RATE, _BURST)
        remember(self._limits, asked.peer, limit, _MAX_ASKERS)
        if len(self._open) >= _MAX_OPEN or not limit.take(now):
            effects += (trace.Refuse(asked.peer, TOO_OFTEN), Decline(asked.number))
            return False
        limit.owe(cost)
        self._open[number] = (asked.number, body if isinstance(body, Confirm) else None)
        effects.append(Load(number, topic, query))
        return True

    def on_loaded(self, loaded: Loaded, effects: Effects) -> bool:
        """Answer with what the log says; false if nobody waits for it."""
        waiting = self._open.pop(loaded.number, None)
        if waiting is None:
            return False
        number, confirm = waiting
        answer = loaded.answer
        if confirm is not None:
            stored = {event.id for event in loaded.events}
            answer = Confirmed(
                tuple(place for place, each in enumerate(confirm.ids) if each in stored)
            )
        if answer is None:
            effects.append(Decline(number))
        else:
            effects.append(Answer(number, SyncMessage(answer)))  # type: ignore[arg-type]
        return True
