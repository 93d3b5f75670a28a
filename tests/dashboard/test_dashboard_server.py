"""The dashboard's door: who gets in, what is served, and that nothing else is."""

import asyncio
import contextlib
import gzip
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from dashboard_client import Viewer
from hypothesis import given
from hypothesis import strategies as st

from live_nodes import run, until
from rumormill.core.errors import LocalError
from rumormill.dashboard import http
from rumormill.dashboard.http import BadRequest, parse_head
from rumormill.dashboard.server import MAX_BODY, MAX_VIEWERS, Dashboard
from rumormill.dashboard.source import ALWAYS, Look, NotHere, Page, Sections, wanted_sections

EVIL = '</script><img src=x onerror="alert(1)">'


class Still:
    """A source in which nothing happens; it remembers what it was asked."""

    def __init__(self, **sections: Any) -> None:
        self.asked: list[Look] = []
        self.pages: list[Page] = []
        self.published: list[tuple[str, bytes]] = []
        self.closed = False
        self.sections: Sections = {
            "source": {"kind": "node", "title": "still"},
            "well": {"ok": True, "sentence": EVIL},
            "totals": {"published": 1},
            "topics": {"rows": [{"name": EVIL, "delivered": 2, "rate": 0}], "left_out": 0},
            **sections,
        }

    async def look(self, look: Look) -> Sections:
        self.asked.append(look)
        return dict(self.sections)

    async def page(self, page: Page) -> dict[str, Any]:
        self.pages.append(page)
        return {"rows": []}

    async def journey(self, event: str) -> dict[str, Any]:
        raise NotHere(f"no {event}")

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        self.published.append((topic, data))
        return {"offset": 0}

    async def play(self, wish: dict[str, Any]) -> dict[str, Any]:
        raise LocalError("it does not play")

    async def close(self) -> None:
        self.closed = True


@contextlib.asynccontextmanager
async def served(
    source: Still | None = None, **options: Any
) -> AsyncIterator[tuple[Viewer, Still, Counter[str]]]:
    """A dashboard of a source, somebody at its door, and who was refused."""
    refused: Counter[str] = Counter()
    source = source or Still()
    dashboard = Dashboard(source, lambda reason: refused.update([reason]), **options)
    viewer = Viewer(await dashboard.start("127.0.0.1", 0))
    try:
        yield viewer, source, refused
    finally:
        await dashboard.close()


def test_the_token_is_exchanged_for_a_cookie() -> None:
    """After which neither page nor address has the token."""

    async def story() -> None:
        async with served() as (viewer, source, refused):
            first = await viewer.get(f"/?token={viewer.token}")
            cookie = first.headers["set-cookie"]
            assert cookie.endswith("; HttpOnly; SameSite=Strict")
            assert f"rumormill-{viewer.port}=" in cookie
            assert viewer.token not in cookie
            await viewer.enter()
            page = await viewer.get("/")
            assert (page.status, page.headers["content-type"][:9]) == (200, "text/html")
            assert viewer.token.encode() not in page.body
            assert not refused
        assert source.closed

    run(story)


@pytest.mark.parametrize(
    "path",
    ["/", "/plain", "/look?ask={}", "/stream", "/static/app.js", "/topics/t/events", "/events/00"],
)
def test_without_the_cookie_nothing_is_told(path: str) -> None:
    async def story() -> None:
        async with served() as (viewer, source, refused):
            for cookie in (
                "",
                f"rumormill-{viewer.port}={viewer.token}",
                "a;b=\x01;;=",
                "=" * 4000,
            ):
                viewer.cookie = cookie
                reply = await viewer.get(path)
                assert (reply.status, set(reply.json)) == (401, {"error"})
            wrong = await viewer.get(f"{path}{'&' if '?' in path else '?'}token=wrong")
            assert wrong.status == 403
            assert refused == {"token": 5}
            assert not source.asked

    run(story)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("[::1]:{port}", 200),
        ("proxy.example.org", 200),
        ("evil.example.org:{port}", 421),
        ("127.0.0.1.evil.example.org", 421),
        ("", 421),
        ("localhost.evil", 421),
    ],
)
def test_host_must_be_this_machine_or_a_name_that_was_allowed(host: str, status: int) -> None:
    """A page elsewhere cannot have a name of its own lead here."""

    async def story() -> None:
        async with served(hosts=["Proxy.example.org"]) as (viewer, _, refused):
            await viewer.enter()
            found = await viewer.get("/", headers={"Host": host.format(port=viewer.port)})
            assert found.status == status
            assert refused == ({} if status == 200 else {"host": 1})

    run(story)


