"""multistream-select 1.0, both roles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, PeerError
from rumormill.libp2p.multistream import (
    MAX_LINE_BYTES,
    MAX_PROPOSALS,
    Initiator,
    Listener,
    Outcome,
    encode_line,
)

GREETING = b"\x13/multistream/1.0.0\n"


def test_a_line_is_text_and_newline_behind_their_length() -> None:
    """The specification's example: `na` is 0x036e610a."""
    assert encode_line("na").hex() == "036e610a"
    assert encode_line("/multistream/1.0.0") == GREETING
    assert encode_line("x" * 200)[:2] == b"\xc9\x01"


def test_the_initiator_sends_greeting_and_first_proposal_at_once() -> None:
    """Both sides may send the greeting without waiting."""
    assert Initiator(["/a", "/b"]).data_to_send() == GREETING + b"\x03/a\n"
    assert Listener({"/a"}).data_to_send() == GREETING


def test_the_listener_echoes_what_it_supports() -> None:
    """Agreement is the proposal sent back; what follows belongs to the protocol."""
    listener = Listener({"/a"})
    assert listener.receive(GREETING + b"\x03/a\npayload") == b"payload"
    assert (listener.outcome, listener.protocol) == (Outcome.AGREED, "/a")
    assert listener.data_to_send() == GREETING + b"\x03/a\n"


def test_the_initiator_tries_the_next_protocol_after_na() -> None:
    """The second proposal goes out only when the first is refused."""
    initiator = Initiator(["/a", "/b"])
    initiator.data_to_send()
    assert initiator.receive(GREETING) == b""
    assert initiator.data_to_send() == b""
    assert initiator.receive(b"\x03na\n") == b""
    assert initiator.data_to_send() == b"\x03/b\n"
    assert initiator.receive(b"\x03/b\nrest") == b"rest"
    assert (initiator.outcome, initiator.protocol) == (Outcome.AGREED, "/b")


def test_when_every_proposal_is_refused_the_outcome_says_so() -> None:
    """A refusal is an outcome, not an offence."""
    initiator = Initiator(["/a"])
    initiator.receive(GREETING + b"\x03na\n")
    assert (initiator.outcome, initiator.protocol) == (Outcome.REFUSED, None)


def test_a_single_proposal_is_optimistic() -> None:
    """The protocol's bytes may follow the proposal; a supporting listener hands them on."""
    initiator, listener = Initiator(["/a"]), Listener({"/a"})
    assert listener.receive(initiator.data_to_send() + b"early") == b"early"
    assert initiator.receive(listener.data_to_send() + b"answer") == b"answer"


def test_ls_is_refused_with_na() -> None:
    """The list of protocols is identify's business."""
    listener = Listener({"/a"})
    listener.data_to_send()
    listener.receive(GREETING + b"\x03ls\n")
    assert listener.data_to_send() == b"\x03na\n"
    assert listener.outcome is Outcome.PENDING


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x03/a\n", id="no greeting"),
        pytest.param(b"\x13/multistream/2.0.0\n", id="another version"),
        pytest.param(b"\x00", id="empty line"),
        pytest.param(b"\x13/multistream/1.0.0!", id="no newline"),
        pytest.param(b"\x03\xff\xfe\n", id="not UTF-8"),
        pytest.param(b"\x81\x08", id="1025 bytes"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="varint bomb"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 8, id="another protocol"),
    ],
)
@pytest.mark.parametrize("role", ["initiator", "listener"])
def test_anything_but_multistream_ends_the_negotiation(role: str, data: bytes) -> None:
    """A first message other than the greeting aborts, and no length is believed beyond 1024."""
    machine = Initiator(["/a"]) if role == "initiator" else Listener({"/a"})
    with pytest.raises(DecodeError):
        machine.receive(data)


def test_an_answer_that_was_never_proposed_is_the_listeners_fault() -> None:
    """The listener may echo or refuse, not choose."""
    with pytest.raises(PeerError, match="bad-answer"):
        Initiator(["/a", "/b"]).receive(GREETING + b"\x03/b\n")


def test_proposals_are_bounded() -> None:
    """A peer that proposes on and on is cut off, and so are our own lists and lines."""
    listener = Listener({"/a"})
    with pytest.raises(PeerError, match="too-many-proposals"):
        listener.receive(GREETING + b"\x03/x\n" * MAX_PROPOSALS)
    for protocols in ([], ["/x"] * (MAX_PROPOSALS + 1), ["/" * MAX_LINE_BYTES]):
        with pytest.raises(ValueError, match=r"at most|propose"):
            Initiator(protocols)


@given(
    st.lists(st.sampled_from(["/a", "/b", "/ü", "/" + "d" * 300]), min_size=1, unique=True),
    st.sets(st.sampled_from(["/a", "/b", "/ü", "/" + "d" * 300])),
    st.data(),
)
def test_both_roles_agree_however_the_bytes_are_cut(
    wanted: list[str], supported: set[str], data: st.DataObject
) -> None:
    """The first wanted protocol that is supported wins, in whatever pieces the bytes arrive."""
    initiator, listener = Initiator(wanted), Listener(supported)
    rest = b""
    for _ in range(2 * len(wanted) + 2):
        for sender, receiver in ((initiator, listener), (listener, initiator)):
            wire = sender.data_to_send()
            while wire:
                cut = data.draw(st.integers(1, len(wire)))
                rest += receiver.receive(wire[:cut])
                wire = wire[cut:]
    expected = next((protocol for protocol in wanted if protocol in supported), None)
    assert initiator.protocol == listener.protocol == expected
    assert initiator.outcome is (Outcome.AGREED if expected else Outcome.REFUSED)
    assert rest == b""


@given(st.binary(max_size=100), st.booleans(), st.booleans())
def test_fuzz_any_bytes_give_a_state_or_the_declared_error(
    data: bytes, greeted: bool, listening: bool
) -> None:
    """Whole or byte by byte, the result is the same; memory holds one line at most."""
    results = []
    for step in (len(data) + 1, 1):
        machine = Listener({"/a"}) if listening else Initiator(["/a", "/b"])
        result: object
        try:
            rest = machine.receive(GREETING) if greeted else b""
            for start in range(0, len(data), step):
                rest += machine.receive(data[start : start + step])
            result = (machine.outcome, machine.protocol, rest)
        except PeerError as error:
            result = error.reason
        assert len(machine._received) <= MAX_LINE_BYTES + 2
        results.append(result)
    assert results[0] == results[1]
