"""`/ipfs/ping/1.0.0`."""

from hypothesis import given
from hypothesis import strategies as st

from rumormill.libp2p.services import AnswerPing


@given(st.lists(st.binary(max_size=100)))
def test_the_echo_is_what_came_in_whole_payloads(pieces: list[bytes]) -> None:
    """However the bytes are cut, whole payloads come back, and less than one is kept."""
    listener = AnswerPing()
    echo = b"".join(listener.echo(piece) for piece in pieces)
    sent = b"".join(pieces)
    assert echo == sent[: len(sent) // 32 * 32]
    assert len(listener._unfinished) < 32
