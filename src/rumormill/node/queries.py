"""Questions and answers: each question on a short stream of its own, one frame there, one back.

We end our side behind the question, and the peer ends its own behind the answer. Peers may ask
several questions on one stream, one after the other, as go's kad-dht does; each is put to the
machine as it arrives, and answers go back in the order in which the machine gives them.

Bounds: a peer is asked so many questions at a time, the others wait their turn within their own
timeouts; so many are open in all; of peers' questions so many are open at a time, so many of each
peer, and so many on one stream, where the oldest is taken for one that wants no answer. When there
are too many, whoever has most of them loses one. Answers that a peer does not read count among what
waits for it, and so do its questions as long as they have come in part. What breaks a rule ends the
stream that it came on and is counted; an answer that cannot be read fails its question.
"""

import asyncio
from collections import deque
from itertools import count
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.config import Config
from rumormill.core.effects import Answer, Ask, Decline
from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.core.inputs import NO_ANSWER, Answered, Asked, AskFailed
from rumormill.core.messages import WireMessage
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.stream import ENDED, REFUSED, Carrier, Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.libp2p.yamux_types import RESET_BY_PEER
from rumormill.node.channel import MachineSide
from rumormill.node.config import NodeConfig
from rumormill.node.pending_sends import OURSELVES, Dialler
from rumormill.protocols.registry import QuerySpec
from rumormill.wire.frames import FrameReader, frame

_PRICE: Final = 0.05
"""What a question costs its peer (`libp2p.admission`), and so does the stream that it comes on. Our
choice: 500 a second may be asked all the time, and 20,000 at once."""
TOO_MANY_QUESTIONS: Final = "too many questions are open"
UNREAD_ANSWERS: Final = "unread-answers"
UNFINISHED: Final = "unfinished-questions"
UNANSWERED: Final = "the peer ended without an answer"

_OPEN_ON_STREAM: Final = 16
"""Questions of one stream that wait for answers; our choice: go asks one at a time."""

_GOES_ON: Final = 16 << 10
_LONGEST: Final = 6
"""Bytes of a long answer that must come within each timeout of its question, and how many timeouts
it may take; our choice: an event of a mebibyte comes over a line of 0.2 Mbit/s, and nobody holds a
question up for more than a minute where an answer may take ten seconds."""

_LINGERING: Final = 8
"""Streams of one connection whose peer has ended and waits for answers; our choice: together with
as many questions at a time they stay within what a connection may have
(`swarm.MAX_STREAMS_PER_PROTOCOL`)."""

_QUESTIONS_PER_PEER: Final = 8
"""Questions that are put to one peer at a time, the other half of those streams; more wait for
their turn."""


