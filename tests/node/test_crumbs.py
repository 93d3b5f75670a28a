"""Floods of crumbs: each within all rules, worth next to nothing, and as dear as what is not."""

from collections.abc import Callable

import pytest
from hostile_peer import ACK, DATA, WINDOW, HostilePeer, yamux_frame

from live_nodes import honest_pair, run
from rumormill.libp2p.services import PING
from rumormill.node.config import NodeConfig

CHUNK = 2000
"""Crumbs that are sent together."""


def empty_noise_frames(mallory: HostilePeer, stream: int) -> bytes:
    return b"".join(encrypted(mallory, b"") for _ in range(CHUNK))


def noise_frames_of_a_byte(mallory: HostilePeer, stream: int) -> bytes:
    frames = yamux_frame(WINDOW, 0, stream, 1 << 12) * (CHUNK // 12)
    return b"".join(encrypted(mallory, frames[at : at + 1]) for at in range(len(frames)))


def bytes_one_by_one(mallory: HostilePeer, stream: int) -> bytes:
    """A long message, of which each byte has a frame; the peer counts what it may still send."""
    said = b"\x80\x80\x10" + bytes(CHUNK)
    mallory.session._streams[stream].window -= len(said)
    frames = (yamux_frame(DATA, 0, stream, 1, bytes((each,))) for each in said)
    return encrypted(mallory, b"".join(frames))


def windows_a_byte_wider(mallory: HostilePeer, stream: int) -> bytes:
    return encrypted(mallory, yamux_frame(WINDOW, 0, stream, 1) * CHUNK)


def streams_accepted_again(mallory: HostilePeer, stream: int) -> bytes:
    return encrypted(mallory, yamux_frame(WINDOW, ACK, stream, 0) * CHUNK)


def encrypted(mallory: HostilePeer, data: bytes) -> bytes:
    noise = mallory._noise
    assert noise is not None
    if data:
        return noise.encrypt(data)
    sealed = noise._encrypt(bytes(4) + noise._send_nonce.to_bytes(8, "little"), b"", None)
    noise._send_nonce += 1
    return len(sealed).to_bytes(2) + sealed


@pytest.mark.parametrize(
    "crumbs",
    [
        empty_noise_frames,
        noise_frames_of_a_byte,
        bytes_one_by_one,
        windows_a_byte_wider,
        streams_accepted_again,
    ],
)
def test_a_flood_of_crumbs_is_cut_off_and_an_honest_pair_goes_on(
    crumbs: Callable[[HostilePeer, int], bytes],
) -> None:
    """Each of these went on for ever."""

    async def story() -> None:
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            stream, chunks = mallory.hello("from alice"), 0
            while not mallory.closed and chunks < 400:
                mallory.raw(crumbs(mallory, stream))
                chunks += 1
                await mallory.drain()
                await pair.more(1)
            assert pair.alice.refusals["cut-off-useless-frames"] == 1

    run(story)


def test_pings_without_end_on_one_stream_are_cut_off() -> None:
    """However well they are read: nobody needs thousands a second."""

    async def story() -> None:
        async with honest_pair(NodeConfig(close_timeout=0.2)) as pair, HostilePeer() as mallory:
            await mallory.connect(pair.alice)
            stream = mallory.open(PING)
            for _ in range(400):
                if mallory.closed:
                    break
                if not mallory.session._streams[stream].outgoing:
                    mallory.say(stream, bytes(32) * CHUNK)
                await mallory.drain()
                await pair.more(1)
            assert pair.alice.refusals["cut-off-useless-frames"] == 1

    run(story)
