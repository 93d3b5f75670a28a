"""Who is to blame: nobody for what honest peers are refused as well, whoever had them send it."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hostile_peer import HostilePeer

from live_nodes import run, until
from rumormill import Node, Verdict
from rumormill.core.event import Event
from rumormill.core.trace import Refuse, RejectMessage
from rumormill.node.config import NodeConfig
from rumormill.node.identity import NodeIdentity, SignatureVerifier
from rumormill.protocols.gossipsub import reasons as gossipsub
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.messages import Rpc
from rumormill.protocols.pulsarcast import reasons as pulsarcast
from rumormill.protocols.radius import reasons as radius
from rumormill.protocols.radius.messages import (
    Frame,
    Interest,
    Publication,
    Relay,
    Spread,
    encode_frame,
    sign,
)
from rumormill.protocols.radius.router import RADIUS
from rumormill.protocols.skipring import reasons as skipring
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey
from rumormill.wire.protobuf import bytes_field, varint_field

CALM = NodeConfig(close_timeout=0.2)


def count(node: Node, metric: str, reason: str) -> float:
    return node.metrics()[metric].get(reason, 0.0)


def is_cut_off(node: Node) -> bool:
    return any(reason.startswith("cut-off-") for reason in node.refusals)


def ignoring(event: Event, peer: bytes) -> Verdict:
    return Verdict.IGNORE


async def judging_for_ever(event: Event, peer: bytes) -> Verdict:
    await asyncio.get_running_loop().create_future()
    return Verdict.ACCEPT


@pytest.mark.parametrize(
    ("validator", "reason"),
    [(ignoring, "validation ignored"), (judging_for_ever, "validation throttled")],
)
def test_what_a_validator_ignores_or_has_no_time_for_is_nobodys_fault(
    validator: Callable[[Event, bytes], Verdict], reason: str
) -> None:
    """Neighbours pass on what is valid for them; the application may want something else."""

    async def story() -> None:
        parameters = {"max_pending_validations": 1}
        node = Node(None, config=CALM, parameters=parameters)
        async with node as alice, HostilePeer() as neighbour:
            await alice.create_topic("t")
            alice.set_validator("t", validator)
            await neighbour.connect(alice)
            stream = neighbour.hello("t")
            for number in range(301):
                message = neighbour.message("t", b"news", number + 1)
                neighbour.say(stream, frame(encode_rpc(Rpc(publish=(message,)))))
                await neighbour.drain()
            await until(
                lambda: count(alice, "rumormill_rejected", reason) >= 300 or is_cut_off(alice),
                "all are judged",
            )
            assert not is_cut_off(alice)
            assert len(alice.peers) == 1

    run(story)


OWNER = NodeIdentity(PrivateKey(secrets.token_bytes(32)))


def words(made: Callable[[int], Interest]) -> Iterator[Frame]:
    """Interests as a neighbour passes them on: hundreds together."""
    for batch in range(110):
        yield Frame(tuple(Spread(made(batch * 256 + number), 5) for number in range(256)))


def interest(number: int, expires: float, sequence: float) -> Interest:
    word = Interest(OWNER.peer, f"t{number % 256}", int(sequence * 1e6), int(expires * 1e6))
    sign(word, OWNER)
    return word


def too_late(now: float) -> Iterator[Frame]:
    """They were good for a moment longer when the neighbour took them in."""
    made = [interest(number, now - 0.1, now - 5.0) for number in range(256)]
    return words(lambda number: made[number % 256])


def overtaken(now: float) -> Iterator[Frame]:
    """Their owner has told us something newer itself."""
    later = [interest(number, now + 60.0, now) for number in range(256)]
    yield Frame(tuple(Spread(each, 0) for each in later))
    made = [interest(number, now + 60.0, now - 1.0) for number in range(256)]
    yield from words(lambda number: made[number % 256])


def just_expired(now: float) -> Iterator[Frame]:
    """Publications, one by one, whose time was not over where the neighbour is."""
    for number in range(300):
        word = Publication(OWNER.peer, "t", int((now - 62.5) * 1e9) + number, b"news")
        sign(word, OWNER)
        yield Frame(publications=(Relay(word, 5),))


@pytest.mark.parametrize(
    ("passed_on", "metric", "reason", "refused"),
    [
        (too_late, "rumormill_refused", radius.EXPIRED, 110 * 256),
        (overtaken, "rumormill_refused", radius.SUPERSEDED, 110 * 256),
        (just_expired, "rumormill_rejected", radius.EXPIRED, 300),
    ],
)
def test_who_passes_words_on_is_not_to_blame_for_their_dates(
    passed_on: Callable[[float], Iterator[Frame]], metric: str, reason: str, refused: int
) -> None:
    """Radius gossip: whoever writes a word chooses its date and number, and to whom he says what;
    a neighbour that took it in would be cut off by all of its own."""

    async def story() -> None:
        parameters = {"overlay": "links", "network_size": 10}
        node = Node(None, protocol="radius", config=CALM, parameters=parameters)
        async with node as alice, HostilePeer() as neighbour:
            neighbour.protocols = (RADIUS,)
            await neighbour.connect(alice)
            stream, session = neighbour.open(RADIUS), neighbour.session
            for each in passed_on(time.time()):
                neighbour.say(stream, frame(encode_frame(each)))
                await until(lambda: neighbour.closed or not session.queued_bytes, "it is taken")
            await until(
                lambda: count(alice, metric, reason) >= refused or is_cut_off(alice),
                "all are refused",
            )
            assert not is_cut_off(alice)

    run(story)


OFFERED_AGAIN = (skipring.REFUSED_BEFORE, skipring.NO_LONGER_KEPT, skipring.HISTORY_UNREAD)


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        *(("skipring", reason) for reason in OFFERED_AGAIN),
        ("pulsarcast", pulsarcast.TOO_OLD),
        ("pulsarcast", pulsarcast.FUTURE_DATE),
        ("pulsarcast", pulsarcast.NOT_READ),
        ("gossipsub", gossipsub.GRAFT_MESH_FULL),
        ("gossipsub", gossipsub.THROTTLED),
    ],
)
def test_what_lies_with_us_cuts_no_neighbour_off(protocol: str, reason: str) -> None:
    """Our log, our application, our clock and our load are not its fault, each time anew."""

    async def story() -> None:
        async with Node(None, protocol=protocol, config=CALM) as alice, HostilePeer() as neighbour:
            neighbour.protocols = alice._driver.protocol_ids
            await neighbour.connect(alice)
            peer = bytes(neighbour.key.peer_id)
            driver = alice._driver
            await until(lambda: peer in driver.channels, "the neighbour is there")
            refusals = [Refuse(peer, reason, "t"), RejectMessage(b"id", peer, reason, "t")]
            driver._carry_out(refusals * 600, driver.now())
            assert not is_cut_off(alice)

    run(story)


@pytest.mark.parametrize(("bits", "exponent"), [(1024, 65537), (2048, 2**32 + 15)])
def test_a_key_of_a_size_that_we_do_not_take_is_not_its_bearers_fault(
    bits: int, exponent: int
) -> None:
    """js-libp2p asks for no least size of RSA keys, and passes on what they sign."""
    modulus = rsa.generate_private_key(65537, bits).public_key().public_numbers().n
    key = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    encoded = varint_field(1, 0) + bytes_field(2, der)
    author = b"\x12\x20" + sha256(encoded).digest()
    signed = (author, encoded, b"news", bytes(bits // 8))
    assert not SignatureVerifier().verify(*signed)
    assert SignatureVerifier().passes_elsewhere(*signed)
