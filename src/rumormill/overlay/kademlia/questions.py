"""The questions that this peer has asked: who, what for, and under which number."""

import msgspec

from rumormill.core.effects import Ask, Effects, Learn
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.messages import KadMessage, KadType

CHECK = 0
"""The owner of questions that only see whether a peer is there; lookups count from one."""


class Question(msgspec.Struct, frozen=True, gc=False):
    """One open question; `owner` is the number of its lookup, or `CHECK`."""

    peer: PeerId
    type: KadType
    owner: int


class Questions:
    """Open questions by number; every one is closed by its answer or by its failure."""

    __slots__ = ("_last", "_open", "_timeout")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._open: dict[int, Question] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def ask(
        self,
        peer: PeerId,
        message: KadMessage,
        owner: int,
        effects: Effects,
        addresses: tuple[bytes, ...] = (),
    ) -> None:
        """Ask a peer, after telling the runtime where it may be reached."""
        if addresses:
            effects.append(Learn(peer, addresses))
        self._last += 1
        self._open[self._last] = Question(peer, message.type, owner)
        effects.append(Ask(peer, self._last, message, self._timeout))

    def tell(self, peer: PeerId, message: KadMessage, effects: Effects) -> None:
        """Send a message that has no answer."""
        self._last += 1
        effects.append(Ask(peer, self._last, message, self._timeout, one_way=True))

    def forget(self) -> None:
        """Expect no answers any more."""
        self._open.clear()

    def close(self, number: int, peer: PeerId) -> Question | None:
        """Return a question that was open, which it no longer is."""
        question = self._open.get(number)
        if question is None or question.peer != peer:
            return None
        del self._open[number]
        return question
