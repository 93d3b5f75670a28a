"""The gater: while validation is overloaded, turn away messages of those who waste it.

Off in normal times. It wakes when messages are dropped because validation is too busy, in more than
a given proportion to those validated, and sleeps again when that has not happened for a while.
While awake, it lets a peer's messages in with a probability that is the share of useful ones among
all that its address sent: deliveries against duplicates, ignored and rejected messages, each with a
weight. Nobody is shut out for good, and control messages always pass.

Peers at one address share one account, which outlives their connections for some hours.

The gater is told of every message and asked about every RPC that brings some. It costs a little for
each duplicate, which is why it has a router of its own and is not a switch in the hot path.
"""

import math
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Input, PeerConnected, PeerDisconnected, Received
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GaterParams, GossipSubConfig
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.messages import Message, Rpc
from rumormill.protocols.pubsub.reasons import (
    TOLERATED,
    VALIDATION_IGNORED,
    VALIDATION_THROTTLED,
)
from rumormill.protocols.registry import NO_HOOKS, Hooks

_ROUNDING: Final = 1e-9
"""Times are floats: a whole number of intervals may come out a little below itself."""


class _Account(msgspec.Struct, gc=False):
    connected: int = 0
    expires: float = 0.0
    deliver: float = 0.0
    duplicate: float = 0.0
    ignore: float = 0.0
    reject: float = 0.0


_COUNTS: Final = _Account.__struct_fields__[2:]


class Gater:
    """Decides whose messages enter an overloaded validation."""

    def __init__(self, params: GaterParams, randomness: Randomness) -> None:
        self.unaccounted = 0
        """Peers that found all accounts in use; they are let in."""
        self._params = params
        self._randomness = randomness
        self._validated = 0.0
        self._throttled = 0.0
        self._last_throttled = -math.inf
        self._decayed_at: float | None = None
        self._accounts: dict[str, _Account] = {}
        self._addresses: dict[PeerId, str] = {}

    def accepts(self, peer: PeerId, now: float) -> bool:
        """Whether the messages of an RPC are to be validated; its control part always counts."""
        params = self._params
        if not self._throttled or now - self._last_throttled > params.quiet:
            return True
        if self._validated and self._throttled / self._validated < params.threshold:
            return True
        account = self._account_of(peer)
        if account is None:
            return True
        total = (
            account.deliver
            + params.duplicate_weight * account.duplicate
            + params.ignore_weight * account.ignore
            + params.reject_weight * account.reject
        )
        if not total:
            return True
        # The 1 on both sides: a first bad message shuts nobody out, and a chance always remains.
        return self._randomness.random() < (1 + account.deliver) / (1 + total)

    def _account_of(self, peer: PeerId) -> _Account | None:
        address = self._addresses.get(peer)
        return None if address is None else self._accounts[address]

    def add_peer(self, peer: PeerId, address: str, now: float) -> None:
        """A peer connected from an address."""
        if self._decayed_at is None:
            self._decayed_at = now
        if peer in self._addresses:
            return
        account = self._accounts.get(address)
        if account is None:
            if not self._make_room():
                self.unaccounted += 1
                return
            account = self._accounts[address] = _Account()
        account.connected += 1
        self._addresses[peer] = address

    def _make_room(self) -> bool:
        if len(self._accounts) < self._params.addresses_max:
            return True
        closed: str | None = None
        expires = math.inf
        for address, account in self._accounts.items():
            if not account.connected and account.expires < expires:
                closed, expires = address, account.expires
        if closed is None:
            return False
        del self._accounts[closed]
        return True

    def remove_peer(self, peer: PeerId, now: float) -> None:
        """A peer disconnected."""
        address = self._addresses.pop(peer, None)
        if address is not None:
            account = self._accounts[address]
            account.connected -= 1
            if not account.connected:
                account.expires = now + self._params.retain_stats

    def validate_message(self) -> None:
        """A message entered validation."""
        self._validated += 1

    def deliver_message(self, peer: PeerId, topic: Topic) -> None:
        """A message turned out valid; `peer` was the first to bring it."""
        account = self._account_of(peer)
        if account is not None:
            account.deliver += self._params.topic_delivery_weights.get(topic) or 1.0

    def reject_message(self, peer: PeerId, reason: str, now: float) -> None:
        """A message was rejected."""
        if reason == VALIDATION_THROTTLED:
            self._throttled += 1
            self._last_throttled = now
            return
        account = self._account_of(peer)
        if account is not None and reason not in TOLERATED:
            if reason == VALIDATION_IGNORED:
                account.ignore += 1
            else:
                account.reject += 1

    def duplicate_message(self, peer: PeerId) -> None:
        """A peer brought a message that was seen before."""
        account = self._account_of(peer)
        if account is not None:
            account.duplicate += 1

    def refresh(self, now: float) -> None:
        """Decay counts once per interval passed, and close old accounts. Call it often."""
        params = self._params
        if self._decayed_at is None:
            self._decayed_at = now
        intervals = int((now - self._decayed_at) / params.decay_interval + _ROUNDING)
        if intervals < 1:
            return
        self._decayed_at += intervals * params.decay_interval
        factor, floor = params.global_decay**intervals, params.decay_to_zero
        self._validated = _faded(self._validated, factor, floor)
        self._throttled = _faded(self._throttled, factor, floor)
        factor = params.source_decay**intervals
        expired = []
        for address, account in self._accounts.items():
            if account.connected:
                for name in _COUNTS:
                    setattr(account, name, _faded(getattr(account, name), factor, floor))
            elif account.expires < now:
                expired.append(address)
        for address in expired:
            del self._accounts[address]


