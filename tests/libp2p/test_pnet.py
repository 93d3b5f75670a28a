"""Private networks: the cipher as its author published it, the key file, and who gets to hear what.

Two implementations judge ours: published values, and libsodium's XSalsa20, which hides in its
secret box behind 32 bytes that serve as the box's own key.
"""

import hashlib
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_secretbox

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.multistream import MULTISTREAM, Initiator, encode_line
from rumormill.libp2p.pnet import (
    KEY_BYTES,
    NONCE_BYTES,
    WRONG_NETWORK,
    PrivateNetwork,
    PrivateSession,
    hsalsa20,
)

GREETING = encode_line(MULTISTREAM)
KEY = bytes(range(KEY_BYTES))
NETWORK = PrivateNetwork(KEY)
ALICE, BOB = b"a" * NONCE_BYTES, b"b" * NONCE_BYTES
KEY_FILE = b"/key/swarm/psk/1.0.0/\n/base16/\n" + KEY.hex().encode() + b"\n"

BYTES_24 = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
BYTES_32 = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)


def dialler(nonce: bytes = ALICE) -> PrivateSession:
    return NETWORK.session(nonce, outbound=True)


def listener(nonce: bytes = BOB) -> PrivateSession:
    return NETWORK.session(nonce, outbound=False)


# The cipher.


def test_hsalsa20_gives_the_published_keys() -> None:
    """The two derivations in "Cryptography in NaCl", sections 7 and 8."""
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    first = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    second = bytes.fromhex("dc908dda0b9344a953629b733820778880f3ceb421bb61b91cbd4c3e66256ce4")
    assert hsalsa20(shared, bytes(16)) == first
    assert hsalsa20(first, bytes.fromhex("69696ee955b62b73cd62bda875fc73d6")) == second


def test_four_mebibytes_of_the_published_stream() -> None:
    """The same paper's key and nonce; the hash is that of NaCl's own test of its stream."""
    key = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    nonce = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
    session = PrivateNetwork(key).session(nonce, outbound=True)
    sent = session.encrypt(bytes(1)) + session.encrypt(bytes((4 << 20) - 1))
    assert sent[:NONCE_BYTES] == nonce
    assert (
        hashlib.sha256(sent[NONCE_BYTES:]).hexdigest()
        == "662b9d0e3463029156069b12f918691a98f7dfb2ca0393c96bbfc6b1fbd630a2"
    )


@given(BYTES_32, BYTES_24, st.lists(st.binary(max_size=200), max_size=8))
def test_the_wire_is_what_libsodium_makes_of_it(
    key: bytes, nonce: bytes, pieces: list[bytes]
) -> None:
    """However the bytes are cut, they are one stream behind the nonce."""
    session = PrivateNetwork(key).session(nonce, outbound=True)
    start = session.encrypt(bytes(32))  # what the secret box keeps to itself
    rest = b"".join(map(session.encrypt, pieces))
    assert start[:NONCE_BYTES] == nonce
    assert rest == crypto_secretbox(b"".join(pieces), nonce, key)[16:]


# Sessions.


def cut(data: st.DataObject, wire: bytes) -> Iterator[bytes]:
    """The same bytes in pieces, as a network might bring them."""
    while wire:
        size = data.draw(st.integers(1, len(wire)))
        yield wire[:size]
        wire = wire[size:]


@given(st.data(), st.binary(max_size=300), st.binary(max_size=300))
def test_members_hear_each_other_however_the_bytes_are_cut(
    data: st.DataObject, said: bytes, answer: bytes
) -> None:
    alice, bob = dialler(), listener()
    assert bob.encrypt(GREETING) == BOB
    wire = alice.encrypt(GREETING + said)
    assert wire[:NONCE_BYTES] == ALICE
    assert b"".join(map(bob.decrypt, cut(data, wire))) == GREETING + said
    wire = BOB + bob.encrypt(answer)
    assert b"".join(map(alice.decrypt, cut(data, wire))) == GREETING + answer


def test_a_listener_says_nothing_but_its_nonce_before_it_is_greeted() -> None:
    """Up to the last byte of the greeting; then what it held back leaves, once."""
    alice, bob = dialler(), listener()
    assert bob.encrypt(GREETING) == BOB
    wire = alice.encrypt(GREETING)
    for byte in wire[:-1]:
        bob.decrypt(bytes((byte,)))
        assert bob.encrypt(b"") == b""
    bob.decrypt(wire[-1:])
    answer = bob.encrypt(b"")
    assert len(answer) == len(GREETING)
    assert alice.decrypt(BOB + answer) == GREETING
    assert bob.encrypt(b"") == b""


