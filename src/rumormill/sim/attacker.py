"""Hostile peers: they leave their topics, since nothing is delivered to them; one sends junk.

Leaving is traced, so that the ledger expects no delivery there. Other peers see no goodbye: what
they are told about its subscriptions is as arbitrary as the rest.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from rumormill.core import trace
from rumormill.core.effects import Effects, Send, SetTimer
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Input, PeerConnected, PeerDisconnected, Start, TimerFired
from rumormill.core.machine import View
from rumormill.core.messages import WireMessage

_NEXT_ATTACK: Final = "next attack"


class Hostile(ABC):
    """A machine that attacks `rate` times a second, once it has left its topics."""

    def __init__(self, left: Sequence[Topic], rate: float, randomness: random.Random) -> None:
        self._left = left
        self._interval = 1 / rate
        self._randomness = randomness
        self._peers: dict[PeerId, None] = {}

    def view(self) -> View:
        """Show nothing: nobody would believe it."""
        return View()

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if isinstance(event, PeerConnected):
            self._peers[event.peer] = None
        elif isinstance(event, PeerDisconnected):
            self._peers.pop(event.peer, None)
        elif isinstance(event, Start):
            effects.extend(trace.Leave(topic) for topic in self._left)
            effects.append(SetTimer(_NEXT_ATTACK, now + self._interval))
        elif isinstance(event, TimerFired):
            effects.append(SetTimer(_NEXT_ATTACK, now + self._interval))
            if self._peers:
                self._attack(list(self._peers), effects)

    @abstractmethod
    def _attack(self, peers: list[PeerId], effects: Effects) -> None:
        """Do what it does, to some of the peers that there are."""


class Attacker(Hostile):
    """Sends arbitrary messages to random peers of its."""

    def __init__(
        self,
        junk: Callable[[random.Random, list[PeerId], list[Topic]], WireMessage],
        topics: list[Topic],
        left: Sequence[Topic],
        rate: float,
        randomness: random.Random,
    ) -> None:
        super().__init__(left, rate, randomness)
        self._junk = junk
        self._topics = topics

    def _attack(self, peers: list[PeerId], effects: Effects) -> None:
        message = self._junk(self._randomness, peers, self._topics)
        effects.append(Send(self._randomness.choice(peers), message))
