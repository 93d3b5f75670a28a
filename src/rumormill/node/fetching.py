"""What a node gets for who asks: an event by its name, a topic's history beyond its own log."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from rumormill.core.api import FetchedHistory
from rumormill.core.errors import LocalError, OutOfTimeError
from rumormill.core.event import UNASSIGNED, Event, filled
from rumormill.core.ids import MessageId, Topic
from rumormill.log.event_log import EventLog
from rumormill.node.driver import Driver
from rumormill.node.synced import sync_now
from rumormill.protocols.registry import ProtocolSpec

_LOOK_SECONDS: Final = 1.0
"""How often it is told how far it is; our choice."""


async def fetch_event(
    spec: ProtocolSpec, driver: Driver, event: str | MessageId, patience: float
) -> Event:
    """Get an event by its name alone, where events have names that say what they are."""
    if spec.topics is None:
        raise LocalError(
            f"an event of {spec.name} cannot be had by its name alone; one of pulsarcast can"
        )
    try:
        async with asyncio.timeout(patience):
            found = await driver.command(spec.topics.fetch(event))
    except TimeoutError:
        raise OutOfTimeError(f"the event was not found within {patience:g} seconds") from None
    assert isinstance(found, Event)
    return filled(found, time.time(), UNASSIGNED, spec.name)


async def fetch_history(
    spec: ProtocolSpec,
    driver: Driver,
    log: EventLog,
    topic: Topic,
    start: tuple[str | MessageId, ...],
    since: float,
    most: int,
    patience: float | None,
    progress: Callable[[int], None] | None,
) -> FetchedHistory:
    """Get what others have of a topic into the log; `progress` hears every second how much came."""
    begun = _end_of(log, topic)
    work = asyncio.ensure_future(_fetched(spec, driver, topic, start, since, most))
    try:
        async with asyncio.timeout(patience):
            while not (await asyncio.wait((work,), timeout=_LOOK_SECONDS))[0]:
                if progress is not None:
                    progress(_end_of(log, topic) - begun)
    except TimeoutError:
        came = _end_of(log, topic) - begun
        raise OutOfTimeError(
            f"the history was not fetched within {patience:g} seconds; {came} events have come"
        ) from None
    finally:
        work.cancel()
    return work.result()


async def _fetched(
    spec: ProtocolSpec,
    driver: Driver,
    topic: Topic,
    start: tuple[str | MessageId, ...],
    since: float,
    most: int,
) -> FetchedHistory:
    if spec.topics is not None:
        command = spec.topics.fetch_history(topic, start, since, most)
        return spec.topics.fetched(await driver.command(command))
    if start or since or most:
        raise LocalError(
            f"events of {spec.name} have no links that one could follow so far and no further"
        )
    report = await sync_now(driver, (topic,), None)
    complete = 0 < report.asked == report.answered
    return FetchedHistory(report.events, answered=report.answered, complete=complete)


def _end_of(log: EventLog, topic: Topic) -> int:
    extent = log.topic(topic)
    return 0 if extent is None else extent.next_offset