class Queries:
    """The questions of a node, to others and from others."""

    def __init__(
        self,
        driver: MachineSide,
        swarm: Swarm,
        dialler: Dialler,
        config: NodeConfig,
        spec: QuerySpec,
        settings: Config,
        first_number: int = 1,
    ) -> None:
        self.driver = driver
        self.config = config
        self.decode = spec.decoder(settings)
        self.max_frame = spec.max_message(settings)
        self._swarm = swarm
        self._dialler = dialler
        self._encode = spec.encode
        self._protocol_ids = spec.protocol_ids
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Asking] = {}
        self._partners: dict[PeerId, _Partner] = {}
        self._asked: dict[int, Answering] = {}
        self._askers: dict[PeerId, dict[int, None]] = {}
        """Which of these questions each peer has asked, the oldest first."""
        self.unsent: dict[PeerId, int] = {}
        """Bytes that wait for each peer: of answers to be read, of questions to be finished."""
        self._numbers = count(first_number)
        """Of peers' questions; each format has numbers of its own."""
        self._lingering: dict[Carrier, dict[Answering, None]] = {}
        for protocol in spec.protocol_ids:
            swarm.services[protocol] = lambda _, stream: Answering(self, stream)
            swarm.prices[protocol] = _PRICE

    # Our questions.

    def ask(self, effect: Ask) -> None:
        """Put a question to a peer, now or when it is its turn."""
        refusal = ""
        if effect.peer == self.driver.id:
            refusal = OURSELVES
        elif len(self._open) >= self.config.questions_open:
            refusal = TOO_MANY_QUESTIONS
            self.driver.count("too-many-questions")
        if refusal:
            self.driver.record(trace.DropRPC(effect.peer, effect.message.meta, refusal))
            failed = AskFailed(effect.peer, effect.number, refusal)
            self._loop.call_soon(self.driver.feed, failed)
            return
        question = Asking(self, effect, frame(self._encode(effect.message)))
        self._open[effect.number] = question
        question.timer = self._loop.call_later(effect.timeout, self._time_out, question)
        self._partners.setdefault(effect.peer, _Partner()).waiting.append(question)
        self._advance(effect.peer)

    def _advance(self, peer: PeerId) -> None:
        """Put as many of the questions that wait for a peer as may be put at a time."""
        partner = self._partners.get(peer)
        if partner is None:
            return
        waiting = partner.waiting
        while waiting and partner.active < _QUESTIONS_PER_PEER:
            if not waiting[0].open:
                waiting.popleft()
                continue
            connection = self._swarm.connections.get(peer)
            if connection is None:
                if not partner.dialling:
                    partner.dialling = True
                    self._dialler.reach(peer, self._on_reached)
                return
            self._begin(waiting.popleft(), partner, connection)
        if not (waiting or partner.active or partner.dialling):
            del self._partners[peer]

    def _begin(self, question: "Asking", partner: "_Partner", connection: Connection) -> None:
        connection.active = True
        try:
            if connection.spoken is not None and connection.spoken.isdisjoint(self._protocol_ids):
                raise LocalError(REFUSED)
            question.stream = connection.open_stream(self._protocol_ids, question)
        except LocalError as error:
            self._loop.call_soon(self.fail, question, str(error))
            return
        question.has_place = True
        partner.active += 1
        if len(self._protocol_ids) == 1:
            question.put(question.stream)  # the only proposal, so there is no answer to wait for

    def _on_reached(self, peer: PeerId, connection: Connection | None, reason: str) -> None:
        partner = self._partners.get(peer)
        if partner is None:
            return
        partner.dialling = False
        if connection is None:
            for question in list(partner.waiting):
                self.fail(question, reason)
            partner.waiting.clear()
        self._advance(peer)

    def free_place(self, question: "Asking") -> None:
        """A question no longer counts among those that are put to its peer at a time."""
        peer = question.ask.peer
        partner = self._partners.get(peer)
        if question.has_place and partner is not None:
            question.has_place = False
            partner.active -= 1
            self._advance(peer)

    def close_question(self, question: "Asking") -> bool:
        """End a question; false when it has ended before."""
        if not question.open:
            return False
        question.open = False
        if self._open.get(question.ask.number) is question:
            del self._open[question.ask.number]
        return True

    def answered(self, question: "Asking", message: WireMessage) -> None:
        """Give the machine the answer to a question."""
        if self.close_question(question):
            ask = question.ask
            self.driver.record(trace.RecvRPC(ask.peer, message.meta))
            self.driver.feed(Answered(ask.peer, ask.number, message))

    def fail(self, question: "Asking", reason: str) -> None:
        """Tell the machine that a question has no answer, unless it has ended."""
        if self.close_question(question):
            ask = question.ask
            if question.stream is None:
                question.stop_timer()
            if not question.sent:
                self.driver.record(trace.DropRPC(ask.peer, ask.message.meta, reason))
            self.driver.feed(AskFailed(ask.peer, ask.number, reason))

    def _time_out(self, question: "Asking") -> None:
        if question.goes_on():
            question.timer = self._loop.call_later(question.ask.timeout, self._time_out, question)
            return
        self.fail(question, NO_ANSWER)
        if question.stream is not None:
            question.stream.reset()

    # Questions of peers.

    def put(self, asker: "Answering", peer: PeerId, message: WireMessage) -> None:
        """Put a peer's question to the machine."""
        self._swarm.charge(peer, "questions", _PRICE)
        if len(self._askers.get(peer, ())) >= self.config.questions_served_per_peer:
            raise PeerError("too-many-questions", "its questions wait for answers")
        if len(self._asked) >= self.config.questions_served:
            self.driver.count("too-many-questions")
            busiest = max(self._askers.values(), key=len)
            self._asked[next(iter(busiest))].stream.reset()
            if asker.gone:
                return
        if len(asker.open) >= _OPEN_ON_STREAM:
            self._forget_question(asker.open.popleft(), peer)
        number = next(self._numbers)
        self._asked[number] = asker
        self._askers.setdefault(peer, {})[number] = None
        asker.open.append(number)
        self.driver.record(trace.RecvRPC(peer, message.meta))
        address = asker.stream.connection.remote_address
        self.driver.feed(Asked(peer, number, message, address))

    def answer(self, effect: Answer) -> None:
        """Send an answer; one to a question that is no longer open is forgotten."""
        asker, message = self._take(effect.number), effect.message
        if asker is not None:
            framed = frame(self._encode(message))  # before the trace, which then knows its length
            self.driver.record(trace.SendRPC(asker.stream.connection.remote_peer, message.meta))
            asker.send(framed)

    def decline(self, effect: Decline) -> None:
        """Refuse a question by closing its stream, once all others on it are answered."""
        asker = self._take(effect.number)
        if asker is not None:
            asker.decline()

    def _take(self, number: int) -> "Answering | None":
        asker = self._asked.get(number)
        if asker is not None:
            self._forget_question(number, asker.peer)
            asker.open.remove(number)
        return asker

    def _forget_question(self, number: int, peer: PeerId) -> None:
        if self._asked.pop(number, None) is not None:
            del self._askers[peer][number]
            if not self._askers[peer]:
                del self._askers[peer]

    def may_wait(self, asker: "Answering", size: int) -> bool:
        """Whether there is room for so many bytes more that wait for a peer."""
        config, driver = self.config, self.driver
        if driver.queued_bytes + size > config.queue_bytes_total:
            self._loop.call_soon(driver.make_room)
            return False
        return self.unsent.get(asker.peer, 0) + size <= config.queue_bytes

    def note_unsent(self, peer: PeerId, more: int) -> None:
        """More or less waits for a peer."""
        self.driver.queued_bytes += more
        total = self.unsent.pop(peer, 0) + more
        if total:
            self.unsent[peer] = total

    def forget(self, asker: "Answering") -> None:
        """A peer's stream is gone, and its questions with it."""
        for number in asker.open:
            self._forget_question(number, asker.peer)
        asker.open.clear()
        lingering = self._lingering.get(asker.stream.connection)
        if lingering is not None:
            lingering.pop(asker, None)
            if not lingering:
                del self._lingering[asker.stream.connection]

    def linger(self, asker: "Answering") -> None:
        """A peer has ended its stream and waits for answers: for a while, and not on too many."""
        asker.timer = self._loop.call_later(self.config.answer_timeout, asker.stream.reset)
        lingering = self._lingering.setdefault(asker.stream.connection, {})
        lingering[asker] = None
        if len(lingering) > _LINGERING:
            next(iter(lingering)).stream.reset()

    def close(self) -> None:
        """Stop all clocks."""
        for question in list(self._open.values()):
            question.stop_timer()
        self._open.clear()