@pytest.mark.parametrize("origin", ["http://evil.example.org", "null", "http://127.0.0.1:1"])
def test_another_page_may_not_ask(origin: str) -> None:
    async def story() -> None:
        async with served() as (viewer, _, refused):
            await viewer.enter()
            assert (await viewer.get("/", headers={"Origin": origin})).status == 403
            own = f"http://{viewer.host}:{viewer.port}"
            assert (await viewer.get("/", headers={"Origin": own})).status == 200
            assert refused == {"origin": 1}

    run(story)


PATHS = [
    "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/server.py",
    "/static//etc/passwd", "/static/", "/static/app.js%00.html", "/../", "/static/vendor",
    "/%2e%2e/stream/x", "/topics/a/b/events/c/d", "/events/zz", "/publish",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out(path: str) -> None:
    """Files are looked up by name among those that were there at the start."""

    async def story() -> None:
        async with served() as (viewer, _, refused):
            await viewer.enter()
            reply = await viewer.get(path)
            assert reply.status in (404, 200)
            if reply.status == 200:
                assert path == "/../"  # the index, wherever a proxy has put it
            else:
                assert set(reply.json) == {"error"}
                assert refused == {"not-found": 1}

    run(story)


def test_every_answer_forbids_what_is_not_ours() -> None:
    async def story() -> None:
        async with served() as (viewer, _, _):
            refused = await viewer.get("/")
            await viewer.enter()
            for reply in (refused, await viewer.get("/"), await viewer.get("/events/00")):
                policy = reply.headers["content-security-policy"]
                assert "default-src 'self'" in policy
                assert "unsafe" not in policy
                assert reply.headers["x-content-type-options"] == "nosniff"
                assert reply.headers["cache-control"] == "no-store"
                assert "access-control-allow-origin" not in reply.headers

    run(story)


def test_what_others_have_named_is_text_without_javascript_too() -> None:
    """The page leads those who have none to a plain overview."""

    async def story() -> None:
        async with served() as (viewer, _, _):
            await viewer.enter()
            page = (await viewer.get("/prefix/of/a/proxy/")).body.decode()
            assert 'content="0; url=plain"' in page
            plain = await viewer.get("/prefix/of/a/proxy/plain")
            assert (plain.status, plain.headers["content-type"][:9]) == (200, "text/html")
            assert EVIL not in plain.body.decode()
            assert "&lt;/script&gt;" in plain.body.decode()

    run(story)


def test_the_page_asks_the_source_nothing_and_for_everything_at_once() -> None:
    """One page, whose files name no further ones: so many round trips until the first picture."""

    async def story() -> None:
        async with served() as (viewer, source, _):
            await viewer.enter()
            page = (await viewer.get("/")).body.decode()
            named = re.findall(r'(?:src|href)="(static/[^"]+)"', page)
            assert len(named) <= 7  # six at a time, and the icon when there is nothing else to do
            for name in named:
                reply = await viewer.get(f"/{name}")
                assert reply.status == 200
                assert not re.search(rb"^import |@import|url\(", reply.body, re.MULTILINE)
            assert not source.asked

    run(story)


def test_files_are_packed_for_who_can_unpack_them() -> None:
    async def story() -> None:
        async with served() as (viewer, _, _):
            await viewer.enter()
            plain = await viewer.get("/static/app.js")
            packed = await viewer.get("/static/app.js", headers={"Accept-Encoding": "br, gzip"})
            assert "content-encoding" not in plain.headers
            assert packed.headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed.body) == plain.body
            assert len(packed.body) < len(plain.body) / 2

    run(story)


class Broken(Still):
    """A source with faults that nobody foresaw."""

    async def page(self, page: Page) -> dict[str, Any]:
        raise ZeroDivisionError("secret of the source")

    async def journey(self, event: str) -> dict[str, Any]:
        return {}[event]


