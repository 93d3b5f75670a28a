"""The doors of a node: put together, opened, named and closed here and nowhere else.

The rules: all that were asked for are open, or none is and one sentence says why. They are closed
in the opposite order, each when those inside have been let finish or were hung up on, and always
before the node behind them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Self

from rumormill.core.errors import ConfigError, LocalError
from rumormill.daemon.control_messages import socket_path
from rumormill.daemon.control_server import ControlServer
from rumormill.daemon.control_service import NodeService
from rumormill.daemon.endpoint import (
    Endpoint,
    dashboard_endpoint,
    flight_endpoint,
    metrics_endpoint,
)
from rumormill.daemon.flight_door import PemFiles, fetcher_of, flight_door, publisher_of
from rumormill.daemon.flight_service import FlightService
from rumormill.daemon.metrics_server import MetricsServer, Pages
from rumormill.daemon.served_node import ServedNode
from rumormill.daemon.upkeep import Reloading
from rumormill.dashboard.http import server_context
from rumormill.dashboard.node_source import NodeSource
from rumormill.dashboard.server import Dashboard
from rumormill.log.threads import in_thread


class Doors:
    """What `Node.serve` returns: `async with` it, or `await` it and `close` it.

    What was not asked for is None. `count` is told which door turned somebody away, and why.
    `siblings` are all doors of the node that are not closed; it closes them when it is closed.
    `own` is the control socket that a node with a home has by itself, which is not opened twice.
    """

    control: Path | None = None
    """The control socket, for `rumormill --home` and its like."""

    metrics: str | None = None
    """HOST:PORT of the metrics page, `http://HOST:PORT/metrics`."""

    flight: str | None = None
    """HOST:PORT of the Flight door."""

    token: str | None = None
    """What the Flight door wants to see."""

    dashboard: str | None = None
    """The address of the dashboard, with its token, for a browser."""

    def __init__(
        self,
        node: ServedNode,
        protocol: str,
        pages: Pages,
        count: Callable[[str, str], None],
        siblings: dict["Doors", None],
        own: "Doors | None" = None,
        *,
        control: bool,
        metrics: bool | str,
        flight: bool | str,
        dashboard: bool | str,
        allow_publish: bool,
        tls: PemFiles | None,
        home: Path | None,
        on_reload: Reloading | None,
    ) -> None:
        if control and home is None:
            raise ConfigError(
                "control: the socket lies in a home, and this node has none; give `home` too"
            )
        self._source = NodeSource(node, protocol)
        self._metrics = metrics_endpoint(metrics)
        self._flight = flight_endpoint(flight)
        self._dashboard = dashboard_endpoint(dashboard)
        self._allow_publish = allow_publish
        self._node = node
        self._pages = pages
        self._count = count
        self._siblings = siblings
        self._tls = tls
        self._home = home
        self._changing = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._opened = False
        self._closed = False
        shares = control and own is not None and not own._closed and own._home == home
        self._own, self._reload = own if shares else None, on_reload
        opens = control and not shares
        self._service = NodeService(node, protocol, on_reload, self._source) if opens else None
        siblings[self] = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        async with self._changing:
            if self._closed:
                raise LocalError("these doors have been closed; call `serve` again")
            if not self._opened:
                self._opened = True
                try:
                    await self._open()
                except BaseException:
                    await self._close()
                    raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close them; return when nobody is inside any more."""
        async with self._changing:
            await self._close()

    async def _close(self) -> None:
        self._closed = True
        self._siblings.pop(self, None)
        await self._stack.aclose()

    async def _open(self) -> None:
        self._stack.push_async_callback(self._source.close)
        if self._own is not None:
            self._share(self._own)
        if self._service is not None:
            assert self._home is not None
            path = socket_path(self._home)
            control = ControlServer(self._service, path, partial(self._count, "control"))
            self._stack.push_async_callback(control.close)
            await control.start()
            self.control = path
        if self._metrics is not None:
            page = MetricsServer(self._pages, partial(self._count, "metrics"))
            self._stack.push_async_callback(page.close)
            self.metrics = str(await page.start(self._metrics))
        if self._flight is not None:
            await self._open_flight(self._flight)
        if self._dashboard is not None:
            door = Dashboard(
                self._source,
                partial(self._count, "dashboard"),
                allow_publish=self._allow_publish,
                tls=None if self._tls is None else server_context(*self._tls),
            )
            self._stack.push_async_callback(door.close)
            self.dashboard = await door.start(*self._dashboard)

    def _share(self, own: "Doors") -> None:
        """Have the node's own control socket do what was asked of this one."""
        self.control = own.control
        if self._reload is not None and own._service is not None:
            own._service.reload_by(self._reload)
            self._stack.callback(own._service.reload_by, None)

    async def _open_flight(self, endpoint: Endpoint) -> None:
        node, loop = self._node, asyncio.get_running_loop()

        def count(reason: str) -> None:
            loop.call_soon_threadsafe(self._count, "flight", reason)

        service = FlightService(node.log, publisher_of(node, loop), fetcher_of(node, loop), count)
        door = contextlib.ExitStack()
        # In a thread, because Arrow takes a while to import, and because whoever is publishing
        # when the door is closed needs the loop to finish.
        self._stack.push_async_callback(in_thread, door.close)
        opening = flight_door(service, endpoint, self._home, self._tls)
        self.flight, self.token = await in_thread(lambda: door.enter_context(opening))
