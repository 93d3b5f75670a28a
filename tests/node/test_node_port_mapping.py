"""A node that has its router lead a port to it: a fake router, real sockets, every way."""

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from live_nodes import run, until
from rumormill.libp2p import autonat, mapping, portmap
from rumormill.node.node import Node

EXTERNAL = "5.9.0.1"
KIND = "urn:schemas-upnp-org:service:WANIPConnection:1"


class Router(asyncio.DatagramProtocol):
    """A home router that speaks some of the protocols, and remembers what it maps."""

    def __init__(self, *speaks: str) -> None:
        self.speaks = speaks
        self.mapped: dict[int, int] = {}
        """Seconds by port."""
        self.calls: list[str] = []
        self.http = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: Any) -> None:
        answer = b""
        if data.startswith(b"M-SEARCH") and "UPnP" in self.speaks:
            place = f"http://127.0.0.1:{self.http}/root.xml"
            answer = f"HTTP/1.1 200 OK\r\nLOCATION: {place}\r\n\r\n".encode()
        elif data[:1] == b"\x02":
            answer = self._pcp(data) if "PCP" in self.speaks else b""
        elif data[:1] == b"\x00" and "NAT-PMP" in self.speaks:
            answer = self._pmp(data)
        if answer:
            self._transport.sendto(answer, sender)

    def _note(self, port: int, seconds: int) -> None:
        self.calls.append(f"{port} for {seconds}")
        if seconds:
            self.mapped[port] = seconds
        else:
            self.mapped.pop(port, None)

    def _pcp(self, data: bytes) -> bytes:
        port, seconds = int.from_bytes(data[40:42]), int.from_bytes(data[4:8])
        self._note(port, seconds)
        head = b"\x02\x81\x00\x00" + data[4:8] + bytes(16) + data[24:42]
        return head + (40000).to_bytes(2) + bytes(10) + b"\xff\xff" + b"\x05\x09\x00\x01"

    def _pmp(self, data: bytes) -> bytes:
        if data[1] == 0:
            return b"\x00\x80\x00\x00" + bytes(4) + b"\x05\x09\x00\x01"
        port, seconds = int.from_bytes(data[4:6]), int.from_bytes(data[8:12])
        self._note(port, seconds)
        return b"\x00\x82\x00\x00" + bytes(4) + data[4:6] + (40000).to_bytes(2) + data[8:12]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """HTTP."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = re.search(r"Content-Length: (\d+)", head)
        body = (await reader.readexactly(int(size[1]))).decode() if size else ""
        answer = (
            f"<root><service><serviceType>{KIND}</serviceType>"
            "<controlURL>/control</controlURL></service></root>"
        )
        port = re.search(r"<NewExternalPort>(\d+)<", body)
        if "AddPortMapping" in body and port:
            assert "<NewInternalClient>127.0.0.1</NewInternalClient>" in body
            self._note(int(port[1]), 3600)
        elif "DeletePortMapping" in body and port:
            self._note(int(port[1]), 0)
        elif "GetExternalIPAddress" in body:
            answer = f"<x><NewExternalIPAddress>{EXTERNAL}</NewExternalIPAddress></x>"
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{answer}".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def router(monkeypatch: pytest.MonkeyPatch, *speaks: str) -> AsyncIterator[Router]:
    """The default gateway of this machine, for a test."""
    loop, made = asyncio.get_running_loop(), Router(*speaks)
    own, _ = await loop.create_datagram_endpoint(lambda: made, ("127.0.0.1", 0))
    port = own.get_extra_info("sockname")[1]
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.http = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(mapping, "default_gateway", lambda: "127.0.0.1")
    monkeypatch.setattr(mapping, "_PAUSES", (0.1, 0.2))
    monkeypatch.setattr(portmap, "PORT", port)
    monkeypatch.setattr(portmap, "SSDP_PORT", port)
    try:
        yield made
    finally:
        own.close()
        server.close()


@pytest.mark.parametrize(("way", "port"), [("PCP", 40000), ("NAT-PMP", 40000), ("UPnP", None)])
def test_a_port_is_mapped_told_and_given_back(
    monkeypatch: pytest.MonkeyPatch, way: str, port: int | None
) -> None:
    """For an hour at most; when the node ends, at once."""

    async def story() -> None:
        async with router(monkeypatch, way) as gateway:
            async with Node(None, members=False, map_port=True) as node:
                own = int(node.tickets[0].split("/")[4])
                told = f"/ip4/{EXTERNAL}/tcp/{port or own}"
                await until(lambda: node.tickets[0].startswith(f"{told}/p2p/"), "it is told")
                assert gateway.mapped == {own: 3600}
                assert f"the router maps {told} to us" in node.reachability
            assert gateway.mapped == {}
            assert gateway.calls == [f"{own} for 3600", f"{own} for 0"]

    run(story)


def test_a_router_behind_another_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own address is of the provider's network: nobody is told of it."""

    async def story() -> None:
        monkeypatch.setattr(autonat, "is_public", lambda host: host != EXTERNAL)
        async with router(monkeypatch, "PCP"), Node(None, members=False, map_port=True) as node:
            await until(lambda: node._reach.mapping.outcome, "there is an outcome")  # type: ignore[union-attr]
            said = f"the router is behind another: its own address is {EXTERNAL}"
            assert said in node.reachability
            assert len(node.tickets) == 1

    run(story)


def test_a_router_that_maps_nothing_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node says what it has tried."""

    async def story() -> None:
        async with router(monkeypatch), Node(None, members=False, map_port=True) as node:
            await until(lambda: node._reach.mapping.outcome, "there is an outcome")  # type: ignore[union-attr]
            said = node.reachability[-1]
            assert said.startswith("the router maps no port to us (PCP: no answer; NAT-PMP: ")
            assert len(node.tickets) == 1

    run(story)


@pytest.mark.skipif(sys.platform != "linux", reason="needs more addresses than 127.0.0.1")
def test_datagrams_of_strangers_do_not_keep_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees our search on the local network may send as much as it likes: each is counted,
    others have their turn between any two of them, and the router is heard behind all."""
    strangers, rounds = 100, 0
    rounds_until_heard: list[int] = []
    decode = portmap.decode_pcp

    def decode_pcp(data: bytes, nonce: bytes, port: int) -> portmap.Mapped:
        rounds_until_heard.append(rounds)
        return decode(data, nonce, port)

    monkeypatch.setattr(portmap, "decode_pcp", decode_pcp)

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def come_round() -> None:
            nonlocal rounds
            rounds += 1
            loop.call_soon(come_round)

        async with router(monkeypatch, "PCP") as gateway:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("127.0.0.2", 0))

                def crowd(data: bytes, sender: Any) -> None:
                    for _ in range(strangers):
                        stranger.sendto(b"no answer", sender)
                    loop.call_soon(come_round)
                    Router.datagram_received(gateway, data, sender)

                monkeypatch.setattr(gateway, "datagram_received", crowd)
                async with Node(None, members=False, map_port=True) as node:
                    await until(lambda: EXTERNAL in node.tickets[0], "the router is heard")
                    assert rounds_until_heard[0] >= strangers
                    assert node.refusals["foreign-port-mapping"] == strangers

    run(story)


def test_nobody_is_asked_unless_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of the router is opened for who wants that."""

    async def story() -> None:
        async with router(monkeypatch, "PCP") as gateway, Node(None, members=False):
            await asyncio.sleep(0.1)
            assert gateway.calls == []

    run(story)
