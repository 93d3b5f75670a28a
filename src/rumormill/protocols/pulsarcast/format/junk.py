"""Arbitrary Pulsarcast RPCs, as an attacker would send them: well-formed, all else wrong.

Forged events in others' names, events from the future, answers that nobody asked for, joins and
leaves at random, redirections to nowhere, lists of things that nobody has.
"""

from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import (
    Addition,
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    JoinStatus,
    PeerAddress,
    RequestReply,
    RequestStatus,
    Terms,
)
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor
from rumormill.protocols.pulsarcast.format.rpc import Operation, Rpc, RpcMessage
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.scraps import some_peer

_DATES = ("1970-01-01T00:00:01.000Z", "1999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z")


def junk_rpc(randomness: Randomness, peers: list[PeerId], topics: list[Topic]) -> Rpc:
    """Make an arbitrary RPC out of what the attacker knows."""
    some = randomness.randrange

    def topic() -> bytes:
        if topics and randomness.random() < 0.8:
            try:
                return cids.parse(randomness.choice(topics))
            except DecodeError:
                return cids.of(b"no topic at all")
        return cids.of(randomness.randbytes(8))

    def peer() -> PeerId:
        return some_peer(randomness, peers)

    def event() -> SignedEvent:
        publisher = peer() if some(4) else None
        parent = cids.of(randomness.randbytes(8)) if some(2) else None
        payload = randomness.randbytes(some(200))
        created = randomness.choice(_DATES)
        forged = EventDescriptor(topic(), peer(), payload, created, publisher, parent)
        return SignedEvent(forged, randomness.randbytes(64), b"", randomness.randbytes(64))

    def message() -> RpcMessage:
        op = randomness.choice(
            (
                Operation.PUBLISH_EVENT,
                Operation.REQUEST_TO_PUBLISH,
                Operation.JOIN_TOPIC,
                Operation.LEAVE_TOPIC,
            )
        )
        created = dates.iso(some(1 << 40))
        if op in (Operation.JOIN_TOPIC, Operation.LEAVE_TOPIC):
            return RpcMessage(op, created, topic())
        return RpcMessage(op, created, event())

    def addition() -> Addition:
        where = topic()
        named = tuple(cids.of(randomness.randbytes(8)) for _ in range(some(5)))
        start, length = some(1 << 40), some(1 << 40)
        made: tuple[Addition, ...] = (
            JoinReply(where, JoinStatus(some(3)), (PeerAddress(peer()),) if some(2) else ()),
            RequestReply(where, topic(), RequestStatus(some(3)), topic() if some(2) else None),
            Fetch(where, named, some(1000), topic() if some(2) else None),
            Events(where, tuple(event() for _ in range(some(3))), named),
            Terms(where, bool(some(2)), start, start + length, some(1000), some(1 << 60)),
            Have(where, start, start + length, tuple(cid[-8:] for cid in named)),
            Block(where, randomness.randbytes(some(100))),
        )
        return randomness.choice(made)

    return Rpc(
        tuple(message() for _ in range(some(3))), tuple(addition() for _ in range(1 + some(2)))
    )