def test_what_nobody_foresaw_is_a_500_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tells the client nothing of what went wrong, and the others are served."""

    async def story() -> None:
        async with served(Broken()) as (viewer, _, refused):
            await viewer.enter()
            for path in ("/topics/t/events", "/events/00", "/topics/t/events"):
                reply = await viewer.get(path)
                assert reply.status == 500
                assert b"secret" not in reply.body
                assert len(reply.body) < 100
            assert refused == {"error": 3}
            assert (await viewer.get("/")).status == 200

    run(story)
    told = [record for record in caplog.records if record.name == "rumormill.dashboard"]
    assert [record.exc_info[0] for record in told if record.exc_info] == [
        ZeroDivisionError,
        KeyError,
    ]


def test_a_stream_that_fails_is_counted_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Still):
        async def look(self, look: Look) -> Sections:
            raise ZeroDivisionError

    async def story() -> None:
        async with served(Failing()) as (viewer, _, refused):
            await viewer.enter()
            async with viewer.stream() as seen:
                assert [each async for each in seen] == []
            assert refused == {"error": 1}

    run(story)
    assert [record.name for record in caplog.records] == ["rumormill.dashboard"]


def test_a_source_that_is_away_says_so_and_ends_the_stream() -> None:
    """Also when it was away from the beginning."""

    class Away(Still):
        async def look(self, look: Look) -> Sections:
            raise LocalError("no daemon runs there")

    async def story() -> None:
        async with served(Away()) as (viewer, _, refused):
            await viewer.enter()
            async with viewer.stream() as seen:
                told = [each async for each in seen]
            assert [(kind, each["well"]["sentence"]) for kind, each in told] == [
                ("update", "no daemon runs there")
            ]
            assert not refused

    run(story)


def test_one_look_is_answered_for_another_dashboard() -> None:
    """With the sections that were asked for, within the bounds of a viewer's question."""

    async def story() -> None:
        async with served() as (viewer, source, refused):
            await viewer.enter()
            asked = Look(sections=("totals", "nonsense", "well"), topic="t" * 2000, tail_from=7)
            text = quote(msgspec.json.encode(asked))
            found = await viewer.get(f"/look?ask={text}")
            assert found.json["source"] == {
                "kind": "node", "title": "still", "allow_publish": False,
            }  # fmt: skip
            look = source.asked[-1]
            assert (look.sections, len(look.topic), look.tail_from) == (("well", "totals"), 1024, 7)
            for wrong in ("", "{", "[]", '{"sections": 1}'):
                assert (await viewer.get(f"/look?ask={quote(wrong)}")).status == 400
            assert refused == {"bad-request": 4}

    run(story)


def test_publishing_needs_permission_and_the_page_s_own_token() -> None:
    async def story() -> None:
        said = b'{"topic": "news", "data": "hello"}'
        async with served() as (viewer, source, refused):
            await viewer.enter()
            async with viewer.stream("views=overview") as seen:
                assert "token" not in (await anext(seen))[1]["source"]
            assert (await viewer.get("/publish", method="POST", body=said)).status == 403
            assert (source.published, refused) == ([], {"token": 1})
        async with served(allow_publish=True) as (viewer, source, refused):
            await viewer.enter()
            async with viewer.stream("views=overview") as seen:
                told = (await anext(seen))[1]["source"]
                assert told["allow_publish"]
            for token, status in (("", 403), ("x", 403), (viewer.token, 403), (told["token"], 200)):
                headers = {"X-Rumormill-Token": token}
                reply = await viewer.get("/publish", method="POST", body=said, headers=headers)
                assert reply.status == status
            assert (source.published, refused) == ([("news", b"hello")], {"token": 3})
            for body in (b"", b"[]", b"{", b'{"topic": 1, "data": "x"}', b"\xff"):
                reply = await viewer.get("/publish", method="POST", body=body, headers=headers)
                assert reply.status == 400
            big = b'{"topic": "news", "data": "' + b"x" * MAX_BODY + b'"}'
            reply = await viewer.get("/publish", method="POST", body=big, headers=headers)
            assert reply.status == 413
            assert len(source.published) == 1

    run(story)


def test_a_form_token_alone_does_not_publish_where_that_is_not_allowed() -> None:
    """As on the page of a trace, whose clock may be moved."""

    async def story() -> None:
        trace = Still(source={"kind": "trace", "title": "run"})
        async with served(trace) as (viewer, source, refused):
            await viewer.enter()
            async with viewer.stream() as seen:
                token = (await anext(seen))[1]["source"]["token"]
            headers = {"X-Rumormill-Token": token}
            said = b'{"topic": "news", "data": "hello"}'
            reply = await viewer.get("/publish", method="POST", body=said, headers=headers)
            assert (reply.status, source.published, refused) == (403, [], {"publish": 1})
            played = await viewer.get("/play", method="POST", body=b'{"at": 1}', headers=headers)
            assert (played.status, played.json) == (409, {"error": "it does not play"})

    run(story)


def test_a_page_of_history_is_asked_for_by_offset_time_and_text() -> None:
    """A topic's name may have everything in it, slashes too."""

    async def story() -> None:
        async with served() as (viewer, source, refused):
            await viewer.enter()
            path = "/topics/a%2Fb%20%C3%BC%00/events"
            await viewer.get(f"{path}?from=7&limit=999999&filter=x%26y")
            await viewer.get(f"{path}?since=1.5")
            await viewer.get(f"{path}?last=1&limit=2")
            assert source.pages == [
                Page(topic="a/b ü\0", start=7, limit=200, filter="x&y"),
                Page(topic="a/b ü\0", since=1.5),
                Page(topic="a/b ü\0", limit=2),
            ]
            whole = "must be a whole number, of at most 15 digits"
            for query, why in {
                "from=x": f"from {whole}",
                "from=1e400": f"from {whole}",
                "from=9999999999999999": f"from {whole}",
                "limit=1.5": f"limit {whole}",
                "since=nan": "since must be seconds since 1970, of at most 15 digits",
            }.items():
                reply = await viewer.get(f"{path}?{query}")
                assert (reply.status, reply.json) == (400, {"error": why})
            assert (await viewer.get("/topics/%ff/events")).status == 400
            assert refused == {"bad-request": 6}

    run(story)


