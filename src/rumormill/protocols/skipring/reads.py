"""What a peer asks of its log: the histories of its topics, and the publications that others lack.

A history is read piece by piece, one piece at a time, each topic in its turn, so that however much
is stored nothing is done at once. Answers to other peers wait for the log as well: so many of one
peer, so many of all.
"""

from typing import Final

import msgspec

from rumormill.core.effects import ById, Effects, FromOffset, Load
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.inputs import Loaded
from rumormill.protocols.skipring.messages import Want

READS_PER_PEER: Final = 2
MAX_READS: Final = 64
"""Answers that wait for the log, of one peer and of all. Our choice: two peers have one chain under
way in each direction, and an answer that waits holds some 100 kB at most."""


class Answer(msgspec.Struct, frozen=True):
    """The publications that a peer asked for, until the log has given them back."""

    topic: Topic
    peer: PeerId
    wants: tuple[Want, ...]
    keys: tuple[tuple[int, MessageId], ...]
    """What is read, each key with the place of the want that it is for."""
    rest: tuple[Want, ...]
    """What is left to be asked for when all of these are sent."""
    goes_on: bool
    """Whether the peer was told nodes to compare besides: then the chain does not end here."""

    def rest_from(self, number: int) -> tuple[Want, ...]:
        """What is left to be asked for when the keys from this one on are not sent."""
        place, _ = self.keys[number]
        want = self.wants[place]
        if number and self.keys[number - 1][0] == place:
            want = Want(want.prefix, self.keys[number - 1][1])
        return (want, *self.wants[place + 1 :])

    def cut(self, most: int) -> "Answer":
        """The same with so many keys, and the others in the rest."""
        rest = self.rest_from(most)
        return Answer(self.topic, self.peer, self.wants, self.keys[:most], rest, self.goes_on)


class _Piece(msgspec.Struct, frozen=True):
    """A piece of a topic's history that is being read."""

    number: int
    topic: Topic
    offset: int


class Reads:
    """The reads of one peer that are open or to come."""

    def __init__(self) -> None:
        self._last = 0
        self._unread: dict[Topic, int] = {}
        """Histories that are not wholly read, each with the offset to go on from."""
        self._piece: _Piece | None = None
        self._answers: dict[int, Answer] = {}

    def __contains__(self, topic: Topic) -> bool:
        return topic in self._unread

    def restart(self) -> None:
        """Expect no answer any more to what was asked so far."""
        self.forget_histories()
        self._answers.clear()

    def forget_histories(self) -> None:
        """Read no more of any topic, nor expect what is being read."""
        self._unread.clear()
        self._piece = None

    def read_history(self, topic: Topic, effects: Effects) -> None:
        """Read all that is stored of a topic, from the beginning."""
        self._unread[topic] = 0
        self._read_on(effects)

    def forget_history(self, topic: Topic) -> None:
        """Read no more of a topic."""
        self._unread.pop(topic, None)

    def has_room(self, peer: PeerId) -> bool:
        """Whether one more answer to a peer may wait."""
        own = sum([each.peer == peer for each in self._answers.values()])
        return own < READS_PER_PEER and len(self._answers) < MAX_READS

    def read_for(self, answer: Answer, effects: Effects) -> None:
        """Read what a peer is to be sent."""
        number = self._next()
        self._answers[number] = answer
        keys = tuple([key for _, key in answer.keys])
        effects.append(Load(number, answer.topic, ById(keys)))

    def loaded(self, event: Loaded, effects: Effects) -> Answer | Topic | None:
        """Say what was read: for an answer, or of a topic's history; then read on."""
        answer = self._answers.pop(event.number, None)
        if answer is not None:
            return answer
        piece = self._piece
        if piece is None or piece.number != event.number:
            return None
        self._piece = None
        wanted = self._unread.get(piece.topic) == piece.offset
        if wanted:
            del self._unread[piece.topic]
            if event.more and event.events:
                self._unread[piece.topic] = event.events[-1].offset + 1
        self._read_on(effects)
        return piece.topic if wanted else None

    def _read_on(self, effects: Effects) -> None:
        if self._piece is None and self._unread:
            topic, offset = next(iter(self._unread.items()))
            self._piece = _Piece(self._next(), topic, offset)
            effects.append(Load(self._piece.number, topic, FromOffset(offset)))

    def _next(self) -> int:
        self._last += 1
        return self._last
