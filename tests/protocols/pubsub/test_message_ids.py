"""The ids of implementations and networks, against values that those have computed."""

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError, DecodeError
from rumormill.protocols.pubsub.codec import sign_message
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.message_ids import NAMINGS, MessageNaming, naming_of, unsnapped
from rumormill.protocols.pubsub.messages import Message
from rumormill.protocols.pubsub.naming import message_namer
from rumormill.protocols.registry import protocol
from rumormill.wire.keys import PrivateKey

KEY = PrivateKey(bytes(32))


def message(topic: str = "news", data: bytes = b"hello", seqno: int = 258) -> Message:
    made = Message(topic, data, bytes(KEY.peer_id), seqno.to_bytes(8))
    sign_message(made, KEY.sign, b"")
    return made


@pytest.mark.parametrize(
    ("naming", "expected"),
    [
        ("libp2p", bytes(KEY.peer_id) + bytes(6) + b"\x01\x02"),
        ("js", KEY.public_key.encoded + bytes(6) + b"\x01\x02"),
        ("rust", f"{KEY.peer_id}258".encode()),
        ("filecoin", hashlib.blake2b(b"hello", digest_size=32).digest()),
        (
            "ethereum",
            hashlib.sha256(bytes(4) + (4).to_bytes(8, "little") + b"news" + b"hello").digest()[:20],
        ),
    ],
)
def test_a_preset_names_as_its_namesake_does(naming: str, expected: bytes) -> None:
    """Byte for byte; the content here is no Snappy, for which Ethereum has a domain of its own."""
    config = protocol("gossipsub").configure(changes={"message_id": naming})
    assert isinstance(config, PubSubConfig)
    assert message_namer(config, None)(message()) == expected


def test_ethereum_names_by_what_was_compressed() -> None:
    """A literal of five bytes, as Snappy writes it, is named by the five bytes."""
    compressed = message(data=b"\x05\x10hello")
    hashed = b"\x01\x00\x00\x00" + (4).to_bytes(8, "little") + b"news" + b"hello"
    name = NAMINGS[MessageNaming.ETHEREUM]
    assert name(compressed) == hashlib.sha256(hashed).digest()[:20]


def test_a_topic_may_have_names_of_its_own() -> None:
    """As typed on a command line; all others go by the general preset."""
    typed = {"message_id": "rust", "message_ids": '{"blocks": "filecoin"}'}
    config = protocol("floodsub").configure(changes=typed)
    assert isinstance(config, PubSubConfig)
    name = message_namer(config, lambda topic, *_: b"mine" if topic == "own" else b"")
    assert name(message("blocks")) == NAMINGS[MessageNaming.FILECOIN](message())
    assert name(message("news")) == NAMINGS[MessageNaming.RUST](message())
    assert name(message("own")) == b"mine"


def test_a_preset_that_does_not_exist_is_an_error() -> None:
    """It names what was typed."""
    with pytest.raises(ConfigError, match="message_id: 'nim'"):
        protocol("gossipsub").configure(changes={"message_id": "nim"})


@pytest.mark.parametrize("naming", [MessageNaming.LIBP2P, MessageNaming.JS, MessageNaming.RUST])
@given(seqno=st.integers(0, 2**64 - 1))
def test_defaults_are_told_apart_by_their_look(naming: MessageNaming, seqno: int) -> None:
    """The first id that a peer sends says what it speaks."""
    assert naming_of(NAMINGS[naming](message(seqno=seqno))) is naming


@given(st.binary(max_size=60))
def test_other_ids_are_nobodys_or_somebodys(data: bytes) -> None:
    """Any bytes may come; hashes look like nothing."""
    assert naming_of(data) in {None, *MessageNaming}
    assert naming_of(hashlib.sha256(data).digest()) is None


SNAPPY = [
    (b"\x00", b""),
    (b"\x05\x10hello", b"hello"),
    # A literal of one byte, and a copy of nine from one byte before: a run.
    (b"\x0a\x00a\x15\x01", b"a" * 10),
    # "abcd", and a copy of eight from four before, with an offset of two bytes.
    (b"\x0c\x0cabcd\x1e\x04\x00", b"abcd" * 3),
    # A literal whose length takes a byte of its own.
    (b"\x64\xf0\x63" + b"x" * 100, b"x" * 100),
]


@pytest.mark.parametrize(("block", "content"), SNAPPY)
def test_snappy_is_read(block: bytes, content: bytes) -> None:
    """Literals, runs, and copies."""
    assert unsnapped(block, 100) == content


@pytest.mark.parametrize(
    "block", ["", "80", "6500", "05", "051068656c6c", "051501", "01046162", "02f0"]
)
def test_what_is_no_snappy_is_refused(block: str) -> None:
    """Nothing is allocated for a block that says it is too long, and nothing is read behind it."""
    with pytest.raises(DecodeError):
        unsnapped(bytes.fromhex(block), 100)


@given(st.binary(max_size=64))
def test_snappy_of_anybody_is_read_or_refused(block: bytes) -> None:
    """And is never longer than allowed."""
    with contextlib.suppress(DecodeError):
        assert len(unsnapped(block, 1000)) <= 1000
