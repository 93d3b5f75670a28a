"""Messages that others accept and we do not: who relays them is heard as before."""

import os
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from interop_asserts import TOPIC, connection_to, join, messages, refused
from interop_peer import PATIENCE, ForeignPeer, Program

from live_nodes import take
from rumormill.node.node import Node
from rumormill.protocols.pubsub.codec import encode_rpc, sign_message
from rumormill.protocols.pubsub.messages import Message
from rumormill.wire.frames import frame
from rumormill.wire.keys import KeyType, PrivateKey, PublicKey

pytestmark = pytest.mark.interop

COUNT = 40

SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
NEUTRAL = bytes.fromhex("01" + "00" * 31)

Author = tuple[bytes, bytes, Callable[[bytes], bytes]]
"""Peer id, public key where the id does not contain it, and how it signs."""


def _plain() -> Author:
    key = PrivateKey(os.urandom(32))
    return bytes(key.peer_id), b"", key.sign


def _high() -> Author:
    """Of the two signatures that everybody can compute, the one that BIP 62 forbids."""
    private = ec.generate_private_key(ec.SECP256K1())
    key = PublicKey(
        KeyType.SECP256K1,
        private.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
        ),
    )

    def sign(payload: bytes) -> bytes:
        r, s = decode_dss_signature(private.sign(payload, ec.ECDSA(hashes.SHA256())))
        return encode_dss_signature(r, max(s, SECP256K1_ORDER - s))

    return bytes(key.peer_id()), b"", sign


def _nobody() -> Author:
    """With this key everybody can sign."""
    key = PublicKey(KeyType.ED25519, NEUTRAL)
    return bytes(key.peer_id()), b"", lambda _: NEUTRAL + bytes(32)


def _other_encoding() -> Author:
    """A key with a field more than it needs."""
    key = PrivateKey(os.urandom(32))
    return bytes(key.peer_id), key.public_key.encoded + b"\x18\x01", key.sign


UNUSUAL = pytest.mark.parametrize(
    ("author", "seqno_bytes"),
    [(_plain, 0), (_plain, 9), (_plain, 200), (_high, 8), (_nobody, 8), (_other_encoding, 8)],
    ids=["no seqno", "seqno of 9", "seqno of 200", "high S", "small order", "other encoding"],
)


def unusual_messages(author: Callable[[], Author], seqno_bytes: int) -> list[Message]:
    made = []
    for number in range(COUNT):
        peer, key, sign = author()
        seqno = (number + 1).to_bytes(seqno_bytes) if seqno_bytes else b""
        message = Message(TOPIC, b"unusual %d" % number, peer, seqno)
        sign_message(message, sign, key)
        made.append(message)
    return made


@UNUSUAL
async def test_who_relays_what_only_others_accept_is_heard(
    golang: Program, author: Callable[[], Author], seqno_bytes: int
) -> None:
    """go accepts all of these and passes them on; we ignore them, and hold it against nobody."""
    async with ForeignPeer(golang) as go, Node(None) as ours, Node(None) as writer:
        subscription = await ours.subscribe(TOPIC)
        await writer.subscribe(TOPIC)
        await go.ask("subscribe", topic=TOPIC)
        await join(ours, go, we_dial=True)
        await join(writer, go, we_dial=True)
        await go.ask("waitForMesh", topic=TOPIC, count=2)
        await writer.wait_until_ready(TOPIC, timeout=PATIENCE)
        unusual = unusual_messages(author, seqno_bytes)
        relay = connection_to(writer, go).remote_peer
        for message in unusual:
            rpc = message.alone()
            writer._driver.send((relay,), rpc, frame(encode_rpc(rpc)), 0.0)
        relayed = await go.received(TOPIC, len(unusual))
        assert sorted(relayed) == sorted(message.data for message in unusual)
        own = messages("go", 20)
        await go.publish(TOPIC, own)
        assert await take(subscription, 20) == own
        assert len(await ours.history(TOPIC)) == 20
        score = ours._driver.machine.view().scores[connection_to(ours, go).remote_peer]
        assert score >= 0
        assert not refused(ours)


@pytest.mark.parametrize("key", ["ecdsa", "secp256k1", "rsa"])
async def test_peers_and_authors_with_other_keys_are_heard(golang: Program, key: str) -> None:
    """A go peer with such a key connects, writes, and is relayed by another."""
    async with (
        ForeignPeer(golang, key=key) as writer,
        ForeignPeer(golang) as relay,
        Node(None) as near,
        Node(None) as far,
    ):
        subscriptions = [await near.subscribe(TOPIC), await far.subscribe(TOPIC)]
        for peer in (writer, relay):
            await peer.ask("subscribe", topic=TOPIC)
        await join(near, writer, we_dial=True)
        await relay.ask("dial", ticket=writer.ticket)
        await join(far, relay, we_dial=False)
        await writer.ask("waitForMesh", topic=TOPIC, count=2)
        await relay.ask("waitForMesh", topic=TOPIC, count=2)
        written = messages("writer", 20)
        await writer.publish(TOPIC, written)
        for subscription in subscriptions:
            assert sorted(await take(subscription, 20)) == sorted(written)
