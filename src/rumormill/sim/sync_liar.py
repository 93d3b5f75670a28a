"""A hostile peer that lies about histories: it offers what it has not, and answers

- `withholding`: everything is equal, and nothing more is to be had;
- `phantoms`: something differs everywhere, and when it is fetched nothing comes;
- `recursion`: the same, in ever smaller ranges, and every answer says that there is more;
- `forgery`: the same, and what comes was published by nobody.

Like other attackers it leaves its topics, since nothing is delivered to it, and takes no part in
the protocol.
"""

import random
from collections.abc import Sequence
from typing import Final

from rumormill.core.effects import Answer, Ask, Decline, Effects
from rumormill.core.history import Key, topic_tag
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Asked, Input
from rumormill.sim.attacker import Hostile
from rumormill.sim.scenario import Lie
from rumormill.sync.messages import (
    HASH_BYTES,
    MAX_SPANS,
    Body,
    Compare,
    Compared,
    Difference,
    Events,
    Fetch,
    Offer,
    Probe,
    SentEvent,
    Span,
    SyncMessage,
    Verdict,
)

_TIMEOUT: Final = 10.0
_PARTS: Final = MAX_SPANS // 4
"""Ranges of a topic that are said to differ."""
_FORGED: Final = 16
"""Events in one answer."""


class SyncLiar(Hostile):
    """A machine that offers `rate` times a second, and lies."""

    def __init__(
        self,
        lie: Lie,
        topics: Sequence[Topic],
        left: Sequence[Topic],
        rate: float,
        randomness: random.Random,
    ) -> None:
        super().__init__(left, rate, randomness)
        self._lie = lie
        self._offer = Offer(tuple([topic_tag(topic) for topic in topics]))
        self._number = 0

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if not isinstance(event, Asked):
            super().handle(event, now, effects)
            return
        told = self._answer(event.message.body) if isinstance(event.message, SyncMessage) else None
        effects.append(
            Decline(event.number) if told is None else Answer(event.number, SyncMessage(told))
        )

    def _attack(self, peers: list[PeerId], effects: Effects) -> None:
        self._number += 1
        peer, message = self._randomness.choice(peers), SyncMessage(self._offer)
        effects.append(Ask(peer, self._number, message, _TIMEOUT, one_way=True))

    def _answer(self, asked: Body) -> Body | None:
        silent = self._lie == "withholding"
        if isinstance(asked, Probe):
            every = [Difference(at, 10**6, self._parts(asked)) for at in range(len(asked.topics))]
            return Verdict() if silent else Verdict(tuple(every))
        if isinstance(asked, Compare):
            return Compared() if silent else Compared(self._smaller(asked))
        if isinstance(asked, Fetch):
            return Events() if silent or self._lie == "phantoms" else self._more(asked)
        return None

    def _hash(self) -> bytes:
        return self._randomness.randbytes(HASH_BYTES)

    def _parts(self, probe: Probe) -> tuple[Span, ...]:
        """Ranges from the beginning to the end, every other of which is said to differ."""
        ends = [probe.upto * part // (2 * _PARTS) for part in range(1, 2 * _PARTS + 1)]
        keys = dict.fromkeys([Key(end, b"") for end in ends if end > 0])
        return tuple(
            Span(key, self._hash() if number % 2 else b"") for number, key in enumerate(keys)
        )

    def _smaller(self, asked: Compare) -> tuple[Span, ...]:
        """The ranges that were asked about, halved where dates let one."""
        spans: list[Span] = []
        low = asked.low
        for span in asked.spans:
            middle = Key((low.stamp + span.high.stamp) // 2, b"")
            if span.hash and low < middle < span.high and len(asked.spans) < MAX_SPANS // 2:
                spans.append(Span(middle, self._hash()))
            spans.append(Span(span.high, span.hash and self._hash()))
            low = span.high
        return tuple(spans)

    def _more(self, asked: Fetch) -> Events:
        """Nothing, or what is forged; and that there is more, as long as dates let one."""
        wanted = asked.wanted[0]
        forged: tuple[SentEvent, ...] = ()
        if self._lie == "forgery":
            author, name = self._randomness.randbytes(4), self._randomness.randbytes
            forged = tuple([SentEvent(author, author + name(8), b"", b"") for _ in range(_FORGED)])
        behind = Key(wanted.low.stamp + 1, b"")
        return Events(forged, behind if behind <= wanted.high else None)
