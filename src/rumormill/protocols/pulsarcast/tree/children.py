"""The children: who joins below us, who is handed on, and who is let go.

A peer serves at most `fan_out` children per topic. When one more joins, the child farthest from the
author, which may be the joiner itself, is handed to a sibling that is closer: so a parent remains
strictly closer than its child, the closest peers end up highest, and no peer sends more copies of
an event than its neighbours. Children are handed to the sibling that was given the fewest so far,
which keeps subtrees of like size. A child that is asked to move is served until it has left.

Children say JOIN again from time to time. Who has not done so for several intervals is dropped.
"""

from dataclasses import dataclass

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import SLIGHT, Context
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.rpc import leave, redirect, refusal
from rumormill.protocols.pulsarcast.history.reconciliation import Reconciliation
from rumormill.protocols.pulsarcast.tree.trees import Branch, Child, gap


@dataclass(eq=False)
class Children:
    """Takes care of children."""

    _context: Context
    _reconciliation: Reconciliation

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
                self._reconciliation.tell_silence(branch, now, effects)
            return True
        config, original = self._context.config, self._context.is_original(peer)
        if not self.may_join(branch.topic, branch.author, peer, now, effects):
            return False
        if len(branch.children) >= config.max_children:
            self.turn_away(peer, branch.topic, reasons.TOO_MANY_CHILDREN, now, effects)
            return False
        full = not silent and not original and len(_settled(branch)) >= config.fan_out
        farthest = max([*_movable(branch), peer], key=lambda one: gap(one, branch.author))
        if full and farthest == peer and (host := _host_for(branch, peer)) is not None:
            self._send_to(branch, peer, host, effects)
            return False
        branch.children[peer] = Child(now, silent, original)
        branch.targets = None
        effects.append(trace.Graft(peer, cids.text(branch.topic)))
        self._reconciliation.tell_silence(branch, now, effects)
        if full and farthest != peer:
            self._move(branch, farthest, now, effects)
        return True

    def may_join(
        self, topic: bytes, author: PeerId, peer: PeerId, now: float, effects: Effects
    ) -> bool:
        """Whether a peer can be our child at all; who is not farther from the author is told so."""
        own = gap(self._context.id, author)
        if gap(peer, author) > own or self._context.is_original(peer):
            return True
        self.turn_away(peer, topic, reasons.NOT_FARTHER, now, effects, points=SLIGHT)
        return False

    def turn_away(
        self,
        peer: PeerId,
        topic: bytes,
        reason: str,
        now: float,
        effects: Effects,
        *,
        points: float = 0.0,
    ) -> None:
        """Do not take a peer in, and tell it why."""
        self._context.send(peer, refusal(topic, reason), effects)
        self._context.refuse(peer, reason, topic, points, now, effects)

    def _move(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """Ask a child to go to one of its siblings."""
        target = _host_for(branch, peer)
        if target is not None:
            branch.children[peer].moving = True
            branch.children[peer].asked_to_move = now
            self._send_to(branch, peer, target, effects)

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
        self._reconciliation.tell_silence(branch, now, effects)

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
        excess = len(_settled(branch)) - config.fan_out
        movable = sorted(_movable(branch), key=lambda one: gap(one, branch.author), reverse=True)
        for peer in movable[: max(excess, 0)]:
            self._move(branch, peer, now, effects)


def _settled(branch: Branch) -> list[PeerId]:
    """Children that are sent events and are not on their way elsewhere."""
    return [
        peer for peer, child in branch.children.items() if not child.silent and not child.moving
    ]


def _movable(branch: Branch) -> list[PeerId]:
    return [peer for peer in _settled(branch) if not branch.children[peer].original]


def _host_for(branch: Branch, peer: PeerId) -> PeerId | None:
    """The child that was given the fewest others, of those closer to the author than `peer`."""
    distance = gap(peer, branch.author)
    hosts = [other for other in _movable(branch) if gap(other, branch.author) < distance]
    return min(hosts, key=lambda other: branch.children[other].given, default=None)
