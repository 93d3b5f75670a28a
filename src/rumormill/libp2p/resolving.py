"""Looks up what a `/dnsaddr` name stands for: its TXT records, as libp2p's specification has it.

The records of `_dnsaddr.NAME` read `dnsaddr=ADDRESS`, and an address may be such a name again. The
rule: names lead `_MAX_DEPTH` steps far and to so many addresses as a ticket may have, whatever the
records say; each server is asked a few times, for a while.
"""

import asyncio
import contextlib
import secrets
import socket
from pathlib import Path
from typing import Final

from rumormill.core.errors import DecodeError, LocalError
from rumormill.wire.dns import MAX_MESSAGE_BYTES, decode_texts, encode_question, is_truncated
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.tickets import MAX_TICKET_ADDRESSES

RESOLV_CONF: Final = Path("/etc/resolv.conf")
_PORT: Final = 53
_MAX_SERVERS: Final = 3
_MAX_DEPTH: Final = 3
_TRIES: Final = 2
_TIMEOUT: Final = 3.0
"""Seconds for an answer; resolvers of the C library wait 5."""
_PREFIX: Final = "dnsaddr="


def name_servers(file: Path = RESOLV_CONF) -> list[tuple[str, int]]:
    """Whom this machine asks for names."""
    found = []
    with contextlib.suppress(OSError):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                found.append((words[1], _PORT))
    return found[:_MAX_SERVERS] or [("127.0.0.1", _PORT)]


async def resolve(
    addresses: tuple[Multiaddr, ...], servers: list[tuple[str, int]] | None = None
) -> tuple[Multiaddr, ...]:
    """The same addresses, with those that a name stands for in its place.

    LocalError if a name cannot be looked up, unless other addresses are left.
    """
    found: dict[Multiaddr, None] = {}
    failures: list[str] = []
    await _resolve(addresses, servers or name_servers(), _MAX_DEPTH, found, failures)
    if not found:
        raise LocalError("; ".join(failures) or "the ticket's name lists no TCP address of a peer")
    return tuple(found)


async def _resolve(
    addresses: tuple[Multiaddr, ...],
    servers: list[tuple[str, int]],
    depth: int,
    found: dict[Multiaddr, None],
    failures: list[str],
) -> None:
    for address in addresses:
        if len(found) >= MAX_TICKET_ADDRESSES:
            return
        name = address.dnsaddr
        if name is None:
            if address.endpoint is not None and address.peer_id is not None:
                found[address] = None
            continue
        if not depth:
            failures.append(f"{name} leads to names that lead to names, and so on")
            continue
        try:
            listed = _addresses_in(await _texts("_dnsaddr." + name, servers))
        except LocalError as error:
            failures.append(str(error))
            continue
        wanted = address.peer_id
        listed = [each for each in listed if wanted is None or each.peer_id in (wanted, None)]
        await _resolve(tuple(listed), servers, depth - 1, found, failures)


def _addresses_in(texts: list[str]) -> list[Multiaddr]:
    """The addresses that records list, without those of transports that are not spoken here."""
    found = []
    for text in texts:
        if text.startswith(_PREFIX):
            with contextlib.suppress(DecodeError):
                found.append(Multiaddr.parse(text.removeprefix(_PREFIX)))
    return found


async def _texts(name: str, servers: list[tuple[str, int]]) -> list[str]:
    """Ask for the TXT records of a name, one server after another."""
    problem = "no name server answers"
    for _ in range(_TRIES):
        for server in servers:
            number = secrets.randbelow(1 << 16)
            question = encode_question(number, name)
            try:
                async with asyncio.timeout(_TIMEOUT):
                    answer = await _ask(server, question)
                    if is_truncated(answer):
                        answer = await _ask_by_tcp(server, question)
                return decode_texts(number, answer)
            except DecodeError as error:
                if error.reason == "no-such-name":
                    raise LocalError(f"{name} has no DNS record") from None
                problem = f"{server[0]}: {error.detail}"
            except TimeoutError:
                problem = f"{server[0]} does not answer"
            except OSError as error:
                problem = f"{server[0]}: {error.strerror or error}"
    raise LocalError(f"cannot look up {name}: {problem}")


async def _ask(server: tuple[str, int], question: bytes) -> bytes:
    """One datagram there and one back; who else answers is not heard, the socket is connected."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        asking.connect(server)
        await loop.sock_sendall(asking, question)
        while True:
            answer = await loop.sock_recv(asking, MAX_MESSAGE_BYTES)
            if answer[:2] == question[:2]:
                return answer


async def _ask_by_tcp(server: tuple[str, int], question: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    try:
        writer.write(len(question).to_bytes(2) + question)
        size = int.from_bytes(await reader.readexactly(2))
        return await reader.readexactly(min(size, MAX_MESSAGE_BYTES))
    except asyncio.IncompleteReadError:
        raise OSError("the name server hung up") from None
    finally:
        writer.close()
