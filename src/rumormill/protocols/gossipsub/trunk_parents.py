"""Who is to send us a source's messages: one parent, chosen by who was first (trunk).

The rule: whoever brings a message before the parent takes its place, whoever announces messages
well before it brings them may try, and whoever else sends copies is asked not to, but for who sends
beside the parent for a while because a lost message took too long.
"""

from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final

from rumormill.core.effects import Effects, Send
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.gossipsub.sources import BACKUPS, YOUNG, Source
from rumormill.protocols.gossipsub.trunk_missing import SHUNNED, Letters, Missing, Speaker, tell
from rumormill.protocols.pubsub.messages import Control, Rpc
from rumormill.protocols.pubsub.trunk_part import TAGS_MAX, TrunkPart

RACE: Final = 1.0
"""Seconds in which copies may still arrive that left before our choke did: our choice, some round
trips."""
_CHOKE_AGAIN: Final = 0.4
"""Seconds after which a choke is repeated to a peer that still sends: our choice, a long round
trip."""
MARGIN: Final = 0.01
"""Seconds that an announcement must be ahead of the parent to count: our choice, some jitter."""
WINS: Final = 2
"""Messages in a row that a rival must win to become the parent."""
EARLY: Final = 0.015
"""Seconds that one announcement must be ahead to let its sender into the race: our choice."""
SELDOM: Final = 5.0
"""Seconds of silence after which one announcement is enough for that: our choice, where the second
is so far away that the tree would not keep up with those who come and go, and a copy costs little.
"""
INSTEAD: Final = 2
"""Links that are opened in place of a parent when nobody is known to be next: our choice."""
LONG: Final = 0.15
"""Seconds after its announcement from which on a lost message came too late: our choice, a round
trip that is longer than most."""
DOUBLED: Final = 32
"""Messages that two send us after that: our choice, a link that loses one in fifty is mostly
covered, and one that lost one for once costs little."""


@lru_cache(TAGS_MAX)
def _choking(tag: bytes) -> Rpc:
    """What is said of a source more often than anything else: one RPC for all who are told."""
    return Rpc(control=Control(trunk=TrunkPart(choke=(tag,))))


