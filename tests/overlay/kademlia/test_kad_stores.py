"""What a peer keeps for others: validators, records, providers, and their bounds."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kad_net import cid, key_of

from rumormill.core.config import override
from rumormill.core.errors import LocalError
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.server import is_content_id
from rumormill.overlay.kademlia.stores import (
    PEER_FULL,
    PROVIDERS_FULL,
    STORE_FULL,
    Held,
    ProviderStore,
    RecordStore,
)
from rumormill.overlay.kademlia.table import distance, position
from rumormill.overlay.kademlia.validators import (
    BAD_KEY,
    CID_PREFIX,
    NO_VALIDATOR,
    WRONG_HASH,
    Validators,
    cid_of,
    content_key,
)

OWN = b"own"
HOUR = 3600.0


def config(**changes: float) -> KademliaConfig:
    return override(KademliaConfig(), changes)


def records(**changes: float) -> RecordStore:
    return RecordStore(position(OWN), config(**changes))


class TestValidators:
    """A value under a content key must hash to it, in both forms of the key."""

    @given(st.binary(max_size=200), st.binary(max_size=200))
    def test_only_the_value_that_hashes_to_the_key_may_stand_there(
        self, value: bytes, other: bytes
    ) -> None:
        """For the raw CID of the original and for our own keys alike."""
        judge = Validators()
        for key in (cid(value), key_of(value)):
            assert judge.refusal(key, value) == ""
            assert judge.refusal(key, other) == ("" if other == value else WRONG_HASH)
            assert not judge.better(key, other, value)

    @given(st.binary(min_size=32, max_size=32))
    def test_our_key_names_its_cid(self, digest: bytes) -> None:
        """Base32 goes both ways, and every CID makes a key with exactly two slashes."""
        raw = CID_PREFIX + digest
        key = content_key(raw)
        assert cid_of(key) == cid_of(raw) == raw
        assert key.count(b"/") == 2
        assert key.startswith(b"/pulsarcast/bafyrei")

    def test_a_cid_with_two_slashes_can_be_stored(self) -> None:
        """0.69 % of raw CIDs hold that byte twice, which the original cannot store."""
        raw = CID_PREFIX + b"//" + bytes(30)
        assert Validators().refusal(content_key(raw), b"") == WRONG_HASH
        assert Validators().of(raw) is Validators().of(content_key(raw))

    @pytest.mark.parametrize(
        "spoilt",
        [
            lambda key: key[:-1],
            lambda key: key + b"a",
            lambda key: key[:13] + key[13:].upper(),
            lambda key: key[:-1] + b"b",  # the last digit's spare bits
            lambda key: key.replace(b"/b", b"/c"),
            lambda key: key[:20] + b"!" + key[21:],
            lambda key: key[:13] + b"a" * 58,
        ],
    )
    def test_a_key_has_one_spelling(self, spoilt) -> None:
        """Other spellings of the same CID are no keys: they would be kept apart from it."""
        key = spoilt(content_key(CID_PREFIX + bytes(32)))
        assert cid_of(key) is None
        assert Validators().refusal(key, b"") in {BAD_KEY, NO_VALIDATOR}

    def test_keys_without_validator_hold_nothing(self) -> None:
        """Neither unknown namespaces nor plain bytes."""
        judge = Validators()
        for key in (b"", b"plain", b"/", b"/pulsarcast", b"/ipns/x", b"/unknown/x", cid(b"")[:35]):
            assert judge.refusal(key, b"value") == NO_VALIDATOR

    def test_a_public_key_must_make_its_peer_id(self) -> None:
        """`/pk/` of libp2p: by hash, or by containing the key."""
        judge = Validators()
        key = b"k" * 36
        hashed = b"/pk/\x12\x20" + sha256(key).digest()
        inlined = b"/pk/\x00\x24" + key
        assert judge.refusal(hashed, key) == judge.refusal(inlined, key) == ""
        assert judge.refusal(hashed, b"x") == judge.refusal(inlined, b"x") == WRONG_HASH
        assert judge.refusal(b"/pk/", b"") == judge.refusal(b"/pk/\x13\x01a", b"a") == BAD_KEY

    def test_content_keys_are_made_of_cids_only(self) -> None:
        """Anything else is a mistake of the caller."""
        with pytest.raises(LocalError):
            content_key(b"short")


class TestRecords:
    """Bounded in number and bytes; the farthest makes room; nothing outlives its age."""

    @given(st.lists(st.integers(0, 40), max_size=80))
    def test_what_is_kept_is_what_is_closest(self, names: list[int]) -> None:
        """After any sequence of stores the closest keys are there, and no more than allowed."""
        store = records(records=7)
        for name in names:
            store.hold(Held(b"key-%d" % name, b"v", 1.0, 2.0))
        keys = sorted({b"key-%d" % name for name in names}, key=lambda key: distance(key, OWN))
        assert len(store) == min(7, len(keys))
        assert all(store.get(key, 1.0) is not None for key in keys[:7])
        assert all(store.get(key, 1.0) is None for key in keys[7:])

    @given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=60))
    def test_bytes_are_bounded_too(self, puts: list[tuple[int, int]]) -> None:
        """And the count of bytes is that of what is kept."""
        store = records(records_bytes=300)
        for name, length in puts:
            store.hold(Held(b"key-%02d" % name, bytes(length), 1.0, 2.0))
            kept = [store.get(b"key-%02d" % name, 1.0) for name in range(21)]
            assert store.counts["bytes"] == sum(6 + len(held.value) for held in kept if held) <= 300

    def test_a_record_that_is_farther_than_all_others_is_refused(self) -> None:
        """With a reason."""
        store = records(records=1)
        near, far = sorted((b"a", b"b"), key=lambda key: distance(key, OWN))
        assert store.hold(Held(near, b"", 1.0, 2.0)) == ""
        assert store.hold(Held(far, b"", 1.0, 2.0)) == STORE_FULL
        assert store.get(near, 1.0) is not None

    def test_no_peer_fills_the_store_alone(self) -> None:
        """In number and in bytes; what it gave before and is gone counts no longer."""
        store = records(records_per_peer=2, records_per_peer_bytes=10)
        for key in (b"a", b"b"):
            assert store.hold(Held(key, b"v", 1.0, 2.0, source=b"one")) == ""
        assert store.hold(Held(b"c", b"v", 1.0, 2.0, source=b"one")) == PEER_FULL
        assert store.hold(Held(b"c", b"v" * 8, 1.0, 2.0, source=b"two")) == ""
        assert store.hold(Held(b"d", b"v", 1.0, 2.0, source=b"two")) == PEER_FULL
        assert store.hold(Held(b"c", b"v" * 8, 3.0, 4.0, source=b"one")) == "", "it is there"
        assert store.expire(HOUR * 36 + 2) == 2
        assert store.hold(Held(b"d", b"v", HOUR, 2.0, source=b"one")) == ""

    def test_what_the_disk_does_not_have_is_named(self) -> None:
        """A record that only became younger is not written again each time."""
        store = records(records=1)
        near, far = sorted((b"a", b"b"), key=lambda key: distance(key, OWN))

        def changed() -> list[bytes]:
            found = list(store.changed)
            store.changed.clear()
            return found

        store.hold(Held(far, b"v", HOUR, 2.0, written=HOUR))
        assert changed() == [far]
        store.hold(Held(far, b"v", 2 * HOUR, 3.0))
        assert changed() == []
        store.hold(Held(far, b"v", 7 * HOUR, 3.0))
        assert changed() == [far]
        store.hold(Held(near, b"v", HOUR, 2.0))
        assert changed() == [far, near], "one made room for the other"
        store.publish(Held(b"c", b"v", 1.0, 2.0))
        store.withdraw(b"c")
        assert changed() == [b"c"]

    def test_records_expire_after_36_hours(self) -> None:
        """Whether they are asked for or not."""
        store = records()
        store.hold(Held(b"a", b"v", 0.0, 0.0))
        store.hold(Held(b"b", b"v", HOUR, 0.0))
        assert store.get(b"a", 36 * HOUR) is not None
        assert store.get(b"a", 36 * HOUR + 1) is None
        assert store.expire(38 * HOUR) == 1
        assert len(store) == store.counts["bytes"] == 0

    def test_our_own_records_do_not_expire_and_are_bounded(self) -> None:
        """The oldest makes room, and its key is named."""
        store = records(own_records=2)
        assert store.publish(Held(b"a", b"v", 0.0, 1.0)) is None
        assert store.publish(Held(b"b", b"v", 0.0, 2.0)) is None
        assert store.publish(Held(b"a", b"w", 0.0, 3.0)) is None
        assert store.publish(Held(b"c", b"v", 0.0, 4.0)) == b"b"
        assert store.expire(1000 * HOUR) == 0
        assert [held.key for held in store.due(3.5)] == [b"a"]
        assert store.withdraw(b"a")
        assert not store.withdraw(b"a")
        assert store.get(b"a", 1.0) is None

    def test_holders_pass_records_on_only_where_that_is_wanted(self) -> None:
        """By default republishing is the publisher's business."""
        for interval, due in ((0.0, 0), (HOUR, 1)):
            store = records(replicate_interval=interval)
            store.hold(Held(b"a", b"v", 0.0, 1.0))
            assert len(list(store.due(2.0))) == due


