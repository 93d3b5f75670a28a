"""A page of metrics over HTTP, for Prometheus, and two for whoever watches processes.

GET of three pages, nothing else, and nothing unbounded (`dashboard.http`). `/metrics` is in the
format that was asked for; `/healthz` and `/readyz` say in one line how the node is, with status 200
or 503.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from rumormill.core.api import Health
from rumormill.daemon.endpoint import Endpoint
from rumormill.dashboard.http import (
    TIMEOUT,
    Answer,
    BadRequest,
    HttpServer,
    Request,
    listening_at,
)

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"
_OPENMETRICS_TYPE: Final = f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"
_OK: Final = HTTPStatus.OK
_PAGES: Final = ("/metrics", "/healthz", "/readyz")


class Pages(NamedTuple):
    """What is served: the metrics, in OpenMetrics or not, and how the node is."""

    metrics: Callable[[bool], str]
    health: Callable[[], Health]


class MetricsServer:
    """Serves the pages of a node."""

    def __init__(
        self, pages: Pages, count: Callable[[str], None], *, timeout: float = TIMEOUT
    ) -> None:
        self._pages = pages
        self._server = HttpServer(self._answer, count, timeout=timeout)

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listen; return where, also when the system chose the port."""
        return endpoint._replace(port=await listening_at(self._server, "metrics", *endpoint))

    async def close(self) -> None:
        """Stop listening and drop whoever is still connected."""
        await self._server.close()

    async def _answer(self, request: Request | BadRequest) -> Answer:
        if isinstance(request, BadRequest):
            return _refused(request.status)
        if request.path not in _PAGES:
            return _refused(HTTPStatus.NOT_FOUND)
        if request.path == "/metrics":
            wanted = wants_openmetrics(request.headers.get("accept", ""))
            page = self._pages.metrics(wanted).encode()
            return Answer(_OK, page, _OPENMETRICS_TYPE if wanted else _TEXT)
        found = self._pages.health()
        is_well = found.healthy if request.path == "/healthz" else found.ready
        return Answer(_OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE, f"{found.why}\n".encode())


def _refused(status: HTTPStatus) -> Answer:
    text = f"{status.phrase}: GET {', '.join(_PAGES)}\n"
    return Answer(status, text.encode(), refusal="not-the-page")


def wants_openmetrics(accept: str) -> bool:
    """Whether a request prefers OpenMetrics 1.0.0 to the older format."""
    best = {_OPENMETRICS: 0.0, "text/plain": 0.0}
    for wish in accept.split(","):
        kind, *options = (part.strip().lower() for part in wish.split(";"))
        chosen = dict(option.split("=", 1) for option in options if "=" in option)
        if kind in best and chosen.get("version", "1.0.0") in ("1.0.0", "0.0.4"):
            best[kind] = max(best[kind], _weight(chosen.get("q", "1")))
    return best[_OPENMETRICS] > 0 and best[_OPENMETRICS] >= best["text/plain"]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