class Parents:
    """The choice of senders, for all sources."""

    __slots__ = ("_links", "_speakers", "_table")

    def __init__(
        self,
        table: PeerTable,
        speakers: dict[PeerId, Speaker],
        links: Mapping[Topic, Mapping[PeerId, None]],
    ) -> None:
        self._table, self._speakers, self._links = table, speakers, links

    def elect(
        self, source: Source, peer: PeerId, missing: Missing | None, now: float, effects: Effects
    ) -> None:
        """Decide who is to send us a source's messages, now that `peer` was the first."""
        links = self._links.get(source.topic, ())
        lead = 0.0 if missing is None else now - missing.since
        if peer != source.parent:
            self._succeed(source, peer, missing, now, effects)
            return
        source.missed = 0
        first = self._first(source, missing, links, now)
        if missing is not None and (not missing.asked or now < missing.answer):
            source.measure(lead)
        if missing is None or not first or lead <= MARGIN:
            source.rival = b""
            return
        if source.rival != first:
            source.wins = 0
        elif missing.since == source.won:
            return  # said in one go: of what comes together, all is as early as the first
        source.wins, source.won = source.wins + 1, missing.since
        source.rival = first
        if source.wins == 1 and lead > EARLY and now - source.at > SELDOM:
            # The parent stays until the other's message is first: nothing has to be believed.
            source.choked.pop(first, None)
            tell(first, TrunkPart(unchoke=(source.tag,)), effects)
        if source.wins >= WINS and self._may_try(first, now):
            # The old parent sends until its next message turns out to come second.
            source.parent, source.rival, source.elected = first, b"", now
            source.choked.pop(first, None)
            tell(first, TrunkPart(unchoke=(source.tag,)), effects)

    def _double(self, source: Source, peer: PeerId, effects: Effects) -> None:
        """Let who was asked, and is too far away for that, send for a while beside the parent."""
        source.second, source.doubled = peer, source.messages + DOUBLED
        if source.choked.pop(peer, None) is not None:
            tell(peer, TrunkPart(unchoke=(source.tag,)), effects)

    def _succeed(
        self, source: Source, peer: PeerId, missing: Missing | None, now: float, effects: Effects
    ) -> None:
        """Make a peer the parent that was the first, unless there is another reason for that."""
        links = self._links.get(source.topic, ())
        lead = 0.0 if missing is None else now - missing.since
        if source.parent and now - source.born < YOUNG:
            return  # the parent may have been among those who were only to announce it
        trusted = source.parent and not source.shuns(source.parent, now)
        if trusted and missing is not None and missing.asked and lead > MARGIN:
            if lead > LONG and peer in links:
                self._double(source, peer, effects)
            return  # it was asked for, and the tree stays as it is
        if peer not in links and peer != source.author and peer not in self._table.direct:
            return  # it was asked for, outside the mesh
        if source.parent and now - source.choked.get(peer, -RACE) < RACE:
            return  # it left before our choke came
        if source.choked.pop(peer, None) is not None:
            tell(peer, TrunkPart(unchoke=(source.tag,)), effects)
        if missing is not None and source.parent in missing.announcers:
            self._distrust(source, now)
        if peer == source.second:
            source.second = source.parent
        source.parent = peer
        source.rival = b""

    def _may_try(self, peer: PeerId, now: float) -> bool:
        """Whether announcements are enough; of who has brought nothing yet, now and then."""
        speaker = self._speakers.get(peer)
        if speaker is None or not (speaker.proven or now - speaker.tried >= SHUNNED):
            return False
        speaker.tried = now
        return True

    def _distrust(self, source: Source, now: float) -> None:
        """The parent announces, early as ever, what it should send: it may not have it at all."""
        speaker = self._speakers.get(source.parent)
        if speaker is not None and now - source.elected > _CHOKE_AGAIN:
            source.shunned = {**(source.shunned or {}), source.parent: now + SHUNNED}
            speaker.proven = False

    def _first(
        self, source: Source, missing: Missing | None, links: Container[PeerId], now: float
    ) -> PeerId:
        """Who announced a message first and could be a parent; nobody if that is empty."""
        if missing is None:
            return b""
        first = missing.announcers[0]
        if first in links and not source.shuns(first, now):
            return first
        return b""

    def choke(self, source: Source, peer: PeerId, now: float, effects: Effects) -> None:
        """Ask a peer not to send, unless it has hardly heard that we did."""
        if now - source.choked.get(peer, -_CHOKE_AGAIN) >= _CHOKE_AGAIN:
            source.choked[peer] = now
            effects.append(Send(peer, _choking(source.tag)))

    def reserve(self, source: Source, holders: tuple[PeerId, ...]) -> None:
        """Remember who announced a message before the parent brought it: none of them is behind
        us."""
        links = self._links.get(source.topic, ())
        ahead = [each for each in holders if each in links and each != source.parent]
        source.backups = tuple(ahead[:BACKUPS])

    def lose(self, source: Source, peer: PeerId, letters: Letters) -> None:
        """A neighbour is gone: whatever it was to a source, somebody else is now."""
        source.eager.pop(peer, None)
        source.choked.pop(peer, None)
        if peer in source.backups:
            source.backups = tuple([each for each in source.backups if each != peer])
        if source.parent != peer:
            return
        if source.backups:
            source.parent, *others = source.backups
            source.backups = tuple(others)
            wanted = [source.parent]
        else:
            source.parent = b""
            wanted = self._nearest(source.topic, peer)
        for other in wanted:
            source.choked.pop(other, None)
            letters.unchokes.setdefault(other, []).append(source.tag)

    def _nearest(self, topic: Topic, without: PeerId) -> list[PeerId]:
        """The next links of a topic, but for one."""
        speakers = self._speakers
        near = [peer for peer in self._links.get(topic, ()) if peer in speakers]
        near.sort(key=lambda peer: speakers[peer].round_trip)
        return [peer for peer in near if peer != without][:INSTEAD]
