"""Keeping what fits of a batch that was too much for the disk.

The batch is cut in halves, and each half that does not fit again, one piece after the other. An
event that does not fit even alone says that no event of its size does: those are given up without
another try, so a disk that is really full is asked a few times, and not once for every event.
"""

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class _Sized(Protocol):
    """An event in the batch of a desk; only its size matters here."""

    @property
    def data(self) -> bytes:
        """What was said."""
        ...


Taken = TypeVar("Taken", bound=tuple[_Sized, object])


class Rescue(Generic[Taken]):
    """One batch in pieces. Somebody else stores a piece and then says whether it did fit."""

    def __init__(self, batch: list[Taken], give_up: Callable[[list[Taken]], None]) -> None:
        self._pieces: list[list[Taken]] = []
        self._give_up = give_up
        self._too_large = math.inf
        self._cut(batch)

    def next_piece(self) -> list[Taken]:
        """The piece to store next, in the order of the batch; empty when nothing is left."""
        while self._pieces:
            piece = self._pieces.pop()
            hopeless = [taken for taken in piece if len(taken[0].data) >= self._too_large]
            if hopeless:
                self._give_up(hopeless)
                piece = [taken for taken in piece if len(taken[0].data) < self._too_large]
            if piece:
                return piece
        return []

    def did_not_fit(self, piece: list[Taken]) -> None:
        """The piece was too much as well."""
        if len(piece) > 1:
            self._cut(piece)
            return
        self._too_large = min(self._too_large, len(piece[0][0].data))
        self._give_up(piece)

    def rest(self) -> list[Taken]:
        """Everything that was not tried yet, for the case that nothing can be stored any more."""
        rest = [taken for piece in reversed(self._pieces) for taken in piece]
        self._pieces.clear()
        return rest

    def _cut(self, piece: list[Taken]) -> None:
        middle = len(piece) // 2
        self._pieces += (piece[middle:], piece[:middle])
