"""One direction of a connection between two simulated peers.

A link is a stream: what is sent arrives in order, after the latency, unless the scenario asks for
loss or reordering. Bandwidth belongs to the peers, not to the link: all streams of a peer share
its upload and download. Messages that wait for the upload stand in a bounded queue per link, and
what does not fit is dropped, counted, and told to the sender's machine.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Answered, Asked, Input, Received, SendDropped
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.sim.engine import Engine
from rumormill.trace.entries import Entry

LOST = "lost on the link"
QUEUE_FULL = "queue full"
NO_RELAY = "behind a NAT, and no relay"
PEER_DOWN = "peer down"
CLOSED = "connection closed"

_UNLIMITED = float("inf")

RoundTrip: TypeAlias = Callable[[WireMessage], WireMessage]
"""Sends a message through a codec, and gives back what was decoded."""


class Parcel(msgspec.Struct, frozen=True, gc=False):
    """A message on its way, with what every receiver makes of it: made once for all of them."""

    message: WireMessage
    received: Received | Asked | Answered
    traced: trace.RecvRPC


def pack(sender: PeerId, message: WireMessage) -> Parcel:
    """Make a message ready to travel."""
    meta = message.cached_meta or message.meta
    return Parcel(message, Received(sender, message), trace.RecvRPC(sender, meta))


class LinkFaults(msgspec.Struct, frozen=True):
    """What the network does to messages besides delaying them."""

    jitter: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0
    queue_limit: int = 1024


class Endpoint(ABC):
    """A peer, as what comes from it or goes to it sees it."""

    __slots__ = (
        "busy",
        "download",
        "download_free",
        "effects",
        "engine",
        "id",
        "machine",
        "record",
        "round_trip",
        "up",
        "upload",
        "upload_free",
    )

    machine: Machine

    def __init__(self, peer: PeerId, engine: Engine, round_trip: RoundTrip | None) -> None:
        self.id = peer
        self.engine = engine
        self.record: Callable[[Entry], None] = engine.recorder.record
        self.round_trip = round_trip
        """What every message must go through, where codecs are checked."""
        self.up = self.busy = False
        self.effects: Effects = []
        self.upload = self.download = _UNLIMITED
        self.upload_free = self.download_free = 0.0

    @property
    def limits_bandwidth(self) -> bool:
        """Whether messages to and from this peer take time to transmit."""
        return self.upload < _UNLIMITED or self.download < _UNLIMITED

    def claim_upload(self, size: int, now: float) -> float:
        """Take a place in the upload that all streams share; return when so much has left."""
        ends = self.upload_free = max(now, self.upload_free) + size / self.upload
        return ends

    @abstractmethod
    def carry_out(self) -> None:
        """Carry out the effects of one input, in order."""

    @abstractmethod
    def notify(self, news: Input) -> None:
        """Tell the machine what the runtime learned: at once, or in its turn after a pause."""

    @abstractmethod
    def enqueue(self, way: "Way", parcel: Parcel) -> None:
        """Keep a message that arrived while the peer does not read."""


class Circuit(ABC):
    """A connection through a relay, as what travels over it sees it: two hops, and a budget."""

    def __init__(self, relay: Endpoint, delays: Mapping[PeerId, float], limit: int) -> None:
        self.relay = relay
        self._delays = delays
        self._left = dict.fromkeys(delays, limit)
        self.carried = 0
        """Bytes that it has carried, both ways."""
        self.closed_because = ""
        self.direct = False
        """Whether a direct connection has taken its place."""

    @property
    def open(self) -> bool:
        """Whether anything passes."""
        return not self.closed_because

    def delay(self, source: PeerId) -> float:
        """How long the way from one end to the other is."""
        return self._delays[source]

    def takes(self, source: PeerId, size: int) -> bool:
        """Whether the relay passes so much more on; else it ends the circuit."""
        left = self._left[source] = self._left[source] - size
        if left < 0:
            self.spend(source)
            return False
        self.carried += size
        return True

    @abstractmethod
    def spend(self, sender: PeerId) -> None:
        """A sender has spent the budget."""


class Way:
    """How messages come from one peer to another, in order unless a fault reorders them."""

    __slots__ = (
        "_faults",
        "_randomness",
        "_waiting",
        "circuit",
        "last_arrival",
        "latency",
        "open",
        "opens_at",
        "plain",
        "source",
        "target",
    )

    def __init__(
        self,
        source: Endpoint,
        target: Endpoint,
        latency: float,
        faults: LinkFaults,
        randomness: random.Random,
        circuit: Circuit | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.latency = latency
        self.open = True
        self.opens_at = 0.0
        """What is sent earlier waits until then."""
        self.last_arrival = 0.0
        limited = source.limits_bandwidth or target.limits_bandwidth
        troubled = faults.jitter or faults.loss or faults.reorder
        self.plain = not (limited or troubled or source.round_trip or circuit)
        self.circuit = circuit
        """What it goes through; None is the direct way."""
        self._faults = faults
        self._randomness = randomness
        self._waiting: deque[float] | None = None

    def alive(self, now: float) -> bool:
        """Whether it is in use, and what is sent needs no new connection."""
        return self.open

    def transmit(self, parcel: Parcel, now: float) -> None:
        """Send a message that was traced as sent, over a link that is not plain."""
        faults, draw = self._faults, self._randomness
        round_trip = self.source.round_trip
        if round_trip is not None and type(parcel) is Parcel:
            parcel = pack(self.source.id, round_trip(parcel.message))
        departs, size, hops = now, parcel.message.meta.size, 1
        if self.source.upload < _UNLIMITED:
            departs = self._upload(size, now)
        if self.circuit is not None:
            hops, relay = 2, self.circuit.relay
            if not self.circuit.takes(self.source.id, size):  # it was open until now
                self.drop(parcel, self.circuit.closed_because)
                return
            if relay.upload < _UNLIMITED:
                departs = relay.claim_upload(size, departs)
        if faults.loss and any(draw.random() < faults.loss for _ in range(hops)):
            self.drop(parcel, LOST, tell=False)
            return
        arrives = max(departs, self.opens_at) + self.latency
        if faults.jitter:
            arrives += sum(draw.random() * faults.jitter for _ in range(hops))
        if not faults.reorder or draw.random() >= faults.reorder:
            arrives = self.last_arrival = max(arrives, self.last_arrival)
        arrive = self.arrive if self.target.download == _UNLIMITED else self._download
        self.source.engine.schedule(arrives, arrive, parcel)

    def accepts(self, now: float) -> bool:
        """Whether the queue of messages that wait for the upload has room."""
        waiting = self._waiting
        if waiting is None:
            return True
        while waiting and waiting[0] <= now:
            waiting.popleft()
        return len(waiting) < self._faults.queue_limit

    def _upload(self, size: int, now: float) -> float:
        """Take a place in the sender's upload; return when the message has left."""
        ends = self.source.claim_upload(size, now)
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(ends)
        return ends

    def _download(self, parcel: Parcel) -> None:
        """Take a place in the receiver's download: who is there first is received first."""
        target = self.target
        if not self.open:
            self.arrive(parcel)
            return
        begins = max(target.engine.now, target.download_free)
        ends = target.download_free = begins + parcel.message.meta.size / target.download
        target.engine.schedule(ends, self.arrive, parcel)

    def drop(self, parcel: Parcel, reason: str, *, tell: bool = True) -> None:
        """Trace a loss at the sender, and tell its machine where a real sender would know."""
        source, meta = self.source, parcel.message.meta
        source.record((source.engine.now, source.id, trace.DropRPC(self.target.id, meta, reason)))
        if tell and source.up:
            self.tell(parcel, reason)

    def tell(self, parcel: Parcel, reason: str) -> None:
        """Tell the sender's machine that a parcel will not arrive."""
        self.source.notify(SendDropped(self.target.id, parcel.message, reason))

    def arrive(self, parcel: Parcel) -> None:
        """Hand a message to the target's machine, if it can take it now."""
        target = self.target
        if not self.open:
            self.drop(parcel, CLOSED if target.up else PEER_DOWN, tell=False)
            return
        if target.busy:
            target.enqueue(self, parcel)
            return
        now = target.engine.now
        target.record((now, target.id, parcel.traced))
        effects = target.effects
        target.machine.handle(parcel.received, now, effects)
        if effects:
            target.carry_out()


class Link(Way):
    """One direction of a connection."""

    __slots__ = ("outbound",)

    outbound: bool
