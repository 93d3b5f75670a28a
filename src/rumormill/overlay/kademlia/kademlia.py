"""Kademlia, whole: a distributed hash table as one pure object that a protocol's machine owns.

Every peer stands at the hash of its id, every value at the hash of its key, and the distance of
two positions is their exclusive or. A peer knows many contacts close to itself and a few at every
distance (`table`), so that each question halves the distance to a target at least: a lookup takes
logarithmically many steps. A value is stored at the k peers closest to its key and found by walking
towards it (`lookup`), on disjoint paths, so that liars on one path do not spoil the others.

The machine that owns it passes inputs on to `handle`, and calls the operations. An operation
returns its number at once; its result comes later through `on_result`, never during the call.
`on_contact` hears of every peer that becomes a contact.
`closest` answers from local state and never asks anybody.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rumormill.core import inputs, trace
from rumormill.core.bounded import take_out
from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.ids import PeerId, no_addresses
from rumormill.core.inputs import Answered, AskFailed, Input
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.answers import PROVIDERS_WANTED, WRONG_ANSWER, Answers
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.contacts import Contacts
from rumormill.overlay.kademlia.keeping import RecordKeeper
from rumormill.overlay.kademlia.lookup import Lookup
from rumormill.overlay.kademlia.messages import KadMessage, KadType
from rumormill.overlay.kademlia.operations import (
    BUSY,
    LOCAL,
    LOOKUP,
    NO_PEERS,
    NOT_FOUND,
    NOT_STORED,
    SLOW,
    TIMED_OUT,
    KadTimer,
    LookupKind,
    LookupResult,
    Operation,
    Question,
    Questions,
    result_of,
)
from rumormill.overlay.kademlia.server import Server, is_content_id
from rumormill.overlay.kademlia.stores import ProviderStore, RecordStore
from rumormill.overlay.kademlia.storing import Storing
from rumormill.overlay.kademlia.table import key_position, position
from rumormill.overlay.kademlia.upkeep import Upkeep
from rumormill.overlay.kademlia.validators import DEFAULT_VALIDATORS, Validator, Validators

_QUESTIONS = {
    LookupKind.GET_VALUE: KadType.GET_VALUE,
    LookupKind.FIND_PROVIDERS: KadType.GET_PROVIDERS,
}
"""What a lookup asks on its way; all others ask FIND_NODE."""

_IMPATIENCE: Final = 1.0
"""Seconds after which a search for a value asks one more peer on each path, besides those that have
not answered yet. Our choice: a round trip; a question that is lost takes `ask_timeout`."""
_ASKS_PER_LOOKUP: Final = 200
"""Peers that one lookup asks. Our choice: ten times k; only invented peers need more."""


class Kademlia:
    """One peer's part of the hash table."""

    def __init__(
        self,
        peer: PeerId,
        randomness: Randomness,
        config: KademliaConfig,
        *,
        on_result: Callable[[LookupResult, float, Effects], None],
        on_contact: Callable[[PeerId, float, Effects], None] | None = None,
        addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses,
        validators: Mapping[str, Validator] = DEFAULT_VALIDATORS,
        disk: bool = False,
    ) -> None:
        config.validate()
        self.peer = peer
        self.config = config
        self._on_result = on_result
        self._on_contact = on_contact
        self._validators = Validators(validators)
        self._questions = Questions(config.ask_timeout)
        self.contacts = Contacts(peer, config, self._questions, addresses)
        own = self.contacts.table.own
        self.records = RecordStore(own, config)
        self.providers = ProviderStore(own, config)
        self._server = Server(config, self.contacts, self.records, self.providers, self._validators)
        self._answers = Answers(peer, config, self.contacts, self._validators)
        self._storing = Storing(config, self.contacts, self._questions)
        self._upkeep = Upkeep(config, self.contacts, self.records, self.providers, self, randomness)
        self._keeper: RecordKeeper | None = None
        if disk and config.durable:
            self._keeper = RecordKeeper(peer, config, self.records, self._validators, randomness)
        self._operations: dict[int, Operation] = {}
        self._waiting: dict[int, Operation] = {}
        self._finished: dict[int, LookupResult] = {}
        self._last_number = 0

    # What happens.

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input; those that are none of Kademlia's business change nothing."""
        self._handle(event, now, effects)
        self._keep(effects)

    def _keep(self, effects: Effects) -> None:
        if not self.records.changed:
            return
        if self._keeper is None:
            self.records.changed.clear()
        else:
            self._keeper.keep_changes(effects)

    def _handle(self, event: Input, now: float, effects: Effects) -> None:
        kind = type(event)
        if kind is Answered:
            self._on_answered(event, now, effects)  # type: ignore[arg-type]
        elif kind is inputs.Asked:
            self._server.handle(event, now, effects)  # type: ignore[arg-type]
        elif kind is AskFailed:
            self._on_ask_failed(event, now, effects)  # type: ignore[arg-type]
        elif kind is inputs.TimerFired:
            self._on_timer(event.timer, now, effects)  # type: ignore[attr-defined]
        elif isinstance(event, inputs.PeerConnected):
            self.contacts.connect(event.peer, event.address, now, effects)
        elif isinstance(event, inputs.PeerDisconnected):
            self.contacts.disconnect(event.peer)
        elif isinstance(event, inputs.ConnectFailed):
            self.contacts.failed(event.peer, now)
        elif isinstance(event, inputs.Loaded):
            if self._keeper is not None:
                self._keeper.on_loaded(event, now, effects)
        elif isinstance(event, inputs.Start):
            self._start(now, effects)

    def _start(self, now: float, effects: Effects) -> None:
        """Set the timers; after a restart, do again what was under way, for no answer will come."""
        self._questions.forget()
        self.contacts.forget_connections()
        self._upkeep.start(now, effects)
        if self._keeper is not None:
            self._keeper.start(effects)
        interrupted, self._operations = list(self._operations.values()), {}
        for operation in interrupted:
            if not operation.internal:
                operation.storing = 0
                self._begin(operation, now, effects)
        for number in self._finished:
            effects.append(SetTimer(KadTimer(LOCAL, number), now))

    def owns(self, timer: object) -> bool:
        """Whether a timer is Kademlia's."""
        return isinstance(timer, KadTimer)

    def _on_timer(self, timer: object, now: float, effects: Effects) -> None:
        if not isinstance(timer, KadTimer):
            return
        if timer.what == LOOKUP:
            operation = self._operations.get(timer.number)
            if operation is not None and operation.lookup is not None:
                self._conclude(operation, TIMED_OUT, now, effects)
        elif timer.what == SLOW:
            operation = self._operations.get(timer.number)
            if operation is not None and operation.lookup is not None:
                operation.lookup.widen()
                effects.append(SetTimer(KadTimer(SLOW, timer.number), now + _IMPATIENCE))
                self._advance(operation, now, effects)
        elif timer.what == LOCAL:
            result = self._finished.pop(timer.number, None)
            if result is not None:
                self._on_result(result, now, effects)
        else:
            self._upkeep.on_timer(timer.what, now, effects)

    def _on_answered(self, event: Answered, now: float, effects: Effects) -> None:
        question = self._questions.close(event.number, event.peer)
        if question is None:
            return
        message = event.message
        self._questions.answered(question, now)
        if not isinstance(message, KadMessage) or message.type is not question.message.type:
            effects.append(trace.Refuse(event.peer, WRONG_ANSWER))
            self._unanswered(question, now, effects)
            return
        if self.contacts.answered(event.peer, now, effects):
            self._upkeep.on_contact(now, effects)
            if self._on_contact is not None:
                self._on_contact(event.peer, now, effects)
        operation = self._operations.get(question.owner)
        if operation is None:
            return
        if question.message.type is KadType.PUT_VALUE:
            self._storing.take(operation, event.peer, message, effects)
            self._one_less_to_store(operation, now, effects)
        elif self._answers.take(operation, event.peer, message, now, effects):
            self._on_step(operation, event.peer, message, now, effects)
        else:
            self._on_failed_step(operation, event.peer, now, effects)

    def _on_ask_failed(self, event: AskFailed, now: float, effects: Effects) -> None:
        question = self._questions.close(event.number, event.peer)
        if question is None:
            return
        if event.reason != inputs.NO_ANSWER or not self._questions.repeat(question, effects):
            self._unanswered(question, now, effects)

    def _unanswered(self, question: Question, now: float, effects: Effects) -> None:
        storing = question.message.type is KadType.PUT_VALUE
        if not storing:  # who will not store a value has its reasons, and may be alive
            self.contacts.failed(question.peer, now)
        operation = self._operations.get(question.owner)
        if operation is None:
            return
        if storing:
            operation.failed += 1
            self._one_less_to_store(operation, now, effects)
        else:
            self._on_failed_step(operation, question.peer, now, effects)

    # What the application asks for.

    def closest(self, target: bytes, count: int = 1) -> list[PeerId]:
        """The known peers closest to a peer id or key, the closest first, from local state only."""
        return self.contacts.table.closest(position(target), count)

    def meet(self, peer: PeerId, now: float, effects: Effects) -> None:
        """Ask a peer that may be a server, known from elsewhere, to be a contact."""
        self.contacts.consider(peer, now, effects)

    def get_value(self, key: bytes, now: float, effects: Effects) -> int:
        """Look for the value of a key."""
        if self._validators.of(key) is None:
            raise LocalError("no validator knows the key, so nothing that is found could be used")
        operation = self.new(LookupKind.GET_VALUE, key)
        held = self.records.get(key, now)
        if held is not None:
            operation.value, operation.found[self.peer] = held.value, None
            if self._validators.vouched(key, held.value, held.proof):
                operation.proof, operation.values = held.proof, 1
            if self._answers.suffice(operation):
                return self._finish_later(operation, "", now, effects)
        return self.submit(operation, now, effects)

    def put_value(
        self,
        key: bytes,
        value: bytes,
        now: float,
        effects: Effects,
        *,
        proof: bytes = b"",
        republish: bool = True,
    ) -> int:
        """Store a value at the peers closest to its key, and go on doing so as it ages."""
        limits = self.config.limits
        if len(key) > limits.key_bytes or len(value) > limits.value_bytes:
            raise LimitError(f"a value of {len(value)} bytes under a key of {len(key)} is too long")
        if len(proof) > limits.proof_bytes:
            raise LimitError(f"a proof of {len(proof)} bytes is too long")
        refused = self._validators.refusal(key, value)
        if refused:
            raise LocalError(f"the value may not be stored under its key: {refused}")
        if republish:
            self._upkeep.publish(key, value, proof, now, effects)
            self._keep(effects)
        operation = self.new(LookupKind.PUT_VALUE, key)
        operation.value, operation.proof = value, proof
        return self.submit(operation, now, effects)

    def withdraw_value(self, key: bytes) -> bool:
        """Republish a value no longer; its holders forget it when it expires."""
        return self.records.withdraw(key)

    def find_peer(self, peer: PeerId, now: float, effects: Effects) -> int:
        """Look for a peer, and for where it can be reached."""
        operation = self.new(LookupKind.FIND_PEER, peer)
        if peer in self.contacts.table or peer in self.contacts.connected or peer == self.peer:
            operation.found[peer] = None
            return self._finish_later(operation, "", now, effects)
        return self.submit(operation, now, effects)

    def find_closest(self, target: bytes, now: float, effects: Effects) -> int:
        """Look for the k peers closest to a peer id or key."""
        return self.submit(self.new(LookupKind.FIND_CLOSEST, target), now, effects)

    def provide(self, key: bytes, now: float, effects: Effects) -> int:
        """Say that this peer provides a key (a multihash or CID), and go on saying it."""
        if not is_content_id(key):
            raise LocalError("only a multihash or a CID can be provided")
        self._upkeep.provide(key, now, effects)
        return self.submit(self.new(LookupKind.PROVIDE, key), now, effects)

    def stop_providing(self, key: bytes) -> None:
        """Say no longer that this peer provides a key; others forget it in time."""
        self.providers.own.pop(key, None)

    def find_providers(self, key: bytes, now: float, effects: Effects) -> int:
        """Look for peers that provide a key."""
        operation = self.new(LookupKind.FIND_PROVIDERS, key)
        for provider in self.providers.get(key, now):
            operation.found[provider] = None
        if len(operation.found) >= PROVIDERS_WANTED:
            return self._finish_later(operation, "", now, effects)
        return self.submit(operation, now, effects)

    def cancel(self, number: int) -> None:
        """Forget an operation; no result follows."""
        self._finished.pop(number, None)
        self._operations.pop(number, None)
        self._waiting.pop(number, None)

    def new(self, kind: LookupKind, key: bytes, *, internal: bool = False) -> Operation:
        """Make an operation; the end of an internal one concerns the overlay alone."""
        self._last_number += 1
        return Operation(self._last_number, kind, key, internal=internal)

    # Lookups.

    def submit(self, operation: Operation, now: float, effects: Effects) -> int:
        """Start an operation, or let it wait for its turn."""
        if len(self._operations) < self.config.lookups or operation.internal:
            self._begin(operation, now, effects)
        elif len(self._waiting) < self.config.waiting_lookups:
            self._waiting[operation.number] = operation
        else:
            self._finish_later(operation, BUSY, now, effects)
        return operation.number

    def begin_waiting(self, now: float, effects: Effects) -> None:
        """Start operations that wait, as long as there is room for them."""
        while self._waiting and len(self._operations) < self.config.lookups:
            self._begin(self._waiting.pop(next(iter(self._waiting))), now, effects)

    def _begin(self, operation: Operation, now: float, effects: Effects) -> None:
        config = self.config
        target = key_position(operation.key)
        seeds = self.contacts.table.closest(target, config.k)
        if not seeds:
            self._finish_later(operation, NO_PEERS, now, effects)
            return
        holders = self._storing.known_holders(operation)
        if holders:
            self._operations[operation.number] = operation
            self._store(operation, holders, now, effects)
            return
        operation.walked = True
        getting = self._wants_one(operation)
        operation.lookup = Lookup(
            target,
            self.peer,
            seeds,
            k=config.copies if operation.kind is LookupKind.PUT_VALUE else config.k,
            alpha=1 if getting or self._fills_bucket(operation) else config.alpha,
            paths=config.paths,
            width=config.candidates,
            limit=_ASKS_PER_LOOKUP,
            radius=self._radius(operation.kind),
        )
        self._operations[operation.number] = operation
        effects.append(SetTimer(KadTimer(LOOKUP, operation.number), now + config.lookup_timeout))
        if getting:
            effects.append(SetTimer(KadTimer(SLOW, operation.number), now + _IMPATIENCE))
        self._advance(operation, now, effects)

    def _wants_one(self, operation: Operation) -> bool:
        """Whether the first value that proves itself ends a search, so that little is asked for:
        one question a path at first, and no further peers beside a value."""
        return operation.kind is LookupKind.GET_VALUE and self.config.quorum == 1

    def _fills_bucket(self, operation: Operation) -> bool:
        """Whether a lookup is to find some contacts at a distance, and nobody in particular."""
        walks = operation.kind is LookupKind.FIND_CLOSEST and operation.key != self.peer
        return walks and operation.internal and self.config.refresh_contacts > 0

    def _suffices(self, operation: Operation) -> bool:
        """Whether a lookup has found what it wanted before its walk is over."""
        if self._fills_bucket(operation):
            return self.contacts.table.around(operation.key) >= self.config.refresh_contacts
        return self._answers.suffice(operation)

    def _radius(self, kind: LookupKind) -> int:
        """How far around a key records are stored and looked for, where that is what is done."""
        if kind is LookupKind.FIND_CLOSEST or kind is LookupKind.FIND_PEER:
            return 0
        return self.contacts.table.radius(round(self.config.region * self.config.k))

    def _advance(self, operation: Operation, now: float, effects: Effects) -> None:
        """Ask whoever is next; a lookup with nobody to ask and nobody to wait for is over."""
        lookup = operation.lookup
        assert lookup is not None
        if not self._ask_next(operation, lookup, now, effects) and not lookup.in_flight:
            self._conclude(operation, "", now, effects)

    def _ask_next(self, operation: Operation, lookup: Lookup, now: float, effects: Effects) -> bool:
        """Ask whoever is next; whether there was anybody."""
        next_peers = lookup.take()
        kind = _QUESTIONS.get(operation.kind, KadType.FIND_NODE)
        question = KadMessage(kind, operation.key, brief=self._wants_one(operation))
        for peer in next_peers:
            addresses = lookup.addresses(peer)
            self._questions.ask(peer, question, operation.number, now, effects, addresses)
        return bool(next_peers)

    def _on_step(
        self, operation: Operation, peer: PeerId, message: KadMessage, now: float, effects: Effects
    ) -> None:
        lookup = operation.lookup
        if lookup is None:  # an answer that came after its walk was over
            return
        enough, last = self._suffices(operation), lookup.answers + 1 >= self.config.paths
        if self._wants_one(operation) and last and not enough:
            # One question a path was not enough. Whoever named nobody yet is asked before those
            # that the first to answer names: it may be a liar that names its like.
            lookup.widen(self.config.alpha)
            self._ask_next(operation, lookup, now, effects)
        closer = message.closer[: self.config.k]
        lookup.answered(peer, self.contacts.without_banned(closer, now))
        if enough:
            self._conclude(operation, "", now, effects)
        else:
            self._advance(operation, now, effects)

    def _on_failed_step(
        self, operation: Operation, peer: PeerId, now: float, effects: Effects
    ) -> None:
        if operation.lookup is not None:
            operation.lookup.failed(peer)
            self._advance(operation, now, effects)

    def _conclude(self, operation: Operation, reason: str, now: float, effects: Effects) -> None:
        """The walk is over: store what is to be stored, or report what was found."""
        lookup = operation.lookup
        assert lookup is not None
        operation.lookup = None
        operation.asked += lookup.asked
        operation.failed += lookup.failures
        kind = operation.kind
        if kind is LookupKind.PUT_VALUE:
            self._store(operation, lookup.holders(self.config.copies), now, effects)
            return
        if kind is LookupKind.PROVIDE:
            self._storing.announce(operation, lookup.holders(self.config.k), now, effects)
        elif kind is LookupKind.FIND_CLOSEST:
            operation.found = dict.fromkeys(lookup.closest(self.config.k))
        elif kind is LookupKind.GET_VALUE:
            self._storing.correct(operation, lookup, now, effects)
        succeeded = operation.found or operation.stored
        self._finish(operation, "" if succeeded else reason or NOT_FOUND, now, effects)

    # Storing.

    def _store(
        self, operation: Operation, holders: list[PeerId], now: float, effects: Effects
    ) -> None:
        self._storing.put(operation, holders, now, effects)
        if not holders:
            self._finish(operation, NOT_STORED, now, effects)

    def _one_less_to_store(self, operation: Operation, now: float, effects: Effects) -> None:
        operation.storing -= 1
        if operation.storing:
            return
        if self._storing.too_few(operation):
            operation.walked = True
            self._begin(operation, now, effects)
        else:
            self._finish(operation, "" if operation.stored else NOT_STORED, now, effects)

    # The end of an operation.

    def _finish_later(self, operation: Operation, reason: str, now: float, effects: Effects) -> int:
        """Report what is known already, but not while the caller is still asking for it."""
        result = result_of(operation, reason)
        if operation.kind is LookupKind.PUT_VALUE or operation.internal:
            self._upkeep.on_result(result, now, effects)
        if not operation.internal:
            self._finished[operation.number] = result
            effects.append(SetTimer(KadTimer(LOCAL, operation.number), now))
        return operation.number

    def _finish(self, operation: Operation, reason: str, now: float, effects: Effects) -> None:
        take_out(self._operations, operation.number)
        effects.append(CancelTimer(KadTimer(LOOKUP, operation.number)))
        if self._wants_one(operation):
            effects.append(CancelTimer(KadTimer(SLOW, operation.number)))
        self.begin_waiting(now, effects)
        result = result_of(operation, reason)
        if operation.kind is LookupKind.PUT_VALUE or operation.internal:
            self._upkeep.on_result(result, now, effects)
        if not operation.internal:
            self._on_result(result, now, effects)
