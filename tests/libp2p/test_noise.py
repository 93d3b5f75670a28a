"""Noise XX with libp2p's payload: published vectors, a second computation, and attacks.

The vectors are the public ones of Noise_XX_25519_ChaChaPoly_SHA256 with an empty prologue. The
libp2p payload is not part of them, so `expected_messages` computes the whole handshake a second
time, straight from the Noise specification, and is itself checked against the vectors.
"""

import hashlib
import hmac
import itertools

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, LimitError, PeerError
from rumormill.libp2p.noise import (
    MAX_FRAME_BYTES,
    MAX_HANDSHAKE_BYTES,
    MAX_PLAINTEXT_BYTES,
    NoiseHandshake,
    NoiseSession,
)
from rumormill.wire.keys import PeerId, PrivateKey
from rumormill.wire.protobuf import bytes_field, string_field

ALICE, BOB = PrivateKey(b"a" * 32), PrivateKey(b"b" * 32)

INITIATOR_STATIC = bytes(range(32))
RESPONDER_STATIC = bytes(range(1, 33))
INITIATOR_EPHEMERAL = bytes(range(0x20, 0x40))
RESPONDER_EPHEMERAL = bytes(range(0x41, 0x61))

VECTOR_MESSAGES = [
    "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254",
    (
        "64b101b1d0be5a8704bd078f9895001fc03e8e9f9522f188dd128d9846d48466"
        "3414af878d3e46a2f58911a816d6e8346d4ea17a6f2a0bb4ef4ed56c133cff45"
        "60a34e36ea82109f26cf2e5a5caf992b608d55c747f615e5a3425a7a19eefb8f"
    ),
    (
        "87f864c11ba449f46a0a4f4e2eacbb7b0457784f4fca1937f572c93603e9c4d9"
        "7e5ea11b16f3968710b23a3be3202dc1b5e1ce3c963347491e74f5c0768a9b42"
    ),
]
VECTOR_FROM_INITIATOR = "a52ef02ba60e12696d1d6b9ef4245c88fca757b6134ad6e76b56e310a6adf6"
VECTOR_FROM_RESPONDER = "2445aa438ebd649281c636cc7269ca82f1d9023d72520943aeabf909cdf521"


def hkdf(chaining_key: bytes, secret: bytes) -> tuple[bytes, bytes]:
    temporary = hmac.new(chaining_key, secret, hashlib.sha256).digest()
    first = hmac.new(temporary, b"\x01", hashlib.sha256).digest()
    return first, hmac.new(temporary, first + b"\x02", hashlib.sha256).digest()


def public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def shared(secret: bytes, other: bytes) -> bytes:
    private = X25519PrivateKey.from_private_bytes(secret)
    return private.exchange(X25519PublicKey.from_public_bytes(public(other)))


def expected_messages(payload_2: bytes, payload_3: bytes) -> tuple[list[bytes], bytes, bytes]:
    """Compute the three messages and the two transport keys from the four secrets."""
    sha256 = lambda data: hashlib.sha256(data).digest()  # noqa: E731
    nonce = lambda n: bytes(4) + n.to_bytes(8, "little")  # noqa: E731
    ck = b"Noise_XX_25519_ChaChaPoly_SHA256"
    h = sha256(ck + b"")
    e_i, e_r = public(INITIATOR_EPHEMERAL), public(RESPONDER_EPHEMERAL)
    s_i, s_r = public(INITIATOR_STATIC), public(RESPONDER_STATIC)

    h = sha256(sha256(h + e_i) + b"")
    first = e_i

    h = sha256(h + e_r)
    ck, k = hkdf(ck, shared(INITIATOR_EPHEMERAL, RESPONDER_EPHEMERAL))
    static_r = ChaCha20Poly1305(k).encrypt(nonce(0), s_r, h)
    h = sha256(h + static_r)
    ck, k = hkdf(ck, shared(INITIATOR_EPHEMERAL, RESPONDER_STATIC))
    sealed_2 = ChaCha20Poly1305(k).encrypt(nonce(0), payload_2, h)
    h = sha256(h + sealed_2)
    second = e_r + static_r + sealed_2

    static_i = ChaCha20Poly1305(k).encrypt(nonce(1), s_i, h)
    h = sha256(h + static_i)
    ck, k = hkdf(ck, shared(INITIATOR_STATIC, RESPONDER_EPHEMERAL))
    sealed_3 = ChaCha20Poly1305(k).encrypt(nonce(0), payload_3, h)
    third = static_i + sealed_3
    from_initiator, from_responder = hkdf(ck, b"")
    return [first, second, third], from_initiator, from_responder


