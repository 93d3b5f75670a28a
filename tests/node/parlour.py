"""Parlour: a tiny protocol whose machine does what a test says, on real nodes.

Messages are bytes. A node's machine remembers its inputs, and answers questions as the question
itself asks: `echo ...` is answered, `decline` declined, `late` answered later by the test,
everything else never.
"""

from typing import Any, TypeVar

import msgspec

from rumormill.core.config import Config
from rumormill.core.effects import Answer, Append, Ask, Decline, Effect, Effects, Outcome, Published
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.inputs import Asked, Command, Input, NotStored, Publish, Stored
from rumormill.core.machine import View
from rumormill.core.trace import RpcMeta
from rumormill.node.node import Node
from rumormill.protocols.registry import Hooks, ProtocolSpec, QuerySpec

SPEAK = "/parlour/1.0.0"
QUERY = "/parlour/query/1.0.0"
MAX_MESSAGE = 100_000

Kind = TypeVar("Kind")


class Saying(msgspec.Struct):
    """A message that is its bytes."""

    data: bytes
    cached_meta: RpcMeta | None = None
    urgent: bool = False

    @property
    def meta(self) -> RpcMeta:
        return RpcMeta(size=len(self.data))


class Manners(Config, frozen=True):
    """Nothing to set."""

    def validate(self) -> None:
        """Nothing can be wrong."""


class Guest:
    """A machine that remembers what it heard."""

    def __init__(self, own: bytes, hooks: Hooks) -> None:
        self.own = own
        self.hooks = hooks
        self.inputs: list[Input] = []
        self.published = 0

    def handle(self, item: Input, now: float, effects: Effects) -> None:
        """Take one input."""
        self.inputs.append(item)
        if isinstance(item, Asked):
            assert isinstance(item.message, Saying)
            if item.message.data.startswith(b"echo"):
                effects.append(Answer(item.number, item.message))
            elif item.message.data == b"decline":
                effects.append(Decline(item.number))
        elif isinstance(item, Publish):
            self.published += 1
            event = Event(item.topic, item.data, self.own, b"own %d" % self.published)
            effects.append(Append(event, deliver=True, barrier=(item.number, event)))
        elif isinstance(item, Stored):
            for number, event in item.barriers:  # type: ignore[misc]
                effects.append(Published(number, event, 0, "told nobody"))
        elif isinstance(item, NotStored):
            for number, _ in item.barriers:  # type: ignore[misc]
                effects.append(Published(number, None, error=item.reason))
        elif isinstance(item, Command) and isinstance(item.body, str):
            error = item.body.removeprefix("fail ") if item.body.startswith("fail") else ""
            effects.append(Outcome(item.number, None if error else item.body.upper(), error))

    def view(self) -> View:
        """Nothing to show."""
        return View()

    def heard(self, kind: type[Kind]) -> list[Kind]:
        """The inputs of one kind."""
        return [item for item in self.inputs if isinstance(item, kind)]


def _decode(data: bytes) -> Saying:
    if data.startswith(b"\xff"):
        raise DecodeError("bad-saying", "it begins with 255")
    return Saying(data)


def _decoder(_config: Any) -> Any:
    return _decode


PARLOUR = ProtocolSpec(
    name="parlour",
    protocol_ids=(SPEAK,),
    presets={"default": Manners()},
    build=lambda identity, _rng, _config, hooks: Guest(identity.peer, hooks),
    encode=lambda saying: saying.data,
    decoder=lambda config, _hooks: _decoder(config),
    max_message=lambda _config: MAX_MESSAGE,
    junk=lambda rng, _peers, _topics: Saying(rng.randbytes(8)),
    queries=QuerySpec((QUERY,), lambda saying: saying.data, _decoder, lambda _: MAX_MESSAGE),
)


def guest(node: Node) -> Guest:
    """A node's machine."""
    machine: Any = node._driver.protocol
    assert isinstance(machine, Guest)
    return machine


def act(node: Node, *effects: Effect) -> None:
    """Let a node's machine ask its runtime for something."""
    driver: Any = node._driver
    driver._carry_out(list(effects), driver.now())


def tell_where(node: Node, other: Node) -> None:
    """Let a node know where another listens, without a connection."""
    swarm: Any = node._swarm
    swarm.take_hint(other.id, other._swarm.addresses_of(other.id))


def ask(
    node: Node, other: bytes, *questions: bytes, timeout: float = 600.0, first: int = 0
) -> None:
    """Put questions to a peer, numbered from `first`."""
    act(
        node,
        *(Ask(other, first + place, Saying(data), timeout) for place, data in enumerate(questions)),
    )
