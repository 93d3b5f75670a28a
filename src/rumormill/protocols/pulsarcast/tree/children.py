"""The children: who joins below us, who is handed on, and who is let go.

A peer serves at most `fan_out` children per topic. When one more joins, the child farthest from the
author, which may be the joiner itself, is handed to a sibling that is closer: so a parent remains
strictly closer than its child, the closest peers end up highest, and no peer sends more copies of
an event than its neighbours. Children are handed to the sibling that was given the fewest so far,
which keeps subtrees of like size. A child that is asked to move is served until it has left.

Children say JOIN again from time to time. Who has not done so for several intervals is dropped.
"""

from collections.abc import Iterator

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import SLIGHT, Context
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.rpc import leave
from rumormill.protocols.pulsarcast.tree.trees import (
    Branch,
    BranchHook,
    Child,
    gap,
    redirect,
    refusal,
)


class Children:
    """Takes care of children."""

    def __init__(self, context: Context, *, on_silence: BranchHook) -> None:
        """`on_silence` hears when who wants events from above may have changed."""
        self._context = context
        self._on_silence = on_silence

    def on_join(
        self, branch: Branch, peer: PeerId, *, silent: bool, now: float, effects: Effects
    ) -> bool:
        """A peer wants to be, or to remain, our child; whether it is one now."""
        child = branch.children.get(peer)
        if child is not None:
            child.heard = now
            if child.silent != silent:
                child.silent = silent
                branch.targets = None
                self._on_silence(branch, now, effects)
            return True
        original = self._context.is_original(peer)
        if not self.may_join(branch.topic, branch.author, peer, now, effects):
            return False
        if len(branch.children) >= self._context.config.max_children:
            self._refuse(branch.topic, peer, reasons.TOO_MANY_CHILDREN, 0.0, now, effects)
            return False
        if silent or original or not self._is_full(branch):
            self._add(branch, peer, silent, original, now, effects)
            return True
        return self._make_room(branch, peer, now, effects)

    def may_join(
        self, topic: bytes, author: PeerId, peer: PeerId, now: float, effects: Effects
    ) -> bool:
        """Whether a peer can be our child at all; who is not farther from the author is told so."""
        own = gap(self._context.id, author)
        if gap(peer, author) > own or self._context.is_original(peer):
            return True
        self._refuse(topic, peer, reasons.NOT_FARTHER, SLIGHT, now, effects)
        return False

    def _refuse(
        self,
        topic: bytes,
        peer: PeerId,
        reason: str,
        points: float,
        now: float,
        effects: Effects,
    ) -> None:
        self._context.send(peer, refusal(topic, reason), effects)
        self._context.refuse(peer, reason, topic, points, now, effects)

    def _is_full(self, branch: Branch) -> bool:
        return sum(1 for _ in self._settled(branch)) >= self._context.config.fan_out

    def _settled(self, branch: Branch) -> Iterator[PeerId]:
        """Children that are sent events and are not on their way elsewhere."""
        for peer, child in branch.children.items():
            if not child.silent and not child.moving:
                yield peer

    def _add(
        self,
        branch: Branch,
        peer: PeerId,
        silent: bool,
        original: bool,
        now: float,
        effects: Effects,
    ) -> None:
        branch.children[peer] = Child(now, silent, original)
        branch.targets = None
        effects.append(trace.Graft(peer, cids.text(branch.topic)))
        self._on_silence(branch, now, effects)

    def _make_room(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> bool:
        """Hand on whoever is farthest from the author, the joiner or a child."""
        movable = [one for one in self._settled(branch) if not branch.children[one].original]
        farthest = max([*movable, peer], key=lambda one: gap(one, branch.author))
        if farthest == peer:
            target = self._host_for(branch, peer)
            if target is not None:
                self._send_to(branch, peer, target, effects)
                return False
            self._add(branch, peer, False, False, now, effects)
            return True
        self._add(branch, peer, False, False, now, effects)
        self.move(branch, farthest, now, effects)
        return True

    def move(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """Ask a child to go to one of its siblings."""
        target = self._host_for(branch, peer)
        if target is not None:
            branch.children[peer].moving = True
            branch.children[peer].asked_to_move = now
            self._send_to(branch, peer, target, effects)

    def _host_for(self, branch: Branch, peer: PeerId) -> PeerId | None:
        """The child that was given the fewest others, of those closer to the author than `peer`."""
        distance = gap(peer, branch.author)
        best, fewest = None, 0
        for other in self._settled(branch):
            child = branch.children[other]
            if other == peer or child.original or gap(other, branch.author) >= distance:
                continue
            if best is None or child.given < fewest:
                best, fewest = other, child.given
        return best

    def _send_to(self, branch: Branch, peer: PeerId, target: PeerId, effects: Effects) -> None:
        child = branch.children.get(target)
        if child is not None:
            child.given += 1
        addresses = tuple(self._context.hooks.addresses(target))
        self._context.send(peer, redirect(branch.topic, target, addresses), effects)

    def send_up(self, branch: Branch, now: float, effects: Effects) -> None:
        """We are leaving: hand all children to our parent."""
        assert branch.parent is not None
        for peer, child in branch.children.items():
            if not child.original:
                child.moving = True
                child.asked_to_move = now
                self._send_to(branch, peer, branch.parent, effects)

    def remove(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """A child has left or is gone."""
        del branch.children[peer]
        branch.targets = None
        effects.append(trace.Prune(peer, cids.text(branch.topic)))
        self._on_silence(branch, now, effects)

    def upkeep(self, branch: Branch, now: float, effects: Effects) -> None:
        """Drop children that have fallen silent, and hand on those that are too many."""
        config = self._context.config
        oldest = now - config.refresh_interval * (config.missed_refreshes + 1)
        for peer, child in list(branch.children.items()):
            if child.heard < oldest and not child.original:
                if peer in self._context.connected:
                    self._context.send(peer, leave(branch.topic, now), effects)
                self.remove(branch, peer, now, effects)
            elif child.moving and child.asked_to_move < now - 2 * config.join_timeout:
                child.moving = False
        movable = [one for one in self._settled(branch) if not branch.children[one].original]
        excess = sum(1 for _ in self._settled(branch)) - config.fan_out
        movable.sort(key=lambda one: gap(one, branch.author), reverse=True)
        for peer in movable[: max(excess, 0)]:
            self.move(branch, peer, now, effects)
