"""The trees that a peer stands in: its place in each, and when something becomes due there.

The tree of a topic hangs from the topic's author. A peer's distance to the author (exclusive or of
the SHA-256 of their ids) orders it: **a parent is strictly closer to the author than its child**,
at every edge and at every moment. Distances only shrink on the way up, so edges can never close a
cycle, in whatever order peers join, leave, move and die.

A peer is in a topic's tree while somebody needs it there: its own subscription, a publication of
its own a short while ago, or a child. When nobody does any more it says LEAVE and forgets the
topic; a relay keeps nothing of a topic that it no longer serves.

Everything that a branch waits for hangs on one timer. The way up and the children are `edges`'s;
entering and leaving is `membership`'s.
"""

from functools import lru_cache
from typing import Final

import msgspec

from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.table import distance
from rumormill.protocols.pulsarcast.context import BranchTimer

NEVER: Final = float("inf")


@lru_cache(maxsize=65536)
def gap(peer: PeerId, author: PeerId) -> int:
    """How far a peer stands from an author. Every join asks, about few peers, hence the memory."""
    return distance(peer, author)


class Child(msgspec.Struct):
    """A peer that joined below us."""

    heard: float
    """When it last said that it wants to stay."""
    silent: bool = False
    """It only publishes: nothing is sent down to it."""
    original: bool = False
    """It speaks the original's dialect: it never refreshes and takes no redirection."""
    moving: bool = False
    """It was asked to move to another parent, and is served until it goes."""
    asked_to_move: float = 0.0
    given: int = 0
    """How many others it was handed."""


class Branch(msgspec.Struct):
    """Who is above and below us in one topic's tree, and how the way up is being found."""

    topic: bytes
    """The topic's CID."""
    author: PeerId
    own_gap: int
    """Our distance to the author."""
    parent: PeerId | None = None
    candidate: PeerId | None = None
    """The peer that we are trying to get as a parent."""
    asked: bool = False
    """Whether the candidate is connected and has our JOIN."""
    previous: dict[PeerId, float] = msgspec.field(default_factory=dict)
    """Former parents that still serve us, and until when we let them."""
    children: dict[PeerId, Child] = msgspec.field(default_factory=dict)
    failed: dict[PeerId, float] = msgspec.field(default_factory=dict)
    """Peers that failed as parents, and until when they are not tried again."""
    dials: int = 0
    """How often the candidate was dialled."""
    joins: int = 0
    """How often it, or the parent since its last answer, was sent a JOIN in a row."""
    joined: float = 0.0
    """When it was sent the last of these."""
    redirects: int = 0
    """How often this attempt was handed on."""
    failures: int = 0
    """Attempts that failed in a row, for the back-off."""
    unanswered: int = 0
    """Refreshes that the parent has not answered."""
    comparing: bool = False
    """Whether the last JOIN named a range of events."""
    uncompared: int = 0
    """Comparisons in a row that the parent could not make yet."""
    rounds: int = 0
    """Exchanges with the parent in a row after which we still differed."""
    wanted: bool = False
    """We subscribe, here and now."""
    publishing_until: float = 0.0
    """We stay in the tree in order to publish until then."""
    leaving_at: float | None = None
    """We are on our way out, and serve our children until then at most."""
    rendezvous: bool = False
    """Nobody closer to the author is known to live: we stand in for it."""
    searches: int = 0
    """Searches for a closer peer that found none, in a row."""
    searching: bool = False
    """Whether a search for a closer peer is under way."""
    dialling: bool = False
    """Whether a dial to the candidate is under way."""
    told_silent: bool = False
    """What the parent was told about sending us events."""
    due: float = 0.0
    """When the branch's timer fires."""
    targets: tuple[PeerId, ...] | None = None
    """Who is sent events, the parent first; `None` when it must be found anew."""
    news: int | None = None
    """The oldest date of what was passed on and neighbours were not asked about yet."""
    news_before: int | None = None
    """The same of what they were asked about once."""
    news_up: int = 0
    """How often the parent is to be asked as well."""
    unsent: dict[bytes, None] = msgspec.field(default_factory=dict)
    """Events that arose here or below while there was no parent to take them."""

    @property
    def in_place(self) -> bool:
        """Whether events reach the root from here: by a parent, or because we are the root."""
        return self.parent is not None or self.rendezvous

    def needed(self, now: float) -> bool:
        """Whether anybody needs us in this tree."""
        return self.wanted or bool(self.children) or self.publishing_until > now

    @property
    def silent(self) -> bool:
        """Whether neither we nor anybody below wants to be sent events."""
        return not self.wanted and all(child.silent for child in self.children.values())

    @property
    def neighbours(self) -> tuple[PeerId, ...]:
        """Who is sent what is published, the parent first."""
        targets = self.targets
        if targets is None:
            above = () if self.parent is None else (self.parent,)
            below = tuple(peer for peer, child in self.children.items() if not child.silent)
            targets = self.targets = above + below
        return targets


class Trees:
    """Branches by topic."""

    def __init__(self) -> None:
        self.branches: dict[bytes, Branch] = {}

    def neighbours(self, topic: bytes) -> tuple[PeerId, ...]:
        """Our neighbours in a topic's tree, the parent first."""
        branch = self.branches.get(topic)
        return () if branch is None else branch.neighbours

    def arm(self, branch: Branch, due: float, effects: Effects) -> None:
        """Say when the branch's next step is due."""
        branch.due = due
        self.set_timer(branch, effects)

    def set_timer(self, branch: Branch, effects: Effects) -> None:
        """Wake up for the next step, or for whatever else runs out before it."""
        at = branch.due
        for until in branch.previous.values():
            at = min(at, until)
        if branch.leaving_at is not None:
            at = min(at, branch.leaving_at)
        timer = BranchTimer(branch.topic)
        effects.append(CancelTimer(timer) if at == NEVER else SetTimer(timer, at))
