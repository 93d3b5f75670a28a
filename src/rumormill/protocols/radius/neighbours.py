"""Where neighbours come from: HyParView, or whatever connections there are.

`Links` takes every connected peer as a neighbour. It makes radius gossip run over a given graph,
the same one on which other protocols run, and manages nothing.
"""

from collections.abc import Iterable

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Effects, Outcome
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Command
from rumormill.overlay.hyparview.active_view import Change
from rumormill.overlay.hyparview.messages import Membership

NO_MEMBERSHIP = "no membership protocol in use"


class GetNeighbors(msgspec.Struct, frozen=True):
    """A command, the design's request: who are the neighbours now?"""


class Neighbors(msgspec.Struct, frozen=True):
    """Its outcome, the design's indication. The router itself does not ask: it is told of each
    change, since what it passes on must not wait for an answer."""

    peers: tuple[PeerId, ...]


def answer(command: Command, neighbours: Iterable[PeerId], effects: Effects) -> None:
    """Answer the application."""
    if isinstance(command.body, GetNeighbors):
        effects.append(Outcome(command.number, Neighbors(tuple(neighbours))))
    else:
        error = f"radius gossip has no command {type(command.body).__name__}"
        effects.append(Outcome(command.number, error=error))


class Links:
    """Every connected peer is a neighbour. It takes what `overlay.hyparview` takes."""

    size = 1.0

    def __init__(self, on_up: Change, on_down: Change) -> None:
        self._on_up = on_up
        self._on_down = on_down

    def start(self, now: float, effects: Effects) -> None:
        """Nothing is to be done."""

    def on_connected(self, peer: PeerId, outbound: bool, now: float, effects: Effects) -> None:
        """A neighbour came."""
        self._on_up(peer, now, effects)

    def on_disconnected(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A neighbour went."""
        self._on_down(peer, now, effects)

    def on_connect_failed(self, peer: PeerId, now: float, effects: Effects) -> None:
        """Nobody was asked to connect."""

    def on_timer(self, timer: object, now: float, effects: Effects) -> bool:
        """No timer was set."""
        return False

    def on_message(self, peer: PeerId, message: Membership, now: float, effects: Effects) -> None:
        """A peer uses a membership that we do not."""
        effects.append(trace.Refuse(peer, NO_MEMBERSHIP))

    def touch(self, peer: PeerId, now: float) -> None:
        """Connections are not ours to close."""
