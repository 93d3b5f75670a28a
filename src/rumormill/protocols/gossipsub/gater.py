"""The gater: while validation is overloaded, turn away messages of those who waste it.

Off in normal times. It wakes when messages are dropped because validation is too busy, in more than
a given proportion to those validated, and sleeps again when that has not happened for a while.
While awake, it lets a peer's messages in with a probability that is the share of useful ones among
all that its address sent: deliveries against duplicates, ignored and rejected messages, each with a
weight. Nobody is shut out for good, and control messages always pass.

Peers at one address share one account, which outlives their connections for some hours.
"""

import math
from typing import Final

import msgspec

from rumormill.core.config import Config, require
from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.rejections import OVERLOADED
from rumormill.protocols.gossipsub.score_params import score_parameter_decay
from rumormill.protocols.pubsub.reasons import VALIDATION_IGNORED

_ROUNDING: Final = 1e-9
"""Times are floats: a whole number of intervals may come out a little below itself."""


class GaterParams(Config, frozen=True, kw_only=True):
    """The gater's parameters; the defaults are go-libp2p-pubsub's unless they say otherwise."""

    threshold: float = 0.33
    """The gater wakes at this ratio of throttled to validated messages."""
    global_decay: float = score_parameter_decay(120)
    """Of the counts of throttled and validated messages: two minutes."""
    source_decay: float = score_parameter_decay(3600)
    """Of an address's account: an hour."""
    decay_interval: float = 1.0
    decay_to_zero: float = 0.01
    retain_stats: float = 6 * 3600.0
    """How long an address's account outlives the last connection from it."""
    quiet: float = 60.0
    """The gater sleeps when nothing was throttled for so long."""
    duplicate_weight: float = 0.125
    ignore_weight: float = 1.0
    reject_weight: float = 16.0
    topic_delivery_weights: dict[str, float] = msgspec.field(default_factory=dict)
    """What a delivery counts in certain topics; 1 in all others."""
    addresses_max: int = 4096
    """Our choice: accounts kept. The longest without a connection is closed first."""

    def validate(self) -> None:
        """Raise `ConfigError` when a value is outside its range."""
        for name in ("threshold", "duplicate_weight"):
            value = getattr(self, name)
            require(math.isfinite(value) and value > 0, name, "must be a finite number above 0")
        for name in ("global_decay", "source_decay", "decay_to_zero"):
            require(0 < getattr(self, name) < 1, name, "must lie strictly between 0 and 1")
        for name in ("decay_interval", "quiet"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 1, name, "must be at least 1 s")
        for name in ("ignore_weight", "reject_weight"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 1, name, "must be at least 1")
        require(self.retain_stats >= 0, "retain_stats", "must be at least 0")
        require(self.addresses_max >= 1, "addresses_max", "must be at least 1")


class _Account(msgspec.Struct, gc=False):
    connected: int = 0
    expires: float = 0.0
    deliver: float = 0.0
    duplicate: float = 0.0
    ignore: float = 0.0
    reject: float = 0.0


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
        if reason in OVERLOADED:
            self._throttled += 1
            self._last_throttled = now
            return
        account = self._account_of(peer)
        if account is not None:
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
                account.deliver = _faded(account.deliver, factor, floor)
                account.duplicate = _faded(account.duplicate, factor, floor)
                account.ignore = _faded(account.ignore, factor, floor)
                account.reject = _faded(account.reject, factor, floor)
            elif account.expires < now:
                expired.append(address)
        for address in expired:
            del self._accounts[address]


def _faded(count: float, factor: float, floor: float) -> float:
    faded = count * factor
    return faded if faded >= floor else 0.0
