"""Subscribers that have publications and nothing else: no supervisor, a ring that never changes.

`Ring` carries their letters in random order, each one eventually (the paper's model, section 1.1):
asynchronous, not FIFO, nothing lost. Tests play single letters by hand where they tell a story.
"""

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Append, ById, Effects, Load, Mail, SetTimer, Validate
from rumormill.core.event import Event
from rumormill.core.inputs import Loaded, Verdict
from rumormill.protocols.skipring.config import PublicationConfig
from rumormill.protocols.skipring.envelope import Author, Publication
from rumormill.protocols.skipring.publications import Brought, Hash, Publications
from rumormill.protocols.skipring.reads import Answer, Reads
from rumormill.sim.identity import SimulatedIdentity

TOPIC = "t"


class Log:
    """A log in memory, which answers in pieces."""

    def __init__(self, piece: int = 256) -> None:
        self.piece = piece
        self.events: dict[bytes, Event] = {}

    def read(self, load: Load) -> Loaded:
        query, most = load.query, self.piece + 1
        if isinstance(query, ById):
            found = [self.events[each] for each in query.ids if each in self.events][:most]
        else:
            stored = enumerate(islice(self.events.values(), query.offset, query.offset + most))
            found = [
                msgspec.structs.replace(event, offset=query.offset + place)
                for place, event in stored
            ]
        return Loaded(load.number, tuple(found[: self.piece]), len(found) == most)


class Subscriber:
    """One subscriber's publications, with what it delivered, refused and wants to send.

    What it asks of its log is answered at once, unless `waiting` collects it.
    """

    def __init__(
        self,
        name: int,
        config: PublicationConfig,
        validator: Callable[[Event, bytes], Verdict] | None = None,
    ) -> None:
        self.id = name.to_bytes(4, "big")
        self.config = config
        self.identity = SimulatedIdentity(self.id)
        self.author = Author(self.identity)
        self.log = Log()
        self.ring: list[bytes] = []
        self.shortcuts: list[bytes] = []
        self.delivered: list[Event] = []
        self.refusals: dict[str, int] = {}
        self.blamed: list[tuple[bytes, str]] = []
        """Who was refused, and what for; its own id where it is nobody's fault."""
        self.outbox: list[tuple[bytes, Any]] = []
        self.asked: list[Event] = []
        self.waiting: list[Append | Load | SetTimer] | None = None
        self.validator = validator
        self.chance = random.Random(name)
        self.restart()

    @property
    def neighbours(self) -> dict[bytes, None]:
        return dict.fromkeys([*self.ring, *self.shortcuts])

    def restart(self) -> None:
        """Lose everything but the log."""
        self.reads = Reads()
        self.own = Publications(
            TOPIC,
            self.identity,
            self.config,
            self.chance,
            ring=self,
            reads=self.reads,
            validator=self.validator,
        )
        self.own.delivers = True
        self.done(self.own.read)

    def publish(self, data: bytes, now: float = 1.0) -> Publication:
        publication = self.author.compose(TOPIC, data, now, self.config.key_bits)
        self.log.events[publication.id] = publication.to_event()
        self.delivered.append(publication.to_event())
        self.done(lambda effects: self.own.publish(publication, True, effects))
        return publication

    def has(self, publication: Publication) -> None:
        """Start with a publication, wherever it came from."""
        self.log.events[publication.id] = publication.to_event()
        self.own.trie.insert(publication.id)

    def timeout(self) -> None:
        self.done(lambda effects: self.own.check_neighbour(self.ring, effects))

    def receive(self, sender: bytes, message: Any) -> list[Any]:
        """Take a message and return the answers to its sender, which stay in the outbox too."""
        before = len(self.outbox)
        self.done(lambda effects: self.own.receive(sender, message, effects))
        return [message for _, message in self.outbox[before:]]

    def judge(self, key: bytes, verdict: Verdict) -> None:
        self.done(lambda effects: self.own.validated(key, verdict, effects))

    def done(self, action: Callable[[Effects], object]) -> None:
        """Carry out what an action asks for."""
        effects: Effects = []
        action(effects)
        for effect in effects:
            if isinstance(effect, Mail):
                self.outbox.append((effect.peer, effect.message))
            elif isinstance(effect, Append | Load | SetTimer):
                if self.waiting is None:
                    self.answer(effect)
                else:
                    self.waiting.append(effect)
            elif isinstance(effect, Validate):
                self.asked.append(effect.event)
            elif isinstance(effect, trace.Refuse | trace.RejectMessage):
                self.refusals[effect.reason] = self.refusals.get(effect.reason, 0) + 1
                refused = isinstance(effect, trace.Refuse)
                who = effect.peer if refused else effect.received_from
                self.blamed.append((who, effect.reason))

    def answer(self, effect: Append | Load | SetTimer) -> None:
        """Do what the runtime does about an effect that it answers."""
        if isinstance(effect, Append):
            assert isinstance(effect.barrier, Brought)
            self.log.events[effect.event.id] = effect.event
            if effect.deliver:
                self.delivered.append(effect.event)
            self.own.stored(effect.barrier.key)
        elif isinstance(effect, Load):
            self.done(lambda effects: self.loaded(self.log.read(effect), effects))
        elif isinstance(effect.timer, Hash):
            self.done(lambda effects: self.own.hash_some(0.0, effects))

    def loaded(self, event: Loaded, effects: Effects) -> None:
        """What a whole peer does with what was read."""
        read = self.reads.loaded(event, effects)
        if isinstance(read, Answer):
            self.own.send(read, event, effects)
        elif read is not None:
            self.own.restore(event.events, 0.0, effects)

    @property
    def keys(self) -> list[bytes]:
        return list(self.own.trie.keys())


