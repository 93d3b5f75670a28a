"""A viewer for tests: asks a dashboard as a browser would, and reads its stream."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Viewer:
    """Somebody with a browser, and the address that was printed."""

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"http://([\d.]+):(\d+)/\?token=(.+)", url)
        assert found is not None, url
        self.host, self.port, self.token = found[1], int(found[2]), found[3]
        self.cookie = ""

    async def send(self, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
        writer.write(text)
        await writer.drain()
        return reader, writer

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        fields = {"Host": f"{self.host}:{self.port}", "Cookie": self.cookie, **(headers or {})}
        if body:
            fields["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body

    async def raw(self, text: bytes) -> bytes:
        reader, writer = await self.send(text)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""

    async def get(self, path: str, **wish: Any) -> Reply:
        answer = await self.raw(self.request(path, **wish))
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(": ") for line in lines]
        return Reply(int(first.split()[1]), {name.lower(): text for name, _, text in pairs}, body)

    async def enter(self) -> "Viewer":
        """Exchange the token for the cookie."""
        reply = await self.get(f"/?token={self.token}")
        assert (reply.status, reply.headers["location"]) == (303, "./")
        self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return self

    @contextlib.asynccontextmanager
    async def stream(
        self, query: str = "", **headers: str
    ) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
        """The events of the stream: their kinds and sections."""
        reader, writer = await self.send(self.request(f"/stream?{query}", headers=headers))
        with contextlib.closing(writer):
            async with contextlib.aclosing(events(reader)) as seen:
                yield seen


async def events(
    reader: asyncio.StreamReader,
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """What a stream says until it ends."""
    fields: dict[str, str] = {}
    while line := await reader.readline():
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "data":
            found = json.loads(value)
            yield fields.get("event", ""), found | {"#id": fields.get("id"), "#size": len(line)}
            fields = {}
        elif name:
            fields[name] = value
