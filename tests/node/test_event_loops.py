"""Event loops other than asyncio's own: what a node needs of them, and uvloop where it is there."""

import asyncio
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from live_nodes import run, take
from rumormill import Node
from rumormill.cli import session
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.swarm import Swarm
from rumormill.node.config import NodeConfig
from rumormill.wire.keys import PrivateKey


class BareTransport:
    """The methods of a transport that a connection calls, without asyncio's class."""

    def __init__(self) -> None:
        self.written = b""

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_extra_info(self, name: str) -> object:
        return {"peername": ("127.0.0.1", 4001)}.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        pass


def test_a_connection_takes_any_transport_that_has_the_methods() -> None:
    """uvloop's transports do not inherit from asyncio's."""

    async def main() -> None:
        swarm = Swarm(PrivateKey(bytes(32)), NodeConfig())
        connection = Connection(swarm, outbound=True)
        transport = BareTransport()
        connection.connection_made(cast("asyncio.BaseTransport", transport))
        assert transport.written.startswith(b"\x13/multistream/1.0.0\n")
        connection.abort("enough")

    run(main)


def test_commands_run_on_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And on asyncio's own loop where it is not."""
    made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.new_event_loop())
        return made[-1]

    async def work() -> int:
        return 7 if made and asyncio.get_running_loop() is made[0] else 0

    spec = SimpleNamespace(name="uvloop")
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=new_event_loop))
    assert session.run_async(work()) == 7
    made.clear()
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda _: None)
    assert session.run_async(work()) == 0


def test_nodes_talk_on_uvloop() -> None:
    """Where the extra is installed."""
    uvloop = pytest.importorskip("uvloop", reason="the extra uvloop is not installed")

    async def main() -> None:
        async with Node(None) as ann, Node(None) as bob:
            events = await bob.subscribe("news")
            await bob.connect(ann.tickets[0])
            await ann.wait_until_ready("news")
            sent = [b"%d " % number + bytes(5000) for number in range(300)]
            await ann.publish_many("news", sent)
            assert await take(events, 300) == sent

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
