"""Which trees we stand in, and why: a subscription, publishing for a while, children.

Before we enter a tree, what the log has of the topic is read (`history.feed`). Whoever needs us in
the tree waits for that; whether there is room, and whether a peer can be our child at all, is
decided before anything is read. So a JOIN costs us no more than it must, however long the history.
"""

from dataclasses import dataclass, field

import msgspec

from rumormill.core import trace
from rumormill.core.effects import CancelTimer, Effects, Learn
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    BranchTimer,
    Context,
    FeedRead,
    FeedRenewed,
    ParentSettled,
    TopicFound,
    TreeEntered,
    WayFound,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.additions import (
    JoinReply,
    JoinStatus,
    PeerAddress,
    Terms,
)
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import accepted, leave
from rumormill.protocols.pulsarcast.history.exchange import Reconciliation
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds
from rumormill.protocols.pulsarcast.history.timeline import milliseconds
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.edges import Children, ParentSearch
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics
from rumormill.protocols.pulsarcast.tree.trees import NEVER, Branch, Trees, gap

_PATIENCE = 3
"""How often a parent that must first catch up itself is asked again soon; our choice."""


class Joiners(msgspec.Struct, frozen=True):
    """Peers want to join below us in a tree in which we do not stand yet."""


class Entering(msgspec.Struct, frozen=True):
    """We enter a tree as soon as the log has been read."""