class Ring:
    """A ring of subscribers and a scheduler that picks any waiting letter or timeout next."""

    def __init__(self, size: int, seed: int, config: PublicationConfig) -> None:
        self.chance = random.Random(seed)
        self.members = [Subscriber(name, config) for name in range(size)]
        self.by_id = {member.id: member for member in self.members}
        self.channels: list[tuple[bytes, bytes, Any]] = []
        self.sent = 0
        for place, member in enumerate(self.members):
            around = (self.members[place - 1], self.members[(place + 1) % size])
            member.ring = [near.id for near in dict.fromkeys(around) if near is not member]

    @property
    def edges(self) -> list[tuple[Subscriber, Subscriber]]:
        return [(member, self.by_id[near]) for member in self.members for near in member.ring]

    @property
    def potential(self) -> int:
        """Φ of section 5: over all ring edges, what the first has and the second lacks."""
        return sum(
            sum(1 for key in first.keys if key not in second.own.trie)
            for first, second in self.edges
        )

    @property
    def converged(self) -> bool:
        return len({member.own.root_hash for member in self.members}) == 1

    def _collect(self, member: Subscriber) -> None:
        self.sent += len(member.outbox)
        self.channels += [(member.id, peer, message) for peer, message in member.outbox]
        member.outbox.clear()

    def step(self) -> None:
        """Deliver one letter, whichever, or let one subscriber's timeout happen."""
        waiting = len(self.channels)
        pick = self.chance.randrange(waiting + 1 + waiting // 8)
        if pick < waiting:
            self.channels[pick], self.channels[-1] = self.channels[-1], self.channels[pick]
            sender, receiver, message = self.channels.pop()
            member = self.by_id[receiver]
            member.receive(sender, message)
        else:
            member = self.chance.choice(self.members)
            member.timeout()
        self._collect(member)

    def drain(self) -> None:
        """Deliver what is under way, and what follows from it, in random order."""
        for member in self.members:
            self._collect(member)
        while self.channels:
            self.chance.shuffle(self.channels)
            sender, receiver, message = self.channels.pop()
            self.by_id[receiver].receive(sender, message)
            self._collect(self.by_id[receiver])
