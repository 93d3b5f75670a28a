"""What Kademlia does by itself: join, refresh the table, republish, forget what is old.

Joining is a lookup of our own id as soon as the first contact is there, which also makes us known
to our neighbours, and then a lookup in every bucket wider than that of our k-th neighbour: peers
as close as that are all known then. The same is repeated in every refresh interval, and sooner
while the table is small. Lookups of a refresh run one after the other, with pauses where there is
no hurry; records that fall due together are republished a few at a time. A holder that puts a
record again and is no longer among those closest to it has handed it over, and lets its own copy
grow old.
"""

from typing import Final, Protocol

from rumormill.core import trace
from rumormill.core.effects import Effects, SetTimer
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.contacts import Contacts
from rumormill.overlay.kademlia.operations import KadTimer, LookupKind, LookupResult, Operation
from rumormill.overlay.kademlia.stores import OWN_FULL, Held, ProviderStore, RecordStore
from rumormill.overlay.kademlia.table import key_in_bucket, position

_TICK, _REFRESH, _NEXT = "tick", "refresh", "next"
_REFRESH_BUCKETS: Final = 15
"""The deepest bucket that is refreshed by a random key; keys for deeper ones are too dear to find,
and the lookup of our own id covers those (go-libp2p-kbucket: 15)."""
_SOONEST_REPEAT = 15.0
"""Seconds until a small table is refreshed again, doubled each time. Our choice: peers that start
together find each other within a minute, and a network of three does not chatter for ever."""

_LONELY: Final = 3
_LONELY_PAUSE: Final = 1.0
"""Contacts at a distance below which the next lookup there does not wait for long, and its seconds:
whoever joins among a crowd learns of its neighbours alone."""


class Operations(Protocol):
    """How upkeep starts operations of its own, which Kademlia runs."""

    def new(self, kind: LookupKind, key: bytes, *, internal: bool) -> Operation:
        """Make an operation; the end of an internal one concerns the overlay alone."""

    def submit(self, operation: Operation, now: float, effects: Effects) -> int:
        """Start an operation, or let it wait for its turn."""

    def begin_waiting(self, now: float, effects: Effects) -> None:
        """Start operations that wait, as long as there is room for them."""


