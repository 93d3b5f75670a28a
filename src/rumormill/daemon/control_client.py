"""The other end of the control socket: a running node, as a command uses it.

It has the operations of `control_service.Service`. Calls are made one at a time; a subscription has
a connection of its own, because it never ends by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from rumormill.core.ids import Topic
from rumormill.core.topics import TopicOptions
from rumormill.daemon import control_messages as said
from rumormill.node.peer_view import PeerView
from rumormill.node.receipt import Receipt

_AnswerT = TypeVar("_AnswerT")

_READ_AHEAD = 256 * 1024
"""Bytes that wait for a command that is busy printing; more stay with the daemon."""


class NoDaemonError(said.ControlError):
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
            raise said.ControlError(
                f"nobody answers at {path}: the daemon died and left its socket; start it again"
                f" with `rumormill node`, or remove the file",
                "stale",
            ) from None
        except OSError as error:
            if len(str(path)) > 100:
                raise NoDaemonError(f"no daemon runs in {path.parent}", "no-daemon") from None
            raise said.ControlError(
                f"cannot connect to the daemon at {path}: {error.strerror or error}"
            ) from error
        client = cls(path, reader, writer)
        await client.welcome()
        return client

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _ask(self, request: said.Request, kind: type[_AnswerT]) -> _AnswerT:
        answer: said.Answer | None
        try:
            self._writer.write(said.encode(request))
            await self._writer.drain()
        except OSError:
            pass  # the daemon may have said why before it hung up
        answer = await said.read_answer(self._reader)
        return _expected(answer, kind)

    async def welcome(self) -> said.Welcome:
        """Who this is."""
        return await self._ask(said.Hello(), said.Welcome)

    async def join(self, ticket: str) -> None:
        """Connect to another node."""
        await self._ask(said.Join(ticket), said.Done)

    async def publish(self, topic: Topic, data: Sequence[bytes]) -> list[Receipt]:
        """Publish a batch; return when all of it is safe in the log."""
        answer = await self._ask(said.Publish(topic, list(data)), said.Receipts)
        return answer.receipts

    async def wait(self, topic: Topic, peers: int, seconds: float) -> None:
        """Wait for subscribers."""
        await self._ask(said.Wait(topic, peers, seconds), said.Done)

    async def subscribe(
        self, topic: Topic, *, offset: int | None = None, since: float | None = None
    ) -> AsyncIterator[said.Begun | said.Events]:
        """First `Begun`, then batches of events until the iterator is closed."""
        client = await self.connect(self._path)
        try:
            yield await client._ask(said.Subscribe(topic, offset, since), said.Begun)
            while True:
                yield _expected(await said.read_answer(client._reader), said.Events)
        finally:
            await client.close()

    async def history(
        self, topic: Topic, *, offset: int = 0, since: float | None = None, limit: int
    ) -> said.Events:
        """Some events of the log."""
        return await self._ask(said.ReadHistory(topic, offset, since, limit), said.Events)

    async def topics(self) -> said.TopicList:
        """Topics of the log and of the network."""
        return await self._ask(said.ListTopics(), said.TopicList)

    async def create_topic(self, name: str, options: TopicOptions) -> Topic:
        """Make a topic; return its name on the network."""
        return (await self._ask(said.CreateTopic(name, options), said.TopicCreated)).topic

    async def show_topic(self, topic: Topic) -> dict[str, Any]:
        """What is known of a topic that was created."""
        return (await self._ask(said.ShowTopic(topic), said.TopicShown)).shown

    async def peers(self) -> list[PeerView]:
        """Connected peers."""
        return (await self._ask(said.ListPeers(), said.PeerList)).peers


def _expected(answer: said.Answer | None, kind: type[_AnswerT]) -> _AnswerT:
    if answer is None:
        raise said.ControlError("the daemon has stopped", "gone")
    if isinstance(answer, said.Refused):
        raise said.ControlError(answer.sentence, answer.code)
    if not isinstance(answer, kind):
        raise said.ControlError(
            f"the daemon answered {type(answer).__name__} where {kind.__name__} was expected"
        )
    return answer
