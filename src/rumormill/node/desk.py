"""The desk where events are made durable and handed out.

Every event that a node publishes or receives in its topics goes into the log first. Events that
arrive within one turn of the loop are appended together, and the log's writer joins appends into
group commits. When an append is safe, its events are handed to subscribers in the order of their
offsets, and publishers get their receipts. An event that the log has already is not handed out
again: so a restart, or a peer that sends old messages, repeats nothing. That also holds for an
event that was kept without being handed out: to hand it out later, do not keep it before.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic
from rumormill.log.errors import DiskFullError, EventRefusedError, QueueFullError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.model import Appended, StoredEvent
from rumormill.log.notes import Note
from rumormill.log.writer import Ticket
from rumormill.node.rescue import Rescue
from rumormill.node.subscription import Subscription

LOG_BUSY: Final = "the log is busy"
LOG_FAILED: Final = "the log has failed"
DISK_FULL: Final = "the disk is full"
EVENT_REFUSED: Final = "the log refuses the event"
"""Why an event that a peer brought was not kept, and so not handed out."""

_RETRY: Final = 0.01
_ROOM_EVENTS: Final = 8192
_ROOM_BYTES: Final = 8 << 20
"""Our choice: what may wait for a log that is busy. Over it, peers are not read from; each may
still send what its window holds."""

_MAX_WAITING: Final = 100_000
"""Events that are never exceeded: those beyond are lost, and counted."""


class _Silent:
    """Marks an event that nobody publishes and nobody gets."""


SILENT: Final = _Silent()

_Taken: TypeAlias = "tuple[StoredEvent, asyncio.Future[Appended] | _Silent | None]"


class NotedFuture(asyncio.Future[Appended]):
    """What the publisher of an event waits for, with a note that is kept together with it."""

    def __init__(self, note: Note, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.note = note


class Desk:
    """Between the protocol and the store, and between the store and the subscribers."""

    def __init__(self, log: EventLog, protocol: str, now: Callable[[], float]) -> None:
        self.log = log
        self.failure: StoreError | None = None
        """Why nothing can be stored any more; publishing and subscribing raise it."""
        self._protocol = protocol
        self._now = now
        self._loop = asyncio.get_running_loop()
        self.unsafe: dict[tuple[Topic, MessageId], StoredEvent] | None = None
        """Where those who read back what was kept find what is not in the log yet."""
        self._subscriptions: dict[Topic, dict[Subscription, None]] = {}
        self._waiting: list[_Taken] = []
        self._waiting_bytes = 0
        self._flush_scheduled = False
        self._in_flight = 0
        self.on_room: Callable[[], None] = lambda: None
        """Called when nothing waits for the log any more."""
        self._drained: asyncio.Future[None] | None = None
        self.on_lost: Callable[[MessageId, Topic, str], None] = lambda *_: None
        self.lost = 0
        """Events of peers that could not be stored because the log stayed busy or failed."""

    # Subscribers.

    def add(self, subscription: Subscription) -> None:
        """Hand out a topic's events to a subscription from now on."""
        self._subscriptions.setdefault(subscription.topic, {})[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """Hand out nothing more to a subscription."""
        subscriptions = self._subscriptions.get(subscription.topic, {})
        subscriptions.pop(subscription, None)
        if not subscriptions:
            self._subscriptions.pop(subscription.topic, None)

    def all_subscriptions(self) -> list[Subscription]:
        """Everybody who is subscribed."""
        return [each for topic in self._subscriptions.values() for each in topic]

    # Events.

    def take(self, event: Event) -> None:
        """Store an event that a peer brought, then hand it out."""
        self._take(event, None)

    def keep(self, event: Event) -> None:
        """Store an event that others shall find here, and hand it out to nobody."""
        self._take(event, SILENT)

    def _take(self, event: Event, publisher: "_Silent | None") -> None:
        if self.failure is not None or len(self._waiting) >= _MAX_WAITING:
            self._lose(event.id, event.topic, LOG_BUSY if self.failure is None else LOG_FAILED)
            return
        self._waiting.append((self._stored(event), publisher))
        self._schedule()

    def take_own(self, event: Event, done: "asyncio.Future[Appended]") -> None:
        """Store an event of our own, then hand it out; `done` gets the result when it is safe."""
        self._waiting.append((self._stored(event), done))
        self._schedule()

    def is_full(self) -> bool:
        """Whether so much waits for the log that peers should not send more."""
        return len(self._waiting) > _ROOM_EVENTS or self._waiting_bytes > _ROOM_BYTES

    def _stored(self, event: Event) -> StoredEvent:
        self._waiting_bytes += len(event.data)
        stored = StoredEvent(
            event.topic,
            event.id,
            event.author,
            event.data,
            self._now(),
            event.created,
            event.parents,
            self._protocol,
            event.proof,
        )
        if self.unsafe is not None:
            self.unsafe[stored.topic, stored.id] = stored
        return stored

    def _forget(self, batch: list["_Taken"]) -> None:
        """These events are in the log, or lost."""
        unsafe = self.unsafe
        if unsafe is not None:
            for event, _ in batch:
                if unsafe.get((event.topic, event.id)) is event:
                    del unsafe[event.topic, event.id]

    def _schedule(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        batch, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if batch:
            self._append(batch)
        if not self._waiting:
            self.on_room()

    def _append(self, batch: list["_Taken"]) -> None:
        try:
            if self._waiting:
                raise QueueFullError("what came before is still waiting")
            notes = [each.note for _, each in batch if isinstance(each, NotedFuture)]
            ticket = self.log.append([event for event, _ in batch], wait=False, notes=notes)
        except QueueFullError:
            self._waiting.extend(batch)
            self._waiting_bytes += sum(len(event.data) for event, _ in batch)
            if not self._flush_scheduled:
                self._flush_scheduled = True
                self._loop.call_later(_RETRY, self._flush)
            return
        except EventRefusedError as error:
            self._refuse(batch, error)
            return
        except StoreError as error:
            self._fail(batch, error)
            return
        self._in_flight += 1
        ticket.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._on_safe, batch, done)
        )

    def _refuse(
        self,
        batch: list["_Taken"],
        error: EventRefusedError,
    ) -> None:
        """A batch is too large, or one event of it impossible: find it, and store the others."""
        middle = len(batch) // 2
        if middle:
            self._append(batch[:middle])
            self._append(batch[middle:])
            return
        self._note_progress()
        self._forget(batch)
        ((event, publisher),) = batch
        self._tell_lost(event, publisher, EVENT_REFUSED, error)

    def _on_safe(self, batch: list["_Taken"], ticket: Ticket) -> None:
        self._in_flight -= 1
        self._note_progress()
        error = ticket.exception()
        if error is not None:
            self._fail(batch, _store_error(error))
            return
        self._hand_out(batch, ticket.result())

    def _hand_out(self, batch: list["_Taken"], results: Sequence[Appended]) -> None:
        """Tell publishers and subscribers of events that are safe."""
        self._forget(batch)
        for (event, publisher), appended in zip(batch, results, strict=True):
            if publisher is SILENT:
                continue
            if isinstance(publisher, asyncio.Future) and not publisher.done():
                publisher.set_result(appended)
            if not appended.duplicate:
                for subscription in self._subscriptions.get(event.topic, ()):
                    subscription.offer(event, appended.offset)

    def _fail(
        self,
        batch: list["_Taken"],
        error: StoreError,
    ) -> None:
        """Tell everybody concerned that a batch is lost; every failure but a full disk stays.

        Of a batch that finds the disk full, our own events are lost: who publishes can try again.
        Those of peers do not come again, so what fits of them is kept.
        """
        lasting = not isinstance(error, DiskFullError)
        if lasting:
            self.failure = error
        elif len(batch) > 1:
            of_peers = [taken for taken in batch if not isinstance(taken[1], asyncio.Future)]
            if of_peers:
                self._keep_what_fits(of_peers)
            batch = [taken for taken in batch if isinstance(taken[1], asyncio.Future)]
        self._note_progress()
        self._forget(batch)
        for event, publisher in batch:
            self._tell_lost(event, publisher, LOG_FAILED if lasting else DISK_FULL, error)
        if lasting:
            for subscription in self.all_subscriptions():
                subscription.fail(error)

    def _keep_what_fits(self, batch: list["_Taken"]) -> None:
        rescue = Rescue(batch, self._find_no_room)
        self._in_flight += 1
        self._go_on(rescue)

    def _go_on(self, rescue: Rescue["_Taken"]) -> None:
        """Store the next piece of a batch that was too much for the disk."""
        piece = rescue.next_piece()
        if not piece:
            self._in_flight -= 1
            self._note_progress()
            return
        try:
            ticket = self.log.append([event for event, _ in piece], wait=False)
        except QueueFullError:
            self._find_no_room([*piece, *rescue.rest()], LOG_BUSY)
            self._go_on(rescue)
            return
        except StoreError as error:
            self._in_flight -= 1
            self._fail([*piece, *rescue.rest()], error)
            return
        ticket.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._on_piece, rescue, piece, done)
        )

    def _on_piece(self, rescue: Rescue["_Taken"], piece: list["_Taken"], ticket: Ticket) -> None:
        error = ticket.exception()
        if error is None:
            self._hand_out(piece, ticket.result())
        elif isinstance(error, DiskFullError):
            rescue.did_not_fit(piece)
        else:
            self._in_flight -= 1
            self._fail([*piece, *rescue.rest()], _store_error(error))
            return
        self._go_on(rescue)

    def _find_no_room(self, batch: list["_Taken"], reason: str = DISK_FULL) -> None:
        self._forget(batch)
        for event, _ in batch:
            self._lose(event.id, event.topic, reason)

    def _tell_lost(
        self,
        event: StoredEvent,
        publisher: "asyncio.Future[Appended] | _Silent | None",
        reason: str,
        error: StoreError,
    ) -> None:
        if not isinstance(publisher, asyncio.Future):
            self._lose(event.id, event.topic, reason)
        elif not publisher.done():
            publisher.set_exception(error)

    def _lose(self, message_id: MessageId, topic: Topic, reason: str) -> None:
        self.lost += 1
        self.on_lost(message_id, topic, reason)

    def _note_progress(self) -> None:
        """Let `drain` look again."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def drain(self) -> None:
        """Wait until everything that was taken is safe or has failed."""
        while (self._waiting or self._in_flight) and self.failure is None:
            self._drained = self._loop.create_future()
            await self._drained


def _store_error(error: BaseException) -> StoreError:
    return error if isinstance(error, StoreError) else StoreError(str(error))
