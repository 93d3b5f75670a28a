"""`/ipfs/ping/1.0.0`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.ping import PingInitiator, PingListener

PAYLOAD = bytes(range(32))


def test_the_listener_echoes_and_the_initiator_measures() -> None:
    """The round trip runs from sending the payload to having the whole echo."""
    initiator, listener = PingInitiator(), PingListener()
    echo = listener.receive(initiator.ping(PAYLOAD, now=10.0))
    assert echo == PAYLOAD
    assert initiator.in_flight
    assert initiator.receive(echo[:20], now=10.5) is None
    assert initiator.receive(echo[20:], now=11.5) == 1.5
    assert not initiator.in_flight


def test_a_stream_carries_many_pings_one_after_the_other() -> None:
    """The dialling peer may repeat; the listener loops."""
    initiator, listener = PingInitiator(), PingListener()
    for number in range(3):
        payload = bytes((number,)) * 32
        assert initiator.receive(listener.receive(initiator.ping(payload, 0.0)), 1.0) == 1.0


def test_a_changed_or_unasked_echo_is_the_peers_fault() -> None:
    """Wrong bytes are noticed at once, further bytes are never expected."""
    initiator = PingInitiator()
    with pytest.raises(PeerError, match="unasked-ping"):
        initiator.receive(b"x", 0.0)
    initiator.ping(PAYLOAD, 0.0)
    with pytest.raises(PeerError, match="bad-echo"):
        initiator.receive(b"\xff", 0.0)
    initiator = PingInitiator()
    initiator.ping(PAYLOAD, 0.0)
    with pytest.raises(PeerError, match="unasked-ping"):
        initiator.receive(PAYLOAD + b"x", 0.0)


def test_one_ping_at_a_time_with_32_bytes() -> None:
    """Our own mistakes are ours."""
    initiator = PingInitiator()
    with pytest.raises(ValueError, match="32"):
        initiator.ping(b"short", 0.0)
    initiator.ping(PAYLOAD, 0.0)
    with pytest.raises(LocalError):
        initiator.ping(PAYLOAD, 0.0)


@given(st.lists(st.binary(max_size=100)))
def test_the_echo_is_what_came_in_whole_payloads(pieces: list[bytes]) -> None:
    """However the bytes are cut, whole payloads come back, and less than one is kept."""
    listener = PingListener()
    echo = b"".join(listener.receive(piece) for piece in pieces)
    sent = b"".join(pieces)
    assert echo == sent[: len(sent) // 32 * 32]
    assert len(listener._unfinished) < 32
