"""What lies between a socket and a connection: nothing, or WebSocket, with TLS or without.

A `Connection` is made for bytes that come in order, and does not know which of these carry them. To
it a `WebSocketTransport` is the transport of its socket, from the moment when there is a socket:
so places, limits and times for a handshake hold for HTTP as well.
"""

import asyncio
import functools
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.address_book import HERE, is_address, nearness
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.listening import PLAIN, Layer
from rumormill.wire.multiaddr import Endpoint, Way

if TYPE_CHECKING:
    from rumormill.libp2p.websocket import WebSocketSession

_FAMILIES: Final = {0: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}
"""Of sockets, by the version of IP."""
_MAX_UNREAD: Final = 1 << 20
"""Bytes of pongs and closings that wait for a peer that does not read."""
_UNREAD: Final = "unread-websocket-pongs"
_MAX_HOSTS: Final = 4
"""Addresses of one name that are tried, one after another: our choice, as many as of a peer that
others name."""


async def dial(
    endpoint: Endpoint,
    connection: Connection,
    bound: socket.socket | None = None,
    *,
    near: int = HERE,
) -> None:
    """Connect a socket to an endpoint, for a connection; OSError or LocalError if it fails.

    To dial from a port, give a socket that is bound to it; then the host must be an address. A name
    leads as `near` to us as that says, and no nearer.
    """
    if bound is not None:
        await _dial_from(bound, endpoint, connection)
        return
    made: asyncio.Protocol = connection
    tls = None
    if endpoint.way is not Way.PLAIN:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        made = WebSocketTransport(connection, endpoint.way, f"{host}:{endpoint.port}")
    if endpoint.way is Way.SECURE_WEBSOCKET:
        tls = _authorities()
    hosts = await _hosts_of(endpoint, near)
    while True:
        host = hosts.pop(0)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: made,
                host,
                endpoint.port,
                ssl=tls,
                family=_FAMILIES[endpoint.version],
                server_hostname=endpoint.host if tls is not None else None,
            )
        except ssl.SSLError:
            raise
        except OSError:
            if not hosts:
                raise
        else:
            return


async def _hosts_of(endpoint: Endpoint, near: int) -> list[str]:
    """The hosts to try: of a name whose addresses nobody has checked, those that are no nearer."""
    if near == HERE or is_address(endpoint.host):
        return [endpoint.host]
    found = await asyncio.get_running_loop().getaddrinfo(
        endpoint.host, endpoint.port, family=_FAMILIES[endpoint.version], type=socket.SOCK_STREAM
    )
    hosts = dict.fromkeys(str(place[0]) for *_, place in found)
    allowed = [host for host in hosts if nearness(host.partition("%")[0]) <= near]
    if not allowed:
        raise LocalError("the name leads nearer than whoever named it is")
    return allowed[:_MAX_HOSTS]


async def _dial_from(bound: socket.socket, at: Endpoint, connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(bound, (at.host, at.port))
    except BaseException:
        bound.close()
        raise
    await loop.create_connection(lambda: connection, sock=bound)


def layer_of(way: Way, certificate: str, key: str) -> Layer:
    """What is between the sockets that we listen on and our connections; with TLS, its files."""
    if way is Way.PLAIN:
        return PLAIN
    _session()  # says what is missing before anybody listens
    tls = None
    if way is Way.SECURE_WEBSOCKET:
        if not certificate or not key:
            raise LocalError(
                "listening on /tls/ws needs a certificate and its key in PEM:"
                " --set node.tls_certificate=FILE --set node.tls_key=FILE"
            )
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            tls.load_cert_chain(certificate, key)
        except OSError as error:  # ssl's errors are such too
            raise LocalError(f"cannot use the certificate {certificate}: {error}") from error
    return Layer(way, lambda made: WebSocketTransport(made, way), tls)


def _session(host: str = "") -> "WebSocketSession":
    try:
        from rumormill.libp2p.websocket import WebSocketSession  # noqa: PLC0415 (an extra)
    except ImportError:
        raise LocalError(
            'WebSocket needs the package websockets: run pip install "rumormill[websocket]"'
        ) from None
    return WebSocketSession(host)


@functools.cache
def _authorities() -> ssl.SSLContext:
    """Who vouches for the names of hosts: whom the system trusts."""
    return ssl.create_default_context()


class WebSocketTransport(asyncio.Protocol, asyncio.Transport):
    """Frames what a connection writes, and hands it what comes in frames."""

    def __init__(self, connection: Connection, way: Way, host: str = "") -> None:
        super().__init__()
        self._connection = connection
        self._session = _session(host)
        self._way = way
        self._socket: asyncio.Transport | None = None

    # The socket's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a WebSocket, or wait for the request; the connection begins meanwhile."""
        self._socket = cast("asyncio.Transport", transport)
        self._flush()
        self._connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket."""
        session = self._session
        try:
            now = asyncio.get_running_loop().time()
            said = session.receive(data, now, known=self._connection.ready)
        except PeerError as error:
            self._flush()  # HTTP's own refusal, or why the WebSocket ends
            self._connection.fail(error)
            return
        self._flush()
        if session.useless and self._connection.ready:
            self._connection.charge_useless(session.useless)
            session.useless = 0
        if said:
            self._connection.data_received(said)
        if session.ended and self._socket is not None:
            self._socket.close()
        elif self.get_write_buffer_size() > _MAX_UNREAD and not said:
            self._connection.fail(PeerError(_UNREAD, "pongs that nobody reads"))

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the connection."""
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        """The kernel's buffer is full."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The kernel takes bytes again."""
        self._connection.resume_writing()

    def _flush(self) -> None:
        data = self._session.data_to_send()
        if data and self._socket is not None and not self._socket.is_closing():
            self._socket.write(data)

    # The connection's side.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, when the WebSocket is open."""
        self._session.send(bytes(data))
        self._flush()

    def can_write_eof(self) -> bool:
        """WebSocket has an end of its own, also where TLS has none."""
        return True

    def write_eof(self) -> None:
        """Say that nothing more comes; the peer is to close its side."""
        self._session.close()
        self._flush()

    def close(self) -> None:
        """Close when everything is sent."""
        self.write_eof()
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        """Whether the socket is closing or closed."""
        return self._socket is None or self._socket.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket says of itself; "way" is what lies above it."""
        if name == "way":
            return self._way
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When writing is paused."""
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the kernel."""
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Leave what comes in the kernel."""
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self._socket is not None:
            self._socket.resume_reading()
