"""A world of subscribers and a supervisor under an asynchronous scheduler.

The scheduler is the paper's (section 1.1): messages are neither lost nor duplicated, they arrive in
any order after any time, and processes run at their own speeds. Weak fairness is a bound: a message
waits at most `Pace.slowest` intervals, and each process has its TIMEOUT again and again. How bad it
is within that bound, chance decides, differently for each world.
"""

import heapq
import random
from itertools import count
from typing import Any

import msgspec
from skipring_definition import Neighbour, State, faults

from rumormill.core.effects import Effects, Mail
from rumormill.core.ids import PeerId
from rumormill.core.trace import Refuse
from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.labels import text_of
from rumormill.protocols.skipring.messages import Reference
from rumormill.protocols.skipring.subscriber import Subscriber
from rumormill.protocols.skipring.supervisor import Supervisor
from rumormill.protocols.skipring.token import TokenSubscriber, TokenSupervisor

TOPIC = "t"
SUPERVISOR = b"\xff\xff"
QUIET = 3
"""For how many intervals a state must stay legitimate to count as reached."""


class Pace(msgspec.Struct, frozen=True):
    """How the scheduler treats processes and messages, in intervals."""

    usual: float = 0.3
    """Most messages arrive within this time."""
    slowest: float = 4.0
    """All messages arrive within this time."""
    held_back: float = 0.05
    """The part of the messages that may take that long."""
    uneven: float = 2.0
    """The slowest process is so many times slower than the fastest."""
    lockstep: bool = False
    """All messages take the usual time exactly: what repeats itself does so for ever."""


ASYNCHRONOUS = Pace()
EVEN = Pace(usual=0.1, slowest=0.1, held_back=0.0, uneven=1.0, lockstep=True)
NO_DETECTOR = SkipRingConfig(patience=0)
"""As in sections 3.1 and 3.2, where nobody crashes."""


class World:
    """Subscribers, a supervisor, and everything under way between them."""

    def __init__(
        self,
        peers: list[PeerId],
        rng: random.Random,
        pace: Pace = ASYNCHRONOUS,
        config: SkipRingConfig = NO_DETECTOR,
        *,
        dead_are_silent: bool = False,
    ) -> None:
        self.rng = rng
        self.pace = pace
        self.now = 0.0
        self.token = config.supervision == "token"
        self.subscribers = {peer: self.newcomer(peer) for peer in peers}
        self.supervisor: Any = (TokenSupervisor if self.token else Supervisor)(TOPIC, config)
        self.sent: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.dead_are_silent = dead_are_silent
        self._order = count()
        self._queue: list[tuple[float, int, PeerId, PeerId, Any]] = []
        for peer in [*peers, SUPERVISOR]:
            self.start(peer)

    def newcomer(self, peer: PeerId) -> Subscriber:
        kind = TokenSubscriber if self.token else Subscriber
        return kind(TOPIC, peer, SUPERVISOR, self.rng)

    def start(self, peer: PeerId) -> None:
        """Give a process its first TIMEOUT, and with it its speed."""
        speed = self.rng.uniform(1, self.pace.uneven)
        self._push(self.rng.random() * speed, peer, b"", speed)

    def join(self, peer: PeerId) -> None:
        self.subscribers[peer] = self.newcomer(peer)
        self.start(peer)

    def crash(self, peer: PeerId) -> None:
        """A subscriber ceases to exist without a word (section 3.3)."""
        del self.subscribers[peer]

    def _push(self, delay: float, receiver: PeerId, sender: PeerId, what: Any) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), receiver, sender, what))

    def post(self, sender: PeerId, receiver: PeerId, message: Any) -> None:
        """Put a message into a channel."""
        pace, rng = self.pace, self.rng
        if pace.lockstep:
            delay = pace.usual
        else:
            delay = rng.random() * (pace.slowest if rng.random() < pace.held_back else pace.usual)
        self._push(delay, receiver, sender, message)

    def carry_out(self, own: PeerId, effects: Effects) -> None:
        for effect in effects:
            if type(effect) is Mail:
                name = effect.message.operation  # type: ignore[attr-defined]
                self.sent[name] = self.sent.get(name, 0) + 1
                self.post(own, effect.peer, effect.message)
            elif type(effect) is Refuse:
                self.refused[effect.reason] = self.refused.get(effect.reason, 0) + 1

    def run(self, intervals: float) -> None:
        """Let everything happen that happens in so many intervals."""
        end = self.now + intervals
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, receiver, sender, what = heapq.heappop(queue)
            effects: Effects = []
            process: Any = self.subscribers.get(receiver)
            if process is None:
                if receiver != SUPERVISOR:
                    self._undeliverable(receiver, sender)
                    continue
                process = self.supervisor
            if sender:
                process.receive(sender, what, effects)
            else:
                process.timeout(effects)
                self._push(what, receiver, b"", what)
            if effects:
                self.carry_out(receiver, effects)
        self.now = end

    def _undeliverable(self, receiver: PeerId, sender: PeerId) -> None:
        if self.dead_are_silent or not sender:
            return
        effects: Effects = []
        if sender == SUPERVISOR:
            self.supervisor.unreachable(receiver)
        elif sender in self.subscribers:
            self.subscribers[sender].unreachable(receiver, effects)
        self.carry_out(sender, effects)

    def states(self) -> dict[PeerId, State]:
        """Every subscriber's variables, in the judge's words."""
        return {peer: state_of(each) for peer, each in self.subscribers.items()}

    def records(self) -> list[tuple[str, PeerId | None]]:
        """The database, in the judge's words; a supervisor that counts has none to be judged."""
        if self.token:
            return [(text_of(at.label), peer) for peer, at in self.subscribers.items()]
        return [(text_of(at), peer) for at, peer in self.supervisor.database.items()]

    def faults(self) -> str:
        """Why this is not a legitimate state; empty when it is."""
        for each in self.subscribers.values():
            if each.own is None:
                return "a subscriber has no label"
        if self.token and self.supervisor.count != len(self.subscribers):
            return f"the supervisor counts {self.supervisor.count}"
        return faults(self.states(), self.records())

    def stabilise(self, limit: int) -> int:
        """Run until the state is legitimate and stays so; return after how many intervals."""
        since = None
        for interval in range(limit):
            if self.faults():
                since = None
            elif since is None:
                since = interval
            elif interval - since >= QUIET + self.pace.slowest:
                return since
            self.run(1)
        raise AssertionError(f"not legitimate after {limit} intervals: {self.faults()}")


def state_of(subscriber: Subscriber) -> State:
    def told(reference: Reference | None) -> Neighbour | None:
        return None if reference is None else Neighbour(text_of(reference.label), reference.peer)

    return State(
        None if subscriber.label is None else text_of(subscriber.label),
        told(subscriber.left),
        told(subscriber.right),
        told(subscriber.ring),
        [(text_of(at), peer) for at, peer in subscriber.shortcuts.items()],
    )


def make_peers(number: int, rng: random.Random) -> list[PeerId]:
    """Ids in no order that means anything; the supervisor's is none of them."""
    return [each.to_bytes(2, "big") for each in rng.sample(range(1, 0xFFFF), number)]
