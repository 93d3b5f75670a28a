"""The dashboard's server: its paths, and how many watch.

Every path is relative to wherever the page is, so that it works behind any prefix of a proxy: what
a request asks for is read from the end of its path. Nothing can be changed unless that was allowed.
"""

import contextlib
import functools
import html
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from rumormill.core.errors import LocalError, RumormillError
from rumormill.dashboard.guard import HEADERS, Guard, json_answer, refused
from rumormill.dashboard.http import (
    MAX_CLIENTS,
    Answer,
    BadRequest,
    HttpServer,
    Request,
    listening_at,
)
from rumormill.dashboard.source import (
    PLAYABLE,
    SECTIONS,
    Look,
    NotHere,
    Page,
    Sections,
    Source,
    wanted_sections,
)
from rumormill.dashboard.static_files import HTML, INDEX, ServedFiles
from rumormill.dashboard.stream import viewed

MAX_VIEWERS: Final = 8
MAX_BODY: Final = 64 << 10
MAX_ROWS: Final = 200
"""Of a page of history."""
_MOST_TEXT: Final = 1024
"""Of a topic's name or a filter in an address."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{0,15})?", re.ASCII)
"""In an address: small enough for every log and door, and no less exact than it is written."""
_PLAIN: Final = wanted_sections(["latency"])
"""What the page has without JavaScript."""
_OK: Final = HTTPStatus.OK


class Dashboard:
    """Serves one source."""

    def __init__(
        self,
        source: Source,
        count: Callable[[str], None],
        *,
        allow_publish: bool = False,
        hosts: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._source = source
        self._count = count
        self._allow_publish = allow_publish
        self._guard = Guard(hosts)
        self._tls = tls
        self._viewers = 0
        self._server = HttpServer(
            self._answer,
            count,
            methods=("GET", "POST"),
            max_body=MAX_BODY,
            max_clients=MAX_VIEWERS + MAX_CLIENTS,
        )

    @functools.cached_property
    def _files(self) -> ServedFiles:
        """Read when the first browser comes."""
        return ServedFiles()

    async def start(self, host: str, port: int) -> str:
        """Listen; return the address to open, token included."""
        self._guard.port = await listening_at(self._server, "dashboard", host, port, self._tls)
        self._guard.allow(host)
        shown = "localhost" if host in ("", "0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown else shown
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{shown}:{self._guard.port}/?token={self._guard.token}"

    async def close(self) -> None:
        """Let nobody in any more, and hang up on who watches."""
        try:
            await self._server.close()
        finally:
            await self._source.close()

    async def _answer(self, request: Request | BadRequest) -> Answer:
        if isinstance(request, BadRequest):
            return refused(request.status, "bad-request", request.status.phrase)
        turned = self._guard.admit(request)
        if turned is not None:
            return turned
        try:
            return await self._routed(request)
        except NotHere as error:
            return refused(HTTPStatus.NOT_FOUND, "not-found", str(error))
        except Unclear as error:
            return refused(HTTPStatus.BAD_REQUEST, "bad-request", str(error))
        except RumormillError as error:
            return refused(HTTPStatus.CONFLICT, "failed", str(error))

    async def _routed(self, request: Request) -> Answer:
        """By the end of the path."""
        with _read():
            parts = [unquote(part, errors="strict") for part in request.path.split("/")]
        if request.method == "POST":
            return await self._post(parts[-1], request)
        if "static" in parts:
            return self._file("/".join(parts[parts.index("static") + 1 :]), request)
        match parts[-3:]:
            case [*_, ""]:
                return self._file(INDEX, request)
            case [*_, "plain"]:
                text = overview(await self._source.look(Look(sections=_PLAIN)))
                return Answer(_OK, text.encode(), HTML, HEADERS)
            case [*_, "look"]:
                with _read():
                    asked = msgspec.json.decode(request.query.get("ask", ""), type=Look)
                return json_answer(await self._look(bounded(asked)))
            case [*_, "stream"]:
                return self._stream(request)
            case ["topics", topic, "events"]:
                return json_answer(await self._source.page(_page(topic, request.query)))
            case [*_, "events", event]:
                return json_answer(await self._source.journey(event[:_MOST_TEXT]))
        raise NotHere("there is no such page")

    def _file(self, name: str, request: Request) -> Answer:
        if name not in self._files:
            raise NotHere("there is no such file")
        packed = "gzip" in request.headers.get("accept-encoding", "")
        body, kind = self._files.body(name, packed=packed)
        how = (("Content-Encoding", "gzip"),) if packed else ()
        return Answer(_OK, body, kind, (*HEADERS, *how))

    def _stream(self, request: Request) -> Answer:
        if self._viewers >= MAX_VIEWERS:
            text = f"{MAX_VIEWERS} watch already; close one of these pages"
            return refused(HTTPStatus.SERVICE_UNAVAILABLE, "viewers", text)
        query = request.query
        views = [each for each in query.get("views", "").split(",") if each]
        topic, text = query.get("topic", ""), query.get("filter", "")
        look = bounded(
            Look(sections=wanted_sections(views or ["overview"]), topic=topic, filter=text)
        )
        last = request.headers.get("last-event-id", "")
        last_id = int(last[:15]) if last.isascii() and last.isdigit() else 0
        stream = self._counted(viewed(self._look, look, last_id))
        return Answer(_OK, b"", "text/event-stream; charset=utf-8", HEADERS, stream)

    async def _counted(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        if self._viewers >= MAX_VIEWERS:  # others have begun since this one was let in
            self._count("viewers")
            return
        self._viewers += 1
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._viewers -= 1
            await pieces.aclose()  # type: ignore[attr-defined]

    async def _post(self, what: str, request: Request) -> Answer:
        if what == "play":
            with _read():
                wish = msgspec.json.decode(request.body, type=dict[str, float | bool | str])
            return json_answer(await self._source.play(wish))
        if what == "publish":
            if not self._allow_publish:
                text = "nothing may be published here; open the dashboard with allow_publish"
                return refused(HTTPStatus.FORBIDDEN, "publish", text)
            with _read():
                said = msgspec.json.decode(request.body, type=Said)
            return json_answer(await self._source.publish(said.topic, said.data.encode()))
        raise NotHere("there is no such page")

    async def _look(self, look: Look) -> Sections:
        """What the source shows, and of itself also what the page may do."""
        found = await self._source.look(look)
        told = dict(found["source"], allow_publish=self._allow_publish)
        if self._allow_publish or told["kind"] in PLAYABLE:
            told["token"] = self._guard.form_token
        return found | {"source": told}


class Unclear(LocalError):  # noqa: N818 (the status is called bad request)
    """What was asked cannot be understood."""


@contextlib.contextmanager
def _read() -> Iterator[None]:
    """Read what a client has sent; the faults are its own."""
    try:
        yield
    except (ValueError, msgspec.MsgspecError) as error:
        raise Unclear(str(error)) from None


class Said(msgspec.Struct, frozen=True):
    """What `publish` is given."""

    topic: str
    data: str


def _page(topic: str, query: Mapping[str, str]) -> Page:
    limit, start, since = (_number(query, name) for name in ("limit", "from", "since"))
    return Page(
        topic=topic[:_MOST_TEXT],
        start=None if start is None else int(start),
        since=since,
        limit=MAX_ROWS if limit is None else max(1, min(MAX_ROWS, int(limit))),
        filter=query.get("filter", "")[:_MOST_TEXT],
    )


def _number(query: Mapping[str, str], name: str) -> float | None:
    """A number that is asked for; None where none is."""
    text = query.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None or (name != "since" and "." in text):
        kind = "seconds since 1970" if name == "since" else "a whole number"
        raise Unclear(f"{name} must be {kind}, of at most 15 digits")
    return float(text)


def bounded(look: Look) -> Look:
    """A question without what is too long, or none of ours."""
    known = tuple([each for each in SECTIONS if each in look.sections])
    topic, text = look.topic[:_MOST_TEXT], look.filter[:_MOST_TEXT]
    return replace(look, sections=known, topic=topic, filter=text)


_HEAD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="5">
<title>rumormill</title>
<link rel="stylesheet" href="static/style.css">
</head>
<body><main>"""


def overview(found: dict[str, Any]) -> str:
    """The overview as a page of plain HTML, for those without JavaScript."""
    totals, topics = found.get("totals", {}), found.get("topics", {}).get("rows", [])
    figures = {
        **{name: totals.get(name) for name in ("published", "delivered", "duplicates", "pending")},
        **{name: found.get("latency", {}).get(name) for name in ("p50", "p99")},
    }
    lines = [_HEAD, f"<h1>{html.escape(found['well']['sentence'])}</h1>", "<table>"]
    lines += [
        f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in figures.items()
        if value is not None
    ]
    lines += [
        "</table>",
        "<table><tr><th>topic</th><th>delivered</th><th>events a second</th></tr>",
    ]
    lines += [
        f"<tr><td>{html.escape(str(row['name']))}</td><td>{row.get('delivered', '')}</td>"
        f"<td>{row.get('rate', '')}</td></tr>"
        for row in topics
    ]
    return "".join([*lines, "</table></main></body></html>\n"])
