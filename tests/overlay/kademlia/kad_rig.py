"""One Kademlia machine under test: what it is given, and what it does."""

from collections.abc import Mapping
from random import Random
from typing import Any, TypeVar

from kad_net import key_of

from rumormill.core import trace
from rumormill.core.config import override
from rumormill.core.effects import (
    Answer,
    Ask,
    Effect,
)
from rumormill.core.inputs import (
    Answered,
    Asked,
    Input,
    PeerConnected,
    Start,
    TimerFired,
)
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.overlay.kademlia.messages import KadMessage, KadType
from rumormill.overlay.kademlia.operations import (
    KadTimer,
    LookupResult,
)
from rumormill.overlay.kademlia.validators import (
    DEFAULT_VALIDATORS,
    Validator,
)

OWN = b"own"
VALUE = b"value"
KEY = key_of(VALUE)
EffectT = TypeVar("EffectT", bound=Effect)


class Newest:
    """A validator of values that change: the greater one wins, `bad` is never valid."""

    def refusal(self, key: bytes, value: bytes) -> str:
        return "bad" if value == b"bad" else ""

    def better(self, key: bytes, new: bytes, old: bytes) -> bool:
        return new > old

    def vouched(self, key: bytes, value: bytes, proof: bytes) -> bool:
        return True


class Rig:
    """One peer under test, and what it did."""

    def __init__(
        self,
        *,
        addresses: Mapping[bytes, tuple[bytes, ...]] | None = None,
        validators: Mapping[str, Validator] | None = None,
        disk: bool = False,
        **changes: Any,
    ) -> None:
        self.now = 1_000_000.0
        self.results: list[LookupResult] = []
        self.met: list[bytes] = []
        self.effects: list[Effect] = []
        where = addresses or {}
        self.kad = Kademlia(
            OWN,
            Random(1),
            override(KademliaConfig(), changes),
            on_result=lambda result, _now, _effects: self.results.append(result),
            on_contact=lambda peer, _now, _effects: self.met.append(peer),
            addresses=lambda peer: where.get(peer, ()),
            validators={**DEFAULT_VALIDATORS, **(validators or {})},
            disk=disk,
        )
        self.give(Start())

    def give(self, event: Input) -> list[Effect]:
        self.effects = []
        self.kad.handle(event, self.now, self.effects)
        return self.effects

    def all(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def refused(self) -> list[str]:
        return [refuse.reason for refuse in self.all(trace.Refuse)]

    def do(self, operation: str, *arguments: Any, **options: Any) -> int:
        self.effects = []
        number = getattr(self.kad, operation)(*arguments, self.now, self.effects, **options)
        assert isinstance(number, int)
        return number

    def ask(self, peer: bytes, message: KadMessage) -> KadMessage | None:
        """Put a question to the peer; return its answer."""
        self.give(Asked(peer, 77, message))
        answers = self.all(Answer)
        assert len(answers) <= 1
        return answers[0].message if answers else None  # type: ignore[return-value]

    def befriend(self, *peers: bytes, address: str = "") -> None:
        """Make peers contacts, as they become in earnest: they connect, and answer a question."""
        for peer in peers:
            self.give(PeerConnected(peer, "/p", address=address))
            for ask in self.all(Ask):
                self.give(Answered(peer, ask.number, KadMessage(KadType.FIND_NODE)))
            assert peer in self.kad.contacts.table

    def fire(self, what: str, number: int = 0) -> None:
        self.give(TimerFired(KadTimer(what, number)))

    def answer(self, asked: list[Ask], **parts: Any) -> list[Ask]:
        """Answer questions alike; return those that follow."""
        following = []
        for ask in asked:
            kind: KadType = ask.message.type  # type: ignore[attr-defined]
            self.give(Answered(ask.peer, ask.number, KadMessage(kind, **parts)))
            following += self.all(Ask)
        return following
