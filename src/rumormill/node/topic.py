"""A topic of a node as an object: the node's calls without the topic's name."""

from collections.abc import Iterable
from typing import Protocol

from rumormill.core.api import Receipt
from rumormill.core.event import Event
from rumormill.node.subscription import Overflow, Subscription
from rumormill.node.validation import TopicValidator


class _TopicNode(Protocol):
    """The calls of a `Node` that are about one topic."""

    def subscribers(self, topic: str) -> int: ...

    async def publish(self, topic: str, data: bytes) -> Receipt: ...

    async def publish_many(self, topic: str, items: Iterable[bytes]) -> list[Receipt]: ...

    async def subscribe(
        self, topic: str, *, since_offset: int | None, buffer: int, overflow: Overflow | str
    ) -> Subscription: ...

    async def unsubscribe(self, topic: str) -> None: ...

    async def history(
        self, topic: str, *, since_offset: int, since: float | None, limit: int | None
    ) -> list[Event]: ...

    async def wait_until_ready(
        self,
        topic: str,
        *,
        peers: int,
        timeout: float | None,  # noqa: ASYNC109 (as in `Node`)
    ) -> None: ...

    def set_validator(self, topic: str, validator: TopicValidator | None) -> None: ...


class Topic:
    """One topic of one node. It holds nothing: two handles of one name are the same topic."""

    __slots__ = ("name", "node")

    def __init__(self, node: _TopicNode, name: str) -> None:
        self.node = node
        self.name = name

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    @property
    def subscribers(self) -> int:
        """How many connected peers subscribe to it."""
        return self.node.subscribers(self.name)

    async def publish(self, data: bytes) -> Receipt:
        """Publish an event (`Node.publish`)."""
        return await self.node.publish(self.name, data)

    async def publish_many(self, items: Iterable[bytes]) -> list[Receipt]:
        """Publish events in the order given (`Node.publish_many`)."""
        return await self.node.publish_many(self.name, items)

    async def subscribe(
        self,
        *,
        since_offset: int | None = None,
        buffer: int = 1024,
        overflow: Overflow | str = Overflow.CATCH_UP,
    ) -> Subscription:
        """Follow its events (`Node.subscribe`)."""
        return await self.node.subscribe(
            self.name, since_offset=since_offset, buffer=buffer, overflow=overflow
        )

    async def unsubscribe(self) -> None:
        """Leave it and end its subscriptions (`Node.unsubscribe`)."""
        await self.node.unsubscribe(self.name)

    async def history(
        self, *, since_offset: int = 0, since: float | None = None, limit: int | None = None
    ) -> list[Event]:
        """Read its events from the log (`Node.history`)."""
        return await self.node.history(
            self.name, since_offset=since_offset, since=since, limit=limit
        )

    async def wait_until_ready(
        self,
        *,
        peers: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109 (as in `Node`)
    ) -> None:
        """Wait until so many peers subscribe to it (`Node.wait_until_ready`)."""
        await self.node.wait_until_ready(self.name, peers=peers, timeout=timeout)

    def set_validator(self, validator: TopicValidator | None) -> None:
        """Let a function judge the events that peers bring (`Node.set_validator`)."""
        self.node.set_validator(self.name, validator)
