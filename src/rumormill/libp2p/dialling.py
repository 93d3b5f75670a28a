"""Dialling: whom to reach, at which of its addresses, and again when it was lost.

The rule: one dial at a time for each peer, which all share who want it; so many in all that the
network asked for. Addresses are raced (`racing`), those through relays last.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.address_book import AddressBook, nearest
from rumormill.libp2p.admission import Bans, Places, origin_of
from rumormill.libp2p.circuits import Circuits
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.pnet import PrivateNetwork
from rumormill.libp2p.racing import race, why
from rumormill.libp2p.transports import dial
from rumormill.wire import keys
from rumormill.wire.multiaddr import Endpoint, Multiaddr


class Dialling(ABC):
    """The part of a swarm that dials."""

    key: keys.PrivateKey
    id: PeerId
    network: PrivateNetwork | None
    circuits: Circuits

    def __init__(self, config: ConnectionConfig) -> None:
        self.config = config
        self.book = AddressBook()
        self.connections: dict[PeerId, Connection] = {}
        self.counts: Counter[str] = Counter()
        """What peers were refused or cut off for, by reason."""
        self.on_unreached: Callable[[PeerId, str], None] = lambda *_: None
        self._places: Places[Connection] = Places(config.max_connections)
        self._bans = Bans()
        self._dialling: dict[PeerId, asyncio.Task[Connection]] = {}
        self._wanted: dict[PeerId, None] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._redialling: dict[PeerId, None] = {}
        self._closing = False

    @abstractmethod
    def count(self, reason: str) -> None:
        """Count a refusal."""

    @abstractmethod
    def new_connection(self, expected_peer: PeerId | None = None) -> Connection:
        """Make a connection that we dial, to the peer that is expected; without one, that comes."""

    @abstractmethod
    def _excluded(self, peer: PeerId) -> str: ...

    async def connect(self, ticket: Sequence[Multiaddr], *, keep: bool = True) -> PeerId:
        """Dial the peers of a ticket; return the first that is reached, while the others are still
        dialled. With `keep`, they are dialled again whenever their connections are lost."""
        peers = self.book.give_all(ticket)
        if keep:
            self._wanted.update(dict.fromkeys(peers))
        reached = await race([partial(self._reach, peer) for peer in peers])
        if isinstance(reached, list):
            raise LocalError("; ".join(reached))
        return reached

    async def _reach(self, peer: PeerId) -> PeerId | str:
        try:
            await self.dial(peer)
        except LocalError as error:
            return str(error)
        return peer

    def dial_record(self, peer: PeerId, record: bytes, informant: PeerId = b"") -> str:
        """Dial a peer in the background, with the addresses of a signed record if there is one,
        which another has given us.

        Return why not, when it cannot even be tried; `on_unreached` tells of what fails later.
        """
        if record:
            try:
                self.book.learn_record(peer, record, self._near(informant))
            except PeerError as error:
                self.count(error.reason)
                return error.reason
        if len(self._dialling) >= self.config.max_pending_dials:
            self.count("too-many-dials")
            return "too many dials"
        self.spawn(self._dial_quietly(peer, self.on_unreached))
        return ""

    def _near(self, informant: PeerId) -> int:
        """How near a peer is that tells us something; if it is gone, anybody who is there."""
        told = self.connections.get(informant)
        sources = self.connections.values() if told is None else (told,)
        return nearest([each.origin.address for each in sources])

    async def dial(
        self, peer: PeerId, *, transient: bool = False, direct: bool = False
    ) -> Connection:
        """Return the connection to a peer, dialling where there is none; with `direct`, one that
        goes through no relay.

        A transient one is closed when nothing passes over it; it lasts once anybody asks for it
        without that.
        """
        connection = self.connections.get(peer)
        if connection is None or (direct and connection.relay):
            if excluded := self._excluded(peer):
                raise LocalError(f"{keys.PeerId(peer)} is not dialled: {excluded}")
            task = self._dialling.get(peer)
            if task is None:
                dialling = self._dial(peer, transient=transient, direct=direct)
                task = self._dialling[peer] = asyncio.ensure_future(dialling)
                task.add_done_callback(lambda done: self._on_dialled(peer, done))
            connection = await asyncio.shield(task)
        connection.transient &= transient
        if direct and connection.relay:
            raise LocalError(f"{keys.PeerId(peer)} is reached through a relay alone")
        return connection

    def _on_dialled(self, peer: PeerId, task: asyncio.Task[Connection]) -> None:
        self._dialling.pop(peer, None)
        if not task.cancelled():
            task.exception()  # whoever waited for it may be gone

    async def _dial(
        self, peer: PeerId, *, transient: bool = False, direct: bool = False
    ) -> Connection:
        endpoints = [each for each in self.book.endpoints(peer) if not (direct and each.relay)]
        if not endpoints:
            raise LocalError(f"no address is known of {keys.PeerId(peer)}")
        self._make_room()
        banned, now = self._bans.is_banned, asyncio.get_running_loop().time()
        admitted = [
            each for each in endpoints if each.relay or not banned(origin_of(each.host).group, now)
        ]
        if banned(peer, now) or not admitted:
            raise LocalError(f"{keys.PeerId(peer)} was cut off, and is not dialled for a while")
        found = await race([partial(self.dial_at, peer, endpoint) for endpoint in admitted])
        if not isinstance(found, list):
            found.transient = transient
            return self.connections.get(peer, found)
        if peer in self.connections:  # it dialled us meanwhile
            return self.connections[peer]
        raise LocalError(f"cannot reach {keys.PeerId(peer)}: {'; '.join(found)}")

    async def dial_at(self, peer: PeerId, at: Endpoint) -> Connection | str:
        """Dial a peer at one address; return the connection when it is ready, or why it is not."""
        connection = self.new_connection(peer)
        try:
            async with asyncio.timeout(self.config.dial_timeout):
                if at.relay:
                    await self.circuits.dial(peer, at, connection)
                else:
                    await dial(at, connection, near=self.book.leads(peer, at))
                await connection.ready_or_failed
                return connection
        except (OSError, LocalError, TimeoutError) as error:
            reason = f"{at}: {why(error)}"
            if self.network is not None and isinstance(error, LocalError | TimeoutError):
                reason += "; does it have the key of this private network?"
            return reason
        except asyncio.CancelledError:
            if self.connections.get(peer) is not connection:
                connection.abort("another address was faster")
            raise

    def _make_room(self) -> None:
        """Close the transient connection that was idle longest, before all places are taken."""
        if len(self._places) >= self.config.max_connections * 3 // 4:
            each = self.connections.values()
            idle = [one for one in each if one.transient and not one.active]
            if idle:
                min(idle, key=lambda one: one.last_used).close("making room")

    async def _dial_quietly(
        self, peer: PeerId, failed: Callable[[PeerId, str], None] = lambda *_: None
    ) -> None:
        if isinstance(reason := await self._reach(peer), str):
            self.count("dial-failed")
            failed(peer, reason)

    async def _redial(self, peer: PeerId) -> None:
        """Dial a wanted peer until it is back and stays for a pause, each twice as long."""
        delay = self.config.redial_delay_first
        try:
            await asyncio.sleep(delay)
            while peer in self._wanted and not self._closing and peer not in self.connections:
                await self._dial_quietly(peer)
                delay = min(delay * 2, self.config.redial_delay_longest)
                await asyncio.sleep(delay)
        finally:
            self._redialling.pop(peer, None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background until the swarm closes; nothing is begun then."""
        if self._closing:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
