"""Many rows in one statement.

Python's SQLite gives the interpreter away at each statement, and at each row of `executemany`.
While another thread is busy, whoever writes waits for up to five milliseconds each time to have it
back: a thousand rows, one by one, took seconds beside an event loop that had much to do.
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

_AT_ONCE: Final = (64, 8, 1)
"""Rows of one statement: our choice. Twelve columns of 64 rows are below SQLite's old limit of 999
parameters; few lengths, because the connection keeps statements that were parsed."""


class Insert:
    """Inserts rows into a table; `behind` says what becomes of those whose key is there."""

    def __init__(self, into: str, columns: int, behind: str = "") -> None:
        row = "(" + ", ".join("?" * columns) + ")"
        self._statements = tuple(
            (size, f"{into} VALUES {', '.join([row] * size)} {behind}") for size in _AT_ONCE
        )
        self.one = self._statements[-1][1]
        """The statement that inserts a single row."""

    def put(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> int:
        """Insert rows in order; return how many it were."""
        if len(rows) == 1:
            return db.execute(self.one, rows[0]).rowcount
        changed = start = 0
        for size, statement in self._statements:
            while len(rows) - start >= size:
                values = tuple(chain.from_iterable(rows[start : start + size]))
                changed += db.execute(statement, values).rowcount
                start += size
        return changed


def delete(db: sqlite3.Connection, table: str, keys: Sequence[Any]) -> None:
    """Remove the rows of a table that have these keys."""
    start = 0
    for size in _AT_ONCE:
        places = ", ".join("?" * size)
        while len(keys) - start >= size:
            db.execute(f"DELETE FROM {table} WHERE key IN ({places})", keys[start : start + size])
            start += size
