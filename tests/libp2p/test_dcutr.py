"""DCUtR: its messages as the specification has them, and the port that is lent for a punch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_nodes import run
from rumormill.core.errors import DecodeError, LocalError
from rumormill.libp2p import punching
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.dcutr import MAX_MESSAGE_BYTES, Punch, PunchMessage, changes_ports
from rumormill.libp2p.listening import Listening
from rumormill.libp2p.punching import Punching
from rumormill.libp2p.swarm import Swarm
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Endpoint, Multiaddr
from rumormill.wire.protobuf import bytes_field, varint_field

ADDRESS = Multiaddr.tcp("192.0.2.1", 4001).encode()


def test_the_fields_have_the_specifications_numbers() -> None:
    """Type 1, 100 for CONNECT and 300 for SYNC; addresses 2."""
    connect = varint_field(1, 100) + bytes_field(2, ADDRESS)
    assert PunchMessage(Punch.CONNECT, (ADDRESS,)).encode() == connect
    assert PunchMessage.decode(connect) == PunchMessage(Punch.CONNECT, (ADDRESS,))
    assert PunchMessage(Punch.SYNC).encode() == varint_field(1, 300)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        varint_field(1, 200),
        bytes_field(2, ADDRESS),
        varint_field(1, 100) + bytes_field(2, ADDRESS) * 65,
        varint_field(1, 100) + bytes_field(9, bytes(MAX_MESSAGE_BYTES)),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Without a type, of an unknown one, or too long."""
    with pytest.raises(DecodeError):
        PunchMessage.decode(data)


@given(st.binary(max_size=100))
def test_fuzz_messages_are_read_or_refused(data: bytes) -> None:
    """And what is read is written as it is read."""
    try:
        message = PunchMessage.decode(data)
    except DecodeError:
        return
    assert PunchMessage.decode(message.encode()) == message


@pytest.mark.parametrize(
    ("seen", "changes"),
    [
        ([], False),
        ([("192.0.2.1", 4001)], False),
        ([("192.0.2.1", 4001), ("192.0.2.1", 4001)], False),
        ([("192.0.2.1", 4001), ("192.0.2.2", 4002)], False),
        ([("192.0.2.1", 4001), ("192.0.2.2", 4001), ("192.0.2.1", 5001)], True),
    ],
)
def test_two_ports_at_one_host_are_a_symmetric_nat(
    seen: list[tuple[str, int]], changes: bool
) -> None:
    """Several hosts are not: a machine may have them."""
    ends = [Multiaddr.tcp(host, port).endpoint for host, port in seen]
    assert changes_ports([each for each in ends if each is not None]) == changes


def test_a_port_is_lent_for_a_dial_and_is_nobody_elses() -> None:
    """A socket of ours is bound to it while we listen there; another node cannot listen."""

    async def story() -> None:
        listening = Listening(asyncio.Protocol, lambda _: None)
        await listening.listen("127.0.0.1", 0)
        endpoint = listening.addresses[0].endpoint
        assert endpoint is not None
        one, other = listening.bound(six=False), listening.bound(six=False)
        assert one is not None
        assert other is not None
        assert one.getsockname() == other.getsockname() == ("127.0.0.1", endpoint.port)
        assert listening.bound(six=True) is None
        with pytest.raises(LocalError, match="in use"):
            await Listening(asyncio.Protocol, lambda _: None).listen("127.0.0.1", endpoint.port)
        one.close()
        other.close()
        await listening.close()

    run(story)


class Told:
    """A connection through a relay, and a talk on it that breaks off at once."""

    relay, outbound, remote_peer = b"relay", True, b"peer"
    given_up = 0

    async def read(self) -> bytes:
        raise LocalError("the peer ended the talk")

    def give_up(self) -> None:
        self.given_up += 1


def test_who_was_reached_leads_us_into_three_punches_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has us dial whom it names, again and again."""
    begun = 0

    @contextlib.asynccontextmanager
    async def seen(*_: object) -> AsyncIterator[list[bytes]]:
        nonlocal begun
        begun += 1
        yield []

    monkeypatch.setattr(Punching, "_seen_from_outside", seen)

    async def story() -> None:
        swarm = Swarm(PrivateKey(bytes(32)), ConnectionConfig())
        punching, told = Punching(swarm), Told()
        for _ in range(5):
            await punching._on_dcutr(told, told)  # type: ignore[arg-type]
        assert (begun, told.given_up) == (3, 5)
        assert swarm.refusals()["dcutr-unexpected"] == 2

    run(story)


def test_an_address_that_refuses_is_dialled_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the four seconds of an attempt: a peer that names other people's addresses had us knock
    there two hundred times."""
    pauses: list[float] = []

    async def refused(*_: object) -> None:
        raise ConnectionRefusedError

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) > 4.0:
            raise asyncio.CancelledError

    monkeypatch.setattr(punching, "dial", refused)

    async def story() -> None:
        swarm = Swarm(PrivateKey(bytes(32)), ConnectionConfig())
        monkeypatch.setattr(swarm.listening, "bound", lambda **_: object())
        at = Endpoint("192.0.2.1", 4001)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await Punching(swarm)._dial(at, swarm.new_connection)
        monkeypatch.undo()
        assert len(pauses) < 10

    run(story)
