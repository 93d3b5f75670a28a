"""Radius gossip over a given graph, with messages delivered in any order a test likes.

`Bag` holds everything that is under way, messages, letters and timers alike; what comes out next is
drawn at random, so that links need not even keep their order. Time moves only when a test says so.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

from rumormill.core.effects import Append, Effects, Mail, Send, SendAll, SetTimer
from rumormill.core.event import Event
from rumormill.core.inputs import (
    Input,
    PeerConnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Stored,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from rumormill.core.trace import Refuse, RejectMessage
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.messages import (
    Frame,
    Interest,
    decode_frame,
    encode_frame,
    sign,
)
from rumormill.protocols.radius.router import RADIUS, Radius
from rumormill.sim.identity import SimulatedIdentity

Edge = tuple[int, int]


def peer_id(index: int) -> bytes:
    """The id of a peer by its number."""
    return index.to_bytes(4, "big")


def interest_of(owner: int, now: float, signer: int | None = None, **changes: Any) -> Interest:
    """An interest in topic t for 30 s, signed by its owner unless told otherwise."""
    date = int(now * 1e6)
    values = {"topic": "t", "sequence": date, "expires": date + 30_000_000, **changes}
    word = Interest(peer_id(owner), **values)
    sign(word, SimulatedIdentity(peer_id(owner if signer is None else signer)))
    return word


class Bag:
    """Peers on a graph, and everything that is under way between them."""

    def __init__(self, count: int, edges: Iterable[Edge], seed: int = 1, **config: Any) -> None:
        settings = {"overlay": "links", "gather": 0.0, **config}
        self.now = 1000.0
        self.randomness = random.Random(seed)
        self.under_way: list[tuple[int, Input]] = []
        self.timers: dict[tuple[int, Any], float] = {}
        self.events: list[list[Event]] = [[] for _ in range(count)]
        self.refused: list[list[str]] = [[] for _ in range(count)]
        self.sent: list[tuple[int, int, Frame]] = []
        self.dead: dict[int, None] = {}
        self.lost: Callable[[int, int, Frame], bool] = lambda _source, _target, _frame: False
        self.machines = [
            Radius(
                SimulatedIdentity(peer_id(index)), random.Random(index), RadiusConfig(**settings)
            )
            for index in range(count)
        ]
        for index in range(count):
            self.feed(index, Start())
        for one, other in edges:
            self.link(one, other)

    def link(self, one: int, other: int) -> None:
        """Connect two peers."""
        self.feed(one, PeerConnected(peer_id(other), RADIUS, outbound=True))
        self.feed(other, PeerConnected(peer_id(one), RADIUS))

    def feed(self, index: int, event: Input) -> None:
        """Give a peer an input and take what it does."""
        if index in self.dead:
            return
        effects: Effects = []
        self.machines[index].handle(event, self.now, effects)
        for effect in effects:
            if isinstance(effect, SendAll):
                for peer in effect.peers:
                    self._post(index, peer, effect.message)
            elif isinstance(effect, Send | Mail):
                self._post(index, effect.peer, effect.message)
            elif isinstance(effect, SetTimer):
                self.timers[index, effect.timer] = effect.at
            elif isinstance(effect, Append):
                if effect.deliver:
                    self.events[index].append(effect.event)
                if effect.barrier is not None:
                    self.feed(index, Stored((effect.barrier,)))
            elif isinstance(effect, Refuse | RejectMessage):
                self.refused[index].append(effect.reason)

    def _post(self, source: int, peer: bytes, message: Any) -> None:
        frame = decode_frame(encode_frame(message))
        target = int.from_bytes(peer, "big")
        self.sent.append((source, target, frame))
        if target in self.dead:
            self.under_way.append((source, SendDropped(peer, frame, "peer down")))
        elif not self.lost(source, target, frame):
            self.under_way.append((target, Received(peer_id(source), frame)))

    def settle(self, until: float | None = None) -> None:
        """Let everything under way arrive, in a random order, and timers that are due fire."""
        if until is not None:
            self.now = until
        while True:
            due = [key for key, at in self.timers.items() if at <= self.now]
            count = len(self.under_way) + len(due)
            if not count:
                return
            place = self.randomness.randrange(count)
            if place < len(self.under_way):
                self.under_way[place], self.under_way[-1] = (
                    self.under_way[-1],
                    self.under_way[place],
                )
                self.feed(*self.under_way.pop())
            else:
                index, timer = due[place - len(self.under_way)]
                del self.timers[index, timer]
                self.feed(index, TimerFired(timer))

    def subscribe(self, index: int, topic: str = "t") -> None:
        self.feed(index, Subscribe(topic))

    def unsubscribe(self, index: int, topic: str = "t") -> None:
        self.feed(index, Unsubscribe(topic))

    def publish(self, index: int, topic: str = "t", data: bytes = b"x") -> None:
        self.feed(index, Publish(topic, data))

    def knows(self, index: int, owner: int, topic: str = "t") -> bool:
        """Whether a peer would serve an owner's subscription."""
        entry = self.machines[index].subscriptions.interests.find(topic, peer_id(owner))
        return entry is not None and not entry.interest.withdrawn and not entry.lost


def distances(peers: int, edges: Iterable[Edge], origin: int) -> list[int]:
    """How far every peer is from one, in hops."""
    links: list[list[int]] = [[] for _ in range(peers)]
    for one, other in edges:
        links[one].append(other)
        links[other].append(one)
    found = {origin: 0}
    queue = [origin]
    for peer in queue:
        for other in links[peer]:
            if other not in found:
                found[other] = found[peer] + 1
                queue.append(other)
    return [found[peer] for peer in range(peers)]


def diameter(peers: int, edges: list[Edge]) -> int:
    """The largest distance between two peers."""
    return max(max(distances(peers, edges, origin)) for origin in range(peers))