class TestProviders:
    """Bounded in keys and providers; the newest first; nobody is remembered for ever."""

    def test_newest_first_and_bounded(self) -> None:
        """A provider that says so again is the newest again."""
        store = ProviderStore(position(OWN), config(providers_per_key=3))
        for now, provider in enumerate((b"a", b"b", b"c", b"a", b"d")):
            assert store.add(b"key", provider, float(now)) == ""
        assert store.get(b"key", 5.0) == [b"d", b"a", b"c"]

    def test_one_group_of_addresses_has_an_eighth_of_a_keys_providers(self) -> None:
        """500 ids of one /24 push out each other, and nobody else."""
        store = ProviderStore(position(OWN), config(providers_per_key=64))
        honest = [b"honest %d" % number for number in range(40)]
        for provider in honest:
            store.add(b"key", provider, 0.0, provider.decode())
        evil = [b"evil %d" % number for number in range(500)]
        for provider in (*evil, evil[-1]):
            store.add(b"key", provider, 1.0, "203.0.113.0/24")
        assert store.get(b"key", 2.0) == [*evil[:-9:-1], *honest[::-1]]

    def test_providers_expire_after_48_hours(self) -> None:
        """And so do keys without providers."""
        store = ProviderStore(position(OWN), config())
        store.add(b"key", b"a", 0.0)
        store.add(b"key", b"b", HOUR)
        assert store.get(b"key", 48 * HOUR) == [b"b"]
        assert store.expire(48 * HOUR) == 1
        assert store.expire(49 * HOUR) == 1
        assert len(store) == 0

    @given(st.lists(st.integers(0, 30), max_size=60))
    def test_the_farthest_key_makes_room(self, names: list[int]) -> None:
        """Whoever floods with keys displaces what is farther from us than its own."""
        store = ProviderStore(position(OWN), config(provider_keys=5))
        outcomes = {b"key-%d" % name: store.add(b"key-%d" % name, b"p", 1.0) for name in names}
        keys = sorted(outcomes, key=lambda key: distance(key, OWN))
        assert [key for key in keys if store.get(key, 1.0)] == keys[:5]
        assert set(outcomes.values()) <= {"", PROVIDERS_FULL}

    @pytest.mark.parametrize(
        ("key", "valid"),
        [
            (b"\x12\x20" + bytes(32), True),
            (CID_PREFIX + bytes(32), True),
            (b"\x01\x70\x12\x20" + bytes(32), True),
            (b"\x01\xa9\x02\x12\x20" + bytes(32), True),
            (b"\xb2\x20\x04" + bytes(4), True),
            (b"\xa0\xe4\x02\x04" + bytes(4), True),
            (b"\x12\x20" + bytes(31), False),
            (b"\x12\x20" + bytes(33), False),
            (b"\x00\x00", False),
            (b"", False),
            (b"\x01", False),
            (b"\x12\x7f" + bytes(127), False),
            (b"\x01" + b"\xff" * 40, False),
        ],
    )
    def test_only_multihashes_and_cids_are_provided(self, key: bytes, valid: bool) -> None:
        """As the specification says; other keys are refused."""
        assert is_content_id(key) is valid

    @given(st.binary(max_size=90))
    def test_any_key_is_judged_without_error(self, key: bytes) -> None:
        """Keys come from peers."""
        assert is_content_id(key) in {True, False}
