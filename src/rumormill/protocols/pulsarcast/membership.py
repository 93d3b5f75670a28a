"""Which trees we stand in, and why: subscriptions, publishing for a while, children.

Subscribing needs the topic's descriptor, from what is at hand or from the DHT, because it names the
author towards whom the tree grows. The meta topic, in which new versions of a topic are announced,
is subscribed to and left along with it unless told otherwise.
"""

from collections.abc import Callable
from typing import TypeAlias

from rumormill.core import trace
from rumormill.core.effects import Effects, Learn, SetTimer
from rumormill.core.errors import DecodeError, LimitError, LocalError
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import letters, reasons
from rumormill.protocols.pulsarcast.branch import Branch
from rumormill.protocols.pulsarcast.climbing import Climbing
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.dissemination import Dissemination
from rumormill.protocols.pulsarcast.feed import Feed
from rumormill.protocols.pulsarcast.forest import NEVER, Forest
from rumormill.protocols.pulsarcast.library import Library
from rumormill.protocols.pulsarcast.nursery import Nursery
from rumormill.protocols.pulsarcast.rpc import JoinReply, JoinStatus, PeerAddress, Terms
from rumormill.protocols.pulsarcast.syncing import Syncing
from rumormill.protocols.pulsarcast.timeline import milliseconds
from rumormill.protocols.pulsarcast.timers import SubscribeTimer

_PATIENCE = 3
"""How often a parent that must first catch up itself is asked again soon; our choice."""

Ready: TypeAlias = Callable[[str, float, Effects], None]
"""Hears that there is a way to the root, or why there is not."""


def cid_of(topic: Topic) -> bytes:
    """The CID that a topic's name is; a `LocalError` where it is none."""
    try:
        return cids.parse(topic)
    except DecodeError as error:
        raise LocalError(f"{topic!r} names no topic: {error.detail}") from None


def is_cid(name: str) -> bool:
    """Whether a name is that of a topic on the network, and not what people call one."""
    try:
        cids.parse(name)
    except DecodeError:
        return False
    return True


