"""Where the doors of a node are.

A door listens where people say it: HOST:PORT, yes for the usual place, or no. The control socket is
in the node's home.
"""

import os
import socket
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rumormill.core.errors import ConfigError

DEFAULT_HOME: Final = "~/.rumormill"

MAX_SOCKET_PATH: Final = 103
"""The shortest limit of a Unix socket's path: macOS has 104 bytes with the end mark."""


def default_home() -> Path:
    """Where the node of this user runs, unless another home is named."""
    return Path(os.environ.get("RUMORMILL_HOME") or DEFAULT_HOME)


class Endpoint(NamedTuple):
    """A TCP address; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def try_to_listen(self) -> None:
        """Raise the `OSError` that says why nobody can listen here, if nobody can."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)


METRICS_ENDPOINT: Final = Endpoint("127.0.0.1", 9464)
"""The port that OpenTelemetry's exporters use for Prometheus; the host is our choice, as below."""

FLIGHT_ENDPOINT: Final = Endpoint("127.0.0.1", 4020)
"""Our choice, on the loopback: nobody else gets in before it is said."""

DASHBOARD_ENDPOINT: Final = Endpoint("127.0.0.1", 4030)
"""Our choice, likewise: beside Flight's, and not Spark's 4040."""


def _endpoint(key: str, usual: Endpoint, wish: bool | str) -> Endpoint | None:
    if isinstance(wish, bool):
        return usual if wish else None
    if not isinstance(wish, str):
        raise ConfigError(f"{key}: {wish!r} is not HOST:PORT, such as {usual}")
    if not wish:
        return None
    host, _, port = wish.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{key}: {wish!r} is not HOST:PORT, such as {usual}")
    return Endpoint(host.strip("[]"), int(port))


metrics_endpoint = partial(_endpoint, "metrics", METRICS_ENDPOINT)
"""Where the metrics page is to be; False and an empty text are nowhere."""
flight_endpoint = partial(_endpoint, "flight", FLIGHT_ENDPOINT)
"""Where the Flight door is to be, likewise."""
dashboard_endpoint = partial(_endpoint, "dashboard", DASHBOARD_ENDPOINT)
"""Where the dashboard is to be, likewise."""
