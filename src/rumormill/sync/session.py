"""One session: what a peer asks another to find out what it lacks, and to get it.

A session is a list of things to do. It begins with a probe of all topics; what differs is compared
in ever smaller ranges; ranges of which we have little are fetched; what arrives is handed on in
small pieces, of which few wait for the disk, while the partner is asked for more already: whoever
lacks a million events gets them as fast as it can check signatures. It ends when nothing is left.

A few questions are under way at a time (`sync.under_way`); but a stretch of a topic is fetched
piece after piece, in the order of its dates.

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
from rumormill.core.history import AHEAD_SECONDS, BEGIN, HistoryQuery, Summary, topic_tag
from rumormill.core.ids import PeerId, Topic
from rumormill.sync.checking import Check, CheckFetched
from rumormill.sync.messages import (
    HASH_BYTES,
    MAX_EVENTS,
    MAX_SPANS,
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
    Cut,
    FindUnequal,
    MakeProbe,
    PickAudited,
    Unequal,
    common_ranges,
    compared,
    fingerprint,
)
from rumormill.sync.under_way import MAX_ASKED, Asked, UnderWay

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
    """Events that the partner gave, each with its topic, to be checked and handed on."""

    events: tuple[tuple[Topic, SentEvent], ...]

    def to_check(self, check: Check) -> CheckFetched:
        """What is to be worked out of them first."""
        return CheckFetched(self.events, check)


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
        most: int = MAX_ASKED,
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
        self.events = self.invalid = 0
        self.begun = self._gave_up = self.left_out = False
        self._news_at = 0.0
        """When the last event came, or all began."""
        self._in_vain = self._broken = 0
        self._probe: Probe | None = None
        self.under_way = UnderWay(most)
        """The questions to the partner."""
        self.query: int | None = None
        """The number of the question to our log that is under way."""
        self._looked_at: list[Topic] = []
        """What that one is about."""
        self._answers: list[Cut] = []
        """What the partner has said of ranges, for us to compare."""
        self._cuts: list[Cut] = []
        """What the partner is to compare."""
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

    def next(self, now: float, number: int) -> Step | None:
        """What to do next, under a number; None if that is nothing, for now or for good."""
        if not self.begun:
            self.begun = True
            self._news_at = now
            self.query = number
            upto, ahead_from = int((now - self.settle) * 1e6), int((now + AHEAD_SECONDS) * 1e6)
            return MakeProbe(self.salt, max(upto, 0), ahead_from, self.topics)
        left = self.under_way.again or self._wanted or self._cuts
        self._gave_up = now > self._news_at + PATIENCE and bool(left)
        if self.under_way.has_place and not self._gave_up:
            asked = self._next_question()
            if asked is not None:
                self.under_way.put(number, asked, now)
                return asked.question
        if self._arrived and self.storing < MAX_STORING:
            return self._next_slice()
        if self.query is None and (self._answers or self._pick):
            self.query = number
            return self._next_query()
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether there may be more to do when the partner has answered, our log, or the disk."""
        return bool(self.under_way.asked) or self.query is not None or self.storing > 0

    def _next_question(self) -> Asked | None:
        """What to ask the partner, if there is anything: what may bring events first."""
        if self.under_way.again:
            return self.under_way.again.pop()
        has_room = len(self._arrived) < MAX_EVENTS and self._arrived_bytes < SLICE_BYTES
        if has_room and (asked := self._next_fetch()) is not None:
            return asked
        if self._cuts:
            cut = self._cuts.pop()
            question = Compare(self.salt, topic_tag(cut.topic), cut.low, cut.spans)
            return Asked(cut.topic, question)
        rest = self._wanted or self._arrived or self._answers or self._pick or self.is_waiting
        if self._doubted is not None and not rest:
            return Asked("", self._doubted)
        return None

    def _next_fetch(self) -> Asked | None:
        """Fetch one range of which nothing is known, or several others: they hold little.

        A topic waits while more of it may be found to be fetched together.
        """
        busy = {*self._looked_at, *[answer.topic for answer in self._answers]}
        in_order = {asked.topic for asked in self.under_way.asked.values() if asked.is_stretch}
        for topic, wanted in self._wanted.items():
            if topic not in busy and (wanted[0].known or topic not in in_order):
                break
        else:
            return None
        few = 1
        while few < min(len(wanted), MAX_WANTED) and wanted[few].known and wanted[0].known:
            few += 1
        question = Fetch(self.salt, topic_tag(topic), tuple(wanted[:few]))
        del wanted[:few]
        if not wanted:
            del self._wanted[topic]
        return Asked(topic, question)

    def _next_slice(self) -> Arrived:
        size = 0
        events: list[tuple[Topic, SentEvent]] = []
        while self._arrived and len(events) < SLICE and size < SLICE_BYTES:
            events.append(self._arrived.popleft())
            size += len(events[-1][1].data)
        self._arrived_bytes -= size
        self.storing += 1
        return Arrived(tuple(events))

    def _next_query(self) -> HistoryQuery:
        """What to ask our log: of as many answers at a time as a message holds ranges."""
        if not self._answers:
            pick, self._pick = self._pick, None
            assert pick is not None
            self._looked_at = [pick.topic]
            return pick
        cuts, spans = [self._answers.pop()], 0
        while self._answers:
            spans += len(cuts[-1].spans)
            if spans + len(self._answers[-1].spans) > MAX_SPANS:
                break
            cuts.append(self._answers.pop())
        self._looked_at = [cut.topic for cut in cuts]
        return FindUnequal(self.salt, tuple(cuts))

    @property
    def outcome(self) -> str:
        """How it ended, when it did by itself."""
        if self._gave_up:
            return GAVE_UP
        if not self.unequal:
            return LEFT if self.left_out else EQUAL
        return COMPLETE if self.events else IN_VAIN

    # What our log says.

    def on_worked_out(self, answer: object) -> None:
        """Take what our log has worked out."""
        topics, self._looked_at, self.query = self._looked_at, [], None
        if isinstance(answer, Probe):
            self._probe = answer
            self.under_way.again.append(Asked("", answer))
        elif isinstance(answer, Wanted):
            self._wanted.setdefault(topics[0], []).append(answer)
            self._wrong = (Span(answer.high, _WRONG),)
            self._cuts.append(Cut(topics[0], answer.low, self._wrong))
        elif isinstance(answer, tuple):
            for topic, found in zip(topics, answer, strict=True):
                self._take(topic, found)

    def _take(self, topic: Topic, found: Unequal) -> None:
        """Take what there is to do about a topic."""
        if topic in self.doubtful and topic not in self.missing:
            self.missing[topic] = max(0, self.doubtful[topic] - found.count)
        if found.cuts or found.wanted:
            self.unequal[topic] = None
        room = MAX_LEFT - len(self._cuts) - sum(map(len, self._wanted.values()))
        if wanted := found.wanted[: max(0, room)]:
            self._wanted.setdefault(topic, []).extend(wanted)
        for low, spans in found.cuts[: max(0, room)]:
            self._cuts.append(Cut(topic, low, spans))

    def note_stored(self, good: Mapping[Topic, int], invalid: int, now: float) -> None:
        """So many of a slice were good, by topic, and so many forged."""
        for topic, events in good.items():
            self.events += events
            self.missing[topic] = max(0, self.missing.get(topic, 0) - events)
        self.invalid += invalid
        if good:
            self._in_vain, self._news_at = 0, now
        if self.invalid > MAX_INVALID:
            raise PeerError(FORGED)

    # What the partner says.

    def on_answered(self, number: int, body: Body, now: float) -> None:
        """Take the partner's answer; a `PeerError` if it is none."""
        size = 0
        if isinstance(body, Events):
            size = sum([len(event.data) for event in body.events])
        asked = self.under_way.answered(number, size, now)
        question = asked.question
        self._in_vain += 1
        if self._in_vain > MAX_IN_VAIN:
            raise PeerError(GAVE_NOTHING)
        if isinstance(question, Probe) and isinstance(body, Verdict):
            self._on_verdict(question, body)
        elif isinstance(question, Compare) and isinstance(body, Compared):
            self._on_compared(asked.topic, question, body)
        elif isinstance(question, Fetch) and isinstance(body, Events):
            self._arrived_bytes += size
            self._on_events(asked.topic, question, body)
        else:
            raise PeerError(BAD_ANSWER, f"a {type(body).__name__} to a {type(question).__name__}")

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
                self._answers.append(Cut(topic, BEGIN, difference.spans))
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
        self.compared = [each for each in self.compared if each != topic]
        self._answers = [answer for answer in self._answers if answer.topic != topic]

    def _on_compared(self, topic: Topic, asked: Compare, answer: Compared) -> None:
        ranges = list(compared(asked.low, asked.spans))
        at = 0
        for low, high, _ in compared(asked.low, answer.spans):
            while at < len(ranges) and ranges[at][1] < high:
                at += 1
            if at == len(ranges) or low < ranges[at][0]:
                raise PeerError(BAD_ANSWER, "a range that was not asked for")
        if asked.spans == self._wrong and not answer.spans:
            self._doubted = self._probe
            return
        if answer.spans:
            self._answers.append(Cut(topic, asked.low, answer.spans))
        if answer.next is not None:
            low, rest = asked.low, list(asked.spans)
            while rest and rest[0].high <= answer.next:
                low = rest.pop(0).high
            if not rest or low == asked.low:
                raise PeerError(BAD_ANSWER, "a comparison that does not go on")
            self._cuts.append(Cut(topic, low, tuple(rest)))

    def _on_events(self, topic: Topic, asked: Fetch, answer: Events) -> None:
        self._arrived.extend([(topic, event) for event in answer.events])
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