class Membership:
    """Enters trees and leaves them."""

    def __init__(
        self,
        context: Context,
        forest: Forest,
        library: Library,
        climbing: Climbing,
        nursery: Nursery,
        events: Dissemination,
        syncing: Syncing,
    ) -> None:
        self._context = context
        self._forest = forest
        self._library = library
        self._climbing = climbing
        self._nursery = nursery
        self._events = events
        self._syncing = syncing
        self.subscriptions: dict[bytes, float] = {}
        """What the application subscribes to, and since when."""
        self.publish_only: dict[bytes, None] = {}
        self._ready: dict[bytes, list[Ready]] = {}
        self._joining: dict[bytes, dict[PeerId, Terms | None]] = {}
        self._attempts: dict[bytes, tuple[int, bool]] = {}

    # The application's wishes.

    def subscribe(
        self,
        cid: bytes,
        now: float,
        effects: Effects,
        *,
        meta: bool = True,
        ready: Ready | None = None,
    ) -> None:
        """Subscribe to a topic; `ready` hears when there is a way to its root."""
        if ready is not None:
            self._ready.setdefault(cid, []).append(ready)
        if cid in self.subscriptions:
            branch = self._forest.branches.get(cid)
            if branch is not None and branch.in_place:
                self._tell_ready(cid, "", now, effects)
            return
        if len(self.subscriptions) >= self._context.config.max_topics:
            raise LimitError("no further subscription fits (max_topics)")
        self.publish_only.pop(cid, None)
        self.subscriptions[cid] = now
        effects.append(trace.Join(cids.text(cid)))
        self._find(cid, meta, now, effects)

    def _find(self, cid: bytes, meta: bool, now: float, effects: Effects) -> None:
        """Get the descriptor of a topic that is wanted, then enter its tree."""

        def with_topic(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
            if cid not in self.subscriptions:
                return
            if found is None:
                self._look_again(cid, meta, now, effects)
                return
            if self._forest.full and cid not in self._forest.branches:
                self._roll_back(cid, reasons.BRANCHES_FULL, now, effects)
                return
            self._attempts.pop(cid, None)
            self._library.keep(found, now, effects)
            self._enter_for_good(found, now, effects)
            if meta and found.meta is not None:
                self.subscribe(found.meta, now, effects, meta=False)

        self._library.find(cid, (), with_topic, now, effects)

    def _look_again(self, cid: bytes, meta: bool, now: float, effects: Effects) -> None:
        """A topic could not be found: it may be so new that the DHT does not have it yet."""
        attempts, _ = self._attempts.get(cid, (0, meta))
        if attempts < self._context.config.subscribe_retries:
            self._attempts[cid] = (attempts + 1, meta)
            wait = self._context.config.subscribe_retry_delay * 2**attempts
            effects.append(SetTimer(SubscribeTimer(cid), now + wait))
            return
        self._roll_back(cid, reasons.NO_SUCH_TOPIC, now, effects)

    def _roll_back(self, cid: bytes, reason: str, now: float, effects: Effects) -> None:
        """A subscription cannot be: forget it, so that a later attempt is a new one."""
        self._attempts.pop(cid, None)
        del self.subscriptions[cid]
        effects.append(trace.Leave(cids.text(cid)))
        self._tell_ready(cid, reason, now, effects)

    def on_subscribe_timer(self, cid: bytes, now: float, effects: Effects) -> None:
        """Look for a topic's descriptor once more."""
        if cid in self.subscriptions and cid in self._attempts:
            self._find(cid, self._attempts[cid][1], now, effects)

    def neighbours(self, cid: bytes) -> tuple[PeerId, ...]:
        """Our neighbours in a topic's tree."""
        branch = self._forest.branches.get(cid)
        return () if branch is None else branch.neighbours

    def _enter_for_good(self, descriptor: TopicDescriptor, now: float, effects: Effects) -> None:
        branch = self.enter(descriptor, now, effects)
        self._want(branch, self._events.feeds[descriptor.cid])
        self._on_wish(branch, now, effects)

    def _want(self, branch: Branch, feed: Feed) -> None:
        """The application wants the events of a branch, from its subscription on."""
        feed.subscribed = True
        feed.horizon = min(feed.horizon, milliseconds(self.subscriptions[feed.topic]))
        feed.cover = min(feed.cover, feed.horizon)
        branch.wanted = True
        branch.leaving_at = None

    def unsubscribe(self, cid: bytes, now: float, effects: Effects, *, meta: bool = True) -> None:
        """End a subscription."""
        self.publish_only.pop(cid, None)
        if self.subscriptions.pop(cid, None) is None:
            return
        self._attempts.pop(cid, None)
        effects.append(trace.Leave(cids.text(cid)))
        self._tell_ready(cid, reasons.UNSUBSCRIBED, now, effects)
        feed, branch = self._events.feeds.get(cid), self._forest.branches.get(cid)
        if feed is not None and branch is not None:
            feed.subscribed = False
            branch.wanted = False
            self._step_out(branch, now, effects)
        descriptor = self._library.get(cid)
        if descriptor is None or descriptor.meta is None or not meta:
            return
        if not self._other_versions(descriptor):
            self.unsubscribe(descriptor.meta, now, effects, meta=False)

    def _other_versions(self, descriptor: TopicDescriptor) -> bool:
        """Whether another version of the same topic is still subscribed to."""
        versions = self._library.versions(descriptor)
        return any(version.cid in self.subscriptions for version in versions)

    def _step_out(self, branch: Branch, now: float, effects: Effects) -> None:
        """We no longer want the topic: hand our children to our parent and go, unless we are
        the root, which stays for them."""
        if not branch.needed(now):
            self._forest.dissolve(branch, now, effects)
            return
        original = any(child.original for child in branch.children.values())
        if branch.children and branch.parent is not None and not original:
            branch.leaving_at = now + self._context.config.leave_linger
            self._nursery.send_up(branch, now, effects)
            self._forest.set_timer(branch, effects)
        self._on_wish(branch, now, effects)

    def publish_for_a_while(
        self, descriptor: TopicDescriptor, now: float, effects: Effects
    ) -> Feed | None:
        """Stand in a topic's tree in order to publish; None when no further topic fits."""
        if self._forest.full and descriptor.cid not in self._forest.branches:
            return None
        branch = self.enter(descriptor, now, effects)
        until = now + self._context.config.publish_linger
        branch.publishing_until = max(branch.publishing_until, until)
        feed = self._events.feeds[descriptor.cid]
        feed.sees_own = descriptor.cid in self.publish_only
        self._on_wish(branch, now, effects)
        return feed

    def stand_by(self, cid: bytes, now: float, effects: Effects) -> None:
        """Be ready to publish in a topic, if there is such a one and it fits."""

        def with_topic(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
            if found is not None and cid in self.publish_only:
                self.publish_for_a_while(found, now, effects)

        self._library.find_patiently(cid, with_topic, now, effects)

    def when_ready(self, cid: bytes, ready: Ready, now: float, effects: Effects) -> None:
        """Call back when there is a way to the root of a tree in which we stand."""
        self._ready.setdefault(cid, []).append(ready)
        branch = self._forest.branches.get(cid)
        if branch is None:
            self._tell_ready(cid, reasons.NOT_SERVED, now, effects)
        elif branch.in_place:
            self._tell_ready(cid, "", now, effects)

    # Entering and leaving.

    def enter(self, descriptor: TopicDescriptor, now: float, effects: Effects) -> Branch:
        """Be in a topic's tree, for whatever reason; the caller has looked whether it fits."""
        cid = descriptor.cid
        branch = self._forest.branches.get(cid)
        if branch is None:
            feed = Feed(descriptor, self._context.config, milliseconds(now))
            feed.fill(self._context.archive, self._library.kept_since(cid))
            self._events.feeds[cid] = feed
            branch = self._forest.plant(cid, descriptor.author)
            if cid in self.subscriptions:
                self._want(branch, feed)
            self._forest.arm(branch, NEVER, effects)
        return branch

    def _on_wish(self, branch: Branch, now: float, effects: Effects) -> None:
        """Somebody needs the branch, or needs it otherwise than before."""
        idle = branch.candidate is None and not branch.searching and branch.due == NEVER
        if not branch.in_place and idle:
            self._climbing.seek(branch, now, effects)
        else:
            self.on_silence(branch, now, effects)

    def on_silence(self, branch: Branch, now: float, effects: Effects) -> None:
        """Tell the parent if we want events now and did not before, or the other way round."""
        if branch.parent is None or branch.candidate is not None:
            return
        if branch.silent != branch.told_silent and not self._context.is_original(branch.parent):
            self._syncing.refresh(branch, now, effects)

    def on_left(self, topic: bytes, now: float, effects: Effects) -> None:
        """We are out of a tree: nothing of it remains."""
        self._events.feeds.pop(topic, None)
        self._syncing.forget(topic, now, effects)
        if topic not in self.subscriptions:
            self._tell_ready(topic, reasons.NOT_SERVED, now, effects)

    def on_parent(self, branch: Branch, now: float, effects: Effects) -> None:
        """There is a way to the root."""
        self._tell_ready(branch.topic, "", now, effects)

    def _tell_ready(self, cid: bytes, error: str, now: float, effects: Effects) -> None:
        for ready in self._ready.pop(cid, []):
            ready(error, now, effects)

    def on_peer_gone(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A connection is gone: whatever it was in any tree, it no longer is."""
        for branch in list(self._forest.branches.values()):
            branch.previous.pop(peer, None)
            if peer in branch.children:
                self._remove_child(branch, peer, now, effects)
                if self._forest.branches.get(branch.topic) is not branch:
                    continue
            if peer == branch.parent:
                self._climbing.on_parent_gone(branch, now, effects)
            elif peer == branch.candidate and branch.asked:
                self._climbing.on_candidate_gone(branch, now, effects)

    def _remove_child(self, branch: Branch, peer: PeerId, now: float, effects: Effects) -> None:
        self._nursery.remove(branch, peer, now, effects)
        if not branch.needed(now) or (branch.leaving_at is not None and not branch.children):
            self._forest.dissolve(branch, now, effects)

    # What peers say.

    def on_join(
        self, peer: PeerId, cid: bytes, terms: Terms | None, now: float, effects: Effects
    ) -> None:
        """A peer wants to be our child; whoever sends no terms speaks the original's dialect."""
        branch = self._forest.branches.get(cid)
        if branch is not None:
            self._admit(branch, peer, terms, now, effects)
            return
        waiting = self._joining.get(cid)
        config = self._context.config
        if waiting is not None and len(waiting) < config.max_waiting:
            waiting[peer] = terms
        elif waiting is not None or self._forest.full or len(self._joining) >= config.max_waiting:
            self._turn_away(peer, cid, reasons.BRANCHES_FULL, effects)
        else:
            self._joining[cid] = {peer: terms}

            def with_topic(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
                self._with_topic(cid, found, now, effects)

            self._library.find(cid, [peer], with_topic, now, effects)

    def _with_topic(
        self, cid: bytes, found: TopicDescriptor | None, now: float, effects: Effects
    ) -> None:
        """The topic that peers want to join is known now, or is not to be had."""
        for peer, terms in self._joining.pop(cid, {}).items():
            if peer not in self._context.connected:
                continue
            if found is None or (cid not in self._forest.branches and self._forest.full):
                self._turn_away(peer, cid, reasons.NO_SUCH_TOPIC, effects)
            else:
                branch = self.enter(found, now, effects)
                self._admit(branch, peer, terms, now, effects)
                if not branch.needed(now):
                    self._forest.dissolve(branch, now, effects)
                else:
                    self._on_wish(branch, now, effects)

    def _turn_away(self, peer: PeerId, cid: bytes, reason: str, effects: Effects) -> None:
        self._context.send(peer, letters.refusal(cid, reason), effects)
        effects.append(trace.Refuse(peer, reason, cids.text(cid)))

    def _admit(
        self, branch: Branch, peer: PeerId, terms: Terms | None, now: float, effects: Effects
    ) -> None:
        silent = terms is not None and terms.silent
        taken = self._nursery.on_join(branch, peer, silent=silent, now=now, effects=effects)
        if taken and terms is not None:
            ours = self._syncing.answer_child(branch, terms, now, effects)
            self._context.send(peer, letters.accepted(branch.topic, ours), effects)

    def on_reply(
        self, peer: PeerId, reply: JoinReply, terms: Terms | None, now: float, effects: Effects
    ) -> None:
        """A peer's answer to our JOIN."""
        branch = self._forest.branches.get(reply.topic)
        if branch is None:
            if reply.status is JoinStatus.ACCEPTED:
                self._context.send(peer, letters.leave(reply.topic, now), effects)
            return
        if reply.status is JoinStatus.ACCEPTED:
            self._climbing.on_accepted(branch, peer, now, effects)
            if terms is not None:
                branch.uncompared = 0
                self._syncing.on_parent_terms(branch, peer, terms, now, effects)
            elif peer == branch.parent and branch.comparing and branch.uncompared < _PATIENCE:
                branch.uncompared += 1
                self._forest.arm(branch, now + self._context.config.sync_settle, effects)
        elif reply.status is JoinStatus.REFUSED or not reply.peers:
            self._climbing.on_refused(branch, peer, now, effects)
        else:
            target = reply.peers[0]
            if target.addresses and target.peer != self._context.id:
                effects.append(Learn(target.peer, target.addresses))
            self._climbing.on_redirected(branch, peer, target.peer, now, effects)

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
        branch = self._forest.branches.get(cid)
        if branch is None:
            return
        branch.previous.pop(peer, None)
        if peer in branch.children:
            self._remove_child(branch, peer, now, effects)
        elif peer == branch.parent:
            self._climbing.on_parent_left(branch, now, effects)
            for target in elsewhere[:1]:
                if target.addresses and target.peer != self._context.id:
                    effects.append(Learn(target.peer, target.addresses))
                self._climbing.take_hint(branch, target.peer, now, effects)
        elif peer == branch.candidate:
            self._climbing.on_refused(branch, peer, now, effects)

    # What becomes due.

    def on_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """Something is due in a tree."""
        branch = self._forest.branches.get(topic)
        if branch is None:
            return
        for peer, until in list(branch.previous.items()):
            if until <= now:
                del branch.previous[peer]
                self._context.send(peer, letters.leave(topic, now), effects)
        gone = branch.leaving_at is not None and branch.leaving_at <= now
        if gone and branch.parent is None:
            branch.leaving_at = None
            gone = False
        if gone or not branch.needed(now):
            self._forest.dissolve(branch, now, effects)
        elif branch.due <= now:
            self._nursery.upkeep(branch, now, effects)
            if branch.needed(now):
                self._climbing.step(branch, now, effects)
            else:
                self._forest.dissolve(branch, now, effects)
        else:
            self._forest.set_timer(branch, effects)

    def resume(self, now: float, effects: Effects) -> None:
        """We come back with our state: connections and timers are gone, wishes are not."""
        self._joining.clear()
        for cid in self.subscriptions:
            if cid not in self._forest.branches:
                self._attempts.setdefault(cid, (0, self._context.config.subscribe_to_meta))
                effects.append(SetTimer(SubscribeTimer(cid), now))
        for branch in list(self._forest.branches.values()):
            branch.children.clear()
            branch.previous.clear()
            branch.parent = branch.candidate = branch.targets = branch.leaving_at = None
            branch.asked = branch.dialling = branch.searching = branch.rendezvous = False
            if branch.needed(now):
                self._forest.arm(branch, NEVER, effects)
                self._climbing.seek(branch, now, effects)
            else:
                self._forest.dissolve(branch, now, effects)
