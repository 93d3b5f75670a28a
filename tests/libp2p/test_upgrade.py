"""The upgrade of a connection as one machine, against itself and against other stacks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import PeerError
from rumormill.libp2p.multistream import MULTISTREAM, Initiator, Listener, encode_line
from rumormill.libp2p.noise import NOISE, NoiseHandshake
from rumormill.libp2p.pnet import NONCE_BYTES, PrivateNetwork
from rumormill.libp2p.upgrade import Upgrade
from rumormill.libp2p.yamux import YAMUX
from rumormill.wire.keys import PrivateKey

ALICE, BOB = PrivateKey(b"a" * 32), PrivateKey(b"b" * 32)
REFUSAL = encode_line(MULTISTREAM) + encode_line("na")


def upgrade(
    key: PrivateKey, dials: PrivateKey | None = None, network: PrivateNetwork | None = None
) -> Upgrade:
    """One side, with secrets of its own."""
    return Upgrade(
        key,
        outbound=dials is not None,
        static_secret=key.sign(b"static")[:32],
        ephemeral_secret=key.sign(b"ephemeral")[:32],
        expected_peer=None if dials is None else dials.peer_id,
        network=network,
        nonce=key.sign(b"nonce")[:NONCE_BYTES],
    )


def other_implementation(dials: bool) -> NoiseHandshake:
    """Bob's noise without the offer of multiplexers, which not everybody makes."""
    return NoiseHandshake(BOB, initiator=dials, static_secret=b"s" * 32, ephemeral_secret=b"e" * 32)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5), st.booleans())
def test_both_sides_agree_however_the_bytes_are_cut(cuts: list[int], private: bool) -> None:
    """And what follows the upgrade at once comes out decrypted, none of it lost."""
    network = PrivateNetwork(bytes(32)) if private else None
    alice, bob = upgrade(ALICE, dials=BOB, network=network), upgrade(BOB, network=network)
    got = {alice: b"", bob: b""}
    turn = 0
    for _ in range(3):
        for sender, receiver in ((alice, bob), (bob, alice)):
            wire = sender.data_to_send()
            if sender is alice and alice.done and alice.session is not None and not got[bob]:
                wire += alice.session.encrypt(b"the first frame")
            while wire:
                cut = cuts[turn % len(cuts)]
                turn += 1
                if receiver.done:
                    assert receiver.session is not None
                    got[receiver] += receiver.session.decrypt(wire[:cut])
                else:
                    got[receiver] += receiver.receive(wire[:cut])
                wire = wire[cut:]
    assert alice.done
    assert bob.done
    assert alice.remote is not None
    assert alice.remote.peer_id == BOB.peer_id
    assert bob.remote is not None
    assert bob.remote.peer_id == ALICE.peer_id
    assert got == {alice: b"", bob: b"the first frame"}


def test_a_dialler_sends_its_first_noise_message_with_its_proposal() -> None:
    """A round trip saved: there is one proposal only."""
    first = upgrade(ALICE, dials=BOB).data_to_send()
    greeting = encode_line(MULTISTREAM) + encode_line(NOISE)
    assert first.startswith(greeting)
    assert len(first) > len(greeting)


def test_upgrades_of_different_networks_part_at_the_first_words() -> None:
    """The listener has said its nonce and says no more; the dialler does not take nonsense."""
    alice = upgrade(ALICE, dials=BOB, network=PrivateNetwork(b"1" * 32))
    bob = upgrade(BOB, network=PrivateNetwork(b"2" * 32))
    nonce = bob.data_to_send()
    assert len(nonce) == NONCE_BYTES
    with pytest.raises(PeerError, match="wrong-network"):
        bob.receive(alice.data_to_send())
    assert bob.data_to_send() == b""
    with pytest.raises(PeerError, match="wrong-network"):
        alice.receive(nonce + bytes(100))


def test_a_listener_that_offered_no_multiplexer_is_asked_by_multistream() -> None:
    """As before noise could carry the offer."""
    alice, bob, choice = upgrade(ALICE, dials=BOB), other_implementation(False), Listener((YAMUX,))
    security = Listener((NOISE,))
    bob.receive(security.receive(alice.data_to_send()))
    alice.receive(security.data_to_send() + bob.data_to_send())
    assert not alice.done
    rest = bob.receive(alice.data_to_send())
    assert bob.session is not None
    choice.receive(bob.session.decrypt(rest))
    answer = bob.session.encrypt(choice.data_to_send() + b"its first frame")
    assert alice.receive(answer) == b"its first frame"
    assert alice.done


def test_a_dialler_that_offered_no_multiplexer_asks_by_multistream() -> None:
    """The other role."""
    alice, bob, choice = upgrade(ALICE), other_implementation(True), Initiator((YAMUX,))
    security = Initiator((NOISE,))
    alice.receive(security.data_to_send() + bob.data_to_send())
    bob.receive(security.receive(alice.data_to_send()))
    assert bob.session is not None
    wire = bob.data_to_send() + bob.session.encrypt(choice.data_to_send())
    assert alice.receive(wire + bob.session.encrypt(b"frames")) == b"frames"
    assert alice.done
    choice.receive(bob.session.decrypt(alice.data_to_send()))
    assert choice.protocol == YAMUX


def test_a_peer_without_noise_is_refused() -> None:
    """There is no other security."""
    alice = upgrade(ALICE, dials=BOB)
    with pytest.raises(PeerError) as caught:
        alice.receive(REFUSAL)
    assert caught.value.reason == "no-common-security"


def test_a_peer_without_yamux_is_refused() -> None:
    """There is no other multiplexer."""
    alice, bob, security = (
        upgrade(ALICE, dials=BOB),
        other_implementation(False),
        Listener((NOISE,)),
    )
    bob.receive(security.receive(alice.data_to_send()))
    alice.receive(security.data_to_send() + bob.data_to_send())
    bob.receive(alice.data_to_send())
    assert bob.session is not None
    with pytest.raises(PeerError) as caught:
        alice.receive(bob.session.encrypt(REFUSAL))
    assert caught.value.reason == "no-common-muxer"


def test_a_peer_that_is_not_the_expected_one_is_refused() -> None:
    """Before a byte of ours goes to it encrypted."""
    alice, mallory = upgrade(ALICE, dials=BOB), upgrade(PrivateKey(b"m" * 32))
    mallory.receive(alice.data_to_send())
    with pytest.raises(PeerError):
        alice.receive(mallory.data_to_send())
    assert alice.session is None