@dataclass(eq=False)
class TreeMembership:
    """Enters trees and leaves them."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _topics: KnownTopics
    _parents: ParentSearch
    _events: Dissemination
    _reconciliation: Reconciliation
    subscriptions: dict[bytes, float] = field(default_factory=dict)
    """What the application subscribes to, and since when."""
    whole: dict[bytes, None] = field(default_factory=dict)
    """Topics of which the application wants all that there ever was."""
    publish_only: dict[bytes, None] = field(default_factory=dict)
    _joining: dict[bytes, dict[PeerId, Terms | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._operations = self._context.operations
        self._children = Children(self._context, self._reconciliation)
        self._context.operations.steps |= {
            (Joiners, TopicFound): self._on_joined_topic,
            (Joiners, TreeEntered): self._on_joined_tree,
            (Entering, FeedRead): self._on_read,
        }

    # The application's part.

    def want(self, branch: Branch, feed: Feed) -> None:
        """The application wants the events of a branch, from its subscription on."""
        feed.subscribed = True
        since = milliseconds(self.subscriptions[feed.topic])
        feed.horizon = min(feed.horizon, since)
        feed.cover = min(feed.cover, since)
        feed.passed_on = min(feed.passed_on, since)
        if feed.topic in self.whole and feed.horizon:
            feed.want_all()
        branch.wanted = True
        branch.leaving_at = None

    def step_out(self, branch: Branch, now: float, effects: Effects) -> None:
        """We no longer want the topic: hand our children to our parent and go, unless we are
        the root, which stays for them."""
        if not branch.needed(now):
            self._dissolve(branch, now, effects)
            return
        original = any(child.original for child in branch.children.values())
        if branch.children and branch.parent is not None and not original:
            branch.leaving_at = now + self._context.config.leave_linger
            self._children.send_up(branch, now, effects)
            self._trees.set_timer(branch, effects)
        self.on_wish(branch, now, effects)

    def stay_to_publish(self, cid: bytes, now: float, effects: Effects) -> Feed | None:
        """Stay for a while in a tree that we have entered; None if we have left it again."""
        branch, feed = self._trees.branches.get(cid), self._feeds.open.get(cid)
        if branch is None or feed is None:
            return None
        until = now + self._context.config.publish_linger
        branch.publishing_until = max(branch.publishing_until, until)
        feed.sees_own = cid in self.publish_only
        self.on_wish(branch, now, effects)
        return feed

    def wait_for_way(
        self, cid: bytes, operation: msgspec.Struct, now: float, effects: Effects
    ) -> None:
        """Let an operation go on when there is a way to the root of a tree, or will be none."""
        branch = self._trees.branches.get(cid)
        error = ""
        if branch is None and cid not in self.subscriptions:
            error = reasons.NOT_SERVED
        elif branch is None or not branch.in_place:
            if self._operations.wait(WayFound, cid, operation):
                return
            error = reasons.WAITING_FULL
        self._operations.go_on(operation, WayFound(cid, error), now, effects)

    # Entering and leaving.

    @property
    def full(self) -> bool:
        """Whether no further topic fits."""
        entering = [topic for topic in self._feeds.opening if topic not in self._feeds.open]
        entered = len(self._trees.branches) + len(entering)
        return entered >= self._context.config.max_topics

    def enter(
        self,
        descriptor: TopicDescriptor,
        operation: msgspec.Struct,
        now: float,
        effects: Effects,
    ) -> None:
        """Be in a topic's tree, for whatever reason; the operation goes on when we are."""
        cid, error = descriptor.cid, ""
        opening = cid in self._feeds.opening
        if cid not in self._trees.branches:
            if not opening and self.full:
                error = reasons.BRANCHES_FULL
            elif not self._operations.wait(TreeEntered, cid, operation):
                error = reasons.WAITING_FULL
            else:
                if not opening:
                    self._operations.hold(FeedRead, cid, Entering())
                    self._feeds.read(descriptor, self._topics.kept_since(cid), now, effects)
                return
        self._operations.go_on(operation, TreeEntered(cid, error), now, effects)

    def _on_read(self, _: Entering, news: FeedRead, now: float, effects: Effects) -> None:
        cid = news.about
        feed = self._feeds.open[cid]
        author = feed.descriptor.author
        branch = Branch(cid, author, gap(self._context.id, author))
        self._trees.branches[cid] = branch
        if cid in self.subscriptions:
            self.want(branch, feed)
        self._trees.arm(branch, NEVER, effects)
        self._operations.tell(TreeEntered(cid), now, effects)
        if not branch.needed(now):
            self._dissolve(branch, now, effects)
            return
        self.on_wish(branch, now, effects)
        early, feed.early = feed.early, []
        for peer, signed in early:
            self._events.receive(peer, signed, None, now, effects)

    def on_wish(self, branch: Branch, now: float, effects: Effects) -> None:
        """Somebody needs the branch, or needs it otherwise than before."""
        idle = branch.candidate is None and not branch.searching and branch.due == NEVER
        if not branch.in_place and idle:
            self._parents.seek(branch, now, effects)
        else:
            self._reconciliation.tell_wish(branch, now, effects)

    def _dissolve(self, branch: Branch, now: float, effects: Effects) -> None:
        """Leave a tree: everybody who counts on us is told, and nothing of it remains."""
        topic, parent = branch.topic, branch.parent
        del self._trees.branches[topic]
        told = dict.fromkeys([*branch.children, *branch.previous])
        elsewhere: tuple[PeerAddress, ...] = ()
        if parent is not None:
            told[parent] = None
            elsewhere = (PeerAddress(parent, tuple(self._context.hooks.addresses(parent))),)
        if branch.candidate is not None and branch.asked:
            told[branch.candidate] = None
        for peer in told:
            if peer in self._context.connected:
                known = elsewhere if peer in branch.children else ()
                self._context.send(peer, leave(topic, now, known), effects)
        text = cids.text(topic)
        lost = [*branch.children] if parent is None else [*branch.children, parent]
        effects += [trace.Prune(peer, text) for peer in lost]
        effects.append(CancelTimer(BranchTimer(topic)))
        feed = self._feeds.close(topic, effects)
        for held in () if feed is None else feed.hold.held:
            self._operations.tell(ParentSettled(held), now, effects)
        self._operations.tell(FeedRenewed(topic), now, effects)
        self._reconciliation.end(topic, now, effects)
        if topic not in self.subscriptions:
            self._operations.tell(WayFound(topic, reasons.NOT_SERVED), now, effects)

    def on_peer_gone(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A connection is gone: whatever it was in any tree, it no longer is."""
        for branch in list(self._trees.branches.values()):
            branch.previous.pop(peer, None)
            if peer in branch.children:
                self._remove_child(branch, peer, now, effects)
                if self._trees.branches.get(branch.topic) is not branch:
                    continue
            self._parents.on_gone(branch, peer, now, effects)

    def _remove_child(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        self._children.remove(branch, peer, now, effects)
        if not branch.needed(now) or (branch.leaving_at is not None and not branch.children):
            self._dissolve(branch, now, effects)

    # What peers say.

    def on_join(
        self, peer: PeerId, cid: bytes, terms: Terms | None, now: float, effects: Effects
    ) -> None:
        """A peer wants to be our child; whoever sends no terms speaks the original's dialect."""
        branch = self._trees.branches.get(cid)
        if branch is not None:
            self._admit(branch, peer, terms, now, effects)
            return
        waiting = self._joining.get(cid)
        most = self._context.config.max_waiting
        if waiting is not None and (peer in waiting or len(waiting) < most):
            waiting[peer] = terms
        elif waiting is not None or len(self._joining) >= most:
            self._children.turn_away(peer, cid, reasons.WAITING_FULL, now, effects)
        elif cid not in self._feeds.opening and self.full:
            self._children.turn_away(peer, cid, reasons.BRANCHES_FULL, now, effects)
        else:
            self._joining[cid] = {peer: terms}
            self._topics.find(cid, Joiners(), now, effects, [peer])

    def _on_joined_topic(
        self, wish: Joiners, news: TopicFound, now: float, effects: Effects
    ) -> None:
        """The topic that peers want to join is known now, or is not to be had.

        Who is taken in is decided before anything is read for it.
        """
        cid, topic = news.about, news.topic
        waiting = self._joining[cid]
        for peer in list(waiting):
            if topic is None and peer in self._context.connected:
                self._children.turn_away(peer, cid, reasons.NO_SUCH_TOPIC, now, effects)
            elif (
                topic is None
                or peer not in self._context.connected
                or not self._children.may_join(cid, topic.author, peer, now, effects)
            ):
                del waiting[peer]
        if topic is None or not waiting:
            del self._joining[cid]
        else:
            self.enter(topic, wish, now, effects)

    def _on_joined_tree(self, _: Joiners, news: TreeEntered, now: float, effects: Effects) -> None:
        cid = news.about
        for peer, terms in self._joining.pop(cid, {}).items():
            if peer not in self._context.connected:
                continue
            if news.error:
                self._children.turn_away(peer, cid, news.error, now, effects)
            else:
                branch = self._trees.branches[cid]
                self._admit(branch, peer, terms, now, effects)
                if branch.needed(now):
                    self.on_wish(branch, now, effects)

    def _admit(
        self, branch: Branch, peer: PeerId, terms: Terms | None, now: float, effects: Effects
    ) -> None:
        silent = terms is not None and terms.silent
        taken = self._children.on_join(branch, peer, silent=silent, now=now, effects=effects)
        if taken and terms is not None:
            ours = self._reconciliation.answer_child(branch, terms, now, effects)
            self._context.send(peer, accepted(branch.topic, ours), effects)
            if not silent:
                self._reconciliation.look_below(branch, now, effects)

    def on_reply(
        self, peer: PeerId, reply: JoinReply, terms: Terms | None, now: float, effects: Effects
    ) -> None:
        """A peer's answer to our JOIN."""
        branch = self._trees.branches.get(reply.topic)
        if branch is None:
            if reply.status is JoinStatus.ACCEPTED:
                self._context.send(peer, leave(reply.topic, now), effects)
            return
        self._parents.on_answer(branch, peer, now)
        if reply.status is JoinStatus.ACCEPTED:
            self._parents.on_accepted(branch, peer, now, effects)
            if terms is not None:
                branch.uncompared = 0
                self._reconciliation.on_parent_terms(branch, peer, terms, now, effects)
            elif peer == branch.parent and branch.comparing and self._is_patient(branch):
                branch.uncompared += 1
                config = self._context.config
                soon = min(config.sync_settle, config.refresh_interval)
                self._trees.arm(branch, now + soon, effects)
        elif reply.status is JoinStatus.REFUSED or not reply.peers:
            self._parents.on_refused(branch, peer, now, effects)
        else:
            target = self._learn(reply.peers[0], effects)
            self._parents.on_redirected(branch, peer, target, now, effects)

    def _is_patient(self, branch: Branch) -> bool:
        """Whether our parent, which must catch up first, is asked again soon."""
        return branch.uncompared < _PATIENCE or self._feeds.open[branch.topic].catching_up

    def _learn(self, target: PeerAddress, effects: Effects) -> PeerId:
        if target.addresses and target.peer != self._context.id:
            effects.append(Learn(target.peer, target.addresses))
        return target.peer

    def on_leave(
        self,
        peer: PeerId,
        cid: bytes,
        elsewhere: tuple[PeerAddress, ...],
        now: float,
        effects: Effects,
    ) -> None:
        """A peer goes out of a tree: a child, our parent, or one that was to become it.

        `elsewhere` names the parent's own parent, which is closer to the author than we are.
        """
        branch = self._trees.branches.get(cid)
        if branch is None:
            self._joining.get(cid, {}).pop(peer, None)
            return
        branch.previous.pop(peer, None)
        if peer in branch.children:
            self._remove_child(branch, peer, now, effects)
        elif peer == branch.parent:
            self._parents.on_parent_left(branch, now, effects)
            for target in elsewhere[:1]:
                self._parents.take_hint(branch, self._learn(target, effects), now, effects)
        elif peer == branch.candidate:
            self._parents.on_refused(branch, peer, now, effects)

    # What becomes due.

    def on_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """Something is due in a tree."""
        branch = self._trees.branches.get(topic)
        if branch is None:
            return
        for peer, until in list(branch.previous.items()):
            if until <= now:
                del branch.previous[peer]
                self._context.send(peer, leave(topic, now), effects)
        gone = branch.leaving_at is not None and branch.leaving_at <= now
        if gone and branch.parent is None:
            branch.leaving_at = None
            gone = False
        if gone or not branch.needed(now):
            self._dissolve(branch, now, effects)
        elif branch.due <= now:
            self._children.upkeep(branch, now, effects)
            if branch.needed(now):
                self._parents.step(branch, now, effects)
            else:
                self._dissolve(branch, now, effects)
        else:
            self._trees.set_timer(branch, effects)

    def clear(self) -> None:
        """Forget who wants to join: he is gone."""
        self._joining.clear()