class _Partner(msgspec.Struct):
    """What waits for one peer that is asked, and how much is under way."""

    waiting: "deque[Asking]" = msgspec.field(default_factory=deque)
    active: int = 0
    dialling: bool = False


class Asking(StreamHandler):
    """One question of ours, and the stream that it is put on."""

    def __init__(self, queries: Queries, ask: Ask, framed: bytes) -> None:
        self._queries = queries
        self._rest = framed
        self._frames = FrameReader(queries.max_frame)
        self._agreed = False
        self.ask = ask
        self.open = True
        """Whether the machine still waits for its end."""
        self.sent = False
        self.has_place = False
        self._came = 0
        """Bytes of the answer since its time was last extended, and how often that was."""
        self._extended = 0
        self.stream: Stream | None = None
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Nothing is waited for any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def goes_on(self) -> bool:
        """Whether its time is over in the midst of a long answer that comes: then there is more."""
        came, self._came = self._came, 0
        self._extended += 1
        return self.open and came >= _GOES_ON and self._extended < _LONGEST

    def put(self, stream: Stream) -> None:
        """Send the question."""
        self.sent = True
        self._queries.driver.record(trace.SendRPC(self.ask.peer, self.ask.message.meta))
        self.on_writable(stream)

    def on_open(self, stream: Stream) -> None:
        """The peer takes questions."""
        self._agreed = True
        if self.sent:
            self._end_when_sent(stream)
        else:
            self.put(stream)

    def on_writable(self, stream: Stream) -> None:
        """Send what is left."""
        if self._rest:
            self._rest = self._rest[stream.send(self._rest) :]
            self._end_when_sent(stream)

    def _end_when_sent(self, stream: Stream) -> None:
        """Say that no more comes; before the peer has agreed, some take that for a refusal."""
        if self._agreed and not self._rest:
            stream.end()
            if self.ask.one_way:
                self._queries.close_question(self)
                self._queries.free_place(self)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Read the answer; what follows it is of no interest."""
        if not self.open:
            return
        stream.connection.active = True
        self._came += len(data)
        try:
            frames = self._frames.feed(data)
            if frames:
                self._queries.answered(self, self._queries.decode(frames[0]))
        except PeerError as error:
            self._queries.fail(self, error.reason)
            raise

    def on_close(self, stream: Stream, reason: str) -> None:
        """The peer has said what it had to say, or the stream is gone."""
        self.stop_timer()
        if reason == ENDED and self._rest:
            stream.reset()  # it comes back here with another reason
            return
        stream.connection.forget_stream(stream)
        if reason == ENDED:
            reason = UNANSWERED
        elif reason == RESET_BY_PEER and not self._agreed:
            reason = REFUSED  # its answer may be lost in the reset, as it does not read questions
        self._queries.fail(self, reason)
        self._queries.free_place(self)


class Answering(StreamHandler):
    """Reads a peer's questions from a stream that it opened, and sends the answers."""

    def __init__(self, queries: Queries, stream: Stream) -> None:
        self.stream = stream
        self.peer = stream.connection.remote_peer
        self.open: deque[int] = deque()
        """The numbers of the questions that wait for answers, oldest first."""
        self.timer: asyncio.TimerHandle | None = None
        self._queries = queries
        self._frames = FrameReader(queries.max_frame)
        self._rest = b""
        self._part = 0
        """Bytes of a question that has not come in full."""
        self._peer_ended = False
        self._declined = False
        self.gone = False

    @property
    def unread(self) -> bool:
        """Whether questions wait to be read."""
        return bool(self._frames.unread)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Cut frames, decode them, put them to the machine."""
        queries, connection = self._queries, stream.connection
        connection.active = True
        for frame_ in self._frames.feed(data):
            queries.put(self, connection.remote_peer, queries.decode(frame_))
            if self.gone:
                return
        if self._frames.error is not None:
            raise self._frames.error
        more = self._frames.held - self._part
        if more > 0 and not queries.may_wait(self, more):
            queries.driver.count(UNFINISHED)
            stream.reset()
        elif more:
            self._part += more
            queries.note_unsent(self.peer, more)

    def send(self, framed: bytes) -> None:
        """Send an answer, or what fits of it; a peer that reads none of its answers is cut off."""
        if self.gone:
            return
        if not self._rest:
            framed = framed[self.stream.send(framed) :]
        if framed:
            too_long = len(self._rest) + len(framed) > 2 * self._queries.max_frame
            if too_long or not self._queries.may_wait(self, len(framed)):
                self._queries.driver.count(UNREAD_ANSWERS)
                self.stream.reset()
                return
            self._set_rest(self._rest + framed)
        self._finish()

    def on_writable(self, stream: Stream) -> None:
        """Go on with an answer."""
        if self._rest:
            self._set_rest(self._rest[stream.send(self._rest) :])
            self._finish()

    def _set_rest(self, rest: bytes) -> None:
        self._queries.note_unsent(self.peer, len(rest) - len(self._rest))
        self._rest = rest

    def decline(self) -> None:
        """A question on this stream has no answer, which the peer is to know at once.

        Who asks no more sees it by the end of our side, who might ask more by a reset.
        """
        self._declined = True
        self._finish()

    def _finish(self) -> None:
        """End our side when the peer has ended its own and has all its answers."""
        if self.gone or self.open or self._rest:
            return
        if self._peer_ended:
            self.stream.end()
            self.stream.connection.forget_stream(self.stream)
            self._let_go()
        elif self._declined:
            self.stream.reset()

    def on_close(self, stream: Stream, reason: str) -> None:
        """The peer asks no more, or is gone."""
        if reason == ENDED:
            self._peer_ended = True
            self._finish()
            if not self.gone:
                self._queries.linger(self)
        else:
            self._let_go()

    def _let_go(self) -> None:
        self.gone = True
        self._set_rest(b"")
        self._queries.note_unsent(self.peer, -self._part)
        self._part = 0
        if self.timer is not None:
            self.timer.cancel()
        self._queries.forget(self)
