"""Consumers of named subscriptions: on a node of this process, over the socket, and for a client.

A consumer is given what it asks for, and no more, so that none holds what another could do. On the
socket each has a connection of its own; whatever it has not acknowledged when the connection ends,
however it ends, is given to another.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from rumormill.core.errors import RumormillError
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_errors import error_of, refusal_of
from rumormill.daemon.served_node import ServedNode, ServedSubscription

MOST_AT_ONCE: Final = messages.BATCH_EVENTS


class Consumer(ABC):
    """One of those who share the work of a named subscription."""

    @abstractmethod
    async def take(self, most: int) -> messages.Given:
        """Wait for events, at most so many; none at the end."""

    @abstractmethod
    async def settle(self, offsets: Sequence[int], *, back: bool = False) -> messages.Settled:
        """Acknowledge events; return when that is safe. Or give them back."""

    @abstractmethod
    async def close(self) -> None:
        """End; what was not acknowledged is for the others."""


class NodeConsumer(Consumer):
    """A consumer on a node of this process."""

    def __init__(self, subscription: ServedSubscription) -> None:
        self._subscription = subscription

    async def take(self, most: int) -> messages.Given:
        """Take events, within the limits of a batch."""
        events = await self._subscription.batch(max(1, min(most, MOST_AT_ONCE)))
        kept, size = 0, 0
        for event in events:
            size += len(event.data)
            if kept and size > messages.BATCH_BYTES:
                break
            kept += 1
        if kept < len(events):  # they come again, to whoever asks
            await self._subscription.nack(*events[kept:])
        given = self._subscription
        return messages.Given(events[:kept], given.dropped, given.pending, given.lag)

    async def settle(self, offsets: Sequence[int], *, back: bool = False) -> messages.Settled:
        """Acknowledge events, or give them back; of none, nothing is said."""
        given, error = self._subscription, None
        if back and offsets:
            await given.nack(*offsets)
        elif offsets:
            try:
                await given.ack(*offsets)
            except RumormillError as failure:
                error = refusal_of(failure)
        return messages.Settled(given.pending, given.lag, error)

    async def close(self) -> None:
        """End."""
        self._subscription.close()


async def serve_consumer(
    consumer: Consumer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Do what a client asks of its named subscription until it hangs up, or it has ended."""
    taking: asyncio.Task[None] | None = None
    asking: asyncio.Task[messages.Request | None] | None = None

    async def give(most: int) -> None:
        given = await consumer.take(most)
        writer.write(messages.encode(given))
        await writer.drain()

    try:
        while True:
            if asking is None:
                asking = asyncio.ensure_future(messages.read_request(reader))
            waited = {asking} if taking is None else {asking, taking}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if taking is not None and taking.done():
                taking.result()
                taking = None
            if not asking.done():
                continue
            request, asking = asking.result(), None
            if request is None:
                return
            if isinstance(request, messages.Take) and taking is None:
                taking = asyncio.ensure_future(give(request.most))
            elif isinstance(request, messages.Settle):
                settled = await consumer.settle(request.offsets, back=request.back)
                writer.write(messages.encode(settled))
                await writer.drain()
            else:
                raise messages.ControlError(
                    "a named subscription takes one request for events at a time, and"
                    " acknowledgements",
                    "usage",
                )
    finally:
        left = [each for each in (taking, asking) if each is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await consumer.close()


async def answer_groups(
    node: ServedNode, request: messages.ListGroups | messages.ForgetGroup
) -> messages.Answer:
    """List named subscriptions, or forget one."""
    if isinstance(request, messages.ListGroups):
        return messages.GroupList(node.groups())
    await node.forget_group(request.topic, request.name)
    return messages.Done()


class RemoteConsumer(Consumer):
    """A consumer behind a socket, on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()
        self._taking: asyncio.Future[messages.Given] | None = None
        self._settling: deque[asyncio.Future[messages.Settled]] = deque()
        self._end: RumormillError | None = None
        self._listening = asyncio.ensure_future(self._listen())

    async def take(self, most: int) -> messages.Given:
        """Ask for events; those of an interrupted wait are given to the next."""
        async with self._turn:
            if self._taking is None:
                self._taking = self._asked()
                self._say(messages.Take(most))
            given = await asyncio.shield(self._taking)
            self._taking = None
            return given

    async def settle(self, offsets: Sequence[int], *, back: bool = False) -> messages.Settled:
        """Say what is done with."""
        answer: asyncio.Future[messages.Settled] = self._asked()
        self._settling.append(answer)
        self._say(messages.Settle([*offsets], back))
        return await asyncio.shield(answer)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._finish(messages.ControlError("the subscription is closed", "ended"))

    def _asked(self) -> "asyncio.Future[Any]":
        if self._end is not None:
            raise self._end
        return asyncio.get_running_loop().create_future()

    def _say(self, request: messages.Request) -> None:
        self._writer.write(messages.encode(request))

    async def _listen(self) -> None:
        """Give each answer to who waits for it, until the daemon hangs up."""
        end: RumormillError = messages.ControlError("the daemon has stopped", "gone")
        try:
            while answer := await messages.read_answer(self._reader):
                match answer:
                    case messages.Given() if self._taking is not None:
                        self._taking.set_result(answer)
                    case messages.Settled() if self._settling:
                        self._settling.popleft().set_result(answer)
                    case messages.Refused() as refused:
                        end = error_of(refused)
                        break
        except RumormillError as error:
            end = error
        self._finish(end)

    def _finish(self, end: RumormillError) -> None:
        """Let nobody wait any more."""
        self._end = self._end or end
        waiting: list[asyncio.Future[Any]] = [*self._settling]
        if self._taking is not None:
            waiting.append(self._taking)
        for each in waiting:
            if not each.done():
                each.set_exception(self._end)
                each.exception()  # who waited may be gone
        self._settling.clear()
