"""Publications of one turn of the loop, given to the machine one after the other at its end.

Signed and encoded in a row, many of them cost a processor less than each in the task of its
publisher, between two others. The rule: each is answered, whatever becomes of those before it.
"""

import asyncio
from collections.abc import Callable, Sequence

from rumormill.core.api import Receipt
from rumormill.core.errors import RumormillError
from rumormill.core.inputs import Publish

_Refuse = Callable[[Publish, Exception], None]


class Publications:
    """Those that the machine has not been given yet, in the order of asking."""

    def __init__(self, orders: dict[int, asyncio.Future[Receipt]]) -> None:
        self._orders = orders
        """Who waits for their receipts, by number."""
        self.feed: Callable[[list[Publish], _Refuse], None] = lambda *_: None
        """Gives the machine publications, one after the other."""
        self.wishes: list[Publish] = []
        self.size = 0
        """Those that wait, and bytes of their data."""

    def give(self) -> None:
        """Give all of them to the machine; what it refuses is answered with its error."""
        if self.wishes:
            wishes, self.wishes, self.size = self.wishes, [], 0
            self.feed(wishes, self._refuse)

    def _refuse(self, wish: Publish, error: Exception) -> None:
        order = self._orders.pop(wish.number, None)
        if order is not None and not order.done():
            order.set_exception(error)


def has_failed(orders: Sequence["asyncio.Future[Receipt]"]) -> bool:
    """Whether one of some publications will have no receipt."""
    return any(each.done() and not each.cancelled() and each.exception() for each in orders)


async def settled(
    orders: Sequence["asyncio.Future[Receipt]"], refused: RumormillError | None
) -> list[Receipt]:
    """The receipts of publications, when all have theirs; or the first error, the last of which is
    that of one that was not even begun."""
    found = await asyncio.gather(*orders, return_exceptions=True)
    for each in (*found, refused):
        if isinstance(each, BaseException):
            raise each
    return found  # type: ignore[return-value]
