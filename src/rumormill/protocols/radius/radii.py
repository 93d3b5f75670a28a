"""How far words travel: the two radii, by the size of the network and by who wants what.

The rule kept here is that the two add up to the diameter at least. By the design each is half of
it. Under `few`, unless told otherwise, subscriptions travel everywhere, so a publisher knows who
wants what. It may then let a publication travel as little as it likes: to its neighbours alone,
with letters to those who want it; or, where that costs more, everywhere, without any letter.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from rumormill.core.ids import PeerId
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.interest_table import FAR, Entry
from rumormill.protocols.radius.letters import LETTERS_AT_ONCE

LETTER_COST: Final = 8
"""Copies of a flood that cost as much as one letter. Our choice: a letter may need a connection,
which takes four round trips and two signatures."""


class Sized(Protocol):
    """What knows about how many peers there are."""

    @property
    def size(self) -> float:
        """So many."""


class Radii:
    """The radii of one peer, now."""

    def __init__(
        self, config: RadiusConfig, overlay: Sized, neighbours: Mapping[PeerId, float]
    ) -> None:
        self._config, self._overlay, self._neighbours = config, overlay, neighbours
        self.publisher_knows = config.serving == "few" and config.sub_hops is None
        """Whether a publisher knows everybody who has subscribed for a while."""
        self._by_hand = config.serving == "all" or config.pub_hops is not None

    @property
    def subscriptions(self) -> int:
        """How far our subscriptions travel."""
        fixed = self._config.sub_hops
        return self._by_rule() if fixed is None else fixed

    @property
    def publications(self) -> int:
        """How far our publications travel at most."""
        fixed = self._config.pub_hops
        return self._by_rule() if fixed is None else fixed

    @property
    def enough(self) -> int:
        """With so many hops left a word gets everywhere from here, and more are of no use.

        Where radii are exact, that is never so.
        """
        exact = self._by_hand or self._config.sub_hops is not None
        return FAR if exact else self._config.across(self._size)

    def publication(self, subscribers: Mapping[PeerId, Entry], now: float) -> int:
        """How far one is to travel that these want: no farther than need be, if that is cheaper.

        Everywhere, if letters may miss somebody: a newcomer does not know yet who wants it, where
        nobody is known somebody may just have subscribed, and who is out of reach of letters may
        be a neighbour of somebody.
        """
        most, letters = self.publications, len(subscribers)
        if self._by_hand or not 0 < letters <= LETTERS_AT_ONCE or self._is_newcomer(now):
            return most
        if letters * LETTER_COST > self._size * (len(self._neighbours) - 1):
            return most
        if any(entry.lost for entry in subscribers.values()):
            return most
        return max(1, self._config.across(self._size) - self.subscriptions)

    def _is_newcomer(self, now: float) -> bool:
        settled = now - self._config.settle
        return not any(since <= settled for since in self._neighbours.values())

    def _by_rule(self) -> int:
        config = self._config
        return config.max_hops if config.serving == "few" else config.hops(self._size)

    @property
    def _size(self) -> float:
        return self._config.network_size or self._overlay.size
