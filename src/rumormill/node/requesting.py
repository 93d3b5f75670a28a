"""Requests and replies, in plain terms of events.

A request is an event with two headers: `reply-to`, the topic in which replies are awaited, and
`correlation-id`, which each reply bears too. So everything that holds for events holds for them:
they are signed, kept, and spread by every protocol, and any program that can set headers takes
part. The rule: who waits for replies is bounded in number, in time, and in what may wait for it.

Replies to all requests of a topic share one topic, `TOPIC/replies`, which those who request and
those who reply stay in: a topic for each who asks would be one more overlay for each. Where topics
have to be created (Pulsarcast), replies travel in the topic itself, unless another is named.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from typing import Any, Final, Literal, Protocol

from rumormill.core.api import Receipt
from rumormill.core.bounded import remember
from rumormill.core.errors import LimitError, LocalError, OutOfTimeError
from rumormill.core.event import CORRELATION_ID, REPLY_TO, Event
from rumormill.core.ids import Topic as TopicName
from rumormill.core.rate_limit import RateLimit
from rumormill.protocols.registry import ProtocolSpec

REPLIES: Final = "/replies"
"""What the topic of replies to a topic's requests is called behind the topic's name."""

_MOST_REQUESTS: Final = 256
"""Our choice: requests of one node, or client, that wait for replies at a time."""
_MOST_WAITING: Final = 64
"""Replies that may wait for one who asked; others are read from the log."""
_MOST_TOPICS: Final = 256
"""Topics of replies that this node stays in."""
_ELSEWHERE: Final = 1024
_ELSEWHERE_EACH: Final = 60.0
"""Topics besides those that requests may have us reply in: so many at once, and one more in so
many seconds. Our choice: a log holds 100,000 topics for ever, and whoever asks makes up the name;
at this pace that takes two months."""
_MEETING: Final = 5.0
"""Seconds for which the first reply in a topic waits for whoever listens there."""


class Replied:
    """The topics in which a node, or client, has replied."""

    def __init__(self) -> None:
        self._stays: dict[TopicName, None] = {}
        self._elsewhere: dict[TopicName, None] = {}
        self._limit = RateLimit(1 / _ELSEWHERE_EACH, _ELSEWHERE)

    def stay(self, topic: TopicName) -> bool:
        """Note that the node stays in a topic; false if it did."""
        if topic in self._stays:
            return False
        remember(self._stays, topic, None, _MOST_TOPICS)
        return True

    def go(self, topic: TopicName, now: float) -> None:
        """Note that it replies in a topic that somebody chose; `LimitError` if that is too many."""
        if topic not in self._elsewhere and not self._limit.take(now):
            raise LimitError(
                f"requests have named {_ELSEWHERE} other topics to reply in, and more each minute:"
                f" {topic!r} is one too many"
            )
        remember(self._elsewhere, topic, None, _ELSEWHERE)


class AskedSubscription(Protocol):
    """What a request needs of a subscription."""

    async def __anext__(self) -> Event: ...

    def close(self) -> None:
        """End it."""


class Asks(Protocol):
    """What requests need of a node, here or elsewhere."""

    _requests: int
    _replied: Replied

    def _reply_topic(self, topic: TopicName) -> TopicName: ...

    def _is_own(self, event: Event) -> bool: ...

    async def subscribe(
        self,
        topic: TopicName,
        *,
        where: str | None,
        history: Literal["missed", "all", "none"] | None,
        buffer: int,
    ) -> AskedSubscription:
        """Follow a topic."""

    async def wait_until_ready(
        self,
        topic: TopicName,
        *,
        timeout: float,  # noqa: ASYNC109 (as in `Node`)
    ) -> None:
        """Wait for a subscriber."""

    async def publish(
        self,
        topic: TopicName,
        data: bytes | str,
        *,
        key: bytes | str | None,
        headers: Mapping[str, str] | None,
        content_type: str | None,
    ) -> Receipt:
        """Publish an event."""


class Request:
    """A request: `await` it for the first reply, or `async for` over all that come in time.

    It is published when it is awaited or iterated, each time anew.
    """

    def __init__(
        self,
        node: Asks,
        topic: TopicName,
        data: bytes | str,
        timeout: float,
        reply_to: TopicName,
        key: bytes | str | None,
        headers: Mapping[str, str],
        content_type: str | None,
    ) -> None:
        self._node = node
        self._topic = topic
        self._timeout = timeout
        self._reply_to = reply_to
        self._said = (data, key, headers, content_type)

    def __await__(self) -> Generator[Any, None, Event]:
        return self._first().__await__()

    async def _first(self) -> Event:
        async with contextlib.aclosing(self._replies()) as replies:
            async for reply in replies:
                return reply
        raise OutOfTimeError(
            f"no reply to the request in topic {self._topic!r} came within"
            f" {self._timeout:g} seconds"
        )

    async def all(self) -> list[Event]:
        """All replies that come in time."""
        return [reply async for reply in self._replies()]

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._replies()

    async def _replies(self) -> AsyncGenerator[Event, None]:
        """Listen, ask, and hand out what comes in time."""
        node, number = self._node, secrets.token_hex(12)
        if node._requests >= _MOST_REQUESTS:
            raise LimitError(f"{_MOST_REQUESTS} requests wait for replies already")
        node._requests += 1
        events: AskedSubscription | None = None
        end = asyncio.get_running_loop().time() + self._timeout
        try:
            mine = f'headers["{CORRELATION_ID}"] == "{number}" and not has headers["{REPLY_TO}"]'
            events = await node.subscribe(
                self._reply_to, where=mine, history="none", buffer=_MOST_WAITING
            )
            data, key, headers, content_type = self._said
            about = {**headers, REPLY_TO: self._reply_to, CORRELATION_ID: number}
            await node.publish(self._topic, data, key=key, headers=about, content_type=content_type)
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        reply = await events.__anext__()
                except (TimeoutError, StopAsyncIteration):
                    return
                yield reply
        finally:
            node._requests -= 1
            if events is not None:
                events.close()


class Requesting:
    """The calls of a node, here or elsewhere, that ask and answer by events."""

    def request(
        self: Asks,
        topic: TopicName,
        data: bytes | str = b"",
        *,
        timeout: float = 5.0,
        reply_to: TopicName | None = None,
        key: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Request:
        """Ask whoever subscribes to a topic: `await` it for the first reply, or `async for` over
        all replies that come within `timeout` seconds.

        It is an event like any other (see `publish`), with the headers `reply-to` and
        `correlation-id`; `reply` answers it. Without a reply in time, `await` raises
        `OutOfTimeError`, and the iteration ends. `reply_to` is the topic in which replies are
        awaited, `TOPIC/replies` unless given; in Pulsarcast the topic itself.
        """
        if not isinstance(timeout, int | float) or not 0 < timeout < 1e9:
            raise LocalError(f"timeout: {timeout!r} is not a number of seconds")
        where = self._reply_topic(topic) if reply_to is None else reply_to
        return Request(self, topic, data, timeout, where, key, headers or {}, content_type)

    async def reply(
        self: Asks,
        request: Event,
        data: bytes | str = b"",
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Receipt:
        """Answer an event that asks for it (`Event.reply_to`); return when that is safe in the log.

        The node stays in the topic of replies, if that is its request's own, and the first time
        waits some seconds until who listens there is known to it. `LocalError` if the event asks
        for none, or names what is no topic, or if events have named too many: whoever may publish
        may ask.
        """
        if not request.reply_to:
            raise LocalError(
                f"the event {request.id.hex()} of topic {request.topic!r} asks for no reply"
            )
        where = request.reply_to
        number = request.headers.get(CORRELATION_ID, "")
        if where != self._reply_topic(request.topic):
            self._replied.go(where, asyncio.get_running_loop().time())
        elif self._replied.stay(where):
            listening = await self.subscribe(where, where=None, history="none", buffer=1)
            listening.close()
            if not self._is_own(request):
                with contextlib.suppress(LocalError):  # then sync brings it, if in time
                    await self.wait_until_ready(where, timeout=_MEETING)
        about = {**(headers or {}), CORRELATION_ID: number}
        return await self.publish(where, data, key=key, headers=about, content_type=content_type)


def reply_topic(spec: ProtocolSpec, topic: TopicName) -> TopicName:
    """Where replies to requests in a topic travel, unless somebody says otherwise."""
    return topic if spec.topics is not None else topic + REPLIES
