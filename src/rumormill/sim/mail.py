"""Letters and questions: what travels between simulated peers that need not be connected.

A real node dials the peer, says what it has to say, and closes the connection when it has been
idle for a while. Here a `Route` stands for such a connection: the first letter waits for a
handshake, later ones pay the way only, and so does what comes back. Neither machine hears of it.
A route with nothing under way rests, where that is all to know of it, as the time of its last use:
a peer has a hundred of those, and should cost little.
Letters keep their order, and suffer what links suffer: latency, jitter, loss, bandwidth, a
receiver that does not read. One that cannot arrive comes back after the way there and back.

A question travels like a letter and waits at its target for the answer. It ends once: with the
answer, with the time that the asker gave, or with the first thing that goes wrong.
"""

import functools
import random
from abc import abstractmethod
from itertools import count
from math import inf
from typing import Final, Protocol

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import take_out
from rumormill.core.effects import Answer, Ask, Decline, Mail
from rumormill.core.ids import PeerId
from rumormill.core.inputs import NO_ANSWER, Answered, Asked, AskFailed, Input, SendDropped
from rumormill.core.messages import WireMessage
from rumormill.sim.engine import Engine
from rumormill.sim.latency import LatencyModel
from rumormill.sim.link import (
    PEER_DOWN,
    QUEUE_FULL,
    Circuit,
    Endpoint,
    Link,
    LinkFaults,
    Parcel,
    RoundTrip,
    Way,
    pack,
)
from rumormill.sim.resting import Resting

UNREACHABLE: Final = "peer out of reach"
UNKNOWN_PEER: Final = "unknown peer"
DECLINED: Final = "the peer declined to answer"

MOST_ROUTES: Final = 512
"""Routes that a peer keeps open, the least recently used going first: a node's connections."""

IDLE_AFTER: Final = 60.0
"""Seconds without a letter after which a route needs a handshake again: as a node's connection."""

UNKNOWN_AFTER: Final = 0.1
"""Seconds until a peer is known not to exist; our choice: a round trip at the default latency."""


class Correspondent(Endpoint):
    """A peer, as its letters and questions see it."""

    __slots__ = (
        "address",
        "alarms",
        "asked",
        "index",
        "links",
        "questions",
        "routes",
        "session",
        "up_since",
        "warm",
    )

    def __init__(
        self, index: int, peer: PeerId, engine: Engine, round_trip: RoundTrip | None
    ) -> None:
        super().__init__(peer, engine, round_trip)
        self.index = index
        self.address = ""
        self.session = 0
        """How often it came up: what belongs to an earlier time is not told."""
        self.up_since = 0.0
        self.links: dict[PeerId, Link] = {}
        self.routes: dict[PeerId, Route] = {}
        """The ways of its letters that are under way, and those that are not plain."""
        self.warm = Resting()
        """Where letters go without a handshake, and when one last did."""
        self.questions: dict[int, Question] = {}
        """Its own questions that are open, by its machine's number."""
        self.alarms: list[tuple[float, int]] = []
        """When it is next looked whether one of them has waited too long, the soonest last."""
        self.asked: dict[int, Question] = {}
        """Questions of others that wait for its answer."""

    @abstractmethod
    def handle(self, event: Input) -> None:
        """Feed an input to the machine and carry out what it asks for."""


class Dialling(Protocol):
    """Who knows what stands between two peers, where NATs do."""

    def connect(self, dialler: Correspondent, target: Correspondent) -> Circuit | None:
        """Open a connection, unless there is one; None is a direct one, and a circuit that is not
        open means that there is no way."""


class Surroundings(Protocol):
    """The network, as far as letters and questions depend on it."""

    engine: Engine
    latency: LatencyModel
    faults: LinkFaults
    link_randomness: random.Random
    processing_delay: float
    query_round_trip: RoundTrip | None

    @property
    def relays(self) -> Dialling | None:
        """What peers behind NATs are reached through; None where everybody is public."""

    def find(self, peer: PeerId) -> Correspondent | None:
        """The peer with this id."""

    def separated(self, one: Correspondent, other: Correspondent) -> bool:
        """Whether a partition stands between two peers."""