class Upkeep:
    """The overlay's own business."""

    __slots__ = (
        "_config", "_contacts", "_joined", "_next_expiry", "_operations", "_providers",
        "_randomness", "_records", "_refreshing", "_repeat_after", "_republishing", "_targets",
        "_was_small",
    )  # fmt: skip

    def __init__(
        self,
        config: KademliaConfig,
        contacts: Contacts,
        records: RecordStore,
        providers: ProviderStore,
        operations: Operations,
        randomness: Randomness,
    ) -> None:
        self._config = config
        self._contacts = contacts
        self._records = records
        self._providers = providers
        self._operations = operations
        self._randomness = randomness
        self._joined = False
        self._repeat_after = _SOONEST_REPEAT
        self._was_small = False
        """Whether the table was small at the last refresh, so that this one is a repetition: which
        nobody needs if the table has grown since."""
        self._targets: list[bytes] = []
        self._refreshing = 0
        self._republishing: dict[int, None] = {}
        self._next_expiry = 0.0

    def _jittered(self, seconds: float) -> float:
        """A little less, so that peers that start together do not act together for ever."""
        return seconds * (1.0 - 0.1 * self._randomness.random())

    def start(self, now: float, effects: Effects) -> None:
        """Set the timers; a table that is left from before is refreshed at once."""
        config = self._config
        self._targets.clear()
        self._refreshing = 0
        self._republishing.clear()
        self._joined = bool(self._contacts.table)
        after = config.bootstrap_delay if self._joined else config.refresh_interval
        self._set(_TICK, now, config.upkeep_interval, effects)
        self._set(_REFRESH, now, after, effects)

    def _set(self, what: str, now: float, seconds: float, effects: Effects) -> None:
        at = now + self._jittered(seconds)
        effects.append(SetTimer(KadTimer(what), at, patient=True))

    def on_timer(self, what: str, now: float, effects: Effects) -> None:
        """A timer of ours fired."""
        if what == _REFRESH:
            self._refresh(now, effects)
        elif what == _NEXT:
            self._next_target(now, effects)
        elif what == _TICK:
            self._tick(now, effects)

    # The table.

    def on_contact(self, now: float, effects: Effects) -> None:
        """The table has a new contact: with the first one, join."""
        if not self._joined:
            self._joined = True
            self._repeat_after = _SOONEST_REPEAT
            self._set(_REFRESH, now, self._config.bootstrap_delay, effects)

    def _refresh(self, now: float, effects: Effects) -> None:
        config = self._config
        table = self._contacts.table
        after, small = config.refresh_interval, len(table) < config.k
        needed = small or not self._was_small
        self._was_small = small
        if not table:
            self._joined = False
        elif small:
            after = min(after, self._repeat_after)
            self._repeat_after *= 2
        self._set(_REFRESH, now, after, effects)
        if table and needed and not self._refreshing:
            self._targets.append(self._contacts.own)
            # Keys of other buckets are chosen when their turn comes: the first lookup fills them.
            self._next_target(now, effects)

    def _choose_targets(self) -> None:
        table = self._contacts.table
        for bucket in range(min(table.neighbourhood(), _REFRESH_BUCKETS + 1)):
            key = key_in_bucket(table.own, bucket, self._randomness)
            if key is not None:
                self._targets.append(key)

    def _next_target(self, now: float, effects: Effects) -> None:
        if not self._targets:
            self._refreshing = 0
            return
        target = self._targets.pop(0)
        operation = self._operations.new(LookupKind.FIND_CLOSEST, target, internal=True)
        self._refreshing = operation.number
        self._operations.submit(operation, now, effects)

    # Records.

    def publish(self, key: bytes, value: bytes, proof: bytes, now: float, effects: Effects) -> None:
        """Keep a value of ours, and republish it."""
        due = now + self._jittered(self._config.republish_interval)
        if self._records.publish(Held(key, value, now, due, proof)) is not None:
            effects.append(trace.Refuse(self._contacts.own, OWN_FULL))

    def provide(self, key: bytes, now: float, effects: Effects) -> None:
        """Provide a key, and repeat it."""
        due = now + self._jittered(self._config.republish_interval)
        if self._providers.provide(key, due) is not None:
            effects.append(trace.Refuse(self._contacts.own, OWN_FULL))

    def _tick(self, now: float, effects: Effects) -> None:
        config = self._config
        self._set(_TICK, now, config.upkeep_interval, effects)
        self._contacts.upkeep(now, effects)
        self._operations.begin_waiting(now, effects)
        if now >= self._next_expiry:
            self._next_expiry = now + config.refresh_interval
            self._records.expire(now)
            self._providers.expire(now)
        self._republish(now, effects)

    def _republish(self, now: float, effects: Effects) -> None:
        config = self._config
        room = config.republish_at_once - len(self._republishing)
        if not self._contacts.table:
            self._wait_for_company(now)
            return
        if room <= 0:
            return
        operations = []
        for held in self._records.due(now):
            own = self._records.own(held.key) is held
            interval = config.republish_interval if own else config.replicate_interval
            held.due = now + self._jittered(interval)
            operation = self._operations.new(LookupKind.PUT_VALUE, held.key, internal=True)
            operation.value, operation.proof = held.value, held.proof
            if own:
                self._records.renew(held, now)
            operations.append(operation)
            if len(operations) == room:
                break
        for key, due in self._providers.own.items():
            if len(operations) == room:
                break
            if due <= now:
                self._providers.own[key] = now + self._jittered(config.republish_interval)
                operations.append(self._operations.new(LookupKind.PROVIDE, key, internal=True))
        for operation in operations:
            self._republishing[operation.number] = None
            self._operations.submit(operation, now, effects)

    def _wait_for_company(self, now: float) -> None:
        """Nobody can be given anything, nor keep it instead of us: what we hold does not age."""
        for held in self._records.due(now):
            if self._records.own(held.key) is not held:
                self._records.renew(held, now)
                held.due = now + self._jittered(self._config.replicate_interval)

    def _hand_over(self, result: LookupResult, now: float) -> None:
        """A record was put where it belongs now; unless that is still here as well, it ages."""
        held = self._records.held(result.key)
        if held is None:
            return
        target = position(result.key)
        farthest = max((target ^ position(peer) for peer in result.peers), default=0)
        if result.stored < self._config.copies or target ^ self._contacts.table.own < farthest:
            self._records.renew(held, now)

    def on_result(self, result: LookupResult, now: float, effects: Effects) -> None:
        """An operation ended: one of ours, or one that should have stored a value."""
        if result.number == self._refreshing:
            if result.key == self._contacts.own:
                self._choose_targets()
            if self._targets and self._config.refresh_pause:
                lonely = self._contacts.table.around(self._targets[0]) < min(
                    _LONELY, self._config.k
                )
                pause = _LONELY_PAUSE if lonely else self._config.refresh_pause
                self._set(_NEXT, now, pause, effects)
            else:
                self._next_target(now, effects)
            return
        if result.kind is LookupKind.PUT_VALUE and not result.stored:
            own = self._records.own(result.key)
            if own is not None:  # nobody has it yet: soon again
                own.due = now + self._config.upkeep_interval
        if result.kind is LookupKind.PUT_VALUE and result.number in self._republishing:
            self._hand_over(result, now)
        if self._republishing.pop(result.number, self) is None:
            self._republish(now, effects)