def payload_of(identity: PrivateKey, static_secret: bytes, *muxers: str) -> bytes:
    signature = identity.sign(b"noise-libp2p-static-key:" + public(static_secret))
    payload = bytes_field(1, identity.public_key.encoded) + bytes_field(2, signature)
    if muxers:
        payload += bytes_field(4, b"".join(string_field(2, name) for name in muxers))
    return payload


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2) + message


def initiator(
    *, identity: PrivateKey = ALICE, expected: PeerId | None = None, muxers: tuple[str, ...] = ()
) -> NoiseHandshake:
    return NoiseHandshake(
        identity,
        initiator=True,
        static_secret=INITIATOR_STATIC,
        ephemeral_secret=INITIATOR_EPHEMERAL,
        expected_peer=expected,
        muxers=muxers,
    )


def responder(
    *, identity: PrivateKey = BOB, expected: PeerId | None = None, muxers: tuple[str, ...] = ()
) -> NoiseHandshake:
    return NoiseHandshake(
        identity,
        initiator=False,
        static_secret=RESPONDER_STATIC,
        ephemeral_secret=RESPONDER_EPHEMERAL,
        expected_peer=expected,
        muxers=muxers,
    )


def shake_hands(one: NoiseHandshake, other: NoiseHandshake) -> tuple[NoiseSession, NoiseSession]:
    for _ in range(2):
        assert other.receive(one.data_to_send()) == b""
        assert one.receive(other.data_to_send()) == b""
    assert one.session is not None
    assert other.session is not None
    return one.session, other.session


def sessions() -> tuple[NoiseSession, NoiseSession]:
    return shake_hands(initiator(), responder())


# The handshake


def test_the_second_computation_gives_the_published_vectors() -> None:
    """With empty payloads, messages and transport ciphertexts are the published ones."""
    messages, from_initiator, from_responder = expected_messages(b"", b"")
    assert [message.hex() for message in messages] == VECTOR_MESSAGES
    for key, text, ciphertext in (
        (from_initiator, b"yellowsubmarine", VECTOR_FROM_INITIATOR),
        (from_responder, b"submarineyellow", VECTOR_FROM_RESPONDER),
    ):
        assert ChaCha20Poly1305(key).encrypt(bytes(12), text, None).hex() == ciphertext


def test_our_handshake_is_the_second_computation_with_libp2ps_payloads() -> None:
    """Every byte of the three messages, in frames behind a two-byte length."""
    messages, _, _ = expected_messages(
        payload_of(BOB, RESPONDER_STATIC, "/yamux/1.0.0"), payload_of(ALICE, INITIATOR_STATIC)
    )
    alice, bob = initiator(), responder(muxers=("/yamux/1.0.0",))
    first = alice.data_to_send()
    bob.receive(first)
    second = bob.data_to_send()
    alice.receive(second)
    third = alice.data_to_send()
    assert [first, second, third] == [framed(message) for message in messages]


def test_our_sessions_encrypt_as_the_published_vectors() -> None:
    """The transport keys do not depend on the payloads, so the vectors hold for us directly."""
    alice, bob = sessions()
    assert alice.encrypt(b"yellowsubmarine") == framed(bytes.fromhex(VECTOR_FROM_INITIATOR))
    assert bob.encrypt(b"submarineyellow") == framed(bytes.fromhex(VECTOR_FROM_RESPONDER))


