"""Retention by itself: every minute, what is beyond a topic's rule is deleted from the log."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from rumormill.core.ids import Topic
from rumormill.log.errors import StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import delete_what_is_beyond
from rumormill.log.model import Retention

EVERY: Final = 60.0
"""Seconds between two looks; our choice: rules speak of hours and gigabytes."""

_log = logging.getLogger("rumormill.log")


async def keep_retaining(log: EventLog, rules: Mapping[Topic, Retention]) -> None:
    """Apply the rules, as they are then, now and every minute."""
    while True:
        if rules:
            await _apply(log, dict(rules))
        await asyncio.sleep(EVERY)


async def _apply(log: EventLog, rules: Mapping[Topic, Retention]) -> None:
    try:
        deleted = await asyncio.to_thread(delete_what_is_beyond, log, rules)
    except StoreError as error:
        _log.warning("nothing is deleted now: %s", error)
    else:
        for topic, count in deleted.items():
            _log.info("topic %r: %d events are beyond its rule and deleted", topic, count)
