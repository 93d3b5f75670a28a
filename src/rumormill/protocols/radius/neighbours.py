"""Where neighbours come from: HyParView, or whatever connections there are.

`Links` takes every connected peer as a neighbour. It makes radius gossip run over a given graph,
the same one on which other protocols run, and manages nothing.
"""

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.overlay.hyparview.active_view import Change
from rumormill.overlay.hyparview.messages import Membership

NO_MEMBERSHIP = "no membership protocol in use"


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
