"""Identity keys and peer ids, against the vectors of libp2p's peer-ids specification."""

import hashlib

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, LocalError
from rumormill.wire import base58
from rumormill.wire.keys import KeyType, PeerId, PrivateKey, PublicKey
from rumormill.wire.protobuf import bytes_field, varint_field

ED25519_PRIVATE = bytes.fromhex(
    "080112407e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d1ed1e8fae2c4a144"
    "b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
)
ED25519_PUBLIC = bytes.fromhex(
    "080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
)
SECP256K1_PRIVATE = bytes.fromhex(
    "0802122053dadf1d5a164d6b4acdb15e24aa4c5b1d3461bdbd42abedb0a4404d56ced8fb"
)
SECP256K1_PUBLIC = bytes.fromhex(
    "08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99"
)
ECDSA_PUBLIC = bytes.fromhex(
    "0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004de3d300fa36ae0e8f5d530899d"
    "83abab44abf3161f162a4bc901d8e6ecda020e8b6d5f8da30525e71d6851510c098e5c47c646a597fb4dcec0"
    "34e9f77c409e62"
)
RSA_PRIVATE = bytes.fromhex(
    "080012ae123082092a0201000282020100e1beab071d08200bde24eef00d049449b07770ff9910257b2d7d5d"
    "da242ce8f0e2f12e1af4b32d9efd2c090f66b0f29986dbb645dae9880089704a94e5066d594162ae6ee8892e"
    "6ec70701db0a6c445c04778eb3de1293aa1a23c3825b85c6620a2bc3f82f9b0c309bc0ab3aeb1873282bebd3"
    "da03c33e76c21e9beb172fd44c9e43be32e2c99827033cf8d0f0c606f4579326c930eb4e854395ad94125654"
    "2c793902185153c474bed109d6ff5141ebf9cd256cf58893a37f83729f97e7cb435ec679d2e33901d27bb35a"
    "a0d7e20561da08885ef0abbf8e2fb48d6a5487047a9ecb1ad41fa7ed84f6e3e8ecd5d98b3982d2a901b44549"
    "91766da295ab78822add5612a2df83bcee814cf50973e80d7ef38111b1bd87da2ae92438a2c8cbcc70b31ee3"
    "19939a3b9c761dbc13b5c086d6b64bf7ae7dacc14622375d92a8ff9af7eb962162bbddebf90acb32adb5e4e4"
    "029f1c96019949ecfbfeffd7ac1e3fbcc6b6168c34be3d5a2e5999fcbb39bba7adbca78eab09b9bc39f7fa4b"
    "93411f4cc175e70c0a083e96bfaefb04a9580b4753c1738a6a760ae1afd851a1a4bdad231cf56e9284d83248"
    "3df215a46c1c21bdf0c6cfe951c18f1ee4078c79c13d63edb6e14feaeffabc90ad317e4875fe648101b08640"
    "97e998f0ca3025ef9638cd2b0caecd3770ab54a1d9c6ca959b0f5dcbc90caeefc4135baca6fd475224269bbe"
    "1b02030100010282020100a472ffa858efd8588ce59ee264b957452f3673acdf5631d7bfd5ba0ef59779c231"
    "b0bc838a8b14cae367b6d9ef572c03c7883b0a3c652f5c24c316b1ccfd979f13d0cd7da20c7d34d9ec32dfdc"
    "81ee7292167e706d705efde5b8f3edfcba41409e642f8897357df5d320d21c43b33600a7ae4e505db957c1af"
    "bc189d73f0b5d972d9aaaeeb232ca20eebd5de6fe7f29d01470354413cc9a0af1154b7af7c1029adcd67c74b"
    "4798afeb69e09f2cb387305e73a1b5f450202d54f0ef096fe1bde340219a1194d1ac9026e90b366cce0c59b2"
    "39d10e4888f52ca1780824d39ae01a6b9f4dd6059191a7f12b2a3d8db3c2868cd4e5a5862b8b625a4197d52c"
    "6ac77710116ebd3ced81c4d91ad5fdfbed68312ebce7eea45c1833ca3acf7da2052820eacf5c6b07d086dabe"
    "b893391c71417fd8a4b1829ae2cf60d1749d0e25da19530d889461c21da3492a8dc6ccac7de83ac1c2185262"
    "c7473c8cc42f547cc9864b02a8073b6aa54a037d8c0de3914784e6205e83d97918b944f11b877b12084c0dd1"
    "d36592f8a4f8b8da5bb404c3d2c079b22b6ceabfbcb637c0dbe0201f0909d533f8bf308ada47aee641a012a4"
    "94d31b54c974e58b87f140258258bb82f31692659db7aa07e17a5b2a0832c24e122d3a8babcc9ee74cbb07d3"
    "058bb85b15f6f6b2674aba9fd34367be9782d444335fbed31e3c4086c652597c27104938b47fa10282010100"
    "e9fdf843c1550070ca711cb8ff28411466198f0e212511c3186623890c0071bf6561219682fe7dbdfd81176e"
    "ba7c4faba21614a20721e0fcd63768e6d925688ecc90992059ac89256e0524de90bf3d8a052ce6a9f6adafa7"
    "12f3107a016e20c80255c9e37d8206d1bc327e06e66eb24288da866b55904fd8b59e6b2ab31bc5eab47e5970"
    "93c63fab7872102d57b4c589c66077f534a61f5f65127459a33c91f6db61fc431b1ae90be92b4149a3255291"
    "baf94304e3efb77b1107b5a3bda911359c40a53c347ff9100baf8f36dc5cd991066b5bdc28b39ed644f404af"
    "e9213f4d31c9d4e40f3a5f5e3c39bebeb244e84137544e1a1839c1c8aaebf0c78a7fad590282010100f6fa1f"
    "1e6b803742d5490b7441152f500970f46feb0b73a6e4baba2aaf3c0e245ed852fc31d86a8e46eb48e90fac40"
    "9989dfee45238f97e8f1f8e83a136488c1b04b8a7fb695f37b8616307ff8a8d63e8cfa0b4fb9b9167ffaebab"
    "f111aa5a4344afbabd002ae8961c38c02da76a9149abdde93eb389eb32595c29ba30d8283a7885218a5a9d33"
    "f7f01dbdf85f3aad016c071395491338ec318d39220e1c7bd69d3d6b520a13a30d745c102b827ad9984b0dd6"
    "aed73916ffa82a06c1c111e7047dcd2668f988a0570a71474992eecf416e068f029ec323d5d635fd24694fc9"
    "bf96973c255d26c772a95bf8b7f876547a5beabf86f06cd21b67994f944e7a5493028201010095b02fd30069"
    "e547426a8bea58e8a2816f33688dac6c6f6974415af8402244a22133baedf34ce499d7036f3f19b38eb00897"
    "c18949b0c5a25953c71aeeccfc8f6594173157cc854bd98f16dffe8f28ca13b77eb43a2730585c49fc3f608c"
    "d811bb54b03b84bddaa8ef910988567f783012266199667a546a18fd88271fbf63a45ae4fd4884706da8befb"
    "9117c0a4d73de5172f8640b1091ed8a4aea3ed4641463f5ff6a5e3401ad7d0c92811f87956d1fd5f9a1d15c7"
    "f3839a08698d9f35f9d966e5000f7cb2655d7b6c4adcd8a9d950ea5f61bb7c9a33c17508f9baa313eecfee4a"
    "e493249ebe05a5d7770bbd3551b2eeb752e3649e0636de08e3d672e66cb90282010100ad93e4c31072b063fc"
    "5ab5fe22afacece775c795d0efdf7c704cfc027bde0d626a7646fc905bb5a80117e3ca49059af14e0160089f"
    "9190065be9bfecf12c3b2145b211c8e89e42dd91c38e9aa23ca73697063564f6f6aa6590088a738722df0560"
    "04d18d7bccac62b3bafef6172fc2a4b071ea37f31eff7a076bcab7dd144e51a9da8754219352aef2c7347897"
    "1539fa41de4759285ea626fa3c72e7085be47d554d915bbb5149cb6ef835351f231043049cd941506a034bf2"
    "f8767f3e1e42ead92f91cb3d75549b57ef7d56ac39c2d80d67f6a2b4ca192974bfc5060e2dd1712179710021"
    "93dba12e7e4133ab201f07500a90495a38610279b13a48d54f0c99028201003e3a1ac0c2b67d54ed5c4bbe04"
    "a7db99103659d33a4f9d35809e1f60c282e5988dddc964527f3b05e6cc890eab3dcb571d66debf3a5527704c"
    "87264b3954d7265f4e8d2c637dd89b491b9cf23f264801f804b90454d65af0c4c830d1aef76f597ef61b26ca"
    "857ecce9cb78d4f6c2218c00d2975d46c2b013fbf59b750c3b92d8d3ed9e6d1fd0ef1ec091a5c286a3fe2dea"
    "d292f40f380065731e2079ebb9f2a7ef2c415ecbb488da98f3a12609ca1b6ec8c734032c8bd513292ff842c3"
    "75d4acd1b02dfb206b24cd815f8e2f9d4af8e7dea0370b19c1b23cc531d78b40e06e1119ee2e08f6f31c6e2e"
    "8444c568d13c5d451a291ae0c9f1d4f27d23b3a00d60ad"
)
RSA_PUBLIC = bytes.fromhex(
    "080012a60430820222300d06092a864886f70d01010105000382020f003082020a0282020100e1beab071d08"
    "200bde24eef00d049449b07770ff9910257b2d7d5dda242ce8f0e2f12e1af4b32d9efd2c090f66b0f29986db"
    "b645dae9880089704a94e5066d594162ae6ee8892e6ec70701db0a6c445c04778eb3de1293aa1a23c3825b85"
    "c6620a2bc3f82f9b0c309bc0ab3aeb1873282bebd3da03c33e76c21e9beb172fd44c9e43be32e2c99827033c"
    "f8d0f0c606f4579326c930eb4e854395ad941256542c793902185153c474bed109d6ff5141ebf9cd256cf588"
    "93a37f83729f97e7cb435ec679d2e33901d27bb35aa0d7e20561da08885ef0abbf8e2fb48d6a5487047a9ecb"
    "1ad41fa7ed84f6e3e8ecd5d98b3982d2a901b4454991766da295ab78822add5612a2df83bcee814cf50973e8"
    "0d7ef38111b1bd87da2ae92438a2c8cbcc70b31ee319939a3b9c761dbc13b5c086d6b64bf7ae7dacc1462237"
    "5d92a8ff9af7eb962162bbddebf90acb32adb5e4e4029f1c96019949ecfbfeffd7ac1e3fbcc6b6168c34be3d"
    "5a2e5999fcbb39bba7adbca78eab09b9bc39f7fa4b93411f4cc175e70c0a083e96bfaefb04a9580b4753c173"
    "8a6a760ae1afd851a1a4bdad231cf56e9284d832483df215a46c1c21bdf0c6cfe951c18f1ee4078c79c13d63"
    "edb6e14feaeffabc90ad317e4875fe648101b0864097e998f0ca3025ef9638cd2b0caecd3770ab54a1d9c6ca"
    "959b0f5dcbc90caeefc4135baca6fd475224269bbe1b0203010001"
)

SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
MESSAGE = b"the message"


def secp256k1_private_key() -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(SECP256K1_PRIVATE[4:]), ec.SECP256K1())


def rsa_private_key() -> rsa.RSAPrivateKey:
    key = serialization.load_der_private_key(RSA_PRIVATE[5:], None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def encoded(key_type: int, data: bytes) -> bytes:
    return varint_field(1, key_type) + bytes_field(2, data)


def der_integer(value: int) -> bytes:
    body = value.to_bytes(value.bit_length() // 8 + 1)
    return b"\x02" + der_length(len(body)) + body


def der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes((length,))
    body = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((0x80 | len(body),)) + body


def rsa_spki(
    modulus: int, exponent: int = 65537, algorithm: str = "300d06092a864886f70d0101010500"
) -> bytes:
    """Write an RSA public key by hand: no library makes keys of the sizes wanted here."""
    numbers = der_integer(modulus) + der_integer(exponent)
    key = b"\x00\x30" + der_length(len(numbers)) + numbers
    body = bytes.fromhex(algorithm) + b"\x03" + der_length(len(key)) + key
    return b"\x30" + der_length(len(body)) + body


# Vectors of the specification


def test_the_ed25519_vector_gives_its_public_key() -> None:
    """The public key of the specification is made from its private key, and both round-trip."""
    private = PrivateKey.decode(ED25519_PRIVATE)
    assert private.public_key.encoded == ED25519_PUBLIC
    assert private.encode() == ED25519_PRIVATE
    assert PublicKey.decode(ED25519_PUBLIC) == private.public_key


@pytest.mark.parametrize(
    ("vector", "key_type"),
    [
        (ED25519_PUBLIC, KeyType.ED25519),
        (SECP256K1_PUBLIC, KeyType.SECP256K1),
        (RSA_PUBLIC, KeyType.RSA),
    ],
)
def test_public_key_vectors_round_trip(vector: bytes, key_type: KeyType) -> None:
    """Each public key vector decodes, and encodes to the same bytes."""
    key = PublicKey.decode(vector)
    assert (key.key_type, key.encoded) == (key_type, vector)


def test_short_keys_are_embedded_in_the_peer_id_and_long_ones_hashed() -> None:
    """At most 42 bytes: identity multihash; more: SHA-256 multihash."""
    for vector in (ED25519_PUBLIC, SECP256K1_PUBLIC):
        peer_id = PublicKey.decode(vector).peer_id()
        assert peer_id == b"\x00" + bytes((len(vector),)) + vector
        assert peer_id.public_key() == PublicKey.decode(vector)
    peer_id = PublicKey.decode(RSA_PUBLIC).peer_id()
    assert peer_id == b"\x12\x20" + hashlib.sha256(RSA_PUBLIC).digest()
    assert peer_id.public_key() is None


def test_the_specifications_text_forms_of_peer_ids() -> None:
    """The CID and base58 examples parse; the Ed25519 example embeds a key."""
    hashed = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
    cid = "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe"
    embedded = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
    assert PeerId.parse(hashed) == PeerId.parse(cid)
    assert str(PeerId.parse(cid)) == hashed
    assert PeerId.parse(hashed).cid() == cid
    key = PeerId.parse(embedded).public_key()
    assert key is not None
    assert key.key_type is KeyType.ED25519
    assert str(key.peer_id()) == embedded
    assert PeerId.parse("z" + base58.encode(b"\x01\x72" + PeerId.parse(hashed))) == PeerId.parse(
        cid
    )


def test_the_old_96_byte_private_key_is_read_and_its_copies_compared() -> None:
    """Older files hold the public key twice; both copies must be the right one."""
    seed, public = ED25519_PRIVATE[4:36], ED25519_PUBLIC[4:]
    assert PrivateKey.decode(encoded(1, seed + public + public)).encode() == ED25519_PRIVATE
    wrong = bytes((public[0] ^ 1,)) + public[1:]
    for data in (seed + public + wrong, seed + wrong + public, seed + wrong, seed):
        with pytest.raises(LocalError):
            PrivateKey.decode(encoded(1, data))


# Signatures


@pytest.mark.parametrize("kind", ["ed25519", "secp256k1", "rsa"])
def test_each_key_type_verifies_its_own_signatures(kind: str) -> None:
    """Signatures made by the private key vectors hold, for that message only."""
    key, signature = signed(kind)
    assert key.verify(MESSAGE, signature)
    assert not key.verify(MESSAGE + b"!", signature)
    assert not key.verify(MESSAGE, b"")
    assert not key.verify(MESSAGE, signature + b"\0")
    assert not key.verify(MESSAGE, signature * 100)


@pytest.mark.parametrize("kind", ["ed25519", "secp256k1", "rsa", "ecdsa"])
def test_rustsec_2019_0004_no_changed_byte_of_a_signature_passes(kind: str) -> None:
    """Flip each byte of a signature: always refused."""
    key, signature = signed(kind)
    for position in range(len(signature)):
        changed = bytearray(signature)
        changed[position] ^= 0x01
        assert not key.verify(MESSAGE, bytes(changed)), position


def signed(kind: str) -> tuple[PublicKey, bytes]:
    if kind == "ed25519":
        return PublicKey.decode(ED25519_PUBLIC), PrivateKey.decode(ED25519_PRIVATE).sign(MESSAGE)
    if kind == "rsa":
        signature = rsa_private_key().sign(MESSAGE, padding.PKCS1v15(), hashes.SHA256())
        return PublicKey.decode(RSA_PUBLIC), signature
    if kind == "ecdsa":
        return ecdsa_key(ec.SECP256R1())
    r, s = decode_dss_signature(secp256k1_private_key().sign(MESSAGE, ec.ECDSA(hashes.SHA256())))
    signature = encode_dss_signature(r, min(s, SECP256K1_ORDER - s))
    return PublicKey.decode(SECP256K1_PUBLIC), signature


def ecdsa_key(curve: ec.EllipticCurve) -> tuple[PublicKey, bytes]:
    """A new key of a curve, and its signature of the message."""
    private = ec.generate_private_key(curve)
    data = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return PublicKey(KeyType.ECDSA, data), private.sign(MESSAGE, ec.ECDSA(hashes.SHA256()))


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_ecdsa_keys_verify_and_their_id_is_a_hash(curve: ec.EllipticCurve) -> None:
    """go makes keys of P-256, and takes those of P-384 and P-521 too."""
    key, signature = ecdsa_key(curve)
    assert key.verify(MESSAGE, signature)
    assert not key.verify(b"other", signature)
    assert PublicKey.decode(key.encoded) == key
    assert key.peer_id() == b"\x12\x20" + hashlib.sha256(key.encoded).digest()


def test_the_ecdsa_vector_of_the_specification_is_read() -> None:
    """It names a key of P-256."""
    assert PublicKey.decode(ECDSA_PUBLIC).key_type is KeyType.ECDSA


def test_the_high_twin_of_a_secp256k1_signature_is_refused() -> None:
    """BIP 62: (r, n - s) is also a signature for the curve, but not for us; go takes it."""
    key, signature = signed("secp256k1")
    r, s = decode_dss_signature(signature)
    high = encode_dss_signature(r, SECP256K1_ORDER - s)
    assert not key.verify(MESSAGE, high)
    assert key.passes_elsewhere(MESSAGE, high)
    assert not key.passes_elsewhere(b"other", high)


@pytest.mark.parametrize(
    "point",
    [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    ],
)
def test_small_order_ed25519_keys_verify_nothing(point: str) -> None:
    """For a key of small order, a forged signature would hold for every message."""
    key = PublicKey(KeyType.ED25519, bytes.fromhex(point))
    identity = bytes.fromhex("01" + "00" * 31)
    for r in (identity, bytes.fromhex(point)):
        for message in (b"", b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"):
            assert not key.verify(message, r + bytes(32))


def test_a_small_order_key_passes_elsewhere() -> None:
    """For the neutral element everything holds, and go and rust do not look for it."""
    neutral = bytes.fromhex("01" + "00" * 31)
    key = PublicKey(KeyType.ED25519, neutral)
    assert key.passes_elsewhere(MESSAGE, neutral + bytes(32))
    assert not key.passes_elsewhere(MESSAGE, bytes(31) + b"\x01" + bytes(32))


@pytest.mark.parametrize("kind", ["ed25519", "secp256k1", "rsa", "ecdsa"])
def test_a_false_signature_passes_nowhere(kind: str) -> None:
    """Being lenient is not being blind."""
    key, signature = signed(kind)
    assert not key.passes_elsewhere(b"other", signature)


# Refusals


@pytest.mark.parametrize("key_type", [4, 2**31, 2**64 - 1])
def test_unknown_key_types_are_refused(key_type: int) -> None:
    """The specification knows four."""
    with pytest.raises(DecodeError, match="unsupported-key-type"):
        PublicKey.decode(encoded(key_type, ECDSA_PUBLIC[4:]))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(ED25519_PUBLIC[:2] + ED25519_PUBLIC[2:] + b"\x18\x01", id="extra field"),
        pytest.param(ED25519_PUBLIC[2:] + ED25519_PUBLIC[:2], id="other order"),
        pytest.param(b"\x08\x81\x00" + ED25519_PUBLIC[2:], id="padded varint"),
        pytest.param(ED25519_PUBLIC + ED25519_PUBLIC[:2], id="type twice"),
        pytest.param(ED25519_PUBLIC[2:], id="no type"),
        pytest.param(ED25519_PUBLIC[:2], id="no data"),
        pytest.param(ED25519_PUBLIC[:-1], id="cut short"),
        pytest.param(encoded(1, bytes(31)), id="31 bytes"),
        pytest.param(encoded(2, b"\x02" + b"\xff" * 32), id="not on the curve"),
        pytest.param(encoded(2, b"\x04" + bytes(64)), id="uncompressed"),
        pytest.param(encoded(3, ECDSA_PUBLIC[4:] + b"\x00"), id="DER and more"),
        pytest.param(encoded(3, bytes(161)), id="no ECDSA key is so long"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_only_the_one_encoding_of_a_key_is_accepted(data: bytes) -> None:
    """Deterministic encoding: minimal varints, tag order, all fields, no others."""
    with pytest.raises(DecodeError):
        PublicKey.decode(data)


@pytest.mark.parametrize("bits", [1024, 2047, 8193])
def test_cve_2023_39533_rsa_keys_outside_2048_to_8192_bits_are_refused(bits: int) -> None:
    """The size of a key is checked before anything is computed with it."""
    with pytest.raises(DecodeError, match="bad-key"):
        PublicKey.decode(encoded(0, rsa_spki(2 ** (bits - 1) + 1)))


@pytest.mark.parametrize("bits", [2048, 4096, 8192])
def test_rsa_keys_of_allowed_sizes_are_accepted(bits: int) -> None:
    """The bounds themselves are inside."""
    key = PublicKey.decode(encoded(0, rsa_spki(2 ** (bits - 1) + 1)))
    assert not key.verify(MESSAGE, bytes(bits // 8))


def test_cve_2023_39533_an_enormous_rsa_key_never_reaches_the_parser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key longer than any allowed one is refused by its length alone."""

    def parse(data: bytes) -> None:
        raise AssertionError("the parser was called")

    monkeypatch.setattr(serialization, "load_der_public_key", parse)
    for data in (rsa_spki(2**16_383 + 1), rsa_spki(2**131_071 + 1), bytes(200)):
        with pytest.raises(DecodeError):
            PublicKey.decode(encoded(0, data))
        with pytest.raises(DecodeError):
            PublicKey(KeyType.RSA, data)


def test_an_rsa_exponent_as_long_as_the_modulus_is_refused() -> None:
    """A verification with a huge exponent costs as much as a signature."""
    modulus = 2**2047 + 1
    with pytest.raises(DecodeError, match="bad-key"):
        PublicKey.decode(encoded(0, rsa_spki(modulus, 2**2046 + 1)))


def test_an_rsa_key_has_one_der_encoding() -> None:
    """Without its NULL parameters the key is the same, but its peer id would be another."""
    modulus = 2**2047 + 1
    for data in (
        rsa_spki(modulus, algorithm="300b06092a864886f70d010101"),
        rsa_spki(modulus) + b"\0",
    ):
        with pytest.raises(DecodeError):
            PublicKey.decode(encoded(0, data))


def test_another_kind_of_key_inside_an_rsa_key_is_refused() -> None:
    """The type says RSA, the DER says a curve."""
    spki = (
        ec.generate_private_key(ec.SECP521R1())
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(DecodeError, match="bad-key"):
        PublicKey.decode(encoded(0, spki + bytes(200)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x12\x20" + bytes(31),
        b"\x12\x20" + bytes(33),
        b"\x12\x1f" + bytes(31),
        b"\x00\x2b" + bytes(43),
        b"\x00\x80\x00",
        b"\x13\x20" + bytes(32),
        bytes(1000),
    ],
)
def test_other_multihashes_are_not_peer_ids(data: bytes) -> None:
    """Wrong lengths, other hash functions and over-long identity hashes are refused."""
    with pytest.raises(DecodeError):
        PeerId.from_bytes(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "0",
        "Qm",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5l",
        "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxf",
        "bAFZBEIE5745RPV2M6TJYUUGYWY4D5EWRQGQQHFNF445HE3OMZPJBX5XQXE",
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
        "k51qzi5uqu5dh9ihj4p2v5sl3hxvv27ryx2w0xrsv6jmmqi91t9xp8p9kaipc2",
        "1" * 129,
        "z" * 10_000,
    ],
)
def test_text_that_is_no_peer_id_is_refused(text: str) -> None:
    """Bad digits, other codecs, stray bits, capitals and endless text."""
    with pytest.raises(DecodeError):
        PeerId.parse(text)


# Properties


@given(st.binary(max_size=80))
def test_base58_round_trips(data: bytes) -> None:
    """decode(encode(x)) = x, leading zeros included."""
    assert base58.decode(base58.encode(data)) == data


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_any_seed_makes_a_key_that_signs(seed: bytes, message: bytes) -> None:
    """Key, peer id, text and signature all lead back to the same key."""
    private = PrivateKey(seed)
    key = PeerId.parse(str(private.peer_id)).public_key()
    assert key == private.public_key == PublicKey.decode(private.public_key.encoded)
    assert hash(key) == hash(private.public_key)
    assert key.verify(message, private.sign(message))
    assert PeerId.parse(private.peer_id.cid()) == private.peer_id


def test_the_secret_does_not_show() -> None:
    """Neither the text of a private key nor its errors hold the seed."""
    private = PrivateKey(b"s" * 32)
    assert "s" * 8 not in repr(private)
    assert b"s".hex() * 8 not in repr(private)
    with pytest.raises(ValueError, match="32 bytes"):
        PrivateKey(b"s" * 31)


@given(st.binary(max_size=200) | st.binary(max_size=300).map(lambda data: encoded(0, data)))
def test_fuzz_any_bytes_are_a_key_or_a_decode_error(data: bytes) -> None:
    """No other exception, and what decodes encodes to the same bytes."""
    try:
        key = PublicKey.decode(data)
    except DecodeError:
        return
    assert key.encoded == data


@given(st.data())
def test_fuzz_changed_rsa_keys_are_keys_or_decode_errors(data: st.DataObject) -> None:
    """Damage anywhere in the DER gives a key or DecodeError, never another exception."""
    changed = bytearray(RSA_PUBLIC)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, 40))] = data.draw(st.integers(0, 255))
    try:
        key = PublicKey.decode(bytes(changed))
    except DecodeError:
        return
    assert not key.verify(MESSAGE, bytes(512))


@given(st.text(max_size=80) | st.binary(max_size=80).map(base58.encode))
def test_fuzz_any_text_is_a_peer_id_or_a_decode_error(text: str) -> None:
    """No other exception; embedded keys are keys or DecodeErrors too."""
    try:
        peer_id = PeerId.parse(text)
        peer_id.public_key()
    except DecodeError:
        return
    assert PeerId.parse(str(peer_id)) == peer_id
