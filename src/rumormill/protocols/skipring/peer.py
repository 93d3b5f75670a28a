"""A peer of the supervised skip ring: one machine for all its topics, as subscriber and supervisor.

A topic is one ring. For each topic that the application wants, the peer runs a subscriber
(Algorithms 1, 2 and 4) and that topic's publications (Algorithm 5); for each topic that is its to
supervise, a supervisor (Algorithm 3). One timer is everybody's TIMEOUT. All messages are letters,
which go by mail: who is whose neighbour has nothing to do with who is connected to whom.

Who publishes in a topic is a member of its ring, because there is no other way into it; with
`publish_only` the application is not told of what others publish. Who unsubscribes stays a silent
member until the supervisor permits it to go (section 4), and answers for the topic afterwards as
somebody without a label does: forget me.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

import msgspec

from rumormill.core import inputs, trace
from rumormill.core.config import nearest
from rumormill.core.effects import Effects, Mail, Outcome, Published, SetTimer
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.history import STEP
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId, Topic, check_topic
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.protocols.registry import Hooks
from rumormill.protocols.skipring import messages, reasons
from rumormill.protocols.skipring.config import MAX_ADDRESS, MAX_ADDRESSES, SkipRingConfig
from rumormill.protocols.skipring.envelope import Author, Publication
from rumormill.protocols.skipring.labels import text_of
from rumormill.protocols.skipring.publications import Brought, Hash, Publications
from rumormill.protocols.skipring.reads import Answer, Reads
from rumormill.protocols.skipring.subscriber import Subscriber
from rumormill.protocols.skipring.supervisor import Supervisor, Supervisors
from rumormill.protocols.skipring.token import TokenSubscriber, TokenSupervisor
from rumormill.protocols.unsaid import Unsaid

TIMEOUT = "timeout"
ENTERED = "entered"
"""The timer that lets newcomers subscribe at once, without waiting for their first TIMEOUT."""
NO_NEIGHBOURS = "no neighbour in the topic's ring yet"
NO_SUPERVISOR = "no supervisor is known: every peer of a skip ring must be told who supervises"
_MAX_HAND_OVERS = 8
"""A request, its configuration and the acknowledgement are three; corrupt states may ask again."""

_REQUESTS = messages.Subscribe | messages.GetConfiguration
_TO_SUPERVISOR = _REQUESTS | messages.Unsubscribe | messages.Acknowledge
_FROM_RING = (
    messages.Check
    | messages.Introduce
    | messages.Linearize
    | messages.IntroduceShortcut
    | messages.Token
)
"""What only somebody sends who knows us as a subscriber, besides letters about publications."""
_FROM_SUPERVISOR = (messages.SetData, messages.Token, messages.Introduce)
AnySupervisor: TypeAlias = Supervisor | TokenSupervisor


class SetSupervisors(msgspec.Struct, frozen=True):
    """A command: from now on these peers supervise the topics."""

    supervisors: tuple[PeerId, ...]


class LookAt(msgspec.Struct, frozen=True):
    """A command: what this peer's place in a topic's ring is, as a `RingView`."""

    topic: Topic


class RingView(msgspec.Struct, frozen=True):
    """One topic's ring as a peer sees it."""

    label: str | None
    """The peer's label as bits, once it has one."""
    ring: tuple[PeerId, ...]
    neighbours: tuple[PeerId, ...]
    """Ring neighbours and ends of shortcuts."""
    publications: int
    root_hash: bytes
    """Equal at two peers exactly when they have the same publications; empty while a peer's own
    are still being read from its log."""


class Member(msgspec.Struct, eq=False):
    """One topic's ring as this peer takes part in it."""

    subscriber: Subscriber
    publications: Publications
    hears_own: bool = False
    """The application is told of its own publications."""

    @property
    def hears(self) -> bool:
        """Whether the application is told of others' publications."""
        return self.publications.delivers


