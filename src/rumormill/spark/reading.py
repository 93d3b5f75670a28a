"""Reads one piece of a topic in a Spark task: exactly its events, or an error that names the range.

A piece that ends early is lost data, never the end of a batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from rumormill.log.errors import DamagedRangeError, OffsetAheadError, OffsetGoneError
from rumormill.log.model import Range
from rumormill.spark.access import Access
from rumormill.spark.filters import Condition, apply
from rumormill.spark.planning import DataLossError


def read_piece(
    access: Access,
    piece: Range,
    columns: Sequence[str],
    conditions: Sequence[Condition] = (),
    *,
    fail_on_data_loss: bool = True,
) -> Iterator[Any]:
    """Verified Arrow batches of a piece; without `fail_on_data_loss`, what is left of it."""
    position = piece.start
    while position < piece.stop:
        try:
            with access.batches(piece.topic, position, piece.stop, columns) as batches:
                for batch in batches:
                    position += batch.num_rows
                    yield apply(batch, conditions) if conditions else batch
        except OffsetGoneError as gone:
            resume = min(gone.first_offset, piece.stop)
            if fail_on_data_loss:
                raise _loss(access, piece, position, resume, "retention has deleted them") from gone
        except DamagedRangeError as damaged:
            resume = min(damaged.end, piece.stop)
            if fail_on_data_loss:
                raise _loss(access, piece, position, resume, str(damaged)) from damaged
        except OffsetAheadError as ahead:
            resume = piece.stop
            if fail_on_data_loss:
                raise _loss(access, piece, position, resume, str(ahead)) from ahead
        else:
            if position < piece.stop and fail_on_data_loss:
                raise _loss(access, piece, position, piece.stop, "the read ended early")
            return
        position = max(resume, position + 1)


def _loss(access: Access, piece: Range, start: int, stop: int, why: str) -> DataLossError:
    return DataLossError(
        f"topic {piece.topic!r} of {access.where}: offsets {start} to {stop - 1} cannot be read:"
        f" {why}. With failOnDataLoss=false they are passed over"
    )
