"""Drives a protocol's machine: turns streams, timers and requests into inputs, effects into acts.

It is the counterpart of the simulator's host. Everything happens in the event loop's thread, one
input at a time, in the order of arrival.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from rumormill.core import effects, inputs, trace
from rumormill.core.config import Config
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Received, TimerFired
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.core.trace import RecvRPC, SendRPC
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.libp2p.turns import Turn
from rumormill.members import peer as members_peer
from rumormill.node.channel import NOT_CONNECTED, QUEUE_FULL, Channel
from rumormill.node.clock import Clock
from rumormill.node.config import NodeConfig
from rumormill.node.intake import Intake
from rumormill.node.journal import CLOSED, Journal
from rumormill.node.moving import Moving
from rumormill.node.pending_sends import Dialler, PendingSends
from rumormill.node.queries import Queries
from rumormill.node.readers import Readers, unsent
from rumormill.node.serving import Serving
from rumormill.node.timers import Timers
from rumormill.protocols.registry import Hooks, ProtocolSpec, QuerySpec
from rumormill.sync import peer as sync_peer
from rumormill.sync.messages import SYNC_QUERIES, SyncMessage
from rumormill.trace.entries import Recorder
from rumormill.wire.frames import frame

_MOST_AT_ONCE, _REJECTED, _DUPLICATES = 10, 5.0, 50
_CHATTER, _CHATTER_BYTES, _LONG_CHATTER = 0.01, 640, 100
"""What is held against a peer (`libp2p.admission`), beside a point for a refusal: how much at most
for all that one message was refused, how much for an event that is not valid, and how many events
that others had brought before make one point: nobody's fault, unless they are thousands a second,
or the peer had brought them itself. A message that brings no event costs a part of one, and as much
each subscription, what is refused to honest peers too (`ProtocolSpec.tolerated`), and so many bytes
that are neither an event nor make one: nobody has five thousand of them to say each second, nor
three megabytes. The trace does not keep what is so long for the next message.
"""
NO_QUESTIONS = "the protocol has no questions"

_CONCERNS = sync_peer.CONCERNS | members_peer.CONCERNS
"""What is not the protocol's alone."""
_SYNC_NUMBERS = 1 << 40
"""Where the numbers of peers' questions about histories begin."""


