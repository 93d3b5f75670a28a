"""A peer of another libp2p implementation in a process of its own, driven by lines of JSON.

Each request is one line on the peer's stdin, each answer one line on its stdout; requests may
overlap. The peer leaves when its stdin ends.
"""

import asyncio
import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

PATIENCE = 30.0
"""Seconds for one answer: no measure of anything, only an end to waiting for what cannot come."""

_LINE_LIMIT = 64 << 20


class ForeignError(AssertionError):
    """A foreign peer failed, or did not do in time what it was asked for."""


class Program(msgspec.Struct, frozen=True):
    """How to start a foreign peer."""

    command: tuple[str, ...]
    folder: Path
    environment: dict[str, str]


class ForeignPeer:
    """A running foreign peer; use it as an async context."""

    def __init__(self, program: Program, **options: Any) -> None:
        self.id = ""
        self.ticket = ""
        self._program = program
        self._options = options
        self._next = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Self:
        program = self._program
        self._process = await asyncio.create_subprocess_exec(
            *program.command,
            json.dumps(self._options),
            cwd=program.folder,
            env=program.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
        )
        self._complaints: list[str] = []
        self._readers = [
            asyncio.ensure_future(self._read_answers()),
            asyncio.ensure_future(self._read_complaints()),
        ]
        about = await self.ask("about")
        self.id, self.ticket = about["id"], about["tickets"][0]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(*self._readers)

    @property
    def process_id(self) -> int:
        """Its process."""
        return self._process.pid

    async def kill(self) -> None:
        """End the peer as a power cut does."""
        self._process.kill()
        await self._process.wait()

    async def _read_answers(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            waiter = self._answers.pop(answer["id"])
            if waiter.done():
                continue
            if "error" in answer:
                waiter.set_exception(ForeignError(answer["error"]))
            else:
                waiter.set_result(answer["result"])
        for waiter in self._answers.values():
            if not waiter.done():
                waiter.set_exception(ForeignError("the foreign peer has ended"))

    async def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._complaints.append(line.decode(errors="replace"))

    async def ask(self, request: str, **parameters: Any) -> Any:
        """Send a request and return its answer."""
        assert self._process.stdin is not None
        self._next += 1
        waiter = self._answers[self._next] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": self._next, "request": request, **parameters})
        self._process.stdin.write(line.encode() + b"\n")
        try:
            return await asyncio.wait_for(waiter, PATIENCE)
        except (TimeoutError, ForeignError) as error:
            said = "".join(self._complaints[-20:])
            what = str(error) or f"no answer within {PATIENCE:g} seconds"
            raise ForeignError(f"{request} {parameters}: {what}\n{said}") from None

    async def publish(self, topic: str, messages: Iterable[bytes], **more: Any) -> None:
        """Publish messages in order."""
        encoded = [base64.b64encode(message).decode() for message in messages]
        await self.ask("publish", topic=topic, messages=encoded, **more)

    async def received(self, topic: str, count: int) -> list[bytes]:
        """Wait for so many messages; return all that have come, each as often as it came."""
        try:
            await self.ask("waitForMessages", topic=topic, count=count)
        except ForeignError as error:
            have = len(await self.ask("received", topic=topic))
            raise ForeignError(f"{have} of {count} messages came: {error}") from None
        return [base64.b64decode(each["data"]) for each in await self.ask("received", topic=topic)]

    async def authors(self, topic: str) -> Sequence[str]:
        """Who wrote the messages that have come."""
        return list(
            dict.fromkeys(each["author"] for each in await self.ask("received", topic=topic))
        )
