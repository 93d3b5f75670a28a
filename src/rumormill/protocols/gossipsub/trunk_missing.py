"""What was announced and is not here: when to ask for it, and whom (trunk).

A message that is announced is on its way by the tree as well, most of the time. So it is asked for
only when the parent is later than it usually is, then of one announcer after the other, the nearest
first: the next when the answer is late, or when it could answer sooner. One message may have been
lost on its way, so the tree stays as it is if the parent answers a call. If it does not, or did
not bring the message before either, whoever is asked may send the next one too.

Who was asked and did not bring the message in time has not kept its word. Links lose things, so it
is charged (P7) and shunned only when that happens several times in a row. Who has brought something
before is asked before those who have only announced.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rumormill.core.effects import Effects, Send, SetTimer
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.score import Trust
from rumormill.protocols.gossipsub.sources import YOUNG, Source, Sources
from rumormill.protocols.pubsub.messages import Control, Rpc
from rumormill.protocols.pubsub.trunk_part import ANSWER, CALL, TrunkPart

ALARM: Final = "trunk"
"""The timer of what is announced and does not come."""

SHORTEST_WAIT: Final = 0.01
LONGEST_WAIT: Final = 0.15
"""Seconds between an announcement and asking for the message. Our choice: below what people notice,
and long enough that a link's jitter is no reason to ask."""
_GAIN_OF_ANOTHER: Final = 0.02
"""Seconds by which an announcer must be expected to answer before the one that was asked, to be
asked too: our choice."""
_FIRST_ROUND_TRIP: Final = 0.2
"""Seconds that an answer takes, as long as nothing is known of the peer: our choice, around half
the world."""
SHUNNED: Final = 60.0
"""Seconds for which a peer that was too late wins no election, or that broke its word is not asked.
Our choice, as long as a back-off."""
UNKEPT: Final = 3
"""Announcements in a row that a peer may fail to keep: our choice, links lose things."""
_PATIENCE: Final = 0.3
"""Seconds after two round trips in which an announcement may still be kept: our choice."""
MISSING_MAX: Final = 10_000
"""Our choice: announced messages that are waited for; more than come in the time they may take."""
_GIVEN_UP: Final = 3.0
"""Seconds after which gossip is left to bring a message, or nothing."""

_NEVER: Final = float("inf")


class Speaker(msgspec.Struct, gc=False):
    """A peer that speaks the extension."""

    haves: int = 0
    """Announcements since the last heartbeat."""
    wishes: int = 0
    """Sources that its wishes were about since then, and its calls."""
    recalled: int = 0
    """Sources of whose past it was told since then."""
    round_trip: float = _FIRST_ROUND_TRIP
    measured: bool = False
    called: float = 0.0
    """When it was called, to measure the round trip; never, or it has answered, if zero."""
    unkept: int = 0
    """Announcements in a row that it did not keep."""
    shunned: float = 0.0
    """Until when it is not asked."""
    proven: bool = False
    """Whether it has ever brought a message, and kept its word since."""
    tried: float = -SHUNNED
    """When it was last trusted for its announcements alone."""
    owed: dict[bytes, float] | None = None
    """What it was asked for and has not brought, and when; no more than count in a row. None of one
    that was never asked, as most are."""

    def took(self, seconds: float) -> None:
        """Take in how long an answer took."""
        gain = 1 / 4 if self.measured else 1.0
        self.round_trip += gain * (seconds - self.round_trip)
        self.measured = True


class Missing(msgspec.Struct, gc=False):
    """A message that was announced and is not here."""

    since: float
    due: float
    announcers: list[PeerId]
    tag: bytes
    """Its source's; empty as long as it is known by gossip alone, which names no source."""
    answer: float = _NEVER
    """When whoever was asked last should have answered."""
    asked: int = 0
    """How many of the announcers were asked, or passed over."""


class Doubt(msgspec.Struct):
    """A parent did not bring what others have. It may be gone, so it is called."""

    due: float
    """When it should have answered."""
    instead: dict[bytes, PeerId]
    """Who was asked, by the tags of its sources: who is to send them, if it does not answer."""


def tell(peer: PeerId, part: TrunkPart, effects: Effects) -> None:
    """Send a peer the extension's part alone."""
    effects.append(Send(peer, Rpc(control=Control(trunk=part))))


CALLING: Final = Rpc(control=Control(trunk=TrunkPart(echo=CALL)))
ANSWERING: Final = Rpc(control=Control(trunk=TrunkPart(echo=ANSWER)))