class Question(msgspec.Struct, frozen=True, eq=False):
    """A question under way; `number` is the one that its target answers to."""

    asker: Correspondent
    target: Correspondent
    ask: Ask
    number: int
    expires: tuple[float, int]
    """When it has waited too long, and its place among what happens then."""


class QueryParcel(Parcel, frozen=True, gc=False, kw_only=True):
    """A question, or the answer to one, on its way."""

    question: Question
    is_answer: bool


class Route(Way):
    """The way of letters from one peer to another."""

    __slots__ = ("_post", "can_rest", "last_used")

    source: Correspondent
    target: Correspondent

    def __init__(
        self, post: "Post", source: Correspondent, target: Correspondent, last_used: float
    ) -> None:
        network = post.network
        latency = network.latency(source.index, target.index) + network.processing_delay
        super().__init__(source, target, latency, network.faults, network.link_randomness)
        self._post = post
        self.last_used = last_used
        self.can_rest = self.plain and network.relays is None
        """Whether its last use says everything of it; where relays are, they look at routes."""

    def lead_through(self, circuit: Circuit | None) -> None:
        """Go over a relay from now on, or directly."""
        network = self._post.network
        if circuit is not None and circuit.direct:
            circuit = None
        self.circuit, self.plain = circuit, self.plain and circuit is None
        self.latency = network.processing_delay + (
            network.latency(self.source.index, self.target.index)
            if circuit is None
            else circuit.delay(self.source.id)
        )

    def alive(self, now: float) -> bool:
        """Whether letters pass without a handshake."""
        return now - self.last_used <= IDLE_AFTER and self.last_used >= self.target.up_since

    @property
    def way_back(self) -> float:
        """How long news from the target travel."""
        if self.circuit is not None:
            return self.circuit.delay(self.target.id)
        return self._post.network.latency(self.target.index, self.source.index)

    def shake_hands(self, now: float) -> None:
        """Let everything wait until the target has answered once; none is needed on a link."""
        relays = self._post.network.relays
        if relays is not None:
            self.lead_through(relays.connect(self.source, self.target))
        if self.target.id not in self.source.links:
            self.opens_at = now + self.latency + self.way_back

    def post(self, parcel: Parcel, now: float) -> None:
        """Send a letter, a question or an answer."""
        source, target = self.source, self.target
        if not self.reaches():
            self._return(parcel, now + self.latency)
        elif self.plain:
            source.record((now, source.id, trace.SendRPC(target.id, parcel.message.meta)))
            arrives = self.last_arrival = max(now, self.opens_at) + self.latency
            source.engine.schedule(arrives, self.arrive, parcel)
        elif self.accepts(now):
            source.record((now, source.id, trace.SendRPC(target.id, parcel.message.meta)))
            self.transmit(parcel, now)
        else:
            self.drop(parcel, QUEUE_FULL)

    def reaches(self) -> bool:
        """Whether the target can be reached now."""
        if self.circuit is not None and not self.circuit.open:
            return False
        return self.target.up and not self._post.network.separated(self.source, self.target)

    def arrive(self, parcel: Parcel) -> None:
        """Hand a parcel to the target's machine, or send it back."""
        source, target = self.source, self.target
        now = target.engine.now
        if not self.reaches():
            self._return(parcel, now)
            return
        if target.busy:
            target.enqueue(self, parcel)
            return
        if source.up:
            self._post.open_back(self, now)
            if self.can_rest and self.last_arrival <= now:
                self._post.put_away(self)
        if isinstance(parcel, QueryParcel) and not _note_arrival(parcel):
            return
        target.record((now, target.id, parcel.traced))
        target.handle(parcel.received)

    def _return(self, parcel: Parcel, from_time: float) -> None:
        """Let the sender know, when it can, that a letter did not arrive."""
        source = self.source
        source.routes.pop(self.target.id, None)
        source.warm.remove(self.target.index)
        returned = (parcel, source.session)
        source.engine.schedule(from_time + self.way_back, self._returned, returned)

    def _returned(self, returned: tuple[Parcel, int]) -> None:
        parcel, session = returned
        reason = UNREACHABLE if self.target.up else PEER_DOWN
        if self.target.up and self.circuit is not None and not self.circuit.open:
            reason = self.circuit.closed_because
        self.drop(parcel, reason, tell=self.source.session == session)

    def drop(self, parcel: Parcel, reason: str, *, tell: bool = True) -> None:
        """Trace a loss at the sender; a one-way question is over then, told or not."""
        super().drop(parcel, reason, tell=tell)
        if isinstance(parcel, QueryParcel) and parcel.question.ask.one_way:
            _end(parcel.question)

    def tell(self, parcel: Parcel, reason: str) -> None:
        """Tell the sender's machine that a parcel will not arrive."""
        if not isinstance(parcel, QueryParcel):
            super().tell(parcel, reason)
        elif not parcel.is_answer:
            fail(parcel.question, reason)


