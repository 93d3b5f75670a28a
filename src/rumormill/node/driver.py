"""Drives a protocol's machine: turns streams, timers and requests into inputs, effects into acts.

It is the counterpart of the simulator's host. Everything happens in the event loop's thread, one
input at a time, in the order of arrival.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any

from rumormill.core import trace
from rumormill.core.config import Config
from rumormill.core.effects import (
    Answer,
    Append,
    Ask,
    CancelTimer,
    Connect,
    Decline,
    Disconnect,
    Effects,
    KeepNote,
    Learn,
    Load,
    Mail,
    Outcome,
    Published,
    Send,
    SendAll,
    SetTimer,
    Validate,
)
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import (
    AskFailed,
    Command,
    ConnectFailed,
    Input,
    PeerConnected,
    PeerDisconnected,
    Received,
    SendDropped,
    Start,
    TimerFired,
)
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialler import Dialler
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.node.channel import QUEUE_FULL, Channel
from rumormill.node.config import NodeConfig
from rumormill.node.journal import CLOSED, Journal
from rumormill.node.pending_sends import PendingSends
from rumormill.node.queries import Queries
from rumormill.protocols.registry import Hooks, ProtocolSpec
from rumormill.trace.entries import Recorder
from rumormill.wire.frames import frame

SLOW_PEER = "slow-peer"
STUCK_PEER = "stuck-peer"
NO_QUESTIONS = "the protocol has no questions"


class Driver:
    """One machine, its peers and its timers."""

    def __init__(
        self,
        spec: ProtocolSpec,
        machine: Machine,
        swarm: Swarm,
        recorder: Recorder,
        journal: Journal,
        config: NodeConfig,
        *,
        settings: Config,
        hooks: Hooks,
    ) -> None:
        self.protocol_ids = spec.protocol_ids
        self.machine = machine
        self.config = config
        self.max_frame = spec.max_message(settings)
        self.decode = spec.decoder(settings, hooks)
        self.journal = journal
        self.channels: dict[PeerId, Channel] = {}
        self.on_validate: Callable[[Event, PeerId], None] = lambda *_: None
        self.on_change: Callable[[], None] = lambda: None
        """Called when peers come, go, or have room again."""
        self._held: dict[Stream, None] = {}
        self._encode = spec.encode
        self._swarm = swarm
        self._recorder = recorder
        self._record = recorder.record
        self.id = swarm.id
        self._effects: Effects = []
        self._moment = 0.0
        """When the input came whose effects are being carried out."""
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._connecting: dict[PeerId, None] = {}
        self._commands: dict[int, asyncio.Future[object]] = {}
        self._command_numbers = count(1)
        self._loop = asyncio.get_running_loop()
        self._epoch = time.time() - self._loop.time()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        journal.feed = self.feed
        journal.now = self.now
        journal.congested = self._congested
        journal.on_room = self._release_held
        swarm.has_queued = self._has_queued
        swarm.on_peer = self._on_peer
        swarm.on_peer_gone = self._on_peer_gone
        swarm.on_unreached = self._on_unreached
        dialler = Dialler(swarm)
        self.pending_sends = PendingSends(self, dialler, config)
        self.queries: Queries | None = None
        if spec.queries is not None:
            self.queries = Queries(
                self,
                swarm,
                dialler,
                config,
                spec.queries,
                decode=spec.queries.decoder(settings),
                max_frame=spec.queries.max_message(settings),
            )
        for protocol in self.protocol_ids:
            swarm.services[protocol] = self._serve

    def now(self) -> float:
        """Seconds since 1970 that never go back while the node runs."""
        return self._loop.time() + self._epoch

    def start(self) -> None:
        """Start the machine."""
        self._record((self.now(), self.id, trace.NodeUp()))
        self.feed(Start())
        self._flush_trace()

    def stop(self, reason: str) -> None:
        """Stop timers; nothing reaches the machine any more."""
        self._stopped = True
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        self.pending_sends.close()
        if self.queries is not None:
            self.queries.close()
        for waiting in self._commands.values():
            if not waiting.done():
                waiting.set_exception(LocalError(CLOSED))
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._record((self.now(), self.id, trace.NodeDown(reason)))
        self._recorder.close()

    def _flush_trace(self) -> None:
        """Once in a while: hand on what was recorded, and give up peers that do not read."""
        self._recorder.flush()
        now = self.now()
        for channel in list(self.channels.values()):
            if channel.is_stuck(now):
                self._swarm.count(STUCK_PEER)
                channel.connection.close(STUCK_PEER)
        self._flush_timer = self._loop.call_later(self.config.trace_interval, self._flush_trace)

    # Inputs.

    def feed(self, event: Input) -> None:
        """Give the machine an input and carry out what it asks for."""
        self._feed(event, self._loop.time() + self._epoch)

    def _feed(self, event: Input, now: float) -> None:
        if self._stopped:
            return
        self._moment = now
        effects, self._effects = self._effects, []
        self.machine.handle(event, now, effects)
        if effects:
            self._carry_out(effects, now)
            effects.clear()
        self._effects = effects
        self._recorder.maybe_flush()

    async def command(self, body: object) -> object:
        """Give the machine a command and wait for its outcome."""
        if self._stopped:
            raise LocalError(CLOSED)
        if len(self._commands) >= self.config.max_commands:
            raise LimitError(f"{len(self._commands)} commands wait for their outcome")
        number = next(self._command_numbers)
        outcome = self._commands[number] = self._loop.create_future()
        try:
            self.feed(Command(number, body))
            return await outcome
        finally:
            del self._commands[number]

    def receive(self, peer: PeerId, message: WireMessage) -> None:
        """Give the machine a message from a peer."""
        now = self._loop.time() + self._epoch
        self._record((now, self.id, trace.RecvRPC(peer, message.meta)))
        self._feed(Received(peer, message), now)

    def record(self, entry: trace.TracePayload) -> None:
        """Trace something that happens now."""
        self._record((self.now(), self.id, entry))

    # Peers.

    def _on_peer(self, connection: Connection) -> None:
        peer = connection.remote_peer
        old = self.channels.get(peer)
        channel = self.channels[peer] = Channel(self, connection)
        if old is not None:
            channel.succeed(old)
        channel.start()

    def _serve(self, connection: Connection, stream: Stream) -> StreamHandler | None:
        """Read a stream that a peer opened, on whichever of its connections."""
        channel = self.channels.get(connection.remote_peer)
        return None if channel is None else channel.accept(stream)

    def _congested(self) -> bool:
        """Whether a peer that still reads has half a queue of work before it."""
        config = self.config
        for channel in self.channels.values():
            if channel.waits_since is None or channel.is_slow(self.now()):
                continue
            if (
                channel.queued_bytes > config.queue_bytes // 2
                or channel.queued_messages > config.queue_messages // 2
            ):
                return True
        return False

    def _has_queued(self) -> bool:
        return any(channel.queued_messages for channel in self.channels.values())

    def on_channel_open(self, channel: Channel) -> None:
        """Our stream to a peer is open: it is a peer of the protocol now."""
        connection = channel.connection
        self._connecting.pop(channel.peer, None)
        self.feed(
            PeerConnected(
                channel.peer, channel.protocol, connection.outbound, connection.remote_address
            )
        )
        self.pending_sends.send(channel)
        self.on_change()

    def on_channel_lost(self, channel: Channel, reason: str, *, was_open: bool) -> None:
        """Our stream to a peer is gone: it is no peer of the protocol until there is another."""
        self.pending_sends.fail(channel.peer, reason)
        if was_open:
            self.feed(PeerDisconnected(channel.peer))
            self.on_change()
        else:
            self._on_unreached(channel.peer, reason)

    def on_channel_replaced(self, channel: Channel) -> None:
        """A peer has made a new connection; it may have been started again, and know nothing."""
        self.feed(PeerDisconnected(channel.peer))
        self.on_change()

    def _on_unreached(self, peer: PeerId, reason: str) -> None:
        """A peer that the machine wants to be connected to is not, and will not be."""
        if peer in self._connecting:
            del self._connecting[peer]
            self.feed(ConnectFailed(peer, reason))

    def hold_if_busy(self, stream: Stream) -> None:
        """Stop reading from a stream until the log keeps up, if it does not."""
        if self.journal.is_full():
            stream.hold()
            self._held[stream] = None

    def _release_held(self) -> None:
        """The log keeps up: go on reading."""
        while self._held:
            self._held.popitem()[0].release()

    def forget_held(self, stream: Stream) -> None:
        """A stream is gone."""
        self._held.pop(stream, None)

    def _on_peer_gone(self, peer: PeerId, reason: str) -> None:
        channel = self.channels.pop(peer, None)
        if channel is not None:
            channel.stop()
        self.pending_sends.fail(peer, reason)
        self._on_unreached(peer, reason)

    def on_slow_peer(self, channel: Channel) -> None:
        """A peer does not read: publishing no longer waits for it."""
        self._swarm.count(SLOW_PEER)
        self._record((self.now(), self.id, trace.Penalise(channel.peer, SLOW_PEER, 0.0)))

    def count(self, reason: str) -> None:
        """Count a refusal."""
        self._swarm.count(reason)

    def refuse(self, peer: PeerId, reason: str) -> None:
        """Count and trace that a peer was refused something."""
        self._swarm.count(reason)
        self._record((self.now(), self.id, trace.Refuse(peer, reason)))

    def on_room(self, channel: Channel) -> None:
        """A peer's queue has become shorter."""
        self.on_change()

    # Effects.

    def _carry_out(self, effects: Effects, now: float) -> None:
        record = self._record
        for effect in effects:
            action = _ACTIONS.get(type(effect))
            if action is None:
                record((now, self.id, effect))  # type: ignore[arg-type]
            else:
                action(self, effect)

    def _do_send(self, effect: Send) -> None:
        message = effect.message
        self.send(effect.peer, message, frame(self._encode(message)), self._moment)

    def _do_send_all(self, effect: SendAll) -> None:
        now, message = self._moment, effect.message
        framed = frame(self._encode(message))
        for peer in effect.peers:
            self.send(peer, message, framed, now)

    def _do_mail(self, effect: Mail) -> None:
        peer, message = effect.peer, effect.message
        framed = frame(self._encode(message))
        channel = self.channels.get(peer)
        if channel is not None and channel.open and peer not in self.pending_sends:
            self.send(peer, message, framed, self.now())
        else:
            self.pending_sends.add(peer, message, framed)

    def send(self, peer: PeerId, message: WireMessage, framed: bytes, now: float) -> None:
        """Send a message to a peer that is connected, and trace what came of it."""
        channel = self.channels.get(peer)
        if channel is None or not channel.open:
            self._record((now, self.id, trace.DropRPC(peer, message.meta, "not connected")))
        elif channel.send(framed, urgent=message.urgent):
            self._record((now, self.id, trace.SendRPC(peer, message.meta)))
        else:
            self._swarm.count("queue-full")
            self._record((now, self.id, trace.DropRPC(peer, message.meta, QUEUE_FULL)))
            self._loop.call_soon(self.feed, SendDropped(peer, message, QUEUE_FULL))

    def _do_ask(self, effect: Ask) -> None:
        if self.queries is not None:
            self.queries.ask(effect)
        else:
            self._loop.call_soon(self.feed, AskFailed(effect.peer, effect.number, NO_QUESTIONS))

    def _do_answer(self, effect: Answer) -> None:
        if self.queries is not None:
            self.queries.answer(effect)

    def _do_decline(self, effect: Decline) -> None:
        if self.queries is not None:
            self.queries.decline(effect)

    def _do_learn(self, effect: Learn) -> None:
        self._swarm.take_hint(effect.peer, effect.addresses)

    def _do_outcome(self, effect: Outcome) -> None:
        waiting = self._commands.get(effect.number)
        if waiting is None or waiting.done():
            return
        if effect.error:
            waiting.set_exception(LocalError(effect.error))
        else:
            waiting.set_result(effect.result)

    def _do_append(self, effect: Append) -> None:
        self.journal.append(effect)

    def _do_keep_note(self, effect: KeepNote) -> None:
        self.journal.keep_note(effect)

    def _do_load(self, effect: Load) -> None:
        self.journal.load(effect)

    def _do_published(self, effect: Published) -> None:
        self.journal.published(effect)

    def _do_validate(self, effect: Validate) -> None:
        self.on_validate(effect.event, effect.received_from)

    def _do_set_timer(self, effect: SetTimer) -> None:
        self._do_cancel_timer(CancelTimer(effect.timer))
        at = effect.at - self._epoch
        self._timers[effect.timer] = self._loop.call_at(at, self._fire, effect.timer)

    def _do_cancel_timer(self, effect: CancelTimer) -> None:
        handle = self._timers.pop(effect.timer, None)
        if handle is not None:
            handle.cancel()

    def _fire(self, timer: Hashable) -> None:
        del self._timers[timer]
        self.feed(TimerFired(timer))

    def _do_connect(self, effect: Connect) -> None:
        peer = effect.peer
        channel = self.channels.get(peer)
        if channel is not None and channel.open:
            channel.connection.transient = False
            return
        refusal = channel.refused if channel is not None else ""
        refusal = refusal or self._swarm.dial_record(peer, effect.record)
        self._connecting[peer] = None
        if refusal:
            self._loop.call_soon(self._on_unreached, peer, refusal)

    def _do_disconnect(self, effect: Disconnect) -> None:
        connection = self._swarm.connections.get(effect.peer)
        if connection is not None:
            connection.close(effect.reason)


_ACTIONS: dict[type, Callable[[Driver, Any], None]] = {
    Send: Driver._do_send,
    SendAll: Driver._do_send_all,
    Mail: Driver._do_mail,
    Ask: Driver._do_ask,
    Answer: Driver._do_answer,
    Decline: Driver._do_decline,
    Learn: Driver._do_learn,
    Outcome: Driver._do_outcome,
    Append: Driver._do_append,
    KeepNote: Driver._do_keep_note,
    Load: Driver._do_load,
    Published: Driver._do_published,
    Validate: Driver._do_validate,
    SetTimer: Driver._do_set_timer,
    CancelTimer: Driver._do_cancel_timer,
    Connect: Driver._do_connect,
    Disconnect: Driver._do_disconnect,
}
