"""The answering side: every question is worked out from the log alone, and nothing is remembered.

Bounds: a peer has so much work of ours to spend, and so much a second comes back; a question beyond
that is declined, and counted. Whoever asks keeps the same account, and waits. Questions that wait
for the log are few.
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
    Body,
    Compare,
    Confirm,
    Confirmed,
    Fetch,
    Offer,
    Probe,
    SyncMessage,
)
from rumormill.sync.ranges import AnswerCompare, AnswerFetch, AnswerProbe

TOO_OFTEN: Final = "sync-too-often"
NO_QUESTION: Final = "sync-no-question"

_BURST: Final = 8192
_RATE: Final = 1024
"""What a peer may have worked out at once, and per second: ranges, topics, and for every piece of
events as much as eight. Our choice: a thousand scattered losses among a million events take 10,000;
a range takes 0.2 ms, and so many pieces bring 29,000 events a second, more than can be checked."""
_FETCH_COST: Final = 8
_COUNTED_ONCE: Final = 64
"""Of what is declined, so much counts as one refusal more: a question of 512 ranges takes a
millisecond or two to read alone, and four peers that send nothing else are not to be borne for
long. Our choice."""
_MAX_ASKERS: Final = 1024
_MAX_OPEN: Final = 1024
"""As many as a node serves: an asker has several under way, and after a fault many ask at once."""


def new_budget() -> RateLimit:
    """What a peer may ask of another."""
    return RateLimit(_RATE, _BURST)


def cost_of(body: Body) -> int:
    """What a question takes of it."""
    if isinstance(body, Probe):
        return 1 + len(body.topics)
    if isinstance(body, Compare):
        return 1 + len(body.spans)
    if isinstance(body, Offer):
        return 1 + len(body.tags)
    return 1 + _FETCH_COST if isinstance(body, Fetch) else 2


class Answering:
    """Questions of others that wait for our log."""

    def __init__(self) -> None:
        self._limits: dict[PeerId, RateLimit] = {}
        self._open: dict[int, tuple[int, Confirm | None]] = {}

    def take(
        self,
        asked: Asked,
        number: int,
        now: float,
        topics: dict[bytes, Topic],
        effects: Effects,
        *,
        limited: bool = False,
    ) -> bool:
        """Take a question; whether our log is asked under `number`."""
        message: SyncMessage = asked.message  # type: ignore[assignment]
        body = message.body
        query: HistoryQuery | ById
        topic = ""
        if isinstance(body, Probe):
            query = AnswerProbe(body)
        elif isinstance(body, Compare):
            query = AnswerCompare(body)
        elif isinstance(body, Fetch):
            query = AnswerFetch(body, limited)
        elif isinstance(body, Confirm):
            query, topic = ById(body.ids), topics.get(body.tag, "")
        else:
            effects += (trace.Refuse(asked.peer, NO_QUESTION), Decline(asked.number))
            return False
        if len(self._open) >= _MAX_OPEN:
            self._decline(asked, cost_of(body), effects)
            return False
        if not self.affords(asked, body, now, effects):
            return False
        self._open[number] = (asked.number, body if isinstance(body, Confirm) else None)
        effects.append(Load(number, topic, query))
        return True

    def affords(self, asked: Asked, body: Body, now: float, effects: Effects) -> bool:
        """Whether a peer has not asked too much of us lately; if it has, that is refused."""
        limit = self._limits.get(asked.peer) or new_budget()
        remember(self._limits, asked.peer, limit, _MAX_ASKERS)
        cost = cost_of(body)
        if limit.wait(now, 1):
            self._decline(asked, cost, effects)
            return False
        limit.owe(cost)
        return True

    def _decline(self, asked: Asked, cost: int, effects: Effects) -> None:
        refused = trace.Refuse(asked.peer, TOO_OFTEN, count=1 + cost // _COUNTED_ONCE)
        effects += (refused, Decline(asked.number))

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