class Driver:
    """One machine, its peers and its timers."""

    def __init__(
        self,
        spec: ProtocolSpec,
        settings: Config,
        hooks: Hooks,
        machines: tuple[Machine, Machine],
        queries: QuerySpec | None,
        swarm: Swarm,
        recorder: Recorder,
        journal: Journal,
        config: NodeConfig,
    ) -> None:
        self.name, self.protocol_ids = spec.name, spec.protocol_ids
        self.protocol, self.machine = machines
        """The protocol's machine, and the whole peer's: that with what stands around it."""
        self.config = config
        self.max_frame = spec.max_message(settings)
        self.decode, self.parts = spec.decoder(settings, hooks), spec.parts
        self.limits = hooks.limits
        self.journal = journal
        self.channels: dict[PeerId, Channel] = {}
        self._moving = Moving(self.channels)
        self.on_validate: Callable[[Event, PeerId], None] = lambda *_: None
        self.on_change: Callable[[], None] = lambda: None
        """Called when peers come, go, or have room again."""
        self.queued_bytes = 0
        self._loop = asyncio.get_running_loop()
        self.clock = Clock(self._loop.time)
        self._readers = Readers(
            self.channels,
            config,
            self.steady,
            self._on_slow,
            lambda: self.on_change(),  # noqa: PLW0108 (set later)
            self._unsent,
        )
        self.intake = Intake(swarm, journal, config, self.now, self.record)
        self._input: inputs.Input | None = None
        """Whose effects are being carried out."""
        self._encode, self._tolerated = spec.encode, spec.tolerated
        self._swarm, self._recorder, self._record = swarm, recorder, recorder.record
        self.id, self.count = swarm.id, swarm.count
        self._effects: effects.Effects = []
        self._moment = 0.0
        """When the input came whose effects are being carried out."""
        self._connecting: dict[PeerId, None] = {}
        self._commands: dict[int, asyncio.Future[object]] = {}
        self._command_numbers = count(1)
        self._timers = Timers(self.clock.steadily, lambda timer: self.feed(TimerFired(timer)))
        self._flush_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        journal.feed, journal.publications.feed = self.feed, self.publish
        journal.congested = lambda: self.queued_bytes > 0 and self._readers.hold_up()
        journal.receipts.has_queued = self._has_queued
        swarm.has_queued = lambda: any(each.queued_messages for each in self.channels.values())
        swarm.on_peer = self._on_peer
        swarm.on_peer_gone = self._on_peer_gone
        swarm.on_unreached = self._on_unreached
        swarm.on_cut_off = lambda peer, reason: self.record(trace.Penalise(peer, reason, 0.0))
        swarm.on_excluded = lambda peer, reason: self.record(trace.Refuse(peer, reason))
        common = (self, swarm, Dialler(swarm), config)
        self.pending_sends = PendingSends(self, common[2], config)
        self.sync_queries = Queries(*common, SYNC_QUERIES, settings, _SYNC_NUMBERS)
        self.queries: Queries | None = None
        if queries is not None:
            self.queries = Queries(*common, queries, settings)
        for protocol in self.protocol_ids:
            swarm.services[protocol] = self._serve
        self._actions = self._all_actions()

    def now(self) -> float:
        """Seconds since 1970 that never go back while the node runs."""
        return self.clock.now()

    def steady(self) -> float:
        """A clock that nobody sets, for how long things take."""
        return self._loop.time()

    def start(self) -> None:
        """Start the machine."""
        self._record((self.now(), self.id, trace.NodeUp()))
        self.feed(inputs.Start(self.journal.numbers.latest))
        self._flush_trace()

    def stop(self, reason: str) -> None:
        """Stop timers; nothing reaches the machine any more."""
        self._stopped = True
        self._timers.close()
        self.pending_sends.close()
        self._readers.close()
        self.sync_queries.close()
        if self.queries is not None:
            self.queries.close()
        for waiting in self._commands.values():
            if not waiting.done():
                waiting.set_exception(LocalError(CLOSED))
        if self._flush_timer is not None:  # it was started
            self._flush_timer.cancel()
            self._record((self.now(), self.id, trace.NodeDown(reason)))
            self._recorder.close()

    def _flush_trace(self) -> None:
        """Once in a while: hand on what was recorded, give up peers that do not read, and see
        whether the clock was set."""
        self._recorder.flush()
        if self.clock.follow():
            self._timers.set_again()
        self._readers.inspect(self.config.trace_interval)
        self._flush_timer = self._loop.call_later(self.config.trace_interval, self._flush_trace)

    # Inputs.

    def feed(self, event: inputs.Input) -> None:
        """Give the machine an input and carry out what it asks for."""
        concerned = self.machine if type(event) in _CONCERNS else self.protocol
        self._feed(event, self._loop.time(), concerned.handle)
        self._recorder.maybe_flush()

    def publish(
        self,
        wishes: Iterable[inputs.Publish],
        refuse: Callable[[inputs.Publish, Exception], None],
    ) -> None:
        """Give the machine publications of one moment, one after the other."""
        if self._stopped:
            return
        self._moment = now = self.now()
        handle = self.protocol.handle
        outer, self._input = self._input, None
        wanted, self._effects = self._effects, []
        for wish in wishes:
            try:
                handle(wish, now, wanted)
                self._carry_out(wanted, now)
            except Exception as error:  # noqa: BLE001 - whoever publishes gets the error
                refuse(wish, error)
            wanted.clear()
        self._effects, self._input = wanted, outer
        self._recorder.maybe_flush()

    def _feed(
        self,
        event: inputs.Input,
        at: float,
        handle: Callable[[inputs.Input, float, effects.Effects], None],
    ) -> None:
        if self._stopped:
            return
        self._moment = now = at * self.clock.pace + self.clock.offset
        outer, self._input = self._input, event
        wanted, self._effects = self._effects, []
        handle(event, now, wanted)
        if wanted:
            self._carry_out(wanted, now)
            wanted.clear()
        self._effects, self._input = wanted, outer

    async def command(self, body: object) -> object:
        """Give the machine a command and wait for its outcome."""
        if self._stopped:
            raise LocalError(CLOSED)
        if len(self._commands) >= self.config.max_commands:
            raise LimitError(f"{len(self._commands)} commands wait for their outcome")
        number = next(self._command_numbers)
        outcome = self._commands[number] = self._loop.create_future()
        try:
            self.feed(inputs.Command(number, body))
            return await outcome
        finally:
            del self._commands[number]

    def receive(
        self, peer: PeerId, messages: Iterable[WireMessage], turn: Turn | None = None
    ) -> int:
        """Give the machine messages of a peer, one at least, until the turn of their connection is
        over; return how many."""
        record, own, time, clock = self._record, self.id, self._loop.time, self.clock
        handle = self.protocol.handle  # what peers send is the protocol's alone
        done, at, taken, chatter = 0, time(), self.journal.taken, 0.0
        for message in messages:
            now = at * clock.pace + clock.offset
            meta = message.meta
            record((now, own, RecvRPC(peer, meta)))
            chatter += (not meta.messages) + len(meta.subscription)
            before = self.journal.taken
            self._feed(Received(peer, message), at, handle)
            if self.journal.taken == before:
                chatter += (meta.size - meta.data_size) / _CHATTER_BYTES
            done += 1
            at = time()
            if turn is not None and at > turn.ends:
                if taken < self.journal.taken:
                    taken = self.journal.taken
                    turn.extend()
                if at > turn.ends:
                    break
        if turn is not None and taken < self.journal.taken:
            turn.fruitful = True
        if chatter:
            self._swarm.charge(peer, "chatter", chatter * _CHATTER)
        self._recorder.maybe_flush(long=chatter > _LONG_CHATTER)
        return done

    def record(self, entry: trace.TracePayload) -> None:
        """Trace something that happens now."""
        self._record((self.now(), self.id, entry))

    # Peers.

    def _on_peer(self, connection: Connection) -> None:
        self._moving.enter(Channel(self, connection))

    def _serve(self, connection: Connection, stream: Stream) -> StreamHandler | None:
        """Read a stream that a peer opened, on whichever of its connections."""
        channel = self.channels.get(connection.remote_peer)
        return None if channel is None else channel.accept(stream)

    def _on_slow(self, peer: PeerId, reason: str) -> None:
        self.count(reason)
        self.record(trace.Penalise(peer, reason, 0.0))

    def make_room(self) -> None:
        """All queues together are full: give up whoever has the most in its own."""
        self._readers.make_room()

    def _unsent(self) -> dict[Connection, int]:
        queries = self.sync_queries, self.queries
        return unsent(self._swarm, self.channels, [each.serving.unsent for each in queries if each])

    def on_channel_open(self, channel: Channel) -> None:
        """Our stream to a peer is open: it is a peer of the protocol now."""
        peer, way = channel.peer, channel.connection
        self._moving.settle(peer)
        self._connecting.pop(peer, None)
        known = (way.outbound, way.remote_address, way.transient, way.limited)
        self.feed(inputs.PeerConnected(peer, channel.protocol, *known))
        self.pending_sends.send(channel)
        self.on_change()

    def on_channel_lost(self, channel: Channel, reason: str, *, was_open: bool) -> None:
        """Our stream to a peer is gone: it is no peer of the protocol until there is another."""
        self._moving.settle(channel.peer)
        self.pending_sends.fail(channel.peer, reason)
        if was_open:
            self.feed(inputs.PeerDisconnected(channel.peer, channel.connection.vanished))
            self.on_change()
        else:
            self._on_unreached(channel.peer, reason)

    def on_channel_replaced(self, channel: Channel) -> None:
        """A peer has made a new connection; it may have been started again, and know nothing."""
        self.feed(inputs.PeerDisconnected(channel.peer))
        self.on_change()

    def _on_unreached(self, peer: PeerId, reason: str) -> None:
        """A peer that the machine wants to be connected to is not, and will not be."""
        if peer in self._connecting:
            del self._connecting[peer]
            self.feed(inputs.ConnectFailed(peer, reason))

    def _on_peer_gone(self, peer: PeerId, reason: str) -> None:
        self._moving.leave(peer)
        self.limits.pop(peer, None)
        self.pending_sends.fail(peer, reason)
        self._on_unreached(peer, reason)

    # Effects.

    def _all_actions(self) -> dict[type, Callable[[Any], None]]:
        """What is done about each kind of effect; what is none of these is traced."""
        return {
            effects.Send: self._send,
            effects.SendAll: self._send_all,
            effects.Mail: self._mail,
            effects.Ask: self._ask,
            effects.Answer: self._answer,
            effects.Decline: self._decline,
            effects.Learn: self._learn,
            effects.Outcome: self._end_command,
            effects.Append: self._append,
            effects.KeepNote: self.journal.keep_note,
            effects.Load: self.journal.load,
            effects.Disregard: self.journal.reader.know,
            effects.Published: self.journal.published,
            effects.Validate: self._validate,
            effects.SetTimer: self._timers.set,
            effects.CancelTimer: self._timers.cancel,
            effects.Connect: self._connect,
            effects.Disconnect: self._disconnect,
            trace.Refuse: self._refuse,
            trace.RejectMessage: self._reject,
            trace.DuplicateMessage: self._note_duplicate,
        }

    def _carry_out(self, wanted: effects.Effects, now: float) -> None:
        record, actions, own = self._record, self._actions, self.id
        for effect in wanted:
            action = actions.get(type(effect))
            if action is None:
                record((now, own, effect))  # type: ignore[arg-type]
            else:
                action(effect)

    def _learn(self, effect: effects.Learn) -> None:
        informant: PeerId = effect.informant or getattr(self._input, "peer", b"")
        self._swarm.take_hint(effect.peer, effect.addresses, informant)

    def _append(self, effect: effects.Append) -> None:
        cause = self._input
        if type(cause) is Received:
            self.intake.charge(cause.peer, effect.event, self._moment)
        self.journal.append(effect, self._loop.time() + self.clock.wall)

    def _validate(self, effect: effects.Validate) -> None:
        if type(self._input) is Received:  # and not what we have asked for
            self.intake.charge(effect.received_from, effect.event, self._moment)
        self.on_validate(effect.event, effect.received_from)

    def _refuse(self, effect: trace.Refuse) -> None:
        self._record((self._moment, self.id, effect))
        self._hold_against(effect.peer, effect.reason, effect.count, 1.0)

    def _reject(self, effect: trace.RejectMessage) -> None:
        self._record((self._moment, self.id, effect))
        self._hold_against(effect.received_from, effect.reason, 1, _REJECTED)

    def _hold_against(self, peer: PeerId, reason: str, count: int, points: float) -> None:
        if peer in self.channels and reason in self._tolerated:
            self._swarm.charge(peer, reason, count * _CHATTER)
        elif peer in self.channels:
            self._swarm.blame(peer, reason, min(count * points, _MOST_AT_ONCE))

    def _note_duplicate(self, effect: trace.DuplicateMessage) -> None:
        self._record((self._moment, self.id, effect))
        channel = self.channels.get(effect.received_from)
        if channel is not None:
            channel.duplicates += 1
            if channel.harps(effect.message_id):
                self._swarm.blame(channel.peer, "repetitions")
            elif not channel.duplicates % _DUPLICATES:
                self._swarm.blame(channel.peer, "duplicates")

    def _send(self, effect: effects.Send) -> None:
        self.send((effect.peer,), effect.message, frame(self._encode(effect.message)), self._moment)

    def _send_all(self, effect: effects.SendAll) -> None:
        self.send(effect.peers, effect.message, frame(self._encode(effect.message)), self._moment)

    def _mail(self, effect: effects.Mail) -> None:
        peer, message = effect.peer, effect.message
        framed = frame(self._encode(message))
        channel = self.channels.get(peer)
        if channel is not None and channel.open and peer not in self.pending_sends:
            self.send((peer,), message, framed, self.now())
        else:
            self.pending_sends.add(peer, message, framed)

    def send(
        self, peers: tuple[PeerId, ...], message: WireMessage, framed: bytes, now: float
    ) -> None:
        """Send a message to peers that are connected, and trace what came of it."""
        channels, record, own, meta = self.channels, self._record, self.id, message.meta
        for peer in peers:
            channel = channels.get(peer)
            refusal = NOT_CONNECTED if channel is None else channel.send(framed, message)
            if not refusal:
                record((now, own, SendRPC(peer, meta)))
                continue
            self.drop(peer, meta, refusal)
            if refusal == QUEUE_FULL:
                self._on_queue_full(peer, message, len(framed))

    def _has_queued(self) -> bool:
        """Whether anything waits for a peer, or was so large that the peer may not take it."""
        large = any(channel.sent_large for channel in self.channels.values())
        return large or self.queued_bytes > 0 or len(self.pending_sends) > 0

    def drop(self, peer: PeerId, meta: trace.RpcMeta, reason: str) -> None:
        """A message is not sent: trace it, and tell who has a receipt for it."""
        self.record(trace.DropRPC(peer, meta, reason))
        self.journal.receipts.drop(meta)

    def _on_queue_full(self, peer: PeerId, message: WireMessage, size: int) -> None:
        self._swarm.count("queue-full")
        if self.queued_bytes + size > self.config.queue_bytes_total:
            self._loop.call_soon(self.make_room)
        self._loop.call_soon(self.feed, inputs.SendDropped(peer, message, QUEUE_FULL))

    def _ask(self, effect: effects.Ask) -> None:
        queries = self.sync_queries if type(effect.message) is SyncMessage else self.queries
        if queries is None:
            failed = inputs.AskFailed(effect.peer, effect.number, NO_QUESTIONS)
            self._loop.call_soon(self.feed, failed)
        else:
            queries.ask(effect)

    def _answer(self, effect: effects.Answer) -> None:
        self._asked_for(effect.number).answer(effect)

    def _decline(self, effect: effects.Decline) -> None:
        self._asked_for(effect.number).decline(effect)

    def _asked_for(self, number: int) -> Serving:
        """Where a peer's question came from."""
        if self.queries is not None and number < _SYNC_NUMBERS:
            return self.queries.serving
        return self.sync_queries.serving

    def _end_command(self, effect: effects.Outcome) -> None:
        waiting = self._commands.get(effect.number)
        if waiting is None or waiting.done():
            return
        if effect.error:
            waiting.set_exception(self.journal.refusal or LocalError(effect.error))
        else:
            waiting.set_result(effect.result)

    def _connect(self, effect: effects.Connect) -> None:
        peer = effect.peer
        channel = self.channels.get(peer)
        if channel is not None and channel.open:
            channel.connection.transient = False
            return
        refusal = channel.refused if channel is not None else ""
        informant = getattr(self._input, "peer", b"")
        refusal = refusal or self._swarm.dial_record(peer, effect.record, informant)
        self._connecting[peer] = None
        if refusal:
            self._loop.call_soon(self._on_unreached, peer, refusal)

    def _disconnect(self, effect: effects.Disconnect) -> None:
        connection = self._swarm.connections.get(effect.peer)
        if effect.keep_out:
            self._swarm.cut_off(effect.peer, effect.reason)
        elif connection is not None and not self._swarm.keeps(effect.peer):
            connection.close(effect.reason)
