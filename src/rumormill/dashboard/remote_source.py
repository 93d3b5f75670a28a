"""A dashboard elsewhere, watched: its node, or its nodes, as they are shown there.

What a browser would ask is asked, one question at a time, each on a connection of its own, within a
time and a size. The rules: the token is told to that dashboard alone, stands in no error and on no
page; and what another version says is not guessed at.
"""

import asyncio
import ipaddress
import ssl
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec

from rumormill.core.errors import LocalError
from rumormill.dashboard.figures import cut
from rumormill.dashboard.guard import FORM_HEADER
from rumormill.dashboard.http import MAX_HEAD
from rumormill.dashboard.source import Live, Look, NotHere, Page, Sections
from rumormill.version import __version__

SCHEMES: Final = ("http://", "https://")
PATIENCE: Final = 5.0
"""Seconds in which a question is answered, or the dashboard is away for this time."""
MAX_ANSWER: Final = 8 << 20
_KINDS: Final = ("node", "homes")


class Address(NamedTuple):
    """Where a dashboard is, and what it wants to see."""

    host: str
    port: int
    prefix: str
    token: str
    tls: bool

    @property
    def place(self) -> str:
        """How it is called: without its token."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way reads along."""
        try:
            return self.tls or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str) -> Address:
    """The address that a dashboard has printed."""
    try:
        found = urlsplit(text)
        token = parse_qs(found.query).get("token", [""])[0]
        port = found.port or (443 if found.scheme == "https" else 80)
    except ValueError:
        found, token, port = urlsplit(""), "", 0
    if not text.startswith(SCHEMES) or not found.hostname or not token:
        raise LocalError("give the whole address that a dashboard has printed, with its token")
    prefix = found.path[: found.path.rfind("/") + 1] or "/"
    return Address(found.hostname, port, prefix, token, found.scheme == "https")


class _Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class RemoteSource(Live):
    """A dashboard elsewhere."""

    def __init__(self, address: Address, roots: str | None = None) -> None:
        """`roots` is a file with certificates to trust besides the system's, in PEM."""
        self._address = address
        self._tls: ssl.SSLContext | None = None
        if address.tls:
            self._tls = ssl.create_default_context()
            if roots is not None:
                try:
                    self._tls.load_verify_locations(roots)
                except OSError as error:  # ssl's errors are such too
                    raise LocalError(f"{roots}: {error.strerror or error}") from error
        self._cookie = ""
        self._form_token = ""
        self._asking = asyncio.Lock()

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections (see `source.Source`)."""
        found: Sections = await self._get(f"look?{urlencode({'ask': msgspec.json.encode(look)})}")
        told = found.get("source", {})
        if told.get("version") != __version__:
            version = cut(str(told.get("version")), 20)
            raise LocalError(
                f"{self._address.place} runs version {version}, and this is {__version__}:"
                " use the same for both"
            )
        if told.get("kind") not in _KINDS:
            raise LocalError(f"{self._address.place} shows no live nodes; open it in a browser")
        self._form_token = str(told.pop("token", ""))  # which is for us, and not for who looks here
        told["title"] = self._address.place
        return found

    async def page(self, page: Page) -> dict[str, Any]:
        """Rows of a log there."""
        wanted = {"from": page.start, "since": page.since, "limit": page.limit}
        asked = {name: value for name, value in wanted.items() if value is not None}
        query = urlencode(asked | {"filter": page.filter})
        return await self._get(f"topics/{quote(page.topic, safe='')}/events?{query}")

    async def journey(self, event: str) -> dict[str, Any]:
        """What is known there of an event."""
        return await self._get(f"events/{quote(event, safe='')}")

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        """Have it publish, if it was allowed to."""
        if not self._form_token:
            raise LocalError(f"{self._address.place} was not allowed to publish")
        body = msgspec.json.encode({"topic": topic, "data": data.decode()})
        return await self._get("publish", body, {FORM_HEADER: self._form_token})

    async def close(self) -> None:
        """Nothing is held open."""

    async def _get(
        self, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        place = self._address.place
        async with self._asking:
            try:
                async with asyncio.timeout(PATIENCE):
                    reply = await self._within(path, body, headers or {})
            except ssl.SSLError as error:
                raise LocalError(f"{place}: {error.reason or error}") from error
            except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
                raise LocalError(f"{place} does not answer") from error
        try:
            found: dict[str, Any] = msgspec.json.decode(reply.body, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError):
            raise LocalError(f"{place} is no dashboard, or not this version's") from None
        if reply.status == HTTPStatus.OK:
            return found
        said = cut(str(found.get("error", reply.status)), 200)
        raise (NotHere if reply.status == HTTPStatus.NOT_FOUND else LocalError)(f"{place}: {said}")

    async def _within(self, path: str, body: bytes, headers: dict[str, str]) -> _Reply:
        """Ask with the cookie, and for the cookie first where there is none that is taken."""
        if self._cookie:
            reply = await self._exchange(path, body, headers)
            if reply.status != HTTPStatus.UNAUTHORIZED:
                return reply
        entered = await self._exchange(f"?{urlencode({'token': self._address.token})}", b"", {})
        if entered.status != HTTPStatus.SEE_OTHER:
            return entered
        self._cookie = entered.headers.get("set-cookie", "").partition(";")[0]
        return await self._exchange(path, body, headers)

    async def _exchange(self, path: str, body: bytes, headers: dict[str, str]) -> _Reply:
        """One question and its answer, as HTTP/1.0, so that nothing comes in pieces."""
        host, port, prefix, _, _ = self._address
        fields = {"Host": self._address.place, "Cookie": self._cookie, **headers}
        if body:
            fields["Content-Length"] = str(len(body))
        lines = [f"{'POST' if body else 'GET'} {prefix}{path} HTTP/1.0"]
        lines += [f"{name}: {text}" for name, text in fields.items()]
        reader, writer = await asyncio.open_connection(host, port, ssl=self._tls, limit=MAX_HEAD)
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)
            first, *said = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = [line.partition(":") for line in said]
            answered = {name.strip().lower(): text.strip() for name, _, text in pairs}
            version, _, rest = first.partition(" ")
            numbers = rest[:3], answered.get("content-length", "-")[:12]
            if not version.startswith("HTTP/1.") or not all(each.isdigit() for each in numbers):
                return _Reply(0, {}, b"")
            status, size = map(int, numbers)
            if size > MAX_ANSWER:
                return _Reply(0, {}, b"")
            return _Reply(status, answered, await reader.readexactly(size))
        finally:
            writer.transport.abort()
