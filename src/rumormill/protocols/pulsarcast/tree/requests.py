"""Requests to publish: how an event gets into a topic in which its author may not publish.

A request is the event without a publisher, signed by its author. It travels up the tree until it
meets a peer that may publish, which checks that the *event's author* may ask, links and signs it,
and publishes it. The answer goes back the way the request came: accepted with the event's CID,
refused with a reason, or nothing, and then the asker repeats itself until its time is up. A
request is granted when the event is on the publisher's disk: if it cannot be stored the request is
refused. Which requests became events is read off the events, which name them (`feed`): so a
repetition is answered and not published again, also by a publisher that died in between. Where the
top of the tree may not publish itself, it turns to a peer that the topic lists.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    Context,
    EventStored,
    RequestAnswered,
    RequestTimer,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import rpc
from rumormill.protocols.pulsarcast.format.additions import RequestReply, RequestStatus
from rumormill.protocols.pulsarcast.format.descriptors import EventLinking
from rumormill.protocols.pulsarcast.format.rpc import addition
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, publish_request
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination, OwnEvent
from rumormill.protocols.pulsarcast.tree.trees import Trees

_FIRST_GUESS: Final = 1.0
"""Seconds that a request takes, before one was answered. Our choice: some hops of the internet."""


class _Request(msgspec.Struct):
    """A request under way: ours, or one that we pass on."""

    signed: SignedEvent
    deadline: float
    asker: PeerId
    """Who is answered; ourselves where an operation waits for `RequestAnswered`."""
    begun: float
    sent_to: PeerId | None = None
    repeated: int = 0


class Grant(msgspec.Struct, frozen=True):
    """A request that we publish; its event is on its way to the disk."""

    request: SignedEvent
    own: OwnEvent


@dataclass(eq=False)
class Requests:
    """Requests, own and others'."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _events: Dissemination
    _open: dict[bytes, _Request] = field(default_factory=dict)
    _granting: dict[bytes, PeerId] = field(default_factory=dict)
    """Requests whose events are on their way to the disk, and who asked last."""
    _usual: float = _FIRST_GUESS
    """Seconds that our own requests take, as far as we know."""

    def __post_init__(self) -> None:
        self._context.operations.steps[Grant, EventStored] = self._on_stored

    def clear(self) -> None:
        """Forget requests under way: who asked is gone, or asks again."""
        self._open.clear()
        self._granting.clear()

    # Asking.

    def ask(
        self, signed: SignedEvent, operation: msgspec.Struct, now: float, effects: Effects
    ) -> None:
        """Ask for an event of ours to be published; the operation hears how it ended."""
        config, operations = self._context.config, self._context.operations
        if len(self._open) >= config.max_requests or not operations.wait(
            RequestAnswered, signed.cid, operation
        ):
            refusal = RequestAnswered(signed.cid, _refusal(signed, reasons.REQUESTS_FULL))
            operations.go_on(operation, refusal, now, effects)
            return
        self._begin(signed, self._context.id, now, effects)

    def _begin(self, signed: SignedEvent, asker: PeerId, now: float, effects: Effects) -> None:
        request = _Request(signed, now + self._context.config.request_timeout, asker, now)
        self._open[signed.cid] = request
        self._send(request, now, effects)

    def _send(self, request: _Request, now: float, effects: Effects) -> None:
        """Send a request one step up, and look again in a while."""
        signed = request.signed
        branch = self._trees.branches.get(signed.event.topic)
        if branch is not None and branch.parent is not None:
            request.sent_to = branch.parent
        elif branch is not None and branch.rendezvous:
            request.sent_to = self._listed_publisher(signed.event.topic)
            if request.sent_to is None:
                refusal = _refusal(signed, reasons.NO_PUBLISHER_REACHED)
                self._end(signed.cid, refusal, now, effects)
                return
        if request.sent_to is not None:
            self._context.send(request.sent_to, rpc.request_to_publish(signed, now), effects)
        # Twice the usual time, and twice as long each time, but never longer than it is said.
        wait = 2 * self._usual * 2 ** min(request.repeated, 10)
        at = min(now + min(wait, self._context.config.request_retry), request.deadline)
        effects.append(SetTimer(RequestTimer(signed.cid), at))

    def _listed_publisher(self, topic: bytes) -> PeerId | None:
        """A peer other than us that may publish, a connected one first."""
        feed = self._feeds.open.get(topic)
        listed = () if feed is None else feed.allowed or ()
        others = [peer for peer in listed if peer != self._context.id]
        return min(others, key=lambda peer: peer not in self._context.connected, default=None)

    def on_timer(self, cid: bytes, now: float, effects: Effects) -> None:
        """A request has not been answered: repeat it, unless its time is up."""
        request = self._open.get(cid)
        if request is None:
            return
        if now >= request.deadline:
            reply = _refusal(request.signed, reasons.TIMED_OUT, RequestStatus.TIMED_OUT)
            self._end(cid, reply, now, effects)
        elif request.asker == self._context.id:
            request.repeated += 1
            self._send(request, now, effects)
        else:
            effects.append(SetTimer(RequestTimer(cid), request.deadline))

    def on_parent(self, topic: bytes, now: float, effects: Effects) -> None:
        """There is a new way up: what was sent over the old one may be lost."""
        for request in list(self._open.values()):
            if request.signed.event.topic == topic:
                self._send(request, now, effects)

    def _end(self, cid: bytes, reply: RequestReply, now: float, effects: Effects) -> None:
        request = self._open.pop(cid)
        effects.append(CancelTimer(RequestTimer(cid)))
        if request.asker == self._context.id:
            self._context.operations.tell(RequestAnswered(cid, reply), now, effects)
        else:
            self._context.send(request.asker, addition(reply), effects)

    def on_reply(self, peer: PeerId, reply: RequestReply, now: float, effects: Effects) -> None:
        """An answer, from the peer that we sent the request to or from somebody else."""
        request = self._open.get(reply.request)
        if request is None or request.sent_to != peer:
            self._context.refuse(peer, reasons.NOT_ASKED_FOR, reply.topic, 0.0, now, effects)
            return
        if request.asker == self._context.id:
            self._usual += (now - request.begun - self._usual) / 8
        self._end(reply.request, reply, now, effects)

    # Being asked.

    def on_request(self, peer: PeerId, signed: SignedEvent, now: float, effects: Effects) -> None:
        """A peer asks, or passes on somebody's request."""
        cid, topic = signed.cid, signed.event.topic
        feed = self._feeds.open.get(topic)
        if topic in self._feeds.opening or (feed is not None and feed.next is not None):
            # It comes again, when we can tell what it has to be linked to.
            self._context.refuse(peer, reasons.NOT_READ, topic, 0.0, now, effects)
        elif feed is None:
            self._answer(peer, _refusal(signed, reasons.NOT_SERVED), effects)
        elif (granted := feed.granted(signed)) is not None:
            self._answer(peer, _granted(signed, granted), effects)
        elif (fault := self._fault(peer, feed, signed, now)) is not None:
            if fault not in _BLAMELESS:
                points = self._events.weight(fault, signed, now)
                self._context.refuse(peer, fault, feed.topic, points, now, effects)
            self._answer(peer, _refusal(signed, fault), effects)
        elif feed.descriptor.may_publish(self._context.id):
            parent = signed.event.parent
            if parent is None or feed.is_settled(parent) or not _is_custom(feed):
                self._grant(peer, feed, signed, effects)
            else:
                # It comes again, when we have what it is to follow.
                self._context.refuse(peer, reasons.NO_SUCH_PARENT, topic, 0.0, now, effects)
                if parent not in feed.timeline:
                    self._events.on_missing(feed, parent, peer, now, effects)
        elif (request := self._open.get(cid)) is not None:
            if request.asker != self._context.id and request.sent_to != peer:
                request.asker = peer
                self._send(request, now, effects)
        elif len(self._open) >= self._context.config.max_requests:
            self._answer(peer, _refusal(signed, reasons.REQUESTS_FULL), effects)
        else:
            self._begin(signed, peer, now, effects)

    def _grant(self, peer: PeerId, feed: Feed, request: SignedEvent, effects: Effects) -> None:
        """Publish a request; it is answered when its event is on the disk."""
        cid = request.cid
        if cid in self._granting:
            self._granting[cid] = peer
        elif len(self._granting) >= self._context.config.max_requests:
            self._answer(peer, _refusal(request, reasons.REQUESTS_FULL), effects)
        else:
            self._granting[cid] = peer
            parent = self._events.parent_of_next(feed, request.event.parent)
            signed = publish_request(request, self._context.identity, parent)
            own = self._events.append(feed, signed, effects)
            self._context.operations.hold(EventStored, signed.cid, Grant(request, own))

    def _on_stored(self, grant: Grant, news: EventStored, now: float, effects: Effects) -> None:
        request = grant.request
        peer = self._granting.pop(request.cid)
        if news.error:
            self._events.forget(grant.own)
            topic = cids.text(request.event.topic)
            effects.append(trace.Refuse(peer, news.error, topic))  # the one who asked has failed
            self._answer(peer, _refusal(request, news.error), effects)
            return
        self._events.publish(grant.own, now, effects)
        self._answer(peer, _granted(request, news.about), effects)

    def _fault(self, peer: PeerId, feed: Feed, signed: SignedEvent, now: float) -> str | None:
        """Why a request must not be granted, or None."""
        if signed.event.publisher is not None:
            return reasons.UNEXPECTED
        if feed.descriptor.request_to_publish is None:
            return reasons.REQUESTS_OFF
        if not feed.descriptor.may_request(signed.event.author):
            return reasons.REQUESTER_NOT_LISTED
        if signed.event.parent is not None and signed.author_signature and not _is_custom(feed):
            return reasons.LINKS_BY_ITSELF  # what we link would not be what its author signed
        fault = self._events.fault_of_content(signed, now)
        return fault or self._events.refusal(peer, signed)

    def _answer(self, peer: PeerId, reply: RequestReply, effects: Effects) -> None:
        if not self._context.is_original(peer):
            self._context.send(peer, addition(reply), effects)


def _is_custom(feed: Feed) -> bool:
    return feed.descriptor.event_linking is EventLinking.CUSTOM


def _granted(signed: SignedEvent, event: bytes) -> RequestReply:
    return RequestReply(signed.event.topic, signed.cid, RequestStatus.ACCEPTED, event)


def _refusal(
    signed: SignedEvent, reason: str, status: RequestStatus = RequestStatus.REFUSED
) -> RequestReply:
    return RequestReply(signed.event.topic, signed.cid, status, reason=reason)


_BLAMELESS = (reasons.REQUESTS_OFF, reasons.REQUESTER_NOT_LISTED, reasons.VALIDATION_IGNORED)
"""Refusals that an honest asker may meet."""
