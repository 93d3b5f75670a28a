"""Encrypted payloads: read by who has the key, in their topic and by their author, and whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, LocalError
from rumormill.wire.topic_cipher import (
    BAD_CIPHERTEXT,
    KEY_BYTES,
    MAX_KEYS,
    NO_TOPIC_KEY,
    NONCE_BYTES,
    NOT_ENCRYPTED,
    OVERHEAD,
    TopicKeys,
    is_encrypted,
    key_id_of,
)

OLD, NEW = b"o" * KEY_BYTES, b"n" * KEY_BYTES
NONCE = b"\x07" * NONCE_BYTES
SECRET = b"what only readers may see"


def refusal(keys: TopicKeys, data: bytes, topic: str = "orders", author: bytes = b"ann") -> str:
    """Under which reason a payload is refused."""
    with pytest.raises(DecodeError) as refused:
        keys.decrypt(data, topic, author)
    return refused.value.reason


@given(
    data=st.binary(max_size=300),
    topic=st.text(st.characters(codec="utf-8"), max_size=30),
    author=st.binary(max_size=44),
    nonce=st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES),
)
def test_what_is_encrypted_is_read_again(
    data: bytes, topic: str, author: bytes, nonce: bytes
) -> None:
    """Whatever it is; it is as much longer as is said, and names its key."""
    keys = TopicKeys([NEW, OLD])
    hidden = keys.encrypt(data, topic, author, nonce)
    assert is_encrypted(hidden)
    assert len(hidden) == len(data) + OVERHEAD
    assert key_id_of(hidden) == keys.ids[0]
    assert keys.decrypt(hidden, topic, author) == data


@given(place=st.integers(0, OVERHEAD + len(SECRET) - 1), change=st.integers(1, 255))
def test_no_byte_can_be_changed(place: int, change: int) -> None:
    keys = TopicKeys([NEW])
    hidden = bytearray(keys.encrypt(SECRET, "orders", b"ann", NONCE))
    hidden[place] ^= change
    assert refusal(keys, bytes(hidden)) in (NOT_ENCRYPTED, NO_TOPIC_KEY, BAD_CIPHERTEXT)


@given(size=st.integers(0, OVERHEAD + len(SECRET) - 1))
def test_it_cannot_be_cut(size: int) -> None:
    keys = TopicKeys([NEW])
    hidden = keys.encrypt(SECRET, "orders", b"ann", NONCE)
    assert refusal(keys, hidden[:size]) in (NOT_ENCRYPTED, BAD_CIPHERTEXT)


def test_it_cannot_be_moved() -> None:
    """Not to another topic, not to another author, and not from the one into the other."""
    keys = TopicKeys([NEW])
    hidden = keys.encrypt(SECRET, "orders", b"ann", NONCE)
    for topic, author in (
        ("order", b"ann"),
        ("orders", b"bob"),
        ("ordersa", b"nn"),
        ("orders", b""),
    ):
        assert refusal(keys, hidden, topic, author) == BAD_CIPHERTEXT


def test_rotation() -> None:
    """The first key encrypts, all decrypt; a key that was taken out reads nothing any more."""
    old, both, new = TopicKeys([OLD]), TopicKeys([NEW, OLD]), TopicKeys([NEW])
    before = old.encrypt(SECRET, "orders", b"ann", NONCE)
    after = both.encrypt(SECRET, "orders", b"ann", NONCE)
    assert both.decrypt(before, "orders", b"ann") == both.decrypt(after, "orders", b"ann") == SECRET
    assert new.decrypt(after, "orders", b"ann") == SECRET
    assert refusal(old, after) == refusal(new, before) == NO_TOPIC_KEY


def test_nothing_shows_in_it() -> None:
    """Neither content, nor topic, nor author, nor key."""
    hidden = TopicKeys([NEW]).encrypt(SECRET, "orders", b"author", NONCE)
    for secret in (SECRET, b"orders", b"author", NEW):
        assert secret not in hidden
    assert "6e6e" not in repr(TopicKeys([NEW]))


def test_clear_text_is_refused() -> None:
    assert not is_encrypted(SECRET)
    assert refusal(TopicKeys([NEW]), SECRET) == NOT_ENCRYPTED


def test_a_key_file_has_one_key_a_line() -> None:
    keys = TopicKeys([NEW, OLD])
    text = keys.encode()
    assert text.splitlines()[1:] == [NEW.hex().encode(), OLD.hex().encode()]
    assert TopicKeys.decode(text).ids == keys.ids


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "begins with"),
        (b"/key/swarm/psk/1.0.0/\n" + NEW.hex().encode(), "begins with"),
        (b"/key/rumormill/topic/1.0.0/\n", "1 to 32 keys, not 0"),
        (b"/key/rumormill/topic/1.0.0/\nzz", "base16"),
        (b"/key/rumormill/topic/1.0.0/\nabcd", "32 bytes, not 2"),
        (b"/key/rumormill/topic/1.0.0/\n" + NEW.hex().encode() * 2, "32 bytes, not 64"),
        (b"/key/rumormill/topic/1.0.0/" + b"\n6e" * (MAX_KEYS + 1), "1 to 32 keys, not 33"),
    ],
)
def test_what_is_no_key_file_is_refused(text: bytes, sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        TopicKeys.decode(text)


def test_a_rotated_key_leaves_who_has_the_old_one_out() -> None:
    """The new one encrypts, both decrypt; so many are kept, and no old one is given up unasked."""
    old = TopicKeys([OLD])
    both = old.rotated(NEW)
    assert both.ids == TopicKeys([NEW, OLD]).ids
    earlier = old.encrypt(SECRET, "orders", b"ann", NONCE)
    later = both.encrypt(SECRET, "orders", b"ann", NONCE)
    assert both.decrypt(earlier, "orders", b"ann") == both.decrypt(later, "orders", b"ann")
    assert refusal(old, later) == NO_TOPIC_KEY
    full = TopicKeys([bytes([number]) * KEY_BYTES for number in range(MAX_KEYS)])
    with pytest.raises(LocalError, match="take out the last ones"):
        full.rotated(NEW)
