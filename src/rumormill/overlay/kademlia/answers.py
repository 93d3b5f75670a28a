"""What the answers of a search are worth: values and providers, checked before they are believed.

Whoever gives a value that its key contradicts is punished, and what else it said is not heeded. A
value without the proof that its namespace wants is no lie, since other implementations pass records
on without, and no success either: the search goes on for one that has it.
"""

from typing import Final

from rumormill.core import trace
from rumormill.core.effects import Effects, Learn
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.contacts import Contacts
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, Record
from rumormill.overlay.kademlia.operations import LookupKind, Operation
from rumormill.overlay.kademlia.validators import BAD_KEY, Validators

PROVIDERS_WANTED: Final = 20
"""Providers that end a search for them. Our choice: k."""

WRONG_ANSWER = "kad-wrong-answer"


class Answers:
    """Takes what answers say besides closer peers."""

    __slots__ = ("_config", "_contacts", "_own", "_validators")

    def __init__(
        self, own: PeerId, config: KademliaConfig, contacts: Contacts, validators: Validators
    ) -> None:
        self._own = own
        self._config = config
        self._contacts = contacts
        self._validators = validators

    def take(
        self, operation: Operation, peer: PeerId, message: KadMessage, now: float, effects: Effects
    ) -> bool:
        """Note what an answer found; false where it gave a false value."""
        kind = operation.kind
        if kind is LookupKind.GET_VALUE and message.record is not None:
            return self._take_value(operation, peer, message.record, now, effects)
        if kind is LookupKind.FIND_PROVIDERS:
            for provider in message.providers:
                if len(operation.found) >= PROVIDERS_WANTED:
                    break
                if provider.peer not in operation.found:
                    self._take_peer(operation, provider, effects)
        elif kind is LookupKind.FIND_PEER:
            for other in message.closer:
                if other.peer == operation.key:
                    self._take_peer(operation, other, effects)
        return True

    def _take_peer(self, operation: Operation, found: KadPeer, effects: Effects) -> None:
        operation.found[found.peer] = None
        if found.addresses and found.peer != self._own:
            effects.append(Learn(found.peer, found.addresses))

    def _take_value(
        self, operation: Operation, peer: PeerId, record: Record, now: float, effects: Effects
    ) -> bool:
        key, value = operation.key, record.value
        refused = self._validators.refusal(key, value)
        if refused == BAD_KEY:  # our fault: no value can stand under such a key
            effects.append(trace.Refuse(peer, refused))
            return True
        if refused or record.key != key:
            self._contacts.punish(peer, refused or WRONG_ANSWER, now, effects)
            return False
        vouched = self._validators.vouched(key, value, record.proof)
        operation.values += vouched
        if operation.value is None or operation.value == value:
            operation.value = value
            operation.found[peer] = None
            if vouched:
                operation.proof = record.proof
        elif self._validators.better(key, value, operation.value):
            operation.outdated.update(operation.found)
            operation.found = {peer: None}
            operation.value = value
            operation.proof = record.proof if vouched else b""
        else:
            operation.outdated[peer] = None
        return True

    def suffice(self, operation: Operation) -> bool:
        """Whether a search has found what it wanted before its walk is over."""
        kind = operation.kind
        if kind is LookupKind.GET_VALUE:
            return operation.values >= self._config.quorum
        if kind is LookupKind.FIND_PROVIDERS:
            return len(operation.found) >= PROVIDERS_WANTED
        return kind is LookupKind.FIND_PEER and bool(operation.found)
