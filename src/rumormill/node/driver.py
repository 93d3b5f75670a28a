"""Drives a protocol's machine: turns streams, timers and requests into inputs, effects into acts.

It is the counterpart of the simulator's host. Everything happens in the event loop's thread, one
input at a time, in the order of arrival.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any

from rumormill.core import trace
from rumormill.core.effects import (
    CancelTimer,
    Connect,
    Deliver,
    Disconnect,
    Effects,
    Keep,
    LookUp,
    Published,
    Send,
    SendAll,
    SetTimer,
    Validate,
)
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import (
    Input,
    NotFound,
    PeerConnected,
    PeerDisconnected,
    Received,
    SendDropped,
    Start,
    TimerFired,
)
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.node.channel import QUEUE_FULL, Channel
from rumormill.node.config import NodeConfig
from rumormill.node.connection import Connection
from rumormill.node.stream import Stream, StreamHandler
from rumormill.node.swarm import Swarm
from rumormill.protocols.registry import ProtocolSpec
from rumormill.trace.recorder import Recorder
from rumormill.wire.frames import frame

SLOW_PEER = "slow-peer"
_FLUSH_INTERVAL = 1.0


class Driver:
    """One machine, its peers and its timers."""

    def __init__(
        self,
        spec: ProtocolSpec,
        machine: Machine,
        swarm: Swarm,
        recorder: Recorder,
        config: NodeConfig,
        *,
        decode: Callable[[bytes], WireMessage],
        max_frame: int,
    ) -> None:
        self.protocol_ids = spec.protocol_ids
        self.machine = machine
        self.config = config
        self.max_frame = max_frame
        self.decode = decode
        self.channels: dict[PeerId, Channel] = {}
        self.on_keep: Callable[[Event], None] = lambda _: None
        self.on_deliver: Callable[[Event], None] = lambda _: None
        self.on_validate: Callable[[Event, PeerId], None] = lambda *_: None
        self.on_change: Callable[[], None] = lambda: None
        """Called when peers come, go, or have room again."""
        self.store_full: Callable[[], bool] = lambda: False
        """Whether the log cannot keep up, so that peers should not send more."""
        self._held: dict[Stream, None] = {}
        self._encode = spec.encode
        self._swarm = swarm
        self._recorder = recorder
        self._record = recorder.record
        self._id = swarm.id
        self._effects: Effects = []
        self._moment = 0.0
        """When the input came whose effects are being carried out."""
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._published: Published | None = None
        self._loop = asyncio.get_running_loop()
        self._epoch = time.time() - self._loop.time()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        swarm.has_queued = self._has_queued
        swarm.on_peer = self._on_peer
        swarm.on_peer_gone = self._on_peer_gone
        for protocol in self.protocol_ids:
            swarm.services[protocol] = self._serve

    def now(self) -> float:
        """Seconds since 1970 that never go back while the node runs."""
        return self._loop.time() + self._epoch

    def start(self) -> None:
        """Start the machine."""
        self._record((self.now(), self._id, trace.NodeUp()))
        self.feed(Start())
        self._flush_trace()

    def stop(self, reason: str) -> None:
        """Stop timers; nothing reaches the machine any more."""
        self._stopped = True
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._record((self.now(), self._id, trace.NodeDown(reason)))
        self._recorder.close()

    def _flush_trace(self) -> None:
        self._recorder.flush()
        self._flush_timer = self._loop.call_later(_FLUSH_INTERVAL, self._flush_trace)

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

    def publish(self, request: Input) -> Published:
        """Give the machine a publication and return what became of it."""
        self._published = None
        self.feed(request)
        published: Published | None = self._published
        if published is None:
            raise LocalError("the node is closed")
        return published

    def receive(self, peer: PeerId, message: WireMessage) -> None:
        """Give the machine a message from a peer."""
        now = self._loop.time() + self._epoch
        self._record((now, self._id, trace.RecvRPC(peer, message.meta)))
        self._feed(Received(peer, message), now)

    # Peers.

    def _on_peer(self, connection: Connection) -> None:
        channel = self.channels[connection.remote_peer] = Channel(self, connection)
        channel.start()

    def _serve(self, connection: Connection, stream: Stream) -> StreamHandler | None:
        """Read a stream that a peer opened, on whichever of its connections."""
        channel = self.channels.get(connection.remote_peer)
        return None if channel is None else channel.accept(stream)

    def _has_queued(self) -> bool:
        return any(channel.queued_messages for channel in self.channels.values())

    def on_channel_open(self, channel: Channel) -> None:
        """Our stream to a peer is open: it is a peer of the protocol now."""
        connection = channel.connection
        self.feed(
            PeerConnected(
                channel.peer, channel.protocol, connection.outbound, connection.remote_address
            )
        )
        self.on_change()

    def on_channel_lost(self, channel: Channel, *, was_open: bool) -> None:
        """Our stream to a peer is gone: it is no peer of the protocol until there is another."""
        if was_open:
            self.feed(PeerDisconnected(channel.peer))
            self.on_change()

    def hold(self, stream: Stream) -> None:
        """Stop reading from a stream until the log keeps up again."""
        stream.hold()
        self._held[stream] = None

    def release_held(self) -> None:
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

    def on_slow_peer(self, channel: Channel) -> None:
        """A peer does not read: publishing no longer waits for it."""
        self._swarm.count(SLOW_PEER)
        self._record((self.now(), self._id, trace.Penalise(channel.peer, SLOW_PEER, 0.0)))

    def refuse(self, peer: PeerId, reason: str) -> None:
        """Count and trace that a peer was refused something."""
        self._swarm.count(reason)
        self._record((self.now(), self._id, trace.Refuse(peer, reason)))

    def on_room(self, channel: Channel) -> None:
        """A peer's queue has become shorter."""
        self.on_change()

    # Effects.

    def _carry_out(self, effects: Effects, now: float) -> None:
        record = self._record
        for effect in effects:
            action = _ACTIONS.get(type(effect))
            if action is None:
                record((now, self._id, effect))  # type: ignore[arg-type]
            else:
                action(self, effect)

    def _do_send(self, effect: Send) -> None:
        message = effect.message
        self._send(effect.peer, message, frame(self._encode(message)), self._moment)

    def _do_send_all(self, effect: SendAll) -> None:
        now, message = self._moment, effect.message
        framed = frame(self._encode(message))
        for peer in effect.peers:
            self._send(peer, message, framed, now)

    def _send(self, peer: PeerId, message: WireMessage, framed: bytes, now: float) -> None:
        channel = self.channels.get(peer)
        if channel is None or not channel.open:
            self._record((now, self._id, trace.DropRPC(peer, message.meta, "not connected")))
        elif channel.send(framed, urgent=message.urgent):
            self._record((now, self._id, trace.SendRPC(peer, message.meta)))
        else:
            self._swarm.count("queue-full")
            self._record((now, self._id, trace.DropRPC(peer, message.meta, QUEUE_FULL)))
            self._loop.call_soon(self.feed, SendDropped(peer, message, QUEUE_FULL))

    def _do_deliver(self, effect: Deliver) -> None:
        if effect.received_from != self._id:  # our own are kept, and delivered when they are safe
            self.on_deliver(effect.event)

    def _do_published(self, effect: Published) -> None:
        self._published = effect

    def _do_keep(self, effect: Keep) -> None:
        self.on_keep(effect.event)

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
        self._swarm.dial_record(effect.peer, effect.record)

    def _do_disconnect(self, effect: Disconnect) -> None:
        connection = self._swarm.connections.get(effect.peer)
        if connection is not None:
            connection.close(effect.reason)

    def _do_look_up(self, effect: LookUp) -> None:
        self._loop.call_soon(self.feed, NotFound(effect.key))


_ACTIONS: dict[type, Callable[[Driver, Any], None]] = {
    Send: Driver._do_send,
    SendAll: Driver._do_send_all,
    Deliver: Driver._do_deliver,
    Published: Driver._do_published,
    Keep: Driver._do_keep,
    Validate: Driver._do_validate,
    SetTimer: Driver._do_set_timer,
    CancelTimer: Driver._do_cancel_timer,
    Connect: Driver._do_connect,
    Disconnect: Driver._do_disconnect,
    LookUp: Driver._do_look_up,
}