def _faded(count: float, factor: float, floor: float) -> float:
    faded = count * factor
    return faded if faded >= floor else 0.0


class GatedGossipSub(GossipSub):
    """A GossipSub peer that turns messages away while it cannot validate all of them."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: GossipSubConfig,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        super().__init__(identity, randomness, config, hooks)
        self._gater = Gater(config.gater or GaterParams(), randomness)
        self._judges_all = True

    def view(self) -> View:
        """Show the gater's table besides (see `core.machine`)."""
        shown = super().view()
        evicted = {**shown.evicted, "gater accounts": self._gater.unaccounted}
        return msgspec.structs.replace(shown, evicted=evicted)

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input, without the messages of a peer that has to wait its turn."""
        if type(event) is Received:
            rpc: Rpc = event.message  # type: ignore[assignment]
            if rpc.publish and not self._gater.accepts(event.peer, now):
                refused = trace.Refuse(event.peer, reasons.THROTTLED, count=len(rpc.publish))
                effects.append(refused)
                self.gossip.promises.excuse(event.peer)
                event = Received(event.peer, Rpc(rpc.subscriptions, (), rpc.control))
        super().handle(event, now, effects)

    def _on_peer_connected(self, event: PeerConnected, now: float, effects: Effects) -> None:
        super()._on_peer_connected(event, now, effects)
        if event.peer in self.peers:
            self._gater.add_peer(event.peer, event.address, now)

    def _on_peer_disconnected(self, event: PeerDisconnected, now: float, effects: Effects) -> None:
        super()._on_peer_disconnected(event, now, effects)
        self._gater.remove_peer(event.peer, now)

    def _before_validation(
        self, peer: PeerId, message: Message, now: float, effects: Effects
    ) -> None:
        super()._before_validation(peer, message, now, effects)
        self._gater.validate_message()

    def _on_accepted(self, peer: PeerId, message: Message, now: float) -> None:
        super()._on_accepted(peer, message, now)
        self._gater.deliver_message(peer, message.topic)

    def _on_rejected(
        self, peer: PeerId, message: Message, reason: str, now: float, effects: Effects
    ) -> None:
        super()._on_rejected(peer, message, reason, now, effects)
        self._gater.reject_message(peer, reason, now)

    def _on_duplicate(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        super()._on_duplicate(peer, message, now, effects)
        self._gater.duplicate_message(peer)

    def _on_heartbeat(self, now: float, effects: Effects) -> None:
        self._gater.refresh(now)
        super()._on_heartbeat(now, effects)