def test_both_sides_learn_who_the_other_is() -> None:
    """The identity key in the payload is proven by its signature of the static key."""
    alice, bob = initiator(expected=BOB.peer_id), responder()
    shake_hands(alice, bob)
    assert alice.remote is not None
    assert bob.remote is not None
    assert (alice.remote.peer_id, bob.remote.peer_id) == (BOB.peer_id, ALICE.peer_id)
    assert alice.remote.public_key == BOB.public_key


def test_somebody_else_than_the_expected_peer_is_refused() -> None:
    """Whoever dials a peer id talks to that peer or to nobody."""
    alice, bob = initiator(expected=ALICE.peer_id), responder()
    bob.receive(alice.data_to_send())
    with pytest.raises(PeerError, match="wrong-peer"):
        alice.receive(bob.data_to_send())
    assert alice.session is None
    assert alice.remote is None


def test_early_data_follows_the_last_message_in_the_same_read() -> None:
    """Bytes behind the handshake come back from receive, for the session."""
    alice, bob = initiator(), responder()
    bob.receive(alice.data_to_send())
    alice.receive(bob.data_to_send())
    assert alice.session is not None
    rest = bob.receive(alice.data_to_send() + alice.session.encrypt(b"early"))
    assert bob.session is not None
    assert bob.session.decrypt(rest) == b"early"


@pytest.mark.parametrize(
    ("ours", "theirs", "muxer"),
    [
        (("/yamux/1.0.0", "/mplex/6.7.0"), ("/mplex/6.7.0", "/yamux/1.0.0"), "/yamux/1.0.0"),
        (("/yamux/1.0.0",), ("/mplex/6.7.0", "/yamux/1.0.0"), "/yamux/1.0.0"),
        ((), ("/yamux/1.0.0",), None),
        (("/yamux/1.0.0",), (), None),
    ],
)
def test_the_initiators_first_common_muxer_is_taken(
    ours: tuple[str, ...], theirs: tuple[str, ...], muxer: str | None
) -> None:
    """The example of the inlined negotiation; a side that offers none negotiates later."""
    alice, bob = initiator(muxers=ours), responder(muxers=theirs)
    assert alice.muxer is None
    shake_hands(alice, bob)
    assert (alice.muxer, bob.muxer) == (muxer, muxer)


def test_without_a_common_muxer_the_handshake_fails() -> None:
    """If there is no overlap, the handshake MUST fail."""
    alice, bob = initiator(muxers=("/yamux/1.0.0",)), responder(muxers=("/mplex/6.7.0",))
    bob.receive(alice.data_to_send())
    with pytest.raises(PeerError, match="no-common-muxer"):
        alice.receive(bob.data_to_send())
    assert alice.session is None


# Attacks on the handshake


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(bytes_field(1, BOB.public_key.encoded), id="no signature"),
        pytest.param(bytes_field(2, bytes(64)), id="no key"),
        pytest.param(payload_of(BOB, INITIATOR_STATIC), id="another static key signed"),
        pytest.param(
            bytes_field(1, ALICE.public_key.encoded) + payload_of(BOB, RESPONDER_STATIC),
            id="two keys",
        ),
        pytest.param(
            bytes_field(1, ALICE.public_key.encoded) + payload_of(BOB, RESPONDER_STATIC)[38:],
            id="another key than signed",
        ),
        pytest.param(b"\xff" * 40, id="garbage"),
        pytest.param(
            payload_of(BOB, RESPONDER_STATIC, *("/m",) * 17), id="more muxers than anybody has"
        ),
        pytest.param(
            bytes_field(1, b"\x08\x01\x12\x20\x01" + bytes(31))
            + bytes_field(2, b"\x01" + bytes(63)),
            id="identity of small order",
        ),
        pytest.param(bytes_field(1, b"\x08\x00\x12\x03" + bytes(3)), id="tiny RSA key"),
        pytest.param(bytes_field(1, bytes(4000)) + bytes_field(2, bytes(64)), id="huge key"),
    ],
)
def test_a_payload_that_proves_nothing_is_refused(payload: bytes) -> None:
    """The Noise part is perfect; the identity is not."""
    messages, _, _ = expected_messages(payload, b"")
    alice = initiator()
    with pytest.raises(PeerError):
        alice.receive(framed(messages[1]))
    assert alice.session is None


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),
        b"\x01" + bytes(31),
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
        bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ],
)
def test_points_of_low_order_are_refused(point: bytes) -> None:
    """They would make the shared secret the same for everybody."""
    with pytest.raises(PeerError, match="low-order-point"):
        responder().receive(framed(point))
    with pytest.raises(PeerError, match="low-order-point"):
        initiator().receive(framed(point + bytes(200)))


