"""The trees that a peer stands in: entering and leaving them, and whatever becomes due.

A peer is in a topic's tree while somebody needs it there: its own subscription, a publication of
its own a short while ago, or a child. When nobody does any more it says LEAVE and forgets the
topic; a relay keeps nothing of a topic that it no longer serves.

Everything that a branch waits for hangs on one timer, `BranchTimer`. The way up is `climbing`'s,
the children are `nursery`'s.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from rumormill.core import trace
from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import letters
from rumormill.protocols.pulsarcast.branch import Branch, BranchTimer, gap
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.rpc import PeerAddress

NEVER: Final = float("inf")

BranchHook: TypeAlias = Callable[[Branch, float, Effects], None]


class Forest:
    """Branches by topic."""

    def __init__(self, context: Context, on_left: Callable[[bytes, float, Effects], None]) -> None:
        self._context = context
        self._on_left = on_left
        self.branches: dict[bytes, Branch] = {}

    @property
    def full(self) -> bool:
        """Whether no further topic fits."""
        return len(self.branches) >= self._context.config.max_topics

    def plant(self, topic: bytes, author: PeerId) -> Branch:
        """Enter a topic's tree; the caller sees to it that somebody needs us there."""
        branch = Branch(topic, author, gap(self._context.id, author))
        self.branches[topic] = branch
        return branch

    def dissolve(self, branch: Branch, now: float, effects: Effects) -> None:
        """Leave a tree: everybody who counts on us is told, and everything is forgotten."""
        del self.branches[branch.topic]
        told = dict.fromkeys(branch.children)
        told.update(branch.previous)
        if branch.parent is not None:
            told[branch.parent] = None
        if branch.candidate is not None and branch.asked:
            told[branch.candidate] = None
        elsewhere: tuple[PeerAddress, ...] = ()
        if branch.parent is not None:
            addresses = tuple(self._context.hooks.addresses(branch.parent))
            elsewhere = (PeerAddress(branch.parent, addresses),)
        for peer in told:
            if peer in self._context.connected:
                known = elsewhere if peer in branch.children else ()
                self._context.send(peer, letters.leave(branch.topic, now, known), effects)
        text = cids.text(branch.topic)
        effects += [trace.Prune(peer, text) for peer in branch.children]
        if branch.parent is not None:
            effects.append(trace.Prune(branch.parent, text))
        effects.append(CancelTimer(BranchTimer(branch.topic)))
        self._on_left(branch.topic, now, effects)

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
