"""What messages are called, and what becomes of peers that do not agree on it."""

import pytest

from protocols.conformance import by_data
from protocols.pubsub_rig import Rig
from rumormill.core.trace import DeliverMessage, Penalise
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig, SignPolicy
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.message_ids import content_hash
from rumormill.protocols.pubsub.messages import Message, Rpc
from rumormill.protocols.pubsub.naming import message_namer, rpc_decoder
from rumormill.protocols.registry import NO_HOOKS, Hooks

MESSAGE = Message("news", b"hello", b"author", b"\x00\x01")
GOSSIP_ONLY = {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "flood_publish": False}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (SignPolicy.STRICT_SIGN, b"author\x00\x01"),
        (SignPolicy.STRICT_NO_SIGN, content_hash("news", b"hello")),
    ],
)
def test_the_policy_decides_the_default_id(policy: SignPolicy, expected: bytes) -> None:
    """Author and sequence number where there are any, the content where there are none."""
    assert message_namer(PubSubConfig(sign_policy=policy), None)(MESSAGE) == expected
    decoded = rpc_decoder(PubSubConfig(sign_policy=policy), NO_HOOKS)(
        encode_rpc(Rpc(publish=(MESSAGE,)))
    )
    assert decoded.publish[0].id == expected


def test_what_arrives_is_named_by_the_applications_function() -> None:
    """The decoder calls it with topic, data, author and sequence number."""
    asked: list[tuple[object, ...]] = []

    def name(*values: object) -> bytes:
        asked.append(values)
        return b"name %d" % len(asked)

    decode = rpc_decoder(PubSubConfig(), Hooks(message_id=name))
    rpc = decode(encode_rpc(Rpc(publish=(MESSAGE, MESSAGE))))
    assert [message.id for message in rpc.publish] == [b"name 1", b"name 2"]
    assert asked == [("news", b"hello", b"author", b"\x00\x01")] * 2


@pytest.mark.parametrize("named", [b"", b"x" * (MAX_ID_BYTES + 1)])
def test_an_id_that_could_not_travel_is_replaced(named: bytes) -> None:
    """No IHAVE could name the message by an empty id, or by one that is too long."""
    name = message_namer(PubSubConfig(), lambda *_: named)
    assert name(MESSAGE) == b"author\x00\x01"


def test_by_content_the_first_to_say_it_has_said_it() -> None:
    """Two authors of one sentence are one message, which everybody gets once."""
    rig = Rig()
    peers = rig.add(3, options={"message_id": content_hash})
    rig.connect_all(peers)
    rig.subscribe(peers)
    rig.run(2)
    rig.publish(0, b"hello")
    rig.run(0.1)
    assert rig.publish(1, b"hello").note
    rig.run(2)
    for peer in peers:
        (delivered,) = rig.trace(DeliverMessage, peer)
        assert delivered.message_id == content_hash("news", b"hello")


def test_peers_that_disagree_hold_nobody_for_a_liar() -> None:
    """Each has the message once, under its own name.

    What the one advertises the other does not know by that name, though it has it: it asks, and
    gets a copy that it names differently. Who answers has kept its promise.
    """
    rig = Rig()
    rig.add(options={"message_id": by_data}, **GOSSIP_ONLY)
    rig.add(**GOSSIP_ONLY)
    rig.connect(0, 1)
    rig.subscribe([0, 1])
    rig.run(2)
    rig.publish(0, b"hello")
    rig.run(10)
    assert rig.data(1) == [b"hello"]
    assert [each.message_id for each in rig.trace(DeliverMessage, 0)] == [b"hello"]
    assert [each.message_id[:4] for each in rig.trace(DeliverMessage, 1)] == [rig.id(0)]
    assert not rig.trace(Penalise)