@pytest.mark.parametrize("place", range(len(GREETING)))
@pytest.mark.parametrize("outbound", [True, False])
def test_the_first_wrong_byte_is_final(outbound: bool, place: int) -> None:
    """It is refused before a further one comes, later ones are too, and a listener stays silent."""
    wrong = bytearray(dialler().encrypt(GREETING))
    wrong[NONCE_BYTES + place] ^= 1
    ours = NETWORK.session(BOB, outbound=outbound)
    ours.encrypt(GREETING)
    ours.decrypt(bytes(wrong[: NONCE_BYTES + place]))
    for later in (bytes(wrong[NONCE_BYTES + place :][:1]), b"", GREETING):
        with pytest.raises(PeerError) as refused:
            ours.decrypt(later)
        assert refused.value.reason == WRONG_NETWORK
    assert outbound or ours.encrypt(GREETING) == b""


@given(BYTES_32.filter(lambda key: key != KEY), st.integers(1, 200))
def test_whoever_lacks_the_key_is_refused_and_told_nothing(key: bytes, size: int) -> None:
    """With another key as with none: a plain libp2p dialler is refused as it is."""
    for wire in (
        PrivateNetwork(key).session(ALICE, outbound=True).encrypt(GREETING + bytes(size)),
        Initiator(("/noise",)).data_to_send() + bytes(size),
    ):
        bob = listener()
        assert bob.encrypt(GREETING) == BOB
        with pytest.raises(PeerError, match=WRONG_NETWORK):
            bob.decrypt(wire)
        assert bob.encrypt(GREETING) == b""


def test_our_own_words_sent_back_are_refused() -> None:
    """A mirror has the right greeting, and the nonce tells whose it is."""
    alice = dialler()
    with pytest.raises(PeerError, match=WRONG_NETWORK):
        alice.decrypt(alice.encrypt(GREETING))


# The key file.


@pytest.mark.parametrize(
    "text",
    [
        KEY_FILE,
        KEY_FILE.rstrip(),
        KEY_FILE.replace(KEY.hex().encode(), KEY.hex().upper().encode()),
        KEY_FILE.replace(b"\n", b"\r\n"),
        b"/key/swarm/psk/1.0.0/\n/base64/\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        b"/key/swarm/psk/1.0.0/\n/bin/\n" + KEY,
    ],
)
def test_every_encoding_of_a_key_file_is_read(text: bytes) -> None:
    assert PrivateNetwork.decode(text).encode() == KEY_FILE


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "begins with /key/swarm/psk/1.0.0/"),
        (KEY.hex().encode(), "begins with /key/swarm/psk/1.0.0/"),
        (KEY_FILE.replace(b"1.0.0", b"2.0.0"), "begins with /key/swarm/psk/1.0.0/"),
        (KEY_FILE.replace(b"base16", b"base32"), "none of /base16/, /base64/ and /bin/"),
        (KEY_FILE.replace(b"base16", b"base64"), "48"),
        (KEY_FILE.replace(b"0001", b"0x01"), "not encoded as the line before it says"),
        (KEY_FILE[:-3], "not 31"),
        (KEY_FILE.rstrip() + b"00", "not 33"),
        (KEY_FILE.rstrip() + b"\n" + KEY.hex().encode(), "not encoded as the line before it says"),
    ],
)
def test_what_is_no_key_file_is_refused_with_a_sentence(text: bytes, sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        PrivateNetwork.decode(text)


def test_the_fingerprint_is_that_of_go_and_rust() -> None:
    """rust-libp2p's own example; neither it nor `repr` tells the key."""
    key = bytes.fromhex("6189c5cf0b87fb800c1a9feeda73c6ab5e998db48fb9e6a978575c770ceef683")
    network = PrivateNetwork(key)
    assert network.fingerprint == "45fc986bbc9388a11d939df26f730f0c"
    assert repr(network) == "PrivateNetwork(45fc986bbc9388a11d939df26f730f0c)"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cipher is an extra; who wants it is told how to get it."""
    monkeypatch.setitem(sys.modules, "Crypto.Cipher", None)
    with pytest.raises(LocalError, match=r'pip install "rumormill\[private\]"'):
        PrivateNetwork(KEY)