class Letters:
    """What peers are told in one go: one RPC each."""

    def __init__(self) -> None:
        self.wants: dict[PeerId, list[bytes]] = {}  # keys
        self.chokes: dict[PeerId, list[bytes]] = {}
        self.unchokes: dict[PeerId, list[bytes]] = {}

    def send(self, effects: Effects) -> None:
        """Send it."""
        for peer in self.wants | self.chokes | self.unchokes:
            lists = (said.get(peer, ()) for said in (self.wants, self.chokes, self.unchokes))
            want, choke, unchoke = map(tuple, lists)
            tell(peer, TrunkPart(want=want, choke=choke, unchoke=unchoke), effects)


class Wanting:
    """The messages that are announced and not here."""

    __slots__ = (
        "_alarm", "_doubted", "_links", "_missing", "_postponed", "_sources", "_speakers",
        "_trust", "unwatched",
    )  # fmt: skip

    def __init__(
        self,
        sources: Sources,
        speakers: dict[PeerId, Speaker],
        trust: Trust,
        links: Mapping[Topic, Mapping[PeerId, None]],
    ) -> None:
        self.unwatched = 0
        """Announcements that were not followed because too many others are."""
        self._sources, self._speakers = sources, speakers
        self._trust, self._links = trust, links
        self._missing: dict[bytes, Missing] = {}  # by their keys
        self._doubted: dict[PeerId, Doubt] = {}
        self._alarm = _NEVER
        self._postponed = False
        """Whether the last alarm came late, and asked for nothing."""

    def announced(self, peer: PeerId, key: bytes, tag: bytes, now: float, effects: Effects) -> None:
        """A peer has a message that we have not; the tag is its source's, or empty in gossip."""
        missing = self._missing.get(key)
        if missing is None:
            if len(self._missing) >= MISSING_MAX:
                self.unwatched += 1
                return
            due = now + self._wait(peer, tag)
            missing = self._missing[key] = Missing(now, due, [peer], tag)
        elif peer not in missing.announcers:
            missing.announcers.append(peer)
            if tag and not missing.tag:
                missing.tag = tag
                missing.due = min(missing.due, now + self._wait(peer, tag))
            answer = now + self._speakers[peer].round_trip + _GAIN_OF_ANOTHER
            if missing.asked and (missing.due == _NEVER or answer < missing.answer):
                missing.due = now
        self._set_alarm(missing.due, effects)

    def _wait(self, peer: PeerId, tag: bytes) -> float:
        if not tag:
            return LONGEST_WAIT
        source = self._sources.by_tag.get(tag)
        if source is None:
            return SHORTEST_WAIT
        if not self._is_path(peer, source):
            return LONGEST_WAIT
        if not source.parent:
            return SHORTEST_WAIT
        return min(max(source.lag + 2 * source.deviation, SHORTEST_WAIT), LONGEST_WAIT)

    def _is_path(self, peer: PeerId, source: Source) -> bool:
        """Whether a peer could send us a source's messages: others gossip."""
        return peer == source.author or peer in self._links.get(source.topic, ())

    def take(self, key: bytes) -> Missing | None:
        """A message is here; return what was known of it."""
        return self._missing.pop(key, None)

    def kept(self, peer: PeerId, speaker: Speaker, key: bytes, now: float) -> bool:
        """A peer brought a message, be it a copy. If it was asked to, it kept its word: say so."""
        speaker.proven = True
        if self._doubted:
            self._doubted.pop(peer, None)
        if not speaker.owed:
            return False
        asked_at = speaker.owed.pop(key, None)
        if asked_at is None:
            return False
        speaker.took(now - asked_at)
        speaker.unkept = 0
        return True

    def answered(self, peer: PeerId, now: float) -> None:
        """A peer has answered a call."""
        speaker = self._speakers[peer]
        if speaker.called:
            speaker.took(now - speaker.called)
            speaker.called = 0.0
            self._doubted.pop(peer, None)

    def forget_peer(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._doubted.pop(peer, None)

    def _set_alarm(self, due: float, effects: Effects) -> None:
        if due < self._alarm:
            self._alarm = due
            effects.append(SetTimer(ALARM, due))

    def on_alarm(self, now: float, effects: Effects) -> None:
        """Ask for what has not come, unless we are late ourselves: then it may wait unread."""
        late = now - self._alarm
        self._alarm = _NEVER
        self._postponed = late > SHORTEST_WAIT and not self._postponed
        if self._postponed:
            self._set_alarm(now + min(late, LONGEST_WAIT), effects)
            return
        letters = Letters()
        for key, missing in self._missing.items():
            if missing.due <= now:
                self._ask(key, missing, now, letters, effects)
        for parent in [peer for peer, doubt in self._doubted.items() if doubt.due <= now]:
            for tag, peer in self._doubted.pop(parent).instead.items():
                self._open(tag, peer, letters)
        letters.send(effects)
        due = min((each.due for each in self._missing.values()), default=_NEVER)
        for doubt in self._doubted.values():
            due = min(due, doubt.due)
        self._set_alarm(due, effects)

    def _ask(
        self, key: bytes, missing: Missing, now: float, letters: Letters, effects: Effects
    ) -> None:
        missing.due = _NEVER
        rest = missing.announcers[missing.asked :]
        rest.sort(key=self._rank)
        missing.announcers[missing.asked :] = rest
        for peer in rest:
            missing.asked += 1
            speaker = self._speakers.get(peer)
            if speaker is None or self._is_shunned(peer, speaker, now, effects):
                continue
            speaker.owed = owed = speaker.owed or {}
            if len(owed) >= UNKEPT:
                del owed[next(iter(owed))]
            owed[key] = now
            missing.due = now + SHORTEST_WAIT + speaker.round_trip
            missing.answer = now + speaker.round_trip
            letters.wants.setdefault(peer, []).append(key)
            if missing.tag:
                self._doubt(missing, peer, now, letters, effects)
            return

    def _rank(self, peer: PeerId) -> tuple[bool, float]:
        """Who has brought something before is asked first, the nearest of them before others."""
        speaker = self._speakers.get(peer)
        return (True, 0.0) if speaker is None else (not speaker.proven, speaker.round_trip)

    def _doubt(
        self, missing: Missing, peer: PeerId, now: float, letters: Letters, effects: Effects
    ) -> None:
        """Decide whether whoever is asked shall send the next one too.

        Once may be a link that has lost something, if the parent is there: then nothing changes.
        But a parent that announces a message does not mean to send it.
        Of a young source nobody is late yet: whom it is sent to is not known.
        """
        tag = missing.tag
        source = self._sources.by_tag.get(tag)
        if source is None or not source.parent:
            self._open(tag, peer, letters)
            return
        if now - source.born < YOUNG:
            return
        if missing.asked == 1:
            source.missed += 1
        speaker = self._speakers.get(source.parent)
        if source.missed > 1 or speaker is None or source.parent in missing.announcers:
            self._open(tag, peer, letters)
            return
        doubt = self._doubted.get(source.parent)
        if doubt is None:
            due = now + speaker.round_trip + _GAIN_OF_ANOTHER
            doubt = self._doubted[source.parent] = Doubt(due, {})
            speaker.called = now
            effects.append(Send(source.parent, CALLING))
        doubt.instead[tag] = peer

    def _open(self, tag: bytes, peer: PeerId, letters: Letters) -> None:
        """Let a peer send the next message: the parent may be gone, or only late.

        Whose comes first is the parent then, and the other is choked.
        """
        source = self._sources.by_tag.get(tag)
        if source is not None:
            if not self._is_path(peer, source):
                return
            source.parent = source.parent or peer
            source.choked.pop(peer, None)
        tags = letters.unchokes.setdefault(peer, [])
        if tag not in tags:
            tags.append(tag)

    def _is_shunned(self, peer: PeerId, speaker: Speaker, now: float, effects: Effects) -> bool:
        """Whether a peer is not to be asked, after a look at what it owes."""
        late = now - _PATIENCE - 2 * speaker.round_trip
        owed = speaker.owed or {}
        for key in [key for key, asked_at in owed.items() if asked_at < late]:
            del owed[key]
            speaker.unkept += 1
        if speaker.unkept >= UNKEPT:
            speaker.unkept = UNKEPT - 1  # when it is asked again, the first time counts
            speaker.proven = False
            speaker.shunned = now + SHUNNED
            self._trust.penalise(peer, reasons.EMPTY_ANNOUNCEMENT, 1, effects)
        return speaker.shunned > now

    def sweep(self, now: float) -> None:
        """Forget what nobody brought."""
        late = now - _GIVEN_UP
        for key in [key for key, each in self._missing.items() if each.since < late]:
            del self._missing[key]
