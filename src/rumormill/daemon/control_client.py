"""The other end of the control socket: a running node, as a command uses it.

It has the operations of `control_service.Service`. Calls are made one at a time; a subscription has
a connection of its own, because it never ends by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from rumormill.core.ids import Topic
from rumormill.core.peer_view import PeerView
from rumormill.core.receipt import Receipt
from rumormill.core.topics import TopicOptions
from rumormill.daemon import control_messages as messages

_AnswerT = TypeVar("_AnswerT")

_READ_AHEAD = 256 * 1024
"""Bytes that wait for a command that is busy printing; more stay with the daemon."""


class NoDaemonError(messages.ControlError):
    """Nobody serves this home."""


class ControlClient:
    """A connection to a daemon. Make it with `connect`, close it with `close`."""

    def __init__(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connect to the daemon at a socket; `NoDaemonError` when there is no socket."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_READ_AHEAD)
        except FileNotFoundError:
            raise NoDaemonError(f"no daemon runs in {path.parent}", "no-daemon") from None
        except ConnectionRefusedError:
            raise messages.ControlError(
                f"nobody answers at {path}: the daemon died and left its socket; start it again"
                f" with `rumormill node`, or remove the file",
                "stale",
            ) from None
        except OSError as error:
            if len(str(path)) > 100:
                raise NoDaemonError(f"no daemon runs in {path.parent}", "no-daemon") from None
            raise messages.ControlError(
                f"cannot connect to the daemon at {path}: {error.strerror or error}"
            ) from error
        client = cls(path, reader, writer)
        await client.welcome()
        return client

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _ask(self, request: messages.Request, kind: type[_AnswerT]) -> _AnswerT:
        answer: messages.Answer | None
        try:
            self._writer.write(messages.encode(request))
            await self._writer.drain()
        except OSError:
            pass  # the daemon may have said why before it hung up
        answer = await messages.read_answer(self._reader)
        return _expected(answer, kind)

    async def welcome(self) -> messages.Welcome:
        """Who this is."""
        return await self._ask(messages.Hello(), messages.Welcome)

    async def join(self, ticket: str) -> None:
        """Connect to another node."""
        await self._ask(messages.Join(ticket), messages.Done)

    async def publish(self, topic: Topic, data: Sequence[bytes]) -> list[Receipt]:
        """Publish a batch; return when all of it is safe in the log."""
        answer = await self._ask(messages.Publish(topic, list(data)), messages.Receipts)
        return answer.receipts

    async def wait(self, topic: Topic, peers: int, seconds: float) -> None:
        """Wait for subscribers."""
        await self._ask(messages.Wait(topic, peers, seconds), messages.Done)

    async def subscribe(
        self, topic: Topic, *, offset: int | None = None, since: float | None = None
    ) -> AsyncIterator[messages.Begun | messages.Events]:
        """First `Begun`, then batches of events until the iterator is closed."""
        client = await self.connect(self._path)
        try:
            yield await client._ask(messages.Subscribe(topic, offset, since), messages.Begun)
            while True:
                yield _expected(await messages.read_answer(client._reader), messages.Events)
        finally:
            await client.close()

    async def history(
        self, topic: Topic, *, offset: int = 0, since: float | None = None, limit: int
    ) -> messages.Events:
        """Some events of the log."""
        return await self._ask(messages.ReadHistory(topic, offset, since, limit), messages.Events)

    async def topics(self) -> messages.TopicList:
        """Topics of the log and of the network."""
        return await self._ask(messages.ListTopics(), messages.TopicList)

    async def create_topic(self, name: str, options: TopicOptions) -> Topic:
        """Make a topic; return its name on the network."""
        return (await self._ask(messages.CreateTopic(name, options), messages.TopicCreated)).topic

    async def show_topic(self, topic: Topic) -> dict[str, Any]:
        """What is known of a topic that was created."""
        return (await self._ask(messages.ShowTopic(topic), messages.TopicShown)).shown

    async def peers(self) -> list[PeerView]:
        """Connected peers."""
        return (await self._ask(messages.ListPeers(), messages.PeerList)).peers


def _expected(answer: messages.Answer | None, kind: type[_AnswerT]) -> _AnswerT:
    if answer is None:
        raise messages.ControlError("the daemon has stopped", "gone")
    if isinstance(answer, messages.Refused):
        raise messages.ControlError(answer.sentence, answer.code)
    if not isinstance(answer, kind):
        raise messages.ControlError(
            f"the daemon answered {type(answer).__name__} where {kind.__name__} was expected"
        )
    return answer
