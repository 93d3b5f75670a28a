"""Who is connected, who of them is a member, and whom to let go when there are too many.

Only members count: peers of other kinds come and go as they like. One group of addresses has a
bounded number of links, and whoever of it comes beyond that is let go at once. Of the others,
beyond the most that are wanted, those go that nobody needs: what was opened for a question alone,
then whoever the protocol has no use for, then whoever has come by itself. Young links stay, since
both sides may not have had the time to find a use for them; so there may be twice as many for a
while, and no more: who comes then is turned away, having been told of others.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

import msgspec

from rumormill.core.ids import PeerId
from rumormill.core.machine import View
from rumormill.core.randomness import Randomness
from rumormill.members.config import MembersConfig

_YOUNG: Final = 10.0
"""Seconds for which a link is left alone."""
_CROWD: Final = 2
"""Times the most links that are wanted, young ones included. Our choice: whose ticket everybody has
is come to by all who start, and is rid of most of them when they know others."""


class Link(msgspec.Struct, gc=False):
    """A connected peer."""

    outbound: bool
    sought: bool
    """Whether we, or the application, wanted it; else it came, or was opened for a question."""
    group: str
    since: float
    member: bool
    asked: int = 0
    """How often it was asked whether it is one."""
    leaves: float = 0.0
    """When it is let go, if it came to one who has enough: it hears of others until then."""


class Links:
    """All connected peers."""

    __slots__ = ("_config", "_randomness", "all")

    def __init__(self, config: MembersConfig, randomness: Randomness) -> None:
        self._config = config
        self._randomness = randomness
        self.all: dict[PeerId, Link] = {}

    def members(self) -> dict[PeerId, Link]:
        """Those that are members."""
        return {peer: link for peer, link in self.all.items() if link.member}

    def has_room(self, group: str) -> bool:
        """Whether a group of addresses may have one more link."""
        if not group:
            return True
        held = [link for link in self.all.values() if link.member and link.group == group]
        return len(held) < self._config.per_group

    @property
    def full(self) -> bool:
        """Whether there are so many links that nobody is taken in or sought any more.

        Counted no further than that: whose ticket everybody has is asked at every arrival, with
        thousands connected who are about to leave, and those who stay stand before them.
        """
        crowd = _CROWD * self._config.most
        members = (link for link in self.all.values() if link.member)
        return next(islice(members, crowd - 1, None), None) is not None

    def missing(self) -> int:
        """How many links are to be made."""
        members = self.members().values()
        dialled = sum(link.outbound and link.sought for link in members)
        short = max(self._config.wanted - len(members), self._config.dialled - dialled)
        return min(short, self._config.most - len(members))

    def missing_far(self, is_far: Callable[[PeerId], bool], wanted: int) -> int:
        """How many links to far members are to be dialled."""
        members = self.members()
        dialled = [peer for peer, link in members.items() if link.outbound and link.sought]
        short = wanted - sum(map(is_far, dialled))
        return max(0, min(short, self._config.most - len(members)))

    def surplus(self, view: Callable[[], View], topics: Iterable[str], now: float) -> list[PeerId]:
        """Whom to let go; the protocol is asked what it uses only if that may be somebody."""
        config, members = self._config, self.members()
        if len(members) <= config.wanted:
            return []
        old = {peer: link for peer, link in members.items() if link.since <= now - _YOUNG}
        over = len(members) - config.most
        if over <= 0 and not any(each.outbound and not each.sought for each in old.values()):
            return []
        useful = _useful(view(), topics, config.topic_wanted)
        idle = [peer for peer in old if peer not in useful]
        asked = [peer for peer in idle if old[peer].outbound and not old[peer].sought]
        going = asked[: len(members) - config.wanted]
        for some in (
            [peer for peer in idle if not old[peer].sought],
            idle,
            [peer for peer in old if not old[peer].sought],
        ):
            left = [peer for peer in some if peer not in going]
            more = max(0, min(over - len(going), len(left)))
            going += self._randomness.sample(left, more)
        return going


def _useful(view: View, topics: Iterable[str], scarce: int) -> Mapping[PeerId, None]:
    """Whom the protocol uses, and the subscribers of those topics of ours that have few."""
    useful: dict[PeerId, None] = {}
    for by_topic in view.links.values():
        for peers in by_topic.values():
            useful.update(dict.fromkeys(peers))
    for topic in topics:
        subscribers = view.peers.get(topic, ())
        if len(subscribers) <= scarce:
            useful.update(dict.fromkeys(subscribers))
    return useful
