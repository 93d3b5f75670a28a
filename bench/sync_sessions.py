"""Sessions of sync between two logs on the disk: bytes, questions, processor time, memory.

Both sides run the machine that a node runs (`sync.peer`, under GossipSub with signed events), each
over a log of its own; between them every message is encoded, counted with its length prefix, and
decoded. What a session costs "without the events" is all of that but the events in it.

The two logs begin as copies. Then the answerer gets events of old dates that the asker has not:
one, some scattered, one stretch. Each session brings them over, so the next begins with equal logs.
"""

import heapq
import random
import shutil
import time
import tracemalloc
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import msgspec

from rumormill.core import effects, inputs
from rumormill.core.event import Event
from rumormill.core.history import BEGIN, END, HistoryQuery
from rumormill.core.ids import Topic
from rumormill.log import EventLog
from rumormill.node.identity import NodeIdentity
from rumormill.protocols.pubsub.codec import proof_of, sign_message
from rumormill.protocols.pubsub.messages import Message
from rumormill.protocols.registry import NO_HOOKS, protocol
from rumormill.sync import peer as sync_peer
from rumormill.sync.config import SyncConfig
from rumormill.sync.messages import Events, Fetch, SyncMessage, decode_sync, encode_sync
from rumormill.sync.peer import SyncedPeer
from rumormill.sync.wishes import SyncNow, SyncReport
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey

TOPIC = "bench"
OTHERS = tuple(f"bench {number}" for number in range(1, 100))
PAYLOAD = bytes(200)
BATCH = 1000
EVERY = 10_000_000
"""Nanoseconds between two events."""
AUTHOR = NodeIdentity(PrivateKey(bytes(32)))


def signed(topic: Topic, nanoseconds: int) -> Event:
    """An event of a date, as GossipSub keeps it."""
    message = Message(topic, PAYLOAD, AUTHOR.peer, nanoseconds.to_bytes(8, "big"))
    sign_message(message, AUTHOR.sign, AUTHOR.public_key)
    event_id = message.author + message.seqno
    return Event(topic, PAYLOAD, AUTHOR.peer, event_id, (), None, proof_of(message))


def append_all(log: EventLog, events: Iterable[Event]) -> None:
    """Append events, in parts, and index them."""
    batch: list[Event] = []
    for event in events:
        batch.append(msgspec.structs.replace(event, received=time.time(), protocol="gossipsub"))
        if len(batch) == BATCH:
            log.append(batch).result()
            batch = []
    log.append(batch).result()
    with log.histories():
        pass


