"""Putting records where they belong: at those closest to their keys, found by a walk or known.

Whoever looks for a record asks everybody within the distance where k peers are expected. So a
record that has fewer holders than k is found at whichever of those it is, and who knows enough of
them needs no walk to put it there. A walk follows if most of them turn out to be gone. What is put
again always walks, and goes to all in the region: by then its key is known, and others may have
made up ids next to it.
"""

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia import rfc3339
from rumormill.overlay.kademlia.answers import WRONG_ANSWER
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.contacts import Contacts
from rumormill.overlay.kademlia.lookup import Lookup
from rumormill.overlay.kademlia.messages import KadMessage, KadType, Record
from rumormill.overlay.kademlia.operations import CHECK, LookupKind, Operation, Questions
from rumormill.overlay.kademlia.table import position


class Storing:
    """Sends records to their holders."""

    __slots__ = ("_config", "_contacts", "_questions")

    def __init__(self, config: KademliaConfig, contacts: Contacts, questions: Questions) -> None:
        self._config = config
        self._contacts = contacts
        self._questions = questions

    def known_holders(self, operation: Operation) -> list[PeerId]:
        """Contacts that a record can be put at without a walk; none where that is not wanted, or
        too few are known."""
        config, table = self._config, self._contacts.table
        if operation.kind is not LookupKind.PUT_VALUE or operation.walked or not config.holders:
            return []
        if operation.internal:
            return []
        target = position(operation.key)
        holders = table.closest(target, config.holders)
        region = table.radius(config.k)
        near = len(holders) == config.holders and position(holders[-1]) ^ target <= region
        return holders if near else []

    def put(
        self, operation: Operation, holders: list[PeerId], now: float, effects: Effects
    ) -> None:
        """Ask peers to hold a record."""
        message = self._message(operation, now)
        operation.storing = len(holders)
        operation.asked += len(holders)
        for holder in holders:
            self._questions.ask(holder, message, operation.number, now, effects)

    def _message(self, operation: Operation, now: float) -> KadMessage:
        assert operation.value is not None
        record = Record(operation.key, operation.value, rfc3339.write(now), operation.proof)
        return KadMessage(KadType.PUT_VALUE, operation.key, record, brief=True)

    def take(
        self, operation: Operation, peer: PeerId, message: KadMessage, effects: Effects
    ) -> None:
        """Note a holder's answer: a copy of the record, or the word that it has it."""
        confirmed = message.brief and message.key == operation.key
        if confirmed or (message.record is not None and message.record.value == operation.value):
            operation.stored[peer] = None
        else:
            operation.failed += 1
            effects.append(trace.Refuse(peer, WRONG_ANSWER))

    def too_few(self, operation: Operation) -> bool:
        """Whether most of those at whom a record was put without a walk are gone."""
        return not operation.walked and 2 * len(operation.stored) < self._config.copies

    def announce(
        self, operation: Operation, holders: list[PeerId], now: float, effects: Effects
    ) -> None:
        """Tell peers that we provide a key."""
        own = self._contacts.describe(self._contacts.own, now)
        message = KadMessage(KadType.ADD_PROVIDER, operation.key, providers=(own,))
        operation.asked += len(holders)
        for holder in holders:
            self._questions.tell(holder, message, effects)
            operation.stored[holder] = None

    def correct(self, operation: Operation, lookup: Lookup, now: float, effects: Effects) -> None:
        """Give the value to those that had a worse one, and to some near the key that had none."""
        if operation.value is None:
            return
        wanting = dict(operation.outdated)
        spare = self._config.corrections
        for peer in lookup.closest(self._config.copies):
            if spare and peer not in operation.found and peer not in wanting:
                wanting[peer] = None
                spare -= 1
        wanting.pop(self._contacts.own, None)
        if wanting:
            message = self._message(operation, now)
            for peer in wanting:
                self._questions.ask(peer, message, CHECK, now, effects)
