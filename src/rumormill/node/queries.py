"""Our questions: each on a short stream of its own, one frame there, one back.

We end our side behind the question, and the peer ends its own behind the answer. What peers ask us
is `serving`'s.

Bounds: a peer is asked so many questions at a time, the others wait their turn within their own
timeouts; so many are open in all. An answer that cannot be read fails its question.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.config import Config
from rumormill.core.effects import Ask
from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.core.inputs import NO_ANSWER, Answered, AskFailed
from rumormill.core.messages import WireMessage
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.stream import ENDED, REFUSED, Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.libp2p.yamux_types import RESET_BY_PEER
from rumormill.node.channel import MachineSide
from rumormill.node.config import NodeConfig
from rumormill.node.pending_sends import OURSELVES, Dialler
from rumormill.node.serving import Serving
from rumormill.protocols.registry import QuerySpec
from rumormill.wire.frames import FrameReader, frame

TOO_MANY_QUESTIONS: Final = "too many questions are open"
UNANSWERED: Final = "the peer ended without an answer"

_GOES_ON: Final = 16 << 10
_LONGEST: Final = 6
"""Bytes of a long answer that must come within each timeout of its question, and how many timeouts
it may take; our choice: an event of a mebibyte comes over a line of 0.2 Mbit/s, and nobody holds a
question up for more than a minute where an answer may take ten seconds."""

_QUESTIONS_PER_PEER: Final = 8
"""Questions that are put to one peer at a time; our choice: half of the streams that a connection
may have for a protocol. More wait for their turn."""


class Queries:
    """The questions of a node to others, in one format, and what they ask it (`serving`)."""

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
        self._swarm = swarm
        self._dialler = dialler
        self._encode = spec.encode
        self._protocol_ids = spec.protocol_ids
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Asking] = {}
        self._partners: dict[PeerId, _Partner] = {}
        self.serving = Serving(driver, swarm, config, spec, settings, first_number)
        self.decode, self.max_frame = self.serving.decode, self.serving.max_frame

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
        stream.connection.active = stream.connection.turn.fruitful = True
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