class SkipRing:
    """A peer."""

    def __init__(
        self, identity: Identity, randomness: Randomness, config: SkipRingConfig, hooks: Hooks
    ) -> None:
        config.validate()
        self.id = identity.peer
        self.members: dict[Topic, Member] = {}
        self.supervised: dict[Topic, AnySupervisor] = {}
        self.requests = 0
        """How many requests for configurations this peer got as a supervisor."""
        self.supervisors = Supervisors(bytes.fromhex(each) for each in config.supervisors)
        self._topics = dict.fromkeys(config.topics)
        self._identity = identity
        self._randomness = randomness
        self._config = config
        self._hooks = hooks
        self._author = Author(identity)
        self._unsaid: Unsaid[Publication] = Unsaid()
        self._reads = Reads()
        self._intervals = 0

    def view(self) -> View:
        """Show our neighbours in each topic's ring (see `core.machine`)."""
        members = self.members.items()
        peers = {topic: tuple(member.subscriber.neighbours) for topic, member in members}
        ring = {topic: tuple(member.subscriber.ring_neighbours) for topic, member in members}
        shortcuts = {
            topic: tuple([peer for peer in peers[topic] if peer not in ring[topic]])
            for topic in peers
        }
        heard = tuple([topic for topic, member in members if member.hears])
        labels = {
            topic: text_of(label)
            for topic, member in members
            if (label := member.subscriber.label) is not None
        }
        return View(heard, peers, {"ring": ring, "shortcut": shortcuts}, labels=labels)

    def _addresses(self, peer: PeerId) -> tuple[bytes, ...]:
        """Where a peer can be reached, as far as a message has room for it."""
        known = self._hooks.addresses(peer)
        return tuple([each for each in known if len(each) <= MAX_ADDRESS][:MAX_ADDRESSES])

    def handle(self, event: inputs.Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        start = len(effects)
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise LocalError(f"{type(event).__name__} is not an input of this protocol")
        handler(self, event, now, effects)
        if self.id in self.supervisors:
            self._hand_over(start, now, effects)

    def _hand_over(self, start: int, now: float, effects: Effects) -> None:
        """Carry letters between ourselves as a subscriber and ourselves as its supervisor."""
        for _ in range(_MAX_HAND_OVERS):
            fresh = effects[start:]
            own = [each for each in fresh if type(each) is Mail and each.peer == self.id]
            if not own:
                return
            effects[start:] = [each for each in fresh if each not in own]
            for letter in own:
                self._on_received(inputs.Received(self.id, letter.message), now, effects)

    # Time.

    def _on_start(self, event: inputs.Start, now: float, effects: Effects) -> None:
        self._author.start(now, event.latest)
        # Peers that start together shall not have all their TIMEOUTs together.
        first = now + self._config.interval * self._randomness.random()
        effects.append(SetTimer(TIMEOUT, first))
        self._reads.restart()
        for member in self.members.values():
            member.publications.read(effects)

    def _on_timer(self, event: inputs.TimerFired, now: float, effects: Effects) -> None:
        if event.timer == ENTERED:
            for member in self.members.values():
                if member.subscriber.own is None and not member.subscriber.leaving:
                    member.subscriber.subscribe(effects)
            return
        if isinstance(event.timer, Hash):
            hashed = self.members.get(event.timer.topic)
            if hashed is not None:
                hashed.publications.hash_some(now, effects)
            return
        effects.append(SetTimer(TIMEOUT, now + self._config.interval))
        self._intervals += 1
        for topic, turn in self._turns(self.supervised).items():
            supervisor = self.supervised[topic]
            supervisor.timeout(effects, configures=turn)
            if supervisor.empty:
                del self.supervised[topic]
        for topic, turn in self._turns(self.members).items():
            member = self.members[topic]
            subscriber = member.subscriber
            subscriber.timeout(effects, asks=turn)
            everybody = self._config.checks_shortcuts
            peers = list(subscriber.neighbours) if everybody else subscriber.ring_neighbours
            member.publications.check_neighbour(peers, effects)

    def _turns(self, topics: Iterable[Topic]) -> dict[Topic, bool]:
        """Whether it is a topic's turn: of each branch of the topics one has it."""
        branches: dict[str, list[Topic]] = {}
        for topic in topics:
            branches.setdefault(self._branch(topic), []).append(topic)
        return {
            topic: number == self._intervals % len(branch)
            for branch in branches.values()
            for number, topic in enumerate(branch)
        }

    def _branch(self, topic: Topic) -> str:
        """The first level of a topic's name where topics have levels; else the topic."""
        between = self._config.hierarchy
        return topic.partition(between)[0] if between else topic

    # The application.

    def _on_subscribe(self, event: inputs.Subscribe, now: float, effects: Effects) -> None:
        topic = event.topic
        member = self.members.get(topic)
        if member is None:
            member = self._enter(topic, now, effects)
        elif member.subscriber.leaving:
            member.subscriber.stay()
        elif member.hears_own and event.publish_only == member.hears:
            raise LocalError(
                f"the topic {topic!r} is either subscribed to or publish-only: unsubscribe first"
            )
        elif member.hears_own:
            return
        member.hears_own = True
        member.publications.delivers = not event.publish_only
        if member.hears:
            effects.append(trace.Join(topic))

    def _enter(self, topic: Topic, now: float, effects: Effects) -> Member:
        check_topic(topic, self._config.max_topic_length)
        if not self._is_offered(topic):
            raise LocalError(f"there is no topic {topic!r}; {nearest(topic, list(self._topics))}")
        if len(self.members) >= self._config.max_subscriptions:
            raise LimitError(
                f"cannot take part in more than {self._config.max_subscriptions} topics"
                " (max_subscriptions)"
            )
        supervisor = self.supervisors.of(topic)
        if supervisor is None:
            raise LocalError(NO_SUPERVISOR)
        kind = TokenSubscriber if self._config.supervision == "token" else Subscriber
        subscriber = kind(topic, self.id, supervisor, self._randomness, self._addresses)
        publications = Publications(
            topic,
            self._identity,
            self._config.publications,
            self._randomness,
            ring=subscriber,
            reads=self._reads,
            validator=self._hooks.validator,
        )
        publications.read(effects)
        member = self.members[topic] = Member(subscriber, publications)
        effects.append(SetTimer(ENTERED, now))
        return member

    def _is_offered(self, topic: Topic) -> bool:
        return not self._topics or topic in self._topics

    def _on_unsubscribe(self, event: inputs.Unsubscribe, now: float, effects: Effects) -> None:
        member = self.members.get(event.topic)
        if member is None or member.subscriber.leaving:
            return
        if member.hears:
            effects.append(trace.Leave(event.topic))
        member.publications.delivers = member.hears_own = False
        member.subscriber.leave(effects)

    def _on_publish(self, event: inputs.Publish, now: float, effects: Effects) -> None:
        member = self.members.get(event.topic)
        if member is None:
            member = self._enter(event.topic, now, effects)
        config = self._config.publications
        if len(event.data) > config.max_data:
            raise LimitError(
                f"{len(event.data)} bytes do not fit a publication of at most"
                f" {config.max_data} bytes (max_data)"
            )
        publication = self._author.compose(event.topic, event.data, now, config.key_bits)
        own = publication.to_event()
        heard = member.hears_own
        seqno = max(publication.seqno, publication.created * STEP)
        self._unsaid.append(event.number, own, publication, heard, seqno, effects)

    def _on_stored(self, event: inputs.Stored, now: float, effects: Effects) -> None:
        for brought, member in self._brought(event.barriers):
            member.publications.stored(brought.key)
        for own in self._unsaid.stored(inputs.Stored(_own(event.barriers))):
            topic = own.event.topic
            member = self.members.get(topic) or self._enter(topic, now, effects)
            reached = member.publications.publish(own.message, own.delivered, effects)
            note = "" if reached else NO_NEIGHBOURS
            effects.append(Published(own.number, own.event, reached, note))

    def _on_not_stored(self, event: inputs.NotStored, now: float, effects: Effects) -> None:
        for brought, member in self._brought(event.barriers):
            member.publications.not_stored(brought.key, event.reason, effects)
        self._unsaid.not_stored(inputs.NotStored(_own(event.barriers), event.reason), effects)

    def _brought(self, barriers: tuple[Hashable, ...]) -> list[tuple[Brought, Member]]:
        """Those of the barriers that are others' publications, in topics that we are still in."""
        return [
            (each, self.members[each.topic])
            for each in barriers
            if isinstance(each, Brought) and each.topic in self.members
        ]

    def _on_loaded(self, event: inputs.Loaded, now: float, effects: Effects) -> None:
        read = self._reads.loaded(event, effects)
        if isinstance(read, Answer):
            if read.topic in self.members:
                self.members[read.topic].publications.send(read, event, effects)
        elif read in self.members:
            self.members[read].publications.restore(event.events, now, effects)

    def _on_log_changed(self, event: inputs.LogChanged, now: float, effects: Effects) -> None:
        self._reads.forget_histories()
        for member in self.members.values():
            member.publications.read_anew(effects)

    def _on_command(self, event: inputs.Command, now: float, effects: Effects) -> None:
        body = event.body
        view, error = None, ""
        if isinstance(body, SetSupervisors):
            self._set_supervisors(body.supervisors, effects)
        elif not isinstance(body, LookAt):
            error = f"the skip ring has no command {type(body).__name__}"
        elif body.topic in self.members:
            view = _ring_view(self.members[body.topic])
        else:
            error = f"not in the ring of {body.topic!r}"
        effects.append(Outcome(event.number, view, error))

    def _set_supervisors(self, peers: tuple[PeerId, ...], effects: Effects) -> None:
        """Take other supervisors: topics that change hands move, all others stay as they are."""
        supervisors = self.supervisors = Supervisors(peers)
        for topic in list(self.supervised):
            if supervisors.of(topic) != self.id:
                del self.supervised[topic]
        for topic, member in self.members.items():
            supervisor = supervisors.of(topic)
            if supervisor is not None and supervisor != member.subscriber.supervisor:
                member.subscriber.serve_under(supervisor)
                member.subscriber.subscribe(effects)

    def _on_validated(self, event: inputs.Validated, now: float, effects: Effects) -> None:
        if event.verdict is inputs.Verdict.DEFER:
            raise LocalError("a deferred validation must end in accept, ignore or reject")
        for member in self.members.values():
            if member.publications.validated(event.message_id, event.verdict, effects):
                return

    # Other peers.

    def _on_received(self, event: inputs.Received, now: float, effects: Effects) -> None:
        sender = event.peer
        message: messages.Letter = event.message  # type: ignore[assignment]
        if isinstance(message, _TO_SUPERVISOR) or (
            type(message) is messages.Token and message.back
        ):
            self._supervise(sender, message, effects)
            return
        topic = message.topic
        member = self.members.get(topic)
        if member is None:
            self._decline(sender, message, effects)
        elif isinstance(message, messages.PublicationLetter):
            member.publications.receive(sender, message, effects)
        else:
            member.subscriber.receive(sender, message, effects)
            member.publications.meet_neighbours(effects)
            if member.subscriber.gone:
                del self.members[topic]
                self._reads.forget_history(topic)

    def _supervise(self, sender: PeerId, message: messages.Letter, effects: Effects) -> None:
        topic = message.topic
        if self.supervisors.of(topic) != self.id:
            effects.append(trace.Refuse(sender, reasons.NOT_RESPONSIBLE, topic))
            return
        if not self._is_offered(topic) and not isinstance(message, messages.Unsubscribe):
            effects.append(trace.Refuse(sender, reasons.NOT_OFFERED, topic))  # who goes may go
            return
        if topic not in self.supervised and len(self.supervised) >= self._config.max_topics:
            effects.append(trace.Refuse(sender, reasons.TOO_MANY_TOPICS, topic))
            return
        if isinstance(message, _REQUESTS):
            self.requests += 1
        self.supervise(topic).receive(sender, message, effects)

    def supervise(self, topic: Topic) -> AnySupervisor:
        """Our supervisor of a topic, which gets an empty database when it is new."""
        supervisor = self.supervised.get(topic)
        if supervisor is None:
            kind = TokenSupervisor if self._config.supervision == "token" else Supervisor
            supervisor = kind(topic, self._config, self._addresses)
            self.supervised[topic] = supervisor
        return supervisor

    def _decline(self, sender: PeerId, message: messages.Letter, effects: Effects) -> None:
        """Answer for a topic that we are not part of, so that nobody counts on us."""
        topic = message.topic
        effects.append(trace.Refuse(sender, reasons.NOT_SUBSCRIBED, topic))
        if isinstance(message, _FROM_RING | messages.PublicationLetter):
            effects.append(Mail(sender, messages.RemoveConnections(topic)))
        elif isinstance(message, messages.SetData) and message.label is not None:
            effects.append(Mail(sender, messages.Unsubscribe(topic)))

    def _on_send_dropped(self, event: inputs.SendDropped, now: float, effects: Effects) -> None:
        """A letter came back: its receiver may be dead."""
        if event.reason in reasons.CONGESTION:
            return
        peer = event.peer
        message: messages.Letter = event.message  # type: ignore[assignment]
        supervisor = self.supervised.get(message.topic)
        if supervisor is not None and type(message) in _FROM_SUPERVISOR:
            supervisor.unreachable(peer)
            if type(message) is messages.SetData:
                return
        for member in self.members.values():
            member.subscriber.unreachable(peer, effects)

    def _on_peer_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        effects.append(trace.AddPeer(event.peer, event.protocol))

    def _on_peer_disconnected(
        self, event: inputs.PeerDisconnected, now: float, effects: Effects
    ) -> None:
        effects.append(trace.RemovePeer(event.peer))

    def _on_connect_failed(self, event: inputs.ConnectFailed, now: float, effects: Effects) -> None:
        """Nothing here asks for a connection."""


def _own(barriers: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    """Those of the barriers that are our own publications."""
    return tuple([each for each in barriers if not isinstance(each, Brought)])


def _ring_view(member: Member) -> RingView:
    subscriber, publications = member.subscriber, member.publications
    own = subscriber.own
    return RingView(
        None if own is None else text_of(own.label),
        tuple(subscriber.ring_neighbours),
        tuple(subscriber.neighbours),
        len(publications.trie),
        publications.root_hash,
    )


_HANDLERS: dict[type[inputs.Input], Callable[..., None]] = {
    inputs.Start: SkipRing._on_start,
    inputs.TimerFired: SkipRing._on_timer,
    inputs.Subscribe: SkipRing._on_subscribe,
    inputs.Unsubscribe: SkipRing._on_unsubscribe,
    inputs.Publish: SkipRing._on_publish,
    inputs.Stored: SkipRing._on_stored,
    inputs.NotStored: SkipRing._on_not_stored,
    inputs.Loaded: SkipRing._on_loaded,
    inputs.LogChanged: SkipRing._on_log_changed,
    inputs.Command: SkipRing._on_command,
    inputs.Validated: SkipRing._on_validated,
    inputs.SendDropped: SkipRing._on_send_dropped,
    inputs.Received: SkipRing._on_received,
    inputs.PeerConnected: SkipRing._on_peer_connected,
    inputs.PeerDisconnected: SkipRing._on_peer_disconnected,
    inputs.ConnectFailed: SkipRing._on_connect_failed,
}
