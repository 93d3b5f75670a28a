"""A peer that is nothing but Kademlia, driven by commands: for tests, and for a bare DHT node."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from rumormill.core.effects import Effects, Outcome
from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId, no_addresses
from rumormill.core.inputs import Command, Input
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.operations import LookupResult


class GetValue(msgspec.Struct, frozen=True):
    """Look for a value."""

    key: bytes


class PutValue(msgspec.Struct, frozen=True):
    """Store a value."""

    key: bytes
    value: bytes


class FindPeer(msgspec.Struct, frozen=True):
    """Look for a peer."""

    peer: PeerId


class FindClosest(msgspec.Struct, frozen=True):
    """Look for the peers closest to a key."""

    key: bytes


class Provide(msgspec.Struct, frozen=True):
    """Say that this peer provides a key."""

    key: bytes


class FindProviders(msgspec.Struct, frozen=True):
    """Look for the providers of a key."""

    key: bytes


class Meet(msgspec.Struct, frozen=True):
    """Ask a peer to be a contact; the outcome comes at once and says nothing."""

    peer: PeerId


Request: TypeAlias = Meet | GetValue | PutValue | FindPeer | FindClosest | Provide | FindProviders


_OPERATIONS: Final[dict[type, Callable[..., int]]] = {
    GetValue: Kademlia.get_value,
    PutValue: Kademlia.put_value,
    FindPeer: Kademlia.find_peer,
    FindClosest: Kademlia.find_closest,
    Provide: Kademlia.provide,
    FindProviders: Kademlia.find_providers,
}


class KademliaPeer:
    """The machine: every `Command` is an operation, its `Outcome` a `LookupResult`."""

    def __init__(
        self,
        peer: PeerId,
        randomness: Randomness,
        config: KademliaConfig,
        *,
        addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses,
    ) -> None:
        self.overlay = Kademlia(
            peer, randomness, config, on_result=self._on_result, addresses=addresses
        )
        self._commands: dict[int, int] = {}

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input."""
        if not isinstance(event, Command):
            self.overlay.handle(event, now, effects)
            return
        if isinstance(event.body, Meet):
            self.overlay.meet(event.body.peer, now, effects)
            effects.append(Outcome(event.number))
            return
        operation = _OPERATIONS.get(type(event.body))
        try:
            if operation is None:
                raise LocalError(f"Kademlia knows no request {type(event.body).__name__}")
            asked = msgspec.structs.astuple(event.body)  # type: ignore[arg-type]
            number = operation(self.overlay, *asked, now, effects)
        except LocalError as error:
            effects.append(Outcome(event.number, error=str(error)))
        else:
            self._commands[number] = event.number

    def view(self) -> View:
        """Show the routing table (see `core.machine`)."""
        contacts = tuple([contact.peer for contact in self.overlay.contacts.table])
        return View(links={"contact": {"": contacts}})

    def _on_result(self, result: LookupResult, now: float, effects: Effects) -> None:
        effects.append(Outcome(self._commands.pop(result.number), result))