def test_no_changed_byte_of_a_handshake_passes() -> None:
    """Flip one bit of each byte in each message: no session on the side that reads it.

    A changed first message is noticed only by the initiator, when it reads the answer.
    """
    alice, bob = initiator(), responder()
    first = alice.data_to_send()
    bob.receive(first)
    second = bob.data_to_send()
    alice.receive(second)
    third = alice.data_to_send()

    for position in range(2, len(first)):
        misled = responder()
        misled.receive(flipped(first, position))
        with pytest.raises(PeerError):
            initiator().receive(misled.data_to_send())
    for position in range(2, len(second)):
        with pytest.raises(PeerError):
            initiator().receive(flipped(second, position))
    for position in range(2, len(third)):
        bob = responder()
        bob.receive(first)
        with pytest.raises(PeerError):
            bob.receive(flipped(third, position))
        assert bob.session is None


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 0x04
    return bytes(changed)


def test_a_failed_handshake_stays_failed() -> None:
    """After an error the right message comes too late."""
    alice, bob = initiator(), responder()
    bob.receive(alice.data_to_send())
    answer = bob.data_to_send()
    with pytest.raises(PeerError):
        alice.receive(flipped(answer, 40))
    with pytest.raises(PeerError):
        alice.receive(answer)
    bob = responder()
    with pytest.raises(DecodeError):
        bob.receive(framed(bytes(31)))
    with pytest.raises(DecodeError):
        bob.receive(initiator().data_to_send())


@pytest.mark.parametrize(
    ("make", "length"),
    [(responder, MAX_HANDSHAKE_BYTES + 1), (initiator, 0xFFFF)],
)
def test_an_oversized_handshake_message_is_refused_by_its_length(make, length: int) -> None:  # type: ignore[no-untyped-def]
    """Two bytes are enough to refuse; nothing is awaited."""
    with pytest.raises(DecodeError, match="oversized"):
        make().receive(length.to_bytes(2))


@pytest.mark.parametrize("length", [0, 1, 31, 33, 96])
def test_a_first_message_is_exactly_one_key(length: int) -> None:
    """The initiator must not send extensions in its first message."""
    with pytest.raises(DecodeError):
        responder().receive(framed(bytes(length)))


# The session


@given(
    st.lists(st.integers(0, 200_000), max_size=4),
    st.lists(st.integers(1000, 100_000), min_size=1, max_size=5),
)
def test_what_is_encrypted_is_decrypted_however_the_bytes_are_cut(
    sizes: list[int], cuts: list[int]
) -> None:
    """Any writes, any reads: the same bytes in the same order, and nothing left over."""
    alice, bob = sessions()
    texts = [bytes((number,)) * size for number, size in enumerate(sizes)]
    wire = b"".join(map(alice.encrypt, texts))
    received = b""
    for cut in itertools.cycle(cuts):
        received += bob.decrypt(wire[:cut])
        wire = wire[cut:]
        if not wire:
            break
    assert received == b"".join(texts)
    assert not bob._pending


