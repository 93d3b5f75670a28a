"""One session: what a peer asks another to find out what it lacks, and to get it.

A session is a list of things to do, and at every moment one of them is under way: a question to the
partner, or one to our own log. It begins with a probe of all topics; what differs is compared in
ever smaller ranges; ranges of which we have little are fetched; what arrives is handed on in small
pieces, of which few wait for the disk, while the partner is asked for more already: whoever lacks
a million events gets them as fast as it can check signatures. It ends when nothing is left to do.

Only the asker remembers anything. It believes nothing: an answer must lie within its question,
events are judged by the protocol as if they had just been published, and whoever brings nothing new
in so many answers is left alone for a while.

What a partner calls equal is audited in some sessions, in one small range that it cannot foresee.
We say a hash of it that is wrong. Who calls that equal too has not compared anything, or has just
deleted what is there: the probe is asked again, and who calls that equal once more has lied. And we
fetch what the partner has there besides the events that we name: if two sets have one sum, this
finds it in the end.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from rumormill.core.errors import PeerError
from rumormill.core.history import AHEAD_SECONDS, BEGIN, HistoryQuery, Key, Summary, topic_tag
from rumormill.core.ids import PeerId, Topic
from rumormill.sync.checking import Check, CheckFetched
from rumormill.sync.messages import (
    HASH_BYTES,
    MAX_EVENTS,
    MAX_WANTED,
    Body,
    Compare,
    Compared,
    Events,
    Fetch,
    Probe,
    SentEvent,
    Span,
    Spans,
    Verdict,
    Wanted,
)
from rumormill.sync.ranges import (
    FindUnequal,
    MakeProbe,
    PickAudited,
    Unequal,
    common_ranges,
    compared,
    fingerprint,
)

SLICE: Final = 128
"""Events that are checked, and then handed on, at a time; our choice: some 5 ms of the loop."""

SLICE_BYTES: Final = 256 << 10
"""Bytes of their data, likewise: as much as an answer holds, unless one event is longer."""

MAX_STORING: Final = 6
"""Slices that are under way: while two are checked, others wait for that, are handed on, written.
"""

MAX_LEFT: Final = 4096
"""Ranges that a session remembers; what is more is found by the next one."""

MAX_IN_VAIN: Final = 256
"""Answers in a row that bring no event: twice what a thousand losses among a million take."""

PATIENCE: Final = 60.0
"""Seconds without an event, after which a session is over."""

HOPE: Final = 10.0
"""Seconds without an event, after which others are asked for the same as well."""

MAX_BROKEN: Final = 32
"""How often a partner may say that there is something, or more, where we have nothing, and give
nothing. It may have refused what is there, or deleted it meanwhile; not so often."""

MAX_FAILURES: Final = 2
"""How often a question is asked again that got no answer: it may have been lost."""

MAX_INVALID: Final = 16
"""Events that the protocol refuses as forged."""

BAD_ANSWER: Final = "sync-bad-answer"
FORGED: Final = "sync-forged-events"
PROMISED: Final = "sync-broken-promises"
GAVE_NOTHING: Final = "sync-nothing-given"
FALSE_EQUAL: Final = "sync-false-equal"
"""Somebody calls sets equal that it has not compared."""
EQUAL: Final = "equal"
COMPLETE: Final = "complete"
IN_VAIN: Final = "in vain"
GAVE_UP: Final = "gave up"
LEFT: Final = "left to another"


_WRONG: Final = bytes(HASH_BYTES)
"""A hash that no range has, or one in 2^48."""


class Arrived(msgspec.Struct, frozen=True):
    """Events that the partner gave, to be checked and handed on."""

    topic: Topic
    events: tuple[SentEvent, ...]

    def to_check(self, check: Check) -> CheckFetched:
        """What is to be worked out of them first."""
        return CheckFetched(self.topic, self.events, check)


class _Cut(msgspec.Struct, frozen=True):
    """Ranges of a topic, to be compared by the partner, or by us when it has answered."""

    topic: Topic
    low: Key
    spans: Spans


Step: TypeAlias = HistoryQuery | Probe | Compare | Fetch | Arrived
"""What a session wants done next: a question to our log, one to the partner, or events taken."""


class Session:
    """The asker's side of one session with one partner."""

    def __init__(
        self,
        peer: PeerId,
        topics: tuple[tuple[Topic, int], ...],
        salt: bytes,
        settle: float,
        *,
        offered: bool,
        audit: int = -1,
        wishes: Mapping[int, int] | None = None,
    ) -> None:
        self.peer, self.salt = peer, salt
        self.wishes = wishes or {}
        """The wishes that it serves, each with how far (`Wishes.topics_of`)."""
        self.settle = settle
        """Seconds that an event is left to the protocol before it counts as missing."""
        self.topics = topics
        """The topics, each with the date from which on its events are wanted."""
        self.offered = offered
        """Whether the partner said that it has something."""
        self.doubtful: dict[Topic, int] = {}
        """The topics in which the partner has, or may have, something else, and how many events."""
        self.unequal: dict[Topic, None] = {}
        """Those in which something differs indeed."""
        self.missing: dict[Topic, int] = {}
        """How many events of a topic we lack at least: the partner has so many more."""
        self.compared: list[Topic] = []
        """Those of which the partner has anything."""
        self.events = 0
        self.invalid = 0
        self.begun = False
        self._news_at = 0.0
        """When the last event came, or all began."""
        self._in_vain = 0
        self._gave_up = self.left_out = False
        self._broken = 0
        self._failures = 0
        self._probe: Probe | None = None
        self.asked: Probe | Compare | Fetch | None = None
        """The question that is put, or waits for its turn."""
        self._asked_topic = ""
        self._answers: list[_Cut] = []
        self._cuts: list[_Cut] = []
        self._audit = audit
        """Which place of what is called equal is looked at; none if it is negative."""
        self._audited = ""
        self._pick: PickAudited | None = None
        self._wrong: Spans = ()
        """The range of which we say a wrong hash."""
        self._doubted: Probe | None = None
        """The probe that is asked again, because such a hash was called equal."""
        self._wanted: dict[Topic, list[Wanted]] = {}
        self._arrived: deque[tuple[Topic, SentEvent]] = deque()
        self._arrived_bytes = 0
        self.storing = 0
        """Slices that were handed on and are not stored yet."""

    def next(self, now: float) -> Step | None:
        """What to do next; None if that is nothing, for now or for good."""
        if not self.begun:
            self.begun = True
            self._news_at = now
            upto, ahead_from = int((now - self.settle) * 1e6), int((now + AHEAD_SECONDS) * 1e6)
            return MakeProbe(self.salt, max(upto, 0), ahead_from, self.topics)
        self._gave_up = now > self._news_at + PATIENCE and bool(self._wanted or self._cuts)
        has_room = len(self._arrived) < MAX_EVENTS and self._arrived_bytes < SLICE_BYTES
        if self._wanted and has_room and not self._gave_up and not (self.asked or self._answers):
            self.asked = self._next_fetch()
            return self.asked
        if self._arrived and self.storing < MAX_STORING:
            return self._next_slice()
        if self.is_waiting:
            return None
        if self._answers:
            answer = self._answers.pop()
            self._asked_topic = answer.topic
            return FindUnequal(self.salt, answer.topic, answer.low, answer.spans)
        if self._pick is not None:
            pick, self._pick = self._pick, None
            self._asked_topic = pick.topic
            return pick
        if self._doubted is not None:
            self.asked = self._doubted
        elif self._cuts and not self._gave_up:
            cut = self._cuts.pop()
            self._asked_topic = cut.topic
            self.asked = Compare(self.salt, topic_tag(cut.topic), cut.low, cut.spans)
        return self.asked

    @property
    def is_waiting(self) -> bool:
        """Whether there may be more to do when the partner has answered, or the disk."""
        return self.asked is not None or self.storing > 0

    def _next_fetch(self) -> Fetch:
        """Fetch one range of which nothing is known, or several others: they hold little."""
        topic, wanted = next(iter(self._wanted.items()))
        few = 1
        while few < min(len(wanted), MAX_WANTED) and wanted[few].known and wanted[0].known:
            few += 1
        self._asked_topic = topic
        question = Fetch(self.salt, topic_tag(topic), tuple(wanted[:few]))
        del wanted[:few]
        if not wanted:
            del self._wanted[topic]
        return question

    def _next_slice(self) -> Arrived:
        topic, size = self._arrived[0][0], 0
        events: list[SentEvent] = []
        while self._arrived and len(events) < SLICE and self._arrived[0][0] == topic:
            if size >= SLICE_BYTES:
                break
            events.append(self._arrived.popleft()[1])
            size += len(events[-1].data)
        self._arrived_bytes -= size
        self.storing += 1
        return Arrived(topic, tuple(events))

    @property
    def outcome(self) -> str:
        """How it ended, when it did by itself."""
        if self._gave_up:
            return GAVE_UP
        if not self.unequal:
            return LEFT if self.left_out else EQUAL
        return COMPLETE if self.events else IN_VAIN

    # What our log says.

    def on_worked_out(self, answer: object) -> Probe | None:
        """Take what our log has worked out; a probe is to be asked."""
        if isinstance(answer, Probe):
            self.asked = self._probe = answer
            return answer
        topic = self._asked_topic
        if isinstance(answer, Wanted):
            self._wanted[topic] = [answer]
            self._wrong = (Span(answer.high, _WRONG),)
            self._cuts.append(_Cut(topic, answer.low, self._wrong))
        elif isinstance(answer, Unequal):
            if topic in self.doubtful and topic not in self.missing:
                self.missing[topic] = max(0, self.doubtful[topic] - answer.count)
            if answer.cuts or answer.wanted:
                self.unequal[topic] = None
            wanted = self._wanted.get(topic, [])
            room = MAX_LEFT - len(self._cuts) - sum(map(len, self._wanted.values()))
            wanted += answer.wanted[: max(0, room)]
            if wanted:
                self._wanted[topic] = wanted
            for low, spans in answer.cuts[: max(0, room)]:
                self._cuts.append(_Cut(topic, low, spans))
        return None

    def note_stored(self, topic: Topic, events: int, invalid: int, now: float) -> None:
        """So many of a slice were good, so many forged."""
        self.events += events
        self.missing[topic] = max(0, self.missing.get(topic, 0) - events)
        self.invalid += invalid
        if events:
            self._in_vain, self._news_at = 0, now
        if self.invalid > MAX_INVALID:
            raise PeerError(FORGED)

    # What the partner says.

    def ask_again(self) -> Probe | Compare | Fetch | None:
        """The question that got no answer, if it should be asked once more."""
        self._failures += 1
        return self.asked if self._failures <= MAX_FAILURES else None

    def on_answered(self, body: Body) -> None:
        """Take the partner's answer; a `PeerError` if it is none."""
        asked, self.asked = self.asked, None
        self._in_vain += 1
        if self._in_vain > MAX_IN_VAIN:
            raise PeerError(GAVE_NOTHING)
        self._failures = 0
        if isinstance(asked, Probe) and isinstance(body, Verdict):
            self._on_verdict(asked, body)
        elif isinstance(asked, Compare) and isinstance(body, Compared):
            self._on_compared(asked, body)
        elif isinstance(asked, Fetch) and isinstance(body, Events):
            self._on_events(asked, body)
        else:
            raise PeerError(BAD_ANSWER, f"a {type(body).__name__} to a {type(asked).__name__}")

    def _on_verdict(self, asked: Probe, verdict: Verdict) -> None:
        places = [difference.place for difference in verdict.differences] + [*verdict.unknown]
        if len(set(places)) < len(places) or max(places, default=0) >= len(self.topics):
            raise PeerError(BAD_ANSWER, "a verdict on topics that were not probed")
        equal = [place for place in range(len(self.topics)) if place not in verdict.unknown]
        self.compared = [self.topics[place][0] for place in equal]
        for difference in verdict.differences:
            topic = self.topics[difference.place][0]
            if difference.spans:
                self.doubtful[topic] = difference.count
                self._answers.append(_Cut(topic, BEGIN, difference.spans))
                equal.remove(difference.place)
        self._judge_equal(asked, equal)

    def _judge_equal(self, asked: Probe, equal: list[int]) -> None:
        """Judge that some topics are called equal, by their places in the probe."""
        nothing = fingerprint(self.salt, Summary())
        if any(asked.topics[place].hash == nothing for place in equal):
            raise PeerError(FALSE_EQUAL, "who has anything differs from who has nothing")
        if self._doubted is not None:
            self._doubted = None
            if any(self.topics[place][0] == self._audited for place in equal):
                raise PeerError(
                    FALSE_EQUAL, "a wrong hash was called equal, and so is the right one"
                )
        elif equal and self._audit >= 0:
            place = equal[self._audit % len(equal)]
            window = asked.topics[place].window
            ranges = common_ranges(window, window, asked.upto, asked.ahead_from)
            self._audited, at = self.topics[place][0], self._audit // len(equal)
            self._pick = PickAudited(self.salt, self._audited, tuple(ranges), at)

    def looks_after(self, topic: Topic, now: float) -> bool:
        """Whether nobody else need be asked about a topic, for this may bring all there is."""
        return topic in self.doubtful and now <= self._news_at + HOPE

    def leave_out(self, topic: Topic) -> None:
        """Do nothing about a topic: somebody else is asked about it."""
        self.left_out = True
        del self.doubtful[topic]
        self.compared.remove(topic)
        self._answers = [answer for answer in self._answers if answer.topic != topic]

    def _on_compared(self, asked: Compare, answer: Compared) -> None:
        ranges = list(compared(asked.low, asked.spans))
        at = 0
        for low, high, _ in compared(asked.low, answer.spans):
            while at < len(ranges) and ranges[at][1] < high:
                at += 1
            if at == len(ranges) or low < ranges[at][0]:
                raise PeerError(BAD_ANSWER, "a range that was not asked for")
        topic = self._asked_topic
        if asked.spans == self._wrong and not answer.spans:
            self._doubted = self._probe
            return
        if answer.spans:
            self._answers.append(_Cut(topic, asked.low, answer.spans))
        if answer.next is not None:
            low, rest = asked.low, list(asked.spans)
            while rest and rest[0].high <= answer.next:
                low = rest.pop(0).high
            if not rest or low == asked.low:
                raise PeerError(BAD_ANSWER, "a comparison that does not go on")
            self._cuts.append(_Cut(topic, low, tuple(rest)))

    def _on_events(self, asked: Fetch, answer: Events) -> None:
        topic = self._asked_topic
        self._arrived.extend([(topic, event) for event in answer.events])
        self._arrived_bytes += sum([len(event.data) for event in answer.events])
        if answer.events:
            self.unequal[topic] = None
        if not answer.events:
            promised = sum(not wanted.known for wanted in asked.wanted)
            self._broken += 1 if answer.next else promised
        if self._broken > MAX_BROKEN:
            raise PeerError(PROMISED)
        if answer.next is None:
            return
        if answer.place >= len(asked.wanted):
            raise PeerError(BAD_ANSWER, "events of a range that was not asked for")
        wanted = asked.wanted[answer.place]
        if not wanted.low < answer.next <= wanted.high:
            raise PeerError(BAD_ANSWER, "a range of events that does not go on")
        rest = [Wanted(answer.next, wanted.high, wanted.known), *asked.wanted[answer.place + 1 :]]
        self._wanted[topic] = rest + self._wanted.get(topic, [])
