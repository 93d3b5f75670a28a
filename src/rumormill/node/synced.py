"""What an application says of sync: which history it wants, when it wants to know, how many copies.

Followed topics are remembered in the log's notes, so that a node can take them up again.
"""

import asyncio
import math
from typing import Final, Literal

import msgspec

from rumormill.core.api import Completeness, Receipt
from rumormill.core.effects import KeepNote
from rumormill.core.errors import ConfigError, LocalError, OutOfTimeError
from rumormill.core.event import Note
from rumormill.core.ids import Topic
from rumormill.log.event_log import EventLog
from rumormill.log.notes import read_note, read_notes
from rumormill.node.driver import Driver
from rumormill.sync.copies import CountCopies
from rumormill.sync.following import NOT_KEPT, Remember
from rumormill.sync.wishes import SyncNow, SyncReport

_HISTORIES: Final[dict[str, float | None]] = {"missed": None, "all": 0.0, "none": math.inf}
_FOLLOWED: Final = "followed/"
_NOTES_AT_ONCE: Final = 256


def wanted_since(
    history: Literal["missed", "all", "none"] | None, since: float | None
) -> float | None:
    """From when on events are wanted (`Subscribe.since`)."""
    if since is not None:
        if history is not None:
            raise ConfigError("history and since: give one of them")
        if not 0 <= since < math.inf:
            raise ConfigError(f"since: {since!r} is not a time in seconds since 1970")
        return since
    if history is not None and history not in _HISTORIES:
        raise ConfigError(f"history: {history!r} is not one of {', '.join(_HISTORIES)}")
    return _HISTORIES[history or "missed"]


def completeness_of(driver: Driver, topic: Topic) -> Completeness:
    """What the machine knows of a topic's completeness."""
    view, now = driver.machine.view(), driver.now()
    compared, lacking = view.compared.get(topic), view.lacking.get(topic)
    return Completeness(
        None if compared is None else now - compared,
        None if lacking is None else now - lacking,
        view.backlog.get(topic, 0),
    )


async def sync_now(driver: Driver, topics: tuple[Topic, ...], seconds: float | None) -> SyncReport:
    """Compare topics with all connected nodes."""
    try:
        async with asyncio.timeout(seconds):
            report = await driver.command(SyncNow(topics))
    except TimeoutError:
        raise OutOfTimeError(f"not every node has answered after {seconds:g} seconds") from None
    assert isinstance(report, SyncReport)
    return report


async def remembered(driver: Driver, topic: Topic, *, followed: bool) -> None:
    """Wait until a node that is killed would know since when it follows a topic, and that it has to
    take it up again if it is `followed`."""
    journal = driver.journal
    try:
        await driver.command(Remember(topic))
        in_doubt = followed and journal.notes.trouble is not None
        if in_doubt and not await asyncio.to_thread(read_note, journal.log, _FOLLOWED + topic):
            raise LocalError(f"{topic!r}: {NOT_KEPT}")
    except LocalError as error:
        trouble = journal.notes.trouble if NOT_KEPT in str(error) else None
        raise journal.failure or trouble or error from None


async def with_copies(driver: Driver, receipt: Receipt, copies: int, seconds: float) -> Receipt:
    """Wait until other nodes have an event."""
    command = CountCopies(receipt.topic, receipt.id, copies, seconds)
    found = await driver.command(command)
    assert isinstance(found, int)
    if found < copies:
        raise OutOfTimeError(
            f"{found} of {copies} other nodes have stored the event after {seconds:g} seconds; it"
            f" is published, and safe here at offset {receipt.offset}"
        )
    msgspec.structs.force_setattr(receipt, "copies", found)  # the same one, which stays true
    return receipt


def followed_note(topic: Topic, followed: bool) -> KeepNote:
    """What remembers that a topic is followed, or that it no longer is."""
    return KeepNote(Note(_FOLLOWED + topic, b"1" if followed else b""))


def followed_topics(log: EventLog) -> list[Topic]:
    """The topics that were followed last."""
    found: list[Topic] = []
    after = ""
    while notes := read_notes(log, _FOLLOWED, after, _NOTES_AT_ONCE):
        found += [note.key.removeprefix(_FOLLOWED) for note in notes if note.value]
        after = notes[-1].key
    return found
