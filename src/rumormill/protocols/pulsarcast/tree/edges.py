"""The edges of a tree: who joins below us and who is handed on; how we find our own parent, keep
it, and replace it.

*Children.* A peer serves at most `fan_out` children per topic. When one more joins, the child
farthest from the author, which may be the joiner itself, is handed to a sibling that is closer: so
a parent remains strictly closer than its child, the closest peers end up highest, and no peer sends
more copies of an event than its neighbours. Children are handed to the sibling that was given the
fewest so far, which keeps subtrees of like size. A child that is asked to move is served until it
has left. Children say JOIN again from time to time. Who has not done so for several intervals is
dropped.

*Parents.* The next hop is the known peer closest to the topic's author, and strictly closer than we
are; it is taken from the local routing table (thesis, section 3.3.2). A JOIN is acknowledged: the
peer takes us in, hands us on to one of its children, or refuses. When nobody closer is known, a
Kademlia lookup of the author decides; where it finds nobody closer who lives, we are the
rendezvous, the root for the time being, and look again from time to time. So a dead author's tree
heals around the closest living peer, and goes back to the author when it returns. A parent that is
lost is dialled again a few times (`connect_retries`), then replaced. A child that is asked to move
keeps its old parent until the new one has taken it in, and a moment longer, so that no event falls
between the two.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rumormill.core import trace
from rumormill.core.effects import Connect, Effects
from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.kademlia import Kademlia
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import GRAVE, SLIGHT, Context, WayFound
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.rpc import leave, redirect, refusal
from rumormill.protocols.pulsarcast.history.exchange import Reconciliation
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.requests import Requests
from rumormill.protocols.pulsarcast.tree.trees import NEVER, Branch, Child, Trees, gap


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
                self._reconciliation.tell_wish(branch, now, effects)
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
        self._reconciliation.tell_wish(branch, now, effects)
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
        self._reconciliation.tell_wish(branch, now, effects)

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


@dataclass(eq=False)
class ParentSearch:
    """Finds and keeps parents."""

    _context: Context
    _trees: Trees
    _dht: Kademlia
    _events: Dissemination
    _requests: Requests
    _reconciliation: Reconciliation
    _searching: dict[PeerId, dict[bytes, None]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget searches whose answers will not come."""
        self._searching.clear()

    # Looking for a parent.

    def seek(self, branch: Branch, now: float, effects: Effects) -> None:
        """Try the best peer that is known, or look for a better one, or stand in for the author."""
        if branch.own_gap == 0:
            self._stand_in(branch, now, effects)
            return
        branch.failed = {peer: until for peer, until in branch.failed.items() if until > now}
        known = self._dht.closest(branch.author, self._context.config.candidates)
        candidate = self._best(branch, known, now)
        if candidate is not None:
            self.try_parent(branch, candidate, now, effects)
        else:
            self._search(branch, now, effects)

    def _best(self, branch: Branch, peers: Iterable[PeerId], now: float) -> PeerId | None:
        """The peer closest to the author that is closer than we are and has not failed."""
        best, best_gap = None, branch.own_gap
        penalties = self._context.penalties
        for peer in peers:
            distance = gap(peer, branch.author)
            barred = peer in branch.failed or penalties.is_banned(peer, now)
            if distance < best_gap and peer != branch.parent and not barred:
                best, best_gap = peer, distance
        return best

    def _search(self, branch: Branch, now: float, effects: Effects) -> None:
        if branch.searching:
            return
        branch.searching = True
        waiting = self._searching.get(branch.author)
        if waiting is not None:
            waiting[branch.topic] = None
            return
        self._searching[branch.author] = {branch.topic: None}
        self._trees.arm(branch, NEVER, effects)
        self._dht.find_closest(branch.author, now, effects)

    def on_found(
        self, author: PeerId, peers: Iterable[PeerId], now: float, effects: Effects
    ) -> None:
        """The lookup of an author is over."""
        found = list(peers)
        for topic in self._searching.pop(author, {}):
            branch = self._trees.branches.get(topic)
            if branch is None or not branch.searching:
                continue
            branch.searching = False
            if branch.parent is not None or branch.candidate is not None:
                continue
            candidate = self._best(branch, found, now)
            if candidate is not None:
                self.try_parent(branch, candidate, now, effects)
            else:
                self._stand_in(branch, now, effects)

    def _stand_in(self, branch: Branch, now: float, effects: Effects) -> None:
        """Nobody closer to the author lives: be the root."""
        config = self._context.config
        fresh = not branch.rendezvous
        branch.rendezvous = True
        branch.failures = 0
        if branch.own_gap:
            wait = config.rendezvous_interval * 2 ** min(branch.searches, 10)
            branch.searches += 1
            due = now + min(wait, config.max_rendezvous_interval)
        else:
            due = now + config.refresh_interval
        self._trees.arm(branch, due, effects)
        if fresh:
            self._on_way(branch, now, effects)

    def _on_way(self, branch: Branch, now: float, effects: Effects) -> None:
        """There is a new way to the root: what waited for one goes on."""
        self._events.on_parent(branch, now, effects)
        self._requests.on_parent(branch.topic, now, effects)
        self._context.operations.tell(WayFound(branch.topic), now, effects)

    # One candidate.

    def try_parent(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """Connect to a peer and ask it to take us in."""
        self._choose(branch, peer)
        self._go_on(branch, now, effects)

    def _choose(self, branch: Branch, peer: PeerId) -> None:
        branch.candidate, branch.asked, branch.dialling = peer, False, False
        branch.dials = branch.joins = branch.searches = 0

    def _go_on(self, branch: Branch, now: float, effects: Effects) -> None:
        if branch.candidate in self._context.connected:
            self._ask(branch, now, effects)
        else:
            self._dial(branch, now, effects)

    def _dial(self, branch: Branch, now: float, effects: Effects) -> None:
        assert branch.candidate is not None
        branch.dialling = True
        branch.dials += 1
        effects.append(Connect(branch.candidate))
        self._trees.arm(branch, now + self._context.config.connect_timeout, effects)

    def _ask(self, branch: Branch, now: float, effects: Effects) -> None:
        peer = branch.candidate
        assert peer is not None
        branch.asked, branch.dialling = True, False
        self._reconciliation.join(branch, peer, 0.0, now, effects)
        if self._context.is_original(peer):
            self._adopt(branch, peer, now, effects)
        else:
            self._trees.arm(branch, now + self._count_join(branch, now), effects)

    def _count_join(self, branch: Branch, now: float) -> float:
        """A JOIN has been sent; return how long its answer is waited for."""
        branch.joined = now
        branch.joins += 1
        config = self._context.config
        if branch.joins > config.connect_retries:
            return config.join_timeout
        return self._context.patience(branch.joins - 1, config.join_timeout)

    def on_answer(self, branch: Branch, peer: PeerId, now: float) -> None:
        """A peer has answered a JOIN of ours."""
        if branch.joins == 1 and peer == (branch.candidate or branch.parent):
            self._context.answer_times.note(now - branch.joined)

    def on_alive(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer is connected, is a contact of the DHT now, or has answered a request: ask it where
        it was being dialled, or where it is closer than we are.

        Whatever it failed in before, it lives now. An author that returns looks for itself in the
        DHT and asks whoever is closest to it, which is who stands in for it: so it is found at
        once.
        """
        connected = peer in self._context.connected
        for branch in list(self._trees.branches.values()):
            branch.failed.pop(peer, None)
            if branch.candidate == peer and connected and not branch.asked:
                self._ask(branch, now, effects)
            elif (
                branch.rendezvous
                and branch.candidate is None
                and gap(peer, branch.author) < branch.own_gap
            ):
                self.try_parent(branch, peer, now, effects)

    def on_connect_failed(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer could not be reached."""
        for branch in list(self._trees.branches.values()):
            if branch.candidate == peer and branch.dialling:
                self._dial_failed(branch, now, effects)

    def _dial_failed(self, branch: Branch, now: float, effects: Effects) -> None:
        branch.dialling = False
        if branch.dials > self._context.config.connect_retries:
            self._give_up(branch, now, effects)
        else:
            self._trees.arm(branch, now + self._context.backoff(branch.dials), effects)

    def _give_up(self, branch: Branch, now: float, effects: Effects) -> None:
        """The candidate is no parent for us: stay with the one we have, or try another later."""
        peer = branch.candidate
        assert peer is not None
        if branch.asked and peer in self._context.connected:
            # It may have taken us in although its answer has not come.
            self._context.send(peer, leave(branch.topic, now), effects)
        branch.failed[peer] = now + self._context.config.avoid_failed
        branch.candidate = None
        branch.asked = branch.dialling = False
        branch.redirects = 0
        if branch.parent is not None:
            self._trees.arm(branch, now + self._context.config.refresh_interval, effects)
            return
        branch.failures += 1
        self._trees.arm(branch, now + self._context.backoff(branch.failures), effects)

    # What the peer above says.

    def on_accepted(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer takes us in, or still has us."""
        if peer == branch.candidate:
            self._adopt(branch, peer, now, effects)
        elif peer == branch.parent:
            branch.unanswered = branch.joins = 0
            if branch.candidate is None:
                self._trees.arm(branch, now + self._context.config.refresh_interval, effects)
        elif peer not in branch.previous:
            self._context.send(peer, leave(branch.topic, now), effects)

    def _adopt(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        config = self._context.config
        former = branch.parent
        if former is not None and former in self._context.connected:
            branch.previous[former] = now + config.move_linger
        branch.previous.pop(peer, None)
        branch.parent = peer
        branch.candidate = None
        branch.asked = branch.rendezvous = False
        branch.failures = branch.redirects = branch.unanswered = branch.joins = 0
        branch.uncompared = branch.rounds = 0
        branch.targets = None
        text = cids.text(branch.topic)
        if former is not None:
            effects.append(trace.Prune(former, text))
        effects.append(trace.Graft(peer, text))
        # What fell between two parents is older than this when it is settled.
        settled = min(config.sync_settle + config.move_linger, config.refresh_interval)
        self._trees.arm(branch, now + settled, effects)
        self._on_way(branch, now, effects)
        self._reconciliation.tell_wish(branch, now, effects)

    def on_redirected(
        self, branch: Branch, peer: PeerId, target: PeerId, now: float, effects: Effects
    ) -> None:
        """A peer hands us on: the one that we asked, or our parent, which has too many."""
        if peer == branch.candidate:
            branch.redirects += 1
        elif peer != branch.parent:
            self._context.refuse(peer, reasons.NOT_ASKED_FOR, branch.topic, 0.0, now, effects)
            return
        elif branch.candidate is not None:
            return
        farther = gap(target, branch.author) >= branch.own_gap
        if farther:
            self._context.refuse(peer, reasons.BAD_REDIRECT, branch.topic, GRAVE, now, effects)
        useless = farther or target in branch.failed or target == branch.parent
        if not useless and branch.redirects <= self._context.config.max_redirects:
            self.try_parent(branch, target, now, effects)
        elif peer == branch.candidate:
            branch.asked = False
            self._give_up(branch, now, effects)

    def on_refused(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer does not take us in, or no longer has us."""
        if peer == branch.candidate:
            branch.asked = False
            self._give_up(branch, now, effects)
        elif peer == branch.parent:
            self.on_parent_left(branch, now, effects)

    # Losing a parent.

    def on_parent_left(self, branch: Branch, now: float, effects: Effects) -> None:
        """The parent is no longer there for us, but lives: find another."""
        parent = self._orphan(branch, effects)
        branch.failed[parent] = now + self._context.config.avoid_failed
        if branch.candidate is None:
            self._trees.arm(branch, now + self._context.backoff(0) / 4, effects)

    def take_hint(self, branch: Branch, target: PeerId, now: float, effects: Effects) -> None:
        """A parent that left names another: try it first, if it can be one."""
        if branch.candidate is None and self._best(branch, (target,), now) is not None:
            self.try_parent(branch, target, now, effects)

    def on_gone(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        """A connection is gone: a parent is dialled again before another is chosen."""
        if peer == branch.parent:
            self._orphan(branch, effects)
            if branch.candidate is None:
                self._choose(branch, peer)
                self._trees.arm(branch, now + self._context.backoff(0) / 4, effects)
        elif peer == branch.candidate and branch.asked:
            branch.asked = False
            self._dial_failed(branch, now, effects)

    def _orphan(self, branch: Branch, effects: Effects) -> PeerId:
        parent = branch.parent
        assert parent is not None
        branch.parent = None
        branch.targets = None
        branch.unanswered = branch.joins = 0
        effects.append(trace.Prune(parent, cids.text(branch.topic)))
        return parent

    # What becomes due.

    def step(self, branch: Branch, now: float, effects: Effects) -> None:
        """The branch's time has come: repeat, refresh, or look again."""
        config = self._context.config
        if branch.candidate is not None:
            if branch.asked and branch.joins <= config.connect_retries:
                self._ask(branch, now, effects)
            elif branch.asked:
                self._give_up(branch, now, effects)
            elif branch.dialling:
                self._dial_failed(branch, now, effects)
            else:
                self._go_on(branch, now, effects)
        elif branch.parent is not None:
            self._renew(branch, branch.parent, now, effects)
        else:
            self.seek(branch, now, effects)

    def _renew(self, branch: Branch, parent: PeerId, now: float, effects: Effects) -> None:
        """Renew the edge to the parent. A JOIN without an answer is soon sent again, a few times;
        then the edge has missed a renewal."""
        config = self._context.config
        wait = config.refresh_interval
        if not self._context.is_original(parent):
            if branch.joins > config.connect_retries:
                branch.joins = 0
            if not branch.joins:
                if branch.unanswered >= config.missed_refreshes:
                    self._context.send(parent, leave(branch.topic, now), effects)
                    self.on_parent_left(branch, now, effects)
                    return
                branch.unanswered += 1
            soon = self._count_join(branch, now)
            self._reconciliation.refresh(branch, now, effects)
            if branch.joins <= config.connect_retries:
                wait = min(wait, soon)
        self._trees.arm(branch, now + wait, effects)