def build(home: Path, events: int) -> None:
    """A log of so many events in one topic, the last an hour ago, and a few in 99 others.

    In the middle a stretch of time is left free, for a tenth as many.
    """
    start = int(time.time() - 3600) * 10**9 - (events + events // 10) * EVERY
    with EventLog(home) as log:
        for topic in OTHERS:
            append_all(log, [signed(topic, start + number * EVERY) for number in range(10)])
        dates = (
            start + (number + (events // 10 if number >= events // 2 else 0)) * EVERY
            for number in range(events)
        )
        append_all(log, (signed(TOPIC, date) for date in dates))


class Cost(msgspec.Struct):
    """What a session took."""

    found: int = 0
    """Bytes both ways up to the first fetch, with it."""
    control: int = 0
    """Bytes both ways without events."""
    events: int = 0
    asked: int = 0
    fetches: int = 0
    asker: float = 0.0
    answerer: float = 0.0
    """Seconds of the processor for all but fetching."""
    waited: float = 0.0
    """Seconds that the asker waited for its next try."""
    questions: list[SyncMessage] = []
    peak: int = 0
    """Bytes that the answerer had at most for one question."""


class Side:
    """A machine, its log, its timers, and what is to be done next."""

    def __init__(self, home: Path, number: int) -> None:
        identity = NodeIdentity(PrivateKey(bytes((*bytes(31), number))))
        spec = protocol("gossipsub")
        routing = spec.build(identity, random.Random(number), spec.configure(), NO_HOOKS)
        self.id = identity.peer
        check = spec.check_kept(routing)
        self.machine = SyncedPeer(routing, random.Random(number), SyncConfig(), check)
        self.log = EventLog(home)
        self.timers: list[tuple[float, int, object]] = []
        self.appended: list[Event] = []
        self.used = 0.0

    def feed(self, event: inputs.Input, now: float) -> list[effects.Effect]:
        """Give the machine an input; return what concerns the other side, or the bench."""
        began = time.process_time()
        wanted: effects.Effects = []
        self.machine.handle(event, now, wanted)
        handed: list[effects.Effect] = []
        for effect in wanted:
            if isinstance(effect, effects.Append):
                self.appended.append(msgspec.structs.replace(effect.event, received=now))
            elif isinstance(effect, effects.Load):
                handed += self.feed(self._loaded(effect), now)
            elif isinstance(effect, effects.SetTimer):
                heapq.heappush(self.timers, (effect.at, next(_NUMBERS), effect.timer))
            elif isinstance(effect, effects.Ask | effects.Answer | effects.Outcome):
                handed.append(effect)
        self.used += time.process_time() - began
        return handed

    def _loaded(self, load: effects.Load) -> inputs.Loaded:
        if self.appended:
            self.log.append(self.appended).result()
            self.appended = []
        if isinstance(load.query, effects.Computation):
            return inputs.Loaded(load.number, answer=load.query.work_out())
        if not isinstance(load.query, HistoryQuery):
            return inputs.Loaded(load.number)
        with self.log.histories() as histories:
            return inputs.Loaded(load.number, answer=load.query.work_out(histories))

    def total(self) -> object:
        """Everything there is of the topic, as one sum."""
        with self.log.histories() as histories:
            history = histories.history(TOPIC)
            return history and history.summary(BEGIN, END)


_NUMBERS = count()


class Pair:
    """The asker and the answerer, and a clock that leaps over times when nothing happens."""

    def __init__(self, asker: Path, answerer: Path) -> None:
        self.asker, self.answerer = Side(asker, 1), Side(answerer, 2)
        self._leapt = 0.0
        for one, other in ((self.asker, self.answerer), (self.answerer, self.asker)):
            one.feed(inputs.Start(), self.now())
            one.feed(inputs.PeerConnected(other.id, "/meshsub/1.2.0"), self.now())
        for topic in (TOPIC, *OTHERS):
            self.asker.feed(inputs.Subscribe(topic, since=0.0), self.now())

    def now(self) -> float:
        return time.time() + self._leapt

    def close(self) -> None:
        self.asker.log.close()
        self.answerer.log.close()

    def reconcile(self, *topics: Topic) -> tuple[Cost, SyncReport]:
        """Run sessions until one is over that the asker's application has wished for."""
        self._leapt += 3600  # what budgets and pauses remember of the last one
        self.asker.used = self.answerer.used = 0.0
        cost = Cost()
        number = next(_NUMBERS)
        waiting = deque(self.asker.feed(inputs.Command(number, SyncNow(topics)), self.now()))
        while True:
            if not waiting:
                waiting += self._next_timer(cost)
                continue
            effect = waiting.popleft()
            if isinstance(effect, effects.Outcome) and effect.number == number:
                assert isinstance(effect.result, SyncReport)
                cost.asker += self.asker.used
                cost.answerer += self.answerer.used
                return cost, effect.result
            if isinstance(effect, effects.Ask) and not effect.one_way:
                waiting += self._ask(effect, cost)

    def _next_timer(self, cost: Cost) -> list[effects.Effect]:
        at, _, timer = heapq.heappop(self.asker.timers)
        waits = max(0.0, at - self.now())
        self._leapt += waits
        cost.waited += waits
        return self.asker.feed(inputs.TimerFired(timer), self.now())

    def _ask(self, ask: effects.Ask, cost: Cost) -> list[effects.Effect]:
        """Put a question, and take the answer."""
        before = self.asker.used, self.answerer.used
        question = self._carried(ask.message, cost)
        is_fetch = isinstance(question.body, Fetch)
        cost.asked += 1
        cost.fetches += is_fetch
        if cost.fetches == (1 if is_fetch else 0):
            cost.found = cost.control
        cost.questions.append(question)
        handed = self.answerer.feed(inputs.Asked(self.asker.id, ask.number, question), self.now())
        answers = [each for each in handed if isinstance(each, effects.Answer)]
        answered: inputs.Input
        if answers:
            message = self._carried(answers[0].message, cost)
            answered = inputs.Answered(self.answerer.id, ask.number, message)
        else:
            answered = inputs.AskFailed(self.answerer.id, ask.number, "declined")
        following = self.asker.feed(answered, self.now())
        if is_fetch:
            cost.asker -= self.asker.used - before[0]
            cost.answerer -= self.answerer.used - before[1]
        if not cost.fetches:
            cost.found = cost.control
        return following

    def _carried(self, message: object, cost: Cost) -> SyncMessage:
        """A message as it arrives, and what it takes."""
        assert isinstance(message, SyncMessage)
        encoded = encode_sync(message)
        cost.control += len(frame(encoded))
        if isinstance(message.body, Events):
            cost.control -= message.meta.data_size
            cost.events += len(message.body.events)
        return decode_sync(encoded)

    def measure_memory(self, cost: Cost) -> None:
        """Put the questions of a session once more to the answerer, which remembers nothing."""
        for question in cost.questions:
            self._leapt += 60
            tracemalloc.start()
            self.answerer.feed(inputs.Asked(self.asker.id, next(_NUMBERS), question), self.now())
            cost.peak = max(cost.peak, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()


AUDITED = ", audited"


def scenarios(start: int, events: int) -> Iterator[tuple[str, tuple[Topic, ...], list[int]]]:
    """Each with its topics, and the dates of what the answerer gets before."""
    rng = random.Random(1)
    span = (events + events // 10) * EVERY

    def anywhere() -> int:
        return start + rng.randrange(span)

    scattered, gap = min(1000, events // 20), events // 10
    yield "equal, 100 topics", (), []
    yield "equal, 1 topic", (TOPIC,), []
    yield "equal, 1 topic" + AUDITED, (TOPIC,), []
    yield "1 missing", (TOPIC,), [anywhere()]
    yield "1 missing, 100 topics", (), [anywhere()]
    yield f"{scattered:,} scattered", (TOPIC,), [anywhere() for _ in range(scattered)]
    first = start + events // 2 * EVERY + EVERY // 2
    yield f"a stretch of {gap:,}", (TOPIC,), [first + number * EVERY for number in range(gap)]


def first_date(home: Path) -> int:
    """When the first event of a log was dated, in nanoseconds."""
    with EventLog(home, read_only=True) as log:
        return int.from_bytes(log.read(TOPIC, 0, 1)[0].id[-8:], "big")


def bench_sessions(full: Path, home: Path, events: int) -> None:
    """All scenarios in turn."""
    shutil.copytree(full, home / "asker")
    shutil.copytree(full, home / "answerer")
    start = first_date(full)
    pair = Pair(home / "asker", home / "answerer")
    print(f"sessions, {events:,} events, bytes without the events")
    print(
        f"  {'':24}{'found':>9}{'in all':>9}{'ques-':>8}{'(to':>7}{'asker':>8}{'answerer':>10}"
        f"{'events':>9}{'waited':>8}{'peak of the':>13}"
    )
    print(
        f"  {'':24}{'bytes':>9}{'bytes':>9}{'tions':>8}{'find)':>7}{'ms':>8}{'ms':>10}"
        f"{'':9}{'s':>8}{'answerer, kB':>13}"
    )
    for name, topics, dates in scenarios(start, events):
        append_all(pair.answerer.log, (signed(TOPIC, date) for date in dates))
        # Nodes audit by chance; here it is either always or never.
        setattr(sync_peer, "_AUDITED", float(name.endswith(AUDITED)))  # noqa: B010
        cost, report = pair.reconcile(*topics)
        pair.measure_memory(cost)
        print(
            f"  {name:24}{cost.found:9,}{cost.control:9,}{cost.asked:8}"
            f"{cost.asked - cost.fetches:7}{1000 * cost.asker:8.1f}{1000 * cost.answerer:10.1f}"
            f"{cost.events:9,}{cost.waited:8.1f}{cost.peak / 1000:13,.0f}",
            flush=True,
        )
        assert report.asked == report.answered == 1
        assert pair.asker.total() == pair.answerer.total()
    pair.close()
