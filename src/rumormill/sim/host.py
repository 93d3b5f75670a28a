"""A simulated peer: a machine, its timers and links, and what the network does to it.

The host is the simulator's runtime for one machine. It carries out effects in order, as a real
node would, and knows four states besides being up: down (crashed), paused (messages and timers
wait), slow (reads so many messages per second), and hostile (its machine is an attacker's).
"""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from rumormill.core import effects, inputs, trace
from rumormill.core.effects import SendAll
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Input, Stored, TimerFired
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.sim.engine import BUCKETS_PER_SECOND, Engine
from rumormill.sim.journal import Journal
from rumormill.sim.link import CLOSED, PEER_DOWN, QUEUE_FULL, Parcel, RoundTrip, Way, pack
from rumormill.sim.mail import Correspondent, Post

LOST = "lost with its process"
"""Why a publication came to nothing whose peer crashed while it was under way."""


class _Network(Protocol):
    """What a host needs of the network that it stands in."""

    engine: Engine
    post: Post
    inbox_limit: int
    round_trip: RoundTrip | None

    def connect(self, host: "Host", peer: PeerId, /) -> None: ...

    def disconnect(self, host: "Host", peer: PeerId, /) -> None: ...


class Host(Correspondent):
    """One simulated peer."""

    __slots__ = (
        "_alarms",
        "_answering",
        "_answers",
        "_commands",
        "_inbox",
        "_left",
        "_news_waiting",
        "_next_order",
        "_next_read",
        "_paused",
        "_publishing",
        "_read_interval",
        "_timers",
        "_waiting_requests",
        "_waiting_timers",
        "_wake_up",
        "asks_again",
        "build",
        "connecting",
        "disconnects",
        "journal",
        "network",
        "on_event",
        "protocols",
        "receipts",
        "validation_delay",
        "verdict",
    )

    def __init__(
        self,
        network: _Network,
        index: int,
        peer: PeerId,
        address: str,
        protocols: tuple[str, ...],
        build: Callable[[PeerId, Randomness], Machine],
    ) -> None:
        super().__init__(index, peer, network.engine, network.round_trip)
        self.network = network
        self.address = address
        self.protocols = protocols
        self.build = build
        self.connecting: dict[PeerId, None] = {}
        """Whom its machine asked to be connected to."""
        self.journal: Journal | None = None
        """Its disk, where the scenario gives it one: without it everything is safe at once, and
        nothing can be read back."""
        self._answers: list[Input] = []
        """What the journal has to say, when the effects of the present input are carried out."""
        self._answering = False
        self.on_event: Callable[[Event], None] | None = None
        self.receipts: list[effects.Published] | None = None
        self.validation_delay = 0.0
        self.verdict: Callable[[Event], inputs.Verdict] | None = None
        self._next_order = self.engine.next_order
        self._timers: dict[Hashable, tuple[float, int]] = {}
        """When each fires, and its place in the order of what happens then."""
        self._alarms: list[tuple[float, int]] = []
        """When the next ones are looked at, the soonest last."""
        self._paused = False
        self._read_interval = 0.0
        self._next_read = 0.0
        self._wake_up = 0.0
        self._inbox: list[tuple[Way | None, Any]] = []
        self._news_waiting = 0
        self.disconnects: dict[PeerId, int] = {}
        self._waiting_timers: list[Hashable] = []
        self._waiting_requests: list[Input] = []
        self._commands: dict[int, Callable[[effects.Outcome], None]] = {}
        self._publishing: dict[int, Topic] = {}
        """What the workload asked the machine to publish, as long as it has not answered."""
        self._left: list[Topic] = []
        """The topics of what machines were asked that crashed before they answered."""
        self.asks_again = False
        """Whether the next machine may still publish that."""

    # The runtime of a machine.

    def handle(self, event: Input) -> None:
        """Feed an input to the machine and carry out what it asks for."""
        self.machine.handle(event, self.engine.now, self.effects)
        if self.effects:
            self.carry_out()

    def carry_out(self) -> None:
        """Carry out the effects of one input, in order."""
        wanted, self.effects = self.effects, []
        now, record, own = self.engine.now, self.record, self.id
        for effect in wanted:
            action = _ACTIONS.get(type(effect))
            if action is None:
                record((now, own, effect))  # type: ignore[arg-type]
            else:
                action(self, effect)
        if self._answers and not self._answering:
            self._answer_machine()

    def _answer_machine(self) -> None:
        """Let the journal's answers in, one after the other, whatever they lead to.

        They do not wait behind messages, as other news do: the disk is not the network.
        """
        self._answering = True
        try:
            while self._answers and not self._paused:
                self.handle(self._answers.pop(0))
        finally:
            self._answering = False

    def _send(self, effect: effects.Send | effects.Mail) -> None:
        self._transmit((effect.peer,), effect.message)

    def _send_all(self, effect: SendAll) -> None:
        self._transmit(effect.peers, effect.message)

    def _transmit(self, peers: tuple[PeerId, ...], message: WireMessage) -> None:
        engine, record, own = self.engine, self.record, self.id
        now, buckets, links = engine.now, engine.buckets, self.links
        parcel = pack(own, message)
        meta = parcel.traced.meta
        for peer in peers:
            link = links.get(peer)
            if link is None:
                record((now, own, trace.DropRPC(peer, meta, CLOSED)))
            elif link.plain:
                record((now, own, trace.SendRPC(peer, meta)))
                arrives = now + link.latency
                bucket = buckets.get(int(arrives * BUCKETS_PER_SECOND))
                if bucket is None:
                    engine.schedule(arrives, link.arrive, parcel)
                else:
                    bucket.append((arrives, self._next_order(), link.arrive, parcel))
            elif link.accepts(now):
                record((now, own, trace.SendRPC(peer, meta)))
                link.transmit(parcel, now)
            else:
                link.drop(parcel, QUEUE_FULL)

    def _mail(self, effect: effects.Mail) -> None:
        link, route = self.links.get(effect.peer), self.routes.get(effect.peer)
        arrives = 0.0 if link is None else self.engine.now + link.latency
        if link is not None and (route is None or route.last_arrival <= arrives):
            self._send(effect)
        else:
            self.network.post.mail(self, effect)

    def _end_command(self, effect: effects.Outcome) -> None:
        then = self._commands.pop(effect.number, None)
        if then is not None:
            then(effect)

    def _append(self, effect: effects.Append) -> None:
        journal = self.journal
        if journal is None or not journal.keeps_events:
            if effect.deliver and self.on_event is not None:
                self.on_event(effect.event)
            if effect.barrier is not None:
                self._answers.append(Stored((effect.barrier,)))
        else:
            self._take_to_disk(journal, effect)

    def _keep_note(self, effect: effects.KeepNote) -> None:
        if self.journal is not None:
            self._take_to_disk(self.journal, effect)

    def _take_to_disk(self, journal: Journal, effect: effects.Append | effects.KeepNote) -> None:
        if journal.append(effect):
            if journal.commit_delay:
                at = self.engine.now + journal.commit_delay
                self.engine.schedule(at, self._on_committed, self.session)
            else:
                self._commit(journal)

    def _on_committed(self, session: int) -> None:
        """The disk has had its time, unless a crash came before."""
        if session == self.session and self.up and self.journal is not None:
            self._commit(self.journal)
            self._answer_machine()

    def _commit(self, journal: Journal) -> None:
        appends, loaded = journal.commit(self.engine.now)
        self._settle(appends, journal.trouble)
        self._answers.extend(loaded)

    def _settle(self, appends: list[effects.Append], error: str) -> None:
        """Appends are safe, or lost: hand the events out, or say that they cannot be."""
        barriers = [each.barrier for each in appends if each.barrier is not None]
        if error:
            barriers += [each.if_lost for each in appends if each.if_lost is not None]
        for each in appends:
            if each.deliver and not error and self.on_event is not None:
                self.on_event(each.event)
            elif each.deliver and error and each.barrier is None:
                event = each.event
                lost = trace.UndeliverableMessage(event.id, event.topic, error)
                self.record((self.engine.now, self.id, lost))
        if barriers:
            told = tuple(barriers)
            self._answers.append(inputs.NotStored(told, error) if error else Stored(told))

    def _load(self, effect: effects.Load) -> None:
        loaded: inputs.Loaded | None = inputs.Loaded(effect.number)
        if self.journal is not None:
            self.journal.retain(self.engine.now)
            loaded = self.journal.load(effect)
        if loaded is not None:
            self._answers.append(loaded)

    def _disregard(self, effect: effects.Disregard) -> None:
        if self.journal is not None:
            self.journal.disregard(effect)

    def _published(self, effect: effects.Published) -> None:
        if effect.number:
            self._publishing.pop(effect.number, None)
        elif self._left:  # an earlier life's; of one that failed nobody can tell which
            topic = effect.event.topic if effect.event is not None else self._left[0]
            self._left.remove(topic if topic in self._left else self._left[0])
        if self.receipts is not None:
            self.receipts.append(effect)

    def _validate(self, effect: effects.Validate) -> None:
        verdict = inputs.Verdict.ACCEPT if self.verdict is None else self.verdict(effect.event)
        answer = inputs.Validated(effect.event.id, verdict)
        self.engine.schedule(self.engine.now + self.validation_delay, self._answer, answer)

    def _answer(self, answer: inputs.Validated) -> None:
        if self.up:
            self.notify(answer)

    def _set_timer(self, effect: effects.SetTimer) -> None:
        due = self._timers[effect.timer] = max(effect.at, self.engine.now), self._next_order()
        self._set_alarm(due)

    def _set_alarm(self, due: tuple[float, int]) -> None:
        """Look at the timers then, unless that happens earlier anyway: many are moved, or
        cancelled, and would wait in the queue all the same."""
        if not self._alarms or due < self._alarms[-1]:
            self._alarms.append(due)
            self.engine.place((*due, self._sound_alarm, None))

    def _sound_alarm(self, _argument: None) -> None:
        """Fire the timer whose time this is, if there still is one, and turn to the next."""
        due = self._alarms.pop()
        timer = next((timer for timer, at in self._timers.items() if at == due), None)
        if timer is not None:
            del self._timers[timer]
            if self._paused:
                self._waiting_timers.append(timer)
            else:
                self.handle(TimerFired(timer))
        if self._timers:
            self._set_alarm(min(self._timers.values()))

    def notify(self, news: Input) -> None:
        """Tell the machine what the runtime learned: at once, or in its turn after a pause.

        News keep their place among the messages that wait, because they give those a meaning.
        """
        if self._paused or self._news_waiting:
            self._news_waiting += 1
            self._inbox.append((None, news))
        else:
            self.handle(news)

    def submit(self, request: Input) -> None:
        """Take a request of the application: at once, or when a pause is over."""
        if self._paused:
            self._waiting_requests.append(request)
        else:
            self._request(request)

    def _request(self, request: Input) -> None:
        try:
            self.handle(request)
        except LocalError as error:
            if not isinstance(request, inputs.Publish) or request.number not in self._publishing:
                raise
            self.fail_publish(self._publishing.pop(request.number), str(error))

    def publish(self, topic: Topic, data: bytes) -> None:
        """Publish for the workload; the trace says what came of it, be it nothing."""
        number = self._next_order()
        self._publishing[number] = topic
        self.submit(inputs.Publish(topic, data, number))

    def lose_publications(self, reason: str) -> None:
        """What the machine has not published by now it never will, nor what an earlier one left."""
        lost, self._publishing = self._publishing, {}
        for topic in lost.values():
            self.fail_publish(topic, reason)
        left, self._left = self._left, []
        for topic in left:
            self.fail_publish(topic, LOST)

    def fail_publish(self, topic: Topic, reason: str) -> None:
        """Trace that a wish to publish came to nothing although the peer was there."""
        self.record((self.engine.now, self.id, trace.FailPublish(topic, reason)))

    def command(self, body: object, then: Callable[[effects.Outcome], None]) -> None:
        """Put a command to the machine; `then` gets the outcome, once.

        When the peer is down, or goes down before it has an outcome, that is the outcome.
        """
        number = self._next_order()
        if self.up:
            self._commands[number] = then
            self.submit(inputs.Command(number, body))
        else:
            then(effects.Outcome(number, error=PEER_DOWN))

    # What befalls a peer.

    def start(self, machine: Machine) -> None:
        """Come up with a machine, new or old, and no connections."""
        if self.session and machine is not self.machine:  # with what the old one had begun
            if self.asks_again:
                self._left += self._publishing.values()
                self._publishing = {}
            else:
                self.lose_publications(LOST)
        self.machine = machine
        self.up = True
        self.session += 1
        self.up_since = self.engine.now
        self.record((self.engine.now, self.id, trace.NodeUp()))

    def stop(self, reason: str) -> None:
        """Go down at once; connections are the network's to close."""
        self.up = self._paused = False
        self.busy = self._read_interval > 0
        self.upload_free = self.download_free = 0.0
        self._timers.clear()
        self._waiting_timers.clear()
        for request in self._waiting_requests:
            if isinstance(request, inputs.Publish):
                self._publishing.pop(request.number, None)
                self.skip_publish(request.topic, reason)
            elif isinstance(request, inputs.Unsubscribe):
                self.record((self.engine.now, self.id, trace.Leave(request.topic)))
        self._waiting_requests.clear()
        for way, waiting in self._inbox:
            if way is not None:
                way.drop(waiting, reason, tell=False)
            elif isinstance(waiting, inputs.PeerDisconnected):
                # A machine that comes back with its state must not believe in the connection.
                self.machine.handle(waiting, self.engine.now, [])
        self._inbox.clear()
        self._news_waiting = 0
        self._give_up(reason)
        self.record((self.engine.now, self.id, trace.NodeDown(reason)))

    def _give_up(self, reason: str) -> None:
        """End what is still open between the machine and others, both of which may come back."""
        self.network.post.forget(self, reason)
        for peer in self.connecting:
            self.machine.handle(inputs.ConnectFailed(peer, reason), self.engine.now, [])
        self.connecting.clear()
        if self.journal is not None:  # what was on its way to the disk is lost
            appends, loads = self.journal.crash()
            self._settle(appends, reason)
            self._answers.extend(inputs.Loaded(load.number) for load in loads)
            while self._answers:
                self.machine.handle(self._answers.pop(0), self.engine.now, [])
        commands, self._commands = self._commands, {}
        for number, then in commands.items():
            then(effects.Outcome(number, error=reason))

    def skip_publish(self, topic: Topic, reason: str) -> None:
        """Trace that the workload's wish to publish found nobody to ask."""
        self.record((self.engine.now, self.id, trace.SkipPublish(topic, reason)))

    def pause(self) -> None:
        """Stop doing anything, without anybody being told; who is down cannot."""
        if self.up:
            self._paused = self.busy = True

    def resume(self) -> None:
        """Go on: first what came meanwhile, then the timers that are due, then requests."""
        self._paused = False
        self._answer_machine()
        self._read()
        timers, self._waiting_timers = self._waiting_timers, []
        for timer in timers:
            self.handle(TimerFired(timer))
        requests, self._waiting_requests = self._waiting_requests, []
        for request in requests:
            self._request(request)

    def read_slowly(self, messages_per_second: float) -> None:
        """Read at most so many messages per second from now on, also after a restart; 0 ends it."""
        self._read_interval = 1 / messages_per_second if messages_per_second else 0.0
        self._next_read = min(self._next_read, self.engine.now + self._read_interval)
        self.busy = True
        self._read()

    def enqueue(self, way: Way, parcel: Parcel) -> None:
        """Keep a message that arrived while the peer does not read."""
        if len(self._inbox) >= self.network.inbox_limit:
            way.drop(parcel, QUEUE_FULL)
            return
        self._inbox.append((way, parcel))
        self._read()

    def _read(self, _argument: None = None) -> None:
        """Handle waiting messages: all at once, or one now and the next when its time comes."""
        now = self.engine.now
        while not self._paused and self._inbox and now >= self._next_read:
            self._next_read = now + self._read_interval
            way, waiting = self._inbox.pop(0)
            if way is None:
                self._next_read = now
                self._news_waiting -= 1
                self.handle(waiting)
            else:
                self.busy = False
                way.arrive(waiting)
        self.busy = self._paused or self._read_interval > 0 or bool(self._inbox)
        woken_in_time = now < self._wake_up <= self._next_read
        if self._inbox and not self._paused and not woken_in_time:
            self._wake_up = self._next_read
            self.engine.schedule(self._wake_up, self._read)


_ACTIONS: dict[type, Callable[[Host, Any], object]] = {
    effects.Send: Host._send,
    SendAll: Host._send_all,
    effects.Mail: Host._mail,
    effects.Ask: lambda host, effect: host.network.post.ask(host, effect),
    effects.Answer: lambda host, effect: host.network.post.answer(host, effect),
    effects.Decline: lambda host, effect: host.network.post.decline(host, effect),
    effects.Learn: lambda _host, _effect: None,  # a simulated peer finds others by their ids
    effects.Outcome: Host._end_command,
    effects.Append: Host._append,
    effects.KeepNote: Host._keep_note,
    effects.Load: Host._load,
    effects.Disregard: Host._disregard,
    effects.Published: Host._published,
    effects.Validate: Host._validate,
    effects.SetTimer: Host._set_timer,
    effects.CancelTimer: lambda host, effect: host._timers.pop(effect.timer, None),
    effects.Connect: lambda host, effect: host.network.connect(host, effect.peer),
    effects.Disconnect: lambda host, effect: host.network.disconnect(host, effect.peer),
}
