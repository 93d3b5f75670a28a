"""Peers' questions: each is put to the machine, and its answer goes back on the stream it came on.

Peers may ask several questions on one stream, one after the other, as go's kad-dht does; each is
put to the machine as it arrives, for as long as the connection has its turn, and answers go back in
the order in which the machine gives them.

Bounds: so many questions are open at a time, so many of each peer, and so many on one stream, where
the oldest is taken for one that wants no answer. When there are too many, whoever has most of them
loses one. Answers that a peer does not read count among what waits for it, and so do its questions
as long as they have come in part. What breaks a rule ends the stream that it came on and is
counted.
"""

import asyncio
from collections import deque
from itertools import count
from typing import Final

from rumormill.core import trace
from rumormill.core.config import Config
from rumormill.core.effects import Answer, Decline
from rumormill.core.errors import PeerError
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Asked
from rumormill.core.messages import WireMessage
from rumormill.libp2p.stream import ENDED, Carrier, Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.node.channel import MachineSide
from rumormill.node.config import NodeConfig
from rumormill.protocols.registry import QuerySpec
from rumormill.wire.frames import FrameReader, frame

_PRICE: Final = 0.05
"""What a question costs its peer (`libp2p.admission`), and so does the stream that it comes on. Our
choice: 500 a second may be asked all the time, and 20,000 at once."""
UNREAD_ANSWERS: Final = "unread-answers"
UNFINISHED: Final = "unfinished-questions"

_OPEN_ON_STREAM: Final = 16
"""Questions of one stream that wait for answers; our choice: go asks one at a time."""

_LINGERING: Final = 8
"""Streams of one connection whose peer has ended and waits for answers; our choice: together with
as many questions of ours at a time (`queries`) they stay within what a connection may have
(`swarm.MAX_STREAMS_PER_PROTOCOL`)."""

_PIECE: Final = 1 << 16
"""Bytes of waiting answers that a stream is offered at a time; our choice."""


class Serving:
    """The questions of peers, in one format."""

    def __init__(
        self,
        driver: MachineSide,
        swarm: Swarm,
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
        self._encode = spec.encode
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
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


class Answering(StreamHandler):
    """Reads a peer's questions from a stream that it opened, and sends the answers."""

    def __init__(self, serving: "Serving", stream: Stream) -> None:
        self.stream = stream
        self.peer = stream.connection.remote_peer
        self.open: deque[int] = deque()
        """The numbers of the questions that wait for answers, oldest first."""
        self.timer: asyncio.TimerHandle | None = None
        self._serving = serving
        self._reader = FrameReader(serving.max_frame)
        self._frames: list[bytes] = []  # questions that wait for the connection's next turn
        self._unsent = bytearray()
        """Of answers, that for which the stream had no room."""
        self._part = 0
        """Bytes of a question that has not come in full."""
        self._peer_ended = False
        self._declined = False
        self.gone = False

    @property
    def unread(self) -> bool:
        """Whether questions wait to be read."""
        return bool(self._frames or self._reader.unread)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Cut frames, decode them, put them to the machine, until the connection's turn is over."""
        serving, connection, reader = self._serving, stream.connection, self._reader
        connection.active = True
        if data or not self._frames:
            self._frames += reader.feed(data)
        done, time = 0, serving.time
        for frame_ in self._frames:
            done += 1
            serving.put(self, connection.remote_peer, serving.decode(frame_))
            if self.gone:
                return
            if time() > connection.turn.ends:
                break
        del self._frames[:done]
        if reader.error is not None and not self._frames:
            raise reader.error
        more = reader.held - self._part
        if more > 0 and not serving.may_wait(self, more):
            serving.driver.count(UNFINISHED)
            stream.reset()
        elif more:
            self._part += more
            serving.note_unsent(self.peer, more)

    def send(self, framed: bytes) -> None:
        """Send an answer, or what fits of it; a peer that reads none of its answers is cut off."""
        if self.gone:
            return
        if not self._unsent:
            framed = framed[self.stream.send(framed) :]
        if framed:
            too_long = len(self._unsent) + len(framed) > 2 * self._serving.max_frame
            if too_long or not self._serving.may_wait(self, len(framed)):
                self._serving.driver.count(UNREAD_ANSWERS)
                self.stream.reset()
                return
            self._unsent += framed
            self._serving.note_unsent(self.peer, len(framed))
        self._finish()

    def on_writable(self, stream: Stream) -> None:
        """Go on with an answer."""
        before = len(self._unsent)
        while self._unsent:
            piece = bytes(self._unsent[:_PIECE])
            taken = stream.send(piece)
            del self._unsent[:taken]
            if taken < len(piece):
                break
        if before:
            self._serving.note_unsent(self.peer, len(self._unsent) - before)
            self._finish()

    def decline(self) -> None:
        """A question on this stream has no answer, which the peer is to know at once.

        Who asks no more sees it by the end of our side, who might ask more by a reset.
        """
        self._declined = True
        self._finish()

    def _finish(self) -> None:
        """End our side when the peer has ended its own and has all its answers."""
        if self.gone or self.open or self._unsent:
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
                self._serving.linger(self)
        else:
            self._let_go()

    def _let_go(self) -> None:
        self.gone = True
        self._serving.note_unsent(self.peer, -len(self._unsent) - self._part)
        self._unsent.clear()
        self._part = 0
        if self.timer is not None:
            self.timer.cancel()
        self._serving.forget(self)
