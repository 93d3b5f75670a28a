"""What stands before opening a store: its heads file, and the words for what is wrong.

The rule of this file: a damaged store gets one error, whose findings name topics and ranges.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from rumormill.log.check import State, all_lost
from rumormill.log.errors import (
    CorruptLogError,
    Finding,
    FindingKind,
    NotAStoreError,
    StoreError,
    from_sqlite,
    is_corruption,
)
from rumormill.log.heads import HeadsDamagedError, HeadsFile, Witness, read_heads
from rumormill.log.model import StoreConfig
from rumormill.log.schema import latest_epoch

HEADS_NAME = "heads"
STORE_ID_BYTES = 16


def find_witness(home: Path) -> tuple[Witness | None, Finding | None]:
    """The store's heads file, or what is wrong with it."""
    try:
        witness = read_heads(home / HEADS_NAME)
    except HeadsDamagedError as error:
        return None, Finding(FindingKind.HEADS, detail=f"the heads file is unusable: {error}")
    if witness is None and latest_epoch(home) > 0:
        return None, Finding(FindingKind.HEADS, detail="the heads file is missing")
    return witness, None


def damaged(home: Path, findings: Sequence[Finding]) -> CorruptLogError:
    """The one sentence about a store that cannot be opened for writing."""
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return CorruptLogError(
        f"the store {home} is damaged: {findings[0].sentence()}{more}; "
        "restore a good copy or repair it",
        findings,
    )


def refuse_damage(home: Path, complaint: Finding | None, state: State) -> None:
    """Raise if the heads file or the database is not as it should be."""
    findings = ([] if complaint is None else [complaint]) + state.findings
    if findings:
        raise damaged(home, findings)


def opening_error(
    home: Path, witness: Witness | None, error: sqlite3.Error | NotAStoreError
) -> StoreError:
    """What to tell about a database that cannot be opened."""
    if isinstance(error, NotAStoreError):
        if witness is None or witness.generation == 0:
            return error
    elif not is_corruption(error):
        return from_sqlite(error, str(home))
    return damaged(home, all_lost(witness, str(error)).findings)


def new_witness(home: Path, config: StoreConfig) -> Witness:
    """Begin a new store: the heads file comes first, so that no database is ever without one."""
    witness = Witness(os.urandom(STORE_ID_BYTES), 1, config.heads_sync_commits, True, heads={})
    HeadsFile(home / HEADS_NAME, witness, config.durability).close()
    return witness
