"""Splitting RPCs: every item once and in order, every part short enough."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rpc_strategies import rpcs

from rumormill.core.errors import DecodeError
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.messages import (
    Control,
    IHave,
    Message,
    PeerInfo,
    Prune,
    Rpc,
    SubOpts,
    rpc_size,
)
from rumormill.protocols.pubsub.split import split_rpc

LIMIT = 1024


def message_of(size: int) -> Message:
    """A message whose encoding takes `size` bytes (of 131 or more: with a two-byte length)."""
    message = Message("", bytes(size - 3))
    assert message.size == size
    return message


def items_of(parts: list[Rpc]) -> dict[str, list[object]]:
    """Everything that the parts hold, by kind; ids one by one."""
    controls = [part.control for part in parts if part.control is not None]
    return {
        "subscriptions": [sub for part in parts for sub in part.subscriptions],
        "publish": [message for part in parts for message in part.publish],
        "ihave": [
            (ihave.topic, message_id)
            for control in controls
            for ihave in control.ihave
            for message_id in ihave.message_ids or [None]
        ],
        "iwant": [message_id for control in controls for message_id in control.iwant],
        "graft": [topic for control in controls for topic in control.graft],
        "prune": [prune for control in controls for prune in control.prune],
        "idontwant": [message_id for control in controls for message_id in control.idontwant],
    }


def count_of(rpc: Rpc) -> int:
    return sum(len(items) for items in items_of([rpc]).values())


class TestFragmentRpcFunction:
    """The cases of go-libp2p-pubsub's TestFragmentRPCFunction."""

    def test_fragment_rpc_function_leaves_alone_what_fits(self) -> None:
        """An RPC within the limit comes back as the same object."""
        rpc = Rpc(publish=(Message("t", bytes(10)), Message("t", bytes(10))))
        parts, oversized = split_rpc(rpc, LIMIT)
        assert len(parts) == 1
        assert parts[0] is rpc
        assert not oversized

    def test_fragment_rpc_function_exactly_at_the_limit(self) -> None:
        """The limit itself is allowed, one byte less is not."""
        rpc = Rpc(publish=(message_of(200), message_of(200)))
        assert len(split_rpc(rpc, rpc_size(rpc))[0]) == 1
        assert len(split_rpc(rpc, rpc_size(rpc) - 1)[0]) == 2

    def test_fragment_rpc_function_reports_a_message_over_the_limit(self) -> None:
        """The message that fits is sent; the one that never will is reported."""
        small, large = message_of(200), message_of(LIMIT * 2)
        parts, oversized = split_rpc(Rpc(publish=(small, large)), LIMIT)
        assert [part.publish for part in parts] == [(small,)]
        assert [part.publish for part in oversized] == [(large,)]

    def test_fragment_rpc_function_spreads_messages(self) -> None:
        """100 messages of 200 bytes need about 20 parts of 1 KiB, beside one subscription."""
        published = tuple(message_of(200) for _ in range(100))
        rpc = Rpc((SubOpts(True, "test"),), published)
        parts, oversized = split_rpc(rpc, LIMIT)
        assert all(len(encode_rpc(part)) <= LIMIT for part in parts)
        assert len(parts) <= 21
        assert items_of(parts) == items_of([rpc])
        assert not oversized

    def test_fragment_rpc_function_keeps_control_that_fits_in_one_part(self) -> None:
        """The control part comes last, unaltered, if it fits into one RPC."""
        control = Control(
            ihave=(IHave("", (b"foo",)),),
            iwant=tuple(bytes([n]) * 20 for n in range(20)),
            graft=("test",),
            prune=(Prune("test"),),
        )
        rpc = Rpc((SubOpts(True, "test"),), tuple(message_of(200) for _ in range(100)), control)
        parts, _ = split_rpc(rpc, LIMIT)
        assert parts[-1].control == control
        assert all(part.control is None for part in parts[:-1])
        assert items_of(parts) == items_of([rpc])

    def test_fragment_rpc_function_cuts_long_id_lists(self) -> None:
        """IHAVE of five topics and an IWANT, far over the limit, are cut inside their lists."""
        ids = tuple(bytes([n]) * 32 for n in range(100))
        control = Control(
            ihave=tuple(IHave(f"topic-{n}", ids) for n in range(5)), iwant=ids * 5, idontwant=ids
        )
        rpc = Rpc(control=control)
        parts, oversized = split_rpc(rpc, LIMIT)
        assert all(len(encode_rpc(part)) <= LIMIT for part in parts)
        assert items_of(parts) == items_of([rpc])
        assert not oversized
        least = -(-rpc_size(rpc) // LIMIT)
        assert least <= len(parts) <= least + 2

    def test_fragment_rpc_function_reports_a_giant_id(self) -> None:
        """An id that exceeds the limit is reported alone; the ids around it are sent."""
        giant = bytes(LIMIT * 2)
        rpc = Rpc(control=Control(iwant=(b"hello", giant, b"world")))
        parts, oversized = split_rpc(rpc, LIMIT)
        assert items_of(parts)["iwant"] == [b"hello", b"world"]
        assert [part.control for part in oversized] == [Control(iwant=(giant,))]

    def test_an_empty_rpc_has_no_parts(self) -> None:
        """There is nothing to send."""
        assert split_rpc(Rpc(), LIMIT) == ([], [])


def test_the_last_item_may_be_the_one_that_is_too_long() -> None:
    """A PRUNE at the end that is too long for any part is reported too."""
    prune = Prune("t", (PeerInfo(b"p", bytes(LIMIT)),), 60)
    parts, oversized = split_rpc(Rpc(control=Control(graft=("t",), prune=(prune,))), LIMIT)
    assert [part.control for part in parts] == [Control(graft=("t",))]
    assert [part.control for part in oversized] == [Control(prune=(prune,))]


def test_parts_keep_the_bytes_of_forwarded_messages() -> None:
    """Splitting hands messages on as they are, fields included that we do not know."""
    whole = decode_rpc(b"\x12\x05\x12\x01a\x48\x01" * 3)
    parts, _ = split_rpc(whole, 8)
    assert b"".join(encode_rpc(part) for part in parts) == b"\x12\x05\x12\x01a\x48\x01" * 3


@given(rpcs, st.integers(1, 2048))
def test_fuzz_rpc_split(rpc: Rpc, limit: int) -> None:
    """go's FuzzRPCSplit: no part over the limit, no item lost, doubled or out of order.

    Also: what is reported as too long is one item, and is too long; and no two neighbours of
    messages alone could have been one.
    """
    parts, oversized = split_rpc(rpc, limit)
    for part in parts:
        assert 0 < len(encode_rpc(part)) <= limit
    for part in oversized:
        assert len(encode_rpc(part)) > limit
        assert count_of(part) == 1
    kept, dropped, original = items_of(parts), items_of(oversized), items_of([rpc])
    for kind, items in original.items():
        expected = list(items)
        for lost in dropped[kind]:
            expected.remove(lost)
        assert kept[kind] == expected
    for left, right in pairwise(parts):
        if left.control is None and right.control is None:
            first = Rpc(left.subscriptions, left.publish)
            assert rpc_size(first) + _first_item_size(right) > limit or oversized


def _first_item_size(part: Rpc) -> int:
    if part.subscriptions:
        return rpc_size(Rpc(part.subscriptions[:1]))
    return rpc_size(Rpc(publish=part.publish[:1]))


@given(rpcs, st.integers(30, 600))
def test_acting_on_the_parts_is_acting_on_the_whole(rpc: Rpc, limit: int) -> None:
    """No part has an item of an earlier stage than a part before it."""
    stages = ("subscriptions", "publish", "ihave", "iwant", "graft", "prune", "idontwant")
    reached = 0
    for part in split_rpc(rpc, limit)[0]:
        present = [stage for stage, kind in enumerate(stages) if items_of([part])[kind]]
        assert all(stage >= reached for stage in present)
        reached = max(present, default=reached)


@pytest.mark.parametrize(
    "rpc",
    [
        Rpc(subscriptions=tuple(SubOpts(True, f"t{n}") for n in range(12_001))),
        Rpc(publish=tuple(Message("t", b"%d" % n) for n in range(5001))),
        Rpc(control=Control(graft=tuple(f"t{n}" for n in range(2500)))),
        Rpc(control=Control(prune=tuple(Prune(f"t{n}") for n in range(1001)))),
        Rpc(control=Control(ihave=tuple(IHave(f"t{n}", (b"id",)) for n in range(1024)))),
        Rpc(control=Control(ihave=(IHave("t", (b"id",) * 9999),) * 5, iwant=(b"id",) * 5000)),
        Rpc(control=Control(iwant=(b"id",) * 12_000, idontwant=(b"id",) * 5001)),
    ],
    ids=["subscriptions", "messages", "grafts", "prunes", "ihaves", "ihave ids", "other ids"],
)
def test_no_part_has_more_items_than_a_receiver_accepts(rpc: Rpc) -> None:
    """An RPC of few bytes may still hold too many items: the parts decode, and nothing is lost."""
    with pytest.raises(DecodeError):
        decode_rpc(encode_rpc(rpc))
    parts, oversized = split_rpc(rpc, 1 << 20)
    assert oversized == []
    decoded = [decode_rpc(encode_rpc(part)) for part in parts]
    assert sum(len(part.subscriptions) for part in decoded) == len(rpc.subscriptions)
    assert [m.data for part in decoded for m in part.publish] == [m.data for m in rpc.publish]
    controls = [part.control for part in decoded if part.control is not None]
    for name in ("iwant", "graft", "prune", "idontwant"):
        whole = getattr(rpc.control or Control(), name)
        assert tuple(item for control in controls for item in getattr(control, name)) == whole
    ids = [(i.topic, id_) for c in controls for i in c.ihave for id_ in i.message_ids]
    offered = (rpc.control or Control()).ihave
    assert ids == [(i.topic, id_) for i in offered for id_ in i.message_ids]
