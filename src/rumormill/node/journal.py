"""The journal: the one place where a node's machine and its log meet.

What the machine appends while the log is busy is the next batch, and one commit. When a batch is
safe its events are handed to subscribers in the order of their offsets, and the machine hears of
its barriers: what was published together spreads together, and a receipt leaves when both the disk
and the machine have spoken. Reads wait for the appends before them and are done by a thread, one
after the other, in bounded pieces. An event that the log has already is not handed out again: so a
restart, or a peer that sends old messages, repeats nothing.

When the log fails, nothing is stored or handed out any more, and everybody is told. A full disk is
no such failure: who publishes may try again, and of what peers brought, which does not come again,
is kept what fits.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

from msgspec.structs import force_setattr

from rumormill.core.api import Receipt
from rumormill.core.effects import Append, KeepNote, Load, Published
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import NEW, UNASSIGNED, Event, Kept, Note, filled
from rumormill.core.ids import MessageId, Parents, PeerId, Topic
from rumormill.core.inputs import Input, NotStored, Publish, Stored
from rumormill.log.calls import Outcome
from rumormill.log.errors import DiskFullError, EventRefusedError, QueueFullError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.model import Appended
from rumormill.node.change import Change
from rumormill.node.config import NodeConfig
from rumormill.node.delays import Delays
from rumormill.node.log_reader import LogReader
from rumormill.node.numbers import Numbers
from rumormill.node.publications import Publications, has_failed, settled
from rumormill.node.receipts import Receipts
from rumormill.node.subscription import Subscription
from rumormill.node.taken import DISK_FULL, LOG_BUSY, Taken, halves, misfits, regrets
from rumormill.node.topic_access import TopicAccess
from rumormill.node.waiting_notes import WaitingNotes, awaited

CLOSED: Final = "the node is closed"

_PART_EVENTS: Final = 256
_PART_BYTES: Final = 1 << 20
"""Our choice: how much of our own may wait for the disk, and not more than a quarter of a peer's
queue: then a queue that is not half full takes it when it is said."""

_RETRY: Final = 0.01
_ROOM_EVENTS: Final = 8192
_ROOM_BYTES: Final = 8 << 20
"""Our choice: what may wait for a log that is busy. Over it publishers wait, and peers are not read
from; each may still send what its window holds."""

_MAX_WAITING: Final = 100_000
"""Events that are never exceeded: those beyond are lost, and counted."""

_ENOUGH: Final = 128
_PUT_OFF: Final = 3
"""Our choice: of what peers bring in a burst, so many events are worth a commit of their own; for
fewer it is put off while there is more to be read, for so many turns of the loop at most."""


class Journal:
    """Between the machine, the log, the publishers and the subscribers of one node."""

    def __init__(
        self,
        log: EventLog,
        own: PeerId,
        protocol: str,
        config: NodeConfig,
        change: Change,
        access: TopicAccess,
    ) -> None:
        self.log = log
        self.failure: StoreError | None = None
        """Why nothing can be stored any more; publishing and subscribing raise it."""
        self.lost = 0
        """Events of peers that could not be stored because the log stayed busy or failed."""
        self.feed: Callable[[Input], None] = lambda _: None
        """Gives the machine an input."""
        self.congested: Callable[[], bool] = lambda: False
        """Whether peers cannot take what is published as fast as it comes."""
        self.on_room: Callable[[], None] = lambda: None
        """Called when nothing waits for the log any more."""
        self.more_comes: Callable[[], bool] = lambda: False
        """Whether peers have sent more, which is about to be read."""
        self.on_lost: Callable[[Event, str], None] = lambda *_: None
        self._own, self._access, self._protocol, self._change = own, access, protocol, change
        self._part_events = max(1, min(_PART_EVENTS, config.queue_messages // 4))
        self._part_bytes = min(_PART_BYTES, config.queue_bytes // 4)
        self._unsaid_events = self._unsaid_bytes = 0
        """What of our own waits for the disk, and is said all at once when it is safe."""
        self._loop = asyncio.get_running_loop()
        self._subscriptions: dict[Topic, dict[Subscription, None]] = {}
        self._numbers = count(1)
        self._orders: dict[int, asyncio.Future[Receipt]] = {}
        self.publications = Publications(self._orders)
        self._turn = asyncio.Lock()
        self._closed = self._flush_scheduled = False
        self._note: Note | None = None
        """What must be kept together with the event that is being published."""
        self._answers: dict[tuple[Topic, MessageId], Appended] = {}
        """Where the events of the barriers lie that the machine is being told of."""
        self.refusal: StoreError | None = None
        """Why the machine is being told that barriers are not stored."""
        self._waiting: list[Taken] = []
        self.notes, self.delays = WaitingNotes(self._schedule), Delays()
        self.in_flight = self._waiting_bytes = self._put_off = 0
        """How many batches are with the log, and what waits meanwhile."""
        self.taken = self._settled = 0
        """How many events and notes were taken, and of how many of them the fate is known."""
        self.reader, self.numbers = LogReader(log), Numbers(log)
        self.receipts = Receipts()
        self._drained: asyncio.Future[None] | None = None

    # Subscribers.

    def add(self, topic: Topic, subscription: Subscription) -> None:
        """Hand out a topic's events to a subscription from now on."""
        self._subscriptions.setdefault(topic, {})[subscription] = None

    def remove(self, topic: Topic, subscription: Subscription) -> bool:
        """Hand out a topic's events to a subscription no more; tell whether nobody takes them."""
        subscriptions = self._subscriptions.get(topic, {})
        subscriptions.pop(subscription, None)
        if not subscriptions:
            self._subscriptions.pop(topic, None)
        return not subscriptions

    def all_subscriptions(self) -> list[Subscription]:
        """Everybody who is given events."""
        return [*dict.fromkeys(each for topic in self._subscriptions.values() for each in topic)]

    # Publishers.

    def publish(self, topic: Topic, data: bytes, parents: Parents = ()) -> Awaitable[Receipt]:
        """Publish one event; its receipt comes when it is safe and the machine has spread it."""
        if self._turn.locked() or self._is_congested():
            return self._publish_later(topic, data, parents)
        wish, order = self._ordered(topic, data, None, parents)
        self.publications.wishes.append(wish)
        self.publications.size += len(data)
        self._schedule()
        return order

    async def _publish_later(self, topic: Topic, data: bytes, parents: Parents) -> Receipt:
        await self._wait_for_room()
        return await self._begin(topic, data, None, parents)

    async def publish_many(
        self, items: Iterable[tuple[Topic, bytes, Note | None]], parents: Parents = ()
    ) -> list[Receipt]:
        """Publish events in this order, until one fails; all follow the same parents.

        An event with a note is kept with it: a node that dies has published what its notes say.
        """
        orders: list[asyncio.Future[Receipt]] = []
        refused: RumormillError | None = None
        try:
            for topic, data, note in items:
                if self._turn.locked() or self._is_congested():
                    await self._wait_for_room()
                    if has_failed(orders[-2 * _PART_EVENTS :]):  # no more are under way
                        break
                try:
                    orders.append(self._begin(topic, data, note, parents))
                except RumormillError as error:
                    refused = error
                    break
            return await settled(orders, refused)
        finally:
            for order in orders:
                order.cancel()

    def _ordered(
        self, topic: Topic, data: bytes, note: Note | None, parents: Parents
    ) -> tuple[Publish, asyncio.Future[Receipt]]:
        """A publication for the machine; its receipt comes when that has an answer."""
        if self._closed:
            raise LocalError(CLOSED)
        if self.failure is not None:
            raise self.failure
        data = self._access.prepared(topic, data)
        number = next(self._numbers)
        order = self._orders[number] = self._loop.create_future()
        return Publish(topic, data, number, note is not None, parents), order

    def _begin(
        self, topic: Topic, data: bytes, note: Note | None, parents: Parents
    ) -> asyncio.Future[Receipt]:
        """Give the machine a publication now, behind those that wait."""
        self.publications.give()
        wish, order = self._ordered(topic, data, note, parents)
        self._note = note
        try:
            self.feed(wish)
        except RumormillError:
            del self._orders[wish.number]
            raise
        finally:
            self._note = None
        return order

    def published(self, effect: Published) -> None:
        """The machine's answer to a publication."""
        order = self._orders.pop(effect.number, None)
        if order is None or order.done():
            return
        event = effect.event
        if event is None or effect.error:
            order.set_exception(self.refusal or LocalError(effect.error))
            return
        order.set_result(self.receipts.make(effect, event, self._answers))

    def _is_congested(self) -> bool:
        """Whether a publisher must wait: for the disk, or for peers."""
        return (
            self._unsaid_events + len(self.publications.wishes) >= self._part_events
            or self._unsaid_bytes + self.publications.size >= self._part_bytes
            or self.is_full()
            or self.congested()
        )

    async def _wait_for_room(self) -> None:
        """Wait until nobody is congested, in the order of asking: one looks, the others queue."""
        async with self._turn:
            while self._is_congested() and not self._closed and self.failure is None:
                await self._change.wait()

    # What the machine appends.

    def append(self, effect: Append, when: float) -> None:
        """Store an event that came at a time, with the note of whoever is publishing it."""
        event, waiting = effect.event, self._waiting
        size, own, barrier = len(event.data), False, effect.barrier
        self.taken += 1
        if barrier is not None:
            own = event.author == self._own or not event.author or bool(event.parents)
            if own:
                self._unsaid_events += 1
                self._unsaid_bytes += size
                self.numbers.use(effect.seqno, event, when)
        if len(waiting) >= _MAX_WAITING or self.failure is not None:
            error = self.failure or QueueFullError(LOG_BUSY)
            self._loop.call_soon(self._lose, [Taken(event, effect, own)], error)
            return
        self._waiting_bytes += size
        received = filled(event, when, NEW if effect.new else UNASSIGNED, self._protocol)
        note, self._note = (None, self._note) if barrier is None else (self._note, None)
        waiting.append(Taken(received, effect, own, note))
        if not self._flush_scheduled:
            self._schedule()

    def keep_note(self, effect: KeepNote) -> None:
        """Keep a note or a record of the machine's own."""
        self.taken += self.notes.add(effect.note)

    def is_full(self) -> bool:
        """Whether so much waits for the log that peers should not send more."""
        return len(self._waiting) > _ROOM_EVENTS or self._waiting_bytes > _ROOM_BYTES

    def _schedule(self, delay: float = 0.0) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            if delay:
                self._loop.call_later(delay, self._flush)
            else:
                self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Give the log what came since it was given the last batch, if it is done with that."""
        self.publications.give()
        self._flush_scheduled = False
        if self.in_flight:
            return
        few = not self._unsaid_events and len(self._waiting) < _ENOUGH
        if few and self._put_off < _PUT_OFF and self.more_comes():
            self._put_off += 1
            self._schedule()
            return
        self._put_off = 0
        batch, notes = self._waiting, self.notes.take()
        self._waiting, self._waiting_bytes = [], 0
        if batch or notes:
            self._store(batch, notes)
        if not self._waiting:
            self.on_room()

    def _store(self, batch: list[Taken], notes: list[Kept]) -> None:
        """Append a batch; what the log has no room for waits, what it refuses is found."""
        noted = [each.note for each in batch if each.note is not None]
        kept = [*notes, *noted, *self.numbers.note()]
        tell = partial(self._tell, self._on_done, (batch, notes))
        try:
            places = self.log.append_soon([each.event for each in batch], kept, tell)
        except QueueFullError:
            self._put_back(batch, notes)
            self._schedule(_RETRY)
        except EventRefusedError as error:
            bad = misfits(batch, self.log)
            if not bad:  # each is good, and all of them too many
                first, rest = halves(batch)
                self._put_back(rest, notes)
                self._store(first, [])
                return
            self._put_back([each for each in batch if each not in bad], notes)
            own = self._with_followers([each for each in bad if each.own])
            self._lose([*own, *(each for each in bad if not each.own)], error)
            self._note_progress()
        except StoreError as error:
            self._settled += self.notes.lose(notes, error)
            self._fail(batch, error)
            self._note_progress()
        else:
            self.in_flight += 1
            if places is not None:
                self._on_told(self._on_done, (batch, notes), places)

    def _put_back(self, batch: list[Taken], notes: list[Kept]) -> None:
        self._waiting[:0] = batch
        self.notes.put_back(notes)
        self._waiting_bytes += sum(len(each.event.data) for each in batch)

    def _with_followers(self, lost: list[Taken]) -> list[Taken]:
        """Lost events, and those that wait and follow one (`Taken.followers`): none is stored
        without what it follows. So one batch at a time is with the log."""
        linked = Taken.followers(lost, self._waiting)
        self._waiting = [taken for taken in self._waiting if taken not in linked]
        self._waiting_bytes -= sum(len(each.event.data) for each in linked)
        return lost + linked

    def _tell(self, *told: Any) -> None:
        """In the log's thread: have the loop hear of an append that the log is done with."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(self._on_told, *told)

    def _on_told(self, then: Callable[..., None], args: tuple[Any, ...], outcome: Outcome) -> None:
        self.in_flight -= 1
        then(*args, outcome)
        self._note_progress()

    def _on_done(self, batch: list[Taken], notes: list[Kept], outcome: Outcome) -> None:
        if isinstance(outcome, StoreError):
            self._settled += self.notes.lose(notes, outcome)
            self._fail(batch, outcome)
        else:
            self._settled += awaited(notes)
            self.numbers.noted()
            self._hand_out(batch, outcome)

    def _hand_out(self, batch: list[Taken], places: Sequence[Appended]) -> None:
        """Give safe events to their subscribers, and the machine word of its barriers."""
        self._settled += len(batch)
        barriers, came = [], []
        answers, opened, subscriptions = self._answers, self._access.opened, self._subscriptions
        for taken, place in zip(batch, places, strict=True):
            event, append = taken.event, taken.append
            if not place.duplicate:
                if not taken.own:
                    came.append(event)
                if event.topic in subscriptions:
                    takers: Iterable[Subscription] = subscriptions[event.topic]
                    if not append.deliver:
                        takers = [each for each in takers if each.reads_log]
                    force_setattr(event, "offset", place.offset)  # a copy that only we have
                    if takers and (readable := opened(event)) is not None:
                        for subscription in takers:
                            subscription.offer(readable)
            if append.barrier is not None:
                barriers.append(append.barrier)
                answers[event.topic, event.id] = place
        self._let_say(batch)
        self.delays.add(came)
        if barriers:
            self.feed(Stored(tuple(barriers)))
            answers.clear()
            self._change.happened()

    def _let_say(self, batch: list[Taken]) -> None:
        """What of a batch is our own waits for the disk no more."""
        own = [len(taken.event.data) for taken in batch if taken.own]
        self._unsaid_events -= len(own)
        self._unsaid_bytes -= sum(own)

    # What cannot be stored.

    def _fail(self, batch: list[Taken], error: StoreError) -> None:
        """A batch is lost, except for what still fits a full disk; lasting trouble is noted."""
        batch = self._with_followers(batch)
        if isinstance(error, DiskFullError):
            of_peers = [taken for taken in batch if not taken.own]
            if len(of_peers) > 1:
                batch = [taken for taken in batch if taken.own]
                self._keep_what_fits(halves(of_peers))
        else:
            self.failure = error
            for subscription in self.all_subscriptions():
                subscription.fail(error)
        self._lose(batch, error)

    def _lose(self, batch: list[Taken], error: StoreError) -> None:
        """Tell the machine of its barriers, which it answers for; count what peers brought."""
        self._settled += len(batch)
        reason, barriers = regrets(batch, error)
        self._let_say(batch)
        for taken in batch:
            if not taken.own:
                self.lost += 1
                if taken.append.barrier is None:
                    self.on_lost(taken.event, reason)
        if barriers:
            self.refusal = error
            self.feed(NotStored(barriers, reason))
            self.refusal = None
            self._change.happened()

    def _keep_what_fits(self, pieces: list[list[Taken]], too_large: float = math.inf) -> None:
        """Store, one after the other, the pieces of a batch that was too much for the disk.

        A piece that does not fit is cut in halves. An event that does not fit even alone says that
        none of its size does: those are given up, so a full disk is asked a few times only.
        """
        piece: list[Taken] = []
        while pieces and not piece:
            following = pieces.pop(0)
            piece = [taken for taken in following if len(taken.event.data) < too_large]
            hopeless = [taken for taken in following if len(taken.event.data) >= too_large]
            self._lose(hopeless, DiskFullError(DISK_FULL))
        if not piece:
            return
        tell = partial(self._tell, self._on_piece, (piece, pieces, too_large))
        try:
            self.log.append_soon([each.event for each in piece], (), tell, at_once=False)
        except StoreError as error:
            self._lose([*piece, *(taken for rest in pieces for taken in rest)], error)
        else:
            self.in_flight += 1

    def _on_piece(
        self, piece: list[Taken], pieces: list[list[Taken]], too_large: float, outcome: Outcome
    ) -> None:
        if not isinstance(outcome, StoreError):
            self._hand_out(piece, outcome)
        elif not isinstance(outcome, DiskFullError):
            rest = [taken for following in pieces for taken in following]
            self._fail([*piece, *rest], outcome)
            pieces = []
        elif len(piece) > 1:
            pieces = halves(piece) + pieces
        else:
            too_large = min(too_large, len(piece[0].event.data))
            self._lose(piece, outcome)
        self._keep_what_fits(pieces, too_large)

    # What the machine reads.

    def load(self, effect: Load) -> None:
        """Read behind what was appended so far; `Loaded` answers."""
        self.reader.load(effect, self.feed, behind=self.taken)
        self.reader.go_on(self._settled)

    # The end.

    def _note_progress(self) -> None:
        """Let `drain` look again, the next batch go, and reads that waited for appends begin."""
        if self._waiting or self.notes.pressing:
            self._schedule()
        self.reader.go_on(self._settled)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def close(self) -> None:
        """Refuse what is published from now on; what has been taken is stored."""
        self._closed = True

    async def drain(self) -> None:
        """Wait until everything that was taken is safe or has failed."""
        self.publications.give()
        while (self._waiting or self.notes or self.in_flight) and self.failure is None:
            self._drained = self._loop.create_future()
            self.notes.press()
            await self._drained

    def stop(self) -> None:
        """Let go of the reader's thread, and of publishers who will get no answer any more."""
        self.reader.close()
        for order in self._orders.values():
            if not order.done():
                order.set_exception(LocalError(CLOSED))
        self._orders.clear()
