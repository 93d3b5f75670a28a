"""Receipts that stay true: what a queue refuses or throws away is told to whoever published it.

A machine says to how many peers it sends an event; the runtime knows what became of that. What is
refused at once is not counted in `Receipt.peers`; what waits in a queue that is thrown away later
is counted in `Receipt.dropped` of the receipt that was given, for as long as its owner keeps it.
The rule: nothing is remembered here for receipts that nobody has, nor, beyond the turn of the loop
in which they are made, for those of events that are on their way to everybody.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from weakref import ref

from msgspec.structs import force_setattr

from rumormill.core.api import Receipt
from rumormill.core.effects import Published
from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic
from rumormill.core.trace import RpcMeta
from rumormill.log.model import Appended

_Key = tuple[Topic, MessageId]


class Receipts:
    """The receipts of a node that somebody has."""

    def __init__(self) -> None:
        self._given: dict[_Key, ref[Receipt]] = {}
        """Each takes itself out, without a call of Python's, when nobody has the receipt."""
        self._new: dict[_Key, Receipt] = {}
        """Those that their owners have not seen yet: of this turn of the loop."""
        self.has_queued: Callable[[], bool] = lambda: True
        """Whether anything waits that could be thrown away."""
        self._refused: dict[_Key, int] = {}
        """Refusals of this turn, of events whose receipts may follow."""
        self._loop = asyncio.get_running_loop()

    def make(self, effect: Published, event: Event, places: Mapping[_Key, Appended]) -> Receipt:
        """The receipt of an event; `places` are those of the log."""
        key = (event.topic, event.id)
        place = places.get(key)
        offset, safe = (-1, None) if place is None else (place.offset, place.durable_at)
        peers = effect.peers
        if self._refused:
            peers = max(0, peers - self._refused.pop(key, 0))
        receipt = Receipt(*key, offset, safe, peers, effect.note)
        if peers:
            if not self._new:
                self._begin_turn()
            self._new[key] = receipt
        return receipt

    def drop(self, meta: RpcMeta) -> None:
        """A message that a machine has sent to a peer is not on its way to it."""
        for each in meta.messages:
            key = (each.topic, each.message_id)
            if (receipt := self._new.get(key)) is not None:
                force_setattr(receipt, "peers", max(0, receipt.peers - 1))
                continue
            found = self._given.get(key)
            receipt = None if found is None else found()
            if receipt is None:
                self._begin_turn()
                self._refused[key] = self._refused.get(key, 0) + 1
            else:
                force_setattr(receipt, "dropped", min(receipt.peers, receipt.dropped + 1))

    def _begin_turn(self) -> None:
        if not self._new and not self._refused:
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self.has_queued():
            given = self._given
            for key, receipt in self._new.items():
                given[key] = ref(receipt, partial(given.pop, key))
        self._new.clear()
        self._refused.clear()
