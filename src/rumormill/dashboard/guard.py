"""Who may see the dashboard: whoever has the token of the printed address, and nobody else.

A token in the address is exchanged for a cookie, so that it stands in no history or bookmark for
longer than a redirect. `Host` must name this machine: a page elsewhere cannot have its own name
lead here (DNS rebinding), because a name is not an address and is refused unless it was allowed.
Whatever changes something carries a second token in a header, which only the page itself can read.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final

import msgspec

from rumormill.dashboard.http import PLAIN, Answer, Request

HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""Of every answer."""
FORM_HEADER: Final = "x-rumormill-token"
_LOCAL: Final = "localhost"
encode_json: Final = msgspec.json.Encoder(enc_hook=str).encode


class Guard:
    """One dashboard's tokens."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self.token = secrets.token_urlsafe(24)
        self.form_token = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._named = frozenset(host.lower() for host in hosts)
        self._hosts = {_LOCAL, *self._named}
        self.port = 0

    def allow(self, host: str) -> None:
        """Let this name in too: it is where the dashboard listens."""
        self._hosts.add(host.lower())

    @property
    def _cookie(self) -> str:
        """Browsers give cookies of one port to all others of a host: ours names its port."""
        return f"rumormill-{self.port}"

    def admit(self, request: Request) -> Answer | None:
        """Let a request in (None), send it round with a cookie, or turn it away."""
        if not self._is_ours(request.headers.get("host", "")):
            return refused(HTTPStatus.MISDIRECTED_REQUEST, "host", "this is not that host")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_same(origin, request.headers["host"]):
            return refused(HTTPStatus.FORBIDDEN, "origin", "another page may not ask this")
        given = request.query.get("token")
        if given is not None:
            if not _same(given, self.token):
                return refused(HTTPStatus.FORBIDDEN, "token", "that is not the token")
            cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict"
            headers = (("Location", "./"), ("Set-Cookie", cookie))
            return Answer(HTTPStatus.SEE_OTHER, b"", PLAIN, (*HEADERS, *headers))
        if not _same(self._held(request), self._session):
            text = "open the address with the token that was printed when the dashboard began"
            return refused(HTTPStatus.UNAUTHORIZED, "token", text)
        if request.method != "GET" and not _same(
            request.headers.get(FORM_HEADER, ""), self.form_token
        ):
            return refused(HTTPStatus.FORBIDDEN, "token", f"{FORM_HEADER} is missing or wrong")
        return None

    def _is_same(self, origin: str, host: str) -> bool:
        """Whether a page is ours: of the host that is asked, or of a name that was allowed."""
        found = origin.partition("://")[2].lower()
        return found == host.lower() or _name(found) in self._named

    def _held(self, request: Request) -> str:
        try:
            held = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if held is None else held.value

    def _is_ours(self, host: str) -> bool:
        name = _name(host.lower())
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def refused(status: HTTPStatus, why: str, sentence: str) -> Answer:
    """A refusal as JSON, counted under its reason."""
    return json_answer({"error": sentence}, status)._replace(refusal=why)


def json_answer(found: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """An answer for the page."""
    return Answer(status, encode_json(found), "application/json; charset=utf-8", HEADERS)
