"""The links of the fault suite fail as real ones do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from chaos_links import Link, Network

from live_nodes import run


class Ends:
    """Node 0, which has dialled node 1 through the link between them."""

    def __init__(self, link: Link, near: tuple, far: tuple) -> None:
        self.link = link
        self.near_in, self.near_out = near
        self.far_in, self.far_out = far

    async def say(self, data: bytes) -> None:
        self.near_out.write(data)
        await self.near_out.drain()


@contextlib.asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    """A connection through a proxy."""
    accepted: asyncio.Queue[tuple] = asyncio.Queue()

    async def accept(*streams: object) -> None:
        await accepted.put(streams)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Network([("127.0.0.2", port), ("127.0.0.1", port)]) as network:
        detour = network.routes(0)[f"127.0.0.1:{port}"]
        near = await asyncio.open_connection("127.0.0.1", detour)
        far = await accepted.get()
        assert far[1].get_extra_info("peername")[0] == "127.0.0.2", "as if it had dialled itself"
        yield Ends(network.links[frozenset((0, 1))], near, far)
        for writer in (near[1], far[1]):
            writer.transport.abort()


def test_what_is_held_arrives_when_the_last_holder_lets_go() -> None:
    async def story() -> None:
        async with ends() as line:
            line.link.hold(True)
            line.link.hold(True)
            await line.say(b"hello")
            line.link.hold(False)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(line.far_in.readexactly(5), 0.05)
            line.link.hold(False)
            assert await line.far_in.readexactly(5) == b"hello"

    run(story)


def test_a_cut_connection_is_reset_on_both_sides() -> None:
    async def story() -> None:
        async with ends() as line:
            line.link.cut()
            for reader in (line.near_in, line.far_in):
                with pytest.raises(ConnectionResetError):
                    await reader.read(1)

    run(story)


def test_of_a_half_open_connection_one_side_knows_and_the_other_is_not_answered() -> None:
    async def story() -> None:
        async with ends() as line:
            (pipe,) = line.link.halve(1)
            with pytest.raises(ConnectionResetError):
                await line.far_in.read(1)
            await line.say(b"is there anybody?")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(line.near_in.read(1), 0.05)
            pipe.reset()
            with pytest.raises(ConnectionResetError):
                await line.near_in.read(1)

    run(story)


def test_a_slow_link_loses_nothing() -> None:
    async def story() -> None:
        async with ends() as line:
            line.link.slow(True)
            await line.say(b"x" * 5000)
            assert await line.far_in.readexactly(5000) == b"x" * 5000

    run(story)


def test_an_orderly_end_goes_through() -> None:
    async def story() -> None:
        async with ends() as line:
            await line.say(b"bye")
            line.near_out.write_eof()
            assert await line.far_in.read() == b"bye"
            line.far_out.write(b"bye yourself")
            line.far_out.write_eof()
            assert await line.near_in.read() == b"bye yourself"

    run(story)


def test_a_node_that_is_not_there_resets_who_dials_it() -> None:
    async def story() -> None:
        async with Network([("127.0.0.2", 9), ("127.0.0.3", 9)]) as network:
            detour = network.routes(0)["127.0.0.3:9"]
            reader, writer = await asyncio.open_connection("127.0.0.1", detour)
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.transport.abort()

    run(story)
