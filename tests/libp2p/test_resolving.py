"""A /dnsaddr name is looked up at a name server, by datagram or, if that is too small, by TCP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rumormill.core.errors import LocalError
from rumormill.libp2p.resolving import name_servers, resolve
from rumormill.wire.tickets import MAX_TICKET_ADDRESSES, read_ticket

PEER = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
OTHER = "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"


class NameServer(asyncio.DatagramProtocol):
    """Answers for its names, on one port by datagrams and by TCP."""

    def __init__(self, names: dict[str, list[str]], *, small: bool = False) -> None:
        self.names = names
        self.small = small
        self.by_tcp = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        whole = self.answer(data)
        cut = whole[:2] + b"\x83\x80" + whole[4:6] + bytes(6) + data[12:]
        self.transport.sendto(cut if self.small else whole, address)

    def answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        texts = self.names.get(".".join(labels))
        flags = b"\x81\x83" if texts is None else b"\x81\x80"
        records = b"".join(
            b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c"
            + (len(text) + 1).to_bytes(2)
            + bytes([len(text)])
            + text.encode()
            for text in texts or ()
        )
        count = len(texts or ()).to_bytes(2)
        return question[:2] + flags + b"\0\1" + count + bytes(4) + question[12:] + records

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.by_tcp += 1
        size = int.from_bytes(await reader.readexactly(2))
        answer = self.answer(await reader.readexactly(size))
        writer.write(len(answer).to_bytes(2) + answer)
        writer.close()


@contextlib.asynccontextmanager
async def running(server: NameServer) -> AsyncIterator[list[tuple[str, int]]]:
    loop = asyncio.get_running_loop()
    tcp = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    place = tcp.sockets[0].getsockname()[:2]
    transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=place)
    try:
        yield [place]
    finally:
        transport.close()
        tcp.close()
        await tcp.wait_closed()


def looked_up(server: NameServer, ticket: str) -> list[str]:
    async def look() -> list[str]:
        async with running(server) as servers:
            return [str(each) for each in await resolve(read_ticket(ticket), servers)]

    return asyncio.run(look())


def test_a_name_stands_for_the_addresses_that_its_records_list() -> None:
    records = [
        f"dnsaddr=/ip4/192.0.2.1/tcp/1/p2p/{PEER}",
        f"dnsaddr=/ip4/192.0.2.1/udp/1/quic-v1/p2p/{PEER}",
        f"dnsaddr=/ip6/2001:db8::1/tcp/2/p2p/{OTHER}",
        "v=spf1 -all",
    ]
    server = NameServer({"_dnsaddr.mill.example.org": records})
    assert looked_up(server, "/dnsaddr/mill.example.org") == [
        f"/ip4/192.0.2.1/tcp/1/p2p/{PEER}",
        f"/ip6/2001:db8::1/tcp/2/p2p/{OTHER}",
    ]
    assert looked_up(server, f"/dnsaddr/mill.example.org/p2p/{OTHER}") == [
        f"/ip6/2001:db8::1/tcp/2/p2p/{OTHER}"
    ], "of a peer that is named, only its own"


def test_an_answer_that_does_not_fit_a_datagram_comes_by_tcp() -> None:
    records = [f"dnsaddr=/ip4/192.0.2.{n}/tcp/1/p2p/{PEER}" for n in range(20)]
    server = NameServer({"_dnsaddr.a.org": records}, small=True)
    assert len(looked_up(server, "/dnsaddr/a.org")) == 20
    assert server.by_tcp == 1


def test_names_may_lead_to_names_but_not_for_ever() -> None:
    server = NameServer(
        {
            "_dnsaddr.a.org": ["dnsaddr=/dnsaddr/b.org"],
            "_dnsaddr.b.org": [f"dnsaddr=/ip4/192.0.2.1/tcp/1/p2p/{PEER}"],
            "_dnsaddr.loop.org": ["dnsaddr=/dnsaddr/loop.org", "dnsaddr=/dnsaddr/loop.org"],
        }
    )
    assert looked_up(server, "/dnsaddr/a.org") == [f"/ip4/192.0.2.1/tcp/1/p2p/{PEER}"]
    with pytest.raises(LocalError, match="and so on"):
        looked_up(server, "/dnsaddr/loop.org")


def test_so_many_addresses_as_a_ticket_may_have() -> None:
    records = [f"dnsaddr=/ip4/192.0.2.1/tcp/{n + 1}/p2p/{PEER}" for n in range(60)]
    found = looked_up(NameServer({"_dnsaddr.a.org": records}), "/dnsaddr/a.org")
    assert len(found) == MAX_TICKET_ADDRESSES


def test_a_name_that_is_not_there_fails_unless_other_addresses_are_left() -> None:
    server = NameServer({})
    with pytest.raises(LocalError, match="no DNS record"):
        looked_up(server, "/dnsaddr/nowhere.org")
    other = f"/ip4/192.0.2.1/tcp/1/p2p/{PEER}"
    assert looked_up(server, f"/dnsaddr/nowhere.org,{other}") == [other]


def test_the_servers_are_those_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text("# x\nsearch a.org\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n")
    assert name_servers(file) == [("192.0.2.53", 53), ("2001:db8::53", 53)]
    assert name_servers(tmp_path / "none") == [("127.0.0.1", 53)]