def test_viewers_that_come_at_once_are_no_more_than_may_watch() -> None:
    async def story() -> None:
        async with served() as (viewer, _, refused), contextlib.AsyncExitStack() as stack:
            await viewer.enter()
            more = 6
            doors = [
                await asyncio.open_connection(viewer.host, viewer.port)
                for _ in range(MAX_VIEWERS + more)
            ]
            for _, writer in doors:
                stack.push(contextlib.closing(writer))
                writer.write(viewer.request("/stream"))
            await until(lambda: refused["viewers"] == more, "the others are refused")
            begun = 0
            for reader, _ in doors:
                with contextlib.suppress(asyncio.IncompleteReadError, asyncio.TimeoutError):
                    await asyncio.wait_for(reader.readuntil(b"event: snapshot"), 0.5)
                    begun += 1
            assert begun == MAX_VIEWERS

    run(story)


def test_too_many_viewers_are_told_so() -> None:
    """And the others go on; a place is free again when somebody leaves."""

    async def story() -> None:
        async with served() as (viewer, _, refused), contextlib.AsyncExitStack() as stack:
            await viewer.enter()
            for _ in range(MAX_VIEWERS):
                seen = await stack.enter_async_context(viewer.stream())
                assert (await anext(seen))[0] == "snapshot"
            reply = await viewer.get("/stream")
            assert (reply.status, refused) == (503, {"viewers": 1})
            assert (await viewer.get("/")).status == 200
            await stack.aclose()
            statuses: list[str] = []

            async def try_again() -> None:
                while "snapshot" not in statuses:
                    async with viewer.stream() as seen:
                        async for kind, _ in seen:
                            statuses.append(kind)
                            break

            await asyncio.wait_for(try_again(), 30)

    run(story)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 3 * http.MAX_HEAD, 431),
        (b"hello\r\n\r\n", 400),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 4000 + b"\r\n\r\n", 413),
        (b"GET /?" + b"a&" * 200 + b" HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_and_counted(text: bytes, status: int) -> None:
    async def story() -> None:
        async with served() as (viewer, _, refused):
            answer = await viewer.raw(text)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert refused == {"bad-request": 1}

    run(story)


def test_a_head_is_read_within_bounds() -> None:
    lines = "".join(f"h{number}: x\r\n" for number in range(2 * http.MAX_FIELDS))
    found = parse_head(f"GET /a%20b?x=1&y= HTTP/1.1\r\n{lines}\r\n".encode())
    assert (found.path, found.query) == ("/a%20b", {"x": "1", "y": ""})
    assert len(found.headers) == http.MAX_FIELDS
    with pytest.raises(BadRequest):
        parse_head(b"GET /\r\n\r\n")


@given(st.binary(max_size=200), st.sampled_from([b"", b"GET /", b"GET /?a=%ff HTTP/1.1\r\n"]))
def test_any_bytes_are_a_head_or_are_refused(data: bytes, start: bytes) -> None:
    with contextlib.suppress(BadRequest):
        found = parse_head(start + data + b"\r\n\r\n")
        assert len(found.headers) <= http.MAX_FIELDS
        assert len(found.query) <= http.MAX_FIELDS


def test_who_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is queued for it: it is asked for more when it has read, and let go in the end."""
    monkeypatch.setattr(http, "STALLED", 0.2)

    async def story() -> None:
        large = Still(links={"rows": [["x" * 1000] * 1000], "left_out": 0})
        async with served(large) as (viewer, source, refused):
            await viewer.enter()
            small = socket.socket()  # so that the kernel keeps little of what nobody reads
            small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            small.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            small.connect((viewer.host, viewer.port))
            reader, writer = await asyncio.open_connection(sock=small, limit=1024)
            writer.write(viewer.request("/stream?views=overlay"))
            await until(lambda: refused["cut-off"], "the viewer that does not read is let go")
            assert len(source.asked) == 1
            assert (await viewer.get("/")).status == 200
            writer.transport.abort()
            del reader

    run(story)


def test_views_say_which_sections_are_wanted() -> None:
    assert wanted_sections(["nonsense"]) == ALWAYS
    assert {*ALWAYS, "peers", "links", "recent"} <= {*wanted_sections(["overlay", "overlay"])}
    assert wanted_sections(["tail"]) == (*ALWAYS, "tail")
