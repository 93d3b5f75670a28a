"""Where a log has events, by their ids.

The rule is the reader's: what is not proven is not there. A damaged row has no place.
"""

from collections.abc import Sequence
from typing import Final

from rumormill.log import schema
from rumormill.log.event_log import EventLog
from rumormill.log.rows import COLUMNS, MAX_OFFSET, row_is_whole

_AT_A_TIME: Final = 500


def offsets_of(log: EventLog, topic: str, ids: Sequence[bytes]) -> list[int | None]:
    """The offset of each of these events; None where the log has no such event."""
    found: dict[bytes, int] = {}
    with log.snapshot() as db:
        info = schema.get_topic(db, topic)
        if info is None:
            return [None] * len(ids)
        for start in range(0, len(ids), _AT_A_TIME):
            some = ids[start : start + _AT_A_TIME]
            places = ", ".join("?" * len(some))
            query = f"SELECT {COLUMNS} FROM events WHERE topic_id = ? AND id IN ({places})"
            for row in db.execute(query, (info.topic_id, *some)):
                if row_is_whole(row, info.topic_id, topic.encode()):
                    found[row[2]] = row[0] & MAX_OFFSET
    return [found.get(each) for each in ids]
