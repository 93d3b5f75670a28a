"""Worlds that begin in a legitimate state, made by the judge's Definition 2."""

import random

from skipring_definition import skip_ring
from skipring_world import EVEN, NO_DETECTOR, Pace, World, make_peers

from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.labels import length_of, parse_label
from rumormill.protocols.skipring.messages import Reference


def legitimate(
    n: int, seed: int = 0, pace: Pace = EVEN, config: SkipRingConfig = NO_DETECTOR
) -> World:
    """A world of n subscribers in the legitimate state, with nothing in the channels."""
    rng = random.Random(seed)
    peers = make_peers(n, rng)
    world = World(peers, rng, pace, config)
    ring = skip_ring(n)
    at = dict(zip(sorted(ring, key=lambda text: (len(text), text)), peers, strict=True))
    for text, links in ring.items():
        subscriber = world.subscribers[at[text]]
        label = parse_label(text)
        world.supervisor.record(label, at[text])
        subscriber.own = Reference(label, at[text])
        for name in ("left", "right", "ring"):
            other = getattr(links, name)
            if other is not None:
                setattr(subscriber, name, Reference(parse_label(other), at[other]))
        direct = {links.left, links.right, links.ring}
        for other in links.everybody:
            if other not in direct or _is_shortcut_too(text, other, links.right, links.left):
                subscriber.shortcuts[parse_label(other)] = at[other]
    return world


def _is_shortcut_too(text: str, other: str, right: str | None, left: str | None) -> bool:
    """Whether a ring neighbour is a shortcut as well: 0 and 1 are neighbours on both sides."""
    if {text, other} != {"0", "1"}:
        return False
    across = (right if text == "0" else left) or other
    return across != other and length_of(parse_label(across)) > 1