def _note_arrival(parcel: QueryParcel) -> bool:
    """Note that a question waits or is answered; false when nobody waits for it any more."""
    question = parcel.question
    if parcel.is_answer:
        return _end(question)
    if question.ask.one_way:
        _end(question)
    elif is_open(question):
        question.target.asked[question.number] = question
    else:
        return False
    return True


def is_open(question: Question) -> bool:
    """Whether its asker still waits."""
    return question.asker.questions.get(question.ask.number) is question


def _end(question: Question) -> bool:
    """End a question; false when it has ended before."""
    take_out(question.target.asked, question.number)
    if not is_open(question):
        return False
    take_out(question.asker.questions, question.ask.number)
    return True


def fail(question: Question, reason: str) -> None:
    """End a question without an answer, if it is open."""
    if _end(question):
        question.asker.notify(AskFailed(question.ask.peer, question.ask.number, reason))


_target_down = functools.partial(fail, reason=PEER_DOWN)


def _query_parcel(received: Asked | Answered, question: Question) -> QueryParcel:
    message = received.message
    return QueryParcel(
        message,
        received,
        trace.RecvRPC(received.peer, message.meta),
        question=question,
        is_answer=isinstance(received, Answered),
    )


class Post:
    """Carries the letters and questions of all peers of a network."""

    def __init__(self, network: Surroundings) -> None:
        self.network = network
        self._engine = network.engine
        self._numbers = count(1)

    def mail(self, host: Correspondent, effect: Mail) -> None:
        """Carry a letter."""
        target = self._find(host, effect)
        if target is not None:
            self._post(host, target, pack(host.id, effect.message))

    def ask(self, host: Correspondent, effect: Ask) -> None:
        """Carry a question."""
        target = self._find(host, effect)
        if target is None:
            return
        # One way, it ends when it arrives or is lost.
        ends = inf if effect.one_way else self._engine.now + effect.timeout
        expires = (ends, self._engine.next_order())
        question = Question(host, target, effect, next(self._numbers), expires)
        host.questions[effect.number] = question
        message = self._checked(effect.message)
        asked = Asked(host.id, question.number, message, host.address)
        if not effect.one_way:
            self._set_alarm(host, expires)
        self._post(host, target, _query_parcel(asked, question))

    def _set_alarm(self, host: Correspondent, at: tuple[float, int]) -> None:
        """Look at a host's questions then, unless that happens earlier anyway.

        Nearly all are answered long before: an entry for each would keep what it asked until then.
        """
        if not host.alarms or at < host.alarms[-1]:
            host.alarms.append(at)
            self._engine.place((*at, self._sound_alarm, host))

    def _sound_alarm(self, host: Correspondent) -> None:
        """End the question that has waited too long, if it still does; turn to the next one."""
        due = host.alarms.pop()
        for question in host.questions.values():
            if question.expires == due:
                fail(question, NO_ANSWER)
                break
        waiting = [question.expires for question in host.questions.values()]
        if waiting and (soonest := min(waiting))[0] < inf:
            self._set_alarm(host, soonest)

    def answer(self, host: Correspondent, effect: Answer) -> None:
        """Carry an answer; one to a question that nobody asked or still asks is forgotten."""
        question = take_out(host.asked, effect.number)
        if question is None:
            return
        answered = Answered(host.id, question.ask.number, self._checked(effect.message))
        self._post(host, question.asker, _query_parcel(answered, question))

    def decline(self, host: Correspondent, effect: Decline) -> None:
        """Let the asker know, as soon as news can travel to it, that no answer will come."""
        question = take_out(host.asked, effect.number)
        if question is not None:
            way_back = self.network.latency(host.index, question.asker.index)
            self._engine.schedule(self._engine.now + way_back, self._declined, question)

    def _declined(self, question: Question) -> None:
        if not self.network.separated(question.target, question.asker):
            fail(question, DECLINED)

    def _checked(self, message: WireMessage) -> WireMessage:
        round_trip = self.network.query_round_trip
        return message if round_trip is None else round_trip(message)

    def _post(self, host: Correspondent, target: Correspondent, parcel: Parcel) -> None:
        now = self._engine.now
        self._route(host, target, now).post(parcel, now)

    def _find(self, host: Correspondent, effect: Mail | Ask) -> Correspondent | None:
        """The peer that something is for; where there is none, its sender learns that later."""
        target = self.network.find(effect.peer)
        if target is not None and target is not host:
            return target
        news = (host, host.session, effect)
        self._engine.schedule(self._engine.now + UNKNOWN_AFTER, self._no_such_peer, news)
        return None

    def _no_such_peer(self, news: tuple[Correspondent, int, Mail | Ask]) -> None:
        host, session, effect = news
        now, meta = self._engine.now, effect.message.meta
        host.record((now, host.id, trace.DropRPC(effect.peer, meta, UNKNOWN_PEER)))
        if host.up and host.session == session:
            if isinstance(effect, Ask):
                host.notify(AskFailed(effect.peer, effect.number, UNKNOWN_PEER))
            else:
                host.notify(SendDropped(effect.peer, effect.message, UNKNOWN_PEER))

    # Routes.

    def _route(self, host: Correspondent, target: Correspondent, now: float) -> Route:
        """The way to a peer, with a handshake before it where one is needed."""
        route = host.routes.pop(target.id, None)
        if route is None:
            route = self._new_route(host, target, host.warm.since(target.index))
        if not route.alive(now):
            route.shake_hands(now)
        route.last_used = now
        host.routes[target.id] = route
        return route

    def open_back(self, arriving: Route, now: float) -> None:
        """Something came from a peer: what goes back needs no handshake."""
        host, target, circuit = arriving.target, arriving.source, arriving.circuit
        route = host.routes.get(target.id)
        if route is None:
            if arriving.can_rest:
                host.warm.put(target.index, now, MOST_ROUTES)
                return
            route = host.routes[target.id] = self._new_route(host, target, now)
        if route.circuit is not circuit:
            route.lead_through(circuit)
        route.last_used = now
        route.opens_at = min(route.opens_at, now)

    def _new_route(self, host: Correspondent, target: Correspondent, last_used: float) -> Route:
        if len(host.routes) >= MOST_ROUTES:
            del host.routes[next(iter(host.routes))]
        return Route(self, host, target, last_used)

    def put_away(self, route: Route) -> None:
        """Nothing is under way on a route any more that can rest."""
        source, target = route.source, route.target
        if source.routes.get(target.id) is route:
            take_out(source.routes, target.id)
            source.warm.put(target.index, route.last_used, MOST_ROUTES)

    def close_routes(self, host: Correspondent, target: Correspondent) -> None:
        """Let two peers' next letters shake hands again."""
        for one, other in ((host, target), (target, host)):
            one.routes.pop(other.id, None)
            one.warm.remove(other.index)

    def forget(self, host: Correspondent, reason: str) -> None:
        """A host goes down: questions to it fail when that can be known, its own are over.

        A machine that comes back with its state must not wait for answers that never come.
        """
        host.routes.clear()
        host.warm.clear()
        for question in list(host.asked.values()):
            latency = self.network.latency(host.index, question.asker.index)
            self._engine.schedule(self._engine.now + latency, _target_down, question)
        host.asked.clear()
        for question in list(host.questions.values()):
            _end(question)
            failed = AskFailed(question.ask.peer, question.ask.number, reason)
            host.machine.handle(failed, self._engine.now, [])
