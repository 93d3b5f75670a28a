"""The small services of every libp2p node: identify, identify push and ping.

identify tells a peer who we are and what we speak, and is answered from what the swarm knows now.
ping (`/ipfs/ping/1.0.0`) echoes 32 bytes; we answer such pings and send none, because a connection
is kept alive by the pings of its multiplexer. Both are served on streams that the peer opens;
identify is also asked for on every new connection.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol

from rumormill.core.errors import PeerError
from rumormill.libp2p.envelope import seal_peer_record
from rumormill.libp2p.identify import Identify, IdentifyReader
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.version import __version__
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr

PING: Final = "/ipfs/ping/1.0.0"
IDENTIFY_SECONDS: Final = 30.0
"""How long a peer may take to say what it is, since we keep what has come of it: our choice, three
times as long as anybody has for a handshake."""
_TIMEOUT = "identify-timeout"
_PING_BYTES = 32
_AGENT = f"rumormill/{__version__}"
_PROTOCOL_VERSION = "ipfs/0.1.0"


class _Described(Protocol):
    """What is told of a node."""

    @property
    def own_addresses(self) -> list[Multiaddr]: ...

    @property
    def services(self) -> Collection[str]: ...


class Description:
    """What a node tells of itself, to each peer that asks."""

    def __init__(self, key: PrivateKey, node: _Described, now: Callable[[], int]) -> None:
        self._key = key
        self._node = node
        self._now = now
        self._sealed: tuple[tuple[bytes, ...], bytes] | None = None

    def __call__(self, stream: Stream) -> Identify:
        """The message for the peer at the other end of a stream."""
        addresses = tuple(address.encode() for address in self._node.own_addresses)
        if self._sealed is None or self._sealed[0] != addresses:
            # Signed once: a peer that asks and asks must not have us sign and sign.
            self._sealed = addresses, seal_peer_record(self._key, self._now(), addresses)
        seen = Multiaddr.parse(stream.connection.remote_address)
        relayed = seen.endpoint is not None and seen.endpoint.relay
        return Identify(
            public_key=self._key.public_key.encoded,
            listen_addresses=addresses,
            protocols=tuple(self._node.services),
            observed_address=None if relayed else seen.encode(),
            protocol_version=_PROTOCOL_VERSION,
            agent_version=_AGENT,
            signed_peer_record=self._sealed[1],
        )


class AnswerIdentify(StreamHandler):
    """Tells the peer who we are, and ends."""

    def __init__(self, describe: Callable[[Stream], Identify]) -> None:
        self._describe = describe

    def on_open(self, stream: Stream) -> None:
        """Send the one message of this protocol."""
        stream.send(self._describe(stream).encode())
        stream.end()

    def on_close(self, stream: Stream, reason: str) -> None:
        """Forget the stream once the peer has ended it too."""
        stream.connection.forget_stream(stream)


class ReadIdentify(StreamHandler):
    """Reads what a peer says of itself, asked for or pushed."""

    def __init__(
        self, learn: Callable[[Stream, Identify], None], refuse: Callable[[str], None]
    ) -> None:
        self._learn = learn
        self._refuse = refuse
        self._reader = IdentifyReader()

    def on_open(self, stream: Stream) -> None:
        """Only the peer speaks, and not for ever."""
        stream.end()
        drop, loop = stream.connection.drop_stream, asyncio.get_running_loop()
        stream.deadline = loop.call_later(IDENTIFY_SECONDS, drop, stream, _TIMEOUT)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Collect the message."""
        self._reader.receive(data)

    def on_close(self, stream: Stream, reason: str) -> None:
        """Read what came, when it came whole."""
        stream.connection.forget_stream(stream)
        if reason == _TIMEOUT:
            self._refuse(reason)
        if reason != ENDED:
            return
        try:
            self._learn(stream, self._reader.finish())
        except PeerError as error:
            self._refuse(error.reason)


class AnswerPing(StreamHandler):
    """Echoes whole pings, and keeps at most one that is unfinished."""

    def __init__(self) -> None:
        self._unfinished = b""

    def echo(self, data: bytes) -> bytes:
        """Take bytes from the peer; return the echo of every ping that is now complete."""
        data = self._unfinished + data
        whole = len(data) - len(data) % _PING_BYTES
        self._unfinished = data[whole:]
        return data[:whole]

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Echo; a peer that does not read its answers is cut off."""
        answer = self.echo(data)
        stream.connection.session.note_crumbs(len(answer) // _PING_BYTES)
        if answer and stream.send(answer) < len(answer):
            raise PeerError("unread-pongs", "the peer pings and does not read the answers")

    def on_close(self, stream: Stream, reason: str) -> None:
        """End our side when the peer has ended its own."""
        if reason == ENDED:
            stream.end()
        stream.connection.forget_stream(stream)
