"""What is under way: operations, and the questions put to peers.

An operation is what an application asks of Kademlia, and ends with a result; on its way it puts
questions, each under a number of its own, which it has anew each time that it is put.
"""

from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from rumormill.core.answer_times import AnswerTimes
from rumormill.core.bounded import take_out
from rumormill.core.effects import Ask, Effects, Learn
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.lookup import Lookup
from rumormill.overlay.kademlia.messages import KadMessage


class KadTimer(msgspec.Struct, frozen=True, gc=False):
    """A timer of Kademlia's; `number` is that of an operation."""

    what: str
    number: int = 0


LOOKUP = "lookup"
"""The timer that ends a lookup."""
SLOW = "slow"
"""The timer after which a search for a value asks more peers at once."""
LOCAL = "local"
"""The timer that reports what was known without a lookup."""


class LookupKind(Enum):
    """What is looked for, or done."""

    GET_VALUE = "get-value"
    PUT_VALUE = "put-value"
    FIND_PEER = "find-peer"
    FIND_CLOSEST = "find-closest"
    PROVIDE = "provide"
    FIND_PROVIDERS = "find-providers"


NOT_FOUND = "not-found"
NOT_STORED = "not-stored"
TIMED_OUT = "timed-out"
NO_PEERS = "no-peers"
BUSY = "busy"


class LookupResult(msgspec.Struct, frozen=True):
    """How an operation ended.

    `reason` is empty when it found or stored what it should, and otherwise says why not:
    `not-found`, `not-stored`, `timed-out`, `no-peers` (nobody to ask), `busy` (too many wait).
    `peers` are the closest peers, the providers, the peer that was looked for, the peers that gave
    the value, or the peers that store it. `proof` vouches for the value, where that is wanted and
    somebody had it. `stored` counts the peers that confirmed a value, or that
    were told of a provider (nobody confirms that). `asked` and `failed` count questions.
    """

    number: int
    kind: LookupKind
    key: bytes
    value: bytes | None = None
    proof: bytes = b""
    peers: tuple[PeerId, ...] = ()
    stored: int = 0
    asked: int = 0
    failed: int = 0
    reason: str = ""


class Operation(msgspec.Struct):
    """An operation under way. `internal` ones are the overlay's own and report to nobody."""

    number: int
    kind: LookupKind
    key: bytes
    value: bytes | None = None
    proof: bytes = b""
    internal: bool = False
    lookup: Lookup | None = None
    walked: bool = False
    """Whether those closest to the key were looked for."""
    storing: int = 0
    """Questions in flight of the second half, in which a value is stored."""
    asked: int = 0
    failed: int = 0
    stored: dict[PeerId, None] = msgspec.field(default_factory=dict)
    found: dict[PeerId, None] = msgspec.field(default_factory=dict)
    """The peers that gave the best value, or the providers."""
    outdated: dict[PeerId, None] = msgspec.field(default_factory=dict)
    """The peers that gave a worse value."""
    values: int = 0
    """Valid values that were found, with a proof where one is wanted."""


def result_of(operation: Operation, reason: str) -> LookupResult:
    """What an operation reports at its end."""
    return LookupResult(
        operation.number,
        operation.kind,
        operation.key,
        operation.value,
        operation.proof,
        tuple(operation.stored or operation.found),
        len(operation.stored),
        operation.asked,
        operation.failed,
        reason,
    )


CHECK = 0
"""The owner of questions that only see whether a peer is there; lookups count from one."""


_SOONEST: Final = 5
"""A question is put again after a fifth of its time at the latest, so that the second and the last
one have two fifths at least. Our choice."""


class Question(msgspec.Struct, frozen=True, gc=False):
    """One open question; `owner` is the number of its lookup, or `CHECK`."""

    peer: PeerId
    message: KadMessage
    owner: int
    asked: float
    left: float
    """Seconds that remain to it when its present turn is over."""
    wait: float
    """How long that turn is."""
    repeated: bool = False


class Questions:
    """Open questions by number; every one is closed by its answer or by its failure.

    One without an answer is put again when that has probably been lost, and once more after twice
    that time: a walk waits for its slowest question, and one message lost in twenty would cost
    most walks a whole timeout.
    """

    __slots__ = ("_last", "_open", "_timeout", "_times")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._times = AnswerTimes()
        self._open: dict[int, Question] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def ask(
        self,
        peer: PeerId,
        message: KadMessage,
        owner: int,
        now: float,
        effects: Effects,
        addresses: tuple[bytes, ...] = (),
    ) -> None:
        """Ask a peer, after telling the runtime where it may be reached."""
        if addresses:
            effects.append(Learn(peer, addresses))
        wait = min(self._times.patience, self._timeout / _SOONEST)
        self._put(Question(peer, message, owner, now, self._timeout - wait, wait), effects)

    def _put(self, question: Question, effects: Effects) -> None:
        self._last += 1
        self._open[self._last] = question
        effects.append(Ask(question.peer, self._last, question.message, question.wait))

    def repeat(self, question: Question, effects: Effects) -> bool:
        """Put a question again that has not been answered; false when its time is over."""
        left, wait = question.left, 2 * question.wait
        if left <= 0:
            return False
        if left < 2 * wait:  # the last time
            wait = left
        self._times.repeat()
        self._put(replace(question, left=left - wait, wait=wait, repeated=True), effects)
        return True

    def answered(self, question: Question, now: float) -> None:
        """A question has its answer."""
        if not question.repeated:
            self._times.note(now - question.asked)

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
        return take_out(self._open, number)
