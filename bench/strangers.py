"""What 20,000 strangers' subscriptions come to at one peer of radius gossip.

    python bench/strangers.py

A peer has two neighbours. Twenty thousand peers that nobody knows subscribe to a topic to which one
honest peer subscribes too, whom the honest neighbour tells of. Either the other neighbour tells of
all of them at once, or each of them speaks for itself without being a neighbour. Counted are the
interests that were taken in, the memory that they need, and the letters that a publication makes.
"""

import random
import sys
import tracemalloc

from rumormill.core.effects import Effects, Mail, SetTimer
from rumormill.core.inputs import Input, PeerConnected, Publish, Received, Start, Stored, TimerFired
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.letters import POST
from rumormill.protocols.radius.messages import Frame, Interest, Spread, sign
from rumormill.protocols.radius.router import RADIUS, Radius
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.network import peer_id

STRANGERS = range(1000, 21_000)
ME, HONEST, LIAR, SUBSCRIBER = (peer_id(number) for number in range(4))
NOW = 1000.0


def interest_of(owner: bytes) -> Interest:
    """A subscription that its owner has signed."""
    microseconds = int(NOW * 1e6)
    interest = Interest(owner, "t", microseconds, microseconds + 30_000_000, False, ())
    sign(interest, SimulatedIdentity(owner))
    return interest


def feed(machine: Radius, event: Input) -> Effects:
    """Let a machine take an input."""
    effects: Effects = []
    machine.handle(event, NOW, effects)
    return effects


def tell(machine: Radius, peer: bytes, owners: list[bytes]) -> None:
    """Let a peer tell of subscribers, as many in a frame as it holds."""
    for begin in range(0, len(owners), 256):
        words = tuple(Spread(interest_of(owner), 1) for owner in owners[begin : begin + 256])
        feed(machine, Received(peer, Frame(words)))


def measured(by_neighbour: bool) -> list[str]:
    """One row of the table."""
    config = RadiusConfig(overlay="links", sub_hops=2, pub_hops=2, gather=0.0, serving="all")
    machine = Radius(SimulatedIdentity(ME), random.Random(1), config)
    feed(machine, Start())
    for neighbour in (HONEST, LIAR):
        feed(machine, PeerConnected(neighbour, RADIUS))
    strangers = [peer_id(number) for number in STRANGERS]
    tracemalloc.start()
    if by_neighbour:
        tell(machine, LIAR, strangers)
    else:
        for stranger in strangers:
            tell(machine, stranger, [stranger])
    taken = len(machine.subscriptions.interests)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tell(machine, HONEST, [SUBSCRIBER])
    (append,) = feed(machine, Publish("t", b"x", 1))
    turns = [feed(machine, Stored((append.barrier,)))]  # type: ignore[attr-defined]
    while any(isinstance(each, SetTimer) and each.timer == POST for each in turns[-1]):
        turns.append(feed(machine, TimerFired(POST)))
    letters = [each.peer for turn in turns for each in turn if isinstance(each, Mail)]
    who = "one neighbour, of all of them" if by_neighbour else "each stranger, of itself"
    reached = "yes" if SUBSCRIBER in letters else "no"
    return [who, f"{taken:,}", f"{held / 1e6:.1f} MB", f"{len(letters):,}", reached]


def main() -> None:
    """Print the table."""
    heads = ("who tells", "taken in", "memory", "letters of a publication", "honest one reached")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|---|---:|---:|---:|---|\n")
    for by_neighbour in (True, False):
        sys.stdout.write(f"| {' | '.join(measured(by_neighbour))} |\n")


if __name__ == "__main__":
    main()