def test_byte_by_byte_is_the_same_as_whole() -> None:
    """A slow sender changes nothing."""
    alice, bob = sessions()
    wire = alice.encrypt(b"one") + alice.encrypt(b"two")
    assert b"".join(bob.decrypt(wire[i : i + 1]) for i in range(len(wire))) == b"onetwo"


@pytest.mark.parametrize(
    ("size", "frames"),
    [
        (0, 0),
        (1, 1),
        (MAX_PLAINTEXT_BYTES, 1),
        (MAX_PLAINTEXT_BYTES + 1, 2),
        (3 * MAX_PLAINTEXT_BYTES, 3),
    ],
)
def test_large_writes_use_as_few_frames_as_possible(size: int, frames: int) -> None:
    """A frame has at most 65535 bytes, of which 16 are the tag."""
    alice, bob = sessions()
    wire = alice.encrypt(bytes(size))
    assert len(wire) == size + frames * 18
    assert bob.decrypt(wire) == bytes(size)


def test_any_damage_replay_or_reordering_ends_the_session() -> None:
    """Frames are numbered by a counter that does not travel."""
    for tamper in (
        lambda a, b: flipped(a, 5),
        lambda a, b: flipped(a, len(a) - 1),
        lambda a, b: b + a,
        lambda a, b: a + a,
        lambda a, b: framed(bytes(15)),
        lambda a, b: framed(b""),
        lambda a, b: b,
    ):
        alice, bob = sessions()
        one, two = alice.encrypt(b"one"), alice.encrypt(b"two")
        with pytest.raises(PeerError, match="bad-frame"):
            bob.decrypt(tamper(one, two))
        with pytest.raises(PeerError, match="bad-frame"):
            bob.decrypt(one)


def test_each_direction_has_its_own_key() -> None:
    """A frame sent back to its sender is no frame."""
    alice, _ = sessions()
    with pytest.raises(PeerError, match="bad-frame"):
        alice.decrypt(alice.encrypt(b"mirror"))


def test_a_session_ends_before_its_counter_repeats() -> None:
    """After 2^64 - 1 messages the connection MUST be terminated."""
    alice, bob = sessions()
    alice._send_nonce = bob._receive_nonce = 2**64 - 3
    wire = alice.encrypt(b"last but one")
    alice.encrypt(b"last")
    with pytest.raises(LimitError):
        alice.encrypt(b"one too many")
    with pytest.raises(PeerError, match="nonces-spent"):
        bob.decrypt(wire * 3)


@given(st.binary(max_size=300), st.booleans())
def test_fuzz_handshake_bytes_give_a_state_or_the_declared_error(
    data: bytes, initiating: bool
) -> None:
    """Whole or byte by byte the same, no session, no other exception, bounded memory."""
    results = []
    for step in (len(data) + 1, 1):
        machine = initiator() if initiating else responder()
        result = "waiting"
        try:
            for start in range(0, len(data), step):
                machine.receive(data[start : start + step])
        except PeerError as error:
            result = error.reason
        assert machine.session is None
        assert len(machine._received) <= MAX_HANDSHAKE_BYTES + 2
        results.append(result)
    assert results[0] == results[1]


@given(st.binary(max_size=200))
def test_fuzz_a_validly_encrypted_payload_is_the_identity_or_the_declared_error(
    payload: bytes,
) -> None:
    """The fuzz reaches the payload decoder behind the encryption."""
    messages, _, _ = expected_messages(payload, b"")
    with pytest.raises(PeerError):
        initiator().receive(framed(messages[1]))


@given(st.binary(max_size=300))
def test_fuzz_session_bytes_wait_or_end_the_session(data: bytes) -> None:
    """No bytes are frames unless the key made them; at most one frame is kept."""
    _, bob = sessions()
    reason = "waiting"
    try:
        assert bob.decrypt(data) == b""
    except PeerError as error:
        reason = error.reason
    whole = len(data) >= 2 and len(data) >= 2 + int.from_bytes(data[:2])
    assert reason == ("bad-frame" if whole else "waiting")
    assert len(bob._pending) <= MAX_FRAME_BYTES + 2
